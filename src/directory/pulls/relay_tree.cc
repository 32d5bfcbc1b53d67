#include "src/directory/pulls/relay_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::directory {

RelayTree::Member* RelayTree::Find(const NodeKey& node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? nullptr : found->second.get();
}

RelayTree::Key RelayTree::KeyAt(const Member& member, Nearness level) const {
  // Finding a candidate changes nothing, but the planner attaches a receiver to what it found.
  return Key{member.tier(), member.load[static_cast<int>(level)], member.crossings, member.depth,
             member.order,  const_cast<Member*>(&member)};
}

void RelayTree::Unlist(Member* member) {
  if (!member->connected || !member->rooted()) return;
  for (int level = 0; level < kNearnessLevels; ++level) {
    const uint64_t domain = member->endpoint.locality.domain(static_cast<Nearness>(level));
    if (domain == 0) continue;
    // An empty domain goes at once: the planner takes a domain that exists for one with a
    // candidate.
    const auto found = index_[level].find(domain);
    found->second.erase(KeyAt(*member, static_cast<Nearness>(level)));
    if (found->second.empty()) index_[level].erase(found);
  }
}

void RelayTree::List(Member* member) {
  if (!member->connected || !member->rooted()) return;
  for (int level = 0; level < kNearnessLevels; ++level) {
    const uint64_t domain = member->endpoint.locality.domain(static_cast<Nearness>(level));
    if (domain != 0) index_[level][domain].insert(KeyAt(*member, static_cast<Nearness>(level)));
  }
}

const RelayTree::Index* RelayTree::Candidates(Nearness level, uint64_t domain) const {
  // Nodes without the label share no domain.
  if (domain == 0) return nullptr;
  const auto& domains = index_[static_cast<int>(level)];
  const auto found = domains.find(domain);
  return found == domains.end() ? nullptr : &found->second;
}

RelayTree::Member* RelayTree::Add(const Endpoint& endpoint, Role role, bool connected,
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
  // Before List: depth and crossings are part of the index key.
  std::tie(member->depth, member->crossings) = DepthAndCrossings(*member);
  List(member);
  return member;
}

void RelayTree::Remove(const NodeKey& node) {
  const auto found = members_.find(node);
  if (found == members_.end()) return;
  Member* member = found->second.get();
  Detach(member);
  while (member->first_receiver != nullptr) Detach(member->first_receiver->receiver);
  if (member->role == Role::kRelayOfOther) CountRelay(*member, -1);
  // After the feeds: unlinking them lists the member again.
  Unlist(member);
  members_.erase(found);
}

std::pair<int, int> RelayTree::DepthAndCrossings(const Member& member) const {
  if (member.role == Role::kComplete) return {0, 0};
  // Depth 1: a complete copy ranks before a writer.
  if (member.role == Role::kWriter || member.fed_from_outside) return {1, 0};
  if (member.feeds.empty()) return {kUnrooted, 0};
  int depth = 0;
  int crossings = 0;
  // The worst of the senders counts: the member is complete when its last slice is.
  for (const auto& feed : member.feeds) {
    const Member& sender = *feed->sender;
    if (!sender.rooted()) return {kUnrooted, 0};
    depth = std::max(depth, sender.depth + 1);
    const int crosses = Crosses(sender.endpoint.locality, member.endpoint.locality) ? 1 : 0;
    crossings = std::max(crossings, sender.crossings + crosses);
  }
  return {depth, crossings};
}

void RelayTree::Reroot(Member* member) {
  // A list instead of recursion: a chain of ten thousand receivers would exhaust the stack.
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
    // A complete receiver is a root: nothing below it changes.
    for (Feed* feed = current->first_receiver; feed != nullptr; feed = feed->next) {
      if (!feed->receiver->complete()) pending.push_back(feed->receiver);
    }
  }
}

RelayTree::Feed* RelayTree::Attach(Member* receiver, Member* sender, PlanId plan, uint64_t slices,
                                   bool occupies, Instant now) {
  if (!DefectActive(Defect::kCyclicSender)) {
    // A rooted sender cannot be below a receiver without a root, so the cheap mark is enough for
    // it.
    sender->rooted() ? MarkRootedDownstream(receiver) : MarkDownstream(receiver);
    PHALANX_CHECK(!Downstream(*sender), "a sender is never downstream of its receiver");
  }
  auto owned = std::make_unique<Feed>();
  Feed* feed = owned.get();
  feed->sender = sender;
  feed->receiver = receiver;
  feed->plan = plan;
  feed->slices = slices;
  feed->nearness = NearnessOf(sender->endpoint.locality, receiver->endpoint.locality);
  feed->since = now;
  feed->previous = sender->last_receiver;
  (sender->last_receiver != nullptr ? sender->last_receiver->next : sender->first_receiver) = feed;
  // Receivers are iterated in the order of attachment, the same in every replay.
  sender->last_receiver = feed;
  ++sender->receivers;
  if (feeds_++ == 0) busy_since_ = now;
  // SetOccupies counts it, and lists the sender under its new load.
  feed->occupies = false;
  Count(feed, occupies);
  receiver->feeds.push_back(std::move(owned));
  // Last: the depth follows from the feed that was added.
  Reroot(receiver);
  return feed;
}

