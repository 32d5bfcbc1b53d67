// The claims of the Hoplite paper (SIGCOMM 2021) about reductions, section by section.
#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using testing::CostsFor;
using ::testing::ElementsAre;
using testing::Folds;
using testing::HopCosts;
using ::testing::IsEmpty;
using testing::kLarge;
using testing::Node;
using testing::On;
using ::testing::SizeIs;
using testing::Source;
using testing::SumOf;
using testing::Target;
using ::testing::UnorderedElementsAre;

class ReducePaperTest : public ::testing::Test {
 protected:
  void Start(int sources, int num_objects, const ReduceCosts& costs) {
    plan_ = std::make_unique<ReducePlan>(Target(), SumOf(sources, num_objects), NodeKey());
    plan_->SetCosts(costs);
    plan_->Begin();
  }
  void Look() {
    EXPECT_TRUE(folds_.Apply(plan_->TakeEffects()).ok());
    EXPECT_TRUE(plan_->CheckInvariants().ok());
  }
  // Source i is on node i.
  void Ready(int source, int attempt = 1) {
    plan_->OnSource(Source(source), On(source, {source}, kLarge, attempt));
    Look();
  }
  void Fails(int node) {
    for (auto it = folds_.at.begin(); it != folds_.at.end();) {
      it = it->first.first == Node(node) ? folds_.at.erase(it) : std::next(it);
    }
    plan_->OnNodeDown(Node(node));
    Look();
  }
  std::vector<ObjectId> SourcesIn() const { return folds_.Root()->second.reduced_from; }
  // Returns the slots that got a new version by the last effects.
  std::set<int> StartedOver() const {
    std::set<int> slots;
    for (const PlaceFold& place : folds_.placed) slots.insert(place.task.slot);
    return slots;
  }

  std::unique_ptr<ReducePlan> plan_;
  Folds folds_;
};

// Section 3.4.2: T(1) = n L + S / B, T(d) = L log_d(n) + d S / B. The plan takes the least.
TEST_F(ReducePaperTest, TheDegreeIsChosenByTheCostModel) {
  const auto degree = [this](int sources, double hop_bytes) {
    Start(sources, 0, HopCosts(hop_bytes));
    for (int i = 0; i < sources; ++i) {
      plan_->OnSource(Source(i), On(i, {i + 1}));
      if (i == 0) break;
    }
    return plan_->Look().degree;
  };
  // If only the links' rate counts, a chain; if only a hop counts, every node sends to one.
  EXPECT_EQ(degree(16, 1), 1);
  EXPECT_EQ(degree(16, 1e9), 15);
  EXPECT_EQ(degree(16, kLarge / 4.0), 2);
  for (const int sources : {2, 3, 6, 17, 64, 1000}) {
    for (double hop = 1; hop < 1e10; hop *= 3) {
      EXPECT_EQ(degree(sources, hop), ChooseDegree(sources, kLarge, HopCosts(hop)));
    }
  }
}

// Section 3.4.1: the i-th object to become ready takes the i-th place of the tree in order.
TEST_F(ReducePaperTest, SlotsAreTakenInTheOrderOfArrival) {
  Start(6, 0, CostsFor(6, 2).value());
  const int arrival[] = {4, 2, 6, 1, 3, 5};
  for (int i = 0; i < 6; ++i) {
    plan_->OnSource(Source(arrival[i] - 1), On(arrival[i] - 1, {arrival[i]}));
    Look();
    EXPECT_THAT(plan_->Look().slots[i].own, ElementsAre(Source(arrival[i] - 1)));
    // The first child's subtree is complete before the slot is.
    const ReduceShape shape(6, 2);
    if (const auto children = shape.Children(i); !children.empty()) {
      EXPECT_TRUE(plan_->Look().slots[children.front()].version.valid());
    }
  }
  EXPECT_EQ(plan_->RootNode(), Node(1));
}

