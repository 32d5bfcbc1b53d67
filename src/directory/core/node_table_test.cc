#include "src/directory/core/node_table.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

const NodeKey kA{1, 1};
const NodeKey kB{2, 1};

Node& Open(NodeTable& nodes, const NodeKey& key, const std::string& name) {
  Node& node = nodes.Open(key).node;
  node.info.set_name(name);
  return node;
}

TEST(NodeTableTest, OpeningAKnownNodeReturnsItsRecord) {
  NodeTable nodes;
  const auto first = nodes.Open(kA);
  EXPECT_TRUE(first.added);
  const auto second = nodes.Open(kA);
  EXPECT_FALSE(second.added);
  EXPECT_EQ(&first.node, &second.node);
  EXPECT_EQ(first.node.key, kA);
}

TEST(NodeTableTest, EverySessionHasItsOwnNumber) {
  NodeTable nodes;
  EXPECT_NE(nodes.NewSession(), nodes.NewSession());
}

TEST(NodeTableTest, ANodeThatIsBeingRemovedIsNotFoundButStillHasItsName) {
  NodeTable nodes;
  Open(nodes, kA, "a");
  EXPECT_NE(nodes.BeginRemove(kA), nullptr);
  EXPECT_EQ(nodes.Find(kA), nullptr);
  EXPECT_EQ(nodes.NameOf(kA), "a");
  nodes.EndRemove();
  EXPECT_EQ(nodes.NameOf(kA), kA.ToString());
  EXPECT_EQ(nodes.BeginRemove(kA), nullptr);
}

TEST(NodeTableTest, AnotherIncarnationIsAnotherLifeOfTheNode) {
  NodeTable nodes;
  Open(nodes, kA, "a");
  EXPECT_EQ(nodes.OtherLife(NodeKey{1, 2}), kA);
  EXPECT_FALSE(nodes.OtherLife(kA).valid());
  EXPECT_FALSE(nodes.OtherLife(kB).valid());
}

TEST(NodeTableTest, NamedRemovesTheNamesThatItFound) {
  NodeTable nodes;
  Open(nodes, kA, "a");
  Open(nodes, kB, "b");
  absl::btree_set<absl::string_view> names = {"b", "zed"};
  ASSERT_EQ(nodes.Named(names).size(), 1u);
  EXPECT_EQ(names, (absl::btree_set<absl::string_view>{"zed"}));
  names = {"*", "zed"};
  EXPECT_EQ(nodes.Named(names).size(), 2u);
  EXPECT_EQ(names, (absl::btree_set<absl::string_view>{"zed"}));
}

TEST(NodeTableTest, TheMessageOfUnknownNodesNamesTheKnownOnesAndIsBounded) {
  NodeTable nodes;
  Open(nodes, kA, "a");
  Open(nodes, kB, "b");
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("node" + std::to_string(i));
  many.push_back(std::string(1000, 'x'));
  const absl::btree_set<absl::string_view> names(many.begin(), many.end());
  const std::string message = nodes.UnknownMessage(ObjectId::FromName("test", "object"), names);
  EXPECT_NE(message.find("and 5 more; there are a, b ("), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u);
}

}  // namespace
}  // namespace phalanx::directory
