// Repair, exhaustively at small scale: a chain of receivers, one or two deaths at every point of
// the broadcast, every kind of death. Every live node finishes if a complete copy lives. No node
// pulls from a dead node or from downstream of itself (the core's invariants, checked at each
// step), and no node gets a superfluous message.
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

const ObjectId x = Id("x");

enum class Death { kCrash, kFailedPull, kUnwant };

// A holder and `length` receivers, which form a chain once all have asked. The first `finished` of
// them are complete.
struct Chain {
  Chain(int length, int finished, bool sealed) : length(length) {
    holder = h.Up("holder");
    for (int i = 0; i < length; ++i) receivers.push_back(h.Up("r" + std::to_string(i)));
    generation = h.Create(holder, x, {.size = 1 << 30, .complete = sealed});
    for (const NodeKey& node : receivers) h.Want(node, x);
    for (int i = 0; i < finished; ++i) Finish(receivers[i]);
  }

  void Finish(const NodeKey& node) {
    if (complete.insert(node).second) h.Finish(node, x);
  }

  bool Alive(const NodeKey& node) const { return !dead.contains(node); }
  bool Completed(const NodeKey& node) const { return complete.contains(node) || node == holder; }

  void Strike(const NodeKey& node, Death death) {
    switch (death) {
      case Death::kCrash:
        dead.insert(node);
        h.Down(node);
        break;
      case Death::kFailedPull:
        if (!complete.contains(node) && node != holder) h.Fail(node, x);
        break;
      case Death::kUnwant:
        if (complete.contains(node) || node == holder) break;
        dead.insert(node);
        h.Unwant(node, x);
        break;
    }
  }

  // Ends the pulls as bytes arrive: a receiver whose sender is complete is the next to be complete.
  // Returns the nodes that did not finish.
  std::set<NodeKey> RunToTheEnd() {
    for (int round = 0; round < 4 * length + 8; ++round) {
      for (const NodeKey& node : receivers) {
        if (!Alive(node) || complete.contains(node)) continue;
        const NodeKey sender = h.SenderOf(node, x);
        EXPECT_TRUE(sender.valid());
        if (Alive(sender) && Completed(sender)) Finish(node);
        if (!Alive(sender)) h.Fail(node, x);
        if (!complete.contains(node)) h.Progress(node, x, 1000, 1e9);
      }
      h.Advance(absl::Milliseconds(50));
    }
    std::set<NodeKey> left;
    for (const NodeKey& node : receivers) {
      if (Alive(node) && !complete.contains(node)) left.insert(node);
    }
    return left;
  }

  bool SomebodyHolds() const {
    if (Alive(holder)) return true;
    for (const NodeKey& node : complete) {
      if (Alive(node)) return true;
    }
    return false;
  }

  const int length;
  Harness h;
  NodeKey holder;
  Generation generation;
  std::vector<NodeKey> receivers;
  std::set<NodeKey> complete;
  std::set<NodeKey> dead;
};

class RepairTest : public ::testing::TestWithParam<int> {};

TEST_P(RepairTest, EveryReceiverFinishesAfterOneDeathAnywhereAtAnyTime) {
  const int length = GetParam();
  for (int finished = 0; finished <= length; ++finished) {
    for (int victim = -1; victim < length; ++victim) {
      for (const Death death : {Death::kCrash, Death::kFailedPull, Death::kUnwant}) {
        SCOPED_TRACE(::testing::Message() << finished << " finished, " << victim << " struck, "
                                          << static_cast<int>(death));
        Chain chain(length, finished, /*sealed=*/true);
        chain.Strike(victim < 0 ? chain.holder : chain.receivers[victim], death);
        const bool holds = chain.SomebodyHolds();
        const std::set<NodeKey> left = chain.RunToTheEnd();
        EXPECT_EQ(left.empty(), holds || finished == length);
        for (const NodeKey& node : left) {
          EXPECT_EQ(chain.h.LastGone(node), v1::Gone::LOST);
        }
      }
    }
  }
}

