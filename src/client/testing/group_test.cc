// What a client does with parts of a result that come early, beside a member that the test plays.
#include "phalanx/group.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"
#include "src/local/testing/raw_member.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::object_store::testing::RawMember;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;

constexpr size_t kCount = size_t{1} << 20;
constexpr uint64_t kBytes = kCount * sizeof(float);
constexpr absl::Duration kLong = absl::Seconds(30);

class GroupTest : public ::testing::Test {
 protected:
  void Make(LossPolicy on_loss, uint64_t capacity) {
    node_ = std::make_unique<LocalNode>(capacity);
    ClientOptions options;
    options.address = node_->address();
    client_ = Client::Connect(options).value();
    other_ = std::make_unique<RawMember>(*node_, "worker1", 2);
    JoinOptions join;
    join.world = 2;
    group_ = std::make_unique<Group>(client_->Join("train", "worker0", join).value(),
                                     GroupOptions{.on_loss = on_loss, .timeout = kLong});
    spec_ = {.kind = jobs::CallKind::kAllReduce,
             .on_loss = static_cast<jobs::OnLoss>(on_loss),
             .bytes = kBytes};
  }
  // Begins a call whose result, zeros of the other member included, is in the vector in part.
  Future<Done> BeginWithPart() {
    const Future<Done> call = group_->AllReduce(absl::MakeSpan(vector_), ReduceOp::kMin);
    spec_.op = ReduceOp::kMin;
    other_->Call(spec_, kBytes, kBytes / 2);
    absl::Status status;
    do {
      status = call.Wait(absl::Milliseconds(1)).status();
    } while (absl::IsDeadlineExceeded(status) && vector_[0] == 2);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded)) << "the call has ended";
    EXPECT_EQ(vector_.front(), 0);
    EXPECT_EQ(vector_.back(), 2);
    return call;
  }

  std::unique_ptr<LocalNode> node_;
  std::shared_ptr<Client> client_;
  std::unique_ptr<RawMember> other_;
  std::unique_ptr<Group> group_;
  jobs::CallSpec spec_;
  std::vector<float> vector_ = std::vector<float>(kCount, 2);
};

TEST_F(GroupTest, ACallThatFailsLeavesItsVectorAsItWas) {
  Make(LossPolicy::kFail, 64 * kBytes);
  const Future<Done> call = BeginWithPart();
  other_.reset();
  EXPECT_THAT(call.Wait(kLong), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(vector_, std::vector<float>(kCount, 2));
}

TEST_F(GroupTest, ACallThatIsTakenAgainWithoutAMemberHasNothingOfIt) {
  Make(LossPolicy::kExclude, 64 * kBytes);
  const Future<Done> call = BeginWithPart();
  other_.reset();
  EXPECT_THAT(call.Wait(kLong), IsOk());
  EXPECT_EQ(vector_, std::vector<float>(kCount, 2));
  EXPECT_EQ(group_->members_of_last_call(), 1);
}

// The node has room for two inputs and one result.
TEST_F(GroupTest, ACallThatHasFailedKeepsNoMemoryOfItsResult) {
  Make(LossPolicy::kFail, 3 * kBytes + kBytes / 2);
  const Future<Done> failed = BeginWithPart();
  other_.reset();
  EXPECT_THAT(failed.Wait(kLong), StatusIs(absl::StatusCode::kUnavailable));
  other_ = std::make_unique<RawMember>(*node_, "worker1", 2);
  const Future<Done> call = group_->AllReduce(absl::MakeSpan(vector_), ReduceOp::kMin);
  other_->Call(spec_, kBytes, kBytes);
  EXPECT_THAT(call.Wait(kLong), IsOk());
  EXPECT_EQ(vector_, std::vector<float>(kCount, 0));
  EXPECT_FALSE(failed.Wait(kLong).ok()) << "the caller still has its future";
}

}  // namespace
}  // namespace phalanx
