#include <utility>

#include "src/directory/grpc/directory_server.h"
#include "src/directory/grpc/tools_service.h"

namespace phalanx::directory {

// In a file of its own: the rest of the server needs no Shard, only an Accept.
absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> GrpcDirectoryServer::WithoutPort(
    Executor& executor, Shard& shard) {
  return ServeWithoutPort(
      executor, [&shard](std::unique_ptr<ShardStream> stream) { shard.Accept(std::move(stream)); },
      NewToolsService(executor, shard));
}

}  // namespace phalanx::directory
