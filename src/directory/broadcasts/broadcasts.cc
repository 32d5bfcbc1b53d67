#include "src/directory/broadcasts/broadcasts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/validate.h"

namespace phalanx::directory {
namespace {

// That one answer names.
constexpr size_t kMaxRefusersNamed = 16;
// Its logarithm to base 2.
constexpr int kStampsOfALife = 32;

}  // namespace

std::vector<BroadcastEffect> Broadcasts::TakeEffects() { return std::exchange(effects_, {}); }

// ---- what is asked for

absl::Status Broadcasts::Ask(const ObjectId& id, const Asker& asker, uint32_t there,
                             absl::btree_set<NodeKey> missing, Lacks lacks) {
  if (askers_ >= limits_.max_askers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard has ", askers_, " broadcasts under way already"));
  }
  const BroadcastMark* known = MarkOf(id);
  BroadcastMark mark = known == nullptr ? BroadcastMark() : *known;
  const size_t named = mark.nodes.size();
  const bool sticky = asker.sticky && !asker.begun;
  if (sticky) mark.nodes.insert(asker.names.begin(), asker.names.end());
  if (mark.nodes.contains("*")) mark.nodes = {"*"};
  const bool changed =
      sticky && (known == nullptr || mark.nodes != known->nodes || !records_.at(id).minted);
  if (mark.nodes.size() > kMaxNamedNodes) {
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
    mark.stamp = MintStamp();
    SetMark(record, std::move(mark), /*minted=*/true);
    effects_.push_back(TellMark{id, std::nullopt});
  }
  active_.insert(id);
  nodes_[asker.node].part_in.insert(id);
  for (const NodeKey& key : missing) {
    nodes_[key].part_in.insert(id);
    record.refused.erase(key);
  }
  if (!asker.begun && !missing.empty()) {
    BroadcastMark told = asker.sticky ? record.mark : BroadcastMark();
    effects_.push_back(TellBegun{asker.node, asker.request_id, std::move(told)});
  }
  record.waiting.push_back(Waiting{asker.node, asker.request_id, std::move(missing), there});
  ++askers_;
  OrderAll(id, record, lacks);
  Settle(at);
  return absl::OkStatus();
}

void Broadcasts::Stop(const ObjectId& id) {
  const Records::iterator at = records_.try_emplace(id).first;
  Record& record = at->second;
  if (record.mark.stamp != 0 && !record.mark.on() && record.minted) return;
  SetMark(record, MintStop(), /*minted=*/true);
  if (!DefectActive(Defect::kStopNotTold)) effects_.push_back(TellMark{id, std::nullopt});
  Settle(at);
}

void Broadcasts::Leave(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
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
  --askers_;
  LeaveIfDone(id, record, gone.node);
  for (const NodeKey& key : gone.missing) LeaveIfDone(id, record, key);
  Settle(at);
}

void Broadcasts::HeardOf(uint64_t stamp) {
  if (stamp <= last_stamp_) return;
  last_stamp_ = stamp;
  // Others of that life may be greater.
  minted_ = false;
}

void Broadcasts::Merge(const ObjectId& id, const BroadcastMark& mark, Lacks lacks) {
  HeardOf(mark.stamp);
  const BroadcastMark* known = MarkOf(id);
  if (mark.stamp <= (known == nullptr ? 0 : known->stamp)) return;
  const Records::iterator at = records_.try_emplace(id).first;
  Record& record = at->second;
  SetMark(record, mark, /*minted=*/false);
  // Who has told an older one knows better now.
  effects_.push_back(TellMark{id, std::nullopt});
  if (mark.on()) active_.insert(id);
  OrderAll(id, record, lacks);
  Settle(at);
}

void Broadcasts::Registered(const ObjectId& id, const NodeKey& node, const BroadcastMark& mark,
                            Lacks lacks) {
  const BroadcastMark* known = MarkOf(id);
  if (known != nullptr && mark.stamp < known->stamp) effects_.push_back(TellMark{id, node});
  Merge(id, mark, lacks);
}

void Broadcasts::End(const ObjectId& id, const absl::Status& why) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record record = std::move(at->second);
  records_.erase(at);
  active_.erase(id);
  if (record.mark.on()) --sticky_;
  askers_ -= record.waiting.size();
  std::vector<NodeKey> concerned(record.refused.begin(), record.refused.end());
  for (const auto& [key, plan] : record.ordered) concerned.push_back(key);
  for (const NodeKey& key : concerned) EndOrder(record, key);
  for (Waiting& waiting : record.waiting) {
    concerned.push_back(waiting.node);
    concerned.insert(concerned.end(), waiting.missing.begin(), waiting.missing.end());
    effects_.push_back(
        AnswerBroadcast{waiting.node, waiting.request_id, id, waiting.arrived, 0, {}, why});
  }
  for (const NodeKey& key : concerned) LeaveIfDone(id, Record(), key);
}

