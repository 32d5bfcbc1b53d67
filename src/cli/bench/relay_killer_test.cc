#include "src/cli/bench/relay_killer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kSize = 1000;

void AddCopy(v1::DescribeObjectResponse* tree, const char* name, const char* sender,
             uint64_t present) {
  v1::CopyDescription* copy = tree->add_copies();
  copy->set_name(name);
  copy->set_sender_name(sender);
  copy->set_primary(*sender == '\0');
  copy->set_complete(present == kSize);
  copy->set_connected(true);
  copy->add_watermarks(present);
}

v1::DescribeObjectResponse Chain() {
  v1::DescribeObjectResponse tree;
  AddCopy(&tree, "a", "", kSize);
  AddCopy(&tree, "b", "a", 600);
  AddCopy(&tree, "c", "b", 550);
  AddCopy(&tree, "d", "c", 500);
  AddCopy(&tree, "e", "d", 450);
  return tree;
}

TEST(RelayKillerTest, ChoosesTheRelayWithTheMostDescendants) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.5, 1), ElementsAre("b"));
}

TEST(RelayKillerTest, NeverChoosesTheSourceOrARelayWithFewDescendants) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.1, 5), ElementsAre("b", "c"));
}

TEST(RelayKillerTest, WaitsForTheFraction) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.7, 1), IsEmpty());
}

TEST(RelayKillerTest, IdentifiesANodeByItsNameFlag) {
  using namespace std::string_literals;
  EXPECT_TRUE(StartsNode("phalanx\0node\0--listen=h:1\0--name\0n2\0"s, "n2"));
  EXPECT_TRUE(StartsNode("phalanx\0node\0--name=n2\0"s, "n2"));
  EXPECT_FALSE(StartsNode("phalanx\0node\0--name=n22\0"s, "n2")) << "another node";
  EXPECT_FALSE(StartsNode("phalanx\0node\0n2\0"s, "n2"));
  EXPECT_FALSE(StartsNode("phalanx\0bench\0--name=n2\0"s, "n2")) << "no node";
  EXPECT_FALSE(StartsNode("", "n2"));
}

TEST(RelayKillerTest, HandlesACycleInTheRecord) {
  v1::DescribeObjectResponse tree;
  AddCopy(&tree, "x", "y", 900);
  AddCopy(&tree, "y", "x", 900);
  EXPECT_THAT(ChooseVictims(tree, kSize, 0.5, 2), ElementsAre("y", "x"));
}

// A chain of seven slots, with the root last. Slot i has folded 100 * (7 - i) bytes.
v1::ReductionDescription ReduceChain() {
  v1::ReductionDescription tree;
  tree.set_size_bytes(kSize);
  for (int i = 0; i < 7; ++i) {
    auto* slot = tree.add_slots();
    slot->set_slot(static_cast<uint32_t>(i));
    slot->set_parent(i == 6 ? -1 : i + 1);
    slot->set_node_name(std::string(1, static_cast<char>('a' + i)));
    slot->set_connected(true);
    slot->set_watermark(static_cast<uint64_t>(100 * (7 - i)));
  }
  return tree;
}

TEST(ReducerKillerTest, ChoosesAnInnerNodeThatHasFoldedTheFraction) {
  EXPECT_THAT(ChooseReducers(ReduceChain(), 0.0, 9), ElementsAre("c", "d", "e"));
  EXPECT_THAT(ChooseReducers(ReduceChain(), 0.4, 9), ElementsAre("c", "d"));
  EXPECT_THAT(ChooseReducers(ReduceChain(), 0.4, 1), ElementsAre("c"));
  EXPECT_THAT(ChooseReducers(ReduceChain(), 0.6, 9), IsEmpty());
}

TEST(ReducerKillerTest, SkipsDisconnectedNodesAndNodesWithTwoSlots) {
  v1::ReductionDescription tree = ReduceChain();
  tree.mutable_slots(2)->set_connected(false);
  tree.mutable_slots(3)->set_node_name("a");
  EXPECT_THAT(ChooseReducers(tree, 0.1, 9), ElementsAre("e"));
}

TEST(ReducerKillerTest, CutsARingBeforeItsFirstMember) {
  v1::ReductionDescription ring = ReduceChain();
  ring.set_ring(true);
  ring.mutable_slots(6)->set_parent(0);
  EXPECT_THAT(ChooseReducers(ring, 0.4, 9), ElementsAre("c", "d"));
}

TEST(ReducerKillerTest, HandlesACycleInTheTree) {
  v1::ReductionDescription tree = ReduceChain();
  tree.mutable_slots(6)->set_parent(0);
  ChooseReducers(tree, 0.1, 9);
  EXPECT_THAT(ChooseReducers(v1::ReductionDescription(), 0.1, 9), IsEmpty());
}

}  // namespace
}  // namespace phalanx::runtime::bench
