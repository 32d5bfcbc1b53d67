// The plan of one reduction: which source takes which slot of the tree, on which node each slot is
// computed, and what is mended when sources and nodes come and go. Pure; the target's shard owns
// one for each reduction that has not ended.
//
//   DirectoryCore ── OnSource, OnNodeDown, OnReady, ... ──► ReducePlan ── TakeEffects ──► nodes
//
// A slot's output is a function of its subtree: of the sources in it, their generations, and the
// tree's shape. Its version is a hash of just that. So a slot whose node died and whose sources
// exist elsewhere has the same version there and nobody starts over; one that gets another source
// has a new version, and so have those above it, and no others. (A root's version is also a
// function of whether it was dropped before at the same node: a void generation does not return.)
//
// A slot has a seat for each of its sources: one, but for sources that were on one node when the
// shape was chosen and share a slot. When the sources of such a slot come to be on several nodes,
// one of these computes the slot, and each of the others has a leaf of its own below it, which
// hands the source on: it is numbered like a slot, beyond the tree's (SlotView::parent says whose
// it is). That is another shape, with another version: one version has inputs of the same kinds
// wherever it is placed, and when it is placed again only where they come from may be another.
//
// A source that comes for a seat of its own below a slot that is computed on its node already, and
// has to start over or to wait anyway, joins that slot instead, and its own is closed: the fold
// below it is an input of the one above. Two folds of one pipeline would share the node's link.
//
// Invariants, checked by CheckInvariants
//  1. A source is in at most one seat; a slot with sources is computed where one of them is (or at
//     the node that was asked for, if it is the root), and those elsewhere have leaves.
//  2. A fold is placed exactly for the slots whose whole subtree has its sources, each on a node
//     that holds the slot's sources; its inputs name where the folds below it are placed now.
//  3. At most num_objects sources are placed; the others that are ready are spares.
//  4. At most one version is ever committed, and nothing changes after it unless its result is lost
//     (OnResultLost).
//
// Thread rule: no thread, lock, clock or I/O inside; a function of the calls made.
#ifndef PHALANX_DIRECTORY_REDUCE_PLAN_H_
#define PHALANX_DIRECTORY_REDUCE_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/elements.h"
#include "src/common/ids.h"
#include "src/common/reduce_spec.h"
#include "src/directory/reduce_shape.h"
#include "src/net/address.h"

namespace phalanx::directory {

// InvalidArgument naming what is wrong: no sources, one that comes twice, the target among them,
// more num_objects than sources (unless open), an op that does not go with the elements, a range
// that is no whole number of elements or beyond the largest object.
absl::Status ValidateReduceSpec(const ObjectId& target, const ReduceSpec& spec);

// A source as its shard knows it: a snapshot.
struct ReduceSource {
  struct Holder {
    NodeKey node;
    bool complete = false;
    std::string zone;  // as labelled; may be empty
  };
  Generation generation;
  uint64_t size_bytes = 0;
  // Who has bytes of it, the best first. Empty: the bytes can be had from the shard alone.
  std::vector<Holder> holders;
  // The shard can send the bytes themselves.
  bool has_inline = false;
  // What travels with the generation.
  std::string metadata = {};
};

struct FoldInput {
  enum class Kind : uint8_t {
    kSource,  // a source that the fold's node holds: `source`, `generation`
    // The output of a fold, version `generation`, placed at `node`, which may be this fold's own.
    kSlot,
    kInline,  // a source whose bytes travel with the order: `source`, `generation`
  };
  Kind kind = Kind::kSource;
  ObjectId source;
  Generation generation;
  NodeKey node;
  // What an order adds for the node that folds: where `node` listens, and the bytes of kInline.
  net::Address address = {};
  std::string bytes = {};

  friend bool operator==(const FoldInput&, const FoldInput&) = default;
};

// What one node is to compute: the inputs folded from left to right.
struct FoldTask {
  int slot = 0;
  // The tree's, for Restore. The slot above the root that only delivers has the number `slots`,
  // leaves within slots have greater ones.
  int slots = 1;
  int degree = 1;
  Generation version;
  uint64_t size_bytes = 0;
  std::vector<FoldInput> inputs;
  // The output is the target.
  bool root = false;
  // It need not ask before it ends: nothing that could be lost is in it.
  bool committed = false;
  // Of the root: the sources, in the order of the fold. Empty for others.
  std::vector<ObjectId> reduced_from;
  // Of the root: that of the first of these, as they stand in the list, that has any; of a range
  // none.
  std::string metadata = {};
  // How many go into the whole reduction, for means.
  uint64_t planned = 0;

