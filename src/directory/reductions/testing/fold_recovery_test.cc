#include "src/directory/reductions/fold_recovery.h"

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

class FakeDeletedResults final : public DeletedResultListener {
 public:
  void OnDeletedGeneration(const ObjectId&, const Generation& generation) override {
    deleted.push_back(generation);
  }

  std::vector<Generation> deleted;
};

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_reduce_sources = 4;
  return options;
}

// The shard has just restarted.
class FoldRecoveryTest : public ReductionFixture {
 protected:
  FoldRecoveryTest() : ReductionFixture(Options(), /*learning=*/true) {}
  ~FoldRecoveryTest() override { PHALANX_EXPECT_OK(recovery_.CheckInvariants()); }

  // A fold of source 0, of the reduction with the `count`-th id; 0: the fold names none.
  v1::RegisterFold Fold(uint64_t count = 0, uint64_t version = 1) const {
    v1::RegisterFold m;
    m.set_object_id(Bytes(target_));
    ToProto(VersionOf(Digest128{version, 7}), m.mutable_version());
    m.set_slots(1);
    m.set_degree(1);
    m.add_source_ids(Bytes(Source(0)));
    if (count != 0) ToProto(EarlierId(count), m.mutable_begun());
    return m;
  }
  void Register(const NodeKey& key, const v1::RegisterFold& m) {
    PHALANX_ASSERT_OK(recovery_.OnRegisterFold(node(key), m));
  }
  void HandOut() {
    gate_.Open();
    recovery_.HandOut();
  }

  FakeDeletedResults listener_;
  FoldRecovery recovery_{parts_, catalog_, descriptors_, dispatcher_, commits_, listener_};
};

TEST_F(FoldRecoveryTest, AFoldWaitsUntilTheShardKnowsItsReduction) {
  Register(kA, Fold());
  EXPECT_EQ(Sent(), Lines{});
  EXPECT_TRUE(gate_.restarted());
  const Reduction& reduction = Begin(1);
  HandOut();
  ASSERT_EQ(reduction.registered.size(), 1u);
  EXPECT_EQ(reduction.registered[0].first, kA);
  EXPECT_EQ(Sent(), Lines{});
}

TEST_F(FoldRecoveryTest, AFoldWithoutAReductionIsDropped) {
  Register(kA, Fold());
  HandOut();
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
}

TEST_F(FoldRecoveryTest, AFoldOfAnotherReductionIsDropped) {
  Register(kA, Fold(/*count=*/2));
  const Reduction& reduction = *catalog_.Begin(target_, SpecOf(0), {}, EarlierId(3));
  HandOut();
  EXPECT_TRUE(reduction.registered.empty());
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
}

TEST_F(FoldRecoveryTest, AReductionWithoutAnIdTakesTheLatestOfItsFolds) {
  Register(kA, Fold(/*count=*/2));
  Register(kB, Fold(/*count=*/3, /*version=*/2));
  Reduction& reduction = Begin(1);
  HandOut();
  EXPECT_TRUE(reduction.Is(EarlierId(3)));
  EXPECT_TRUE(reduction.identity.confirmed);
  ASSERT_EQ(reduction.registered.size(), 1u);
  EXPECT_EQ(reduction.registered[0].first, kB);
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
}

TEST_F(FoldRecoveryTest, IdsThatThisShardMintsAreLaterThanThoseOfFolds) {
  Register(kA, Fold(/*count=*/5));
  EXPECT_TRUE(BeganAfter(Begin(1).identity.id, EarlierId(5)));
}

TEST_F(FoldRecoveryTest, AFoldOfADeletedReductionIsDroppedWithWhatItMade) {
  tombstones_.Add(target_, EarlierId(2).AsGeneration());
  v1::RegisterFold m = Fold(/*count=*/2);
  ToProto(Gen(kA, 6), m.mutable_generation());
  Register(kA, m);
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
  EXPECT_EQ(listener_.deleted, std::vector<Generation>{Gen(kA, 6)});
}

