#include "src/directory/core/recovery_gate.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

const NodeKey kNode{1, 1};

DirectoryOptions Options() {
  DirectoryOptions options;
  options.lease = absl::Seconds(2);
  options.max_deferred = 3;
  options.max_broadcasts = 2;
  options.max_deferred_name_bytes = 100;
  return options;
}

class RecoveryGateTest : public ::testing::Test {
 protected:
  ~RecoveryGateTest() override { EXPECT_THAT(gate_.CheckInvariants(), IsOk()); }

  void Advance(absl::Duration by) { context_.now = context_.now + by; }
  bool DeferQuery(std::vector<std::string> names = {}) {
    return gate_.Defer(id_,
                       {kNode, 1, ++requests_, DeferredRequest::Kind::kQuery, std::move(names)});
  }

  CoreContext context_{Options(), Instant(), Random(1)};
  RecoveryGate gate_{context_};
  const ObjectId id_ = ObjectId::FromName("test", "object");
  uint64_t requests_ = 0;
};

TEST_F(RecoveryGateTest, LearnsForOneLease) {
  EXPECT_TRUE(gate_.learning());
  EXPECT_FALSE(gate_.Due(/*registering=*/false));
  Advance(absl::Seconds(2));
  EXPECT_TRUE(gate_.Due(/*registering=*/false));
  gate_.Open();
  EXPECT_FALSE(gate_.learning());
  EXPECT_FALSE(gate_.Due(/*registering=*/false));
  EXPECT_TRUE(gate_.NextDeadline().infinite());
}

TEST_F(RecoveryGateTest, WaitsForNodesThatRegisterButNotForEver) {
  Advance(absl::Seconds(2));
  EXPECT_FALSE(gate_.Due(/*registering=*/true));
  Advance(30 * absl::Seconds(2));
  EXPECT_TRUE(gate_.Due(/*registering=*/true));
}

TEST_F(RecoveryGateTest, APauseExtendsLearning) {
  Advance(absl::Seconds(1));
  gate_.ExtendTo(context_.now + absl::Seconds(2));
  Advance(absl::Seconds(1));
  EXPECT_FALSE(gate_.Due(/*registering=*/false));
  Advance(absl::Seconds(1));
  EXPECT_TRUE(gate_.Due(/*registering=*/false));
}

TEST_F(RecoveryGateTest, AFirstLifeIsOpenFromTheStart) {
  DirectoryOptions options = Options();
  options.first_life = true;
  const CoreContext context(options, Instant(), Random(1));
  const RecoveryGate gate(context);
  EXPECT_FALSE(gate.learning());
  EXPECT_TRUE(gate.MayAdoptFromAbsence());
}

TEST_F(RecoveryGateTest, AdoptsFromAbsenceUntilANodeReportsAnEarlierLife) {
  EXPECT_TRUE(gate_.MayAdoptFromAbsence());
  gate_.NoteEarlierLife();
  EXPECT_FALSE(gate_.MayAdoptFromAbsence());
  gate_.Open();
  EXPECT_TRUE(gate_.MayAdoptFromAbsence());
}

TEST_F(RecoveryGateTest, HandsBackTheRequestsOfAnObjectInOrder) {
  EXPECT_TRUE(DeferQuery());
  EXPECT_TRUE(DeferQuery());
  EXPECT_EQ(gate_.NextRequestId(), id_);
  const std::vector<DeferredRequest> taken = gate_.TakeRequests(id_);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].request_id, 1u);
  EXPECT_EQ(taken[1].request_id, 2u);
  EXPECT_FALSE(gate_.has_requests());
}

TEST_F(RecoveryGateTest, BoundsTheRequestsThatWait) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(DeferQuery());
  EXPECT_FALSE(DeferQuery());
  EXPECT_THAT(gate_.FullMessage(id_), ::testing::HasSubstr("3 requests"));
}

TEST_F(RecoveryGateTest, BoundsTheBytesOfNodeNames) {
  EXPECT_TRUE(DeferQuery({std::string(50, 'a')}));
  EXPECT_FALSE(DeferQuery({std::string(50, 'b')}));
  gate_.TakeRequests(id_);
  EXPECT_TRUE(DeferQuery({std::string(50, 'b')}));
}

TEST_F(RecoveryGateTest, ACancelledBroadcastStillBegins) {
  v1::BroadcastRequest request;
  request.set_request_id(7);
  EXPECT_TRUE(gate_.Defer(DeferredBroadcast{kNode, 1, request}));
  gate_.CancelBroadcast(kNode, 7);
  const std::vector<DeferredBroadcast> taken = gate_.TakeBroadcasts();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(taken[0].cancelled);
}

}  // namespace
}  // namespace phalanx::directory
