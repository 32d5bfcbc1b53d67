#include "src/directory/reductions/fold_paces.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using phalanx::testing::ScopedDefect;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::ReductionFixture;

constexpr uint64_t kSize = 32 << 20;
constexpr double kFast = 100e6;
const NodeKey kD{4, 1};

// Of four sources on the nodes a to d the first three are summed, in a chain a ─► b ─► c; d's is a
// spare. Two reports have shown what fast links do.
class FoldPacesTest : public ReductionFixture {
 protected:
  FoldPacesTest() {
    Node& d = nodes_.Open(kD).node;
    d.info.set_name("d");
    d.endpoint.node = kD;
    d.session = nodes_.NewSession();
    Advance(absl::Seconds(10));
    for (const NodeKey& key : {kA, kB, kC, kD}) {
      node(key).last_heard = context_.now;
      Put(key, Source(static_cast<int>(key.node) - 1), kSize);
      Changed(Source(static_cast<int>(key.node) - 1));
    }
    reduction_.phase = ReductionPhase::kPlanned;
    reduction_.plan.Begin();
    Run();
    for (const uint64_t n : {11, 12}) {
      const Endpoint from{{n, 1}, {}};
      links_.RecordBounds(from, {{n + 2, 1}, {}}, kFast, 2 * kFast, context_.now);
    }
  }
  ~FoldPacesTest() override { Erase(reduction_); }

  static ReduceSpec ThreeOf(const std::vector<ObjectId>& sources) {
    ReduceSpec spec;
    spec.sources = sources;
    spec.num_objects = 3;
    spec.elements = DType::kU32;
    return spec;
  }
  void Run() { ApplyEffects(reduction_); }
  // The version of the fold that is placed at the node.
  SlotVersion At(const NodeKey& key) const {
    for (const auto& [fold, placed] : reduction_.placed) {
      if (fold.first == key) return fold.second;
    }
    return SlotVersion();
  }
  bool IsIn(int source) const { return reduction_.plan.Placed(Source(source)); }
  void Computed(const NodeKey& key, uint64_t bytes) {
    reduction_.placed.at({key, At(key)}).watermark = bytes;
  }
  // The node reports of its first input, from the node before it in the chain.
  void Report(const NodeKey& key, v1::InputPace m) {
    const NodeKey from{key.node - 1, 1};
    ToProto(from, m.mutable_sender());
    node(key).last_heard = context_.now;
    PHALANX_EXPECT_OK(
        paces_.OnPace(reduction_, node(key), reduction_.placed.at({key, At(key)}), At(key), m));
    Run();
  }
  void Rate(const NodeKey& key, double rate, uint64_t bytes) {
    v1::InputPace m;
    m.set_watermark(bytes);
    m.set_bytes_per_second(rate);
    m.set_window_ns(40'000'000);
    Report(key, m);
  }
  void Silent(const NodeKey& key, absl::Duration silent, uint64_t bytes, double before = kFast) {
    v1::InputPace m;
    m.set_watermark(bytes);
    m.set_bytes_per_second(before);
    m.set_silent_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(silent)));
    Report(key, m);
  }
  // The second report of a silence that began now.
  void FallSilent(const NodeKey& key, uint64_t bytes, double before = kFast) {
    Advance(absl::Milliseconds(30));
    Silent(key, absl::Milliseconds(30), bytes, before);
    Advance(absl::Milliseconds(20));
    Silent(key, absl::Milliseconds(50), bytes, before);
  }
  void Pass(absl::Duration time) {
    Advance(time);
    for (const NodeKey& key : {kB, kC}) {
      if (At(key).valid()) paces_.OnTimer(reduction_, {key, At(key)});
    }
    Run();
  }

  Reduction& reduction_ = Begin(ThreeOf(Sources(5)));
  FoldPaces paces_{parts_, catalog_, watcher_};
};

TEST_F(FoldPacesTest, ALeafWithALowRateGivesWay) {
  Rate(kB, kFast / 10, kSize / 32);
  EXPECT_FALSE(IsIn(0));
  EXPECT_TRUE(IsIn(3));
}

