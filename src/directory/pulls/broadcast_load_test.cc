// Pulls of several objects over one node's link: how far they share the link, and when the planner
// moves a pull to a sender that serves fewer.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/pulls/pull_planner.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSize = 64 * kMiB;
constexpr double kRate = 10.0 * kMiB;
const ObjectId x = Id("x");

// r pulls x from a, from which other nodes pull other objects; then b has all of x too.
class SharedLinkTest : public ::testing::Test {
 protected:
  SharedLinkTest() {
    h.Create(a, x, {.size = kSize, .complete = true});
    h.Want(r, x);
    EXPECT_EQ(h.SenderOf(r, x), a);
  }

  void Serve(const NodeKey& sender, const NodeKey& receiver, const std::string& name) {
    h.Create(sender, Id(name), {.size = kSize, .complete = true});
    h.Want(receiver, Id(name));
    EXPECT_EQ(h.SenderOf(receiver, Id(name)), sender);
  }
  void FinishAtB() {
    h.Want(b, x);
    h.Finish(b, x);
  }
  // The sender of r after r has reported its progress for 100 ms.
  NodeKey SenderAfterReport(uint64_t bytes = kMiB, absl::Duration starved = absl::ZeroDuration()) {
    h.Advance(absl::Milliseconds(100));
    h.Progress(r, x, bytes, kRate, starved);
    return h.SenderOf(r, x);
  }

  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  const NodeKey p = h.Up("p");
};

TEST_F(SharedLinkTest, APullMovesToASenderWithTwoFewerPulls) {
  Serve(a, p, "y");
  FinishAtB();
  EXPECT_EQ(SenderAfterReport(), b);
}

TEST_F(SharedLinkTest, NoPullMovesToASenderWithOnePullFewer) {
  Serve(a, p, "y");
  FinishAtB();
  Serve(b, p, "z");
  EXPECT_EQ(SenderAfterReport(), a) << "the one that it would leave had to move back";
}

TEST_F(SharedLinkTest, ReceiversOfOneObjectAreSpreadByItsTreeAlone) {
  h.Want(p, x);
  h.Fail(p, x);
  ASSERT_EQ(h.SenderOf(p, x), a) << "r has failed it";
  FinishAtB();
  EXPECT_EQ(SenderAfterReport(), a);
}

TEST_F(SharedLinkTest, AReceiverThatPullsAsMuchItselfStays) {
  Serve(a, p, "y");
  FinishAtB();
  Serve(p, r, "z");
  EXPECT_EQ(SenderAfterReport(), a) << "its own link may be what limits it";
}

TEST_F(SharedLinkTest, APullThatIsNearlyDoneStays) {
  Serve(a, p, "y");
  FinishAtB();
  EXPECT_EQ(SenderAfterReport(kSize - kMiB / 2), a);
}

TEST_F(SharedLinkTest, AStarvedPullStays) {
  Serve(a, p, "y");
  FinishAtB();
  EXPECT_EQ(SenderAfterReport(kMiB, absl::Milliseconds(50)), a) << "its link is not the limit";
}

TEST(SharedLinkOrderTest, NoPullMovesToASenderWithFewerBytes) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey r = h.Up("r");
  const NodeKey p = h.Up("p");
  h.Create(a, x, {.size = kSize, .complete = true});
  h.Create(a, Id("y"), {.size = kSize, .complete = true});
  for (const NodeKey& node : {b, r}) h.Want(node, x);
  h.Want(p, Id("y"));
  h.Fail(r, x);
  ASSERT_EQ(h.SenderOf(r, x), a) << "b has failed it";
  // Until b counts as good as before.
  h.Advance(absl::Seconds(3));
  h.Progress(r, x, kMiB, kRate);
  EXPECT_EQ(h.SenderOf(r, x), a) << "b has nothing yet";
  h.Progress(b, x, 2 * kMiB, kRate);
  h.Advance(absl::Milliseconds(100));
  h.Progress(r, x, kMiB + 1, kRate);
  EXPECT_EQ(h.SenderOf(r, x), b);
}

Instant At(int second) { return Instant::FromNanos(0) + absl::Seconds(second); }

class SharedByTest : public ::testing::Test {
 protected:
  RelayTree::Member* Add(const NodeKey& node, RelayTree::Role role) {
    return tree_.Add(Endpoint{node, {}}, role, /*connected=*/true, /*draining=*/false);
  }

  const NodeKey a_{1, 1}, b_{2, 1}, r_{3, 1}, p_{4, 1};
  PullPlanner planner_{absl::Seconds(2), 16 << 10};
  RelayTree tree_{kSize};
  RelayTree::Member* const sender_ = Add(a_, RelayTree::Role::kComplete);
  RelayTree::Member* const receiver_ = Add(r_, RelayTree::Role::kReceiver);
  const RelayTree::Feed& feed_ = *tree_.Attach(receiver_, sender_, 1, 1, true, At(0));
};

TEST_F(SharedByTest, SharesAtBothEndsMultiply) {
  planner_.PullBegan(a_, r_);
  EXPECT_EQ(planner_.SharedBy(feed_, At(0)), 1);
  planner_.PullBegan(a_, p_);
  EXPECT_EQ(planner_.SharedBy(feed_, At(0)), 2);
  planner_.PullBegan(b_, r_);
  planner_.PullBegan(b_, r_);
  EXPECT_EQ(planner_.SharedBy(feed_, At(0)), 6);
}

TEST_F(SharedByTest, PullsThatEndedSinceThenCount) {
  planner_.PullBegan(a_, r_);
  planner_.PullBegan(a_, p_);
  planner_.PullEnded(a_, p_, At(5));
  EXPECT_EQ(planner_.SharedBy(feed_, At(0)), 2);
  EXPECT_EQ(planner_.SharedBy(feed_, At(6)), 1);
}

TEST_F(SharedByTest, IsBoundedHoweverManyPullsThereAre) {
  for (int i = 0; i < 2000; ++i) {
    planner_.PullBegan(a_, p_);
    planner_.PullBegan(b_, r_);
  }
  planner_.PullBegan(a_, r_);
  EXPECT_EQ(planner_.SharedBy(feed_, At(0)), 1 << 20);
}

}  // namespace
}  // namespace phalanx::directory
