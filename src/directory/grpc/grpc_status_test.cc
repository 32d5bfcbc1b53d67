#include "src/directory/grpc/grpc_status.h"

#include <string>

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

TEST(GrpcStatusTest, EveryCodeSurvivesTheWayThereAndBack) {
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())), absl::OkStatus());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

TEST(GrpcStatusTest, AnUnknownCodeIsUnknown) {
  const grpc::Status odd(static_cast<grpc::StatusCode>(99), "odd");
  EXPECT_EQ(FromGrpcStatus(odd), absl::UnknownError("odd"));
}

TEST(GrpcStatusTest, ALongTextIsCut) {
  const absl::Status status = absl::InternalError(std::string(10'000, 'x'));
  EXPECT_EQ(ToGrpcStatus(status).error_message().size(), kMaxStatusTextBytes);
}

}  // namespace
}  // namespace phalanx::directory
