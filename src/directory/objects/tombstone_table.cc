#include "src/directory/objects/tombstone_table.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "src/directory/core/node_table.h"

namespace phalanx::directory {
namespace {

// An id that is put and deleted more often than this within the age of a tombstone forgets its
// oldest generation.
constexpr size_t kMaxTombstoneGenerations = 64;
// When many tombstones expire together, one turn erases this many.
constexpr int kMaxExpiredAtOnce = 4096;

}  // namespace

bool Tombstone::Contains(const Generation& generation) const {
  return std::find(generations.begin(), generations.end(), generation) != generations.end();
}

Tombstone* TombstoneTable::Find(const ObjectId& id) {
  const auto found = tombstones_.find(id);
  return found == tombstones_.end() ? nullptr : found->second.get();
}

Tombstone* TombstoneTable::FindRefusing(const ObjectId& id, const Generation& generation) {
  Tombstone* tombstone = Find(id);
  return tombstone != nullptr && tombstone->Contains(generation) ? tombstone : nullptr;
}

bool TombstoneTable::Refuses(const ObjectId& id, const Generation& generation) const {
  const auto found = tombstones_.find(id);
  return found != tombstones_.end() && found->second->Contains(generation);
}

const Tombstone* TombstoneTable::FindDeleted(const ObjectId& id) const {
  const auto found = tombstones_.find(id);
  return found == tombstones_.end() || found->second->revived ? nullptr : found->second.get();
}

Tombstone& TombstoneTable::GetOrCreate(const ObjectId& id) {
  auto [at, added] = tombstones_.try_emplace(id);
  if (added) {
    at->second = std::make_unique<Tombstone>();
    // Looked up by hash for each message about an object; the ordered ids serve the tools' pages.
    ids_.insert(id);
  }
  return *at->second;
}

void TombstoneTable::Erase(const ObjectId& id) {
  const auto found = tombstones_.find(id);
  const Tombstone& tombstone = *found->second;
  for (const auto& [entry, session] : tombstone.unconfirmed) Unlist(entry.first, id);
  if (tombstone.watched) confirmed_.push_back(id);
  ListOf(tombstone).erase(tombstone.order);
  tombstones_.erase(found);
  ids_.erase(id);
}

Tombstone& TombstoneTable::Add(const ObjectId& id, const Generation& generation) {
  Tombstone& tombstone = GetOrCreate(id);
  // The id is deleted now, whatever was put under it before.
  tombstone.revived = false;
  tombstone.by_ttl = false;
  auto& generations = tombstone.generations;
  generations.erase(std::remove(generations.begin(), generations.end(), generation),
                    generations.end());
  // In front, so that beyond the limit the oldest generation goes and not the last Delete.
  generations.insert(generations.begin(), generation);
  RestartAge(tombstone, id);
  if (generations.size() > kMaxTombstoneGenerations) {
    ForgetConfirms(id, generations.back(), tombstone);
    generations.pop_back();
  }
  return tombstone;
}

Tombstone& TombstoneTable::AddOlder(const ObjectId& id, const Generation& generation) {
  Tombstone& tombstone = GetOrCreate(id);
  // Left out if there is no room: old generations must not push out the last Delete.
  const bool room = tombstone.generations.size() < kMaxTombstoneGenerations;
  if (room && !tombstone.Contains(generation)) tombstone.generations.push_back(generation);
  RestartAge(tombstone, id);
  return tombstone;
}

void TombstoneTable::Revive(const ObjectId& id) {
  if (Tombstone* tombstone = Find(id)) tombstone->revived = true;
}

void TombstoneTable::RestartAge(Tombstone& tombstone, const ObjectId& id) {
  ListOf(tombstone).erase(tombstone.order);
  tombstone.order = context_.NewOrder();
  tombstone.expired = false;
  tombstone.since = context_.now;
  recent_.emplace_hint(recent_.end(), tombstone.order, id);
}

void TombstoneTable::AwaitConfirm(Tombstone& tombstone, const ObjectId& id,
                                  const Generation& generation, const NodeKey& node,
                                  uint64_t session) {
  // AddOlder leaves a generation out if the tombstone is full.
  if (!tombstone.Contains(generation)) return;
  // By session: only what an earlier session left unconfirmed ends with a registration.
  tombstone.unconfirmed[{node, generation}] = session;
  unconfirmed_[node].insert(id);
}

void TombstoneTable::Confirm(const ObjectId& id, const Generation& generation,
                             const NodeKey& node) {
  Tombstone* tombstone = Find(id);
  if (tombstone == nullptr || tombstone->unconfirmed.erase({node, generation}) == 0) return;
  EndConfirm(id, node, *tombstone);
}

void TombstoneTable::EndConfirm(const ObjectId& id, const NodeKey& node, Tombstone& tombstone) {
  const auto next = tombstone.unconfirmed.lower_bound({node, Generation()});
  const bool others = next != tombstone.unconfirmed.end() && next->first.first == node;
  if (!others) Unlist(node, id);
  if (tombstone.watched) confirmed_.push_back(id);
  // An expired tombstone exists only to wait for its confirmations.
  if (tombstone.expired && tombstone.unconfirmed.empty()) Erase(id);
}

void TombstoneTable::Unlist(const NodeKey& node, const ObjectId& id) {
  const auto listed = unconfirmed_.find(node);
  if (listed == unconfirmed_.end()) return;
  listed->second.erase(id);
  if (listed->second.empty()) unconfirmed_.erase(listed);
}

void TombstoneTable::ForgetConfirms(const ObjectId& id, const Generation& generation,
                                    Tombstone& tombstone) {
  // Nodes first: EndConfirm changes the map that the loop reads.
  std::vector<NodeKey> nodes;
  for (const auto& [entry, session] : tombstone.unconfirmed) {
    if (entry.second == generation) nodes.push_back(entry.first);
  }
  for (const NodeKey& node : nodes) {
    tombstone.unconfirmed.erase({node, generation});
    EndConfirm(id, node, tombstone);
  }
}

void TombstoneTable::ForgetConfirms(const NodeKey& node, uint64_t session) {
  const auto listed = unconfirmed_.find(node);
  if (listed == unconfirmed_.end()) return;
  for (const ObjectId& id : Sorted(listed->second)) {
    Tombstone& tombstone = *tombstones_.at(id);
    auto at = tombstone.unconfirmed.lower_bound({node, Generation()});
    while (at != tombstone.unconfirmed.end() && at->first.first == node) {
      at = at->second < session ? tombstone.unconfirmed.erase(at) : std::next(at);
    }
    EndConfirm(id, node, tombstone);
  }
}

// The session registered what its node still has: a copy of the generation was refused again, and
// is awaited under the new session.
void TombstoneTable::SessionRegistered(const NodeKey& node, uint64_t session) {
  ForgetConfirms(node, session);
}

absl::flat_hash_set<ObjectId> TombstoneTable::UnconfirmedBy(const NodeKey& node) const {
  const auto listed = unconfirmed_.find(node);
  return listed == unconfirmed_.end() ? absl::flat_hash_set<ObjectId>() : listed->second;
}

void TombstoneTable::NodeDown(const NodeKey& node) {
  ForgetConfirms(node, std::numeric_limits<uint64_t>::max());
}

void TombstoneTable::Expire() {
  for (int i = 0; i < kMaxExpiredAtOnce; ++i) {
    if (TooMany() && !expired_.empty()) {
      // Older than any recent one.
      Erase(ObjectId(expired_.begin()->second));
      continue;
    }
    if (recent_.empty()) return;
    const auto [order, id] = *recent_.begin();
    Tombstone& oldest = *tombstones_.at(id);
    const bool expired = oldest.since + context_.options.tombstone_age <= context_.now;
    if (!TooMany() && !expired) return;
    if (TooMany() || oldest.unconfirmed.empty()) {
      Erase(id);
      continue;
    }
    // Not erased yet: a node that has not confirmed may return with its copy after any time.
    recent_.erase(recent_.begin());
    oldest.expired = true;
    expired_.emplace_hint(expired_.end(), order, id);
  }
}

Instant TombstoneTable::NextDeadline() const {
  // Tombstones that the last turn left over are due now: a deadline in the past would look like a
  // pause of the process.
  if (TooMany()) return context_.now;
  if (recent_.empty()) return Instant::Infinite();
  const Tombstone& oldest = *tombstones_.at(recent_.begin()->second);
  return std::max(oldest.since + context_.options.tombstone_age, context_.now);
}

absl::Status TombstoneTable::CheckInvariants() const {
  if (ids_.size() != tombstones_.size()) {
    return absl::InternalError("the ids of tombstones are miscounted");
  }
  if (recent_.size() + expired_.size() != tombstones_.size()) {
    return absl::InternalError("tombstones by age are miscounted");
  }
  for (const auto& [id, tombstone] : tombstones_) {
    const size_t generations = tombstone->generations.size();
    if (generations == 0 || generations > kMaxTombstoneGenerations) {
      return absl::InternalError("a tombstone has no generation, or too many");
    }
    const ByAge& list = tombstone->expired ? expired_ : recent_;
    const auto place = list.find(tombstone->order);
    if (place == list.end() || place->second != id) {
      return absl::InternalError("a tombstone is not listed by its age");
    }
    if (tombstone->expired && tombstone->unconfirmed.empty()) {
      return absl::InternalError("an expired tombstone waits for no confirmation");
    }
    for (const auto& [entry, session] : tombstone->unconfirmed) {
      const auto listed = unconfirmed_.find(entry.first);
      if (listed == unconfirmed_.end() || !listed->second.contains(id)) {
        return absl::InternalError("a tombstone waits for a node that is not listed");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
