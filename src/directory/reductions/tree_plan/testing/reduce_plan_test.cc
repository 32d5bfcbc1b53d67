// The contract of ReducePlan (reduce_plan.h), sentence by sentence.
#include "src/directory/reductions/tree_plan/reduce_plan.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Attempt;
using testing::CostsFor;
using ::testing::ElementsAre;
using testing::Folds;
using ::testing::HasSubstr;
using testing::Inline;
using testing::InOrder;
using ::testing::IsEmpty;
using testing::kLarge;
using testing::Node;
using testing::On;
using ::testing::SizeIs;
using testing::Source;
using testing::Sources;
using testing::SumOf;
using testing::Target;

class ReducePlanTest : public ::testing::Test {
 protected:
  void Start(ReduceSpec spec, NodeKey root, int slots = 0, int degree = 1) {
    ASSERT_THAT(ValidateReduceSpec(Target(), spec), IsOk());
    plan_ = std::make_unique<ReducePlan>(Target(), std::move(spec), root);
    if (slots > 0) plan_->SetCosts(CostsFor(slots, degree).value());
  }
  // Applies the effects as nodes do.
  void Look() {
    EXPECT_THAT(folds_.Apply(plan_->TakeEffects()), IsOk());
    EXPECT_THAT(plan_->CheckInvariants(), IsOk());
  }
  void Ready(int source, const ReduceSource& state) {
    plan_->OnSource(Source(source), state);
    Look();
  }
  void Gone(int source) {
    plan_->OnSource(Source(source), std::nullopt);
    Look();
  }
  void Down(int node) {
    // The node's folds are gone.
    for (auto it = folds_.at.begin(); it != folds_.at.end();) {
      it = it->first.first == Node(node) ? folds_.at.erase(it) : std::next(it);
    }
    plan_->OnNodeDown(Node(node));
    Look();
  }
  void BeginNow() {
    plan_->Begin();
    Look();
  }
  // Six sources on nodes 1 to 6 in a chain of six.
  void Chain(NodeKey root = NodeKey(), int sources = 6) {
    Start(SumOf(sources, 6), root, 6, 1);
    for (int i = 0; i < 6; ++i) Ready(i, On(i, {i + 1}));
    BeginNow();
  }
  // The shard restarts. The sources are reported first, then the folds that nodes have.
  void Restart(ReduceSpec spec, NodeKey root, const std::vector<ReduceSource>& states) {
    Start(std::move(spec), root, 6, 1);
    for (int i = static_cast<int>(states.size()) - 1; i >= 0; --i) Ready(i, states[i]);
    for (const auto& [where, task] : folds_.at) {
      std::vector<ObjectId> own;
      for (const FoldInput& input : task.inputs) {
        if (input.kind != FoldInput::Kind::kSlot) own.push_back(input.source);
      }
      plan_->Restore(task.slots, task.degree, task.slot, own, where.first, where.second);
    }
    BeginNow();
  }
  SlotVersion VersionOf(int slot) {
    const auto fold = folds_.Slot(slot);
    return fold ? fold->second.version : SlotVersion();
  }

  std::unique_ptr<ReducePlan> plan_;
  Folds folds_;
};

TEST_F(ReducePlanTest, RefusesSourcesThatCannotBeReduced) {
  const auto refused = [](auto change) {
    ReduceSpec spec = SumOf(3);
    change(spec);
    return ValidateReduceSpec(Target(), spec);
  };
  const auto invalid = [](absl::string_view what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(what)));
  };
  EXPECT_THAT(refused([](ReduceSpec&) {}), IsOk());
  EXPECT_THAT(refused([](ReduceSpec& s) { s.sources.clear(); }), invalid("no sources"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.sources[2] = Source(0); }), invalid("comes twice"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.sources[1] = Target(); }), invalid("is the target"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.sources[1] = ObjectId(); }), invalid("no object's id"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.num_objects = 4; }), invalid("4 objects out of 3"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.num_objects = 4, s.open = true; }), IsOk());
  EXPECT_THAT(refused([](ReduceSpec& s) { s.op = ReduceOp::kBitAnd; }), invalid("bit-and"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.range_bytes = 6; }), invalid("whole number of f32"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.range_offset = 4; }), invalid("is empty"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.range_offset = s.range_bytes = kMaxObjectBytes; }),
              invalid("beyond the largest"));
  EXPECT_THAT(refused([](ReduceSpec& s) { s.sources = Sources(0, 16385); }), invalid("16385"));
  const auto ring = ReduceSpec::Order::kRing;
  EXPECT_THAT(refused([&](ReduceSpec& s) { s.order = ring, s.open = true; }), invalid("ring"));
  EXPECT_THAT(refused([&](ReduceSpec& s) { s.order = ring, s.num_objects = 2; }), invalid("ring"));
}

