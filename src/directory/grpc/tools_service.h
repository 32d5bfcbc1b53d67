// The Tools service of one shard: unary calls, checked and answered on the shard's executor.
//
// Thread rule: created and closed on any thread; gRPC's threads only post. Owned by the
// GrpcDirectoryServer, which ends the calls before it destroys the service.
#ifndef PHALANX_DIRECTORY_GRPC_TOOLS_SERVICE_H_
#define PHALANX_DIRECTORY_GRPC_TOOLS_SERVICE_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "src/common/time/executor.h"
#include "src/directory/session/shard.h"

namespace phalanx::directory {

// The limit of calls that wait for the executor; the service rejects more with ResourceExhausted.
inline constexpr int kMaxWaitingToolCalls = 256;

class ToolsService {
 public:
  virtual ~ToolsService() = default;
  virtual grpc::Service* service() = 0;
  // After Close the service does not touch the shard any more.
  virtual void Close() = 0;
};

// `shard` lives on `executor` and outlives Close.
std::unique_ptr<ToolsService> NewToolsService(Executor& executor, Shard& shard);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_TOOLS_SERVICE_H_