void RelayTree::SetOccupies(Feed* feed, bool occupies) {
  if (feed->occupies == occupies) return;
  feed->occupies = occupies;
  Unlist(feed->sender);
  feed->sender->load[static_cast<int>(feed->nearness)] += occupies ? 1 : -1;
  List(feed->sender);
}

void RelayTree::Count(Feed* feed, bool occupies) {
  // Slow nodes serve one another in turn, as fast ones do; a faster sender serves them beside.
  const bool beside = feed->receiver->slow_receiver && !feed->sender->slow_receiver;
  SetOccupies(feed, occupies && feed->receiver->connected && !beside);
  SetLight(feed, feed->receiver->connected && beside ? feed->receiver->slow_rate : 0);
}

void RelayTree::SetLight(Feed* feed, uint64_t light) {
  feed->sender->light += light - std::exchange(feed->light, light);
}

void RelayTree::SetSlow(Member* member, bool slow, uint64_t rate) {
  if (member->slow_receiver == slow && member->slow_rate == rate) return;
  Unlist(member);
  member->slow_receiver = slow;
  member->slow_rate = rate;
  List(member);
  for (const auto& feed : member->feeds) Count(feed.get(), /*occupies=*/true);
  for (Feed* feed = member->first_receiver; feed != nullptr; feed = feed->next) {
    Count(feed, /*occupies=*/true);
  }
}

void RelayTree::Unlink(Feed* feed) {
  SetOccupies(feed, false);
  SetLight(feed, 0);
  Member* sender = feed->sender;
  (feed->previous != nullptr ? feed->previous->next : sender->first_receiver) = feed->next;
  (feed->next != nullptr ? feed->next->previous : sender->last_receiver) = feed->previous;
  --sender->receivers;
  if (--feeds_ == 0) keeps_whole_ = false;
}

void RelayTree::Detach(Member* receiver) {
  for (const auto& feed : receiver->feeds) Unlink(feed.get());
  receiver->feeds.clear();
  // Slow reports are about one sender; the next one begins without them.
  receiver->progress.slow_reports = 0;
  Reroot(receiver);
}

void RelayTree::Complete(Member* member) {
  if (member->complete()) return;
  if (member->role == Role::kRelayOfOther) CountRelay(*member, -1);
  for (const auto& feed : member->feeds) Unlink(feed.get());
  member->feeds.clear();
  // Not through Detach: it would unroot every member below for the moment between the two changes.
  const bool was_rooted = member->rooted();
  Unlist(member);
  member->role = Role::kComplete;
  member->fed_from_outside = false;
  member->depth = 0;
  member->crossings = 0;
  List(member);
  // Depths only order candidates, so an upper bound is enough below: the completions of a long
  // chain stay linear.
  if (was_rooted) return;
  for (Feed* feed = member->first_receiver; feed != nullptr; feed = feed->next) {
    Reroot(feed->receiver);
  }
}

void RelayTree::SetFedFromOutside(Member* member, bool fed) {
  member->fed_from_outside = fed;
  Reroot(member);
}

void RelayTree::SetConnected(Member* member, bool connected) {
  if (member->connected == connected) return;
  Unlist(member);
  member->connected = connected;
  List(member);
  // A receiver that may be dead does not keep its sender from the next one.
  for (const auto& feed : member->feeds) Count(feed.get(), /*occupies=*/true);
}

void RelayTree::SetDraining(Member* member, bool draining) {
  Unlist(member);
  member->draining = draining;
  List(member);
}

void RelayTree::SetLeaf(Member* member, bool leaf) {
  Unlist(member);
  member->leaf = leaf;
  List(member);
}

void RelayTree::SetRelayOfOther(Member* member) {
  Unlist(member);
  member->role = Role::kRelayOfOther;
  List(member);
  CountRelay(*member, 1);
}

void RelayTree::CountRelay(const Member& member, int change) {
  for (int level = 0; level < kNearnessLevels; ++level) {
    const uint64_t domain = member.endpoint.locality.domain(static_cast<Nearness>(level));
    if (domain != 0) relays_of_other_[level][domain] += change;
  }
}

int RelayTree::RelaysOfOther(Nearness level, uint64_t domain) const {
  const auto& domains = relays_of_other_[static_cast<int>(level)];
  const auto found = domains.find(domain);
  return found == domains.end() ? 0 : found->second;
}

