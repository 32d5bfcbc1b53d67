// The shapes that broadcasts take, seen through the core: what is measured decides, or an
// assumption before anything is measured.
#include "src/directory/pulls/pull_planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;
using testing::Labels;

constexpr uint64_t kMiB = 1 << 20;
const ObjectId x = Id("x");

std::vector<NodeKey> UpMany(Harness& h, int count, const std::string& prefix,
                            const Labels& labels = {}) {
  std::vector<NodeKey> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(h.Up(prefix + std::to_string(i), labels));
  return nodes;
}

// Lets the shard see what a link carries: a whole pull over it, reported as such.
void Measure(Harness& h, const NodeKey& from, const NodeKey& to, double rate,
             absl::Duration latency, int times = 1) {
  static int next = 0;
  for (int i = 0; i < times; ++i) {
    const ObjectId probe = Id("probe" + std::to_string(next++));
    h.Create(from, probe, {.size = kMiB, .complete = true});
    h.Want(to, probe);
    v1::PullReport report = h.ReportOf(to, probe, true);
    report.set_bytes_received(kMiB);
    report.set_bytes_per_second(rate);
    report.set_first_byte_ns(absl::ToInt64Nanoseconds(latency));
    h.Report(to, report);
    h.Delete(from, probe);
  }
}

// The node reports twice that its link has been silent, at last for so long.
void ReportSilence(Harness& h, const NodeKey& node, absl::Duration silence) {
  for (const absl::Duration silent : {silence / 2, silence}) {
    const v1::PullReport report = h.ReportOf(node, x, false);
    v1::NodeMessage message;
    v1::Progress::Pull& pull = *message.mutable_progress()->add_pulls();
    pull.set_object_id(report.object_id());
    *pull.mutable_generation() = report.generation();
    pull.set_plan_id(report.plan_id());
    pull.add_watermarks(kMiB);
    pull.set_window_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(silent)));
    pull.set_silent_ns(pull.window_ns());
    ASSERT_TRUE(h.Send(node, message).ok());
  }
}

std::map<NodeKey, int> Receivers(Harness& h, const std::vector<NodeKey>& nodes) {
  std::map<NodeKey, int> receivers;
  for (const NodeKey& node : nodes) ++receivers[h.SenderOf(node, x)];
  return receivers;
}

int Depth(Harness& h, NodeKey node) {
  int depth = 0;
  while (h.SenderOf(node, x).valid()) {
    node = h.SenderOf(node, x);
    ++depth;
  }
  return depth;
}

int Deepest(Harness& h, const std::vector<NodeKey>& nodes) {
  int deepest = 0;
  for (const NodeKey& node : nodes) deepest = std::max(deepest, Depth(h, node));
  return deepest;
}

TEST(BroadcastPlannerTest, WithNothingMeasuredALargeObjectIsAChain) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 20, "r");
  h.Create(a, x, {.size = 64 * kMiB, .complete = true});
  for (const NodeKey& node : r) h.Want(node, x);
  EXPECT_EQ(Depth(h, r.back()), 20);
}

TEST(BroadcastPlannerTest, WithNothingMeasuredASmallObjectForManyIsATree) {
  for (const bool waiting : {true, false}) {
    Harness h;
    const NodeKey a = h.Up("a");
    const auto r = UpMany(h, 200, "r");
    if (!waiting) h.Create(a, x, {.size = kMiB, .complete = true});
    for (const NodeKey& node : r) h.Want(node, x);
    if (waiting) h.Create(a, x, {.size = kMiB, .complete = true});
    // Receivers that are not expected begin with a chain.
    EXPECT_LE(Deepest(h, r), waiting ? 8 : 30);
    for (const auto& [sender, receivers] : Receivers(h, r)) EXPECT_LE(receivers, 3);
  }
}

