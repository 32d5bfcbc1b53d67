#include "src/directory/reductions/tree_plan/star_fold.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"

namespace phalanx::directory {

bool StarFold::Pays() const {
  const uint64_t slots = table_.wanted();
  const uint64_t bytes = inputs_.size_bytes;
  // The shard keeps the bytes of an object up to kMaxInlineBytes only.
  if (bytes > kMaxInlineBytes || slots * bytes > kMaxBytes) return false;
  const ReduceCosts& costs = inputs_.costs;
  const int degree = ChooseDegree(static_cast<int>(slots), bytes, costs);
  const absl::Duration star =
      absl::Seconds(static_cast<double>(slots * bytes) / costs.bytes_per_second);
  // Both begin with an order. In a tree, two more round trips follow: slots pull the outputs below
  // them, and the root reports that it is ready and waits for the commit.
  const absl::Duration round_trips = 4 * costs.latency;
  return star <= ReduceTime(static_cast<int>(slots), degree, bytes, costs) + round_trips;
}

NodeKey StarFold::ChooseNode() const {
  if (inputs_.root_up) return inputs_.root;
  // The node that has the fold from before a restart keeps it.
  if (!restored_.empty()) return restored_.first_node();
  const SourceTable::Source* first = table_.FirstSeatable();
  return first == nullptr ? NodeKey() : BestHolder(*first->state).node;
}

bool StarFold::Usable(const SourceTable::Source& source, const NodeKey& node) const {
  return source.state && (source.state->has_inline || HoldsComplete(*source.state, node));
}

bool StarFold::HasEnough(const NodeKey& node) {
  const int end = table_.EligibleEnd();
  if (node != node_ || end != end_) {
    node_ = node;
    end_ = end;
    usable_ = 0;
    table_.CountExamined(end);
    for (int i = 0; i < end; ++i) usable_ += Counts(i) ? 1 : 0;
  }
  return usable_ >= table_.wanted();
}

// In the order of the fold.
std::vector<int> StarFold::UsableSources(const NodeKey& node) const {
  std::vector<int> order;
  const int end = table_.EligibleEnd();
  table_.CountExamined(end);
  for (int i = 0; i < end; ++i) {
    if (Usable(table_[i], node)) order.push_back(i);
  }
  if (inputs_.spec.order == ReduceSpec::Order::kFixed) return order;
  // After a restart the sources of the old fold come first, in its order: the same inputs in the
  // same order have the same version, and the node need not start over.
  std::vector<int> before;
  if (!restored_.empty()) before = restored_.first_sources();
  const auto rank = [&](int source) {
    const auto it = std::find(before.begin(), before.end(), source);
    return std::make_pair(it - before.begin(), table_[source].arrival);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  const auto wanted = static_cast<size_t>(table_.wanted());
  if (order.size() > wanted) order.resize(wanted);
  return order;
}

std::optional<StarFold::Placement> StarFold::FindPlacement() {
  const NodeKey node = ChooseNode();
  if (!node.valid() || !HasEnough(node)) return std::nullopt;
  std::vector<int> sources = UsableSources(node);
  if (sources.size() < static_cast<size_t>(table_.wanted())) return std::nullopt;
  return Placement{node, std::move(sources)};
}

void StarFold::Place(const Placement& placement) {
  FoldTask task;
  task.size_bytes = inputs_.size_bytes;
  task.planned = table_.wanted();
  task.root = true;
  // No input can be lost any more, so the node need not wait for a CommitFold.
  task.committed = true;
  VersionText text = versions_.Begin(/*root=*/true);
  for (size_t i = 0; i < placement.sources.size(); ++i) {
    const int index = placement.sources[i];
    const SourceTable::Source& source = table_[index];
    const bool held = HoldsComplete(*source.state, placement.node);
    const Generation& generation = source.state->generation;
    task.inputs.push_back({held ? FoldInput::Kind::kSource : FoldInput::Kind::kInline, source.id,
                           generation, NodeKey()});
    task.reduced_from.push_back(source.id);
    text.AddStarSource(held, source.id, generation);
    table_.TakeSeat(index, {0, static_cast<int>(i)});
  }
  task.version = versions_.OfRoot(std::move(text), placement.node);
  task.metadata = table_.SeatedMetadata();
  ledger_.Place(fold_, placement.node, std::move(task));
}

absl::Status StarFold::CheckInvariants() const {
  int usable = 0;
  for (int i = 0; i < end_; ++i) usable += Counts(i) ? 1 : 0;
  if (usable != usable_) return absl::InternalError("the sources of a star are miscounted");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