TEST_F(ReducePlanTest, DecidesNothingBeforeItBegins) {
  Start(SumOf(2), Node(1));
  Ready(0, On(0, {1}));
  Ready(1, On(1, {2}));
  EXPECT_THAT(folds_.at, IsEmpty());
  BeginNow();
  EXPECT_THAT(folds_.at, SizeIs(2));
}

TEST_F(ReducePlanTest, PlacesALeafAsSoonAsItsSourceIsThere) {
  Start(SumOf(2), NodeKey(), 2, 1);
  BeginNow();
  Ready(1, On(1, {2}));
  ASSERT_THAT(folds_.at, SizeIs(1));
  EXPECT_EQ(folds_.Slot(0)->first, Node(2));
  EXPECT_THAT(folds_.Slot(0)->second.inputs,
              ElementsAre(FoldInput{FoldInput::Kind::kSource, Source(1), Attempt(1), NodeKey()}));
  EXPECT_FALSE(folds_.Root());
}

TEST_F(ReducePlanTest, FoldsTheFirstChildThenTheOwnSourceThenTheOtherChildren) {
  Start(SumOf(3), NodeKey(), 3, 2);
  for (int i = 0; i < 3; ++i) Ready(i, On(i, {i + 1}));
  BeginNow();
  const auto root = folds_.Root();
  ASSERT_TRUE(root);
  EXPECT_EQ(root->first, Node(2));
  using Kind = FoldInput::Kind;
  EXPECT_THAT(root->second.inputs,
              ElementsAre(FoldInput{Kind::kSlot, ObjectId(), Generation(), Node(1), VersionOf(0)},
                          FoldInput{Kind::kSource, Source(1), Attempt(1), NodeKey()},
                          FoldInput{Kind::kSlot, ObjectId(), Generation(), Node(3), VersionOf(2)}));
  EXPECT_THAT(root->second.reduced_from, ElementsAre(Source(0), Source(1), Source(2)));
  EXPECT_EQ(root->second.planned, 3u);
  EXPECT_EQ(plan_->RootVersion(), root->second.version);
  EXPECT_EQ(plan_->RootNode(), Node(2));
}

TEST_F(ReducePlanTest, GivesSourcesOnOneNodeOneSlot) {
  Start(SumOf(5), NodeKey(), 3, 1);
  const int nodes[] = {1, 2, 1, 3, 2};
  for (int i = 0; i < 5; ++i) Ready(i, On(i, {nodes[i]}));
  BeginNow();
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(0), Source(2), Source(1), Source(4), Source(3)));
}

TEST_F(ReducePlanTest, CrossesBetweenZonesOnce) {
  Start(SumOf(4), NodeKey(), 4, 1);
  for (int i = 0; i < 4; ++i) {
    ReduceSource state = On(i, {i + 1});
    state.holders[0].zone = i % 2 == 0 ? "east" : "west";
    Ready(i, state);
  }
  BeginNow();
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(0), Source(2), Source(1), Source(3)));
}

TEST_F(ReducePlanTest, TheRootsZoneIsNextToTheRoot) {
  Start(SumOf(4), Node(1), 4, 1);
  for (int i = 0; i < 4; ++i) {
    ReduceSource state = On(i, {i + 1});
    state.holders[0].zone = i < 2 ? "east" : "west";
    Ready(i, state);
  }
  BeginNow();
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(2), Source(3), Source(1), Source(0)));
}

TEST_F(ReducePlanTest, ReservesTheRootForASourceOnTheRootsNode) {
  Chain(Node(2));
  EXPECT_EQ(folds_.Root()->first, Node(2));
  EXPECT_THAT(folds_.at, SizeIs(6));
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(2), Source(3), Source(4), Source(5), Source(0), Source(1)));
}

TEST_F(ReducePlanTest, PutsADeliveryAboveTheTreeWhenTheRootsNodeHasNoSource) {
  Chain(Node(9));
  const auto root = folds_.Root();
  ASSERT_TRUE(root);
  EXPECT_EQ(root->first, Node(9));
  EXPECT_EQ(root->second.slot, 6);
  EXPECT_THAT(root->second.inputs, ElementsAre(FoldInput{FoldInput::Kind::kSlot, ObjectId(),
                                                         Generation(), Node(6), VersionOf(5)}));
}

