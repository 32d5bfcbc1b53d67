#include "src/directory/pulls/pull_scheduler.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

class FakeListener final : public PullListener {
 public:
  void OnRefused(Object&, const NodeKey& node) override { refused.push_back(node); }
  void OnOrderRefused(const ObjectId&, const NodeKey&, PlanId) override {}
  void OnReported(Object&, const NodeKey&, PlanId, bool) override {}
  void OnRoomFreed() override { ++room_freed; }

  std::vector<NodeKey> refused;
  int room_freed = 0;
};

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_waiting = 2;
  return options;
}

class PullSchedulerTest : public ObjectFixture {
 protected:
  PullSchedulerTest() : ObjectFixture(Options()) {
    listeners_ = {&scheduler_, &reductions_, &drains_, &placements_};
  }
  ~PullSchedulerTest() override { PHALANX_EXPECT_OK(scheduler_.CheckInvariants()); }

  v1::Want WantOf(uint64_t number = 1) const {
    v1::Want m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    m.set_number(number);
    return m;
  }
  void Want(const NodeKey& key) { PHALANX_ASSERT_OK(scheduler_.OnWant(node(key), WantOf())); }
  void Unwant(const NodeKey& key) {
    v1::Unwant m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    PHALANX_ASSERT_OK(scheduler_.OnUnwant(node(key), m));
  }
  // The report of the node's current pull.
  void Report(const NodeKey& key, bool complete,
              absl::StatusCode code = absl::StatusCode::kUnavailable) {
    v1::PullReport m;
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(object().generation, m.mutable_generation());
    m.set_plan_id(object().copies.at(key).pull->plan);
    m.set_complete(complete);
    if (!complete) {
      m.set_code(static_cast<int>(code));
      m.add_watermarks(0);
    }
    PHALANX_ASSERT_OK(scheduler_.OnPullReport(node(key), m));
  }
  // The node has tried to connect to its sender for long.
  void ReportConnecting(const NodeKey& key) {
    v1::Progress m;
    v1::Progress::Pull& pull = *m.add_pulls();
    pull.set_object_id(id_.binary().data(), ObjectId::kSize);
    ToProto(object().generation, pull.mutable_generation());
    pull.set_plan_id(object().copies.at(key).pull->plan);
    pull.add_watermarks(0);
    pull.set_connecting(true);
    PHALANX_ASSERT_OK(scheduler_.OnProgress(node(key), m));
  }
  // "node <- sender" of each Assign, and "node: inline" of each Deliver, since the last call.
  std::vector<std::string> Sent() {
    std::vector<std::string> sent;
    for (const Outgoing& out : outbox_.Take()) {
      const std::string to = nodes_.NameOf(out.to);
      if (out.message.has_assign()) {
        sent.push_back(to + " <- " + nodes_.NameOf(FromProto(out.message.assign().sender())));
      }
      if (out.message.has_deliver()) sent.push_back(to + ": inline");
      if (out.message.has_gone()) sent.push_back(to + ": gone");
    }
    return sent;
  }
  WantState StateOf(const NodeKey& key) { return object().wants.at(key).state; }

  FakeListener listener_;
  PlacementTable placement_table_{PlacementTable::Limits{}};
  PullScheduler scheduler_{{context_, nodes_, outbox_, gate_, table_, tombstones_, failures_,
                            inline_cache_, placement_table_},
                           listener_};
};

using Messages = std::vector<std::string>;
// Its receivers form a chain, although no link was measured.
constexpr uint64_t kLarge = 64 << 20;

TEST_F(PullSchedulerTest, AWantWaitsUntilThereIsASender) {
  Want(kB);
  EXPECT_EQ(StateOf(kB), WantState::kWaiting);
  EXPECT_EQ(scheduler_.waiting_wants(), 1u);
  Create(kA, /*complete=*/true);
  EXPECT_EQ(Sent(), Messages{"b <- a"});
  EXPECT_EQ(StateOf(kB), WantState::kPulling);
  EXPECT_EQ(node(kB).pulls, 1u);
  EXPECT_EQ(scheduler_.waiting_wants(), 0u);
}

