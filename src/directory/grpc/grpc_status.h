// absl::Status to grpc::Status and back. Both have the same codes with the same numbers.
//
// Any thread.
#ifndef PHALANX_DIRECTORY_GRPC_GRPC_STATUS_H_
#define PHALANX_DIRECTORY_GRPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace phalanx::directory {

// Truncates the text to what fits into HTTP/2 trailers (kMaxStatusTextBytes).
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that does not exist becomes Unknown.
absl::Status FromGrpcStatus(const grpc::Status& status);

inline constexpr size_t kMaxStatusTextBytes = 2048;

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_GRPC_STATUS_H_