// Section 3.4: the first num_objects of the sources to be ready are reduced. Nodes compute partial
// results before all sources are ready.
TEST_F(ReducePaperTest, TheFirstSourcesAreReducedAndLaterOnesAreSpares) {
  Start(10, 4, CostsFor(4, 3).value());
  for (const int source : {9, 1, 5}) Ready(source);
  EXPECT_THAT(folds_.at, Not(IsEmpty()));
  EXPECT_FALSE(folds_.Root());
  Ready(3);
  EXPECT_THAT(SourcesIn(), ElementsAre(Source(9), Source(1), Source(5), Source(3)));
  Ready(2);
  EXPECT_THAT(folds_.placed, IsEmpty());
  EXPECT_EQ(plan_->Look().spares, 1u);
}

// Section 3.5.2, figure 5: 6 of 10 objects, degree 2. R2 fails, R7 takes its slot. R4, above it,
// starts over; all others keep their outputs.
TEST_F(ReducePaperTest, AFailedSlotIsTakenByTheNextAndOnlyThoseAboveStartOver) {
  Start(10, 6, CostsFor(6, 2).value());
  for (int i = 1; i <= 6; ++i) Ready(i);
  ASSERT_EQ(plan_->RootNode(), Node(4));
  const auto before = folds_.at;
  Fails(2);
  EXPECT_EQ(folds_.dropped, 1);  // R4's; R2's went with its node
  EXPECT_FALSE(folds_.Root());
  Ready(7);
  EXPECT_THAT(StartedOver(), UnorderedElementsAre(1, 3));
  EXPECT_EQ(folds_.Slot(1)->first, Node(7));
  EXPECT_EQ(plan_->RootNode(), Node(4));
  EXPECT_THAT(SourcesIn(),
              ElementsAre(Source(1), Source(7), Source(3), Source(4), Source(5), Source(6)));
  for (const auto& [where, task] : before) {
    const bool kept = task.slot != 1 && task.slot != 3;
    EXPECT_EQ(folds_.at.count(where), kept ? 1u : 0u) << "slot " << task.slot;
  }
}

// The same, with R7 ready before the failure.
TEST_F(ReducePaperTest, ASpareTakesAFailedSlotAtOnce) {
  Start(10, 6, CostsFor(6, 2).value());
  for (int i = 1; i <= 7; ++i) Ready(i);
  Fails(2);
  EXPECT_THAT(StartedOver(), UnorderedElementsAre(1, 3));
  EXPECT_THAT(SourcesIn(), SizeIs(6));
}

// If a leaf fails, only its ancestors start over. If the root fails, no other slot does.
TEST_F(ReducePaperTest, SlotsBelowAFailedSlotKeepTheirOutput) {
  Start(10, 6, CostsFor(6, 2).value());
  for (int i = 1; i <= 7; ++i) Ready(i);
  Fails(4);
  EXPECT_THAT(StartedOver(), UnorderedElementsAre(3));
  EXPECT_EQ(plan_->RootNode(), Node(7));
  Ready(8);
  Fails(1);
  EXPECT_THAT(StartedOver(), UnorderedElementsAre(0, 1, 3));
}

// Section 3.5: a task that rejoins puts its object again and takes part like any other task.
TEST_F(ReducePaperTest, ARejoinedSourceTakesTheFreeSlot) {
  Start(6, 6, CostsFor(6, 2).value());
  for (int i = 0; i < 6; ++i) {
    plan_->OnSource(Source(i), On(i, {i + 1}));
    Look();
  }
  Fails(2);
  EXPECT_FALSE(folds_.Root());
  plan_->OnSource(Source(1), On(1, {9}, kLarge, 2));
  Look();
  EXPECT_THAT(StartedOver(), UnorderedElementsAre(1, 3));
  EXPECT_EQ(folds_.Slot(1)->first, Node(9));
  EXPECT_THAT(SourcesIn(), SizeIs(6));
}

// Section 3.2: the directory sends objects of at most 64 KB in its answers.
TEST_F(ReducePaperTest, SmallObjectsAreReducedInOneRoundTrip) {
  ReduceCosts costs = HopCosts(1e6);
  costs.segment_bytes = 64 << 10;
  Start(8, 0, costs);
  for (int i = 0; i < 8; ++i) {
    plan_->OnSource(Source(i), testing::Inline(On(i, {i + 1}, 1024)));
    Look();
  }
  EXPECT_THAT(folds_.at, SizeIs(1));
  EXPECT_THAT(folds_.Root()->second.inputs, SizeIs(8));
}

}  // namespace
}  // namespace phalanx::directory
