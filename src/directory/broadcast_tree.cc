#include "src/directory/broadcast_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::directory {

BroadcastTree::Member* BroadcastTree::Find(const NodeKey& node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? nullptr : found->second.get();
}

BroadcastTree::Key BroadcastTree::KeyAt(const Member& member, Nearness level) const {
  return Key{member.tier(), member.load[static_cast<int>(level)], member.crossings, member.depth,
             member.order,  const_cast<Member*>(&member)};
}

void BroadcastTree::Unlist(Member* member) {
  if (!member->connected || !member->rooted()) return;
  for (int level = 0; level < kNearnessLevels; ++level) {
    const uint64_t domain = member->endpoint.place.domain(static_cast<Nearness>(level));
    if (domain == 0) continue;
    const auto found = index_[level].find(domain);
    found->second.erase(KeyAt(*member, static_cast<Nearness>(level)));
    if (found->second.empty()) index_[level].erase(found);
  }
}

void BroadcastTree::List(Member* member) {
  if (!member->connected || !member->rooted()) return;
  for (int level = 0; level < kNearnessLevels; ++level) {
    const uint64_t domain = member->endpoint.place.domain(static_cast<Nearness>(level));
    if (domain != 0) index_[level][domain].insert(KeyAt(*member, static_cast<Nearness>(level)));
  }
}

const BroadcastTree::Index* BroadcastTree::Candidates(Nearness level, uint64_t domain) const {
  if (domain == 0) return nullptr;
  const auto& domains = index_[static_cast<int>(level)];
  const auto found = domains.find(domain);
  return found == domains.end() ? nullptr : &found->second;
}

BroadcastTree::Member* BroadcastTree::Add(const Endpoint& endpoint, Role role, bool connected,
                                          bool draining) {
  auto [at, added] = members_.try_emplace(endpoint.node);
  PHALANX_CHECK(added, "a node is a member once");
  at->second = std::make_unique<Member>();
  Member* member = at->second.get();
  member->endpoint = endpoint;
  member->order = next_order_++;
  member->role = role;
  member->connected = connected;
  member->draining = draining;
  std::tie(member->depth, member->crossings) = DepthAndCrossings(*member);
  List(member);
  return member;
}

void BroadcastTree::Remove(const NodeKey& node) {
  const auto found = members_.find(node);
  if (found == members_.end()) return;
  Member* member = found->second.get();
  Detach(member);
  while (member->first_receiver != nullptr) Detach(member->first_receiver->receiver);
  Unlist(member);
  members_.erase(found);
}

std::pair<int, int> BroadcastTree::DepthAndCrossings(const Member& member) const {
  if (member.role == Role::kComplete) return {0, 0};
  if (member.role == Role::kWriter || member.fed_from_outside) return {1, 0};
  if (member.feeds.empty()) return {kUnrooted, 0};
  int depth = 0;
  int crossings = 0;
  for (const auto& feed : member.feeds) {
    const Member& sender = *feed->sender;
    if (!sender.rooted()) return {kUnrooted, 0};
    depth = std::max(depth, sender.depth + 1);
    const int crosses = Crosses(sender.endpoint.place, member.endpoint.place) ? 1 : 0;
    crossings = std::max(crossings, sender.crossings + crosses);
  }
  return {depth, crossings};
}

void BroadcastTree::Reroot(Member* member) {
  std::vector<Member*> pending = {member};
  while (!pending.empty()) {
    Member* current = pending.back();
    pending.pop_back();
    ++*visited_;
    const auto [depth, crossings] = DepthAndCrossings(*current);
    if (depth == current->depth && crossings == current->crossings) continue;
    Unlist(current);
    current->depth = depth;
    current->crossings = crossings;
    List(current);
    for (Feed* feed = current->first_receiver; feed != nullptr; feed = feed->next) {
      if (!feed->receiver->complete()) pending.push_back(feed->receiver);
    }
  }
}

BroadcastTree::Feed* BroadcastTree::Attach(Member* receiver, Member* sender, PlanId plan,
                                           uint64_t slices, bool occupies, Instant now) {
  if (!DefectActive(Defect::kCyclicSender)) {
    sender->rooted() ? MarkRootedDownstream(receiver) : MarkDownstream(receiver);
    PHALANX_CHECK(!Downstream(*sender), "a sender is never downstream of its receiver");
  }
  auto owned = std::make_unique<Feed>();
  Feed* feed = owned.get();
  feed->sender = sender;
  feed->receiver = receiver;
  feed->plan = plan;
  feed->slices = slices;
  feed->nearness = NearnessOf(sender->endpoint.place, receiver->endpoint.place);
  feed->since = now;
  feed->previous = sender->last_receiver;
  (sender->last_receiver != nullptr ? sender->last_receiver->next : sender->first_receiver) = feed;
  sender->last_receiver = feed;
  ++sender->receivers;
  ++feeds_;
  feed->occupies = false;
  SetOccupies(feed, occupies && receiver->connected && !receiver->slow_receiver);
  receiver->feeds.push_back(std::move(owned));
  Reroot(receiver);
  return feed;
}

void BroadcastTree::SetOccupies(Feed* feed, bool occupies) {
  if (feed->occupies == occupies) return;
  feed->occupies = occupies;
  Unlist(feed->sender);
  feed->sender->load[static_cast<int>(feed->nearness)] += occupies ? 1 : -1;
  List(feed->sender);
}