// Two receivers of one sender: neither has the link to itself, and together they get 10 MB/s.
TEST(BroadcastPlannerTest, SharesOfALinkCorrectTheAssumedRate) {
  const auto deepest = [](bool slow) {
    Harness h;
    const NodeKey a = h.Up("a");
    const auto r = UpMany(h, 20, "r");
    if (slow) {
      h.Create(a, Id("one"), {.size = kMiB, .complete = true});
      h.Create(a, Id("two"), {.size = kMiB, .complete = true});
      h.Want(r[0], Id("one"));
      h.Want(r[1], Id("two"));
      for (int i = 0; i < 2; ++i) {
        v1::PullReport report = h.ReportOf(r[i], Id(i == 0 ? "one" : "two"), true);
        report.set_bytes_received(kMiB);
        report.set_bytes_per_second(5e6);
        h.Report(r[i], report);
      }
    }
    for (const NodeKey& node : r) h.Want(node, x);
    h.Create(a, x, {.size = kMiB, .complete = true});
    return Deepest(h, r);
  };
  EXPECT_LT(deepest(false), 20);
  EXPECT_EQ(deepest(true), 20) << "on slower links a chain is better";
}

TEST(BroadcastPlannerTest, ALargeObjectIsAChainAlsoWhenLinksAreMeasured) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 20, "r");
  Measure(h, a, r[0], 1e9, absl::Microseconds(500));
  h.Create(a, x, {.size = 1024 * kMiB, .complete = true});
  for (const NodeKey& node : r) h.Want(node, x);
  for (const auto& [sender, receivers] : Receivers(h, r)) EXPECT_EQ(receivers, 1);
}

TEST(BroadcastPlannerTest, ASmallObjectOverSlowHopsGoesToSeveralAtOnce) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 30, "r");
  Measure(h, a, r[0], 1e9, absl::Milliseconds(1));
  h.Create(a, x, {.size = 100'000, .complete = true});  // 0.1 ms on the link, 1 ms a hop
  for (const NodeKey& node : r) h.Want(node, x);
  EXPECT_LE(Deepest(h, r), 3);
  EXPECT_GT(Receivers(h, r)[a], 5);
}

TEST(BroadcastPlannerTest, InBetweenTheTreeIsNeitherChainNorStar) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 100, "r");
  Measure(h, a, r[0], 1e9, absl::Milliseconds(1));
  h.Create(a, x, {.size = 4'000'000, .complete = true});  // 4 ms on the link, 1 ms a hop
  for (const NodeKey& node : r) h.Want(node, x);
  EXPECT_LT(Deepest(h, r), 20);
  EXPECT_LT(Receivers(h, r)[a], 10);
}

