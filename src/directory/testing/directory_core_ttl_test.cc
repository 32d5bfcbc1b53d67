// Objects with a time to live: the shard counts it from the adoption and deletes the object, also
// if the shard, or the nodes' sessions, began again meanwhile.
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/objects/expiry_queue.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;

constexpr absl::Duration kSecond = absl::Seconds(1);
const ObjectId x = Id("x");

class Ttl : public ::testing::Test {
 protected:
  explicit Ttl(bool learning = false) : h_(learning) {}

  static v1::ObjectInfo Info(absl::Duration ttl) {
    v1::ObjectInfo info;
    info.set_size_bytes(100'000);
    info.set_slices(1);
    SetTtl(ttl, &info);
    return info;
  }
  Generation Create(const NodeKey& node, absl::Duration ttl, bool complete = true,
                    const ObjectId& id = x) {
    const Generation generation = h_.NewGeneration(node);
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    ToProto(id, create.mutable_object_id());
    ToProto(generation, create.mutable_generation());
    *create.mutable_info() = Info(ttl);
    create.set_complete(complete);
    h_.Send(node, message).IgnoreError();
    return generation;
  }
  // In a new session.
  void Register(const NodeKey& node, const Generation& generation, absl::Duration ttl,
                bool adopted = true) {
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    ToProto(x, copy.mutable_object_id());
    ToProto(generation, copy.mutable_generation());
    *copy.mutable_info() = Info(ttl);
    copy.set_adopted(adopted);
    copy.set_complete(true);
    h_.NewSession(node, /*had_session=*/true);
    h_.Send(node, message).IgnoreError();
    h_.RegisterEnd(node);
  }
  // What is left, as the tools show it.
  absl::Duration Left() { return TtlOf(h_.Describe(x).summary().info()); }
  bool Deleted() { return h_.Describe(x).summary().deleted(); }
  bool GoneExpired(const NodeKey& node) {
    const auto gone = h_.Last(node, v1::ShardMessage::kGone);
    return gone.has_value() && gone->gone().kind() == v1::Gone::DELETED && gone->gone().expired();
  }
  uint64_t Expired() {
    v1::GetStatusResponse status;
    h_.core().FillStatus(h_.now(), &status);
    return status.counters().at("expired");
  }

  Harness h_;
  const NodeKey a_ = h_.Up("a"), b_ = h_.Up("b");
};

class TtlAtARestart : public Ttl {
 protected:
  TtlAtARestart() : Ttl(/*learning=*/true) {}
};

TEST_F(Ttl, TheObjectIsDeletedWhenItsTimeHasPassed) {
  const Generation generation = Create(a_, 10 * kSecond);
  EXPECT_EQ(h_.core().NextDeadline(), h_.now() + 10 * kSecond);
  EXPECT_EQ(Left(), 10 * kSecond);
  h_.Advance(9 * kSecond);
  EXPECT_EQ(Left(), kSecond);
  EXPECT_FALSE(Deleted());
  h_.Advance(kSecond);
  EXPECT_TRUE(Deleted());
  EXPECT_TRUE(GoneExpired(a_));
  EXPECT_EQ(Expired(), 1u);
  // The tombstone refuses the generation, as after a Delete.
  h_.Announce(a_, x, generation, {});
  EXPECT_EQ(h_.LastVerdict(a_), v1::Verdict::DELETED);
}

TEST_F(Ttl, WithoutATimeNothingIsCounted) {
  Create(a_, absl::InfiniteDuration());
  EXPECT_TRUE(h_.core().NextDeadline().infinite());
  h_.Advance(absl::Hours(1000));
  EXPECT_FALSE(Deleted());
  EXPECT_FALSE(h_.Describe(x).summary().info().has_name());
  EXPECT_EQ(h_.Describe(x).summary().info().ttl_ns(), 0u);
}

TEST_F(Ttl, WaitingNodesAndLaterGetsAreAnsweredAsAfterADelete) {
  Create(a_, kSecond, /*complete=*/false);
  h_.Want(b_, x);
  h_.Advance(kSecond);
  EXPECT_TRUE(GoneExpired(b_));
  h_.Clear();
  h_.Want(b_, x);
  EXPECT_TRUE(GoneExpired(b_));
  h_.Query(b_, x);
  EXPECT_TRUE(h_.Last(b_, v1::ShardMessage::kQueryReply)->query_reply().deleted());
}

TEST_F(Ttl, AMessageAfterTheTimeFindsTheObjectDeletedBeforeAnyTick) {
  // More than one turn deletes.
  for (int i = 0; i < 2 * ExpiryQueue::kMaxPerTurn; ++i) {
    Create(a_, kSecond, true, Id("other" + std::to_string(i)));
  }
  Create(a_, kSecond);
  h_.Advance(2 * kSecond);
  EXPECT_EQ(Expired(), uint64_t{ExpiryQueue::kMaxPerTurn});
  EXPECT_EQ(h_.core().NextDeadline(), h_.now())
      << "the next turn follows at once, and does not take the second for a pause";
  h_.Want(b_, x);
  EXPECT_TRUE(GoneExpired(b_));
  h_.Advance(absl::ZeroDuration());
  h_.Advance(absl::ZeroDuration());
  EXPECT_EQ(Expired(), uint64_t{2 * ExpiryQueue::kMaxPerTurn + 1});
}

TEST_F(Ttl, AnObjectThatIsPutAgainHasItsOwnTime) {
  Create(a_, kSecond);
  h_.Advance(kSecond);
  ASSERT_TRUE(Deleted());
  Create(a_, 5 * kSecond);
  EXPECT_EQ(Left(), 5 * kSecond);
  h_.Delete(b_, x);
  Create(b_, absl::InfiniteDuration());
  h_.Advance(absl::Hours(1));
  EXPECT_FALSE(Deleted());
}

TEST_F(Ttl, PuttingAnObjectThatExistsDoesNotRenewItsTime) {
  Create(a_, 5 * kSecond);
  h_.Advance(4 * kSecond);
  Create(b_, 5 * kSecond);
  EXPECT_EQ(h_.LastVerdict(b_), v1::Verdict::SUPERSEDED);
  EXPECT_EQ(Left(), kSecond);
}

TEST_F(Ttl, AStandbyIsCountedFromItsAdoption) {
  const Generation first = Create(a_, absl::InfiniteDuration(), /*complete=*/false);
  Create(b_, 5 * kSecond);
  h_.Advance(4 * kSecond);
  h_.Withdraw(a_, x, first);
  EXPECT_EQ(h_.LastVerdict(b_), v1::Verdict::ADOPTED);
  EXPECT_EQ(Left(), 5 * kSecond);
}

TEST_F(Ttl, ReceiversLearnWhatIsLeft) {
  Create(a_, 5 * kSecond);
  h_.Advance(2 * kSecond);
  h_.Want(b_, x);
  EXPECT_EQ(TtlOf(h_.Last(b_, v1::ShardMessage::kAssign)->assign().info()), 3 * kSecond);
  h_.Query(b_, x);
  EXPECT_EQ(TtlOf(h_.Last(b_, v1::ShardMessage::kQueryReply)->query_reply().info()), 3 * kSecond);
}

TEST_F(Ttl, ACountedObjectGoesEarlierIfNoNodeHoldsIt) {
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  ToProto(x, create.mutable_object_id());
  ToProto(h_.NewGeneration(a_), create.mutable_generation());
  *create.mutable_info() = Info(5 * kSecond);
  create.mutable_info()->set_owned(true);
  create.set_complete(true);
  h_.Hold(a_, x);
  h_.Send(a_, message).IgnoreError();
  h_.Unhold(a_, x);
  EXPECT_TRUE(Deleted());
  EXPECT_TRUE(h_.core().NextDeadline() > h_.now() + 5 * kSecond) << "nothing is left to expire";
}

TEST_F(Ttl, AHoldDoesNotProlongTheTime) {
  Create(a_, kSecond);
  h_.Hold(b_, x);
  h_.Advance(kSecond);
  EXPECT_TRUE(Deleted());
}

TEST_F(Ttl, ALongTimeIsRefusedAndChangesNothing) {
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  ToProto(x, create.mutable_object_id());
  ToProto(h_.NewGeneration(a_), create.mutable_generation());
  *create.mutable_info() = Info(kSecond);
  create.mutable_info()->set_ttl_ns(~uint64_t{0});
  EXPECT_THAT(h_.Send(a_, message),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ttl_ns")));
  EXPECT_FALSE(h_.Known(x));
}

TEST_F(Ttl, ANewSessionOfTheOnlyHolderDoesNotRenewTheTime) {
  const Generation generation = Create(a_, 5 * kSecond);
  h_.Advance(2 * kSecond);
  // The node has not received the verdict, and so has not begun to count.
  Register(a_, generation, 5 * kSecond, /*adopted=*/false);
  EXPECT_EQ(Left(), 3 * kSecond);
}

TEST_F(TtlAtARestart, TheTimeContinuesWithWhatANodeRegisters) {
  Register(b_, Generation{a_, 9}, 3 * kSecond);
  EXPECT_EQ(Left(), 3 * kSecond);
  h_.Advance(3 * kSecond);
  EXPECT_TRUE(Deleted());
  EXPECT_TRUE(GoneExpired(b_));
}

TEST_F(TtlAtARestart, TheShortestTimeCounts) {
  Register(a_, Generation{a_, 9}, 4 * kSecond);
  Register(b_, Generation{a_, 9}, 3 * kSecond);
  EXPECT_EQ(Left(), 3 * kSecond);
  const NodeKey c = h_.Up("c");
  Register(c, Generation{a_, 9}, absl::InfiniteDuration());
  EXPECT_EQ(Left(), 3 * kSecond);
}

TEST_F(TtlAtARestart, ANodeThatReturnsAfterTheTimeDropsItsCopy) {
  // Its time had passed while it was cut off, which it registers as the shortest there is.
  Register(b_, Generation{a_, 9}, -kSecond);
  EXPECT_EQ(Left(), absl::Nanoseconds(1));
  h_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(Deleted());
  // So does a later one.
  Register(a_, Generation{a_, 9}, kSecond);
  EXPECT_EQ(h_.LastVerdict(a_), v1::Verdict::DELETED);
}

TEST_F(TtlAtARestart, AStandbyThatWasAdoptedKeepsCountingWhileItStandsBy) {
  Register(a_, Generation{a_, 9}, 5 * kSecond);
  Register(b_, Generation{b_, 9}, 3 * kSecond);
  ASSERT_EQ(FromProto(h_.Describe(x).summary().generation()), (Generation{a_, 9}));
  h_.Advance(kSecond);
  // The one that is adopted turns out to have been deleted in an earlier life.
  h_.RegisterTombstone(h_.Up("c"), x, Generation{a_, 9});
  ASSERT_EQ(FromProto(h_.Describe(x).summary().generation()), (Generation{b_, 9}));
  EXPECT_EQ(Left(), 2 * kSecond);
}

}  // namespace
}  // namespace phalanx::directory
