#include "src/directory/reductions/ring_driver.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::Lines;
using testing::ReductionFixture;

const Lines kDrops = {"a: fold_drop", "b: fold_drop", "c: fold_drop"};

// A reduction of one source on each of the three nodes, whose result all of them want.
class RingDriverTest : public ReductionFixture {
 protected:
  RingDriverTest() { fake_rings_.driver = &rings_; }

  Reduction& BeginWanted(const NodeKey& root = {}) {
    Reduction& reduction = Begin(3, root);
    reduction.phase = ReductionPhase::kRingWanted;
    return reduction;
  }
  // The ring is placed.
  Reduction& BeginRing() {
    PutSources(3);
    Reduction& reduction = BeginWanted();
    EXPECT_TRUE(rings_.Run(reduction));
    EXPECT_NE(reduction.ring.plan, nullptr);
    outbox_.Take();
    return reduction;
  }
  absl::Status Announce(Reduction& reduction, const NodeKey& key) {
    Announcement announced;
    announced.generation = reduction.ring.plan->generation();
    announced.info.size_bytes = testing::kSourceBytes;
    announced.info.slices = 3;
    return rings_.OnCreate(node(key), target_, std::move(announced));
  }
  void Report(Reduction& reduction, const NodeKey& key, v1::FoldReport::Kind kind,
              absl::StatusCode code = absl::StatusCode::kOk) {
    v1::FoldReport m;
    m.set_kind(kind);
    m.set_code(static_cast<int>(code));
    m.set_watermark(5);
    m.set_message("trouble");
    rings_.OnReport(reduction, key, Placed(reduction, key), m);
  }
  static Reduction::Placed& Placed(Reduction& reduction, const NodeKey& key) {
    return reduction.placed.at({key, reduction.ring.plan->version()});
  }
  void Commit(Reduction& reduction) {
    PHALANX_ASSERT_OK(Announce(reduction, kA));
    for (const NodeKey& key : {kA, kB, kC}) Report(reduction, key, v1::FoldReport::READY);
    ASSERT_TRUE(reduction.committed());
    outbox_.Take();
  }

  RingDriver rings_{parts_, catalog_, watcher_, descriptors_, dispatcher_, commits_};
};

// ------------------------------------------------------------------------------------- placing

TEST_F(RingDriverTest, ARingIsPlacedWhenAllSourcesAreReady) {
  PutSources(3);
  Reduction& reduction = BeginWanted();
  EXPECT_TRUE(rings_.Run(reduction));
  EXPECT_EQ(reduction.phase, ReductionPhase::kRing);
  std::vector<Outgoing> sent = outbox_.Take();
  std::vector<NodeKey> before;
  for (const Outgoing& out : sent) {
    if (!out.message.has_fold()) continue;
    const v1::Fold& fold = out.message.fold();
    EXPECT_EQ(fold.slots(), 3u);
    EXPECT_EQ(fold.reduced_from().size(), 3 * ObjectId::kSize);
    EXPECT_EQ(FromProto(fold.ring().generation()), reduction.ring.plan->generation());
    before.push_back(FromProto(fold.ring().before()));
  }
  EXPECT_EQ(before, (std::vector<NodeKey>{kC, kA, kB}));
  EXPECT_EQ(reduction.placed.size(), 3u);
}

TEST_F(RingDriverTest, NothingBeginsIfNoRequesterWantsTheResultEverywhere) {
  PutSources(3);
  Reduction& reduction = Begin(3);
  EXPECT_FALSE(rings_.Run(reduction));
  EXPECT_EQ(reduction.phase, ReductionPhase::kCollecting);
}

TEST_F(RingDriverTest, ARequestedRootIsComputedByTheTree) {
  PutSources(3);
  Reduction& reduction = BeginWanted(kA);
  EXPECT_FALSE(rings_.Run(reduction));
  EXPECT_EQ(reduction.phase, ReductionPhase::kCollecting);
}

TEST_F(RingDriverTest, AMissingSourceIsAwaitedForAWhile) {
  PutSources(2);
  Reduction& reduction = BeginWanted();
  EXPECT_TRUE(rings_.Run(reduction));
  EXPECT_EQ(Sent(), Lines{});
  ASSERT_FALSE(catalog_.NextDeadline().infinite());
  Advance(catalog_.NextDeadline() - context_.now);
  EXPECT_FALSE(rings_.Run(reduction)) << "the tree folds what is there";
  EXPECT_EQ(reduction.phase, ReductionPhase::kCollecting);
}