// Every receiver asks before the object is there, so that the planner knows of all of them.
TEST(BroadcastPlannerTest, TheNextReceiverDoesNotCountAsASender) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 4, "r");
  Measure(h, a, r[0], 1e9, absl::Milliseconds(1));
  for (const NodeKey& node : r) h.Want(node, x);
  h.Create(a, x, {.size = 500'000, .complete = true});  // 0.5 ms on the link, 0.5 ms a hop
  // Four below one source call for two receivers each; two below each of two for a chain.
  EXPECT_EQ(h.SenderOf(r[0], x), a);
  EXPECT_EQ(h.SenderOf(r[1], x), a);
  EXPECT_EQ(Receivers(h, r)[a], 2);
}

// The link of `slow` is a tenth of the others'.
class SlowNodeAsks : public ::testing::Test {
 protected:
  SlowNodeAsks() {
    Measure(h_, a_, fast_[0], 1e8, absl::Microseconds(50));
    Measure(h_, fast_[0], fast_[1], 1e8, absl::Microseconds(50));
    for (int i = 0; i < 3; ++i) Measure(h_, a_, slow_, 1e7, absl::Microseconds(50));
    h_.Create(a_, x, {.size = 32 * kMiB, .complete = true});
  }

  Harness h_;
  const NodeKey a_ = h_.Up("a");
  const NodeKey slow_ = h_.Up("slow");
  const std::vector<NodeKey> fast_ = UpMany(h_, 3, "fast");
};

TEST_F(SlowNodeAsks, FastOnesThatAskAtTheSameTimeAreServedFirst) {
  h_.Want(slow_, x);
  EXPECT_FALSE(h_.SenderOf(slow_, x).valid());
  h_.Advance(absl::Milliseconds(5));
  for (const NodeKey& node : fast_) h_.Want(node, x);
  EXPECT_EQ(h_.SenderOf(fast_[0], x), a_);
  h_.Advance(absl::Milliseconds(20));
  EXPECT_EQ(Depth(h_, slow_), 4) << "below all of them";
}

TEST_F(SlowNodeAsks, AloneItIsServedAMomentLater) {
  h_.Want(slow_, x);
  EXPECT_FALSE(h_.SenderOf(slow_, x).valid());
  h_.Advance(absl::Milliseconds(21));
  EXPECT_EQ(h_.SenderOf(slow_, x), a_);
}

TEST_F(SlowNodeAsks, ADeleteAnswersItMeanwhile) {
  h_.Want(slow_, x);
  h_.Delete(a_, x);
  EXPECT_EQ(h_.LastGone(slow_), v1::Gone::DELETED);
  h_.Advance(absl::Milliseconds(21));
  EXPECT_FALSE(h_.SenderOf(slow_, x).valid());
}

TEST_F(SlowNodeAsks, OnceTheTimeHasPassedItDoesNotWaitAgain) {
  h_.Want(slow_, x);
  h_.Advance(absl::Milliseconds(21));
  h_.Want(fast_[0], x);
  h_.Finish(fast_[0], x);
  h_.Fail(slow_, x);
  EXPECT_TRUE(h_.SenderOf(slow_, x).valid());
}

TEST(BroadcastPlannerTest, AReceiverThatCannotBeServedNowDoesNotCount) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 2, "r");
  const auto full = UpMany(h, 10, "full");
  const auto away = UpMany(h, 10, "away");
  Measure(h, a, r[0], 1e9, absl::Milliseconds(2));
  const Generation g = h.NewGeneration(a);
  h.Announce(a, x, g, {.size = 4'000'000, .complete = true});  // 4 ms on the link, 1 ms a hop
  for (const NodeKey& node : full) h.WantWithoutRoom(node, x, g);
  for (const NodeKey& node : away) {
    h.Connected(node, false);
    h.Want(node, x);
  }
  for (const NodeKey& node : r) h.Want(node, x);
  EXPECT_EQ(h.SenderOf(r[0], x), a);
  EXPECT_EQ(h.SenderOf(r[1], x), r[0]) << "two receivers are a chain, whoever else waits";
}

class TwoZones : public ::testing::TestWithParam<bool> {
 protected:
  TwoZones() {
    for (int i = 0; i < 4; ++i) {
      a_.push_back(h_.Up("a" + std::to_string(i), {{"zone", "a"}}));
      b_.push_back(h_.Up("b" + std::to_string(i), {{"zone", "b"}}));
    }
    if (GetParam()) {
      Measure(h_, a_[0], a_[1], 1e9, absl::Microseconds(100), 3);
      Measure(h_, b_[0], b_[1], 1e9, absl::Microseconds(100), 3);
      Measure(h_, a_[0], b_[0], 1e7, absl::Milliseconds(5), 3);
      Measure(h_, b_[0], a_[0], 1e7, absl::Milliseconds(5), 3);
    }
  }
  bool InA(const NodeKey& node) const { return std::count(a_.begin(), a_.end(), node) != 0; }
  int Crossings() {
    int crossings = 0;
    for (const auto& zone : {a_, b_}) {
      for (const NodeKey& node : zone) {
        const NodeKey sender = h_.SenderOf(node, x);
        if (sender.valid() && InA(sender) != InA(node)) ++crossings;
      }
    }
    return crossings;
  }

  Harness h_;
  std::vector<NodeKey> a_;
  std::vector<NodeKey> b_;
};

TEST_P(TwoZones, ASlowLinkBetweenThemIsCrossedOnce) {
  h_.Create(a_[0], x, {.size = 64 * kMiB, .complete = true});
  // In turns, beginning on the other side.
  for (int i = 0; i < 4; ++i) {
    h_.Want(b_[i], x);
    if (i > 0) h_.Want(a_[i], x);
  }
  EXPECT_EQ(Crossings(), 1);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(InA(h_.SenderOf(a_[i], x)));
}