TEST_F(ReducePlanTest, CommitsOnlyTheRootsCurrentVersion) {
  Chain();
  plan_->OnReady(Node(6), VersionOf(4));
  plan_->OnReady(Node(5), plan_->RootVersion());
  Look();
  EXPECT_FALSE(plan_->committed());
  plan_->OnReady(Node(6), plan_->RootVersion());
  Look();
  EXPECT_TRUE(plan_->committed());
  ASSERT_THAT(folds_.commits, SizeIs(1));
  EXPECT_EQ(folds_.commits[0].version, plan_->RootVersion());
}

TEST_F(ReducePlanTest, AfterTheCommitALostSourceChangesNothing) {
  Chain();
  plan_->OnReady(Node(6), plan_->RootVersion());
  Look();
  Gone(2);
  Down(1);
  plan_->OnSourceFailed(Source(3), absl::AbortedError("x"));
  Look();
  EXPECT_THAT(folds_.placed, IsEmpty());
  EXPECT_EQ(folds_.dropped, 0);
  plan_->Cancel();
  Look();
  EXPECT_THAT(folds_.at, IsEmpty());
}

TEST_F(ReducePlanTest, ALostSourceLowersItsSlotAndThoseAbove) {
  Chain();
  Gone(3);
  EXPECT_EQ(folds_.dropped, 3);
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_FALSE(plan_->RootVersion().valid());
  EXPECT_FALSE(plan_->Placed(Source(3)));
}

TEST_F(ReducePlanTest, ASpareTakesTheSeatOfALostSource) {
  Chain(NodeKey(), 8);
  Ready(7, On(7, {8}));
  const SlotVersion before = VersionOf(2);
  const SlotVersion root = plan_->RootVersion();
  Gone(3);
  EXPECT_EQ(VersionOf(2), before);
  EXPECT_NE(plan_->RootVersion(), root);
  EXPECT_EQ(folds_.Slot(3)->first, Node(8));
  EXPECT_THAT(folds_.placed, SizeIs(3));
  EXPECT_EQ(plan_->Look().epoch, 2u);
}

TEST_F(ReducePlanTest, WhatIsPutAgainAtTheRootsNodeJoinsTheRootAndItsSlotIsClosed) {
  Chain(Node(6));
  const SlotVersion below = VersionOf(1);
  Down(3);
  Ready(2, On(2, {6}));
  EXPECT_FALSE(VersionOf(2).valid());
  EXPECT_EQ(VersionOf(1), below);
  EXPECT_EQ(folds_.Slot(3)->second.inputs.front().node, Node(2));
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(0), Source(1), Source(3), Source(4), Source(5), Source(2)));
  EXPECT_THAT(plan_->Look().slots, SizeIs(5));
  // An input of the committed fold can still move.
  Down(2);
  Ready(1, On(1, {8}));
  EXPECT_EQ(folds_.Slot(3)->second.inputs.front().node, Node(8));
}

TEST_F(ReducePlanTest, ALeafThatIsPutAgainWhereASlotAboveIsJoinsThatOne) {
  Chain();
  Down(1);
  Ready(0, On(0, {3}));
  EXPECT_FALSE(VersionOf(0).valid());
  EXPECT_THAT(folds_.Slot(1)->second.inputs, SizeIs(1));
  EXPECT_THAT(folds_.Slot(2)->second.inputs, SizeIs(3));
  EXPECT_TRUE(folds_.Root());
}

TEST_F(ReducePlanTest, WhatIsPutAgainWhereASlotBelowIsHasASlotOfItsOwn) {
  Chain();
  const SlotVersion below = VersionOf(2);
  Down(5);
  Ready(4, On(4, {3}));
  EXPECT_EQ(VersionOf(2), below);
  EXPECT_EQ(folds_.Slot(4)->first, Node(3));
  EXPECT_THAT(folds_.at, SizeIs(6));
}

TEST_F(ReducePlanTest, ASourceThatComesLateToTheRootsNodeJoinsTheRoot) {
  Start(SumOf(4), Node(1), 4, 1);
  Ready(0, On(0, {1}));
  BeginNow();
  Ready(1, On(1, {2}));
  Ready(2, On(2, {1}));
  Ready(3, On(3, {4}));
  ASSERT_TRUE(folds_.Root());
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_THAT(folds_.Root()->second.inputs, SizeIs(3));
}

TEST_F(ReducePlanTest, TheSameSourcePutAgainIsAnotherGeneration) {
  Chain();
  const SlotVersion root = plan_->RootVersion();
  Ready(3, On(3, {4}, kLarge, 2));
  EXPECT_TRUE(plan_->Placed(Source(3)));
  EXPECT_NE(plan_->RootVersion(), root);
  EXPECT_EQ(folds_.dropped, 3);
  EXPECT_THAT(folds_.placed, SizeIs(3));
}

