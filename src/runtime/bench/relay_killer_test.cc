#include "src/runtime/bench/relay_killer.h"

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

TEST(RelayKillerTest, TakesTheRelayWithTheMostDescendants) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.5, 1), ElementsAre("b"));
}

TEST(RelayKillerTest, NeverTakesTheSourceNorARelayWithFewerThanTwoBelow) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.1, 5), ElementsAre("b", "c"));
}

TEST(RelayKillerTest, WaitsForTheFraction) {
  EXPECT_THAT(ChooseVictims(Chain(), kSize, 0.7, 1), IsEmpty());
}

TEST(RelayKillerTest, ANodeIsKnownByTheNameItWasStartedWith) {
  using namespace std::string_literals;
  EXPECT_TRUE(StartsNode("phalanx\0node\0--listen=h:1\0--name\0n2\0"s, "n2"));
  EXPECT_TRUE(StartsNode("phalanx\0node\0--name=n2\0"s, "n2"));
  EXPECT_FALSE(StartsNode("phalanx\0node\0--name=n22\0"s, "n2")) << "another node";
  EXPECT_FALSE(StartsNode("phalanx\0node\0n2\0"s, "n2"));
  EXPECT_FALSE(StartsNode("phalanx\0bench\0--name=n2\0"s, "n2")) << "no node";
  EXPECT_FALSE(StartsNode("", "n2"));
}

TEST(RelayKillerTest, ARecordThatRunsInACircleEnds) {
  v1::DescribeObjectResponse tree;
  AddCopy(&tree, "x", "y", 900);
  AddCopy(&tree, "y", "x", 900);
  EXPECT_THAT(ChooseVictims(tree, kSize, 0.5, 2), ElementsAre("y", "x"));
}

}  // namespace
}  // namespace phalanx::runtime::bench