TEST_P(TwoZones, AnEdgeAcrossDoesNotTakeTheSendersPlaceInside) {
  h_.Create(a_[0], x, {.size = 64 * kMiB, .complete = true});
  h_.Want(b_[0], x);
  h_.Want(a_[1], x);
  EXPECT_EQ(h_.SenderOf(b_[0], x), a_[0]);
  EXPECT_EQ(h_.SenderOf(a_[1], x), a_[0]);
}

TEST_P(TwoZones, ALostCrossingIsReplacedByOneCrossing) {
  h_.Create(a_[0], x, {.size = 64 * kMiB, .complete = true});
  for (int i = 0; i < 4; ++i) h_.Want(b_[i], x);
  h_.Down(b_[0]);
  b_.erase(b_.begin());
  EXPECT_EQ(Crossings(), 1);
}

INSTANTIATE_TEST_SUITE_P(UnmeasuredAndMeasured, TwoZones, ::testing::Bool());

// A connection to another region has gaps of a round trip at first, and a new one has them again.
TEST(BroadcastPlannerTest, ASilentSenderIsLeftAtOnceUnlessItIsInAnotherZone) {
  for (const bool far : {false, true}) {
    SCOPED_TRACE(far);
    Harness h;
    const auto a = UpMany(h, 2, "a", {{"zone", "a"}});
    const NodeKey b = h.Up("b", {{"zone", far ? "b" : "a"}});
    h.Create(a[0], x, {.size = 64 * kMiB, .complete = true});
    h.Want(a[1], x);
    h.Finish(a[1], x);
    h.Want(b, x);
    const NodeKey sender = h.SenderOf(b, x);
    ReportSilence(h, b, absl::Milliseconds(80));
    EXPECT_EQ(h.SenderOf(b, x) == sender, far);
  }
}

TEST(BroadcastPlannerTest, AFarObjectComesOverAConnectionThatExists) {
  for (const int warm : {0, 1, 2}) {
    Harness h;
    const auto a = UpMany(h, 3, "a", {{"zone", "a"}});
    const NodeKey b = h.Up("b", {{"zone", "b"}});
    Measure(h, a[0], a[1], 1e8, absl::Milliseconds(1));
    Measure(h, a[warm], b, 1e8, absl::Milliseconds(145), 3);
    h.Create(a[0], x, {.size = 256 * kMiB, .complete = true});
    for (int i : {1, 2}) {
      h.Want(a[i], x);
      h.Finish(a[i], x);
    }
    h.Want(b, x);
    EXPECT_EQ(h.SenderOf(b, x), a[warm]) << warm;
  }
}

// a -> b -> c -> d: the two far links have gaps of three round trips each.
TEST(BroadcastPlannerTest, TheGapsOfTwoFarLinksAddUp) {
  for (const absl::Duration silence : {absl::Milliseconds(500), absl::Milliseconds(700)}) {
    Harness h;
    const NodeKey a = h.Up("a", {{"zone", "a"}});
    const NodeKey b = h.Up("b", {{"zone", "b"}});
    const auto c = UpMany(h, 2, "c", {{"zone", "c"}});
    Measure(h, a, b, 1e7, absl::Milliseconds(100));
    Measure(h, b, c[0], 1e7, absl::Milliseconds(100));
    h.Create(a, x, {.size = 64 * kMiB, .complete = true});
    for (const NodeKey& node : {b, c[0], c[1]}) h.Want(node, x);
    if (h.SenderOf(c[0], x) == a) h.Fail(c[0], x);
    ASSERT_EQ(h.SenderOf(c[0], x), b);
    ASSERT_EQ(h.SenderOf(c[1], x), c[0]);
    ReportSilence(h, c[1], silence);
    EXPECT_EQ(h.SenderOf(c[1], x) == c[0], silence < absl::Milliseconds(625)) << silence;
  }
}

