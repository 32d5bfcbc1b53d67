#include "src/directory/placement/placement_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

// Refusing nodes that one answer names.
constexpr size_t kMaxRefusersNamed = 16;
// Stamps that one life of the shard can mint, as a logarithm to base 2.
constexpr int kStampBitsPerLife = 32;

}  // namespace

std::vector<BroadcastEffect> PlacementTable::TakeEffects() { return std::exchange(effects_, {}); }

// ---- requests and policies

absl::Status PlacementTable::Begin(const ObjectId& id, const Requester& requester, uint32_t arrived,
                                   absl::btree_set<NodeKey> missing, Lacks lacks) {
  // All limits are checked before anything changes, so that an error starts nothing.
  if (requests_ >= limits_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard has ", requests_, " broadcasts under way already"));
  }
  const PlacementPolicy* known = PolicyOf(id);
  PlacementPolicy policy = known == nullptr ? PlacementPolicy() : *known;
  const size_t named = policy.nodes.size();
  // A repeated request brings the policy that it made (Merge). If it extended the policy again, it
  // would undo a stop that came in between.
  const bool sticky = requester.sticky && !requester.already_started;
  if (sticky) policy.nodes.insert(requester.names.begin(), requester.names.end());
  // "*" includes every name, so that the names do not count against the limit.
  if (policy.nodes.contains("*")) policy.nodes = {"*"};
  // A policy that only an earlier life minted gets a new stamp even if it names the same nodes: a
  // holder that is away may know a later one.
  const bool changed =
      sticky && (known == nullptr || policy.nodes != known->nodes || !records_.at(id).minted);
  if (policy.nodes.size() > kMaxNamedNodes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it is sticky for ", named, " names, of which there may be ", kMaxNamedNodes));
  }
  if (changed && named == 0 && sticky_ >= limits_.max_sticky) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard has ", sticky_, " sticky broadcasts already"));
  }
  const Records::iterator at = records_.try_emplace(id).first;
  Record& record = at->second;
  if (changed) {
    policy.stamp = MintStamp();
    SetPolicy(id, record, std::move(policy), /*minted=*/true);
    effects_.push_back(AnnouncePolicy{id, std::nullopt});
  }
  active_.insert(id);
  nodes_[requester.node].linked.insert(id);
  // A new request asks the nodes again that refused an earlier order.
  for (const NodeKey& key : missing) {
    nodes_[key].linked.insert(id);
    record.refused.erase(key);
  }
  if (!requester.already_started && !missing.empty()) {
    PlacementPolicy announced = requester.sticky ? record.policy : PlacementPolicy();
    effects_.push_back(ConfirmStart{requester.node, requester.request_id, std::move(announced)});
  }
  record.waiting.push_back(
      Waiting{requester.node, requester.request_id, std::move(missing), arrived});
  ++requests_;
  OrderAll(id, record, lacks);
  // If no node is missing, the request is answered in this turn and keeps no record.
  AnswerCompleted(at);
  return absl::OkStatus();
}

void PlacementTable::SetCopies(const ObjectId& id, const Requester& requester, uint32_t copies) {
  // A repeated request brings the policy that it made (Merge).
  if (requester.already_started) return;
  Record& record = records_[id];
  if (record.policy.copies != copies || !record.minted) {
    PlacementPolicy policy = record.policy;
    policy.copies = copies;
    policy.stamp = MintStamp();
    SetPolicy(id, record, std::move(policy), /*minted=*/true);
    effects_.push_back(AnnouncePolicy{id, std::nullopt});
  }
  effects_.push_back(ConfirmStart{requester.node, requester.request_id, record.policy});
}

void PlacementTable::Stop(const ObjectId& id) {
  const Records::iterator at = records_.try_emplace(id).first;
  Record& record = at->second;
  // A stop minted here stands. One of an earlier life gets a new stamp: a holder that is away may
  // know a greater one that is sticky.
  if (record.policy.stamp != 0 && !record.policy.sticky() && record.minted) return;
  SetPolicy(id, record, MintStop(record.policy.copies), /*minted=*/true);
  if (!DefectActive(Defect::kStopNotAnnounced))
    effects_.push_back(AnnouncePolicy{id, std::nullopt});
  AnswerCompleted(at);
}

