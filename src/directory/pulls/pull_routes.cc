#include "src/directory/pulls/pull_routes.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::directory {
namespace {

// Nodes compared when a relay is chosen.
constexpr int kMaxCompared = 64;
// In a broadcast to thousands of nodes hardly any could be a relay.
constexpr size_t kMaxVisited = 1024;

const RelayTree::Member* MemberOf(const Object& object, const NodeKey& node) {
  return object.trees.first == nullptr ? nullptr : object.trees.first->Find(node);
}

const RelayTree::Member* SenderOf(const Object& object, const NodeKey& receiver) {
  const RelayTree::Member* member = MemberOf(object, receiver);
  return member == nullptr ? nullptr : member->sender();
}

// Returns true if the member's pull brought bytes when its node last reported. A connection from
// before a cut can still work: a probe reports that new ones do not come up.
bool Receives(const RelayTree::Member* member) {
  return member != nullptr && member->sender() != nullptr && member->progress.bytes_per_second > 0;
}

bool CanSend(const RelayTree::Member* member) {
  return member != nullptr && member->rooted() && member->connected;
}

}  // namespace

NodeKey PullRoutes::Unreached(const Object& object, const NodeKey& node) const {
  // Nearly always.
  if (planner_.pairs().empty() || object.trees.first == nullptr) return NodeKey();
  const RelayTree::Index* index = object.trees.first->Candidates(Nearness::kWorld, 1);
  if (index == nullptr) return NodeKey();
  NodeKey unreached;
  // Ends at the first that is not cut, so it visits no more nodes than have failed this one.
  for (const RelayTree::Key& key : *index) {
    const NodeKey& sender = key.member->endpoint.node;
    if (sender == node) continue;
    if (!Cut(node, sender)) return NodeKey();
    if (!unreached.valid()) unreached = sender;
  }
  return unreached;
}

bool PullRoutes::Around(Object& object, const NodeKey& receiver) {
  if (!Isolated(object, receiver)) return false;
  const auto known = routing_.find(object.id);
  // A relay that reaches no holder is given up by Refresh.
  if (known != routing_.end() && known->second.relays.contains(receiver)) return false;
  Routing& routing = known != routing_.end() ? known->second : routing_[object.id];
  Route& route = routing.receivers[receiver];
  route.holder = Unreached(object, receiver);
  Renew(object, routing, receiver);
  return route.relay.valid();
}

void PullRoutes::Renew(Object& object, Routing& routing, const NodeKey& receiver) {
  Route& route = routing.receivers.at(receiver);
  if (route.relay.valid()) {
    if (Works(object, receiver, route.relay, routing.relays.at(route.relay))) return;
    if (DefectActive(Defect::kPullRelayNotReplaced)) return;
    route.tried.insert(std::exchange(route.relay, NodeKey()));
  }
  if (route.search_at <= context_.now) Choose(object, routing, receiver);
}

void PullRoutes::Choose(Object& object, Routing& routing, const NodeKey& receiver) {
  Route& route = routing.receivers.at(receiver);
  for (auto& [relay, order] : routing.relays) {
    if (route.tried.contains(relay) || !Works(object, receiver, relay, order)) continue;
    route.relay = relay;
    return;
  }
  const NodeKey relay = ChooseAmongNodes(object, receiver, route);
  route.relay = relay;
  const Instant due = context_.now + context_.options.lease;
  if (!relay.valid()) {
    // Without the pause, a node that refuses at once would be asked again at once.
    route.search_at = due;
    route.tried.clear();
    return;
  }
  routing.relays[relay] = {context_.NewPlan(), due};
  outbox_.SendFetch(relay, object.id, context_.last_plan, /*keep=*/false);
  ++context_.counters.pulls_relayed;
  objects_.SetTimer(object, due);
}

