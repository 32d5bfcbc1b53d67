#include "src/sim/cluster/checkers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/directory/core/validate.h"
#include "src/sim/cluster/content.h"

namespace phalanx::sim {

using CopyInfo = object_store::Store::CopyInfo;

// -------------------------------------------------------------------------------------- always

void Checkers::CheckCores() {
  for (int s = 0; s < cluster_.num_shards(); ++s) {
    if (cluster_.shard(s) == nullptr) continue;
    cluster_.journal().Violation(ShardName(s), cluster_.shard(s)->core().CheckInvariants());
  }
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    if (cluster_.node(n) == nullptr) continue;
    cluster_.journal().Violation(NodeName(n), cluster_.store(n)->CheckInvariants());
    cluster_.journal().Violation(NodeName(n), cluster_.node(n)->reducer().CheckInvariants());
  }
}

void Checkers::CheckCopies() {
  std::map<Generation, std::set<NodeKey>> complete;
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    object_store::Store* store = cluster_.store(n);
    if (store == nullptr) continue;
    const Copies copies = store->Copies();
    CheckBytes(n, copies);
    for (const CopyInfo& copy : copies) {
      if (copy.complete) complete[copy.generation].insert(cluster_.node(n)->key());
    }
    // A sample of each view only, because checking all bytes at each sample is too slow.
    for (SimClient* client : cluster_.clients(n)) client->CheckViews(/*all_bytes=*/false);
  }
  CheckAdoption();
  CheckLosses(complete);
}

void Checkers::CheckBytes(int n, const Copies& copies) {
  for (const CopyInfo& copy : copies) {
    // The history learns the generation of a Put with its answer; until then the attempt is
    // unknown.
    const uint64_t attempt = cluster_.history().AttemptOf(copy.generation);
    if (attempt != 0) CheckCopyBytes(n, copy, attempt);
  }
}

// Compares the bytes that arrived since the previous sample: comparing all each time is too slow.
void Checkers::CheckCopyBytes(int n, const CopyInfo& copy, uint64_t number) {
  const Attempt& attempt = cluster_.history().attempt(number);
  const auto breach = [&](absl::string_view what) {
    cluster_.journal().Violation(absl::StrCat("copy of ", cluster_.history().NameOf(copy.id),
                                              " attempt ", number, " on ", NodeName(n), ": ",
                                              what));
  };
  // Checked before the bytes, which are indexed by this size.
  if (copy.size_bytes != attempt.size_bytes || copy.id != attempt.id) return breach("its size");
  if (copy.name != cluster_.history().ObjectNameOf(copy.id)) return breach("its name");
  net::TransferBuffer& buffer = *copy.buffer;
  Verified& verified = verified_[{cluster_.node(n)->key(), copy.generation}];
  if (verified.buffer != &buffer) {
    verified.buffer = &buffer;
    verified.watermarks.assign(static_cast<size_t>(buffer.layout().slices), 0);
  }
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    uint64_t& seen = verified.watermarks[static_cast<size_t>(slice)];
    const uint64_t now = buffer.watermark(slice);
    if (now < seen) seen = 0;  // another buffer at the same address
    if (now == seen) continue;
    bytes_checked_ += now - seen;
    const auto wrong = FirstWrongByte(number, buffer.layout().Begin(slice) + seen,
                                      buffer.slice(slice).subspan(seen, now - seen));
    if (wrong) return breach(absl::StrCat("byte ", *wrong, " is wrong"));
    seen = now;
  }
}

void Checkers::CheckAdoption() {
  for (int s = 0; s < cluster_.num_shards(); ++s) {
    for (const v1::ObjectSummary& object : cluster_.List(s)) {
      const auto id = ObjectId::FromBinary(object.object_id());
      const Generation now = directory::FromProto(object.generation());
      if (!id.ok() || object.deleted() || !now.valid()) continue;
      const uint64_t number = cluster_.history().AttemptOf(now);
      // Read before NoteAdopted sets it.
      const bool returned = number != 0 && cluster_.history().attempt(number).adopted;
      cluster_.history().NoteAdopted(now);
      const Generation before = std::exchange(adopted_[*id], now);
      if (before.valid() && before != now) CheckReplacement(*id, before, now, returned);
    }
  }
}