void PlacementTable::Cancel(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record& record = at->second;
  const auto left =
      std::find_if(record.waiting.begin(), record.waiting.end(), [&](const Waiting& waiting) {
        return waiting.node == node && waiting.request_id == request_id;
      });
  if (left == record.waiting.end()) return;
  const Waiting gone = std::move(*left);
  record.waiting.erase(left);
  --requests_;
  UnlinkIfUnused(id, record, gone.node);
  for (const NodeKey& key : gone.missing) UnlinkIfUnused(id, record, key);
  AnswerCompleted(at);
}

void PlacementTable::NoteStamp(uint64_t stamp) {
  if (stamp <= last_stamp_) return;
  last_stamp_ = stamp;
  // That life of the shard may have minted greater ones.
  minted_ = false;
}

void PlacementTable::Merge(const ObjectId& id, const PlacementPolicy& policy, Lacks lacks) {
  NoteStamp(policy.stamp);
  const PlacementPolicy* known = PolicyOf(id);
  if (policy.stamp <= (known == nullptr ? 0 : known->stamp)) return;
  const Records::iterator at = records_.try_emplace(id).first;
  Record& record = at->second;
  SetPolicy(id, record, policy, /*minted=*/false);
  // Holders that know an older policy are sent this one.
  effects_.push_back(AnnouncePolicy{id, std::nullopt});
  if (policy.sticky()) active_.insert(id);
  OrderAll(id, record, lacks);
  AnswerCompleted(at);
}

void PlacementTable::Registered(const ObjectId& id, const NodeKey& node,
                                const PlacementPolicy& policy, Lacks lacks) {
  const PlacementPolicy* known = PolicyOf(id);
  // The node missed a change while it was away, perhaps a stop.
  if (known != nullptr && policy.stamp < known->stamp) effects_.push_back(AnnouncePolicy{id, node});
  Merge(id, policy, lacks);
}

void PlacementTable::End(const ObjectId& id, const absl::Status& why) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record record = std::move(at->second);
  records_.erase(at);
  active_.erase(id);
  if (record.policy.sticky()) --sticky_;
  if (record.policy.copies > 0) effects_.push_back(WantCopies{id, 0, why});
  requests_ -= record.waiting.size();
  std::vector<NodeKey> concerned(record.refused.begin(), record.refused.end());
  for (const auto& [key, plan] : record.ordered) concerned.push_back(key);
  for (const NodeKey& key : concerned) EndOrder(record, key);
  for (Waiting& waiting : record.waiting) {
    concerned.push_back(waiting.node);
    concerned.insert(concerned.end(), waiting.missing.begin(), waiting.missing.end());
    effects_.push_back(
        AnswerBroadcast{waiting.node, waiting.request_id, id, waiting.arrived, 0, {}, why});
  }
  for (const NodeKey& key : concerned) UnlinkIfUnused(id, Record(), key);
}

void PlacementTable::OnNewGeneration(const ObjectId& id, Lacks lacks) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record& record = at->second;
  // A refusal was about the old generation, which may have been larger, and the orders were for its
  // bytes.
  std::vector<NodeKey> again(record.refused.begin(), record.refused.end());
  for (const auto& [key, plan] : record.ordered) again.push_back(key);
  record.refused.clear();
  for (const NodeKey& key : again) EndOrder(record, key);
  if (!record.idle()) OrderAll(id, record, lacks);
  for (const NodeKey& key : again) UnlinkIfUnused(id, record, key);
  if (record.policy.stamp != 0) effects_.push_back(AnnouncePolicy{id, std::nullopt});
}

// ---- events of nodes

void PlacementTable::Ordered(const ObjectId& id, const NodeKey& node, PlanId plan) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  const auto order = at->second.ordered.find(node);
  if (order != at->second.ordered.end()) order->second = plan;
}

