#include "src/directory/grpc/grpc_status.h"

#include <string>

namespace phalanx::directory {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enums are those of the gRPC specification, so the number is the same.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxStatusTextBytes)));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The code comes from the peer: a number outside the enum must not be cast.
  const int code = status.error_code();
  const bool known = code > 0 && code <= grpc::StatusCode::UNAUTHENTICATED;
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

}  // namespace phalanx::directory