void Checkers::CheckReplacement(const ObjectId& id, const Generation& before, const Generation& now,
                                bool returned) {
  History& history = cluster_.history();
  const uint64_t number = history.AttemptOf(before);
  if (number == 0) return;
  const Attempt& attempt = history.attempt(number);
  // A Delete explains any change of the generation.
  if (history.PossiblyDeleted(attempt)) return;
  const Instant since = cluster_.scheduler().now() - Grace();
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    if (!cluster_.Undisturbed(n, cluster_.ShardOf(id), since)) continue;
    const NodeKey key = cluster_.node(n)->key();
    // A complete copy that was adopted before wins over one that is being written.
    const bool writes = !returned && attempt.state == AttemptState::kOpen && attempt.creator == key;
    const auto holding = holdings_.find(number);
    const bool holds = holding != holdings_.end() && holding->second.holders.contains(key);
    if (!writes && !holds) continue;
    cluster_.journal().Violation(absl::StrCat(history.NameOf(id), ": attempt ", number,
                                              " was replaced by attempt ", history.AttemptOf(now),
                                              " while ", NodeName(n),
                                              writes ? " was writing it" : " had a copy"));
  }
}

bool Checkers::MustBeDeleted(const Attempt& attempt) {
  for (const Deletion& deletion : cluster_.history().deletions()) {
    if (deletion.doomed != attempt.number || !deletion.confirmed) continue;
    // The same life of the shard remembers the deletion itself.
    if (cluster_.last_shard_start(cluster_.ShardOf(deletion.id)) <= deletion.begun) return true;
    // The node of the Delete knows the deleted generations, and reports them to a restarted shard.
    if (deletion.undisturbed && cluster_.FindNode(deletion.by) >= 0) return true;
    for (const NodeKey& key : attempt.deletion_confirmed_by) {
      if (cluster_.FindNode(key) >= 0) return true;
    }
  }
  return false;
}

void Checkers::CheckLosses(const std::map<Generation, std::set<NodeKey>>& complete) {
  History& history = cluster_.history();
  const Instant now = cluster_.scheduler().now();
  for (const Attempt& attempt : history.attempts()) {
    if (!attempt.adopted || !attempt.generation) continue;
    const auto found = complete.find(*attempt.generation);
    Holding& holding = holdings_[attempt.number];
    const std::set<NodeKey> before = std::move(holding.holders);
    holding.holders = found == complete.end() ? std::set<NodeKey>() : found->second;
    NodeKey alive;
    for (const NodeKey& key : before) {
      if (cluster_.FindNode(key) >= 0) {
        alive = key;
      } else {
        holding.last_death = now;
      }
    }
    // Not lost now, or lost with the death of its last holder.
    if (before.empty() || !holding.holders.empty() || !alive.valid()) continue;
    const auto adopted = adopted_.find(attempt.id);
    const bool replaced = adopted != adopted_.end() && adopted->second != *attempt.generation;
    // The shard can have granted the eviction because of a copy on a node that had just died.
    const bool granted_for_a_dead_holder =
        holding.last_death.nanos() >= 0 && now - holding.last_death < Fencing();
    if (attempt.unsealed || replaced || granted_for_a_dead_holder) continue;
    if (history.PossiblyDeleted(attempt)) continue;
    cluster_.journal().Violation(
        absl::StrCat(history.NameOf(attempt.id), ": the last copy of attempt ", attempt.number,
                     " was lost on ", alive.ToString(), ", which is running"));
  }
}

// ------------------------------------------------------------------------------------- at rest

absl::Status Checkers::Settled() {
  absl::Status status = NodesAtRest();
  if (status.ok()) status = RequestsAtRest();
  if (status.ok()) status = DirectoryMatchesCopies();
  return status;
}