TEST_F(FoldRecoveryTest, AGenerationOfAnotherNodeIsNotDeletedWithTheFold) {
  tombstones_.Add(target_, EarlierId(2).AsGeneration());
  v1::RegisterFold m = Fold(/*count=*/2);
  ToProto(Gen(kB, 6), m.mutable_generation());
  Register(kA, m);
  EXPECT_TRUE(listener_.deleted.empty());
}

TEST_F(FoldRecoveryTest, AFoldWhoseTombstoneIsRegisteredLaterIsDropped) {
  Register(kA, Fold(/*count=*/2));
  Register(kB, Fold(/*count=*/3, /*version=*/2));
  tombstones_.Add(target_, EarlierId(2).AsGeneration());
  recovery_.RefuseDeleted();
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
  HandOut();
  EXPECT_EQ(Sent(), Lines{"b: fold_drop"}) << "once each";
}

TEST_F(FoldRecoveryTest, TheFoldsOfANodeThatIsGoneAreForgotten) {
  Register(kA, Fold());
  recovery_.Forget(kA);
  const Reduction& reduction = Begin(1);
  HandOut();
  EXPECT_TRUE(reduction.registered.empty());
}

TEST_F(FoldRecoveryTest, TheFoldsThatWaitAreBounded) {
  // Each counts itself and its source.
  for (uint64_t i = 1; i <= 3; ++i) Register(kA, Fold(0, i));
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
  recovery_.Forget(kA);
  Register(kB, Fold());
  EXPECT_EQ(Sent(), Lines{});
}

