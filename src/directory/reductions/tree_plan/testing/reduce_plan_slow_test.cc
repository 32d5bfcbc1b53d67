// Sources behind slow links: they receive nothing, are not waited for, and give way to faster ones.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using testing::CostsFor;
using testing::Folds;
using testing::InOrder;
using testing::kLarge;
using testing::Node;
using testing::On;
using testing::Slow;
using testing::Source;
using testing::SumOf;
using testing::Target;

// Source i is on node i + 1.
class ReducePlanSlowTest : public ::testing::Test {
 protected:
  void Start(ReduceSpec spec, NodeKey root = NodeKey(), int degree = 1) {
    const int slots = static_cast<int>(spec.sources.size());
    plan_ = std::make_unique<ReducePlan>(Target(), std::move(spec), root);
    plan_->SetCosts(CostsFor(slots, degree).value());
    folds_ = Folds();
  }
  void Look() {
    EXPECT_THAT(folds_.Apply(plan_->TakeEffects()), IsOk());
    EXPECT_THAT(plan_->CheckInvariants(), IsOk());
  }
  void Begin() {
    plan_->Begin();
    Look();
  }
  void Ready(int source) { Ready(source, On(source, {source + 1})); }
  void Ready(int source, const ReduceSource& state) {
    plan_->OnSource(Source(source), state);
    Look();
  }
  void ReadySlow(int source, double speed = 0.1) {
    Ready(source, Slow(On(source, {source + 1}), speed));
  }
  // The sources in the root's list; empty without a root.
  std::vector<int> Reduced() const {
    std::vector<int> reduced;
    const auto root = folds_.Root();
    if (!root) return reduced;
    for (const ObjectId& id : root->second.reduced_from) {
      for (int i = 0; i < 16; ++i) {
        if (Source(i) == id) reduced.push_back(i);
      }
    }
    std::sort(reduced.begin(), reduced.end());
    return reduced;
  }
  // Whether the node pulls the output of another fold.
  bool Receives(int node) const {
    return std::any_of(folds_.at.begin(), folds_.at.end(), [node](const auto& fold) {
      const auto& inputs = fold.second.inputs;
      return fold.first.first == Node(node) &&
             std::any_of(inputs.begin(), inputs.end(), [](const FoldInput& input) {
               return input.kind == FoldInput::Kind::kSlot;
             });
    });
  }

  std::unique_ptr<ReducePlan> plan_;
  Folds folds_;
};

TEST_F(ReducePlanSlowTest, OfMoreThanEnoughTheSlowOneIsLeftOut) {
  for (int slow = 0; slow < 8; ++slow) {
    Start(SumOf(8, 7));
    for (int i = 0; i < 8; ++i) i == slow ? ReadySlow(i) : Ready(i);
    Begin();
    EXPECT_EQ(Reduced().size(), 7u);
    EXPECT_FALSE(plan_->Placed(Source(slow))) << slow;
  }
}

TEST_F(ReducePlanSlowTest, InAnyOrderOfArrivalTheSlowOneGivesWay) {
  for (int slow = 0; slow < 8; ++slow) {
    Start(SumOf(8, 7));
    Begin();
    for (int i = 0; i < 8; ++i) {
      i == slow ? ReadySlow(i) : Ready(i);
      const bool placed = plan_->Placed(Source(slow));
      EXPECT_TRUE(i != 5 || !placed) << "others can still come";
      EXPECT_TRUE(i != 6 || slow == 7 || placed) << "no other need come";
    }
    EXPECT_EQ(Reduced().size(), 7u);
    EXPECT_FALSE(plan_->Placed(Source(slow))) << slow;
    EXPECT_EQ(plan_->TakeSwaps(), slow < 7 ? 1u : 0u);
  }
}

TEST_F(ReducePlanSlowTest, WhenOthersHaveFailedTheSlowOneIsNotHeldBack) {
  Start(SumOf(4, 3));
  Begin();
  ReadySlow(0);
  Ready(1);
  EXPECT_FALSE(plan_->Placed(Source(0)));
  plan_->OnSourceFailed(Source(3), absl::AbortedError("its task died"));
  EXPECT_TRUE(plan_->Placed(Source(0)));
  Ready(2);
  EXPECT_EQ(Reduced(), (std::vector<int>{0, 1, 2}));
}

TEST_F(ReducePlanSlowTest, ASlowNodeReceivesNothing) {
  for (const int degree : {1, 2, 3}) {
    for (int slow = 0; slow < 8; ++slow) {
      for (const bool begun : {false, true}) {
        Start(SumOf(8), NodeKey(), degree);
        if (begun) Begin();
        for (int i = 0; i < 8; ++i) i == slow ? ReadySlow(i) : Ready(i);
        Begin();
        EXPECT_EQ(Reduced().size(), 8u);
        // The last slot of a tree that is nearly complete is an inner one: a source that comes
        // later than all others folds there, unless a free slot can be closed.
        const bool last = begun && slow >= 6;
        EXPECT_TRUE(last || !Receives(slow + 1)) << slow << ", degree " << degree << begun;
      }
    }
  }
}

TEST_F(ReducePlanSlowTest, SeveralSlowNodesReceiveNothing) {
  Start(SumOf(8), Node(1));
  for (int i = 0; i < 8; ++i) i >= 5 ? ReadySlow(i) : Ready(i);
  Begin();
  EXPECT_EQ(Reduced().size(), 8u);
  for (int i = 5; i < 8; ++i) EXPECT_FALSE(Receives(i + 1)) << i;
}

