// A shard's gRPC server: passes the tools' calls, and nodes' streams over gRPC, to the shard's
// executor. The PortMultiplexer passes connections to this server.
//
// gRPC's threads do nothing else. A stream that breaks, bytes that are not HTTP/2, frames that are
// too large or are no protos end only that stream or connection.
//
// Thread rule: created and destroyed on any thread (the executor's too), while the executor runs or
// after it has stopped, but before it is destroyed. Owned by the daemon's main.
#ifndef PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_
#define PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/time/executor.h"
#include "src/directory/session/message_stream.h"
#include "src/directory/session/session_handshake.h"
#include "src/directory/session/shard.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::directory {

class ToolsService;

class GrpcDirectoryServer {
 public:
  // Called on the executor with each stream that a node opens.
  using Accept = absl::AnyInvocable<void(std::unique_ptr<ShardStream>)>;

  // Serves `shard`, which lives on `executor` and outlives the server, without a port: connections
  // arrive by TakeConnection. ResourceExhausted if gRPC does not start.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> WithoutPort(Executor& executor,
                                                                          Shard& shard);
  // Serves only streams, passed to `accept`, on a loopback port that the system chooses.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> ListenForStreams(Executor& executor,
                                                                               Accept accept);

  // Ends all streams and calls with Unavailable, and waits until gRPC has released them.
  ~GrpcDirectoryServer();

  // With the real port; empty without one.
  const net::Address& address() const;

  // Takes over a connected, non-blocking socket, from which the caller has already read `read`.
  // REQUIRES: WithoutPort.
  void TakeConnection(net::UniqueFd socket, absl::string_view read);

 private:
  struct Impl;
  explicit GrpcDirectoryServer(std::unique_ptr<Impl> impl);
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> ServeWithoutPort(
      Executor& executor, Accept accept, std::unique_ptr<ToolsService> tools);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_
