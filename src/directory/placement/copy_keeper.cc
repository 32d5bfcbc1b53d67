#include "src/directory/placement/copy_keeper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::directory {
namespace {

// Returns the number of entries of `a` that are not in `b`.
size_t CountOthers(const absl::btree_set<uint64_t>& a, const absl::btree_set<uint64_t>& b) {
  return std::count_if(a.begin(), a.end(), [&b](uint64_t host) { return !b.contains(host); });
}

// With the defect every node is a host of its own.
uint64_t HostOf(const Node& node) {
  if (DefectActive(Defect::kCopiesOnOneHost)) return node.key.node;
  return node.host;
}

// Returns true if the node has reported a complete primary copy in this session.
bool IsThere(const Copy& copy) {
  return copy.primary && copy.state() == CopyState::kComplete && !copy.stale;
}

// A copy that is being written does not count: its writer may never seal it.
bool CanBeCopied(const Object& object) { return object.adopted() && object.copies.complete() > 0; }

}  // namespace

uint32_t HostsWithPrimary(const Object& object, const NodeTable& nodes) {
  absl::btree_set<uint64_t> hosts;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = nodes.Find(key);
    if (node != nullptr && !node->draining && IsThere(copy)) hosts.insert(node->host);
  }
  return static_cast<uint32_t>(hosts.size());
}

size_t CopyKeeper::Hosts::covered() const { return there.size() + CountOthers(expected, there); }

// ---- what is wanted

void CopyKeeper::Want(const ObjectId& id, uint32_t copies, const absl::Status& why) {
  if (copies > 0) {
    records_[id].wanted = copies;
    changed_.insert(id);
    return;
  }
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  // The record leaves all queues before the replies, so that nothing refers to it any more.
  const Record record = std::move(at->second);
  records_.erase(at);
  changed_.erase(id);
  EraseShort(id);
  if (!record.retry.infinite()) retries_.erase({record.retry, id});
  open_ -= record.keeping.size();
  requests_ -= record.waiting.size();
  for (const auto& [node, order] : record.keeping) {
    RemoveLoad(node, order);
    UnlinkIfUnused(id, Record(), node);
  }
  for (const auto& [node, plan] : record.releasing) UnlinkIfUnused(id, Record(), node);
  for (const NodeKey& node : record.refusals.Nodes()) UnlinkIfUnused(id, Record(), node);
  for (const Waiting& waiting : record.waiting) {
    UnlinkIfUnused(id, Record(), waiting.node);
    SendReply(waiting, id, 0, why);
  }
}

absl::Status CopyKeeper::Await(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  if (requests_ >= parts_.context.options.max_broadcasts) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard has ", requests_, " requests for copies under way already"));
  }
  const auto at = records_.find(id);
  // Nothing is wanted any more: a later request has ended what this one, repeated, began.
  if (at == records_.end()) {
    SendReply({node, request_id}, id, 0, absl::OkStatus());
    return absl::OkStatus();
  }
  at->second.waiting.push_back({node, request_id});
  linked_[node].insert(id);
  ++requests_;
  changed_.insert(id);
  return absl::OkStatus();
}

void CopyKeeper::Cancel(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  requests_ -= std::erase_if(at->second.waiting, [&](const Waiting& waiting) {
    return waiting.node == node && waiting.request_id == request_id;
  });
  UnlinkIfUnused(id, at->second, node);
}

// ---- events

void CopyKeeper::OnCopiesChanged(const ObjectId& id) {
  // Called for every change of every copy, so the usual case must cost nothing.
  if (records_.empty()) return;
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  if (at->second.had_enough && DefectActive(Defect::kCopyNotMadeAgain)) return;
  changed_.insert(id);
}

void CopyKeeper::OnReported(Object& object, const NodeKey& node, PlanId plan, bool primary) {
  const auto listed = object.copies.find(node);
  if (listed != object.copies.end()) {
    Copy& copy = listed->second;
    const auto at = records_.find(object.id);
    const bool releases = at != records_.end() && at->second.releasing.contains(node) &&
                          !DefectActive(Defect::kCopyReleasedTooSoon);
    if (!releases) {
      copy.primary = copy.primary || primary;
    } else if (at->second.releasing.at(node) == plan) {
      at->second.releasing.erase(node);
      copy.primary = primary;
      UnlinkIfUnused(object.id, at->second, node);
    }
    // A report that crossed the order to release the copy says nothing of what becomes of it.
  }
  OnCopiesChanged(object.id);
}

void CopyKeeper::OnEvictAsked(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end() || !EndKeeping(id, at->second, node)) return;
  UnlinkIfUnused(id, at->second, node);
}