TEST_F(FoldPacesTest, AReceiverThatTakesLessThanItsSenderHasGivesWay) {
  Computed(kB, kSize / 4);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_TRUE(IsIn(1)) << "node b receives more than it can hand on";
  EXPECT_FALSE(IsIn(2));
}

TEST_F(FoldPacesTest, ASenderThatHasNoMoreIsNotSlow) {
  Computed(kB, kSize / 32);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_TRUE(IsIn(1) && IsIn(2));
  Computed(kB, kSize / 4);
  Pass(absl::Milliseconds(20));
  EXPECT_FALSE(IsIn(2)) << "what the sender has is heard of later";
}

TEST_F(FoldPacesTest, OnlyAFoldThatWaitsForALookIsDue) {
  Computed(kB, kSize / 32);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_TRUE(reduction_.TakeDue(context_.now).empty());
  const auto due = reduction_.TakeDue(context_.now + absl::Milliseconds(20));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].first, kC);
  Rate(kC, kFast / 10, kSize / 32);
  reduction_.placed.at({kC, At(kC)}) = Reduction::Placed();
  EXPECT_TRUE(reduction_.TakeDue(context_.now + absl::Seconds(1)).empty()) << "it is placed anew";
  EXPECT_TRUE(reduction_.looks.empty());
}

TEST_F(FoldPacesTest, ALowRateThatHasRisenIsNotJudged) {
  Computed(kB, kSize / 32);
  Rate(kC, kFast / 10, kSize / 32);
  Rate(kC, kFast, kSize / 16);
  Computed(kB, kSize / 2);
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(IsIn(1) && IsIn(2));
}

TEST_F(FoldPacesTest, AReceiverWhoseOwnSourceIsStillReceivedIsNotSlow) {
  Object& source = *table_.Find(Source(2));
  table_.SetCopyState(source, source.copies.at(kC), CopyState::kReceiving);
  Computed(kB, kSize / 4);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_TRUE(IsIn(1) && IsIn(2));
  EXPECT_TRUE(reduction_.slow_nodes.empty());
}

TEST_F(FoldPacesTest, WhatTwoSlowLinksHaveInCommonIsSlow) {
  Rate(kB, kFast / 10, kSize / 32);
  ASSERT_FALSE(IsIn(0)) << "node a is suspected";
  const SlotVersion above = At(kC);
  v1::InputPace m;
  ToProto(kB, m.mutable_sender());
  m.set_watermark(kSize / 32);
  m.set_bytes_per_second(kFast / 10);
  m.set_window_ns(40'000'000);
  PHALANX_EXPECT_OK(
      paces_.OnPace(reduction_, node(kC), reduction_.placed.at({kC, above}), above, m));
  EXPECT_TRUE(IsIn(0)) << "node b is slow with both";
  EXPECT_FALSE(IsIn(1));
}

TEST_F(FoldPacesTest, ASuspectWhosePeerDoesWellWithAnotherNodeIsSlowForLaterTransfers) {
  Rate(kB, kFast / 10, kSize / 32);
  ASSERT_FALSE(IsIn(0)) << "node a is suspected";
  EXPECT_FALSE(links_.SlowNode(node(kA).endpoint, context_.now).has_value());
  Rate(kC, kFast, kSize / 4);
  EXPECT_TRUE(links_.SlowNode(node(kA).endpoint, context_.now).has_value());
  EXPECT_FALSE(links_.SlowNode(node(kB).endpoint, context_.now).has_value());
}

TEST_F(FoldPacesTest, AProvenNodeIsNotAcquittedWhenItsPeerBecomesSlow) {
  Rate(kB, kFast / 10, kSize / 32);
  Rate(kC, kFast, kSize / 4);
  ASSERT_TRUE(links_.SlowNode(node(kA).endpoint, context_.now).has_value());
  Computed(kB, kSize / 2);
  Rate(kC, kFast / 10, kSize / 4);
  EXPECT_TRUE(reduction_.slow_nodes.contains(kA));
  EXPECT_FALSE(IsIn(0));
}

