#include "src/directory/reductions/commit_tracker.h"

#include "gtest/gtest.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::ReductionFixture;

// A reduction of the sources on a and b, whose plan has placed the root.
class CommitTrackerTest : public ReductionFixture {
 protected:
  CommitTrackerTest() {
    PutSources(2);
    reduction_ = &Begin(2);
    BeginPlan(*reduction_);
    Touched();
  }

  Reduction::Commit& commit() { return reduction_->commit; }
  NodeKey Root() const { return reduction_->plan.RootNode(); }
  // The node announces the target, which it begins to write.
  void Announce(const NodeKey& key) {
    v1::AnnounceCreate m;
    m.set_object_id(Bytes(target_));
    ToProto(Gen(key), m.mutable_generation());
    m.mutable_info()->set_size_bytes(testing::kSourceBytes);
    m.mutable_info()->set_slices(1);
    EXPECT_EQ(table_.OnCreate(node(key), m), absl::OkStatus());
  }
  // The root has folded everything and is ordered to commit.
  void CommitRoot() {
    commit().root_generation = Gen(Root());
    reduction_->plan.OnReady(Root(), reduction_->plan.RootVersion());
    ApplyEffects(*reduction_);
    ASSERT_TRUE(reduction_->committed());
    ASSERT_TRUE(commit().sent_to.contains(Root()));
  }

  Reduction* reduction_ = nullptr;
};

TEST_F(CommitTrackerTest, ANodeThatWasOrderedToCommitIsAwaitedForALease) {
  commit().sent_to.insert(kA);
  commits_.AwaitCommitted(kB);
  EXPECT_TRUE(commit().awaited.empty()) << "it was not ordered";
  commits_.AwaitCommitted(kA);
  EXPECT_TRUE(commit().awaited.contains(kA));
  EXPECT_EQ(commit().awaited_until, context_.now + context_.options.lease);
  EXPECT_EQ(catalog_.NextDeadline(), commit().awaited_until);
}

TEST_F(CommitTrackerTest, APauseOfTheProcessIsNotCounted) {
  commit().sent_to.insert(kA);
  commits_.AwaitCommitted(kA);
  commits_.NotePause(context_.now + absl::Minutes(1));
  EXPECT_EQ(commit().awaited_until, context_.now + absl::Minutes(1));
  commits_.NotePause(context_.now);
  EXPECT_EQ(commit().awaited_until, context_.now + absl::Minutes(1));
}

TEST_F(CommitTrackerTest, NothingIsAwaitedForLongerAfterAPauseIfNoNodeIsAwaited) {
  commits_.NotePause(context_.now + absl::Minutes(1));
  EXPECT_TRUE(commit().awaited_until.infinite());
}

TEST_F(CommitTrackerTest, OnlyTheAnnouncedResultIsAwaited) {
  Announce(kA);
  commit().awaited.insert(kA);
  EXPECT_FALSE(commits_.AwaitsResult(*table_.Find(target_))) << "another generation";
  commit().root_generation = Gen(kA);
  EXPECT_TRUE(commits_.AwaitsResult(*table_.Find(target_)));
  EXPECT_FALSE(commits_.AwaitsResult(*table_.Find(Source(0))));
  commit().awaited.clear();
  EXPECT_FALSE(commits_.AwaitsResult(*table_.Find(target_)));
}

TEST_F(CommitTrackerTest, AfterTheLeaseANodeWithoutASessionIsGivenUp) {
  const NodeKey gone{9, 1};
  commit().awaited = {kB, gone};
  commits_.StopAwaiting(*reduction_);
  EXPECT_EQ(commit().awaited, absl::btree_set<NodeKey>{kB}) << "it may register the result yet";
  EXPECT_EQ(commit().awaited_until, context_.now + context_.options.lease);
  EXPECT_EQ(Touched(), 1u);
  commit().awaited = {gone};
  commits_.StopAwaiting(*reduction_);
  EXPECT_TRUE(commit().awaited.empty());
  EXPECT_TRUE(commit().awaited_until.infinite());
}

TEST_F(CommitTrackerTest, AnotherLifeOfTheNodeEndsTheWait) {
  commit().awaited = {kA, kB};
  commits_.StopAwaitingOtherLives(kA);
  EXPECT_EQ(commit().awaited.size(), 2u) << "the same life";
  commits_.StopAwaitingOtherLives(NodeKey{kA.node, 2});
  EXPECT_EQ(commit().awaited, absl::btree_set<NodeKey>{kB});
  EXPECT_EQ(Touched(), 0u) << "one is still awaited";
  commits_.StopAwaitingOtherLives(NodeKey{kB.node, 2});
  EXPECT_EQ(Touched(), 1u);
}