void PlacementTable::Arrived(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record& record = at->second;
  EndOrder(record, node);
  record.refused.erase(node);
  for (Waiting& waiting : record.waiting) {
    waiting.arrived += static_cast<uint32_t>(waiting.missing.erase(node));
  }
  // The new holder carries the policy from now on, so that it outlives the shard.
  if (record.policy.stamp != 0) effects_.push_back(AnnouncePolicy{id, node});
  UnlinkIfUnused(id, record, node);
  AnswerCompleted(at);
}

void PlacementTable::Refused(const ObjectId& id, const NodeKey& node, PlanId plan) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  const auto order = at->second.ordered.find(node);
  // The refused order has ended, or another one is on its way.
  if (order == at->second.ordered.end() || order->second != plan) return;
  Refuse(at->second, node);
  AnswerCompleted(at);
}

void PlacementTable::Refused(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end() || !at->second.ordered.contains(node)) return;
  Refuse(at->second, node);
  AnswerCompleted(at);
}

void PlacementTable::Refuse(Record& record, const NodeKey& key) {
  EndOrder(record, key);
  record.refused.insert(key);
  ++refusals_;
  for (Waiting& waiting : record.waiting) {
    if (waiting.missing.erase(key) == 0) continue;
    ++waiting.refused;
    // The answer names some of the refusing nodes: ten thousand names would not fit into a message.
    if (waiting.refusers.size() < kMaxRefusersNamed) {
      waiting.refusers.push_back(nodes_.at(key).name);
    }
  }
}

void PlacementTable::OrderAgain(const ObjectId& id, const NodeKey& node, Lacks lacks) {
  const auto at = records_.find(id);
  if (at == records_.end() || !at->second.ordered.contains(node)) return;
  EndOrder(at->second, node);
  Order(id, at->second, node, lacks);
  UnlinkIfUnused(id, at->second, node);
}

void PlacementTable::NodeJoined(const NodeKey& node, const std::string& name) {
  Node& joined = nodes_[node];
  joined.name = name;
  joined.joined = true;
  if (DefectActive(Defect::kJoinerNotOrdered)) return;
  joined.walked_up_to = ObjectId();
  // Orders of waiting requests count as well: a node that starts is not flooded with fetches.
  if (joined.open < kMaxWalkFetches) walking_.insert(node);
}

void PlacementTable::SessionBegins(const NodeKey& node) { EndParts(node, /*down=*/false); }

void PlacementTable::NodeDown(const NodeKey& node) {
  EndParts(node, /*down=*/true);
  nodes_.erase(node);
}

void PlacementTable::NodeDrains(const NodeKey& node, Lacks receives) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  // A copy: UnlinkIfUnused changes the set.
  const absl::btree_set<ObjectId> linked = found->second.linked;
  for (const ObjectId& id : linked) {
    // An object that the leaving node is receiving already is worth waiting for; others it never
    // gets.
    if (receives(id, node)) continue;
    const Records::iterator at = records_.find(id);
    for (Waiting& waiting : at->second.waiting) waiting.missing.erase(node);
    UnlinkIfUnused(id, at->second, node);
    AnswerCompleted(at);
  }
}

void PlacementTable::EndParts(const NodeKey& key, bool down) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  found->second.joined = false;
  found->second.walked_up_to.reset();
  walking_.erase(key);
  // A copy: the loop unlinks the node.
  const absl::btree_set<ObjectId> linked = found->second.linked;
  for (const ObjectId& id : linked) {
    const Records::iterator at = records_.find(id);
    Record& record = at->second;
    EndOrder(record, key);
    record.refused.erase(key);
    // Its own requests end with the session, in which it would repeat them; the nodes that these
    // waited for can lose their last link.
    absl::btree_set<NodeKey> left = {key};
    for (Waiting& waiting : record.waiting) {
      if (waiting.node == key) left.insert(waiting.missing.begin(), waiting.missing.end());
      // A node that merely begins a new session is still waited for.
      if (down) waiting.missing.erase(key);
    }
    requests_ -= std::erase_if(record.waiting, [&key](const Waiting& w) { return w.node == key; });
    for (const NodeKey& other : left) UnlinkIfUnused(id, record, other);
    AnswerCompleted(at);
  }
}

