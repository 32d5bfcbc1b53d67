// A shard's gRPC server: takes nodes' streams and tools' calls to the shard's executor.
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
#include "src/common/executor.h"
#include "src/directory/message_stream.h"
#include "src/directory/session_handshake.h"
#include "src/directory/shard.h"
#include "src/net/byte_stream.h"

namespace phalanx::directory {

class ToolsService;

class GrpcDirectoryServer {
 public:
  // Called on the executor with each stream that a node opens.
  using Accept = absl::AnyInvocable<void(std::unique_ptr<ShardStream>)>;

  // Serves `shard` on `address` ("127.0.0.1:7400"; port 0 asks the system for one). `shard` lives
  // on `executor`, and outlives the server. FailedPrecondition for an address beyond loopback
  // without a secret, InvalidArgument for one that does not parse or is not this host's,
  // AlreadyExists for a port that is in use.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> Listen(const net::Address& address,
                                                                     Executor& executor,
                                                                     Shard& shard);
  // The streams alone, as `accept` takes them.
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> ListenForStreams(
      const net::Address& address, Executor& executor, const std::string& secret, Accept accept);

  // Ends all streams and calls with Unavailable, and waits until gRPC has let go of them.
  ~GrpcDirectoryServer();

  // With the real port.
  const net::Address& address() const;

 private:
  struct Impl;
  explicit GrpcDirectoryServer(std::unique_ptr<Impl> impl);
  static absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> Serve(
      const net::Address& address, Executor& executor, const std::string& secret, Accept accept,
      std::unique_ptr<ToolsService> tools);
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_DIRECTORY_SERVER_H_
