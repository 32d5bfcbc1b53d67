// Owned objects live as long as a node holds them (docs/lifetime.md), as the nodes observe it.
#include <string>

#include "gtest/gtest.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"

namespace phalanx::directory::testing {
namespace {

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId x = Id("x");

using Kind = v1::ShardMessage::KindCase;

class HoldTest : public ReduceTest {
 protected:
  HoldTest() { AddNodes(3); }

  const NodeKey& a() { return nodes_[0]; }
  const NodeKey& b() { return nodes_[1]; }
  const NodeKey& c() { return nodes_[2]; }

  Generation PutOwned(const NodeKey& node, const ObjectId& id) {
    h_.Hold(node, id);
    return h_.Create(node, id, {.complete = true, .owned = true});
  }
  bool Freed(const ObjectId& id) { return h_.Describe(id).summary().deleted(); }
};

TEST_F(HoldTest, AnOwnedObjectIsDeletedWhenItsLastHolderLetsGo) {
  PutOwned(a(), x);
  h_.Hold(b(), x);
  h_.Unhold(a(), x);
  EXPECT_FALSE(Freed(x));
  EXPECT_EQ(h_.Describe(x).summary().holders(), 1u);
  h_.Unhold(b(), x);
  EXPECT_TRUE(Freed(x));
  EXPECT_EQ(h_.LastGone(a()), v1::Gone::DELETED) << "its holder drops it";
  h_.Want(b(), x);
  EXPECT_EQ(h_.LastGone(b()), v1::Gone::DELETED) << "and who asks hears so";
}

TEST_F(HoldTest, OtherObjectsStay) {
  h_.Hold(a(), x);
  h_.Create(a(), x, {.complete = true});
  h_.Unhold(a(), x);
  h_.Down(b());
  h_.Advance(10 * kLease);
  EXPECT_FALSE(Freed(x));
  EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 1u);
}

TEST_F(HoldTest, AnObjectThatIsUnreferencedWhenItIsPutIsFreedAtOnce) {
  h_.Create(a(), x, {.complete = true, .owned = true});
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, ItMayBeHeldBeforeItIsThere) {
  h_.Hold(b(), x);
  h_.Create(a(), x, {.complete = true, .owned = true});
  EXPECT_FALSE(Freed(x));
  h_.Unhold(b(), x);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, AnUnsealedObjectIsFreedToo) {
  h_.Hold(a(), x);
  h_.Create(a(), x, {.owned = true});
  h_.Unhold(a(), x);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, AStandbyIsAdoptedAndNotFreedWhileTheObjectIsHeld) {
  h_.Hold(a(), x);
  h_.Hold(b(), x);
  h_.Create(a(), x, {.owned = true});
  const Generation second = h_.Create(b(), x, {.complete = true, .owned = true});
  h_.Down(a());
  EXPECT_EQ(FromProto(h_.Describe(x).summary().generation()), second);
  h_.Advance(2 * kLease);
  EXPECT_FALSE(Freed(x));
  h_.Unhold(b(), x);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, TheHoldsOfANodeThatIsGoneCountForALease) {
  PutOwned(a(), x);
  h_.Hold(b(), x);
  h_.Unhold(a(), x);
  h_.Down(b());
  h_.Advance(kLease / 2);
  EXPECT_FALSE(Freed(x));
  h_.Advance(kLease);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, ANodeThatReturnsInTimeHoldsTheObjectsThatItRegisters) {
  const ObjectId y = Id("y");
  PutOwned(a(), x);
  PutOwned(a(), y);
  h_.Hold(b(), x);
  h_.Hold(b(), y);
  h_.Unhold(a(), x);
  h_.Unhold(a(), y);
  h_.Down(b());
  h_.Advance(kLease / 2);
  h_.NewSession(b());
  h_.Advance(kLease / 2);
  h_.RegisterHold(b(), x);
  EXPECT_FALSE(Freed(y)) << "it has not told everything";
  h_.RegisterEnd(b());
  EXPECT_TRUE(Freed(y));
  h_.Advance(5 * kLease);
  EXPECT_FALSE(Freed(x));
}

TEST_F(HoldTest, ABrokenSessionThatResumesHasLostNothing) {
  PutOwned(a(), x);
  h_.Connected(a(), false);
  h_.Advance(kLease / 2);
  h_.Connected(a(), true);
  h_.Advance(5 * kLease);
  EXPECT_FALSE(Freed(x));
}

TEST_F(HoldTest, AShardThatWasStoppedGivesTheHoldersTheirTime) {
  PutOwned(a(), x);
  h_.Hold(b(), x);
  h_.Unhold(a(), x);
  h_.Down(b());
  h_.core().NotePause(h_.now() + kLease);
  h_.Advance(kLease + kLease / 2);
  EXPECT_FALSE(Freed(x));
  h_.Advance(kLease);
  EXPECT_TRUE(Freed(x));
}

// ---- a restarted shard

TEST_F(HoldTest, AShardThatLearnsFreesNothing) {
  const Generation g = PutOwned(a(), x);
  h_.Hold(b(), x);
  h_.Unhold(a(), x);
  h_.RestartShard();
  h_.NewSession(a(), /*had_session=*/true);
  h_.RegisterCopy(a(), x, g, {.owned = true});
  h_.RegisterEnd(a());
  EXPECT_FALSE(Freed(x)) << "another node may hold it";
  h_.Advance(kLease / 2);
  h_.NewSession(b(), /*had_session=*/true);
  h_.RegisterHold(b(), x);
  h_.RegisterEnd(b());
  h_.Advance(5 * kLease);
  EXPECT_FALSE(Freed(x));
  h_.Unhold(b(), x);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, AnObjectWithoutRegisteredHoldsIsFreedWhenLearningEnds) {
  const Generation g = PutOwned(a(), x);
  h_.RestartShard();
  h_.NewSession(a(), /*had_session=*/true);
  h_.RegisterCopy(a(), x, g, {.owned = true});
  h_.RegisterEnd(a());
  h_.Advance(2 * kLease);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, ANodeThatComesLateWithItsCopyHoldsItBefore) {
  const Generation g = PutOwned(a(), x);
  h_.RestartShard();
  h_.Up("other");
  h_.Advance(5 * kLease);
  h_.NewSession(a(), /*had_session=*/true);
  h_.RegisterHold(a(), x);
  h_.RegisterCopy(a(), x, g, {.owned = true});
  h_.RegisterEnd(a());
  EXPECT_FALSE(Freed(x));
  EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 1u);
}

