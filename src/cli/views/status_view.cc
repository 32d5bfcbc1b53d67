#include "src/cli/views/status_view.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/cli/units.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/text_table.h"
#include "src/common/ids/ids.h"

namespace phalanx::runtime {
namespace {

constexpr int kBarCells = 10;

void Merge(const v1::NodeStatus& seen, ClusterNode& node) {
  const bool first = !node.info.has_key();
  // Each shard heard from the node at another time; the largest use is the safe one to show.
  const uint64_t used = std::max(node.info.used_bytes(), seen.info().used_bytes());
  if (first) node.info = seen.info();
  node.info.set_used_bytes(used);
  node.connected_shards += seen.connected() ? 1 : 0;
  node.draining = node.draining || seen.draining();
  node.copies += seen.copies();
  node.pulls += seen.pulls();
  node.pushes += seen.pushes();
  node.last_heard_ns =
      first ? seen.last_heard_ns() : std::min(node.last_heard_ns, seen.last_heard_ns());
}

// Sorted, because a protobuf map has no order.
std::string LabelsText(const v1::NodeInfo& info) {
  const std::map<std::string, std::string> labels(info.labels().begin(), info.labels().end());
  return Printable(absl::StrJoin(labels, ",", absl::PairFormatter("=")));
}

// A lost node stays in the table until its lease ends, so that operators see it.
std::string NodeState(const ClusterNode& node, const ClusterStatus& cluster) {
  if (node.connected_shards == 0) return "lost";
  if (node.draining) return "draining";
  // Compared with the shards that answer, so that one silent shard does not make every node look
  // bad.
  if (node.connected_shards < cluster.answering_shards()) {
    return absl::StrCat(node.connected_shards, " of ", cluster.answering_shards(), " shards");
  }
  return "up";
}

// Numbers are texts here, because the table aligns cells by their width.
std::vector<std::string> NodeRow(const ClusterNode& node, const ClusterStatus& cluster,
                                 bool colours) {
  const double capacity = static_cast<double>(node.info.capacity_bytes());
  const double used = static_cast<double>(node.info.used_bytes());
  const std::string state = NodeState(node, cluster);
  return {Printable(node.info.name()),
          Printable(node.info.address()),
          Painted(state,
                  state == "up"     ? Colour::kGreen
                  : state == "lost" ? Colour::kRed
                                    : Colour::kYellow,
                  colours),
          DrawBar(capacity > 0 ? used / capacity : 0, kBarCells, true),
          HumanBytes(node.info.used_bytes()),
          HumanBytes(node.info.capacity_bytes()),
          absl::StrCat(node.copies),
          absl::StrCat(node.pulls),
          absl::StrCat(node.pushes),
          LabelsText(node.info)};
}

nlohmann::json NodeAsJson(const ClusterNode& node) {
  nlohmann::json labels = nlohmann::json::object();
  // Labels come from other hosts, so they must not control the terminal.
  for (const auto& [key, value] : node.info.labels()) labels[Printable(key)] = Printable(value);
  return {{"name", Printable(node.info.name())},
          {"address", Printable(node.info.address())},
          {"labels", std::move(labels)},
          {"connected_shards", node.connected_shards},
          {"draining", node.draining},
          {"capacity_bytes", node.info.capacity_bytes()},
          {"used_bytes", node.info.used_bytes()},
          {"copies", node.copies},
          {"pulls", node.pulls},
          {"pushes", node.pushes},
          {"process_id", node.info.process_id()},
          {"last_heard_s", static_cast<double>(node.last_heard_ns) / 1e9}};
}

// A shard that does not answer has only its error, so that no stale number is shown.
nlohmann::json ShardAsJson(const ClusterShard& shard) {
  if (!shard.status.ok()) {
    return {{"address", shard.address}, {"ok", false}, {"error", shard.status.ToString()}};
  }
  nlohmann::json counters = nlohmann::json::object();
  for (const auto& [name, value] : shard.answer.counters()) counters[name] = value;
  return {
      {"address", shard.address},
      {"ok", true},
      {"index", shard.answer.shard_index()},
      {"incarnation", absl::StrCat(absl::Hex(shard.answer.shard_incarnation(), absl::kZeroPad16))},
      {"uptime_s", static_cast<double>(shard.answer.uptime_ns()) / 1e9},
      {"objects", shard.answer.objects()},
      {"tombstones", shard.answer.tombstones()},
      {"inline_bytes", shard.answer.inline_bytes()},
      {"waiting", shard.answer.waiting()},
      {"counters", std::move(counters)}};
}

}  // namespace

int ClusterStatus::answering_shards() const {
  return static_cast<int>(std::count_if(
      shards.begin(), shards.end(), [](const ClusterShard& shard) { return shard.status.ok(); }));
}

int ClusterStatus::connected_nodes() const {
  // While a shard is silent, its view of the nodes is unknown.
  if (answering_shards() != static_cast<int>(shards.size())) return 0;
  return static_cast<int>(
      std::count_if(nodes.begin(), nodes.end(), [this](const ClusterNode& node) {
        return node.connected_shards == static_cast<int>(shards.size());
      }));
}

uint64_t ClusterStatus::objects() const {
  uint64_t sum = 0;
  for (const ClusterShard& shard : shards) sum += shard.answer.objects();
  return sum;
}

absl::Status ClusterStatus::status() const {
  // All addresses are named: an operator must not fix one shard to learn about the next.
  std::vector<std::string> silent;
  absl::Status first;
  for (const ClusterShard& shard : shards) {
    first.Update(shard.status);
    if (!shard.status.ok()) silent.push_back(shard.address);
  }
  if (silent.size() <= 1) return first;
  return absl::Status(first.code(), absl::StrCat("shards ", absl::StrJoin(silent, ", "),
                                                 " do not answer; the first: ", first.message()));
}

ClusterStatus MergeStatus(const std::vector<std::string>& addresses,
                          std::vector<absl::StatusOr<v1::GetStatusResponse>> answers) {
  ClusterStatus cluster;
  std::map<NodeKey, ClusterNode> nodes;
  for (size_t i = 0; i < answers.size(); ++i) {
    ClusterShard shard{addresses[i], answers[i].status(), {}};
    if (answers[i].ok()) {
      for (const v1::NodeStatus& seen : answers[i]->nodes()) {
        // By incarnation too: a restarted node can appear beside its former life for a moment.
        Merge(seen, nodes[NodeKey{seen.info().key().node(), seen.info().key().incarnation()}]);
      }
      shard.answer = *std::move(answers[i]);
    }
    cluster.shards.push_back(std::move(shard));
  }
  for (auto& [key, node] : nodes) cluster.nodes.push_back(std::move(node));
  // Sorted here, because each shard lists the nodes in its own order.
  std::stable_sort(cluster.nodes.begin(), cluster.nodes.end(),
                   [](const ClusterNode& a, const ClusterNode& b) {
                     return CompareNaturally(a.info.name(), b.info.name()) < 0;
                   });
  return cluster;
}

nlohmann::json StatusAsJson(const ClusterStatus& cluster) {
  nlohmann::json json = {{"connected_nodes", cluster.connected_nodes()},
                         {"objects", cluster.objects()},
                         {"shards", nlohmann::json::array()},
                         {"nodes", nlohmann::json::array()}};
  for (const ClusterShard& shard : cluster.shards) json["shards"].push_back(ShardAsJson(shard));
  for (const ClusterNode& node : cluster.nodes) json["nodes"].push_back(NodeAsJson(node));
  return json;
}

std::string SummaryAsText(const ClusterStatus& cluster, bool colours) {
  std::string text;
  // Sums over the shards that answered.
  uint64_t waiting = 0;
  absl::Duration uptime;
  for (const ClusterShard& shard : cluster.shards) {
    waiting += shard.answer.waiting();
    uptime = std::max(uptime, absl::Nanoseconds(shard.answer.uptime_ns()));
    if (shard.status.ok()) continue;
    const std::string error =
        absl::StrCat("shard at ", shard.address, ": ", shard.status.message());
    absl::StrAppend(&text, Painted(error, Colour::kRed, colours), "\n");
  }
  absl::StrAppend(&text, cluster.answering_shards(), " of ", cluster.shards.size(),
                  " shards up for ", HumanDuration(uptime), ", ", cluster.nodes.size(), " nodes, ",
                  cluster.objects(), " objects, ", waiting, " waiting\n");
  return text;
}

std::string NodesAsTable(const ClusterStatus& cluster, bool colours, size_t columns) {
  std::vector<std::vector<std::string>> rows = {Heading(
      {"NODE", "ADDRESS", "STATE", "MEMORY", "USED", "OF", "COPIES", "PULLS", "PUSHES", "LABELS"},
      colours)};
  for (const ClusterNode& node : cluster.nodes) rows.push_back(NodeRow(node, cluster, colours));
  // A pane without room keeps the name, the state and the memory in use.
  return AlignColumns(
      rows, {false, false, false, false, true, true, true, true, true},
      {columns, {"LABELS", "ADDRESS", "MEMORY", "OF", "PUSHES", "PULLS", "COPIES", "STATE"}});
}

std::string StatusAsText(const ClusterStatus& cluster, bool colours) {
  const std::string summary = SummaryAsText(cluster, colours);
  // A new cluster has no nodes; a table with only a heading would confuse.
  if (cluster.nodes.empty()) return summary;
  return absl::StrCat(summary, "\n", NodesAsTable(cluster, colours, TableWidth().cells));
}

}  // namespace phalanx::runtime