TEST_F(FoldRecoveryTest, AMalformedFoldChangesNothing) {
  v1::RegisterFold m = Fold();
  m.clear_version();
  EXPECT_THAT(recovery_.OnRegisterFold(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  m = Fold();
  m.set_slots(0);
  EXPECT_THAT(recovery_.OnRegisterFold(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(gate_.restarted());
}

TEST_F(FoldRecoveryTest, ARegisteredFoldContinuesInThePlan) {
  // Both a and b have the source; an earlier life of the shard has placed its fold on b.
  Put(kA, Source(0));
  Object& source = *table_.Find(Source(0));
  table_.AddCopy(source, node(kB));
  table_.CompleteCopy(source, kB);
  Reduction& before = Begin(1);
  BeginPlan(before);
  ASSERT_EQ(before.plan.RootNode(), kA);
  v1::RegisterFold m = Fold();
  ToProto(before.plan.RootVersion(), m.mutable_version());
  Erase(before);
  Register(kB, m);
  Reduction& reduction = Begin(1);
  HandOut();
  FoldRecovery::Restore(reduction);
  reduction.plan.SetCosts(ReduceCosts());
  reduction.plan.Begin();
  EXPECT_EQ(reduction.plan.RootNode(), kB);
}

// ------------------------------------------------------------------- the plan has begun

class PlannedFoldRecoveryTest : public FoldRecoveryTest {
 protected:
  PlannedFoldRecoveryTest() {
    gate_.Open();
    PutSources(2);
    reduction_ = &Begin(2);
    BeginPlan(*reduction_);
    Touched();
    outbox_.Take();
  }
  NodeKey root() const { return reduction_->plan.RootNode(); }
  v1::RegisterFold RootFold(bool ready = false) const {
    v1::RegisterFold m = Fold();
    ToProto(reduction_->plan.RootVersion(), m.mutable_version());
    ToProto(Gen(root()), m.mutable_generation());
    m.set_ready(ready);
    return m;
  }
  // The root's node registers what its fold has made.
  void RegisterResult(bool complete) {
    v1::RegisterCopy m;
    m.set_object_id(Bytes(target_));
    ToProto(Gen(root()), m.mutable_generation());
    m.mutable_info()->set_size_bytes(testing::kSourceBytes);
    m.mutable_info()->set_slices(1);
    m.set_primary(true);
    m.set_complete(complete);
    m.set_writing(!complete);
    if (!complete) m.add_watermarks(0);
    bool adopted = false;
    PHALANX_ASSERT_OK(table_.OnRegisterCopy(node(root()), m, &adopted));
    outbox_.Take();
  }

  Reduction* reduction_ = nullptr;
};

TEST_F(PlannedFoldRecoveryTest, APlacedFoldIsOrderedAgain) {
  Reduction::Placed& placed = reduction_->placed.at({root(), reduction_->plan.RootVersion()});
  placed.registered = false;
  Register(root(), RootFold());
  EXPECT_TRUE(placed.registered);
  EXPECT_EQ(Sent(), Lines{nodes_.NameOf(root()) + ": fold"});
  EXPECT_EQ(Touched(), 1u);
}

TEST_F(PlannedFoldRecoveryTest, AReadyRootIsCommitted) {
  Register(root(), RootFold(/*ready=*/true));
  EXPECT_TRUE(reduction_->committed());
}

TEST_F(PlannedFoldRecoveryTest, AFoldWhoseResultIsCompleteGetsNoOrder) {
  RegisterResult(/*complete=*/true);
  Register(root(), RootFold(/*ready=*/true));
  EXPECT_EQ(Sent(), Lines{});
  EXPECT_TRUE(reduction_->committed());
  EXPECT_EQ(reduction_->commit.root_generation, Gen(root()));
}

TEST_F(PlannedFoldRecoveryTest, AFoldWhoseResultIsCompleteOnAnotherNodeGetsNoOrder) {
  RegisterResult(/*complete=*/false);
  table_.AddCopy(*table_.Find(target_), node(kC));
  table_.CompleteCopy(*table_.Find(target_), kC);
  Register(root(), RootFold());
  EXPECT_EQ(Sent(), Lines{});
}

TEST_F(PlannedFoldRecoveryTest, AFoldWhoseCompleteResultStandsByGetsNoOrder) {
  Put(kC, target_);
  RegisterResult(/*complete=*/true);
  ASSERT_FALSE(table_.Find(target_)->IsAdopted(Gen(root())));
  outbox_.Take();
  Register(root(), RootFold(/*ready=*/true));
  EXPECT_EQ(Sent(), Lines{});
}

TEST_F(PlannedFoldRecoveryTest, AFoldWhoseResultIsPartialIsOrderedAgain) {
  RegisterResult(/*complete=*/false);
  Register(root(), RootFold());
  EXPECT_EQ(Sent(), Lines{nodes_.NameOf(root()) + ": fold"});
}

TEST_F(PlannedFoldRecoveryTest, AFoldWhoseResultIsGoneIsOrderedAgain) {
  // Another generation is the object, and complete.
  Put(kC, target_);
  outbox_.Take();
  Register(root(), RootFold());
  EXPECT_EQ(Sent(), Lines{nodes_.NameOf(root()) + ": fold"});
}

TEST_F(PlannedFoldRecoveryTest, AReadyRootThatStandsByIsNotCommitted) {
  v1::AnnounceCreate m;
  m.set_object_id(Bytes(target_));
  ToProto(Gen(kC), m.mutable_generation());
  m.mutable_info()->set_size_bytes(testing::kSourceBytes);
  m.mutable_info()->set_slices(1);
  PHALANX_ASSERT_OK(table_.OnCreate(node(kC), m));
  RegisterResult(/*complete=*/false);
  Register(root(), RootFold(/*ready=*/true));
  EXPECT_FALSE(reduction_->committed()) << "the other generation can become complete";
  EXPECT_TRUE(reduction_->commit.root_ready);
}

TEST_F(PlannedFoldRecoveryTest, AFoldCannotNameTheGenerationOfAnotherNode) {
  Put(kC, target_);
  v1::RegisterFold m = RootFold();
  ToProto(Gen(kC), m.mutable_generation());
  outbox_.Take();
  Register(root(), m);
  EXPECT_EQ(Sent(), Lines{nodes_.NameOf(root()) + ": fold"});
  EXPECT_FALSE(reduction_->commit.root_generation.valid());
}

TEST_F(PlannedFoldRecoveryTest, AFoldThatIsNotPlacedIsDropped) {
  Register(kA, Fold(0, 99));
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
}

}  // namespace
}  // namespace phalanx::directory