TEST(BroadcastPlannerTest, ZonesWithAFastLinkBetweenThemAreOne) {
  Harness h;
  const auto a = UpMany(h, 2, "a", {{"zone", "a"}});
  const auto b = UpMany(h, 2, "b", {{"zone", "b"}});
  Measure(h, a[0], a[1], 1e9, absl::Microseconds(100), 3);
  Measure(h, a[0], b[0], 1e9, absl::Microseconds(100), 3);
  h.Create(a[0], x, {.size = 1024 * kMiB, .complete = true});
  h.Want(b[0], x);
  h.Want(a[1], x);
  EXPECT_EQ(h.SenderOf(a[1], x), b[0]) << "one receiver at a time, wherever it stands";
}

TEST(BroadcastPlannerTest, ALinkThatSlowedTenfoldIsNotPlannedOn) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  const auto next = [&h, &a, &b, &r](const std::string& name) {
    const ObjectId id = Id(name);
    h.Create(a, id, {.size = 64 * kMiB, .complete = true});
    h.Want(b, id);
    h.Finish(b, id);
    h.Want(r, id);
    return h.SenderOf(r, id);
  };
  Measure(h, a, r, 1e9, absl::Microseconds(100), 3);
  Measure(h, b, r, 5e8, absl::Microseconds(100), 3);
  EXPECT_EQ(next("before"), a);
  Measure(h, a, r, 1e8, absl::Microseconds(100), 4);
  EXPECT_EQ(next("after"), b);
}

TEST(BroadcastPlannerTest, ALinkThatSlowsDownDuringAPullIsNoticedByProgress) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  Measure(h, a, r, 1e9, absl::Microseconds(100), 3);
  Measure(h, b, r, 5e8, absl::Microseconds(100), 3);
  const ObjectId big = Id("big");
  h.Create(a, big, {.size = 1024 * kMiB, .complete = true});
  h.Want(r, big);
  ASSERT_EQ(h.SenderOf(r, big), a);
  for (uint64_t i = 1; i <= 6; ++i) {
    h.Advance(absl::Milliseconds(250));
    h.Progress(r, big, i * 25'000'000, 1e8);
  }
  h.Create(a, x, {.size = 64 * kMiB, .complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Want(r, x);
  EXPECT_EQ(h.SenderOf(r, x), b);
}

// a -> relay -> c. The relay gets a gigabyte a second and passes on a tenth.
TEST(BroadcastPlannerTest, ARelayThatDeliversLittleLosesItsReceiversAndBecomesALeaf) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey relay = h.Up("relay");
  const auto r = UpMany(h, 2, "r");
  // Without a measurement the relay would be moved on trial.
  for (const NodeKey& node : UpMany(h, 2, "o")) Measure(h, a, node, 1e9, absl::Microseconds(100));
  h.Create(a, x, {.size = 4096 * kMiB, .complete = true});
  h.Want(relay, x);
  h.Want(r[0], x);
  ASSERT_EQ(h.SenderOf(r[0], x), relay);
  for (uint64_t i = 1; i <= 6; ++i) {
    const bool moved = h.SenderOf(r[0], x) == a;
    EXPECT_EQ(moved, i > 2) << "two reports in a row are enough";
    h.Advance(absl::Milliseconds(250));
    h.Progress(relay, x, i * 250'000'000, moved ? 5e8 : 1e9);
    h.Progress(r[0], x, i * 25'000'000, moved ? 5e8 : 1e8);
  }
  EXPECT_EQ(h.SenderOf(r[0], x), a) << "taken from the relay";
  h.Want(r[1], x);
  EXPECT_NE(h.SenderOf(r[1], x), relay) << "nobody else is given to it";
}