void CopyKeeper::OnRefused(const ObjectId& id, const NodeKey& node) {
  const auto at = records_.find(id);
  if (at == records_.end() || !EndKeeping(id, at->second, node)) return;
  at->second.refusals.Add(node, parts_.context.now);
  UnlinkIfUnused(id, at->second, node);
}

void CopyKeeper::OnOrderRefused(const ObjectId& id, const NodeKey& node, PlanId plan) {
  const auto at = records_.find(id);
  if (at == records_.end()) return;
  const auto order = at->second.keeping.find(node);
  // A refusal that crossed a later order does not answer it.
  if (order != at->second.keeping.end() && order->second.plan <= plan) OnRefused(id, node);
}

void CopyKeeper::SessionBegins(const NodeKey& node) {
  const auto found = linked_.find(node);
  if (found == linked_.end()) return;
  // A copy: the loop unlinks the node.
  const absl::btree_set<ObjectId> linked = found->second;
  for (const ObjectId& id : linked) {
    Record& record = records_.at(id);
    EndKeeping(id, record, node);
    record.releasing.erase(node);
    record.refusals.Forget(node);
    requests_ -= std::erase_if(record.waiting, [&](const Waiting& w) { return w.node == node; });
    UnlinkIfUnused(id, record, node);
  }
}

void CopyKeeper::RetryAll() { to_order_ = short_; }

void CopyKeeper::OnRoomFreed() { to_order_.merge(lack_room_); }

void CopyKeeper::EndLearning() {
  for (const auto& [id, record] : records_) changed_.insert(id);
}

// ---- time

void CopyKeeper::Tick() {
  while (!retries_.empty() && retries_.begin()->first <= parts_.context.now) {
    const ObjectId id = retries_.begin()->second;
    retries_.erase(retries_.begin());
    records_.at(id).retry = Instant::Infinite();
    changed_.insert(id);
  }
}

void CopyKeeper::RunPending() {
  // Before the gate opens, a copy that is missing may still be registered.
  if (parts_.gate.learning()) return;
  for (size_t i = 0; i < kMaxExamined && !changed_.empty(); ++i) {
    const ObjectId id = *changed_.begin();
    changed_.erase(changed_.begin());
    if (const auto at = records_.find(id); at != records_.end()) Examine(id, at->second);
  }
  OrderShort();
}

Instant CopyKeeper::NextDeadline() const {
  if (parts_.gate.learning()) return Instant::Infinite();
  // What a turn leaves over continues at once.
  const bool more = !changed_.empty() || (!to_order_.empty() && open_ < kMaxOrders);
  if (more) return parts_.context.now;
  return retries_.empty() ? Instant::Infinite()
                          : std::max(retries_.begin()->first, parts_.context.now);
}

// ---- steps

CopyKeeper::Hosts CopyKeeper::Count(const Object& object, const Record& record) const {
  Hosts hosts;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = parts_.nodes.Find(key);
    if (node == nullptr || node->draining || !copy.primary) continue;
    const bool there = IsThere(copy);
    // A receiver whose order has ended will not keep its copy for certain.
    const bool comes = copy.stale || copy.writing() || copy.unconfirmed();
    if (there) hosts.there.insert(HostOf(*node));
    if (comes) hosts.expected.insert(HostOf(*node));
  }
  for (const auto& [key, order] : record.keeping) {
    if (const Node* node = parts_.nodes.Find(key)) hosts.expected.insert(HostOf(*node));
  }
  return hosts;
}

void CopyKeeper::Examine(const ObjectId& id, Record& record) {
  Object* object = parts_.objects.Find(id);
  EraseShort(id);
  // Without a complete copy there is nothing to order: the next generation, a copy that is sealed,
  // or a holder that returns, is examined again.
  if (object == nullptr || !CanBeCopied(*object)) return EndOrders(id, record);
  // An order is carried out when the node's copy is primary, whatever made it so.
  std::vector<NodeKey> done;
  for (const auto& [key, order] : record.keeping) {
    const auto copy = object->copies.find(key);
    if (copy != object->copies.end() && IsThere(copy->second)) done.push_back(key);
  }
  for (const NodeKey& key : done) {
    EndKeeping(id, record, key);
    record.refusals.Forget(key);
    UnlinkIfUnused(id, record, key);
  }
  // A node that has lost its copy has nothing to release.
  done.clear();
  for (const auto& [key, plan] : record.releasing) {
    if (!object->copies.contains(key)) done.push_back(key);
  }
  for (const NodeKey& key : done) {
    record.releasing.erase(key);
    UnlinkIfUnused(id, record, key);
  }
  changed_.erase(id);
  const Hosts hosts = Count(*object, record);
  if (hosts.covered() < record.wanted || Unconfirmed(*object, record) != nullptr) {
    short_.insert(id);
    to_order_.insert(id);
  } else {
    ReleaseSurplus(*object, record);
  }
  record.had_enough = record.had_enough || hosts.there.size() >= record.wanted;
  Answer(id, *object, record);
}

