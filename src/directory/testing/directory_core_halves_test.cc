// Objects that many nodes pull in two trees, each of half the slices.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

constexpr uint64_t kSize = 64 << 20;
constexpr uint64_t kFirst = 1;
constexpr uint64_t kSecond = 2;
constexpr uint64_t kBoth = kFirst | kSecond;

DirectoryOptions Options(size_t least) {
  DirectoryOptions options;
  options.least_in_halves = least;
  options.worth_of_halves = 2;
  return options;
}

class PullHalvesTest : public ::testing::Test {
 protected:
  struct Pull {
    NodeKey sender;
    PlanId plan = 0;
  };

  explicit PullHalvesTest(size_t least = 4) : shard_(/*learning=*/false, Options(least)) {
    source_ = shard_.Up("source");
  }

  void Put(uint32_t slices = 2) {
    generation_ =
        shard_.Create(source_, object_, {.size = kSize, .slices = slices, .complete = true});
  }
  NodeKey Ask(int i) {
    const NodeKey node = shard_.Up("n" + std::to_string(i));
    shard_.Want(node, object_);
    nodes_.push_back(node);
    return node;
  }
  void AskAll(int nodes) {
    for (int i = 0; i < nodes; ++i) Ask(i);
  }
  // Nodes that ask after the others wait a moment for more of them.
  void Wait() { shard_.Advance(absl::Milliseconds(20)); }
  // The Assigns to the node since the last Clear.
  std::map<uint64_t, Pull> Assigned(const NodeKey& node) {
    std::map<uint64_t, Pull> pulls;
    for (const v1::ShardMessage& message : shard_.Received(node)) {
      if (!message.has_assign()) continue;
      const v1::Assign& assign = message.assign();
      pulls[assign.slices()] = {FromProto(assign.sender()), assign.plan_id()};
    }
    return pulls;
  }
  // `slices`: those of which the node has every byte.
  void Report(const NodeKey& node, PlanId plan, absl::StatusCode code, uint64_t slices = 0) {
    const bool complete = slices == kBoth;
    v1::PullReport report = shard_.ReportOf(node, object_, complete);
    report.set_plan_id(plan);
    report.set_code(static_cast<int>(code));
    report.clear_watermarks();
    for (const uint64_t slice : {kFirst, kSecond}) {
      report.add_watermarks((slices & slice) != 0 ? kSize / 2 : 0);
    }
    shard_.Report(node, report);
  }
  // The nodes that send each slice, with the numbers of their receivers.
  std::map<uint64_t, std::map<NodeKey, int>> Senders() {
    std::map<uint64_t, std::map<NodeKey, int>> senders;
    for (const NodeKey& node : nodes_) {
      for (const auto& [slices, pull] : Assigned(node)) ++senders[slices][pull.sender];
    }
    return senders;
  }

  Harness shard_;
  const ObjectId object_ = Id("object");
  NodeKey source_;
  Generation generation_;
  std::vector<NodeKey> nodes_;
};

TEST_F(PullHalvesTest, EachNodeRelaysOneHalfAndEveryLinkCarriesTheObjectOnce) {
  AskAll(40);
  Put();
  auto senders = Senders();
  ASSERT_EQ(senders.size(), 2u);
  for (const NodeKey& node : nodes_) {
    const std::map<uint64_t, Pull> pulls = Assigned(node);
    ASSERT_EQ(pulls.size(), 2u);
    EXPECT_EQ(pulls.count(kFirst) + pulls.count(kSecond), 2u);
    const int sent = senders[kFirst][node] + senders[kSecond][node];
    EXPECT_LE(sent, 2);
    EXPECT_EQ(std::min(senders[kFirst][node], senders[kSecond][node]), 0);
  }
  EXPECT_EQ(senders[kFirst][source_], 1);
  EXPECT_EQ(senders[kSecond][source_], 1);
}