absl::Status Checkers::NodesAtRest() {
  const auto not_yet = [](int n, const auto&... what) {
    return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", what...));
  };
  // While nodes wait for an object without a complete copy, its partial copies are still relayed.
  bool waits_without_copy = false;
  for (int s = 0; s < cluster_.num_shards(); ++s) {
    for (const v1::ObjectSummary& object : cluster_.List(s)) {
      waits_without_copy |= object.waiting() > 0 && object.complete_copies() == 0;
    }
  }
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    runtime::Node* node = cluster_.node(n);
    if (node == nullptr) return not_yet(n, "is down");
    const std::vector<absl::Status> states = node->ShardStates();
    for (size_t s = 0; s < states.size(); ++s) {
      if (!states[s].ok()) return not_yet(n, "shard ", s, ": ", states[s].ToString());
    }
    // Partial relays continue then, so their transfers are not an error.
    if (waits_without_copy) continue;
    const net::DataPlaneStats plane = node->data_plane_stats();
    if (plane.pulls_active != 0) return not_yet(n, plane.pulls_active, " pulls");
    if (plane.pushes_active != 0) return not_yet(n, plane.pushes_active, " pushes");
  }
  return absl::OkStatus();
}

absl::Status Checkers::RequestsAtRest() {
  for (const Operation& operation : cluster_.history().operations()) {
    if (operation.state != Operation::State::kRunning) continue;
    // The deadline of a streaming Get ends with its first view.
    const bool in_time = operation.streaming || cluster_.scheduler().now() < operation.deadline;
    if (operation.read && in_time && CanWait(operation)) continue;
    return absl::UnavailableError(
        absl::StrCat("#", operation.number, " ", operation.node.ToString(), " ", operation.what,
                     " ", cluster_.history().NameOf(operation.id),
                     " has not ended: ", cluster_.DescribeEverywhere(operation.id)));
  }
  return absl::OkStatus();
}

// A Get can wait if there is no complete copy, or no room for one.
bool Checkers::CanWait(const Operation& get) {
  const v1::ObjectSummary summary = cluster_.Describe(get.id).summary();
  if (summary.complete_copies() == 0) return true;
  const int n = cluster_.FindNode(get.node);
  return n >= 0 && UnevictableBytes(n) + SimCluster::CountedBytes(summary) >
                       cluster_.options().capacity_bytes;
}

// The bytes that cannot be evicted from a node: pinned ones, and last complete copies.
uint64_t Checkers::UnevictableBytes(int n) {
  uint64_t bytes = cluster_.store(n)->stats().pinned_bytes;
  for (const CopyInfo& copy : cluster_.store(n)->Copies()) {
    if (copy.primary || !copy.complete) continue;
    if (cluster_.Describe(copy.id).summary().complete_copies() <= 1) bytes += copy.counted_bytes;
  }
  return bytes;
}