void CopyKeeper::EraseShort(const ObjectId& id) {
  short_.erase(id);
  to_order_.erase(id);
  lack_room_.erase(id);
}

void CopyKeeper::EndOrders(const ObjectId& id, Record& record) {
  const absl::btree_map<NodeKey, OpenOrder> keeping = record.keeping;
  const absl::btree_map<NodeKey, PlanId> releasing = std::exchange(record.releasing, {});
  for (const auto& [key, order] : keeping) {
    parts_.outbox.SendFetchEnd(key, id, order.plan);
    EndKeeping(id, record, key);
    UnlinkIfUnused(id, record, key);
  }
  for (const auto& [key, plan] : releasing) UnlinkIfUnused(id, record, key);
  changed_.erase(id);
}

void CopyKeeper::OrderShort() {
  for (size_t i = 0; i < kMaxExamined && open_ < kMaxOrders && !to_order_.empty(); ++i) {
    const ObjectId id = *to_order_.begin();
    to_order_.erase(to_order_.begin());
    lack_room_.erase(id);
    Record& record = records_.at(id);
    Object* object = parts_.objects.Find(id);
    if (object == nullptr || !CanBeCopied(*object)) continue;
    if (Order(*object, record)) {
      short_.erase(id);
    } else {
      SetRetry(id, record);
      const bool lack = std::any_of(object->wants.begin(), object->wants.end(),
                                    [&](const auto& w) { return object->LacksRoom(w.second); });
      if (lack) lack_room_.insert(id);
    }
    // The requests wait no longer if no node can be ordered.
    Answer(id, *object, record);
  }
}

bool CopyKeeper::Order(Object& object, Record& record) {
  while (true) {
    const Hosts hosts = Count(object, record);
    Node* node = Unconfirmed(object, record);
    if (node == nullptr && hosts.covered() >= record.wanted) return true;
    if (open_ >= kMaxOrders) {
      to_order_.insert(object.id);
      return false;
    }
    // Bytes that are there, or on their way, need not be sent again.
    if (node == nullptr) node = ChooseHolder(object, record, hosts);
    if (node == nullptr) node = ChooseNode(object, record, hosts);
    if (node == nullptr) return false;
    const PlanId plan = parts_.context.NewPlan();
    parts_.outbox.SendFetch(node->key, object.id, plan, /*keep=*/true);
    record.releasing.erase(node->key);
    const OpenOrder order{plan, object.generation.creator, object.info.size_bytes};
    record.keeping[node->key] = order;
    AddLoad(node->key, order);
    linked_[node->key].insert(object.id);
    ++open_;
    ++ordered_;
  }
}

Node* CopyKeeper::Unconfirmed(const Object& object, const Record& record) const {
  for (const auto& [key, copy] : object.copies) {
    if (!copy.primary || !copy.unconfirmed() || copy.stale) continue;
    Node* node = parts_.nodes.Find(key);
    const bool asks = node != nullptr && node->connected && !node->draining && !node->registering &&
                      !record.keeping.contains(key);
    if (asks) return node;
  }
  return nullptr;
}

bool CopyKeeper::HasRefused(const Object& object, const Record& record, const NodeKey& key) const {
  // The node waits for memory: another Fetch would change nothing.
  const auto want = object.wants.find(key);
  if (want != object.wants.end() && object.LacksRoom(want->second)) return true;
  return record.refusals.Has(key, parts_.context.now);
}

bool CopyKeeper::MayBeOrdered(const Object& object, const Record& record, const Hosts& hosts,
                              const Node& node) const {
  if (!node.connected || node.draining || node.registering) return false;
  if (hosts.covers(HostOf(node)) || record.keeping.contains(node.key)) return false;
  return !HasRefused(object, record, node.key);
}

Node* CopyKeeper::ChooseHolder(const Object& object, const Record& record,
                               const Hosts& hosts) const {
  Node* best = nullptr;
  for (const auto& [key, copy] : object.copies) {
    Node* node = parts_.nodes.Find(key);
    if (node == nullptr || copy.stale || !MayBeOrdered(object, record, hosts, *node)) continue;
    if (copy.complete()) return node;
    if (best == nullptr) best = node;
  }
  return best;
}