void BroadcastTree::Unlink(Feed* feed) {
  SetOccupies(feed, false);
  Member* sender = feed->sender;
  (feed->previous != nullptr ? feed->previous->next : sender->first_receiver) = feed->next;
  (feed->next != nullptr ? feed->next->previous : sender->last_receiver) = feed->previous;
  --sender->receivers;
  --feeds_;
}

void BroadcastTree::Detach(Member* receiver) {
  for (const auto& feed : receiver->feeds) Unlink(feed.get());
  receiver->feeds.clear();
  receiver->progress.slow_reports = 0;
  Reroot(receiver);
}

void BroadcastTree::Complete(Member* member) {
  if (member->complete()) return;
  for (const auto& feed : member->feeds) Unlink(feed.get());
  member->feeds.clear();
  const bool was_rooted = member->rooted();
  Unlist(member);
  member->role = Role::kComplete;
  member->fed_from_outside = false;
  member->depth = 0;
  member->crossings = 0;
  List(member);
  // Depths below only order candidates: an upper bound serves, and keeps a long chain's completion
  // linear.
  if (was_rooted) return;
  for (Feed* feed = member->first_receiver; feed != nullptr; feed = feed->next) {
    Reroot(feed->receiver);
  }
}

void BroadcastTree::SetFedFromOutside(Member* member, bool fed) {
  member->fed_from_outside = fed;
  Reroot(member);
}

void BroadcastTree::SetConnected(Member* member, bool connected) {
  if (member->connected == connected) return;
  Unlist(member);
  member->connected = connected;
  List(member);
  for (const auto& feed : member->feeds) {
    SetOccupies(feed.get(), connected && !member->slow_receiver);
  }
}

void BroadcastTree::SetDraining(Member* member, bool draining) {
  Unlist(member);
  member->draining = draining;
  List(member);
}

void BroadcastTree::SetLeaf(Member* member, bool leaf) {
  Unlist(member);
  member->leaf = leaf;
  List(member);
}

void BroadcastTree::MarkDownstream(Member* member) {
  ++mark_;
  std::vector<Member*> pending = {member};
  member->mark = mark_;
  while (!pending.empty()) {
    Member* current = pending.back();
    pending.pop_back();
    ++*visited_;
    for (Feed* feed = current->first_receiver; feed != nullptr; feed = feed->next) {
      if (feed->receiver->mark == mark_) continue;
      feed->receiver->mark = mark_;
      pending.push_back(feed->receiver);
    }
  }
}

void BroadcastTree::MarkRootedDownstream(Member* member) {
  if (member->rooted()) return MarkDownstream(member);
  member->mark = ++mark_;
  ++*visited_;
}

absl::Status BroadcastTree::CheckMember(const Member& member) const {
  const auto wrong = [&member](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("broadcast: node ", member.endpoint.node.ToString(), ": ", what));
  };
  std::array<int, kNearnessLevels> load = {};
  int receivers = 0;
  for (const Feed* feed = member.first_receiver; feed != nullptr; feed = feed->next) {
    if (feed->sender != &member) return wrong("feeds somebody else's receiver");
    if (feed->occupies) ++load[static_cast<int>(feed->nearness)];
    ++receivers;
  }
  if (load != member.load || receivers != member.receivers) return wrong("its load is miscounted");
  uint64_t slices = 0;
  for (const auto& feed : member.feeds) {
    if ((slices & feed->slices) != 0) return wrong("a slice has two senders");
    slices |= feed->slices;
  }
  if (member.complete() && !member.feeds.empty()) return wrong("is complete and still pulls");
  const bool rooted = DepthAndCrossings(member).first != kUnrooted;
  if (rooted != member.rooted()) return wrong("rooted without a root, or the reverse");
  for (int level = 0; level < kNearnessLevels; ++level) {
    const auto nearness = static_cast<Nearness>(level);
    const Index* index = Candidates(nearness, member.endpoint.place.domain(nearness));
    const bool listed = index != nullptr && index->count(KeyAt(member, nearness)) != 0;
    const bool wanted = member.connected && rooted && member.endpoint.place.domain(nearness) != 0;
    if (listed != wanted) return wrong("is not listed as it should be");
  }
  return absl::OkStatus();
}

absl::Status BroadcastTree::CheckAcyclic() const {
  // Takes away what has no sender left, until nothing is left or everything that is left is a
  // cycle.
  absl::flat_hash_map<const Member*, size_t> above;
  std::vector<const Member*> free;
  for (const auto& [node, member] : members_) {
    above[member.get()] = member->feeds.size();
    if (member->feeds.empty()) free.push_back(member.get());
  }
  size_t taken = 0;
  while (!free.empty()) {
    const Member* member = free.back();
    free.pop_back();
    ++taken;
    for (const Feed* feed = member->first_receiver; feed != nullptr; feed = feed->next) {
      if (--above[feed->receiver] == 0) free.push_back(feed->receiver);
    }
  }
  if (taken == members_.size()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("broadcast: ", members_.size() - taken, " nodes pull in a circle"));
}

absl::Status BroadcastTree::CheckInvariants() const {
  size_t listed = 0;
  size_t feeds = 0;
  for (const auto& [node, member] : members_) {
    if (absl::Status status = CheckMember(*member); !status.ok()) return status;
    if (member->connected && member->rooted()) ++listed;
    feeds += member->feeds.size();
  }
  if (feeds != feeds_) return absl::InternalError("broadcast: the feeds are miscounted");
  const Index* everybody = Candidates(Nearness::kWorld, 1);
  if ((everybody == nullptr ? 0 : everybody->size()) != listed) {
    return absl::InternalError("broadcast: the index has strangers");
  }
  return CheckAcyclic();
}

}  // namespace phalanx::directory
