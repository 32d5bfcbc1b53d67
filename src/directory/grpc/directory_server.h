// A shard's gRPC server: takes tools' calls, and nodes' streams that come over gRPC, to the shard's
// executor. The PortMultiplexer passes connections to it.
//
// gRPC's threads do nothing but that; a stream that breaks, bytes that are no HTTP/2, frames that
// are too large or no protos end that stream or connection, and nothing else.
//
// Thread rule: made and destroyed on any thread (the executor's too), while the executor runs or
// after it has stopped, but before it is destroyed. Owned by the daemon's main.
#ifndef PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_
#define PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/executor.h"
#include "src/directory/message_stream.h"
#include "src/directory/session_handshake.h"
#include "src/directory/shard.h"
#include "src/net/byte_stream.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::directory {

class ToolsService;

class GrpcDirectoryServer {
 public:
  // Called on the executor with each stream that a node opens.
  using Accept = absl::AnyInvocable<void(std::unique_ptr<ShardStream>)>;

  // Serves `shard`, which lives on `executor` and outlives the server, on no port: connections come
  // by TakeConnection. ResourceExhausted when gRPC does not start.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> WithoutPort(Executor& executor,
                                                                          Shard& shard);
  // The streams alone, as `accept` takes them, on a port of the loopback that the system chooses.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> ListenForStreams(Executor& executor,
                                                                               Accept accept);

  // Ends all streams and calls with Unavailable, and waits until gRPC has let go of them.
  ~GrpcDirectoryServer();

  // With the real port; empty without one.
  const net::Address& address() const;

  // Takes over a connected, non-blocking socket, of which `read` has been read already. REQUIRES:
  // WithoutPort.
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