TEST_F(ReducePlanTest, ASlotWhoseSourceIsElsewhereTooMovesWithoutANewVersion) {
  Chain();
  Ready(2, On(2, {3, 9}));
  const SlotVersion root = plan_->RootVersion();
  Down(3);
  EXPECT_EQ(plan_->RootVersion(), root);
  EXPECT_EQ(folds_.Slot(2)->first, Node(9));
  EXPECT_EQ(folds_.Slot(3)->second.inputs[0].node, Node(9));
  EXPECT_THAT(folds_.placed, SizeIs(2));
  EXPECT_EQ(folds_.dropped, 0);
}

TEST_F(ReducePlanTest, ASharedSlotThatComesApartHasLeaves) {
  Start(SumOf(4), NodeKey(), 2, 1);
  for (int i = 0; i < 4; ++i) Ready(i, On(i, {i < 2 ? 1 : 2}));
  BeginNow();
  const std::vector<ObjectId> before = folds_.Root()->second.reduced_from;
  Ready(0, On(0, {1, 3}));
  Ready(1, On(1, {1, 4}));
  Down(1);
  EXPECT_EQ(folds_.Root()->second.reduced_from, before);
  EXPECT_EQ(folds_.Slot(0)->first, Node(3));
  EXPECT_EQ(folds_.Slot(0)->second.inputs[1].node, Node(4));
  EXPECT_THAT(folds_.at, SizeIs(3));
  const ReducePlan::View view = plan_->Look();
  ASSERT_THAT(view.slots, SizeIs(3));
  EXPECT_EQ(view.slots[2].parent, 0);
  EXPECT_THAT(view.slots[2].own, ElementsAre(Source(1)));
}

TEST_F(ReducePlanTest, ASharedSlotKeepsTogetherWhereItCan) {
  Start(SumOf(4), NodeKey(), 2, 1);
  for (int i = 0; i < 4; ++i) Ready(i, On(i, i < 2 ? std::vector<int>{1, 5} : std::vector{2}));
  BeginNow();
  Down(1);
  EXPECT_EQ(folds_.Slot(0)->first, Node(5));
  EXPECT_THAT(folds_.at, SizeIs(2));
}

TEST_F(ReducePlanTest, WhenTheDeliverysNodeDiesTheTreesRootIsTheRoot) {
  Chain(Node(9));
  const SlotVersion delivered = plan_->RootVersion();
  const SlotVersion fourth = VersionOf(4);
  Down(9);
  EXPECT_EQ(folds_.Root()->first, Node(6));
  EXPECT_NE(plan_->RootVersion(), delivered);
  EXPECT_EQ(VersionOf(4), fourth);
  EXPECT_EQ(folds_.dropped, 1);
}

TEST_F(ReducePlanTest, WhenTheReservedRootDiesItsSeatIsTakenByAnother) {
  Chain(Node(2), 8);
  Ready(7, On(7, {8}));
  Down(2);
  EXPECT_EQ(folds_.Root()->first, Node(8));
  EXPECT_EQ(folds_.dropped, 0);
  EXPECT_THAT(folds_.placed, SizeIs(1));
}

TEST_F(ReducePlanTest, TheRootStaysOnItsNodeWhenItsOwnSourceIsLost) {
  Chain(Node(2), 8);
  Ready(7, On(7, {8}));
  Gone(1);
  const auto root = folds_.Root();
  ASSERT_TRUE(root);
  EXPECT_EQ(root->first, Node(2));
  EXPECT_EQ(root->second.inputs.back().node, Node(8));
  EXPECT_EQ(root->second.reduced_from.back(), Source(7));
}

TEST_F(ReducePlanTest, WhatTakesTheRootsSeatIsTakenFromTheRootsNodeIfItIsThere) {
  Chain(Node(2), 8);
  Ready(7, On(7, {8, 2}));
  Gone(1);
  EXPECT_EQ(folds_.Root()->first, Node(2));
  EXPECT_EQ(folds_.Root()->second.inputs.back().source, Source(7));
  EXPECT_THAT(folds_.at, SizeIs(6));
}

TEST_F(ReducePlanTest, ALostFoldIsPlacedAgain) {
  Chain();
  Ready(2, On(2, {3, 9}));
  const SlotVersion root = plan_->RootVersion();
  const SlotVersion second = VersionOf(2);
  const SlotVersion fourth = VersionOf(4);
  plan_->OnFoldLost(Node(3), second);
  Look();
  EXPECT_EQ(folds_.Slot(2)->first, Node(9));
  plan_->OnFoldLost(Node(5), fourth);
  Look();
  EXPECT_EQ(folds_.Slot(4)->first, Node(5));
  EXPECT_THAT(folds_.placed, SizeIs(1));
  EXPECT_EQ(plan_->RootVersion(), root);
}

