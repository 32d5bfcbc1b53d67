#include "src/directory/reductions/ring_plan/ring_plan.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/common/ids/version.h"

namespace phalanx::directory {
namespace {

constexpr uint64_t kSize = 32 << 20;
const Generation kTarget{{1, 1}, uint64_t{1} << 63};

ObjectId Source(int i) {
  return ObjectId::FromName("source", std::string(1, static_cast<char>(i)));
}
NodeKey Node(int i) { return {static_cast<uint64_t>(100 + i), 1}; }
Generation Of(int i) { return {Node(i), static_cast<uint64_t>(i + 1)}; }

ReduceCosts Costs() {
  ReduceCosts costs;
  costs.latency = absl::Microseconds(100);
  costs.bytes_per_second = 125e6;
  costs.fold_per_second = 4e9;
  costs.segment_bytes = 4096;
  return costs;
}

RingPlan::Known At(int source, int node, uint64_t size = kSize, std::string zone = "") {
  ReduceSource state;
  state.generation = Of(source);
  state.size_bytes = size;
  state.holders.push_back({Node(node), true, std::move(zone)});
  return {Source(source), state};
}

ReduceSpec SpecOf(int sources) {
  ReduceSpec spec;
  for (int i = 0; i < sources; ++i) spec.sources.push_back(Source(i));
  return spec;
}

std::optional<RingPlan> Choose(const std::vector<RingPlan::Known>& sources) {
  return RingPlan::Choose(SpecOf(static_cast<int>(sources.size())), sources, Costs(),
                          VersionOf({1, 2}), kTarget);
}

TEST(RingPlanTest, MembersStandInTheOrderInWhichTheirSourcesAreListed) {
  const auto ring = Choose({At(0, 5), At(1, 2), At(2, 5), At(3, 7)});
  ASSERT_TRUE(ring.has_value());
  ASSERT_EQ(ring->members().size(), 3u);
  EXPECT_EQ(ring->members()[0].node, Node(5));
  EXPECT_EQ(ring->members()[0].own.size(), 2u);
  EXPECT_EQ(ring->members()[1].node, Node(2));
  EXPECT_EQ(ring->Before(0), Node(7));
  EXPECT_EQ(ring->Before(2), Node(2));
  EXPECT_EQ(ring->sources(), 4u);
}

TEST(RingPlanTest, WhatIsFewOrUnevenOrFarApartIsNone) {
  EXPECT_FALSE(Choose({At(0, 0), At(1, 1)}).has_value());
  EXPECT_FALSE(Choose({At(0, 0), At(1, 1), At(2, 1)}).has_value());
  EXPECT_FALSE(Choose({At(0, 0), At(1, 1), At(2, 2, kSize - 4)}).has_value());
  EXPECT_FALSE(Choose({At(0, 0), At(1, 1), At(2, 2, kSize, "far")}).has_value());
  EXPECT_FALSE(Choose({At(0, 0, 6), At(1, 1, 6), At(2, 2, 6)}).has_value()) << "no whole elements";
  RingPlan::Known nowhere = At(2, 2);
  nowhere.state.holders.clear();
  EXPECT_FALSE(Choose({At(0, 0), At(1, 1), nowhere}).has_value());
  std::vector<RingPlan::Known> many;
  for (int i = 0; i <= kMaxSlices; ++i) many.push_back(At(i, i, uint64_t{1} << 40));
  EXPECT_FALSE(Choose(many).has_value());
  many.pop_back();
  EXPECT_TRUE(Choose(many).has_value());
}

TEST(RingPlanTest, SourcesOfOtherMetadataThanWasAskedForAreNone) {
  std::vector<RingPlan::Known> sources = {At(0, 0), At(1, 1), At(2, 2)};
  for (RingPlan::Known& source : sources) source.state.metadata = "f4";
  ReduceSpec spec = SpecOf(3);
  spec.source_metadata = "f4";
  const auto choose = [&] {
    return RingPlan::Choose(spec, sources, Costs(), VersionOf({1, 2}), kTarget);
  };
  EXPECT_TRUE(choose().has_value());
  sources[1].state.metadata = "i4";
  EXPECT_FALSE(choose().has_value());
}

TEST(RingPlanTest, OnlyAllOfTheSourcesInAnyOrderAndForAnyRootCanBeOne) {
  EXPECT_TRUE(RingPlan::Possible(SpecOf(3), NodeKey()));
  EXPECT_FALSE(RingPlan::Possible(SpecOf(2), NodeKey()));
  EXPECT_FALSE(RingPlan::Possible(SpecOf(3), Node(1)));
  ReduceSpec spec = SpecOf(3);
  spec.num_objects = 3;
  EXPECT_TRUE(RingPlan::Possible(spec, NodeKey()));
  spec.num_objects = 2;
  EXPECT_FALSE(RingPlan::Possible(spec, NodeKey()));
  spec = SpecOf(3);
  spec.order = ReduceSpec::Order::kFixed;
  EXPECT_FALSE(RingPlan::Possible(spec, NodeKey()));
  spec = SpecOf(3);
  spec.open = true;
  EXPECT_FALSE(RingPlan::Possible(spec, NodeKey()));
  spec = SpecOf(3);
  spec.range_bytes = 4;
  EXPECT_FALSE(RingPlan::Possible(spec, NodeKey()));
}

TEST(RingPlanTest, ItIsFasterForLargeObjectsOnly) {
  for (const int members : {3, 8, 16, 64}) {
    SCOPED_TRACE(members);
    EXPECT_LT(RingTime(members, 1 << 30, Costs()),
              ReduceAndBroadcastTime(members, 1 << 30, Costs()));
    EXPECT_GT(RingTime(members, 1 << 15, Costs()),
              ReduceAndBroadcastTime(members, 1 << 15, Costs()));
  }
  // For large objects only the bytes on a link count.
  const double ring = absl::ToDoubleSeconds(RingTime(4, uint64_t{1} << 40, Costs()));
  const double tree = absl::ToDoubleSeconds(ReduceAndBroadcastTime(4, uint64_t{1} << 40, Costs()));
  EXPECT_NEAR(ring / tree, 0.75, 0.001);
}

TEST(RingPlanTest, CommitsOnceWhenAllAreReady) {
  auto ring = Choose({At(0, 0), At(1, 1), At(2, 2)});
  EXPECT_FALSE(ring->OnReady(Node(0)));
  EXPECT_FALSE(ring->OnReady(Node(0)));
  EXPECT_FALSE(ring->OnReady(Node(9)));
  EXPECT_FALSE(ring->OnReady(Node(1)));
  EXPECT_TRUE(ring->OnReady(Node(2)));
  EXPECT_TRUE(ring->committed());
  EXPECT_FALSE(ring->OnReady(Node(2)));
}

TEST(RingPlanTest, AnotherGenerationOfASourceOrALostMemberBreaksIt) {
  auto ring = Choose({At(0, 0), At(1, 1), At(2, 2)});
  ring->OnSource(Source(1), Of(1));
  ring->OnLost(Node(7));
  EXPECT_FALSE(ring->broken());
  ring->OnSource(Source(1), Of(5));
  EXPECT_TRUE(ring->broken());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(ring->OnReady(Node(i))) << "it is no result";
  auto other = Choose({At(0, 0), At(1, 1), At(2, 2)});
  other->OnLost(Node(2));
  EXPECT_TRUE(other->broken());
}

}  // namespace
}  // namespace phalanx::directory