// ---- references in transit

TEST_F(HoldTest, TheSenderOfAReferenceIsNotifiedWhenItsReceiverHoldsIt) {
  PutOwned(a(), x);
  h_.Hold(b(), x);
  h_.Claim(b(), x, a(), 17);
  const auto claimed = h_.Last(a(), Kind::kClaimed);
  ASSERT_TRUE(claimed.has_value());
  EXPECT_EQ(claimed->claimed().numbers(0), 17u);
}

TEST_F(HoldTest, AWantMayPrecedeTheHoldOfItsNode) {
  PutOwned(a(), x);
  h_.Want(b(), x);
  h_.Finish(b(), x);
  EXPECT_FALSE(Freed(x)) << "the reference is in transit from a";
  h_.Hold(b(), x);
  h_.Claim(b(), x, a(), 17);
  h_.Unhold(a(), x);
  EXPECT_FALSE(Freed(x));
  h_.Unhold(b(), x);
  EXPECT_TRUE(Freed(x));
}

TEST_F(HoldTest, AClaimByANodeWithoutAHoldIsNotForwarded) {
  PutOwned(a(), x);
  h_.Claim(b(), x, a(), 17);
  EXPECT_FALSE(h_.Last(a(), Kind::kClaimed).has_value());
  h_.Hold(c(), x);
  h_.Down(a());
  h_.Claim(c(), x, a(), 17);
  EXPECT_TRUE(h_.status().ok()) << "nobody is left to be told";
}

// ---- objects that are kept

TEST_F(HoldTest, AKeptObjectIsNotFreed) {
  const Generation g = PutOwned(a(), x);
  h_.Want(b(), x);
  h_.Finish(b(), x);
  h_.Keep(c(), x);
  EXPECT_EQ(h_.Last(c(), Kind::kKeepReply)->keep_reply().code(), 0);
  ASSERT_TRUE(h_.Last(a(), Kind::kKept).has_value());
  EXPECT_EQ(FromProto(h_.Last(b(), Kind::kKept)->kept().generation()), g);
  h_.Unhold(a(), x);
  EXPECT_FALSE(Freed(x));
  EXPECT_FALSE(h_.Describe(x).summary().info().owned());
}

TEST_F(HoldTest, ARestartedShardLearnsThatTheObjectIsKept) {
  const Generation g = PutOwned(a(), x);
  h_.Unhold(c(), x);
  h_.RestartShard();
  for (const NodeKey& node : {a(), b()}) h_.NewSession(node, /*had_session=*/true);
  h_.RegisterCopy(a(), x, g, {.owned = true});
  h_.RegisterCopy(b(), x, g, {.primary = false, .owned = false});
  EXPECT_TRUE(h_.Last(a(), Kind::kKept).has_value()) << "it had not heard of it";
  for (const NodeKey& node : {a(), b()}) h_.RegisterEnd(node);
  h_.Advance(5 * kLease);
  EXPECT_FALSE(Freed(x));
}