// ---- time

void PlacementTable::Walk(Lacks lacks) {
  // Bounded over all nodes: after a restart of the shard every node walks at once.
  for (size_t left = kMaxExamined; left > 0 && !walking_.empty();) {
    const NodeKey key = *walking_.begin();
    ContinueWalk(key, nodes_.at(key), left, lacks);
  }
}

void PlacementTable::ContinueWalk(const NodeKey& key, Node& node, size_t& left, Lacks lacks) {
  auto at = active_.upper_bound(*node.walked_up_to);
  for (; at != active_.end() && left > 0 && node.open < kMaxWalkFetches; ++at, --left) {
    ++examined_;
    // By id, not by iterator: broadcasts begin and end between two turns of a walk.
    node.walked_up_to = *at;
    Record& record = records_.at(*at);
    if (IsFor(record, key)) Order(*at, record, key, lacks);
  }
  if (at == active_.end()) node.walked_up_to.reset();
  if (!node.walked_up_to.has_value() || node.open >= kMaxWalkFetches) walking_.erase(key);
}

// ---- looking

const PlacementPolicy* PlacementTable::PolicyOf(const ObjectId& id) const {
  const auto at = records_.find(id);
  return at == records_.end() || at->second.policy.stamp == 0 ? nullptr : &at->second.policy;
}

bool PlacementTable::RefusedBy(const ObjectId& id, const NodeKey& node) const {
  const auto at = records_.find(id);
  return at != records_.end() && at->second.refused.contains(node);
}

bool PlacementTable::IsOrdered(const ObjectId& id, const NodeKey& node) const {
  const auto at = records_.find(id);
  return at != records_.end() && at->second.ordered.contains(node);
}

absl::Status PlacementTable::CheckInvariants() const {
  size_t sticky = 0;
  size_t waiters = 0;
  absl::btree_map<NodeKey, size_t> open;
  for (const auto& [id, record] : records_) {
    const auto broken = [&id = id](absl::string_view what) {
      return absl::InternalError(absl::StrCat("broadcast of object ", id.hex(), ": ", what));
    };
    if (record.idle() && record.policy.stamp == 0) return broken("nothing keeps its record");
    if (active_.contains(id) == record.idle()) return broken("listed as active, or not, wrongly");
    if (record.policy.sticky()) ++sticky;
    waiters += record.waiting.size();
    absl::btree_set<NodeKey> concerned = record.refused;
    for (const auto& [key, plan] : record.ordered) {
      ++open[key];
      if (!concerned.insert(key).second) return broken("a node that refused is ordered");
    }
    for (const Waiting& waiting : record.waiting) {
      if (waiting.missing.empty()) return broken("an answer is not given");
      concerned.insert(waiting.node);
      concerned.insert(waiting.missing.begin(), waiting.missing.end());
    }
    for (const NodeKey& key : concerned) {
      const auto node = nodes_.find(key);
      if (node == nodes_.end()) return broken("a node that is down has part in it");
      if (!node->second.linked.contains(id)) return broken("a node does not know its part");
    }
  }
  for (const auto& [key, node] : nodes_) {
    const auto counted = open.find(key);
    if (node.open != (counted == open.end() ? 0 : counted->second)) {
      return absl::InternalError(absl::StrCat("orders of node ", node.name, " are miscounted"));
    }
    for (const ObjectId& id : node.linked) {
      if (!records_.contains(id)) return absl::InternalError("a node has part in no broadcast");
    }
    const bool may_go_on = node.walked_up_to.has_value() && node.open < kMaxWalkFetches;
    if (walking_.contains(key) != may_go_on) return absl::InternalError("a walk is forgotten");
  }
  if (sticky != sticky_ || waiters != requests_) {
    return absl::InternalError("the broadcasts are miscounted");
  }
  return absl::OkStatus();
}

// ---- steps

