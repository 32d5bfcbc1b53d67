// The reductions whose targets belong to this shard: those that run, their timers, and how the last
// ones ended.
//
//   a reduction:  collecting sources ──plan begins──► folding ──commit──► committed ──► ended
//                        └── a ring is tried first ──► ring ──commit──┘
//
// A target can be reduced again: after a Delete, after a failure, when its result is lost. Nodes
// that were away may still request, describe, fold or extend the earlier reduction, so every
// reduction has an id, which nodes repeat:
//  1. A message that names another reduction than the running one never joins, changes or ends it.
//  2. Of two reductions that nodes name to a shard that has restarted, the one that began later
//  runs.
//  3. How the last reductions ended is remembered, and answers nodes that request them again.
//  4. A reduction of an earlier life of the shard has ended if this life began one of the same
//     target: it may have been the same, with an id that no node had named.
//
// Owned by ReductionManager. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_CATALOG_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"
#include "src/directory/objects/tombstone_table.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/results/ended_reductions.h"

namespace phalanx::directory {

// Returns an error with the text "reduction of TARGET: WHAT".
absl::Status ReductionError(const ObjectId& target, absl::StatusCode code, absl::string_view what);

class ReductionCatalog {
 public:
  ReductionCatalog(CoreContext& context, TombstoneTable& tombstones)
      : context_(context),
        tombstones_(tombstones),
        ended_(context.options.max_ended_reductions, context.options.max_ended_entries) {}

  // ---- running reductions
  // Returns nullptr if no reduction of this target runs.
  Reduction* Find(const ObjectId& target);
  const Reduction* Find(const ObjectId& target) const;
  // The running open reduction that nodes hold open by this id (OpenHoldOf); nullptr if there is
  // none.
  Reduction* FindByOpenHold(const ObjectId& id);
  // In the order of targets.
  const absl::btree_map<ObjectId, std::unique_ptr<Reduction>>& all() const { return running_; }
  // Begins a reduction with the id, or with a new one if `id` is not valid. Returns nullptr if
  // there are too many, or too many sources. REQUIRES: none runs.
  Reduction* Begin(const ObjectId& target, ReduceSpec spec, const NodeKey& root,
                   const ReductionId& id);
  void Erase(Reduction& reduction);

  // Sources, and requests, of all running reductions; bounded by the options.
  bool HasRoomForSources(size_t more) const {
    return sources_ + more <= context_.options.max_reduce_sources;
  }
  void AddSources(size_t n) { sources_ += n; }
  void RemoveSources(size_t n) { sources_ -= n; }
  size_t sources() const { return sources_; }
  void AddRequesters(size_t n) { requesters_ += n; }
  void RemoveRequesters(size_t n) { requesters_ -= n; }
  size_t requesters() const { return requesters_; }

  // ---- work and time
  // The reduction is run again before the turn ends.
  void Touch(const ObjectId& target) { touched_.insert(target); }
  bool has_touched() const { return !touched_.empty(); }
  // The first touched target, which is not touched any more. REQUIRES: has_touched()
  ObjectId TakeTouched();
  void SetTimer(Reduction& reduction, Instant when);
  // The next reduction whose timer is due, with the timer cleared; nullptr if there is none.
  Reduction* TakeDue();
  Instant NextDeadline() const;

  // ---- ids, and reductions that have ended
  // A node has named this id: ids that this shard mints are later.
  void NoteId(const ReductionId& id);
  // Returns true if that reduction is not running and never will again.
  bool HasEnded(const ObjectId& target, const ReductionId& id) const;
  // An id of this life of the shard.
  bool MintedHere(const ReductionId& id) const;
  EndedReductions& ended() { return ended_; }
  const EndedReductions& ended() const { return ended_; }

  absl::Status CheckInvariants() const;

 private:
  CoreContext& context_;
  TombstoneTable& tombstones_;
  absl::btree_map<ObjectId, std::unique_ptr<Reduction>> running_;
  absl::flat_hash_map<ObjectId, ObjectId> by_open_hold_;  // targets of open ones
  absl::btree_set<std::pair<Instant, ObjectId>> timers_;
  absl::btree_set<ObjectId> touched_;
  size_t sources_ = 0;
  size_t requesters_ = 0;
  EndedReductions ended_;
  // The greatest count in any id that is known.
  uint64_t greatest_count_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_CATALOG_H_