// a -> slow -> c: whoever sends to `slow`, it gets little.
TEST(BroadcastPlannerTest, AReceiverThatIsSlowItselfIsPassedByInTheEnd) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey fast = h.Up("fast");
  const NodeKey slow = h.Up("slow");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.size = 4096 * kMiB, .complete = true});
  h.Want(fast, x);
  h.Want(slow, x);
  h.Want(c, x);
  ASSERT_EQ(h.SenderOf(slow, x), fast);
  ASSERT_EQ(h.SenderOf(c, x), slow);
  for (uint64_t i = 1; i <= 8; ++i) {
    h.Advance(absl::Milliseconds(250));
    h.Progress(fast, x, i * 125'000'000, 1e9);
    h.Progress(slow, x, i * 2'500'000, 1e7);
  }
  EXPECT_NE(h.SenderOf(c, x), slow);
  EXPECT_NE(h.SenderOf(c, x), NodeKey());
}

// a -> b -> slow -> c -> d: the link of `slow` falls, and c, which sees that as well, reports
// first.
class ALinkFalls : public ::testing::Test {
 protected:
  ALinkFalls() {
    for (const NodeKey& node : UpMany(h_, 4, "o")) Measure(h_, a_, node, kFast, kLatency);
    for (const NodeKey& node : {b_, slow_, c_, d_}) Measure(h_, a_, node, kFast, kLatency);
    h_.Create(a_, x, {.size = 32 * kMiB, .complete = true});
    for (const NodeKey& node : {b_, slow_, c_, d_}) h_.Want(node, x);
    h_.Advance(absl::Milliseconds(250));
    for (const NodeKey& node : {b_, slow_, c_, d_}) h_.Progress(node, x, 16 * kMiB, kFast);
    h_.Advance(absl::Milliseconds(40));
  }
  // The reports of 40 ms.
  void Fall(double rate_of_c) {
    const auto report = [this](const NodeKey& node, uint64_t bytes, double rate) {
      h_.Progress(node, x, bytes, rate, absl::ZeroDuration(), absl::Milliseconds(40));
    };
    report(b_, 20 * kMiB, kFast);
    report(c_, 16 * kMiB + 100'000, rate_of_c);
    EXPECT_EQ(h_.SenderOf(d_, x), slow_) << "c seems to be the slow one";
    h_.Advance(absl::Milliseconds(1));
    report(slow_, 16 * kMiB + 100'000, 6e6);
  }

  static constexpr double kFast = 1e8;
  static constexpr absl::Duration kLatency = absl::Microseconds(50);
  Harness h_;
  const NodeKey a_ = h_.Up("a");
  const NodeKey b_ = h_.Up("b");
  const NodeKey slow_ = h_.Up("slow");
  const NodeKey c_ = h_.Up("c");
  const NodeKey d_ = h_.Up("d");
};

TEST_F(ALinkFalls, TheReceiverBelowIsNotTakenForTheSlowOne) {
  Fall(/*rate_of_c=*/6e6);
  EXPECT_EQ(h_.SenderOf(c_, x), b_);
  EXPECT_EQ(h_.SenderOf(d_, x), c_) << "only one of the two uses the link of b";
}

TEST_F(ALinkFalls, AReceiverBelowThatGetsLessIsSlowItself) {
  Fall(/*rate_of_c=*/1e6);
  EXPECT_EQ(h_.SenderOf(d_, x), b_);
}

// A first transfer was slow, so the relay was expected to take 10 s. It reports that it takes 2.5.
TEST(BroadcastPlannerTest, ARelayThatIsFasterThanWasExpectedIsNotPassedBy) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  Measure(h, a, b, 5e6, absl::Milliseconds(1));
  h.Create(a, x, {.size = 50'000'000, .complete = true});
  h.Want(b, x);
  for (uint64_t i = 1; i <= 3; ++i) {
    h.Advance(absl::Milliseconds(250));
    h.Progress(b, x, i * 5'000'000, 20e6, absl::ZeroDuration());
  }
  h.Want(c, x);
  EXPECT_EQ(h.SenderOf(c, x), b);
}

// Links between other nodes are faster. That a's is narrow, and not that of b, shows only
// when b and c share it.
TEST(BroadcastPlannerTest, AReceiverThatSharesANarrowLinkIsMovedBelowTheOneThatIsAhead) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  Measure(h, a, b, 20e6, absl::Milliseconds(1));
  const auto o = UpMany(h, 6, "o");
  for (int i = 1; i < 6; ++i) Measure(h, o[0], o[i], 70e6, absl::Milliseconds(1));
  h.Create(a, x, {.size = 50'000'000, .complete = true});
  h.Want(b, x);
  for (uint64_t i = 1; i <= 3; ++i) {
    h.Advance(absl::Milliseconds(250));
    h.Progress(b, x, i * 5'000'000, 20e6, absl::ZeroDuration());
  }
  h.Want(c, x);
  EXPECT_EQ(h.SenderOf(c, x), a);
  h.Advance(absl::Milliseconds(250));
  h.Progress(b, x, 17'500'000, 10e6, absl::ZeroDuration());
  h.Progress(c, x, 2'500'000, 10e6, absl::ZeroDuration());
  EXPECT_EQ(h.SenderOf(c, x), b);
  // It stays there.
  h.Advance(absl::Milliseconds(250));
  h.Progress(b, x, 22'500'000, 20e6, absl::ZeroDuration());
  h.Progress(c, x, 17'500'000, 60e6, absl::Milliseconds(1));
  EXPECT_EQ(h.SenderOf(c, x), b);
}

