// The tree plan of one reduction: which source takes which slot of the tree, on which node each
// slot is computed, and how the plan repairs the tree when sources and nodes come and go. The
// target's shard owns one plan for each reduction that has not ended.
//
//   ReductionManager ── OnSource, OnNodeDown, OnReady, ... ──► ReducePlan ── TakeEffects ──► nodes
//
// A slot's output is a function of its subtree: of the sources in it, their generations, and the
// tree's shape. Its version is a hash of these (fold_versions.h). So if a slot's node dies and its
// sources exist elsewhere, the slot has the same version there, and no other slot starts over. If
// the slot gets another source, the slot and the slots above it have new versions, and no others.
// (A root that was dropped at a node also gets a new version there: a void generation does not
// return.)
//
// A slot has one seat for each of its sources. That is one seat, unless several sources were on one
// node when the shape was chosen: they share a slot. If the sources of such a slot are later on
// several nodes, one of these nodes computes the slot, and each of the others has a leaf below it,
// which hands its source on. A leaf is numbered like a slot, beyond the tree's slots;
// SlotView::parent names its slot. A slot with leaves has another version than one without: one
// version always has inputs of the same kinds, and only their nodes can change.
//
// Slow sources (source_table.h) have leaves, and are not waited for: if there are more sources than
// the result has, they wait until enough sources are ready, and the tree is built again without
// them when enough others are, if the result is complete sooner. Such swaps are bounded.
//
// A source that is about to take a free seat can be on the node that computes a slot above it. If
// the free slot would start over or wait anyway, the source joins the slot above, and the free slot
// is closed: the fold below it becomes an input of the one above. Otherwise two folds of one
// pipeline would share the node's link.
//
// Components (reductions/tree_plan/): SourceTable, FoldVersions, FoldLedger, RestoredFolds,
// StarFold and SlotTree, each with its own state and invariants.
//
// Invariants, checked by CheckInvariants
//  1. A source is in at most one seat. A slot with sources is computed where one of them is (or at
//     the requested root, if it is the root slot), and sources elsewhere have leaves.
//  2. A fold is placed exactly for the slots whose whole subtree has its sources, each on a node
//     that holds the slot's sources. Its inputs name the current nodes of the folds below it.
//  3. At most num_objects sources are placed; the other ready ones are spares.
//  4. At most one version is ever committed, and nothing changes after the commit unless the result
//     is lost (OnResultLost).
//
// Thread rule: no thread, lock, clock or I/O inside; a function of the calls made.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_PLAN_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/reduce_spec.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"

namespace phalanx::directory {

// Returns InvalidArgument naming what is wrong: no sources, a source that comes twice, the target
// among the sources, more num_objects than sources (unless open), an op that the elements do not
// support, a range that is not a whole number of elements or is beyond the largest object.
absl::Status ValidateReduceSpec(const ObjectId& target, const ReduceSpec& spec);

class ReducePlan {
 public:
  // How often slow sources are replaced at most.
  static constexpr int kMaxSwaps = 4;
  // A tree that is built again starts over: it must be sooner by this factor.
  static constexpr double kMuchSooner = 1.25;

  // `root`: the requested root, the node that computes the root while it is up, whether it holds a
  // source or not. If `root` is not valid, the plan chooses. REQUIRES: ValidateReduceSpec(target,
  // spec) is OK.
  ReducePlan(const ObjectId& target, ReduceSpec spec, NodeKey root);
  ~ReducePlan();
  ReducePlan(const ReducePlan&) = delete;
  ReducePlan& operator=(const ReducePlan&) = delete;

  // Sets the measured costs by which the shape is chosen. The plan reads them when it chooses the
  // shape, which is when the first source is ready. Values that are not positive are replaced by
  // those of a data centre's network.
  void SetCosts(const ReduceCosts& costs);
  // Begins to decide. The caller reports all sources that it knows first, so that the first shape
  // is chosen for all of them.
  void Begin();

  // Between Hold and Release the plan decides nothing. For several changes that belong together.
  void Hold();
  void Release();