TEST_F(ReducePlanSlowTest, ASlowNodeHandsItsSourceOnWithinItsZone) {
  for (int slow = 0; slow < 6; ++slow) {
    Start(SumOf(6));
    for (int i = 0; i < 6; ++i) {
      ReduceSource state = On(i, {i + 1});
      state.holders.front().zone = i < 3 ? "east" : "west";
      Ready(i, i == slow ? Slow(state) : state);
    }
    Begin();
    int taken = 0;
    for (const auto& [where, task] : folds_.at) {
      for (const FoldInput& input : task.inputs) {
        if (input.kind != FoldInput::Kind::kSlot || input.node != Node(slow + 1)) continue;
        ++taken;
        EXPECT_EQ(where.first.node <= Node(3).node, slow < 3) << slow;
      }
    }
    EXPECT_EQ(taken, 1) << slow;
  }
}

TEST_F(ReducePlanSlowTest, SourcesOfOneSlowNodeAreFoldedThere) {
  Start(SumOf(4));
  Ready(0);
  Ready(1);
  Ready(2, Slow(On(2, {9})));
  Ready(3, Slow(On(3, {9})));
  Begin();
  EXPECT_EQ(Reduced().size(), 4u);
  EXPECT_FALSE(Receives(9));
  EXPECT_EQ(folds_.at.size(), 3u) << "one of them is at node 9";
}

TEST_F(ReducePlanSlowTest, LateSlowSourcesCostBoundedWorkEach) {
  for (const int count : {200, 2000}) {
    Start(SumOf(count, count), NodeKey(), /*degree=*/2);
    Begin();
    plan_->TakeExamined();
    for (int i = 0; i < count; ++i) {
      plan_->OnSource(Source(i), Slow(On(i, {i + 1}), 0.1));
      plan_->TakeEffects();
    }
    EXPECT_TRUE(plan_->Placed(Source(count - 1)));
    EXPECT_LE(plan_->TakeExamined(), 5u * static_cast<uint64_t>(count));
  }
}

TEST_F(ReducePlanSlowTest, TheRequestedRootIsNeverSlow) {
  Start(SumOf(4, 3), Node(1));
  ReadySlow(0);
  for (int i = 1; i < 4; ++i) Ready(i);
  Begin();
  EXPECT_TRUE(plan_->Placed(Source(0))) << "its bytes need not travel";
}

TEST_F(ReducePlanSlowTest, AFastCopyIsTaken) {
  Start(SumOf(3));
  ReduceSource copied = On(0, {1, 4});
  copied.holders.front().speed = 0.1;
  Ready(0, copied);
  Ready(1);
  Ready(2);
  Begin();
  for (const auto& [where, task] : folds_.at) EXPECT_NE(where.first, Node(1));
}

TEST_F(ReducePlanSlowTest, AResultThatIsNearlyCompleteIsNotStartedOver) {
  for (const bool nearly : {false, true}) {
    Start(SumOf(8, 7));
    Begin();
    ReadySlow(0);
    for (int i = 1; i < 7; ++i) Ready(i);
    plan_->OnProgress(plan_->RootVersion(), (nearly ? 0.9 : 0.8) * kLarge);
    Ready(7);
    EXPECT_EQ(plan_->Placed(Source(0)), nearly);
    EXPECT_EQ(plan_->TakeSwaps(), nearly ? 0u : 1u);
  }
}

TEST_F(ReducePlanSlowTest, NothingIsStartedOverWhileAnotherSlowSourceStays) {
  Start(SumOf(8, 7));
  Begin();
  for (int i = 0; i < 7; ++i) i < 2 ? ReadySlow(i) : Ready(i);
  Ready(7);
  EXPECT_EQ(plan_->TakeSwaps(), 0u);
  EXPECT_TRUE(plan_->Placed(Source(0)) && plan_->Placed(Source(1)));
}

TEST_F(ReducePlanSlowTest, ASourceThatBecomesSlowGivesWay) {
  Start(SumOf(8, 7));
  Begin();
  for (int i = 0; i < 8; ++i) Ready(i);
  ASSERT_TRUE(plan_->Placed(Source(3)));
  ReadySlow(3, 0);
  EXPECT_FALSE(plan_->Placed(Source(3)));
  EXPECT_EQ(Reduced().size(), 7u);
}

TEST_F(ReducePlanSlowTest, AFixedOrderMovesNoSource) {
  Start(InOrder(SumOf(4, 3)));
  Begin();
  ReadySlow(0);
  for (int i = 1; i < 4; ++i) Ready(i);
  EXPECT_EQ(Reduced(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(plan_->TakeSwaps(), 0u);
}

// Sources become slow and fast in turn.
class ReducePlanSwaps : public ReducePlanSlowTest {
 protected:
  uint64_t SwapsInManyChanges() {
    Start(SumOf(8, 6));
    Begin();
    for (int i = 0; i < 8; ++i) Ready(i);
    for (int i = 0; i < 100; ++i) {
      ReadySlow(i % 8);
      Ready((i + 5) % 8);
    }
    return plan_->TakeSwaps();
  }
};

TEST_F(ReducePlanSwaps, AreBounded) {
  const uint64_t swaps = SwapsInManyChanges();
  EXPECT_GE(swaps, 1u);
  EXPECT_LE(swaps, static_cast<uint64_t>(ReducePlan::kMaxSwaps));
}

TEST_F(ReducePlanSwaps, BackAndForthAreDetected) {
  const phalanx::testing::ScopedDefect on(Defect::kSwapBackAndForth);
  EXPECT_GT(SwapsInManyChanges(), static_cast<uint64_t>(ReducePlan::kMaxSwaps));
}

}  // namespace
}  // namespace phalanx::directory
