#include "src/directory/objects/standbys.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/directory/objects/object_table.h"

namespace phalanx::directory {
namespace {

// With the time to live that is left.
ObjectInfo InfoNow(const Standby& standby, Instant now) {
  ObjectInfo info = standby.info;
  if (!standby.expires.infinite()) info.ttl = standby.expires - now;
  return info;
}

Registration ToRegistration(const Standby& standby, Instant now) {
  Registration r;
  r.generation = standby.generation;
  r.info = InfoNow(standby, now);
  r.primary = standby.generation.creator == standby.node;
  r.complete = standby.complete;
  r.writing = !standby.complete;
  r.policy = standby.policy;
  return r;
}

}  // namespace

void Standbys::Add(Object& object, Node& node, Standby standby) {
  const Generation generation = standby.generation;
  // By node, too: two nodes can hold the same losing generation, and each needs its own answer.
  object.EraseStandby(generation, node.key);
  object.standbys.push_back(std::move(standby));
  node.objects.insert(object.id);
  if (!object.adopted()) return;
  Standby& added = object.standbys.back();
  const bool reachable = HasReachableCopy(object);
  if (reachable) Supersede(object, added);
  // A generation that may have been adopted in an earlier life of the shard stays in that state on
  // its node until Supersede can decide.
  const bool undecided = reachable && (added.was_adopted || node.registering);
  if (!added.superseded && !undecided) {
    parts_.outbox.SendVerdict(node.key, object.id, generation, v1::Verdict::STANDBY,
                              object.generation, object.info);
  }
}

void Standbys::Supersede(Object& object, Standby& standby) {
  // A stale one is judged when its node registers it again.
  if (standby.superseded || standby.stale) return;
  // While nodes register, a tombstone of the adopted generation may still arrive. This generation
  // may have been adopted since, without its node's knowledge.
  const Node* node = parts_.nodes.Find(standby.node);
  const bool recovering = parts_.gate.learning() && parts_.gate.restarted();
  if (recovering || (node != nullptr && node->registering)) return;
  // The entry stays until the node sends Withdraw: its memory holds the bytes until then.
  standby.superseded = true;
  ++parts_.context.counters.superseded;
  if (standby.complete && standby.info.size_bytes != object.info.size_bytes) {
    ++object.conflicts;
    ++parts_.context.counters.conflicts;
  }
  parts_.outbox.SendVerdict(standby.node, object.id, standby.generation, v1::Verdict::SUPERSEDED,
                            object.generation, object.info);
}

bool Standbys::HasReachableCopy(const Object& object) const {
  // A generation that was adopted before the start may still be registered. It wins over a
  // provisional one, and over the complete copies of that one, too.
  if (object.copies.complete() == 0 || object.provisional) return false;
  // A complete copy on a broken session may have died with its node, and then this generation is
  // all that is left of the object.
  return std::any_of(object.copies.begin(), object.copies.end(), [this](const auto& entry) {
    const Node* node = parts_.nodes.Find(entry.first);
    return entry.second.complete() && !entry.second.stale && node != nullptr && node->connected;
  });
}

void Standbys::SupersedeAll(Object& object) {
  // The cheap tests first: this runs after nearly every change of an object.
  if (!object.adopted() || object.standbys.empty() || !HasReachableCopy(object)) return;
  for (Standby& standby : object.standbys) Supersede(object, standby);
}

void Standbys::Notify(const Object& object) {
  for (const Standby& standby : object.standbys) {
    // A superseded node drops its bytes already; STANDBY would contradict that.
    if (standby.superseded || standby.stale) continue;
    parts_.outbox.SendVerdict(standby.node, object.id, standby.generation, v1::Verdict::STANDBY,
                              object.generation, object.info);
  }
}

bool Standbys::AdoptBest(Object& object) {
  if (!parts_.gate.MayAdoptFromAbsence()) return false;
  DropEnded(object);
  // The result of a running reduction takes precedence over what was put under its target
  // meanwhile. A complete result was committed by an earlier life of this shard.
  const std::optional<Generation> planned = parts_.listeners.reductions->PlannedResult(object.id);
  const Standby* best = nullptr;
  for (const Standby& standby : object.standbys) {
    const bool result =
        (standby.complete && !standby.info.reduced_from.empty()) || standby.generation == planned;
    if (planned.has_value() && !result) continue;
    if (standby.superseded || standby.stale || parts_.nodes.Find(standby.node) == nullptr) continue;
    const bool better = best == nullptr || (standby.complete != best->complete
                                                ? standby.complete
                                                : standby.generation < best->generation);
    if (better) best = &standby;
  }
  if (best == nullptr) return false;
  // A copy: EraseStandby ends the entry.
  const Standby chosen = *best;
  object.EraseStandby(chosen.generation, chosen.node);
  parts_.objects.Adopt(object, *parts_.nodes.Find(chosen.node), chosen.generation,
                       InfoNow(chosen, parts_.context.now), chosen.complete, /*notify=*/true);
  if (chosen.policy.stamp != 0) {
    parts_.listeners.placements->OnPolicyRegistered(object, chosen.node, chosen.policy);
  }
  Absorb(object);
  if (!chosen.complete) Notify(object);
  return true;
}

void Standbys::Absorb(Object& object) {
  std::vector<Standby> same;
  for (const Standby& standby : object.standbys) {
    if (standby.generation == object.generation) same.push_back(standby);
  }
  // Erased first: RegisterAdopted calls Absorb again.
  for (const Standby& standby : same) object.EraseStandby(standby.generation, standby.node);
  for (const Standby& standby : same) {
    Node* node = parts_.nodes.Find(standby.node);
    if (node == nullptr) continue;
    if (standby.stale) {
      parts_.objects.UnlinkNodeIfUnused(standby.node, object);
      continue;
    }
    parts_.objects.RegisterAdopted(object, *node, ToRegistration(standby, parts_.context.now), {});
  }
}

bool Standbys::Wins(const Object& object, const Registration& r) const {
  if (DefectActive(Defect::kProvisionalBeatsAdopted) && !r.adopted) return true;
  if (!object.adopted() || !r.adopted) return false;
  // A provisional generation was adopted because no older one had been registered yet.
  if (object.provisional) return true;
  if (object.copies.complete() > 0) return false;
  if (r.complete) return true;
  // Both were adopted and neither is complete: every replay picks the same one.
  return r.generation < object.generation;
}

void Standbys::Register(Object& object, Node& node, const Registration& r,
                        absl::Span<const uint64_t> watermarks) {
  if (Wins(object, r)) return Replace(object, node, r, watermarks);
  if (!r.complete && !r.writing) {
    // The remainder of a pull has no writer, and no node sends its generation any more.
    parts_.outbox.SendVerdict(node.key, object.id, r.generation, v1::Verdict::SUPERSEDED,
                              object.generation, object.info);
    return;
  }
  Add(object, node,
      Standby{.generation = r.generation,
              .node = node.key,
              .info = r.info,
              .complete = r.complete,
              .was_adopted = r.adopted,
              .policy = r.policy,
              .expires = r.adopted ? parts_.context.now + r.info.ttl : Instant::Infinite()});
}

void Standbys::Replace(Object& object, Node& node, const Registration& r,
                       absl::Span<const uint64_t> watermarks) {
  // Copies: VoidGeneration resets the object.
  const Generation loser = object.generation;
  const ObjectInfo loser_info = object.info;
  const Instant loser_expires = parts_.objects.ExpiryOf(object);
  const auto creator = object.copies.find(loser.creator);
  const bool stands_by = object.adopted() && creator != object.copies.end() &&
                         (creator->second.complete() || creator->second.writing());
  const bool complete = stands_by && creator->second.complete();
  const bool was_adopted = object.adopted() && !object.provisional;
  // The creator is spared: its bytes stand by, in case the winner turns out to be deleted.
  parts_.objects.VoidGeneration(object, "another generation had been adopted before",
                                stands_by ? loser.creator : NodeKey());
  Registration winner = r;
  winner.adopted = true;
  parts_.objects.RegisterAdopted(object, node, winner, watermarks);
  Node* loser_node = parts_.nodes.Find(loser.creator);
  if (!stands_by || loser_node == nullptr) return;
  Add(object, *loser_node,
      Standby{.generation = loser,
              .node = loser.creator,
              .info = loser_info,
              .complete = complete,
              .was_adopted = was_adopted,
              .expires = was_adopted ? loser_expires : Instant::Infinite()});
}

void Standbys::AdoptSpared(Object& object) {
  DropEnded(object);
  const auto best = std::min_element(
      object.standbys.begin(), object.standbys.end(), [](const Standby& a, const Standby& b) {
        if (a.was_adopted != b.was_adopted) return a.was_adopted;
        return a.complete != b.complete ? a.complete : a.generation < b.generation;
      });
  // Only one that was adopted in an earlier life: any other one is for AdoptBest, which waits for
  // the end of learning.
  if (best == object.standbys.end() || !best->was_adopted) return;
  const Standby chosen = *best;
  object.EraseStandby(chosen.generation, chosen.node);
  Registration r = ToRegistration(chosen, parts_.context.now);
  r.adopted = true;
  parts_.objects.RegisterAdopted(object, *parts_.nodes.Find(chosen.node), r, {});
}

void Standbys::DropEnded(Object& object) {
  std::vector<NodeKey> holders;
  std::erase_if(object.standbys, [this, &holders](const Standby& standby) {
    if (!parts_.scopes.HasEnded(standby.info.scope)) return false;
    holders.push_back(standby.node);
    // A stale one is refused when its node registers it again.
    if (!standby.stale) parts_.outbox.SendScopeEnded(standby.node, standby.info.scope);
    return true;
  });
  for (const NodeKey& holder : holders) parts_.objects.UnlinkNodeIfUnused(holder, object);
}

void Standbys::Refuse(Object& object, const Generation& generation, Tombstone& tombstone) {
  std::vector<NodeKey> holders;
  for (const Standby& standby : object.standbys) {
    if (standby.generation == generation) holders.push_back(standby.node);
  }
  for (const NodeKey& holder : holders) {
    parts_.outbox.SendVerdict(holder, object.id, generation, v1::Verdict::DELETED);
    parts_.tombstones.AwaitConfirm(tombstone, generation, holder,
                                   parts_.nodes.Find(holder)->session);
    object.EraseStandby(generation, holder);
    parts_.objects.UnlinkNodeIfUnused(holder, object);
  }
}

}  // namespace phalanx::directory
