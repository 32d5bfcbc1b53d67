// Short names for sources, nodes and costs, and the folds that nodes have which follow a
// ReducePlan. Testonly.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_HARNESS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_HARNESS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory::testing {

// Larger than what travels inline.
inline constexpr uint64_t kLarge = 1 << 20;

inline ObjectId Target() { return ObjectId::FromName("reduce", "target"); }
inline ObjectId Source(int i) { return ObjectId::FromName("reduce", absl::StrCat("source ", i)); }
inline std::vector<ObjectId> Sources(int begin, int end) {
  std::vector<ObjectId> sources;
  for (int i = begin; i < end; ++i) sources.push_back(Source(i));
  return sources;
}
inline NodeKey Node(int i) { return {static_cast<uint64_t>(i), 1}; }
inline Generation Attempt(int source, int attempt = 1) {
  return {Node(1000 + source), static_cast<uint64_t>(attempt)};
}
// A version that no plan computes, another one for each node.
inline SlotVersion OtherVersion(int node) { return SlotVersion::FromGeneration({Node(node), 1}); }

// Source `i`, complete on the nodes.
inline ReduceSource On(int i, const std::vector<int>& nodes, uint64_t size = kLarge,
                       int attempt = 1) {
  ReduceSource state;
  state.generation = Attempt(i, attempt);
  state.size_bytes = size;
  for (const int node : nodes) state.holders.push_back({Node(node), true, ""});
  return state;
}

// All its nodes have slow links.
inline ReduceSource Slow(ReduceSource state, double speed = 0.1) {
  for (ReduceSource::Holder& holder : state.holders) holder.speed = speed;
  return state;
}

inline ReduceSource Inline(ReduceSource state) {
  state.has_inline = true;
  return state;
}

inline ReduceSpec SumOf(int sources, int num_objects = 0) {
  ReduceSpec spec;
  spec.num_objects = num_objects;
  spec.sources = Sources(0, sources);
  return spec;
}

inline ReduceSpec InOrder(ReduceSpec spec) {
  spec.order = ReduceSpec::Order::kFixed;
  return spec;
}

// A hop costs as much as `bytes` on a link.
inline ReduceCosts HopCosts(double bytes) {
  return {.latency = absl::Seconds(bytes / 1e9),
          .bytes_per_second = 1e9,
          .fold_per_second = 1e10,
          .segment_bytes = 1};
}

// Returns costs by which a tree of so many slots has that degree, or nothing if there are none.
inline std::optional<ReduceCosts> CostsFor(int slots, int degree, uint64_t size = kLarge) {
  for (double hop = 1; hop < 1e12; hop *= 1.2) {
    if (ChooseDegree(slots, size, HopCosts(hop)) == degree) return HopCosts(hop);
  }
  return std::nullopt;
}

// The folds that nodes have after the effects of a plan.
class Folds {
 public:
  // Returns the first violation: a fold that is dropped or committed must have been placed.
  absl::Status Apply(const std::vector<ReduceEffect>& effects) {
    placed.clear();
    dropped = 0;
    for (const ReduceEffect& effect : effects) {
      if (const auto* place = std::get_if<PlaceFold>(&effect)) {
        at[{place->node, place->task.version}] = place->task;
        placed.push_back(*place);
      } else if (const auto* drop = std::get_if<DropFold>(&effect)) {
        ++dropped;
        if (at.erase({drop->node, drop->version}) == 0) {
          return absl::InternalError("a fold was dropped that was not placed");
        }
      } else if (const auto* commit = std::get_if<CommitFold>(&effect)) {
        commits.push_back(*commit);
        const auto it = at.find({commit->node, commit->version});
        if (it == at.end() || !it->second.root) {
          return absl::InternalError("what was committed is not the root");
        }
      } else {
        if (ended) return absl::InternalError("the reduction has ended twice");
        ended = std::get<EndReduction>(effect).why;
        if (!at.empty()) return absl::InternalError("folds were left behind at the end");
      }
    }
    return absl::OkStatus();
  }

  // Returns the node and task of the slot, if exactly one node has the slot.
  std::optional<std::pair<NodeKey, FoldTask>> Slot(int slot) const {
    std::optional<std::pair<NodeKey, FoldTask>> found;
    for (const auto& [where, task] : at) {
      if (task.slot != slot) continue;
      if (found) return std::nullopt;
      found.emplace(where.first, task);
    }
    return found;
  }
  std::optional<std::pair<NodeKey, FoldTask>> Root() const {
    std::optional<std::pair<NodeKey, FoldTask>> found;
    for (const auto& [where, task] : at) {
      if (!task.root) continue;
      if (found) return std::nullopt;
      found.emplace(where.first, task);
    }
    return found;
  }

  std::map<std::pair<NodeKey, SlotVersion>, FoldTask> at;
  std::vector<CommitFold> commits;
  std::optional<absl::Status> ended;
  // Placed by the last effects.
  std::vector<PlaceFold> placed;
  int dropped = 0;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_HARNESS_H_