TEST_F(PullHalvesTest, EachHalfCrossesIntoARackOnce) {
  std::map<NodeKey, int> racks = {{source_, 0}};
  for (int i = 0; i < 24; ++i) {
    // Neighbours in the order in which they are planned are in different racks.
    const NodeKey node =
        shard_.Up("n" + std::to_string(i), {{"rack", i % 2 == 0 ? "even" : "odd"}});
    racks[node] = 1 + i % 2;
    shard_.Want(node, object_);
    nodes_.push_back(node);
  }
  Put();
  std::map<std::pair<int, uint64_t>, int> crossings;
  for (const NodeKey& node : nodes_) {
    const std::map<uint64_t, Pull> pulls = Assigned(node);
    ASSERT_EQ(pulls.size(), 2u);
    for (const auto& [slices, pull] : pulls) {
      if (racks[pull.sender] != racks[node]) ++crossings[{racks[node], slices}];
    }
  }
  for (const auto& [into, times] : crossings) EXPECT_EQ(times, 1);
}

TEST_F(PullHalvesTest, FewNodesPullAllSlicesFromOneSender) {
  AskAll(3);
  Put();
  for (const NodeKey& node : nodes_) EXPECT_EQ(Assigned(node).count(kBoth), 1u);
}

TEST_F(PullHalvesTest, AnObjectOfOneSliceHasOneTree) {
  AskAll(8);
  Put(/*slices=*/1);
  for (const NodeKey& node : nodes_) EXPECT_EQ(Assigned(node).count(kFirst), 1u);
}

TEST_F(PullHalvesTest, NodesThatAskOneByOneAreMovedWhenTheyAreEnough) {
  Put();
  AskAll(3);
  EXPECT_EQ(Assigned(nodes_[0]).count(kBoth), 1u);
  Ask(3);
  Wait();
  for (const NodeKey& node : nodes_) EXPECT_EQ(Assigned(node).count(kSecond), 1u);
  // A later one waits a moment for others.
  const NodeKey late = Ask(4);
  EXPECT_TRUE(Assigned(late).empty());
  Wait();
  EXPECT_EQ(Assigned(late).size(), 2u);
}

TEST_F(PullHalvesTest, PullsThatHaveRunForLongAreNotMoved) {
  Put();
  AskAll(3);
  shard_.Advance(absl::Milliseconds(500));
  Ask(3);
  for (const NodeKey& node : nodes_) EXPECT_EQ(Assigned(node).count(kSecond), 0u);
}

TEST_F(PullHalvesTest, TheOtherHalfContinuesWhenTheSenderOfOneFails) {
  AskAll(8);
  Put();
  const NodeKey node = nodes_[3];
  const Pull failed = Assigned(node)[kFirst];
  shard_.Clear();
  Report(node, failed.plan, absl::StatusCode::kUnavailable);
  const std::map<uint64_t, Pull> now = Assigned(node);
  ASSERT_EQ(now.size(), 1u);
  ASSERT_EQ(now.count(kFirst), 1u);
  EXPECT_NE(now.at(kFirst).sender, failed.sender);
}

TEST_F(PullHalvesTest, ReceiversOfADeadRelayGetAnotherSenderOfThatHalf) {
  AskAll(12);
  Put();
  for (const NodeKey& relay : nodes_) {
    std::set<std::pair<NodeKey, uint64_t>> below;
    for (const NodeKey& node : nodes_) {
      for (const auto& [slices, pull] : Assigned(node)) {
        if (pull.sender == relay) below.insert({node, slices});
      }
    }
    if (below.empty()) continue;
    shard_.Clear();
    shard_.Down(relay);
    for (const NodeKey& node : nodes_) {
      for (const auto& [slices, pull] : Assigned(node)) {
        EXPECT_NE(pull.sender, relay);
        EXPECT_EQ(below.count({node, slices}), 1u) << "a pull that works is not touched";
      }
    }
    return;
  }
  FAIL() << "no node relays";
}