// The link from b to c crosses a boundary, on which neither end need be the limit.
TEST_F(FoldPacesTest, ALowRateThatCannotBeJudgedProvesNothing) {
  Rate(kB, kFast / 10, kSize / 32);
  ASSERT_FALSE(IsIn(0)) << "node a is suspected";
  node(kB).endpoint.locality.zone = 1;
  node(kC).endpoint.locality.zone = 2;
  Rate(kC, kFast / 10, kSize / 4);
  EXPECT_FALSE(links_.SlowNode(node(kA).endpoint, context_.now).has_value()) << "not convicted";
  reduction_.slow_nodes[kB] = {.speed = 0.1, .silent = false, .with = kD};
  Rate(kC, 0, kSize / 4);
  EXPECT_TRUE(reduction_.slow_nodes.contains(kB)) << "not acquitted";
}

TEST_F(FoldPacesTest, ANodeThatDoesWellAgainIsNotSlow) {
  reduction_.slow_nodes[kA] = {.speed = 0.1, .silent = false, .with = kB};
  Rate(kB, kFast, kSize / 4);
  EXPECT_TRUE(reduction_.slow_nodes.empty());
}

TEST_F(FoldPacesTest, ARateThatIsOnlyWhatTheResultNeedsMovesNothing) {
  Rate(kB, kFast / 10, kSize - kSize / 32);
  EXPECT_TRUE(IsIn(0)) << "the rest is there sooner than all of it again";
}

TEST_F(FoldPacesTest, WhatOneInputHasIsNoProgressOfTheOthers) {
  Rate(kB, kFast / 10, kSize - kSize / 32);
  ASSERT_TRUE(IsIn(0)) << "the rest is there soon";
  Computed(kB, kSize / 4);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_FALSE(IsIn(1)) << "this input needs long";
}

TEST_F(FoldPacesTest, ASlowNodesOtherSourceDoesNotTakeTheSeat) {
  reduction_.slow_nodes[kD] = {.speed = 0.3, .silent = false, .with = NodeKey()};
  Changed(Source(3));
  Put(kA, Source(4), kSize);
  Changed(Source(4));
  Rate(kB, kFast / 10, kSize / 32);
  EXPECT_FALSE(IsIn(4)) << "it is on the slow node, too";
  EXPECT_TRUE(IsIn(0)) << "no fast source waits";
}

TEST_F(FoldPacesTest, WhatTheReceiverHasComputedHasArrived) {
  Computed(kB, kSize / 4);
  Computed(kC, kSize / 4);
  Rate(kC, kFast / 10, kSize / 32);
  EXPECT_TRUE(IsIn(1) && IsIn(2));
}

TEST_F(FoldPacesTest, AReductionWithoutFoldsHereSharesNoLink) {
  for (const bool folds : {true, false}) {
    Reduction& other = *catalog_.Begin(IdOf("other"), ThreeOf(Sources(4)), {}, {});
    watcher_.Watch(other, Sources(4));
    if (folds) other.placed[{kA, SlotVersion()}] = {};
    Rate(kB, kFast / 5, kSize / 32);
    EXPECT_EQ(IsIn(0), folds) << "two transfers would have 0.4 of the rate";
    Erase(other);
  }
}

// Half is done: starting over costs another half, so three quarters are waited for.
TEST_F(FoldPacesTest, ASilenceIsGivenUpWhenItHasCostAsMuchAsStartingOver) {
  FallSilent(kB, kSize / 2);
  const absl::Duration due = absl::Seconds(0.75 * kSize / kFast);
  Pass(due - absl::Milliseconds(60));
  EXPECT_TRUE(IsIn(0));
  Pass(absl::Milliseconds(12));
  EXPECT_FALSE(IsIn(0));
  EXPECT_TRUE(IsIn(3));
}

TEST_F(FoldPacesTest, ASilenceThatEndsIsForgotten) {
  for (const bool defect : {false, true}) {
    std::optional<ScopedDefect> on;
    if (defect) on.emplace(Defect::kSilenceNotForgotten);
    FallSilent(kB, kSize / 2);
    Report(kB, v1::InputPace());
    Pass(absl::Seconds(1));
    EXPECT_EQ(IsIn(0), !defect);
  }
}