// Begins at another node for each object, so that the copies are spread over all nodes also if no
// order is open; the same in every replay.
Node* CopyKeeper::ChooseNode(const Object& object, const Record& record, const Hosts& hosts) const {
  const auto& nodes = parts_.nodes.all();
  auto at = nodes.lower_bound(NodeKey{object.id.ShardHash(), 0});
  Node* idlest = nullptr;
  Load least;
  Node* emptiest = nullptr;
  uint64_t most_room = 0;
  size_t compared = 0;
  for (size_t i = 0; i < nodes.size() && compared < kMaxCompared; ++i, ++at) {
    if (at == nodes.end()) at = nodes.begin();
    Node& node = *at->second;
    if (!MayBeOrdered(object, record, hosts, node)) continue;
    ++compared;
    const uint64_t capacity = node.info.capacity_bytes();
    const uint64_t room = capacity - std::min(capacity, node.info.used_bytes());
    // A node that does not report a capacity is assumed to hold anything.
    if (capacity == 0 || room >= object.info.size_bytes) {
      const Load load = LoadOf(node.key);
      if (load == Load()) return &node;
      if (idlest != nullptr && load >= least) continue;
      idlest = &node;
      least = load;
    } else if (capacity >= object.info.size_bytes && (emptiest == nullptr || room > most_room)) {
      // A node can be full of copies that it may evict.
      emptiest = &node;
      most_room = room;
    }
  }
  return idlest != nullptr ? idlest : emptiest;
}

CopyKeeper::Load CopyKeeper::LoadOf(const NodeKey& node) const {
  const auto at = loads_.find(node);
  return at == loads_.end() ? Load() : at->second;
}

void CopyKeeper::AddLoad(const NodeKey& to, const OpenOrder& order) {
  if (order.bytes == 0) return;
  loads_[to].in += order.bytes;
  loads_[order.from].out += order.bytes;
}

void CopyKeeper::RemoveLoad(const NodeKey& to, const OpenOrder& order) {
  if (order.bytes == 0) return;
  loads_.at(to).in -= order.bytes;
  loads_.at(order.from).out -= order.bytes;
  for (const NodeKey& node : {to, order.from}) {
    if (LoadOf(node) == Load()) loads_.erase(node);
  }
}

// Only connected nodes are counted: one that is not may be dead.
void CopyKeeper::ReleaseSurplus(Object& object, Record& record) {
  absl::btree_map<uint64_t, std::vector<NodeKey>> holders;
  for (const auto& [key, copy] : object.copies) {
    const Node* node = parts_.nodes.Find(key);
    if (node != nullptr && node->connected && !node->draining && IsThere(copy))
      holders[HostOf(*node)].push_back(key);
  }
  const bool too_soon = DefectActive(Defect::kCopyReleasedTooSoon);
  if (holders.size() + (too_soon ? 1 : 0) < record.wanted) return;
  // The creator's copy stays, else those on the first hosts: the choice is the same each time.
  const auto creator = std::find_if(holders.begin(), holders.end(), [&](const auto& host) {
    return std::count(host.second.begin(), host.second.end(), object.generation.creator) > 0;
  });
  uint32_t kept = creator == holders.end() ? 0 : 1;
  if (too_soon) ++kept;
  for (auto host = holders.begin(); host != holders.end(); ++host) {
    const bool stays = host == creator || kept < record.wanted;
    if (stays && host != creator) ++kept;
    NodeKey keeper = host->second.front();
    if (host == creator) keeper = object.generation.creator;
    for (const NodeKey& key : host->second) {
      if (!stays || key != keeper) Release(object, record, key);
    }
  }
}

void CopyKeeper::Release(Object& object, Record& record, const NodeKey& node) {
  if (record.releasing.contains(node)) return;
  const PlanId plan = parts_.context.NewPlan();
  parts_.outbox.SendRelease(node, object.id, plan);
  // From now on the copy is not counted; the node's report confirms it.
  object.copies.at(node).primary = DefectActive(Defect::kCopyReleasedTooSoon);
  record.releasing[node] = plan;
  linked_[node].insert(object.id);
  ++released_;
}

