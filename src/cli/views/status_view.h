// The state of the whole cluster, merged from the answers of its shards. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_STATUS_VIEW_H_
#define PHALANX_CLI_VIEWS_STATUS_VIEW_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// A node as all shards together report it.
struct ClusterNode {
  v1::NodeInfo info;
  // The number of answering shards with a live stream to the node.
  int connected_shards = 0;
  bool draining = false;
  uint64_t copies = 0;
  uint64_t pulls = 0;
  uint64_t pushes = 0;
  uint64_t last_heard_ns = 0;  // by the shard that heard from it last
};

struct ClusterShard {
  std::string address;
  // The error of a shard that did not answer.
  absl::Status status;
  v1::GetStatusResponse answer;
};

struct ClusterStatus {
  std::vector<ClusterShard> shards;
  std::vector<ClusterNode> nodes;  // in natural order of their names

  int answering_shards() const;
  // The number of nodes with a live stream to every shard; 0 while a shard does not answer.
  int connected_nodes() const;
  uint64_t objects() const;
  // OK, or the first error; names the shards that did not answer.
  absl::Status status() const;
};

// `answers`: one per address, in the same order.
ClusterStatus MergeStatus(const std::vector<std::string>& addresses,
                          std::vector<absl::StatusOr<v1::GetStatusResponse>> answers);

nlohmann::json StatusAsJson(const ClusterStatus& cluster);

// The first line, after one for each shard that does not answer.
std::string SummaryAsText(const ClusterStatus& cluster, bool colours);

// A heading, and a line per node, which can be narrower.
std::string NodesAsTable(const ClusterStatus& cluster, bool colours, size_t columns);

// Text for people: the summary, then the nodes.
std::string StatusAsText(const ClusterStatus& cluster, bool colours = false);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_STATUS_VIEW_H_