TEST_P(RepairTest, EveryReceiverFinishesAfterTwoDeathsAnywhereAtAnyTime) {
  const int length = GetParam();
  for (int finished = 0; finished <= length; ++finished) {
    for (int first = -1; first < length; ++first) {
      for (int second = -1; second < length; ++second) {
        if (first == second) continue;
        SCOPED_TRACE(::testing::Message()
                     << finished << " finished, " << first << " and " << second << " struck");
        Chain chain(length, finished, /*sealed=*/true);
        for (const int victim : {first, second}) {
          chain.Strike(victim < 0 ? chain.holder : chain.receivers[victim], Death::kCrash);
        }
        const bool holds = chain.SomebodyHolds();
        EXPECT_TRUE(!holds || chain.RunToTheEnd().empty());
      }
    }
  }
}

TEST_P(RepairTest, OnlyReceiversThatLostTheirSenderGetAnother) {
  const int length = GetParam();
  for (int victim = 0; victim + 1 < length; ++victim) {
    Chain chain(length, 0, /*sealed=*/true);
    chain.h.Clear();
    chain.Strike(chain.receivers[victim], Death::kCrash);
    EXPECT_EQ(chain.h.messages(), 1u);
    const NodeKey orphan = chain.receivers[victim + 1];
    const NodeKey above = victim == 0 ? chain.holder : chain.receivers[victim - 1];
    EXPECT_EQ(chain.h.SenderOf(orphan, x), above) << "the place above the dead one is free";
  }
}

TEST_P(RepairTest, NoPartialCopyStaysWhenTheCreatorDiesBeforeItSeals) {
  const int length = GetParam();
  for (int victim = -1; victim < length; ++victim) {
    Chain chain(length, 0, /*sealed=*/false);
    if (victim >= 0) chain.Strike(chain.receivers[victim], Death::kCrash);
    chain.Strike(chain.holder, Death::kCrash);
    chain.h.Advance(absl::Seconds(2));
    for (const NodeKey& node : chain.receivers) {
      if (!chain.Alive(node)) continue;
      EXPECT_EQ(chain.h.LastGone(node), v1::Gone::VOID);
    }
    const NodeKey again = chain.h.Up("again");
    chain.h.Create(again, x, {.size = 1 << 30, .complete = true});
    chain.holder = again;
    EXPECT_TRUE(chain.RunToTheEnd().empty());
  }
}

TEST_P(RepairTest, AReceiverWhoseSenderFailsAgainAndAgainIsServedByAnyOther) {
  const int length = GetParam();
  Chain chain(length, 1, /*sealed=*/true);
  const NodeKey unlucky = chain.receivers.back();
  std::set<NodeKey> tried;
  for (int i = 0; i < length + 1; ++i) {
    tried.insert(chain.h.SenderOf(unlucky, x));
    chain.h.Fail(unlucky, x);
    chain.h.Advance(absl::Milliseconds(20));
  }
  EXPECT_EQ(tried.size(), static_cast<size_t>(length)) << "everybody but itself, each once";
}

TEST_P(RepairTest, AReceiverThatCannotReachTheOnlyHolderIsServedByItsOwnReceivers) {
  const int length = GetParam();
  for (int cut = 0; length > 1 && cut < length; ++cut) {
    SCOPED_TRACE(cut);
    Chain chain(length, 0, /*sealed=*/true);
    const NodeKey unlucky = chain.receivers[cut];
    for (int round = 0; round < 4 * length; ++round) {
      for (const NodeKey& node : chain.receivers) {
        const NodeKey sender = chain.h.SenderOf(node, x);
        if (node == unlucky && sender == chain.holder) {
          chain.h.Fail(node, x);
        } else if (chain.Completed(sender)) {
          chain.Finish(node);
        }
      }
      chain.h.Advance(absl::Milliseconds(20));
    }
    EXPECT_EQ(chain.complete.size(), static_cast<size_t>(length));
  }
}

TEST(LostSessionTest, ASenderWithoutASessionIsLeftOnlyWhenItDeliversNothing) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  const NodeKey c = h.Up("c");
  h.Create(a, x, {.complete = true});
  h.Want(b, x);
  h.Finish(b, x);
  h.Want(c, x);
  const NodeKey first = h.SenderOf(c, x);
  h.Progress(c, x, 1000, 1e6);
  h.Connected(first, false);
  h.Progress(c, x, 2000, 1e6);
  EXPECT_EQ(h.SenderOf(c, x), first);
  h.Progress(c, x, 2000, 0);
  EXPECT_EQ(h.SenderOf(c, x), first == a ? b : a);
}

INSTANTIATE_TEST_SUITE_P(ChainsOf, RepairTest, ::testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace phalanx::directory
