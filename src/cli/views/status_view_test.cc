#include "src/cli/views/status_view.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::StatusIs;

v1::GetStatusResponse Shard(uint32_t index) {
  v1::GetStatusResponse shard;
  shard.set_shard_index(index);
  shard.set_num_shards(2);
  shard.set_uptime_ns(7'500'000'000 + index * 1'000'000'000);
  shard.set_objects(10 + index);
  shard.set_waiting(2);
  (*shard.mutable_counters())["sessions_opened"] = 3;
  return shard;
}

v1::NodeStatus& AddNode(v1::GetStatusResponse& shard, uint64_t number, bool connected) {
  v1::NodeStatus& node = *shard.add_nodes();
  node.mutable_info()->mutable_key()->set_node(number);
  node.mutable_info()->set_name(absl::StrCat("n", number));
  node.mutable_info()->set_address(absl::StrCat("10.0.0.", number, ":7411"));
  node.mutable_info()->set_capacity_bytes(1 << 30);
  node.mutable_info()->set_used_bytes(256 << 20);
  (*node.mutable_info()->mutable_labels())["zone"] = "a";
  node.set_connected(connected);
  node.set_copies(4);
  node.set_pulls(1);
  node.set_last_heard_ns(1'000'000'000 * number);
  return node;
}

ClusterStatus TwoShards() {
  v1::GetStatusResponse first = Shard(0), second = Shard(1);
  AddNode(first, 10, true);
  AddNode(first, 2, true);
  AddNode(first, 3, false);
  AddNode(second, 2, true).set_draining(true);
  AddNode(second, 10, false).mutable_info()->set_used_bytes(512 << 20);
  return MergeStatus({"h0:7400", "h1:7400"}, {first, second});
}

TEST(StatusViewTest, ShardsAndNodesAreShownTogether) {
  EXPECT_EQ(StatusAsText(TwoShards()),
            "2 of 2 shards up for 8.50 s, 3 nodes, 21 objects, 4 waiting\n"
            "\n"
            "NODE  ADDRESS         STATE          MEMORY         USED        OF  COPIES  PULLS  "
            "PUSHES  LABELS\n"
            "n2    10.0.0.2:7411   draining       ██▌         256 MiB  1.00 GiB       8      2  "
            "     0  zone=a\n"
            "n3    10.0.0.3:7411   lost           ██▌         256 MiB  1.00 GiB       4      1  "
            "     0  zone=a\n"
            "n10   10.0.0.10:7411  1 of 2 shards  █████       512 MiB  1.00 GiB       8      2  "
            "     0  zone=a\n");
}

TEST(StatusViewTest, CountsNodesThatAreConnectedToEveryShard) {
  EXPECT_EQ(TwoShards().connected_nodes(), 1);
  PHALANX_EXPECT_OK(TwoShards().status());
}

TEST(StatusViewTest, NamesAShardThatDoesNotAnswer) {
  v1::GetStatusResponse first = Shard(0);
  AddNode(first, 1, true);
  const ClusterStatus cluster =
      MergeStatus({"h0:7400", "h1:7400"}, {first, absl::UnavailableError("h1:7400: refused")});
  EXPECT_EQ(cluster.connected_nodes(), 0);
  EXPECT_THAT(cluster.status(), StatusIs(absl::StatusCode::kUnavailable, "h1:7400: refused"));
  EXPECT_EQ(StatusAsText(cluster).substr(0, 36), "shard at h1:7400: h1:7400: refused\n1");
  const nlohmann::json json = StatusAsJson(cluster);
  EXPECT_TRUE(json["shards"][0]["ok"]);
  EXPECT_FALSE(json["shards"][1]["ok"]);
}

TEST(StatusViewTest, NamesAllSilentShards) {
  const ClusterStatus cluster =
      MergeStatus({"h0:7400", "h1:7400"},
                  {absl::UnavailableError("refused"), absl::UnavailableError("silent")});
  EXPECT_THAT(cluster.status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "shards h0:7400, h1:7400 do not answer; the first: refused"));
}

TEST(StatusViewTest, JsonHasTheFieldsOfTheTable) {
  const nlohmann::json json = StatusAsJson(TwoShards());
  EXPECT_EQ(json["connected_nodes"], 1);
  EXPECT_EQ(json["objects"], 21);
  EXPECT_EQ(json["shards"][1]["index"], 1);
  EXPECT_EQ(json["shards"][0]["counters"]["sessions_opened"], 3);
  EXPECT_EQ(json["nodes"][0]["name"], "n2");
  EXPECT_EQ(json["nodes"][0]["labels"]["zone"], "a");
  EXPECT_EQ(json["nodes"][2]["used_bytes"], 512 << 20);
  EXPECT_EQ(json["nodes"][2]["connected_shards"], 1);
}

}  // namespace
}  // namespace phalanx::runtime