TEST(BroadcastPlannerTest, ReceiversThatAreLevelStayAtTheirSender) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  Measure(h, a, b, 20e6, absl::Milliseconds(1));
  const auto o = UpMany(h, 6, "o");
  for (int i = 1; i < 6; ++i) Measure(h, o[0], o[i], 70e6, absl::Milliseconds(1));
  h.Create(a, x, {.size = 50'000'000, .complete = true});
  h.Want(b, x);
  h.Advance(absl::Milliseconds(750));
  h.Progress(b, x, 5'000'000, 20e6, absl::ZeroDuration());
  h.Want(c, x);
  ASSERT_EQ(h.SenderOf(c, x), a);
  // c is nearly as far as b: the move would gain little.
  h.Advance(absl::Milliseconds(250));
  h.Progress(b, x, 7'500'000, 10e6, absl::ZeroDuration());
  h.Progress(c, x, 5'000'000, 10e6, absl::ZeroDuration());
  EXPECT_EQ(h.SenderOf(c, x), a);
}

TEST(BroadcastPlannerTest, AHealthyPullIsNotMovedWhenABetterSenderIsFree) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 3, "r");
  // Without a measurement a pull would be moved on trial.
  for (const NodeKey& node : r) Measure(h, a, node, 4e8, absl::Microseconds(100));
  h.Create(a, x, {.size = 1024 * kMiB, .complete = true});
  for (const NodeKey& node : r) h.Want(node, x);
  h.Clear();
  h.Finish(r[0], x);
  for (uint64_t i = 1; i <= 5; ++i) {
    h.Advance(absl::Milliseconds(250));
    h.Progress(r[1], x, i * 100'000'000, 4e8);
    h.Progress(r[2], x, i * 90'000'000, 3.6e8);
  }
  for (const NodeKey& node : r) EXPECT_EQ(h.Count(node, v1::ShardMessage::kAssign), 0);
}

TEST(BroadcastPlannerTest, AFailedPairIsAvoidedForALeaseAndForgottenAfterIt) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  const auto next = [&h, &a, &b, &r](const std::string& name) {
    const ObjectId id = Id(name);
    h.Create(a, id, {.complete = true});
    h.Want(b, id);
    h.Finish(b, id);
    h.Want(r, id);
    return h.SenderOf(r, id);
  };
  ASSERT_EQ(next("1"), a);
  h.Fail(r, Id("1"));
  EXPECT_EQ(h.SenderOf(r, Id("1")), b);
  EXPECT_EQ(next("2"), b) << "a broken link is broken for every object";
  h.Advance(absl::Milliseconds(1999));
  h.Finish(r, Id("2"));
  EXPECT_EQ(next("3"), b);
  h.Advance(absl::Milliseconds(1));
  h.Finish(r, Id("3"));
  h.Finish(r, Id("1"));
  EXPECT_EQ(next("4"), a);
}