TEST_F(PullSchedulerTest, ACompletedPullEndsTheWantAndCompletesTheCopy) {
  Create(kA, /*complete=*/true);
  Want(kB);
  Report(kB, /*complete=*/true);
  EXPECT_TRUE(object().wants.empty());
  EXPECT_EQ(object().copies.at(kB).state(), CopyState::kComplete);
  EXPECT_EQ(node(kB).pulls, 0u);
}

TEST_F(PullSchedulerTest, AReceiverPullsFromARelayWhileTheRelayStillReceives) {
  Create(kA, /*complete=*/true, kLarge);
  Want(kB);
  Want(kC);
  EXPECT_EQ(Sent(), (Messages{"b <- a", "c <- b"}));
}

TEST_F(PullSchedulerTest, NodesThatWaitTogetherHaveTheSamePairsInWhateverOrderTheyAsked) {
  Want(kC);
  Want(kB);
  Create(kA, /*complete=*/true);
  EXPECT_EQ(Sent(), (Messages{"b <- a", "c <- a"}));
}

TEST_F(PullSchedulerTest, TheOrderOfNodesThatWaitTogetherBeginsAfterTheSource) {
  Want(kA);
  Want(kC);
  Create(kB, /*complete=*/true);
  EXPECT_EQ(Sent(), (Messages{"c <- b", "a <- b"}));
}

TEST_F(PullSchedulerTest, AFailedPullIsAssignedToAnotherSender) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kC);
  Want(kB);
  const Messages first = Sent();
  ASSERT_EQ(first.size(), 1u);
  Report(kB, /*complete=*/false);
  const Messages second = Sent();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(first, second);
  EXPECT_EQ(context_.counters.pulls_failed, 1u);
}

TEST_F(PullSchedulerTest, AReceiverThatIsNotConnectedGetsAnotherSender) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kC);
  Want(kB);
  EXPECT_EQ(Sent(), Messages{"b <- a"});
  ReportConnecting(kB);
  EXPECT_EQ(Sent(), Messages{"b <- c"});
  EXPECT_TRUE(scheduler_.planner().pairs().Cut(kB, kA, context_.now));
}

TEST_F(PullSchedulerTest, AReceiverThatIsNotConnectedTriesOnIfThereIsNoOtherNode) {
  Create(kA, /*complete=*/true);
  Want(kB);
  Sent();
  node(kC).connected = false;
  ReportConnecting(kB);
  EXPECT_EQ(Sent(), Messages{});
  EXPECT_EQ(StateOf(kB), WantState::kPulling);
}

TEST_F(PullSchedulerTest, AReceiverThatIsNotConnectedWaitsForARelay) {
  Create(kA, /*complete=*/true);
  Want(kB);
  Sent();
  ReportConnecting(kB);
  EXPECT_EQ(StateOf(kB), WantState::kWaiting);
  Want(kC);
  EXPECT_EQ(Sent(), (Messages{"c <- a", "b <- c"}));
}

TEST_F(PullSchedulerTest, AReceiverThatIsNotConnectedChangesPlacesWithItsReceiver) {
  Create(kA, /*complete=*/true, kLarge);
  Want(kB);
  Want(kC);
  EXPECT_EQ(Sent(), (Messages{"b <- a", "c <- b"}));
  ReportConnecting(kB);
  EXPECT_EQ(Sent(), (Messages{"c <- a", "b <- c"}));
}

TEST_F(PullSchedulerTest, AReportUnderAnOldPlanDoesNotEndTheCurrentPull) {
  Create(kA, /*complete=*/true);
  AddCompleteCopy(kC);
  Want(kB);
  const PlanId old = object().copies.at(kB).pull->plan;
  Report(kB, /*complete=*/false);
  Sent();
  v1::PullReport late;
  late.set_object_id(id_.binary().data(), ObjectId::kSize);
  ToProto(object().generation, late.mutable_generation());
  late.set_plan_id(old);
  late.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  late.add_watermarks(0);
  PHALANX_ASSERT_OK(scheduler_.OnPullReport(node(kB), late));
  EXPECT_EQ(Sent(), Messages{});
  EXPECT_EQ(StateOf(kB), WantState::kPulling);
  EXPECT_EQ(context_.counters.late_messages, 1u);
}