bool PullRoutes::CanRelay(const Object& object, const NodeKey& receiver, const Node& node) const {
  if (!node.connected || node.registering || node.key == receiver) return false;
  // A node with a part in the object is a sender already, or is not going to be one.
  if (object.wants.contains(node.key)) return false;
  if (routing_.at(object.id).relays.contains(node.key)) return false;
  // Another order is on its way, and a node answers only the last one by its number.
  if (object.drain_target == node.key || placements_.IsOrdered(object.id, node.key)) return false;
  const auto copy = object.copies.find(node.key);
  if (copy != object.copies.end() && (copy->second.complete() || copy->second.writing())) {
    return false;
  }
  const uint64_t capacity = node.info.capacity_bytes();
  // It may have to evict for it; a node that cannot refuses.
  if (capacity != 0 && capacity < object.info.size_bytes) return false;
  return !Cut(receiver, node.key) && !Unreached(object, node.key).valid();
}

NodeKey PullRoutes::ChooseAmongNodes(const Object& object, const NodeKey& receiver,
                                     const Route& route) const {
  using Rank = std::tuple<bool, int, Nearness, int>;  // the least is the best
  std::optional<Rank> best;
  NodeKey relay;
  const Node& to = *nodes_.Find(receiver);
  const auto& nodes = nodes_.all();
  // Begins at another node for each object, so that a large cluster does not always use the same
  // few; the same in every replay.
  auto at = nodes.lower_bound(NodeKey{object.id.ShardHash(), 0});
  int compared = 0;
  for (size_t i = 0; i < std::min(nodes.size(), kMaxVisited) && compared < kMaxCompared;
       ++i, ++at) {
    if (at == nodes.end()) at = nodes.begin();
    const auto& [key, node] = *at;
    if (route.tried.contains(key) || !CanRelay(object, receiver, *node)) continue;
    ++compared;
    // Most cuts are of both directions.
    const int doubtful = (Cut(key, receiver) ? 1 : 0) + (Cut(route.holder, key) ? 1 : 0);
    const Rank rank{node->draining, doubtful,
                    NearnessOf(node->endpoint.locality, to.endpoint.locality),
                    planner_.Pushes(key) + planner_.Pulls(key)};
    if (best.has_value() && !(rank < *best)) continue;
    best = rank;
    relay = key;
  }
  return relay;
}

bool PullRoutes::Needed(const Object& object, const NodeKey& receiver, const Route& route) const {
  const auto want = object.wants.find(receiver);
  if (want == object.wants.end() || object.LacksRoom(want->second)) return false;
  const RelayTree::Member* sender = SenderOf(object, receiver);
  if (sender == nullptr) return !want->second.outside_sender.valid();
  // Otherwise another sender was found meanwhile.
  const NodeKey& from = sender->endpoint.node;
  return from == route.relay || Cut(receiver, from);
}

bool PullRoutes::Works(const Object& object, const NodeKey& receiver, const NodeKey& relay,
                       Order& order) const {
  if (nodes_.Find(relay) == nullptr) return false;
  const RelayTree::Member* member = MemberOf(object, relay);
  const bool feeds = member != nullptr && SenderOf(object, receiver) == member &&
                     Receives(MemberOf(object, receiver));
  if (!feeds && Cut(receiver, relay)) return false;
  const bool fed = member != nullptr && (member->complete() || Receives(member));
  const RelayTree::Member* sender = SenderOf(object, relay);
  const bool stuck = sender != nullptr && Cut(relay, sender->endpoint.node);
  if (!fed && (stuck || Unreached(object, relay).valid())) return false;
  // It has evicted its copy.
  if (order.sent && member == nullptr && !object.wants.contains(relay)) return false;
  // A relay that has lost its sender can get another one.
  if (CanSend(member)) order = {order.plan, context_.now + context_.options.lease, true};
  return order.due > context_.now;
}

void PullRoutes::OnRefused(Object& object, const NodeKey& node, PlanId plan) {
  const auto found = routing_.find(object.id);
  if (found == routing_.end()) return;
  Routing& routing = found->second;
  const auto order = routing.relays.find(node);
  if (order == routing.relays.end() || (plan != 0 && plan != order->second.plan)) return;
  // A node that merely has no room for it would fetch it later.
  EndOrder(object, node, order->second);
  routing.relays.erase(order);
  for (auto& [receiver, route] : routing.receivers) {
    if (route.relay != node) continue;
    route.relay = NodeKey();
    route.tried.insert(node);
  }
}

