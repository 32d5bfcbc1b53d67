#include "src/directory/reductions/fold_routes.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/reduce_messages.h"

namespace phalanx::directory {

FoldRoutes::FoldRoutes(const ReductionParts& parts, FoldDispatcher& dispatcher)
    : context_(parts.context), nodes_(parts.nodes), pairs_(parts.pairs), dispatcher_(dispatcher) {}

void FoldRoutes::Apply(Reduction& reduction, const PlaceFold& effect) {
  // The fold itself takes the place of its relay there. First: the drop names the same version.
  if (IsRelay(reduction, effect.node, effect.task.version)) {
    EndRelay(reduction, effect.task.version);
  }
  const bool up = nodes_.Find(effect.node) != nullptr;
  for (const FoldInput& input : effect.task.inputs) {
    if (!up || input.kind != FoldInput::Kind::kSlot) continue;
    Choose(reduction, effect.node, effect.task.version, input, effect.task.size_bytes);
  }
  dispatcher_.Apply(reduction, effect);
}

bool FoldRoutes::Choose(Reduction& reduction, const NodeKey& parent,
                        const SlotVersion& parent_version, const FoldInput& input,
                        uint64_t size_bytes) {
  const auto found = reduction.routes.find(input.version);
  const bool had = found != reduction.routes.end();
  if (had) {
    Route& route = found->second;
    const bool same = route.parent == parent && route.child == input.node &&
                      reduction.placed.contains({route.relay, input.version});
    if (same) {
      route.parent_version = parent_version;
      return false;
    }
    EndRelay(reduction, input.version);
  }
  if (input.node == parent || !pairs_.Cut(parent, input.node, context_.now)) return had;
  // A node out of touch is about to be given up, and its folds placed elsewhere.
  const Node* child = nodes_.Find(input.node);
  if (child == nullptr || !child->connected) return had;
  const NodeKey relay = ChooseRelay(reduction, parent, input.node);
  if (!relay.valid()) return had;
  reduction.routes[input.version] = {
      parent, parent_version, input.node, relay,
      absl::StrCat(nodes_.NameOf(parent), " cannot reach ", nodes_.NameOf(input.node), " (",
                   child->info.address(), "); ", nodes_.NameOf(relay), " hands its bytes on")};
  dispatcher_.PlaceRelay(reduction, input, size_bytes, relay);
  return true;
}

NodeKey FoldRoutes::ChooseRelay(const Reduction& reduction, const NodeKey& parent,
                                const NodeKey& child) const {
  const auto cut = [this](const NodeKey& receiver, const NodeKey& sender) {
    return pairs_.Cut(receiver, sender, context_.now);
  };
  using Rank = std::tuple<int, int, NodeKey>;  // the least is the best
  std::optional<Rank> best;
  for (const auto& [key, node] : nodes_.all()) {
    if (key == parent || key == child || reduction.relays_refused.contains(key)) continue;
    if (!node->connected || node->registering || node->draining) continue;
    const bool reaches = !cut(parent, key) && !cut(key, child);
    if (!reaches && !DefectActive(Defect::kRelayAcrossCut)) continue;
    // Most cuts are of both directions.
    const int doubtful = (cut(key, parent) ? 1 : 0) + (cut(child, key) ? 1 : 0);
    const Rank rank{doubtful, LoadOf(reduction, key), key};
    if (!best.has_value() || rank < *best) best = rank;
  }
  return best.has_value() ? std::get<NodeKey>(*best) : NodeKey();
}

int FoldRoutes::LoadOf(const Reduction& reduction, const NodeKey& node) const {
  int load = 0;
  for (auto at = reduction.placed.lower_bound({node, SlotVersion()});
       at != reduction.placed.end() && at->first.first == node; ++at) {
    const FoldTask* task = reduction.plan.Find(node, at->first.second);
    load += 1 + (task == nullptr ? 1 : static_cast<int>(task->inputs.size()));
  }
  return load;
}

void FoldRoutes::EndRelay(Reduction& reduction, SlotVersion version) {
  const auto route = reduction.routes.find(version);
  const NodeKey relay = route->second.relay;
  reduction.routes.erase(route);
  // Not if the relay's node has lost it.
  if (reduction.placed.erase({relay, version}) == 0) return;
  if (!DefectActive(Defect::kRelayLeftBehind)) {
    dispatcher_.SendDrop(relay, reduction.target, version);
  }
}

const FoldInput* FoldRoutes::InputOf(const Reduction& reduction, const SlotVersion& version,
                                     const Route& route) {
  const FoldTask* task = reduction.plan.Find(route.parent, route.parent_version);
  if (task == nullptr) return nullptr;
  const auto input = std::find_if(task->inputs.begin(), task->inputs.end(), [&](const auto& one) {
    return one.kind == FoldInput::Kind::kSlot && one.version == version && one.node == route.child;
  });
  return input == task->inputs.end() ? nullptr : &*input;
}

void FoldRoutes::Refresh(Reduction& reduction) {
  std::vector<SlotVersion> versions;
  for (const auto& [version, route] : reduction.routes) versions.push_back(version);
  for (const SlotVersion& version : versions) {
    const Route route = reduction.routes.at(version);
    const FoldInput* input = InputOf(reduction, version, route);
    // A parent that is down and awaited gets its order again when it is back.
    if (input == nullptr || nodes_.Find(route.parent) == nullptr) {
      EndRelay(reduction, version);
      continue;
    }
    if (reduction.placed.contains({route.relay, version})) continue;
    if (DefectActive(Defect::kRelayNotReplaced)) continue;
    const FoldTask& task = *reduction.plan.Find(route.parent, route.parent_version);
    Choose(reduction, route.parent, task.version, *input, task.size_bytes);
    dispatcher_.Repeat(reduction, task, route.parent);
  }
}

void FoldRoutes::SessionBegins(Reduction& reduction, const NodeKey& node) {
  for (const auto& [version, route] : reduction.routes) {
    if (route.relay == node) reduction.placed.erase({node, version});
  }
}

void FoldRoutes::EndAll(Reduction& reduction) {
  while (!reduction.routes.empty()) EndRelay(reduction, reduction.routes.begin()->first);
}

bool FoldRoutes::IsRelay(const Reduction& reduction, const NodeKey& node,
                         const SlotVersion& version) {
  const auto route = reduction.routes.find(version);
  return route != reduction.routes.end() && route->second.relay == node;
}

void FoldRoutes::OnFailed(Reduction& reduction, const NodeKey& node, const SlotVersion& version,
                          const v1::FoldReport& m) {
  const NodeKey sender = FromProto(m.sender());
  const auto code = static_cast<absl::StatusCode>(m.code());
  if (!sender.valid() || !FailedPairs::IsUnreached(code)) return;
  if (DefectActive(Defect::kCutNotHeard)) return;
  pairs_.Remember(node, sender, code, context_.now);
  if (!pairs_.Cut(node, sender, context_.now)) return;
  if (IsRelay(reduction, node, version)) {
    if (reduction.routes.at(version).child == sender) LoseRelay(reduction, node, version);
    return;
  }
  const FoldTask* task = reduction.plan.Find(node, version);
  if (task == nullptr || m.input() >= task->inputs.size()) return;
  const FoldInput& input = task->inputs[m.input()];
  // The report crossed an order with another sender.
  if (input.kind != FoldInput::Kind::kSlot || reduction.SenderOf(input) != sender) return;
  if (sender != input.node) return LoseRelay(reduction, sender, input.version);
  if (Choose(reduction, node, version, input, task->size_bytes)) {
    dispatcher_.Repeat(reduction, *task, node);
  } else {
    // When the next attempt fails, all nodes are asked again.
    reduction.relays_refused.clear();
  }
}

void FoldRoutes::OnRelayRefused(Reduction& reduction, const NodeKey& node,
                                const SlotVersion& version) {
  reduction.relays_refused.insert(node);
  LoseRelay(reduction, node, version);
}

void FoldRoutes::LoseRelay(Reduction& reduction, const NodeKey& node, const SlotVersion& version) {
  reduction.placed.erase({node, version});
  dispatcher_.SendDrop(node, reduction.target, version);
}

absl::Status FoldRoutes::CheckInvariants(const Reduction& reduction) const {
  for (const auto& [version, route] : reduction.routes) {
    if (InputOf(reduction, version, route) == nullptr) {
      return absl::InternalError("a route is that of no input");
    }
    if (!reduction.placed.contains({route.relay, version})) {
      return absl::InternalError("a relay is lost and not replaced");
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