void Broadcasts::BeginAnew(const ObjectId& id, Lacks lacks) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record& record = at->second;
  std::vector<NodeKey> again(record.refused.begin(), record.refused.end());
  for (const auto& [key, plan] : record.ordered) again.push_back(key);
  record.refused.clear();
  for (const NodeKey& key : again) EndOrder(record, key);
  if (!record.idle()) OrderAll(id, record, lacks);
  for (const NodeKey& key : again) LeaveIfDone(id, record, key);
  if (record.mark.stamp != 0) effects_.push_back(TellMark{id, std::nullopt});
}

// ---- what nodes do

void Broadcasts::Ordered(const ObjectId& id, const NodeKey& node, PlanId plan) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  const auto order = at->second.ordered.find(node);
  if (order != at->second.ordered.end()) order->second = plan;
}

void Broadcasts::Arrived(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  Record& record = at->second;
  EndOrder(record, node);
  record.refused.erase(node);
  for (Waiting& waiting : record.waiting) {
    waiting.arrived += static_cast<uint32_t>(waiting.missing.erase(node));
  }
  if (record.mark.stamp != 0) effects_.push_back(TellMark{id, node});
  LeaveIfDone(id, record, node);
  Settle(at);
}

void Broadcasts::Refused(const ObjectId& id, const NodeKey& node, PlanId plan) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  const auto order = at->second.ordered.find(node);
  // Of an order that has ended, or behind which another one is on its way.
  if (order == at->second.ordered.end() || order->second != plan) return;
  Refuse(at->second, node);
  Settle(at);
}

void Broadcasts::Refused(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end() || !at->second.ordered.contains(node)) return;
  Refuse(at->second, node);
  Settle(at);
}

void Broadcasts::Refuse(Record& record, const NodeKey& key) {
  EndOrder(record, key);
  record.refused.insert(key);
  ++refusals_;
  for (Waiting& waiting : record.waiting) {
    if (waiting.missing.erase(key) == 0) continue;
    ++waiting.refused;
    if (waiting.refusers.size() < kMaxRefusersNamed) {
      waiting.refusers.push_back(nodes_.at(key).name);
    }
  }
}

void Broadcasts::OrderAgain(const ObjectId& id, const NodeKey& node, Lacks lacks) {
  const auto at = records_.find(id);
  if (at == records_.end() || !at->second.ordered.contains(node)) return;
  EndOrder(at->second, node);
  Order(id, at->second, node, lacks);
  LeaveIfDone(id, at->second, node);
}

void Broadcasts::NodeJoined(const NodeKey& node, const std::string& name) {
  Node& joined = nodes_[node];
  joined.name = name;
  joined.joined = true;
  if (DefectActive(Defect::kJoinerNotOrdered)) return;
  joined.walked = ObjectId();
  if (joined.open < kMaxWalkFetches) walking_.insert(node);
}

void Broadcasts::SessionBegins(const NodeKey& node) { Strike(node, /*gone=*/false); }

void Broadcasts::NodeGone(const NodeKey& node) {
  Strike(node, /*gone=*/true);
  nodes_.erase(node);
}