TEST(BroadcastPlannerTest, ASenderThatLackedOneObjectIsGoodForTheNext) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey r = h.Up("r");
  h.Create(a, x, {.complete = true});
  h.Want(r, x);
  h.Fail(r, x, absl::StatusCode::kNotFound);
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), 2);
  const NodeKey b = h.Up("b");
  h.Create(a, Id("y"), {.complete = true});
  h.Want(b, Id("y"));
  h.Finish(b, Id("y"));
  h.Finish(r, x);
  h.Want(r, Id("y"));
  EXPECT_EQ(h.SenderOf(r, Id("y")), a);
}

TEST(BroadcastPlannerTest, AFailedSenderIsRetriedAfterAPauseIfItIsTheOnlyOne) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey r = h.Up("r");
  h.Create(a, x, {.complete = true});
  h.Want(r, x);
  int assigns = h.Count(r, v1::ShardMessage::kAssign);
  absl::Duration pause = absl::Milliseconds(10);
  for (int failure = 0; failure < 6; ++failure) {
    h.Fail(r, x);
    EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), assigns) << "not in a busy loop";
    h.Advance(pause - absl::Milliseconds(1));
    EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), assigns);
    EXPECT_LE(h.core().NextDeadline(), h.now() + absl::Milliseconds(1));
    h.Advance(absl::Milliseconds(1));
    EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), ++assigns);
    pause *= 2;
  }
}

// As a node does that serves as many pulls as it may: each of 20 pauses twice as long as the last
// would be a lease.
TEST(BroadcastPlannerTest, ManyRefusalsAtOnceAreOnePause) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey r = h.Up("r");
  std::vector<ObjectId> ids;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(Id("refused" + std::to_string(i)));
    h.Create(a, ids.back(), {.complete = true});
    h.Want(r, ids.back());
  }
  for (const ObjectId& id : ids) h.Fail(r, id, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), 20);
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), 40);
  h.Fail(r, ids[0], absl::StatusCode::kResourceExhausted);
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), 40) << "it was asked after a pause";
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.Count(r, v1::ShardMessage::kAssign), 41);
}

TEST(BroadcastPlannerTest, AReceiverThatFailsAgainAndAgainDoesNotTakeTheSendersPlace) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey bad = h.Up("bad");
  const NodeKey good = h.Up("good");
  h.Create(a, x, {.size = 64 * kMiB, .complete = true});
  h.Want(bad, x);
  for (int i = 0; i < 3; ++i) {
    h.Fail(bad, x);
    h.Advance(absl::Milliseconds(100));
  }
  ASSERT_EQ(h.SenderOf(bad, x), a);
  h.Want(good, x);
  EXPECT_EQ(h.SenderOf(good, x), a);
}

TEST(BroadcastPlannerTest, ADisconnectedNodeIsNotOffered) {
  Harness h;
  const NodeKey a = h.Up("a");
  const auto r = UpMany(h, 3, "r");
  h.Create(a, x, {.size = 64 * kMiB, .complete = true});
  h.Want(r[0], x);
  h.Connected(r[0], false);
  h.Want(r[1], x);
  EXPECT_EQ(h.SenderOf(r[1], x), a) << "and does not take its sender's place either";
  h.Connected(a, false);
  h.Connected(r[1], false);
  h.Want(r[2], x);
  EXPECT_EQ(h.SenderOf(r[2], x), NodeKey());
  h.Connected(a, true);
  EXPECT_EQ(h.SenderOf(r[2], x), a);
}

TEST(BroadcastPlannerTest, AnObjectsCopiesShareTheLoadOfManyObjects) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const auto r = UpMany(h, 8, "r");
  std::map<NodeKey, int> load;
  for (int i = 0; i < 8; ++i) {
    const ObjectId id = Id("o" + std::to_string(i));
    h.Create(a, id, {.size = 64 * kMiB, .complete = true});
    h.Want(b, id);
    h.Finish(b, id);
    h.Want(r[i], id);
    ++load[h.SenderOf(r[i], id)];
  }
  EXPECT_EQ(load[a], 4);
  EXPECT_EQ(load[b], 4);
}

}  // namespace
}  // namespace phalanx::directory