TEST_F(PullSchedulerTest, ReceiversOfARemovedCopyWaitAgain) {
  Create(kA, /*complete=*/false);
  Want(kB);
  EXPECT_EQ(Sent(), Messages{"b <- a"});
  Down(kA);
  // The node may have received every byte: the generation is void when the node has not reported so
  // within a lease.
  EXPECT_EQ(Sent(), Messages{});
  EXPECT_EQ(StateOf(kB), WantState::kWaiting);
  Advance(context_.options.lease);
  table_.Tick();
  EXPECT_EQ(Sent(), Messages{"b: gone"});
  EXPECT_EQ(StateOf(kB), WantState::kWaiting);
  Create(kC, /*complete=*/true);
  EXPECT_EQ(Sent(), Messages{"b <- c"});
}

TEST_F(PullSchedulerTest, ASmallObjectIsDeliveredAndTheCopyIsUnconfirmed) {
  Create(kA, /*complete=*/true);
  table_.CacheInline(object(), "1234");
  Want(kB);
  EXPECT_EQ(Sent(), Messages{"b: inline"});
  EXPECT_EQ(object().copies.at(kB).state(), CopyState::kDelivered);
  EXPECT_FALSE(object().HasConfirmedCopy(kB));
  // A repeated Want is answered again, and confirms nothing.
  Want(kB);
  EXPECT_EQ(Sent(), Messages{"b: inline"});
  EXPECT_EQ(object().copies.at(kB).state(), CopyState::kDelivered);
}

TEST_F(PullSchedulerTest, AWantOfARegisteringSessionIsHeld) {
  Create(kA, /*complete=*/true);
  node(kB).registering = true;
  v1::RegisterWant m;
  m.set_object_id(id_.binary().data(), ObjectId::kSize);
  PHALANX_ASSERT_OK(scheduler_.OnRegisterWant(node(kB), m));
  EXPECT_EQ(StateOf(kB), WantState::kHeld);
  table_.Reevaluate(object());
  EXPECT_EQ(Sent(), Messages{});
  node(kB).registering = false;
  table_.SessionRegistered(node(kB));
  EXPECT_EQ(Sent(), Messages{"b <- a"});
}

TEST_F(PullSchedulerTest, ANodeWithoutRoomIsNotServedAndReportedAsRefusing) {
  Create(kA, /*complete=*/true);
  v1::Want m = WantOf();
  ToProto(Gen(kA), m.mutable_no_room_for());
  PHALANX_ASSERT_OK(scheduler_.OnWant(node(kB), m));
  EXPECT_EQ(Sent(), Messages{});
  EXPECT_EQ(listener_.refused, std::vector<NodeKey>{kB});
  Want(kB);
  EXPECT_EQ(Sent(), Messages{"b <- a"});
}

TEST_F(PullSchedulerTest, AnUnwantedPartialCopyIsRemoved) {
  Create(kA, /*complete=*/true);
  Want(kB);
  Unwant(kB);
  EXPECT_FALSE(object().copies.contains(kB));
  EXPECT_TRUE(object().wants.empty());
  EXPECT_EQ(listener_.refused, std::vector<NodeKey>{kB});
}

TEST_F(PullSchedulerTest, WantsBeyondTheLimitAreRefused) {
  for (const NodeKey& key : {kA, kB, kC}) Want(key);
  EXPECT_EQ(Sent(), Messages{"c: gone"});
  EXPECT_EQ(context_.counters.wants_refused, 1u);
}

TEST_F(PullSchedulerTest, TheWaitingNodesOfAFailedIdAreSentTheError) {
  Want(kB);
  failures_.Set(id_, absl::AbortedError("no input"));
  table_.Reevaluate(object());
  const std::vector<v1::ShardMessage> sent = TakeMessages(kB);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].gone().kind(), v1::Gone::REFUSED);
  EXPECT_EQ(sent[0].gone().reason(), "no input");
}

TEST_F(PullSchedulerTest, ProgressWithLessMemoryInUseIsReported) {
  node(kB).info.set_used_bytes(10);
  v1::Progress m;
  m.set_used_bytes(5);
  PHALANX_ASSERT_OK(scheduler_.OnProgress(node(kB), m));
  EXPECT_EQ(listener_.room_freed, 1);
  PHALANX_ASSERT_OK(scheduler_.OnProgress(node(kB), m));
  EXPECT_EQ(listener_.room_freed, 1);
}

}  // namespace
}  // namespace phalanx::directory