TEST_F(CommitTrackerTest, ANodeThatHasRegisteredIsNoLongerAwaited) {
  commit().awaited = {kA};
  commits_.CommittedIsBack(*reduction_, kB);
  EXPECT_TRUE(commit().awaited.contains(kA));
  commits_.CommittedIsBack(*reduction_, kA);
  EXPECT_TRUE(commit().awaited.empty());
  EXPECT_EQ(Touched(), 1u);
}

TEST_F(CommitTrackerTest, OnlyThePlansRootIsTheRoot) {
  const auto version = reduction_->plan.RootVersion();
  EXPECT_TRUE(commits_.IsRoot(target_, version, Root()));
  EXPECT_FALSE(commits_.IsRoot(target_, version, kC));
  EXPECT_FALSE(commits_.IsRoot(Source(0), version, Root()));
  EXPECT_FALSE(commits_.IsRoot(target_, VersionOf(Digest128{1, 2}), Root()));
}

TEST_F(CommitTrackerTest, ALostRootThatIsBackContinuesWithItsFold) {
  const auto version = reduction_->plan.RootVersion();
  EXPECT_NE(commits_.PlaceAgain(*reduction_, Root(), version), nullptr) << "it is placed";
  reduction_->placed.erase({Root(), version});
  EXPECT_EQ(commits_.PlaceAgain(*reduction_, Root(), version), nullptr) << "it is not lost";
  commit().lost_roots.insert(Root());
  EXPECT_EQ(commits_.PlaceAgain(*reduction_, Root(), VersionOf(Digest128{1, 2})), nullptr);
  EXPECT_NE(commits_.PlaceAgain(*reduction_, Root(), version), nullptr);
  EXPECT_TRUE(reduction_->placed.contains({Root(), version}));
  commits_.CommittedIsBack(*reduction_, Root());
  EXPECT_TRUE(commit().lost_roots.empty());
}

TEST_F(CommitTrackerTest, TheResultIsUndecidedFromTheCommitToTheSeal) {
  Announce(Root());
  commit().root_generation = Gen(Root());
  EXPECT_FALSE(commits_.ResultUndecided(*reduction_)) << "it is not committed";
  CommitRoot();
  EXPECT_TRUE(commits_.ResultUndecided(*reduction_));
  commit().root_generation = Gen(kC);
  EXPECT_FALSE(commits_.ResultUndecided(*reduction_)) << "another generation";
}

TEST_F(CommitTrackerTest, ARootStandsByBehindAnotherGeneration) {
  Announce(kC);
  Announce(Root());
  EXPECT_FALSE(commits_.RootStandsBy(*reduction_));
  commit().root_generation = Gen(Root());
  EXPECT_TRUE(commits_.RootStandsBy(*reduction_));
  commit().root_generation = Gen(kC);
  EXPECT_FALSE(commits_.RootStandsBy(*reduction_)) << "it is adopted";
}

TEST_F(CommitTrackerTest, ThePlanHearsOfLostRootsWhenTheResultIsVoid) {
  CommitRoot();
  const NodeKey lost = Root();
  commit().lost_roots.insert(lost);
  commit().awaited.insert(lost);
  commit().awaited_until = context_.now;
  commits_.ForgetCommitted(*reduction_);
  EXPECT_TRUE(commit().sent_to.empty());
  EXPECT_TRUE(commit().awaited.empty());
  EXPECT_TRUE(commit().awaited_until.infinite());
  EXPECT_TRUE(commit().lost_roots.empty());
  EXPECT_FALSE(reduction_->committed()) << "the plan starts over";
  // The node has a session, so it still holds its source.
  EXPECT_TRUE(reduction_->plan.Placed(Source(0)) && reduction_->plan.Placed(Source(1)));
}

TEST_F(CommitTrackerTest, ALostResultIsComputedAgain) {
  CommitRoot();
  const auto before = reduction_->plan.RootVersion();
  commit().root_ready = true;
  commits_.PlanAgain(*reduction_);
  EXPECT_FALSE(reduction_->committed());
  EXPECT_FALSE(commit().root_generation.valid());
  EXPECT_FALSE(commit().root_ready);
  EXPECT_NE(reduction_->plan.RootVersion(), before);
}

}  // namespace
}  // namespace phalanx::directory