void CopyKeeper::Answer(const ObjectId& id, const Object& object, Record& record) {
  if (record.waiting.empty()) return;
  const Hosts hosts = Count(object, record);
  absl::btree_set<uint64_t> up;
  bool may_come = hosts.covered() > hosts.there.size() || to_order_.contains(id);
  for (const auto& [key, node] : parts_.nodes.all()) {
    if (node->draining) continue;
    up.insert(HostOf(*node));
    // It may be ordered when it is connected, or dead.
    const bool away = !node->connected || node->registering;
    may_come = may_come || (away && !hosts.covers(HostOf(*node)));
  }
  const size_t enough = std::min<size_t>(record.wanted, up.size());
  absl::Status status;
  if (hosts.there.size() < enough) {
    if (may_come) return;
    status = absl::ResourceExhaustedError(
        absl::StrCat("primary copies are on ", hosts.there.size(), " of ", record.wanted,
                     " hosts; the nodes of the others have no room for one"));
  }
  const std::vector<Waiting> waiting = std::exchange(record.waiting, {});
  requests_ -= waiting.size();
  for (const Waiting& request : waiting) {
    UnlinkIfUnused(id, record, request.node);
    SendReply(request, id, static_cast<uint32_t>(hosts.there.size()), status);
  }
}

void CopyKeeper::SendReply(const Waiting& waiting, const ObjectId& id, uint32_t hosts,
                           const absl::Status& status) {
  if (parts_.nodes.Find(waiting.node) == nullptr) return;
  v1::BroadcastReply& reply = *parts_.outbox.Send(waiting.node).mutable_broadcast_reply();
  reply.set_request_id(waiting.request_id);
  reply.set_nodes(hosts);
  if (status.ok()) return;
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(absl::StrCat("object ", id.hex(), ": ", status.message()));
}

void CopyKeeper::SetRetry(const ObjectId& id, Record& record) {
  const Instant when = record.refusals.NextEnd(parts_.context.now);
  if (when >= record.retry) return;
  if (!record.retry.infinite()) retries_.erase({record.retry, id});
  record.retry = when;
  retries_.insert({when, id});
}

bool CopyKeeper::EndKeeping(const ObjectId& id, Record& record, const NodeKey& node) {
  const auto order = record.keeping.find(node);
  if (order == record.keeping.end()) return false;
  RemoveLoad(node, order->second);
  record.keeping.erase(order);
  --open_;
  changed_.insert(id);
  return true;
}

void CopyKeeper::UnlinkIfUnused(const ObjectId& id, const Record& record, const NodeKey& node) {
  if (record.keeping.contains(node) || record.releasing.contains(node)) return;
  if (record.refusals.Knows(node)) return;
  for (const Waiting& waiting : record.waiting) {
    if (waiting.node == node) return;
  }
  const auto found = linked_.find(node);
  if (found == linked_.end()) return;
  found->second.erase(id);
  if (found->second.empty()) linked_.erase(found);
}

absl::Status CopyKeeper::CheckInvariants() const {
  size_t open = 0;
  size_t requests = 0;
  absl::btree_map<NodeKey, Load> loads;
  for (const auto& [id, record] : records_) {
    const auto broken = [&id = id](absl::string_view what) {
      return absl::InternalError(absl::StrCat("copies of object ", id.hex(), ": ", what));
    };
    if (record.wanted == 0) return broken("none are wanted");
    open += record.keeping.size();
    requests += record.waiting.size();
    absl::btree_set<NodeKey> parts;
    for (const auto& [node, order] : record.keeping) {
      parts.insert(node);
      loads[node].in += order.bytes;
      loads[order.from].out += order.bytes;
    }
    for (const auto& [node, plan] : record.releasing) {
      if (!parts.insert(node).second) return broken("a node is to keep and to release one");
    }
    for (const Waiting& waiting : record.waiting) parts.insert(waiting.node);
    for (const NodeKey& node : record.refusals.Nodes()) parts.insert(node);
    for (const NodeKey& node : parts) {
      const auto linked = linked_.find(node);
      if (parts_.nodes.Find(node) == nullptr) return broken("a node that is down has part in it");
      if (linked == linked_.end() || !linked->second.contains(id)) {
        return broken("a node does not know its part");
      }
    }
    if (!record.retry.infinite() && !retries_.contains({record.retry, id})) {
      return broken("its retry is forgotten");
    }
  }
  for (const auto* ids : {&changed_, &short_, &to_order_, &lack_room_}) {
    for (const ObjectId& id : *ids) {
      if (!records_.contains(id)) return absl::InternalError("no copies of a listed object wanted");
    }
  }
  absl::erase_if(loads, [](const auto& each) { return each.second == Load(); });
  if (open != open_ || loads != loads_ || requests != requests_ || open > kMaxOrders) {
    return absl::InternalError("the orders for copies are miscounted");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