  // ---- what happens
  // Reports the current state of a source; nullopt if no node and no shard has bytes of it, which
  // can change again. Ignored if the object is no source of this plan. The reduction ends with
  // InvalidArgument naming the source when the plan is to place it, if the source has another size
  // than the first one, is not a whole number of elements, or does not contain the range.
  void OnSource(const ObjectId& source, std::optional<ReduceSource> state);
  // The producer of the source failed, or the source was deleted. The plan ignores later states of
  // it, except those in which it exists again while an open reduction takes sources. The reduction
  // ends with `why` if too few sources are left.
  void OnSourceFailed(const ObjectId& source, const absl::Status& why);
  // The node, its folds and its copies of sources are gone. OnSource can report the sources too,
  // before or after. A requested root that was down stays replaced. After a commit nothing changes,
  // unless the root was computed there: then the plan computes the result again.
  void OnNodeDown(const NodeKey& node);
  // The node is up, but has lost or refused this fold. The plan places it again at once, on another
  // node if possible. After 100 losses of one fold the reduction ends with Unavailable.
  void OnFoldLost(const NodeKey& node, const SlotVersion& version);
  // The root has all but its last bytes. Each call is answered by CommitFold if the version is
  // still the root's.
  void OnReady(const NodeKey& node, const SlotVersion& version);
  // The fold of that version has computed so many bytes, or will have in a moment, since the input
  // that it waits for has them. Ignored unless it is the root's; the last report counts, since a
  // root that is placed anew begins again.
  void OnProgress(const SlotVersion& version, uint64_t bytes);
  // The committed result was lost before any node had all of it: the plan computes it again from
  // the sources that are ready now. If the root's node is down, the caller calls OnNodeDown first,
  // and this does nothing.
  void OnResultLost();
  // Returns InvalidArgument (a source comes twice, or is the target) or FailedPrecondition
  // (closed). An error adds no source.
  absl::Status Add(absl::Span<const ObjectId> sources);
  // Returns FailedPrecondition if the reduction is not open, InvalidArgument if it has fewer
  // sources than num_objects; it stays open then.
  absl::Status Close();
  // Drops every fold and ends the plan, without an EndReduction.
  void Cancel();

  // ---- after a restart of the shard, before Begin
  // Reports a fold that a node has, with the values of its FoldTask. `sources`: its inputs that are
  // not slots. The sources take that slot if they are ready. The first of two reports that
  // contradict each other counts; invalid reports are ignored. The version reveals which slots
  // below were closed.
  void Restore(int slots, int degree, int slot, absl::Span<const ObjectId> sources,
               const NodeKey& node, const SlotVersion& version);

  // Returns the effects since the last call, in order.
  std::vector<ReduceEffect> TakeEffects();

  // ---- looking
  const ReduceSpec& spec() const;
  const NodeKey& root() const;
  // Returns the task that is placed at that node under that version, or null. Valid until the next
  // call that changes the plan.
  const FoldTask* Find(const NodeKey& node, const SlotVersion& version) const;
  // Returns the version that the root computes now; not valid while the root is not placed.
  SlotVersion RootVersion() const;
  NodeKey RootNode() const;
  bool committed() const;
  // Returns true if Close has succeeded.
  bool closed() const;
  // Returns true if the object is in the list of sources.
  bool Has(const ObjectId& source) const;
  // Returns true if the plan still needs reports of the source's state.
  bool Watches(const ObjectId& source) const;
  // Returns the sources of which the node has bytes, as far as the plan knows, in the list's order.
  std::vector<ObjectId> HeldBy(const NodeKey& node) const;
  // Returns true if the source is in a seat, so that the plan counts on its current generation.
  bool Placed(const ObjectId& source) const;

  struct SlotView {
    int slot = 0;
    int parent = ReduceShape::kNone;
    NodeKey node;               // not valid if no node is chosen yet
    SlotVersion version;        // not valid if a source of the subtree is missing
    std::vector<ObjectId> own;  // empty if the slot waits for a source, or only passes on
  };
  struct View {
    int degree = 0;
    uint64_t size_bytes = 0;
    size_t ready = 0;
    size_t spares = 0;
    uint64_t epoch = 0;  // how many versions the root has had
    std::vector<SlotView> slots;
  };
  View Look() const;

  // Returns how many sources the plan has visited to decide, since the last call.
  uint64_t TakeExamined();
  // Returns how often slow sources were replaced, since the last call.
  uint64_t TakeSwaps();

  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_PLAN_H_
