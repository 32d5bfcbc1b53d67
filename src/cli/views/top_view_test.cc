#include "src/cli/views/top_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Node i uses (i * 7) % 5 MiB, and has i copies, n - i pulls and no push.
TopView View(int nodes, int transfers, int reductions) {
  TopView view;
  ClusterShard shard;
  shard.address = "127.0.0.1:7400";
  view.cluster.shards.push_back(shard);
  for (int i = 0; i < nodes; ++i) {
    ClusterNode node;
    node.info.set_name(absl::StrCat("n", i));
    node.info.set_address(absl::StrCat("10.0.0.", i, ":7410"));
    node.info.set_capacity_bytes(8 << 20);
    node.info.set_used_bytes(static_cast<uint64_t>(i * 7 % 5) << 20);
    (*node.info.mutable_labels())["zone"] = "a";
    node.connected_shards = 1;
    node.copies = static_cast<uint64_t>(i);
    node.pulls = static_cast<uint64_t>(nodes - i);
    view.cluster.nodes.push_back(node);
  }
  for (int i = 0; i < transfers; ++i) {
    Transfer transfer;
    transfer.summary.set_object_id(std::string(20, static_cast<char>(i)));
    transfer.summary.mutable_info()->set_size_bytes(static_cast<uint64_t>(i * 3 % 4) << 20);
    transfer.summary.set_partial_copies(1);
    transfer.summary.set_waiting(static_cast<uint32_t>(transfers - i));
    transfer.bytes_per_second = 1e6 * (i * 2 % 3);
    view.transfers.push_back(transfer);
  }
  for (int i = 0; i < reductions; ++i) {
    v1::RunningReduction reduction;
    reduction.set_object_id(std::string(20, static_cast<char>(i)));
    reduction.set_state("folding");
    view.reductions.push_back(reduction);
  }
  return view;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

std::vector<std::string> NodeNames(const std::string& order) {
  TopView view = View(4, 0, 0);
  SortNodes(order, view.cluster.nodes);
  std::vector<std::string> names;
  for (const ClusterNode& node : view.cluster.nodes) names.push_back(node.info.name());
  return names;
}

TEST(TopViewTest, NodesAreSortedByNameOrTheLargestNumber) {
  EXPECT_THAT(NodeNames("name"), ElementsAre("n0", "n1", "n2", "n3"));
  EXPECT_THAT(NodeNames("used"), ElementsAre("n2", "n1", "n3", "n0"));
  EXPECT_THAT(NodeNames("copies"), ElementsAre("n3", "n2", "n1", "n0"));
  EXPECT_THAT(NodeNames("pulls"), ElementsAre("n0", "n1", "n2", "n3"));
  EXPECT_THAT(NodeNames("pushes"), ElementsAre("n0", "n1", "n2", "n3"));
}

TEST(TopViewTest, TransfersAreSortedByTheLargestNumber) {
  const auto ids = [](const std::string& order) {
    TopView view = View(0, 3, 0);
    SortTransfers(order, view.transfers);
    std::vector<int> found;
    for (const Transfer& transfer : view.transfers) {
      found.push_back(transfer.summary.object_id()[0]);
    }
    return found;
  };
  EXPECT_THAT(ids("rate"), ElementsAre(1, 2, 0));
  EXPECT_THAT(ids("size"), ElementsAre(1, 2, 0));
  EXPECT_THAT(ids("waiting"), ElementsAre(0, 1, 2));
}

TEST(TopViewTest, EveryPaneHasAtMostItsRowsAndSomethingOfEachTable) {
  for (const int nodes : {0, 1, 3, 200}) {
    for (const int transfers : {0, 1, 10}) {
      for (const int reductions : {0, 2, 40}) {
        const TopView view = View(nodes, transfers, reductions);
        for (int rows = 1; rows < 80; ++rows) {
          const std::string text = TopAsText(view, {rows, 80, false, "keys"});
          const std::vector<std::string> lines = Lines(text);
          ASSERT_LE(lines.size(), static_cast<size_t>(rows)) << text;
          EXPECT_THAT(lines[0], HasSubstr("shards up"));
          if (rows < 8) continue;
          EXPECT_EQ(text.find("NODE") != std::string::npos, nodes > 0) << text;
          EXPECT_THAT(text, HasSubstr(transfers > 0 ? "OBJECT" : "no transfers"));
          EXPECT_EQ(text.find("REDUCTION") != std::string::npos, reductions > 0) << text;
          EXPECT_EQ(text.find("keys") != std::string::npos, rows >= 14) << text;
        }
      }
    }
  }
}

TEST(TopViewTest, RowsThatDoNotFitAreCounted) {
  const std::string text = TopAsText(View(200, 0, 0), {15, 80, false, "keys"});
  // A line each for the summary, the heading, "no transfers" and the keys, and three empty ones.
  EXPECT_THAT(text, HasSubstr("\nn6 "));
  EXPECT_THAT(text, Not(HasSubstr("\nn7 ")));
  EXPECT_THAT(text, HasSubstr("\nand 193 more\n"));
}

TEST(TopViewTest, ATableOmitsColumnsToFit) {
  const TopView view = View(3, 2, 0);
  for (const int columns : {20, 30, 40, 60, 80, 100}) {
    const std::vector<std::string> lines = Lines(TopAsText(view, {40, columns, true, ""}));
    // The first line is no table.
    for (size_t i = 1; i < lines.size(); ++i) {
      EXPECT_LE(DisplayWidth(lines[i]), static_cast<size_t>(columns)) << lines[i];
    }
  }
  EXPECT_THAT(TopAsText(view, {40, 20, false, ""}), HasSubstr("NODE      USED\n"));
  EXPECT_THAT(TopAsText(view, {40, 24, false, ""}), HasSubstr("NODE  STATE      USED\n"));
  EXPECT_THAT(TopAsText(view, {40, 200, false, ""}), HasSubstr("PUSHES  LABELS\n"));
}

TEST(TopViewTest, ThePlainTextHasEverything) {
  const std::string text = TopAsText(View(200, 10, 40));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 1 + 201 + 1 + 11 + 1 + 41);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(TopViewTest, JsonHasTransfersAndReductions) {
  const nlohmann::json json = TopAsJson(View(1, 2, 1));
  EXPECT_EQ(json["moving"].size(), 2u);
  EXPECT_EQ(json["moving"][1]["bytes_per_second"], 2e6);
  EXPECT_TRUE(json["moving"][1]["held_up_by"].is_null());
  EXPECT_EQ(json["reducing"][0]["state"], "folding");
}

}  // namespace
}  // namespace phalanx::runtime