void Broadcasts::NodeLeaves(const NodeKey& node, Lacks gets) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  const absl::btree_set<ObjectId> part_in = found->second.part_in;
  for (const ObjectId& id : part_in) {
    if (gets(id, node)) continue;
    const Records::iterator at = records_.find(id);
    for (Waiting& waiting : at->second.waiting) waiting.missing.erase(node);
    LeaveIfDone(id, at->second, node);
    Settle(at);
  }
}

void Broadcasts::Strike(const NodeKey& key, bool gone) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  found->second.joined = false;
  found->second.walked.reset();
  walking_.erase(key);
  const absl::btree_set<ObjectId> part_in = found->second.part_in;
  for (const ObjectId& id : part_in) {
    const Records::iterator at = records_.find(id);
    Record& record = at->second;
    EndOrder(record, key);
    record.refused.erase(key);
    absl::btree_set<NodeKey> left = {key};
    for (Waiting& waiting : record.waiting) {
      if (waiting.node == key) left.insert(waiting.missing.begin(), waiting.missing.end());
      if (gone) waiting.missing.erase(key);
    }
    askers_ -= std::erase_if(record.waiting, [&key](const Waiting& w) { return w.node == key; });
    for (const NodeKey& other : left) LeaveIfDone(id, record, other);
    Settle(at);
  }
  walking_.erase(key);
}

// ---- time

void Broadcasts::Walk(Lacks lacks) {
  for (size_t left = kMaxLookedAt; left > 0 && !walking_.empty();) {
    const NodeKey key = *walking_.begin();
    WalkOn(key, nodes_.at(key), left, lacks);
  }
}

void Broadcasts::WalkOn(const NodeKey& key, Node& node, size_t& left, Lacks lacks) {
  auto at = active_.upper_bound(*node.walked);
  for (; at != active_.end() && left > 0 && node.open < kMaxWalkFetches; ++at, --left) {
    ++examined_;
    node.walked = *at;
    Record& record = records_.at(*at);
    if (IsFor(record, key)) Order(*at, record, key, lacks);
  }
  if (at == active_.end()) node.walked.reset();
  if (!node.walked.has_value() || node.open >= kMaxWalkFetches) walking_.erase(key);
}

// ---- looking

const BroadcastMark* Broadcasts::MarkOf(const ObjectId& id) const {
  const auto at = records_.find(id);
  return at == records_.end() || at->second.mark.stamp == 0 ? nullptr : &at->second.mark;
}

bool Broadcasts::RefusedBy(const ObjectId& id, const NodeKey& node) const {
  const auto at = records_.find(id);
  return at != records_.end() && at->second.refused.contains(node);
}

bool Broadcasts::IsOrdered(const ObjectId& id, const NodeKey& node) const {
  const auto at = records_.find(id);
  return at != records_.end() && at->second.ordered.contains(node);
}

absl::Status Broadcasts::CheckInvariants() const {
  size_t sticky = 0;
  size_t askers = 0;
  absl::btree_map<NodeKey, size_t> open;
  for (const auto& [id, record] : records_) {
    const auto broken = [&id = id](absl::string_view what) {
      return absl::InternalError(absl::StrCat("broadcast of object ", id.hex(), ": ", what));
    };
    if (record.idle() && record.mark.stamp == 0) return broken("nothing keeps its record");
    if (active_.contains(id) == record.idle()) return broken("listed as active, or not, wrongly");
    if (record.mark.on()) ++sticky;
    askers += record.waiting.size();
    absl::btree_set<NodeKey> concerned = record.refused;
    for (const auto& [key, plan] : record.ordered) {
      ++open[key];
      if (!concerned.insert(key).second) return broken("who refused is ordered");
    }
    for (const Waiting& waiting : record.waiting) {
      if (waiting.missing.empty()) return broken("an answer is not given");
      concerned.insert(waiting.node);
      concerned.insert(waiting.missing.begin(), waiting.missing.end());
    }
    for (const NodeKey& key : concerned) {
      const auto node = nodes_.find(key);
      if (node == nodes_.end()) return broken("a node that is down has part in it");
      if (!node->second.part_in.contains(id)) return broken("a node does not know its part");
    }
  }
  for (const auto& [key, node] : nodes_) {
    const auto counted = open.find(key);
    if (node.open != (counted == open.end() ? 0 : counted->second)) {
      return absl::InternalError(absl::StrCat("orders of node ", node.name, " are miscounted"));
    }
    for (const ObjectId& id : node.part_in) {
      if (!records_.contains(id)) return absl::InternalError("a node has part in no broadcast");
    }
    const bool may_go_on = node.walked.has_value() && node.open < kMaxWalkFetches;
    if (walking_.contains(key) != may_go_on) return absl::InternalError("a walk is forgotten");
  }
  if (sticky != sticky_ || askers != askers_) {
    return absl::InternalError("the broadcasts are miscounted");
  }
  return absl::OkStatus();
}