void PullRoutes::Refresh(Object& object) {
  const auto found = routing_.find(object.id);
  if (found == routing_.end()) return;
  Routing& routing = found->second;
  for (auto at = routing.receivers.begin(); at != routing.receivers.end();) {
    const auto& [receiver, route] = *at;
    if (!object.adopted() || !Needed(object, receiver, route)) {
      at = routing.receivers.erase(at);
      continue;
    }
    if (route.relay.valid()) Renew(object, routing, receiver);
    ++at;
  }
  EndIdleRelays(object, routing);
  // The object has one timer, which can have fired for something else.
  for (const auto& [relay, order] : routing.relays) {
    if (order.due > context_.now) objects_.SetTimer(object, order.due);
  }
  if (routing.receivers.empty() && routing.relays.empty()) routing_.erase(found);
}

void PullRoutes::EndIdleRelays(const Object& object, Routing& routing) {
  absl::btree_set<NodeKey> needed;
  for (const auto& [receiver, route] : routing.receivers) needed.insert(route.relay);
  for (auto at = routing.relays.begin(); at != routing.relays.end();) {
    const auto& [relay, order] = *at;
    const RelayTree::Member* member = MemberOf(object, relay);
    // Other nodes were assigned to it, too.
    const bool feeds = CanSend(member) && member->first_receiver != nullptr;
    if (needed.contains(relay) || (feeds && !Unreached(object, relay).valid())) {
      ++at;
      continue;
    }
    EndOrder(object, relay, order);
    at = routing.relays.erase(at);
  }
}

void PullRoutes::EndOrder(const Object& object, const NodeKey& relay, const Order& order) {
  if (nodes_.Find(relay) == nullptr || DefectActive(Defect::kPullRelayLeftBehind)) return;
  outbox_.SendFetchEnd(relay, object.id, order.plan);
}

void PullRoutes::EndAll(const Object& object) {
  const auto found = routing_.find(object.id);
  if (found == routing_.end()) return;
  for (const auto& [relay, order] : found->second.relays) EndOrder(object, relay, order);
  routing_.erase(found);
}

std::vector<NodeKey> PullRoutes::Ready(const Object& object) const {
  std::vector<NodeKey> ready;
  const auto found = routing_.find(object.id);
  if (found == routing_.end()) return ready;
  for (const auto& [receiver, route] : found->second.receivers) {
    const RelayTree::Member* sender = SenderOf(object, receiver);
    const bool fed = sender != nullptr && sender->endpoint.node == route.relay;
    const bool sends = route.relay.valid() && CanSend(MemberOf(object, route.relay));
    const bool alone = !route.relay.valid() && sender == nullptr;
    if ((sends && !fed) || alone) ready.push_back(receiver);
  }
  return ready;
}

std::vector<std::string> PullRoutes::TroublesOf(const Object& object, size_t most) const {
  std::vector<std::string> troubles;
  const auto found = routing_.find(object.id);
  if (found == routing_.end()) return troubles;
  for (const auto& [receiver, route] : found->second.receivers) {
    if (troubles.size() < most) troubles.push_back(Describe(receiver, route));
  }
  return troubles;
}

std::string PullRoutes::Describe(const NodeKey& receiver, const Route& route) const {
  const Node* holder = nodes_.Find(route.holder);
  const std::string address =
      holder == nullptr ? "" : absl::StrCat(" (", holder->info.address(), ")");
  const std::string relay = route.relay.valid()
                                ? absl::StrCat(nodes_.NameOf(route.relay), " hands its bytes on")
                                : "no other node is known to reach both";
  return absl::StrCat(nodes_.NameOf(receiver), " cannot reach ", nodes_.NameOf(route.holder),
                      address, "; ", relay);
}

absl::Status PullRoutes::CheckInvariants() const {
  for (const auto& [id, routing] : routing_) {
    const Object* object = objects_.Find(id);
    if (object == nullptr) return absl::InternalError("routes of no object");
    for (const auto& [receiver, route] : routing.receivers) {
      if (!object->wants.contains(receiver)) return Broken(*object, "a route without a want");
      if (routing.relays.contains(receiver)) return Broken(*object, "a relay has a relay");
      if (route.relay.valid() && !routing.relays.contains(route.relay)) {
        return Broken(*object, "a relay has no order");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