TEST_F(HoldTest, AnObjectThatWasNeverPutCannotBeKept) {
  h_.Keep(a(), x);
  EXPECT_EQ(h_.Last(a(), Kind::kKeepReply)->keep_reply().code(),
            Number(absl::StatusCode::kNotFound));
  Harness learning(/*learning=*/true);
  const NodeKey node = learning.Up("n");
  learning.Keep(node, x);
  EXPECT_FALSE(learning.Last(node, Kind::kKeepReply).has_value()) << "it may still be registered";
  learning.Advance(2 * kLease);
  EXPECT_TRUE(learning.Last(node, Kind::kKeepReply).has_value());
}

// ---- reductions

TEST_F(HoldTest, ASourceIsNotFreedBeforeItsReductionHasEnded) {
  PutOwned(a(), Source(0));
  Reduce(1, 2);
  h_.Unhold(a(), Source(0));
  EXPECT_FALSE(Freed(Source(0)));
  h_.Delete(c(), kTarget);
  EXPECT_TRUE(Freed(Source(0)));
}

TEST_F(HoldTest, AReductionMakesAnOwnedTarget) {
  Put(0, 0);
  Put(1, 1);
  h_.Hold(c(), kTarget);
  v1::NodeMessage request = Request(2);
  request.mutable_reduce_request()->set_owned(true);
  Send(2, request);
  const int root = RootAt();
  ASSERT_GE(root, 0);
  const v1::Fold fold = *FoldAt(root);
  EXPECT_TRUE(fold.owned());
  h_.Unhold(c(), kTarget);
  const Generation made = Announce(root, fold);
  EXPECT_FALSE(Freed(kTarget)) << "it is being made";
  Report(root, fold, v1::FoldReport::READY);
  h_.Seal(nodes_[root], kTarget, made);
  EXPECT_EQ(Code(2), 0);
  EXPECT_TRUE(Freed(kTarget)) << "and nobody holds it";
}

TEST_F(HoldTest, ARequesterThatDoesNotOwnTheResultMakesItStay) {
  Put(0, 0);
  Put(1, 1);
  h_.Hold(c(), kTarget);
  v1::NodeMessage request = Request(2);
  request.mutable_reduce_request()->set_owned(true);
  Send(2, request);
  const int root = RootAt();
  const v1::Fold fold = *FoldAt(root);
  Send(0, Request(2));
  const Generation made = Announce(root, fold);
  EXPECT_EQ(FromProto(h_.Last(nodes_[root], Kind::kKept)->kept().generation()), made);
  h_.Unhold(c(), kTarget);
  Report(root, fold, v1::FoldReport::READY);
  h_.Seal(nodes_[root], kTarget, made);
  EXPECT_FALSE(Freed(kTarget));
}

TEST(HoldLimits, AShardWithMoreHoldsThanItRecordsFreesNothing) {
  DirectoryOptions options;
  options.max_holds = 2;
  Harness h(/*learning=*/false, options);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Hold(a, x);
  h.Hold(a, Id("y"));
  h.Hold(b, Id("z"));
  h.Create(a, x, {.complete = true, .owned = true});
  h.Unhold(a, x);
  EXPECT_FALSE(h.Describe(x).summary().deleted()) << "b may hold it, for all that is known";
  h.Down(b);
  h.Advance(2 * kLease);
  EXPECT_TRUE(h.Describe(x).summary().deleted());
}

TEST(HoldMessages, AnInvalidListOfIdsIsRefused) {
  Harness h;
  const NodeKey a = h.Up("a");
  for (const std::string& ids :
       {std::string(19, 'x'), std::string(20, '\0'), std::string(20 * 16385, 'x')}) {
    v1::NodeMessage message;
    message.mutable_hold()->set_object_ids(ids);
    EXPECT_EQ(h.Send(a, message).code(), absl::StatusCode::kInvalidArgument);
    message.mutable_unhold()->set_object_ids(ids);
    EXPECT_EQ(h.Send(a, message).code(), absl::StatusCode::kInvalidArgument);
    message.mutable_register_holds()->set_object_ids(ids);
    EXPECT_EQ(h.Send(a, message).code(), absl::StatusCode::kInvalidArgument);
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    create.set_object_id(Bytes(x));
    ToProto(h.NewGeneration(a), create.mutable_generation());
    create.mutable_info()->set_slices(1);
    create.mutable_info()->set_refers_to(ids);
    EXPECT_EQ(h.Send(a, message).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace phalanx::directory::testing