TEST_F(RingDriverTest, TheFirstSourceIsAwaitedWithoutATimer) {
  Reduction& reduction = BeginWanted();
  EXPECT_TRUE(rings_.Run(reduction));
  EXPECT_TRUE(catalog_.NextDeadline().infinite());
}

TEST_F(RingDriverTest, NoRingIsPlacedOnANodeThatIsNotConnected) {
  PutSources(3);
  node(kB).connected = false;
  Reduction& reduction = BeginWanted();
  EXPECT_FALSE(rings_.Run(reduction));
  EXPECT_EQ(Sent(), Lines{});
}

TEST_F(RingDriverTest, NoRingIsPlacedAcrossACut) {
  PutSources(3);
  // The member before b is a. That a does not reach b is no matter.
  pairs_.Remember(kB, kA, absl::StatusCode::kDeadlineExceeded, context_.now);
  Reduction& reduction = BeginWanted();
  EXPECT_FALSE(rings_.Run(reduction));
  EXPECT_EQ(Sent(), Lines{});
  pairs_.Forget(kB, kA);
  pairs_.Remember(kA, kB, absl::StatusCode::kDeadlineExceeded, context_.now);
  reduction.phase = ReductionPhase::kRingWanted;
  EXPECT_TRUE(rings_.Run(reduction));
}

TEST_F(RingDriverTest, NoRingIsPlacedIfAnObjectWasPutUnderTheTarget) {
  PutSources(3);
  Put(kA, target_);
  outbox_.Take();
  EXPECT_FALSE(rings_.Run(BeginWanted()));
  EXPECT_EQ(Sent(), Lines{});
}

// ---------------------------------------------------------------------------------- the members

TEST_F(RingDriverTest, WithTheFirstAnnouncementAllMembersAreWriters) {
  Reduction& reduction = BeginRing();
  PHALANX_EXPECT_OK(Announce(reduction, kB));
  EXPECT_EQ(table_.Find(target_)->copies.writing(), 3);
  EXPECT_EQ(reduction.commit.root_generation, reduction.ring.plan->generation());
  EXPECT_EQ(TakeVerdicts(), (Lines{"b: ADOPTED"}));
  PHALANX_EXPECT_OK(Announce(reduction, kA));
  EXPECT_EQ(TakeVerdicts(), (Lines{"a: ADOPTED"}));
}