TEST_F(ReducePlanTest, AFoldThatIsLostAgainAndAgainEndsTheReduction) {
  Chain();
  for (int i = 0; i < 101 && !folds_.ended; ++i) {
    const SlotVersion version = VersionOf(4);
    plan_->OnFoldLost(Node(5), version);
    Look();
  }
  ASSERT_TRUE(folds_.ended);
  EXPECT_THAT(*folds_.ended, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("slot 4")));
}

TEST_F(ReducePlanTest, ADroppedRootsVersionDoesNotReturnToItsNode) {
  Chain();
  const SlotVersion root = plan_->RootVersion();
  const SlotVersion fourth = VersionOf(4);
  // The same attempt is lost and reported again.
  Gone(5);
  Ready(5, On(5, {6}));
  EXPECT_EQ(plan_->RootNode(), Node(6));
  EXPECT_NE(plan_->RootVersion(), root);
  EXPECT_EQ(VersionOf(4), fourth);
  plan_->OnReady(Node(6), root);
  Look();
  EXPECT_FALSE(plan_->committed());
}

TEST_F(ReducePlanTest, ARepeatedReadyIsAnsweredAgain) {
  Chain();
  for (int i = 0; i < 2; ++i) plan_->OnReady(Node(6), plan_->RootVersion());
  Look();
  EXPECT_THAT(folds_.commits, SizeIs(2));
}

TEST_F(ReducePlanTest, KnowsWhereEachSourceIsPlaced) {
  Chain();
  const SlotVersion version = VersionOf(3);
  ASSERT_NE(plan_->Find(Node(4), version), nullptr);
  EXPECT_EQ(*plan_->Find(Node(4), version), folds_.Slot(3)->second);
  EXPECT_EQ(plan_->Find(Node(5), version), nullptr);
  Gone(3);
  EXPECT_EQ(plan_->Find(Node(4), version), nullptr);
}

TEST_F(ReducePlanTest, SourcesCanBeReportedBeforeTheirNodeIsDown) {
  Chain();
  const SlotVersion root = plan_->RootVersion();
  plan_->OnSource(Source(2), On(2, {9}));
  plan_->OnNodeDown(Node(3));
  EXPECT_EQ(plan_->RootVersion(), root);
  EXPECT_THAT(plan_->CheckInvariants(), IsOk());
}

TEST_F(ReducePlanTest, CountsOnlySeatedSourcesAsPlaced) {
  Chain(NodeKey(), 8);
  Ready(6, On(6, {7}));
  EXPECT_TRUE(plan_->Placed(Source(0)));
  EXPECT_FALSE(plan_->Placed(Source(6)));
  EXPECT_TRUE(plan_->Watches(Source(7)));
  EXPECT_FALSE(plan_->Watches(Source(8)));
  EXPECT_EQ(plan_->Look().spares, 1u);
  EXPECT_EQ(plan_->Look().ready, 7u);
  plan_->Cancel();
  Look();
  EXPECT_FALSE(plan_->Placed(Source(0)));
  EXPECT_FALSE(plan_->Watches(Source(7)));
}

TEST_F(ReducePlanTest, EndsWhenTooFewSourcesAreLeft) {
  Chain(NodeKey(), 7);
  plan_->OnSourceFailed(Source(6), absl::AbortedError("its task died"));
  Look();
  EXPECT_FALSE(folds_.ended);
  plan_->OnSourceFailed(Source(2), absl::AbortedError("its task died"));
  Look();
  ASSERT_TRUE(folds_.ended);
  EXPECT_THAT(*folds_.ended, StatusIs(absl::StatusCode::kAborted, HasSubstr(Source(2).hex())));
  EXPECT_THAT(std::string(folds_.ended->message()), HasSubstr(Target().hex()));
}

TEST_F(ReducePlanTest, EndsOnASourceOfAnotherSize) {
  Chain(NodeKey(), 7);
  Gone(3);
  Ready(6, On(6, {7}, kLarge + 4));
  ASSERT_TRUE(folds_.ended);
  EXPECT_THAT(*folds_.ended, StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("has 1048580 bytes, the first")));
}

TEST_F(ReducePlanTest, WhenNothingIsPlacedAnyMoreTheNextSourceGivesTheSize) {
  Start(SumOf(2), NodeKey());
  BeginNow();
  Ready(0, On(0, {1}));
  Gone(0);
  Ready(0, On(0, {1}, 2 * kLarge, 2));
  Ready(1, On(1, {2}, 2 * kLarge));
  ASSERT_TRUE(folds_.Root());
  EXPECT_EQ(folds_.Root()->second.size_bytes, 2 * kLarge);
}