// ---- steps

bool Broadcasts::IsFor(const Record& record, const NodeKey& key) const {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return false;
  if (record.mark.Names(node->second.name)) return true;
  return std::any_of(record.waiting.begin(), record.waiting.end(),
                     [&key](const Waiting& waiting) { return waiting.missing.contains(key); });
}

void Broadcasts::Order(const ObjectId& id, Record& record, const NodeKey& key, Lacks lacks) {
  Node& node = nodes_.at(key);
  if (!node.joined || record.refused.contains(key) || record.ordered.contains(key)) return;
  if (!lacks(id, key)) return;
  record.ordered.emplace(key, PlanId{0});
  node.part_in.insert(id);
  if (++node.open >= kMaxWalkFetches) walking_.erase(key);
  ++orders_;
  effects_.push_back(OrderFetch{key, id});
}

void Broadcasts::OrderAll(const ObjectId& id, Record& record, Lacks lacks) {
  for (const auto& [key, node] : nodes_) {
    // What costs least first: with many who wait, whom it is for costs most.
    if (!node.joined || record.ordered.contains(key) || record.refused.contains(key)) continue;
    if (IsFor(record, key)) Order(id, record, key, lacks);
  }
}

void Broadcasts::EndOrder(Record& record, const NodeKey& key) {
  if (record.ordered.erase(key) == 0) return;
  Node& node = nodes_.at(key);
  --node.open;
  if (node.walked.has_value() && node.open < kMaxWalkFetches) walking_.insert(key);
}

void Broadcasts::SetMark(Record& record, BroadcastMark mark, bool minted) {
  if (record.mark.on()) --sticky_;
  record.mark = std::move(mark);
  record.minted = minted;
  if (record.mark.on()) ++sticky_;
}

uint64_t Broadcasts::MintStamp() {
  if (!std::exchange(minted_, true)) {
    last_stamp_ = ((last_stamp_ >> kStampsOfALife) + 1) << kStampsOfALife;
  }
  return ++last_stamp_;
}

void Broadcasts::Settle(Records::iterator at) {
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
  askers_ -= std::erase_if(record.waiting, [](const Waiting& w) { return w.missing.empty(); });
  if (record.idle()) {
    // What goes on goes on by itself.
    left.insert(left.end(), record.refused.begin(), record.refused.end());
    for (const auto& [key, plan] : record.ordered) left.push_back(key);
    for (const NodeKey& key : left) EndOrder(record, key);
    record.refused.clear();
    active_.erase(id);
  }
  for (const NodeKey& key : left) LeaveIfDone(id, record, key);
  if (record.idle() && record.mark.stamp == 0) records_.erase(at);
}

void Broadcasts::LeaveIfDone(const ObjectId& id, const Record& record, const NodeKey& key) {
  if (record.ordered.contains(key) || record.refused.contains(key)) return;
  for (const Waiting& waiting : record.waiting) {
    if (waiting.node == key || waiting.missing.contains(key)) return;
  }
  const auto node = nodes_.find(key);
  if (node != nodes_.end()) node->second.part_in.erase(id);
}

}  // namespace phalanx::directory