TEST_F(RingDriverTest, AnotherGenerationThanTheRingsIsInvalid) {
  const Reduction& reduction = BeginRing();
  Announcement announced;
  announced.generation = Gen(kA, 5);
  announced.info.size_bytes = testing::kSourceBytes;
  announced.info.slices = 3;
  EXPECT_THAT(rings_.OnCreate(node(kA), target_, std::move(announced)),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(table_.Find(target_), nullptr);
  EXPECT_FALSE(reduction.ring.plan->broken());
}

TEST_F(RingDriverTest, ARingGivesWayToAnObjectThatWasPutUnderTheTarget) {
  Reduction& reduction = BeginRing();
  Put(kA, target_);
  outbox_.Take();
  PHALANX_EXPECT_OK(Announce(reduction, kB));
  EXPECT_TRUE(reduction.ring.plan->broken());
  const Lines sent = Sent();
  EXPECT_EQ(sent.front(), "b: verdict") << "SUPERSEDED";
  EXPECT_EQ(Lines(sent.begin() + 1, sent.end()), kDrops);
}

TEST_F(RingDriverTest, OnlyNodesOfTheRingAreMembersAndOnlyUntilItBreaks) {
  Reduction& reduction = BeginRing();
  const auto version = reduction.ring.plan->version();
  EXPECT_TRUE(rings_.IsMember(target_, version, kA));
  EXPECT_FALSE(rings_.IsMember(target_, VersionOf(Digest128{1, 2}), kA));
  EXPECT_FALSE(rings_.IsMember(target_, version, NodeKey{9, 1}));
  EXPECT_FALSE(rings_.IsMember(Source(0), version, kA));
  rings_.OnSourceLost(reduction);
  EXPECT_FALSE(rings_.IsMember(target_, version, kA));
}

TEST_F(RingDriverTest, TheCommitFollowsTheLastReadyMember) {
  Reduction& reduction = BeginRing();
  PHALANX_ASSERT_OK(Announce(reduction, kA));
  outbox_.Take();
  Report(reduction, kA, v1::FoldReport::READY);
  Report(reduction, kB, v1::FoldReport::READY);
  EXPECT_EQ(Sent(), Lines{});
  Report(reduction, kC, v1::FoldReport::READY);
  EXPECT_EQ(Sent(), (Lines{"a: fold_commit", "b: fold_commit", "c: fold_commit"}));
  EXPECT_EQ(reduction.commit.sent_to.size(), 3u);
  EXPECT_FALSE(reduction.commit.open_root.valid());
}

TEST_F(RingDriverTest, ProgressIsKeptForTheTools) {
  Reduction& reduction = BeginRing();
  Placed(reduction, kA).trouble = "before";
  Report(reduction, kA, v1::FoldReport::PROGRESS);
  EXPECT_EQ(Placed(reduction, kA).watermark, 5u);
  EXPECT_EQ(Placed(reduction, kA).trouble, "");
}

// ------------------------------------------------------------------------------------- breaking

TEST_F(RingDriverTest, ALostMemberBreaksTheRingAndTheTreeFollows) {
  Reduction& reduction = BeginRing();
  PHALANX_ASSERT_OK(Announce(reduction, kA));
  outbox_.Take();
  rings_.MemberLost(reduction, NodeKey{9, 1});
  EXPECT_FALSE(reduction.ring.plan->broken()) << "no member";
  rings_.MemberLost(reduction, kB);
  EXPECT_TRUE(reduction.ring.plan->broken());
  EXPECT_TRUE(reduction.placed.empty());
  EXPECT_EQ(context_.counters.voided, 1u);
  EXPECT_EQ(Touched(), 1u);
  EXPECT_FALSE(rings_.Run(reduction));
  EXPECT_EQ(reduction.phase, ReductionPhase::kCollecting);
  EXPECT_EQ(reduction.ring.plan, nullptr);
  EXPECT_FALSE(reduction.commit.root_generation.valid());
}

TEST_F(RingDriverTest, AMemberThatDroppedItsFoldBreaksTheRing) {
  Reduction& reduction = BeginRing();
  Report(reduction, kB, v1::FoldReport::DROPPED);
  EXPECT_TRUE(reduction.ring.plan->broken());
  EXPECT_EQ(Sent(), kDrops);
}

TEST_F(RingDriverTest, AChangedSourceBreaksTheRing) {
  const Reduction& reduction = BeginRing();
  Down(kA);
  Put(kB, Source(0));
  outbox_.Take();
  Changed(Source(0));
  EXPECT_EQ(fake_rings_.lost.size(), 1u);
  EXPECT_TRUE(reduction.ring.plan->broken());
}

TEST_F(RingDriverTest, AMemberThatFailsBecauseTheOneBeforeItIsNotReadyPullsAgain) {
  Reduction& reduction = BeginRing();
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kNotFound);
  EXPECT_FALSE(reduction.ring.plan->broken());
  EXPECT_EQ(Placed(reduction, kB).trouble, "trouble");
  Advance(absl::Seconds(2));
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kNotFound);
  EXPECT_TRUE(reduction.ring.plan->broken()) << "it had the time to begin";
}

TEST_F(RingDriverTest, AMemberWhoseSenderIsNotConnectedBreaksTheRing) {
  Reduction& reduction = BeginRing();
  node(kA).connected = false;
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kNotFound);
  EXPECT_TRUE(reduction.ring.plan->broken());
}

TEST_F(RingDriverTest, AFailedConnectionBreaksTheRingBeforeTheCommit) {
  Reduction& reduction = BeginRing();
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(reduction.ring.plan->broken());
}

TEST_F(RingDriverTest, AMemberOfACommittedRingPullsAgainUpToEightTimes) {
  Reduction& reduction = BeginRing();
  Commit(reduction);
  for (int i = 0; i < 8; ++i) {
    Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kAborted);
    ASSERT_FALSE(reduction.ring.plan->broken()) << i;
  }
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kAborted);
  EXPECT_TRUE(reduction.ring.plan->broken());
}

TEST_F(RingDriverTest, ACutBreaksACommittedRing) {
  Reduction& reduction = BeginRing();
  Commit(reduction);
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(reduction.ring.plan->broken()) << "a broken connection is tried again";
  Report(reduction, kB, v1::FoldReport::FAILED, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(reduction.ring.plan->broken());
  EXPECT_TRUE(pairs_.Cut(kB, kA, context_.now));
}

TEST_F(RingDriverTest, ACommittedResultIsNotVoidBecauseTheRingBroke) {
  Reduction& reduction = BeginRing();
  Commit(reduction);
  rings_.MemberLost(reduction, kB);
  EXPECT_EQ(context_.counters.voided, 0u);
  EXPECT_TRUE(table_.Find(target_)->adopted());
  EXPECT_TRUE(rings_.Run(reduction)) << "another member may have sealed it";
}

}  // namespace
}  // namespace phalanx::directory