absl::Status Checkers::DirectoryMatchesCopies() {
  std::set<ObjectId> ids;
  for (int s = 0; s < cluster_.num_shards(); ++s) {
    if (cluster_.shard(s) == nullptr) return absl::UnavailableError("a shard is down");
    for (const v1::ObjectSummary& object : cluster_.List(s)) {
      if (const auto id = ObjectId::FromBinary(object.object_id()); id.ok()) ids.insert(*id);
    }
  }
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    for (const CopyInfo& copy : cluster_.store(n)->Copies()) ids.insert(copy.id);
  }
  for (const ObjectId& id : ids) {
    if (absl::Status status = ObjectMatchesCopies(id); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Checkers::ObjectMatchesCopies(const ObjectId& id) {
  History& history = cluster_.history();
  const v1::DescribeObjectResponse described = cluster_.Describe(id);
  const Generation adopted = directory::FromProto(described.summary().generation());
  const bool deleted = described.summary().deleted();
  std::map<NodeKey, bool> listed;  // whether complete
  if (!deleted) {
    for (const v1::CopyDescription& copy : described.copies()) {
      listed[directory::FromProto(copy.node())] = copy.complete();
    }
  }
  std::set<NodeKey> waiting;
  for (const v1::NodeInfo& node : described.waiting()) {
    waiting.insert(directory::FromProto(node.key()));
  }
  const auto wrong = [&](const auto&... what) {
    return absl::UnavailableError(absl::StrCat(
        history.NameOf(id), " (", id.ShortHex(), "), adopted attempt ", history.AttemptOf(adopted),
        deleted ? ", deleted" : "", ": ", what..., "; ", cluster_.DescribeEverywhere(id)));
  };
  // A shard that restarted with an object has its name from the nodes.
  const ObjectName name = directory::NameOf(described.summary());
  if (adopted.valid() && !deleted && name != history.ObjectNameOf(id)) {
    return wrong("its name is \"", name.ToString(), "\"");
  }
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    const NodeKey key = cluster_.node(n)->key();
    for (const CopyInfo& copy : cluster_.store(n)->Copies()) {
      if (copy.id != id) continue;
      const uint64_t number = history.AttemptOf(copy.generation);
      const std::string name = absl::StrCat("the copy of attempt ", number, " on ", NodeName(n));
      if (number != 0 && MustBeDeleted(history.attempt(number))) {
        return wrong(name, " was deleted");
      }
      const bool current = !deleted && copy.generation == adopted;
      // A copy of another generation is kept only while the adopted generation has no complete
      // copy.
      if (!current && described.summary().complete_copies() == 0 && !deleted) continue;
      if (!current) return wrong(name, " is superseded or deleted");
      const auto at = listed.find(key);
      // Memory that was allocated before a sender was named: the shard lists the node as waiting.
      const bool begun = copy.complete || copy.buffer->bytes_present() > 0;
      if (at == listed.end() && !begun && waiting.contains(key)) continue;
      if (at == listed.end()) return wrong(name, " is not listed");
      // The shard plans pulls from this flag.
      if (at->second != copy.complete) return wrong(name, " is listed as if complete or not");
      listed.erase(at);
    }
  }
  const bool lost = described.summary().complete_copies() == 0;
  for (const auto& [key, complete] : listed) {
    // The shard named a sender, and the node's next request crossed that message. Another sender
    // does not exist.
    if (lost && !complete && waiting.contains(key)) continue;
    return wrong("listed on ", key.ToString(), ", which does not have it");
  }
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------- empty

absl::Status Checkers::Empty() {
  if (absl::Status status = Settled(); !status.ok()) return status;
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    if (absl::Status status = NodeIsEmpty(n); !status.ok()) return status;
  }
  for (int s = 0; s < cluster_.num_shards(); ++s) {
    v1::GetStatusResponse status;
    cluster_.shard(s)->FillStatus(&status);
    if (status.objects() != 0 || status.waiting() != 0 || status.inline_bytes() != 0) {
      return absl::UnavailableError(absl::StrCat(ShardName(s), ": ", status.objects(), " objects, ",
                                                 status.waiting(), " waiting, ",
                                                 status.inline_bytes(), " inline bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkers::NodeIsEmpty(int n) {
  const object_store::StoreStats stats = cluster_.store(n)->stats();
  const object_store::SharedMemoryStats memory = cluster_.memory(n).stats();
  const std::pair<const char*, uint64_t> counts[] = {
      {"used bytes", stats.used_bytes},     {"pinned bytes", stats.pinned_bytes},
      {"objects", stats.objects},           {"pins", stats.pins},
      {"waiting gets", stats.waiting_gets}, {"allocated bytes", memory.allocated_bytes},
      {"clients", stats.clients},
  };
  std::string left;
  for (const auto& [what, count] : counts) {
    if (count != 0) absl::StrAppend(&left, left.empty() ? "" : ", ", count, " ", what);
  }
  if (left.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", left));
}

}  // namespace phalanx::sim