TEST_F(ReducePlanTest, ASpareOfAnotherSizeDoesNoHarm) {
  Chain(NodeKey(), 7);
  Ready(6, On(6, {7}, kLarge + 4));
  EXPECT_FALSE(folds_.ended);
}

TEST_F(ReducePlanTest, EndsOnASourceThatIsNoWholeElementsOrHasNoSuchRange) {
  Start(SumOf(2), NodeKey());
  BeginNow();
  Ready(0, On(0, {1}, kLarge + 1));
  EXPECT_THAT(*folds_.ended, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f32")));
  folds_ = Folds();
  ReduceSpec spec = SumOf(2);
  spec.range_offset = 4;
  spec.range_bytes = kLarge;
  Start(spec, NodeKey());
  BeginNow();
  Ready(0, On(0, {1}, kLarge));
  EXPECT_THAT(*folds_.ended, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[4, ")));
}

TEST_F(ReducePlanTest, FoldsARangeOfSourcesOfAnySizes) {
  ReduceSpec spec = SumOf(2);
  spec.range_offset = 4;
  spec.range_bytes = kLarge;
  Start(spec, NodeKey());
  BeginNow();
  Ready(0, On(0, {1}, kLarge + 4));
  Ready(1, On(1, {2}, kLarge + 7));
  ASSERT_TRUE(folds_.Root());
  EXPECT_EQ(folds_.Root()->second.size_bytes, kLarge);
}

TEST_F(ReducePlanTest, OfTenThousandSourcesALossTouchesThoseAboveItAlone) {
  constexpr int kSources = 10000;
  Start(SumOf(kSources + 1, kSources), NodeKey(), kSources, 2);
  plan_->Begin();
  for (int i = 0; i < kSources; ++i) plan_->OnSource(Source(i), On(i, {i + 1}));
  Look();
  ASSERT_EQ(plan_->Look().degree, 2);
  EXPECT_THAT(folds_.placed, SizeIs(kSources));
  plan_->OnSource(Source(5), On(5, {kSources + 1}, kLarge, 2));
  const std::vector<ReduceEffect> effects = plan_->TakeEffects();
  // A tree of degree 2 has a depth of 13.
  EXPECT_LE(effects.size(), 2u * 14);
  EXPECT_GE(effects.size(), 2u);
}

// ---- a fixed order

TEST_F(ReducePlanTest, AFixedOrderIsAChainInThatOrder) {
  Start(InOrder(SumOf(3)), NodeKey());
  BeginNow();
  Ready(2, On(2, {3}));
  EXPECT_THAT(folds_.at, IsEmpty());
  Ready(0, On(0, {1}));
  EXPECT_THAT(folds_.at, SizeIs(1));
  Ready(1, On(1, {2}));
  EXPECT_THAT(folds_.Root()->second.reduced_from, ElementsAre(Source(0), Source(1), Source(2)));
}

TEST_F(ReducePlanTest, NeighboursOnOneNodeShareASlotOfTheChain) {
  Start(InOrder(SumOf(4)), NodeKey());
  const int nodes[] = {1, 2, 2, 1};
  for (int i = 0; i < 4; ++i) Ready(i, On(i, {nodes[i]}));
  BeginNow();
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_THAT(folds_.Root()->second.reduced_from,
              ElementsAre(Source(0), Source(1), Source(2), Source(3)));
}

TEST_F(ReducePlanTest, InAFixedOrderTheOthersMoveUpWhenOneFails) {
  Start(InOrder(SumOf(4, 3)), NodeKey());
  for (int i = 0; i < 4; ++i) Ready(i, On(i, {i + 1}));
  BeginNow();
  EXPECT_FALSE(plan_->Placed(Source(3)));
  plan_->OnSourceFailed(Source(1), absl::AbortedError("x"));
  Look();
  EXPECT_THAT(folds_.Root()->second.reduced_from, ElementsAre(Source(0), Source(2), Source(3)));
}

TEST_F(ReducePlanTest, InAFixedOrderTheRootIsReservedForTheLastSourceAlone) {
  Start(InOrder(SumOf(2)), Node(2));
  for (int i = 0; i < 2; ++i) Ready(i, On(i, {i + 1}));
  BeginNow();
  EXPECT_THAT(folds_.at, SizeIs(2));
  EXPECT_EQ(folds_.Root()->first, Node(2));
  folds_ = Folds();
  Start(InOrder(SumOf(2)), Node(1));
  for (int i = 0; i < 2; ++i) Ready(i, On(i, {i + 1}));
  BeginNow();
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_EQ(folds_.Root()->second.slot, 2);
}

TEST_F(ReducePlanTest, SmallSourcesOfAFixedOrderAreFoldedInThatOrder) {
  Start(InOrder(SumOf(3)), Node(9));
  BeginNow();
  for (const int i : {2, 0, 1}) Ready(i, Inline(On(i, {i + 1}, 64)));
  ASSERT_TRUE(plan_->committed());
  EXPECT_THAT(folds_.Root()->second.reduced_from, ElementsAre(Source(0), Source(1), Source(2)));
}

// ---- small reductions

TEST_F(ReducePlanTest, SmallSourcesTravelWithTheOrder) {
  Start(SumOf(3, 2), Node(1));
  BeginNow();
  Ready(2, Inline(On(2, {}, 64)));
  EXPECT_THAT(folds_.at, IsEmpty());
  Ready(0, On(0, {1}, 64));
  ASSERT_THAT(folds_.at, SizeIs(1));
  const auto root = folds_.Root();
  EXPECT_EQ(root->first, Node(1));
  EXPECT_TRUE(root->second.committed);
  EXPECT_TRUE(plan_->committed());
  using Kind = FoldInput::Kind;
  EXPECT_THAT(root->second.inputs,
              ElementsAre(FoldInput{Kind::kInline, Source(2), Attempt(2), NodeKey()},
                          FoldInput{Kind::kSource, Source(0), Attempt(0), NodeKey()}));
  EXPECT_THAT(root->second.reduced_from, ElementsAre(Source(2), Source(0)));
  EXPECT_THAT(folds_.commits, IsEmpty());
}

TEST_F(ReducePlanTest, SmallSourcesThatAreNotInlineMakeATree) {
  Start(SumOf(2), Node(9));
  BeginNow();
  Ready(0, Inline(On(0, {1}, 64)));
  Ready(1, On(1, {2}, 64));
  EXPECT_THAT(folds_.at, SizeIs(3));
  EXPECT_FALSE(plan_->committed());
}

TEST_F(ReducePlanTest, WaitsForWhatCanNeitherBeSentNorFoundUntilItCan) {
  Start(SumOf(2), Node(9));
  BeginNow();
  Ready(0, Inline(On(0, {}, 64)));
  Ready(1, On(1, {2}, 64));
  EXPECT_FALSE(plan_->RootVersion().valid());
  Ready(1, Inline(On(1, {2}, 64)));
  EXPECT_TRUE(plan_->committed());
}

TEST_F(ReducePlanTest, ASmallResultThatIsLostIsPlacedAgainElsewhere) {
  Start(SumOf(2), Node(9));
  BeginNow();
  for (int i = 0; i < 2; ++i) Ready(i, Inline(On(i, {i + 1}, 64)));
  ASSERT_EQ(plan_->RootNode(), Node(9));
  Down(9);
  EXPECT_EQ(plan_->RootNode(), Node(1));
  EXPECT_TRUE(plan_->committed());
}

TEST_F(ReducePlanTest, ATreeIsBetterWhenTheRootsLinkIsTheBottleneck) {
  Start(SumOf(16), Node(9));
  plan_->SetCosts(testing::HopCosts(1));
  for (int i = 0; i < 16; ++i) Ready(i, Inline(On(i, {i + 10}, 64 << 10)));
  BeginNow();
  EXPECT_FALSE(plan_->committed());
  EXPECT_THAT(folds_.at, SizeIs(17));
}

// ---- open reductions

TEST_F(ReducePlanTest, AnOpenReductionBeginsWhenItIsClosed) {
  ReduceSpec spec = SumOf(1);
  spec.open = true;
  Start(spec, NodeKey());
  BeginNow();
  Ready(0, On(0, {1}));
  EXPECT_THAT(folds_.at, IsEmpty());
  EXPECT_THAT(plan_->Add({Source(1), Source(2)}), IsOk());
  EXPECT_THAT(plan_->Add({Source(2)}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(plan_->Add({Target()}), StatusIs(absl::StatusCode::kInvalidArgument));
  Ready(1, On(1, {2}));
  Ready(2, On(2, {3}));
  EXPECT_THAT(plan_->Close(), IsOk());
  Look();
  EXPECT_EQ(folds_.Root()->second.planned, 3u);
  EXPECT_THAT(plan_->Close(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(plan_->Add({Source(5)}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ReducePlanTest, IsNotClosedWithFewerSourcesThanAreWanted) {
  ReduceSpec spec = SumOf(1, 2);
  spec.open = true;
  Start(spec, NodeKey());
  EXPECT_THAT(plan_->Close(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(plan_->Add({Source(1)}), IsOk());
  EXPECT_THAT(plan_->Close(), IsOk());
}

// ---- after a restart

TEST_F(ReducePlanTest, ARestartedShardMakesTheSamePlan) {
  Chain(Node(2), 9);
  const auto before = folds_.at;
  std::vector<ReduceSource> states;
  for (int i = 0; i < 9; ++i) states.push_back(On(i, {i + 1}));
  Restart(SumOf(9, 6), Node(2), states);
  EXPECT_THAT(folds_.placed, SizeIs(6));
  EXPECT_EQ(folds_.at, before);
}

TEST_F(ReducePlanTest, AClosedSlotIsClosedAfterARestartToo) {
  Chain(Node(6));
  std::vector<ReduceSource> states;
  for (int i = 0; i < 6; ++i) states.push_back(On(i, {i + 1}));
  Down(3);
  Ready(2, states[2] = On(2, {6}));
  const auto before = folds_.at;
  Restart(SumOf(6, 6), Node(6), states);
  EXPECT_THAT(folds_.placed, SizeIs(5));
  EXPECT_EQ(folds_.at, before);
}

TEST_F(ReducePlanTest, ARestartedChainInAFixedOrderKeepsItsSharedSlots) {
  const int nodes[] = {1, 1, 2, 3, 3};
  Start(InOrder(SumOf(5)), NodeKey());
  for (int i = 0; i < 5; ++i) Ready(i, On(i, {nodes[i]}));
  BeginNow();
  const SlotVersion root = plan_->RootVersion();
  ASSERT_EQ(folds_.Root()->second.slots, 3);
  folds_ = Folds();
  Start(InOrder(SumOf(5)), NodeKey());
  // A new plan would take the first source from another node by now.
  Ready(0, On(0, {4, 1}));
  for (int i = 1; i < 5; ++i) Ready(i, On(i, {nodes[i]}));
  const ObjectId last[] = {Source(3), Source(4)};
  const ObjectId first[] = {Source(0), Source(1)};
  plan_->Restore(3, 1, 2, last, Node(3), SlotVersion());
  plan_->Restore(3, 1, 0, first, Node(1), SlotVersion());
  BeginNow();
  EXPECT_EQ(plan_->RootVersion(), root);
}

TEST_F(ReducePlanTest, UnregisteredSlotsAreFilledByOtherSourcesAfterARestart) {
  Start(SumOf(4, 3), NodeKey(), 3, 1);
  for (int i = 0; i < 4; ++i) Ready(i, On(i, {i + 1}));
  const ObjectId first[] = {Source(3)};
  const ObjectId again[] = {Source(3)};
  const ObjectId other[] = {Source(2)};
  plan_->Restore(3, 1, 0, first, Node(4), SlotVersion());
  plan_->Restore(3, 1, 1, again, Node(4), SlotVersion());  // it has a slot
  plan_->Restore(3, 2, 2, other, Node(3), SlotVersion());  // another shape
  plan_->Restore(3, 1, 7, other, Node(3), SlotVersion());  // a seat that nothing is left for
  BeginNow();
  EXPECT_THAT(folds_.Root()->second.reduced_from, SizeIs(3));
  EXPECT_TRUE(plan_->Placed(Source(3)));
}

TEST_F(ReducePlanTest, NonsenseAboutARestartIsIgnored) {
  Start(SumOf(2), NodeKey(), 2, 1);
  for (int i = 0; i < 2; ++i) Ready(i, On(i, {i + 1}));
  const ObjectId known[] = {Source(0)};
  const ObjectId unknown[] = {Source(77)};
  for (const int number : {-1, 0, 3, 1 << 30}) {
    plan_->Restore(number, 1, 0, known, Node(1), SlotVersion());
    plan_->Restore(2, number, 0, known, Node(1), SlotVersion());
    plan_->Restore(2, 1, number, known, Node(1), SlotVersion());
    plan_->Restore(2, 1, number, unknown, Node(1), SlotVersion());
    plan_->Restore(2, 1, number, {}, Node(1), SlotVersion());
  }
  BeginNow();
  EXPECT_TRUE(folds_.Root());
}

TEST_F(ReducePlanTest, StartsOverWhenTheResultIsLost) {
  Chain();
  plan_->OnReady(Node(6), plan_->RootVersion());
  Look();
  const SlotVersion version = plan_->RootVersion();
  Down(6);
  EXPECT_FALSE(plan_->committed());
  EXPECT_FALSE(plan_->RootVersion().valid());
  Ready(5, On(5, {7}));
  EXPECT_EQ(plan_->RootVersion(), version);
  plan_->OnReady(Node(7), version);
  plan_->OnResultLost();
  Look();
  EXPECT_FALSE(plan_->committed());
  EXPECT_EQ(plan_->RootNode(), Node(7));
}

}  // namespace
}  // namespace phalanx::directory