TEST_F(PullHalvesTest, AHalfThatIsDoneIsNoFailure) {
  AskAll(8);
  Put();
  const NodeKey node = nodes_[2];
  const std::map<uint64_t, Pull> pulls = Assigned(node);
  shard_.Clear();
  Report(node, pulls.at(kFirst).plan, absl::StatusCode::kOk, kFirst);
  EXPECT_TRUE(Assigned(node).empty());
  EXPECT_EQ(shard_.Describe(object_).summary().complete_copies(), 1u);
  Report(node, pulls.at(kSecond).plan, absl::StatusCode::kOk, kBoth);
  EXPECT_EQ(shard_.Describe(object_).summary().complete_copies(), 2u);
}

TEST_F(PullHalvesTest, APullThatEndsBeforeItsHalfIsHereIsAssignedASenderAgain) {
  AskAll(8);
  Put();
  const NodeKey node = nodes_[2];
  const PlanId plan = Assigned(node).at(kFirst).plan;
  shard_.Clear();
  Report(node, plan, absl::StatusCode::kOk, kSecond);
  shard_.Advance(absl::Milliseconds(20));
  EXPECT_EQ(Assigned(node).count(kFirst), 1u);
}

// The source is all that can send to the first node of a tree.
class FirstRelayTest : public PullHalvesTest {
 protected:
  FirstRelayTest() {
    AskAll(8);
    Put();
    for (const NodeKey& node : nodes_) {
      for (const auto& [slices, pull] : Assigned(node)) {
        if (pull.sender == source_ && slices == kFirst) relay_ = node;
      }
    }
  }
  // Its connection to the source breaks.
  void Break() {
    const PlanId plan = Assigned(relay_).at(kFirst).plan;
    shard_.Clear();
    Report(relay_, plan, absl::StatusCode::kUnavailable);
  }
  size_t AssignedWhole() {
    return std::count_if(nodes_.begin(), nodes_.end(),
                         [this](const NodeKey& node) { return Assigned(node).count(kBoth) == 1; });
  }

  NodeKey relay_;
};

TEST_F(FirstRelayTest, OneBrokenConnectionMovesNoOtherNode) {
  Break();
  shard_.Advance(absl::Milliseconds(20));
  for (const NodeKey& node : nodes_) {
    EXPECT_EQ(Assigned(node).size(), node == relay_ ? 1u : 0u);
  }
  EXPECT_EQ(Assigned(relay_).at(kFirst).sender, source_);
}

TEST_F(FirstRelayTest, ASecondOneEndsTheTwoTrees) {
  Break();
  shard_.Advance(absl::Milliseconds(20));
  Break();
  shard_.Advance(absl::Milliseconds(20));
  EXPECT_EQ(AssignedWhole(), nodes_.size());
  for (const NodeKey& node : nodes_) shard_.Finish(node, object_);
  EXPECT_EQ(shard_.Describe(object_).summary().complete_copies(), 9u);
}

TEST_F(PullHalvesTest, ACopyThatIsRegisteredInPartsIsAssignedASenderAgain) {
  AskAll(8);
  Put();
  const NodeKey node = nodes_[1];
  const NodeKey sender = Assigned(node)[kFirst].sender;
  shard_.NewSession(node, /*had_session=*/true);
  v1::NodeMessage message;
  v1::RegisterCopy& copy = *message.mutable_register_copy();
  copy.set_object_id(object_.binary().data(), ObjectId::kSize);
  ToProto(generation_, copy.mutable_generation());
  copy.mutable_info()->set_size_bytes(kSize);
  copy.mutable_info()->set_slices(2);
  copy.set_adopted(true);
  copy.add_watermarks(1 << 20);
  copy.add_watermarks(2 << 20);
  ToProto(sender, copy.mutable_sender());
  copy.set_in_parts(true);
  EXPECT_TRUE(shard_.Send(node, message).ok());
  shard_.RegisterWant(node, object_);
  shard_.Clear();
  shard_.RegisterEnd(node);
  Wait();
  uint64_t slices = 0;
  for (const auto& [pulled, pull] : Assigned(node)) slices |= pulled;
  EXPECT_EQ(slices, kBoth);
}

}  // namespace
}  // namespace phalanx::directory