bool PlacementTable::IsFor(const Record& record, const NodeKey& key) const {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return false;
  // A policy covers nodes that join later, a request only the nodes that it found.
  if (record.policy.Names(node->second.name)) return true;
  return std::any_of(record.waiting.begin(), record.waiting.end(),
                     [&key](const Waiting& waiting) { return waiting.missing.contains(key); });
}

void PlacementTable::Order(const ObjectId& id, Record& record, const NodeKey& key, Lacks lacks) {
  Node& node = nodes_.at(key);
  if (!node.joined || record.refused.contains(key) || record.ordered.contains(key)) return;
  if (!lacks(id, key)) return;
  // The plan's number follows when the Fetch is sent (Ordered). Until then no refusal can match it.
  record.ordered.emplace(key, PlanId{0});
  node.linked.insert(id);
  if (++node.open >= kMaxWalkFetches) walking_.erase(key);
  ++orders_;
  effects_.push_back(OrderFetch{key, id});
}

void PlacementTable::OrderAll(const ObjectId& id, Record& record, Lacks lacks) {
  for (const auto& [key, node] : nodes_) {
    // The cheap tests come first: IsFor examines every waiting request.
    if (!node.joined || record.ordered.contains(key) || record.refused.contains(key)) continue;
    if (IsFor(record, key)) Order(id, record, key, lacks);
  }
}

void PlacementTable::EndOrder(Record& record, const NodeKey& key) {
  if (record.ordered.erase(key) == 0) return;
  Node& node = nodes_.at(key);
  --node.open;
  // The walk paused for want of free orders, and this frees one.
  if (node.walked_up_to.has_value() && node.open < kMaxWalkFetches) walking_.insert(key);
}

void PlacementTable::SetPolicy(const ObjectId& id, Record& record, PlacementPolicy policy,
                               bool minted) {
  if (policy.copies != record.policy.copies) {
    effects_.push_back(WantCopies{id, policy.copies, absl::OkStatus()});
  }
  if (record.policy.sticky()) --sticky_;
  record.policy = std::move(policy);
  record.minted = minted;
  if (record.policy.sticky()) ++sticky_;
}

uint64_t PlacementTable::MintStamp() {
  if (!std::exchange(minted_, true)) {
    // Leaves room for stamps of the earlier life that are not known here.
    last_stamp_ = ((last_stamp_ >> kStampBitsPerLife) + 1) << kStampBitsPerLife;
  }
  return ++last_stamp_;
}

void PlacementTable::AnswerCompleted(Records::iterator at) {
  const ObjectId id = at->first;
  Record& record = at->second;
  std::vector<NodeKey> left;
  for (Waiting& waiting : record.waiting) {
    if (!waiting.missing.empty()) continue;
    left.push_back(waiting.node);
    effects_.push_back(AnswerBroadcast{waiting.node, waiting.request_id, id, waiting.arrived,
                                       waiting.refused, std::move(waiting.refusers),
                                       absl::OkStatus()});
  }
  requests_ -= std::erase_if(record.waiting, [](const Waiting& w) { return w.missing.empty(); });
  // Neither policy nor request wants the object at other nodes any more.
  if (record.idle()) {
    // Fetches that are under way continue without an order.
    left.insert(left.end(), record.refused.begin(), record.refused.end());
    for (const auto& [key, plan] : record.ordered) left.push_back(key);
    for (const NodeKey& key : left) EndOrder(record, key);
    record.refused.clear();
    active_.erase(id);
  }
  for (const NodeKey& key : left) UnlinkIfUnused(id, record, key);
  // Last: the record is gone after it. A stop stays, against holders that return.
  if (record.idle() && record.policy.stamp == 0) records_.erase(at);
}

void PlacementTable::UnlinkIfUnused(const ObjectId& id, const Record& record, const NodeKey& key) {
  if (record.ordered.contains(key) || record.refused.contains(key)) return;
  for (const Waiting& waiting : record.waiting) {
    if (waiting.node == key || waiting.missing.contains(key)) return;
  }
  const auto node = nodes_.find(key);
  if (node != nodes_.end()) node->second.linked.erase(id);
}

}  // namespace phalanx::directory
