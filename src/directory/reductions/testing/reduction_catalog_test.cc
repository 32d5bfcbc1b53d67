#include "src/directory/reductions/reduction_catalog.h"

#include "gtest/gtest.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::ReductionFixture;

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_reductions = 2;
  options.max_reduce_sources = 3;
  return options;
}

class ReductionCatalogTest : public ReductionFixture {
 protected:
  ReductionCatalogTest() : ReductionFixture(Options()) {}

  Reduction* BeginOf(const std::string& target, int sources = 0) {
    return catalog_.Begin(IdOf(target), SpecOf(sources), kA, {});
  }
  // How the reduction ended is remembered, and the reduction is erased.
  auto EndAndRemember(Reduction& reduction) {
    const auto id = reduction.identity.id;
    catalog_.ended().Remember(reduction.target, id, EndedReduction());
    catalog_.Erase(reduction);
    return id;
  }
};

TEST_F(ReductionCatalogTest, ATargetHasOneReductionUntilItIsErased) {
  EXPECT_EQ(catalog_.Find(target_), nullptr);
  Reduction* reduction = catalog_.Begin(target_, SpecOf(0), kA, {});
  ASSERT_NE(reduction, nullptr);
  EXPECT_EQ(catalog_.Find(target_), reduction);
  EXPECT_EQ(reduction->plan.root(), kA);
  catalog_.Erase(*reduction);
  EXPECT_EQ(catalog_.Find(target_), nullptr);
}

TEST_F(ReductionCatalogTest, TheNumbersOfReductionsAndOfSourcesAreBounded) {
  EXPECT_EQ(BeginOf("wide", 4), nullptr) << "four sources";
  EXPECT_NE(BeginOf("one"), nullptr);
  EXPECT_NE(BeginOf("two"), nullptr);
  EXPECT_EQ(BeginOf("three"), nullptr);
  EXPECT_TRUE(catalog_.HasRoomForSources(3));
  catalog_.AddSources(1);
  EXPECT_FALSE(catalog_.HasRoomForSources(3));
  catalog_.RemoveSources(1);
}

TEST_F(ReductionCatalogTest, IdsOfOneLifeGrowAndAreBehindThoseThatNodesName) {
  const auto first = BeginOf("one")->identity.id;
  EXPECT_TRUE(catalog_.MintedHere(first));
  EXPECT_FALSE(catalog_.MintedHere(EarlierId(1)));
  catalog_.NoteId(EarlierId(7));
  const auto second = BeginOf("two")->identity.id;
  EXPECT_TRUE(BeganAfter(second, first));
  EXPECT_TRUE(BeganAfter(second, EarlierId(7)));
}

TEST_F(ReductionCatalogTest, AnIdThatNoShardMintsDoesNotRaiseTheNextOne) {
  catalog_.NoteId(EarlierId(uint64_t{1} << 63));
  EXPECT_TRUE(BeganAfter(EarlierId(2), BeginOf("one")->identity.id));
}

TEST_F(ReductionCatalogTest, AReductionKeepsTheIdThatItsNodesNamed) {
  const Reduction* named = catalog_.Begin(target_, SpecOf(0), kA, EarlierId(3));
  EXPECT_TRUE(named->Is(EarlierId(3)));
  EXPECT_TRUE(named->identity.confirmed);
  EXPECT_FALSE(BeginOf("one")->identity.confirmed);
}

TEST_F(ReductionCatalogTest, ATargetThatWasReducedBeforeIsReused) {
  EXPECT_FALSE(BeginOf("one")->identity.target_reused);
  EndAndRemember(*catalog_.Find(IdOf("one")));
  EXPECT_TRUE(BeginOf("one")->identity.target_reused);
  tombstones_.Add(target_, Gen(kA));
  EXPECT_TRUE(catalog_.Begin(target_, SpecOf(0), kA, {})->identity.target_reused);
}

TEST_F(ReductionCatalogTest, AReductionHasEndedIfItsIdIsNeitherRunningNorYetToBegin) {
  EXPECT_FALSE(catalog_.HasEnded(target_, EarlierId(1))) << "a restarted shard can begin it again";
  Reduction& running = *catalog_.Begin(target_, SpecOf(0), kA, {});
  EXPECT_FALSE(catalog_.HasEnded(target_, running.identity.id));
  const auto ended = EndAndRemember(running);
  EXPECT_TRUE(catalog_.HasEnded(target_, ended));
  // This life of the shard has begun one of the same target since.
  EXPECT_TRUE(catalog_.HasEnded(target_, EarlierId(1)));
  EXPECT_FALSE(catalog_.HasEnded(IdOf("one"), EarlierId(1)));
}

TEST_F(ReductionCatalogTest, AReductionThatBeganBeforeTheRunningOneHasEnded) {
  catalog_.Begin(target_, SpecOf(0), kA, EarlierId(5));
  EXPECT_TRUE(catalog_.HasEnded(target_, EarlierId(4)));
  EXPECT_FALSE(catalog_.HasEnded(target_, EarlierId(5)));
  EXPECT_FALSE(catalog_.HasEnded(target_, EarlierId(6)));
}

TEST_F(ReductionCatalogTest, ADeletedReductionHasEnded) {
  tombstones_.Add(target_, EarlierId(2).AsGeneration());
  EXPECT_TRUE(catalog_.HasEnded(target_, EarlierId(2)));
  EXPECT_FALSE(catalog_.HasEnded(target_, EarlierId(3)));
}

TEST_F(ReductionCatalogTest, ATouchedTargetIsTakenOnce) {
  catalog_.Touch(target_);
  catalog_.Touch(target_);
  EXPECT_EQ(catalog_.TakeTouched(), target_);
  EXPECT_FALSE(catalog_.has_touched());
}

TEST_F(ReductionCatalogTest, AnErasedReductionHasNoTimerAndIsNotTouched) {
  Reduction& reduction = *catalog_.Begin(target_, SpecOf(0), kA, {});
  catalog_.Touch(target_);
  catalog_.SetTimer(reduction, context_.now);
  catalog_.Erase(reduction);
  EXPECT_FALSE(catalog_.has_touched());
  EXPECT_EQ(catalog_.TakeDue(), nullptr);
}

TEST_F(ReductionCatalogTest, TheEarliestTimerCountsAndIsClearedWhenDue) {
  Reduction& reduction = *catalog_.Begin(target_, SpecOf(0), kA, {});
  catalog_.SetTimer(reduction, context_.now + absl::Seconds(2));
  catalog_.SetTimer(reduction, context_.now + absl::Seconds(1));
  catalog_.SetTimer(reduction, context_.now + absl::Seconds(3));
  EXPECT_EQ(catalog_.NextDeadline(), context_.now + absl::Seconds(1));
  EXPECT_EQ(catalog_.TakeDue(), nullptr);
  Advance(absl::Seconds(1));
  EXPECT_EQ(catalog_.TakeDue(), &reduction);
  EXPECT_TRUE(reduction.timer.infinite());
  EXPECT_EQ(catalog_.TakeDue(), nullptr);
  EXPECT_TRUE(catalog_.NextDeadline().infinite());
}

}  // namespace
}  // namespace phalanx::directory