  friend bool operator==(const FoldTask&, const FoldTask&) = default;
};

// ---- effects
// Compute this, or: the inputs of the version that you compute come from elsewhere now.
struct PlaceFold {
  NodeKey node;
  FoldTask task;
};
// The fold is no longer wanted there; the node may have lost it before, but is up.
struct DropFold {
  NodeKey node;
  Generation version;
};
// The root's version is the result.
struct CommitFold {
  NodeKey node;
  Generation version;
};
// The reduction has failed; DropFolds went before it.
struct EndReduction {
  absl::Status why;
};
using ReduceEffect = std::variant<PlaceFold, DropFold, CommitFold, EndReduction>;

class ReducePlan {
 public:
  // `root`: the node that computes the root while it is up, whether it holds a source or not; not
  // valid: the plan chooses. REQUIRES: ValidateReduceSpec(target, spec) is OK.
  ReducePlan(const ObjectId& target, ReduceSpec spec, NodeKey root);
  ~ReducePlan();
  ReducePlan(const ReducePlan&) = delete;
  ReducePlan& operator=(const ReducePlan&) = delete;

  // What the shape is chosen by, as measured; taken when the shape is chosen, which is when the
  // first source is ready. What is not positive is taken to be as in a common network.
  void SetCosts(const ReduceCosts& costs);
  // Sources become ready one after the other although all may be there: until Begin nothing is
  // decided, so that the first shape is made for all that are known by then.
  void Begin();

  // Of many changes that come together nothing is decided before the last: between these two.
  void Hold();
  void Release();

  // ---- what happens
  // A source as it is now; nothing: there is nothing of it (any more), it may come (again). Others
  // than the plan's are ignored. A source that is placed and found to have another size than the
  // first, or none that is whole elements or holds the range, ends the reduction with
  // InvalidArgument naming it.
  void OnSource(const ObjectId& source, std::optional<ReduceSource> state);
  // It will not come: its producer failed, or it was deleted. The reduction ends with `why` when
  // too few are left.
  void OnSourceFailed(const ObjectId& source, const absl::Status& why);
  // The node and the folds there are gone, and what it held of sources; OnSource may say so again.
  // A root that was asked for does not come back. After a commit nothing changes, unless it was
  // the root's node: it begins anew then.
  void OnNodeDown(const NodeKey& node);
  // The node is up, but has lost (or refused) this fold: it is placed anew at once, elsewhere if it
  // can be. The reduction ends with Unavailable when that has happened a hundred times to one fold.
  void OnFoldLost(const NodeKey& node, const Generation& version);
  // The root has all but its last bytes. CommitFold follows if that is what is wanted still, each
  // time that it is said.
  void OnReady(const NodeKey& node, const Generation& version);
  // What was committed was lost before anybody had it all: begins anew, with what is there now. If
  // its node is down, OnNodeDown has been called before and this does nothing.
  void OnResultLost();
  // InvalidArgument (a source comes twice, or is the target), FailedPrecondition (closed before).
  absl::Status Add(absl::Span<const ObjectId> sources);
  // FailedPrecondition when it is not open, InvalidArgument when there are fewer sources than
  // num_objects: it stays open then.
  absl::Status Close();
  // Everything is dropped, nothing follows.
  void Cancel();

  // ---- after a restart of the shard, before Begin
  // What a node said that it folds, as its FoldTask had it (`sources`: those of its inputs that are
  // no slots): the sources take that slot if they can be had. Of two that contradict each other the
  // first counts; what cannot be is ignored. By its version it is known which slots below it were
  // closed.
  void Restore(int slots, int degree, int slot, absl::Span<const ObjectId> sources,
               const NodeKey& node, const Generation& version);

  // In order, since the last call.
  std::vector<ReduceEffect> TakeEffects();

  // ---- looking
  const ReduceSpec& spec() const;
  const NodeKey& root() const;
  // What is placed at that node under that version; null: nothing is. Valid until the next call
  // that changes the plan.
  const FoldTask* Find(const NodeKey& node, const Generation& version) const;
  // The version that the root computes now; not valid while it is not placed.
  Generation RootVersion() const;
  NodeKey RootNode() const;
  bool committed() const;
  // Of an open one: no more sources are added.
  bool closed() const;
  // It is in the list.
  bool Has(const ObjectId& source) const;
  // Of sources whose bytes or whereabouts matter still.
  bool Watches(const ObjectId& source) const;
  // Whether the plan counts on this generation of the source: it is in a slot.
  bool Placed(const ObjectId& source) const;

  struct SlotView {
    int slot = 0;
    int parent = ReduceShape::kNone;
    NodeKey node;               // not valid: nobody yet
    Generation version;         // not valid: some source of the subtree is missing
    std::vector<ObjectId> own;  // empty: waits for a source, or only passes on
  };
  struct View {
    int degree = 0;
    uint64_t size_bytes = 0;
    size_t ready = 0;
    size_t spares = 0;
    uint64_t epoch = 0;  // counts the versions that the root has had
    std::vector<SlotView> slots;
  };
  View Look() const;

  // How many sources were looked at to decide, since the last call.
  uint64_t TakeExamined();

  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCE_PLAN_H_