TEST_F(FoldPacesTest, ASenderThatRunsIsNotGivenUp) {
  for (const bool defect : {false, true}) {
    std::optional<ScopedDefect> on;
    if (defect) on.emplace(Defect::kWaitingSenderBlamed);
    FallSilent(kB, kSize / 2);
    node(kA).last_heard = context_.now;
    Pass(absl::Seconds(1));
    EXPECT_EQ(IsIn(0), !defect);
  }
}

TEST_F(FoldPacesTest, ASilenceIsThatOfTheSenderThatFellSilent) {
  table_.AddCopy(*table_.Find(Source(0)), node(kD));
  table_.CompleteCopy(*table_.Find(Source(0)), kD, CopyState::kComplete);
  Changed(Source(0));
  FallSilent(kB, kSize / 2);
  reduction_.plan.OnNodeDown(kA);
  Run();
  ASSERT_TRUE(IsIn(0)) << "node d computes the leaf now";
  Pass(absl::Seconds(1));
  EXPECT_TRUE(reduction_.slow_nodes.empty());
}

TEST_F(FoldPacesTest, ASenderThatHasNotDeliveredYetIsNotGivenUp) {
  FallSilent(kB, 0, /*before=*/0);
  Pass(absl::Seconds(10));
  EXPECT_TRUE(IsIn(0));
}

TEST_F(FoldPacesTest, NothingIsJudgedAfterTheCommit) {
  FallSilent(kB, kSize / 2);
  reduction_.plan.OnReady(kC, At(kC));
  ASSERT_TRUE(reduction_.committed());
  Advance(absl::Seconds(1));
  EXPECT_EQ(paces_.OnTimer(reduction_, {kB, At(kB)}), Instant::Infinite());
  Rate(kB, kFast / 10, kSize / 32);
  EXPECT_TRUE(IsIn(0));
  EXPECT_TRUE(reduction_.slow_nodes.empty());
  EXPECT_FALSE(links_.SlowNode(node(kA).endpoint, context_.now).has_value());
}

TEST_F(FoldPacesTest, AJudgedTroubleIsNotJudgedAgain) {
  FallSilent(kB, kSize / 2);
  node(kA).last_heard = context_.now;
  Pass(absl::Seconds(1));
  EXPECT_EQ(paces_.OnTimer(reduction_, {kB, At(kB)}), Instant::Infinite());
}

TEST_F(FoldPacesTest, AFoldKeepsTheConnectionOfItsNodes) {
  const Endpoint& a = node(kA).endpoint;
  const Endpoint& b = node(kB).endpoint;
  for (int i = 0; i < 3; ++i) links_.RecordLatency(a, b, absl::Milliseconds(100), context_.now);
  Advance(absl::Seconds(270));
  EXPECT_GT(links_.ColdStart(a, b, context_.now), absl::ZeroDuration()) << "idle for too long";
  Rate(kB, kFast, kSize / 4);
  EXPECT_EQ(links_.ColdStart(a, b, context_.now), absl::ZeroDuration());
}

TEST_F(FoldPacesTest, ASenderThatIsNoNodeIsAnError) {
  EXPECT_THAT(paces_.OnPace(reduction_, node(kB), reduction_.placed.at({kB, At(kB)}), At(kB),
                            v1::InputPace()),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(FoldPacesTest, AReportOfAnInputThatHasMovedIsIgnored) {
  v1::InputPace m;
  ToProto(kD, m.mutable_sender());
  for (const uint32_t input : {0u, 7u}) {
    m.set_input(input);
    m.set_bytes_per_second(1);
    m.set_window_ns(40'000'000);
    PHALANX_EXPECT_OK(
        paces_.OnPace(reduction_, node(kB), reduction_.placed.at({kB, At(kB)}), At(kB), m));
    EXPECT_TRUE(IsIn(0));
  }
}

}  // namespace
}  // namespace phalanx::directory