void RelayTree::MarkDownstream(Member* member) {
  // A new number unmarks every member at once.
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

void RelayTree::MarkRootedDownstream(Member* member) {
  if (member->rooted()) return MarkDownstream(member);
  member->mark = ++mark_;
  ++*visited_;
}

absl::Status RelayTree::CheckMember(const Member& member) const {
  const auto wrong = [&member](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("relay tree: node ", member.endpoint.node.ToString(), ": ", what));
  };
  std::array<int, kNearnessLevels> load = {};
  int receivers = 0;
  uint64_t light = 0;
  for (const Feed* feed = member.first_receiver; feed != nullptr; feed = feed->next) {
    if (feed->sender != &member) return wrong("feeds a receiver of another member");
    light += feed->light;
    if (feed->occupies) ++load[static_cast<int>(feed->nearness)];
    ++receivers;
  }
  if (load != member.load || receivers != member.receivers) return wrong("its load is miscounted");
  if (light != member.light) return wrong("what its slow receivers take is miscounted");
  uint64_t slices = 0;
  for (const auto& feed : member.feeds) {
    if ((slices & feed->slices) != 0) return wrong("a slice has two senders");
    slices |= feed->slices;
  }
  if (member.complete() && !member.feeds.empty()) return wrong("is complete and still pulls");
  // Depths may be stale upper bounds (Complete), so only rooted or not is compared.
  const bool rooted = DepthAndCrossings(member).first != kUnrooted;
  if (rooted != member.rooted()) return wrong("rooted without a root, or the reverse");
  for (int level = 0; level < kNearnessLevels; ++level) {
    const auto nearness = static_cast<Nearness>(level);
    const Index* index = Candidates(nearness, member.endpoint.locality.domain(nearness));
    const bool listed = index != nullptr && index->count(KeyAt(member, nearness)) != 0;
    const bool wanted =
        member.connected && rooted && member.endpoint.locality.domain(nearness) != 0;
    if (listed != wanted) return wrong("is not listed as it should be");
  }
  return absl::OkStatus();
}

absl::Status RelayTree::CheckAcyclic() const {
  // Removes members without senders until none is left; members that remain are in a cycle.
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
      absl::StrCat("relay tree: ", members_.size() - taken, " nodes pull in a circle"));
}

absl::Status RelayTree::CheckInvariants() const {
  size_t listed = 0;
  size_t feeds = 0;
  int relays = 0;
  for (const auto& [node, member] : members_) {
    if (absl::Status status = CheckMember(*member); !status.ok()) return status;
    if (member->connected && member->rooted()) ++listed;
    feeds += member->feeds.size();
    if (member->role == Role::kRelayOfOther) ++relays;
  }
  if (feeds != feeds_) return absl::InternalError("relay tree: the feeds are miscounted");
  if (relays != RelaysOfOther(Nearness::kWorld, 1)) {
    return absl::InternalError("relay tree: the relays of the other half are miscounted");
  }
  const Index* all = Candidates(Nearness::kWorld, 1);
  if ((all == nullptr ? 0 : all->size()) != listed) {
    return absl::InternalError("relay tree: the index has nodes that are not members");
  }
  return CheckAcyclic();
}

absl::InlinedVector<RelayTree*, 2> RelayTrees::all() const {
  absl::InlinedVector<RelayTree*, 2> trees;
  if (first != nullptr) trees.push_back(first.get());
  if (second != nullptr) trees.push_back(second.get());
  return trees;
}

RelayTree* RelayTrees::Of(const NodeKey& receiver, PlanId plan) const {
  for (RelayTree* tree : all()) {
    const RelayTree::Member* member = tree->Find(receiver);
    if (member == nullptr || member->feeds.empty()) continue;
    // Plan 0 is a registered pull, whose number is from an earlier shard.
    const PlanId current = member->feeds.front()->plan;
    if (current == plan || current == 0) return tree;
  }
  return nullptr;
}

bool RelayTrees::Feed(const NodeKey& receiver) const {
  for (const RelayTree* tree : all()) {
    if (tree->Find(receiver)->feeds.empty()) return false;
  }
  return true;
}

void RelayTrees::MakeRelay(const NodeKey& receiver) {
  using Role = RelayTree::Role;
  RelayTree::Member* const in_first = first->Find(receiver);
  RelayTree::Member* const in_second = second->Find(receiver);
  if (in_first->role != Role::kReceiver || in_second->role != Role::kReceiver) return;
  bool relays_second = true;
  for (int level = 0; level < kNearnessLevels; ++level) {
    const auto nearness = static_cast<Nearness>(level);
    const uint64_t domain = in_first->endpoint.locality.domain(nearness);
    const int of_second = first->RelaysOfOther(nearness, domain);
    const int of_first = second->RelaysOfOther(nearness, domain);
    if (of_second == of_first) continue;
    relays_second = of_second < of_first;
    break;
  }
  relays_second ? first->SetRelayOfOther(in_first) : second->SetRelayOfOther(in_second);
}

}  // namespace phalanx::directory
