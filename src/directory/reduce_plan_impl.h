// The inside of ReducePlan, shared by the files that implement it:
//
//   reduce_plan.cc        what is asked for, what happens, what can be looked at
//   reduce_plan_shape.cc  when and how the shape is fixed; small reductions
//   reduce_plan_restore.cc  the shape after a restart of the shard
//   reduce_plan_tree.cc   seats, folds and versions: what is placed, moved and dropped
//
// Every call changes states and seats first, which drops what is no longer true at once, and marks
// slots; then Advance fills seats, and Flush places what the marked slots call for, the deepest
// first, so that only the slots above a change are looked at.
#ifndef PHALANX_DIRECTORY_REDUCE_PLAN_IMPL_H_
#define PHALANX_DIRECTORY_REDUCE_PLAN_IMPL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/directory/reduce_plan.h"

namespace phalanx::directory {

// How often one fold may be lost by nodes that are up.
inline constexpr int kMaxFoldLosses = 100;
// So many roots that were dropped are remembered.
inline constexpr size_t kMaxDroppedRoots = 4096;
// A reduction whose sources all travel to the root with the order has at most so many bytes.
inline constexpr uint64_t kMaxStarBytes = uint64_t{1} << 20;

struct ReducePlan::Impl {
  static constexpr int kNone = ReduceShape::kNone;

  enum class Mode : uint8_t {
    kUnshaped,  // no source is placed
    kTree,
    kStar,  // small: one fold with everything, placed when everything is there
  };

  struct Source {
    ObjectId id;
    // Of a source that is ready; nothing otherwise.
    std::optional<ReduceSource> state;
    bool failed = false;
    uint64_t arrival = 0;  // when it became ready; 0: it is not
    int slot = kNone;      // its seat; of a star, slot 0
    int seat = kNone;
    int home_slot = kNone;  // the seat that is kept for it when the order is fixed
    int home_seat = kNone;
  };

  struct Fold {
    bool placed = false;
    bool lost = false;  // placed, but its node does not have it
    bool gone = false;  // lost, and it need not be told to drop it
    NodeKey node;
    FoldTask task;
    int losses = 0;
  };

  struct Seat {
    int source = kNone;
    Generation generation;
    NodeKey node;
    Fold leaf;  // placed when `node` is not the slot's
  };

  struct Slot {
    int parent = kNone;
    int depth = 0;
    std::vector<Seat> seats;
    NodeKey node;          // where it is computed; not valid while all seats are empty
    int missing = 0;       // empty seats, and children that are not placed
    bool vacated = false;  // a source has left
    // It has no seat, and what would be below it is below its parent.
    bool closed = false;
    Fold fold;
  };

  // What the slots start with.
  struct Group {
    struct Member {
      int source = kNone;  // of a fixed order: who will have the seat, ready or not
      NodeKey node;        // who should have it
    };
    std::vector<Member> members;
    std::string zone;
    NodeKey node;  // where the slot was computed
  };
  struct Layout {
    std::vector<Group> groups;  // by slot; empty: none can be made
    int degree = 1;
    bool reserved = false;
  };

  struct Statement {
    std::vector<int> sources;
    NodeKey node;
    Generation version;
  };

  // ---- reduce_plan.cc
  Impl(const ObjectId& target, ReduceSpec spec, NodeKey root);
  int Find(const ObjectId& id) const;
  bool Decides() const { return begun && !ended && !committed && (!spec.open || closed); }
  int Wanted() const;
  void SetState(int source, std::optional<ReduceSource> state);
  void SourceFailed(int source, const absl::Status& why);
  // False: too few can still come, and the reduction has ended.
  bool EnoughLeft();
  void LoseFoldsAt(const NodeKey& node);
  void ForgetRoot();
  void BeginAnew();
  void End(const absl::Status& why);
  const Fold* RootFold() const;
  Fold* FoldOf(const NodeKey& node, const Generation& version);
  absl::Status CheckSeats() const;
  absl::Status CheckSlot(int number) const;
  absl::Status CheckPlaced() const;

  // ---- reduce_plan_shape.cc
  void Advance();
  static bool Placeable(const Source& source) {
    return source.state && !source.state->holders.empty();
  }
  // It is ready, and best had at the root's node.
  bool AtRoot(const Source& source) const;
  uint64_t FoldBytes(const Source& source) const;
  // False: the source cannot be reduced with the others, and the reduction has ended.
  bool Fits(const Source& source);
  // False: none is ready.
  bool FixSize();
  bool StarPays() const;
  bool TreeRestored() const;
  NodeKey StarNode() const;
  bool StarUsable(const Source& source, const NodeKey& node) const;
  std::vector<int> StarSources(const NodeKey& node) const;
  // Whether there are as many as are wanted that a star at this node could take.
  bool StarHasEnough(const NodeKey& node);
  bool CountsForStar(int source) const;
  // False: it cannot be, as it is.
  bool PlaceStar();
  void ShapeTree();
  // How far the first num_objects that have not failed go.
  int FixedEnd() const;
  int FindFixedEnd() const;
  Layout FixedLayout() const;
  Layout ArrivedLayout() const;
  void BuildTree(const Layout& layout);
  void LinkSlots();
  void FillSeats();
  std::pair<int, int> SeatFor(const Source& source);
  int HostAbove(const Source& source, int slot) const;
  bool Closable(int slot) const;
  void CloseSlot(int slot);
  void Unshape();

  // ---- reduce_plan_restore.cc
  Layout RestoredLayout() const;
  bool RestoreRanges(Layout& layout) const;
  bool RestoreSeats(Layout& layout) const;
  std::set<int> ClosedBelow(const Layout& layout) const;
  void RestoreRoot(Layout& layout) const;

  // ---- reduce_plan_tree.cc
  static bool Holds(const ReduceSource& state, const NodeKey& node);
  static bool HoldsComplete(const ReduceSource& state, const NodeKey& node);
  static const ReduceSource::Holder& BestHolder(const ReduceSource& state);
  NodeKey HolderFor(const Source& source, const Slot& slot, const NodeKey& but) const;
  bool Pinned(int slot) const;
  bool Delivers() const { return shape && slots.size() > static_cast<size_t>(shape->slots()); }
  int TreeRoot() const { return Delivers() ? shape->slots() : shape->root(); }
  int LeafNumber(int slot, int seat) const { return (seat + 1) * (shape->slots() + 1) + slot; }
  std::vector<int> ChildrenOf(int slot) const;
  // The slot, or the first below it that is not closed; kNone if there is none.
  int Standing(int slot) const;
  void Mark(int slot);
  void TakeSeat(int source, int slot, int seat, const NodeKey& node);
  void LeaveSeat(int slot, int seat);
  void Recheck(int source);
  void MoveFold(int number, const NodeKey& from);
  void EmitDrop(const Fold& fold);
  void Drop(Fold& fold);
  void Lower(int slot);
  void DropAll();
  void Flush();
  void Refresh(int slot);
  void RefreshLeaf(int slot, int seat);
  // True: it was not placed there before.
  bool Place(Fold& fold, const NodeKey& node, FoldTask task);
  FoldTask NewTask(int number) const;
  FoldTask TaskOf(int slot) const;
  FoldTask LeafTaskOf(int slot, int seat) const;
  Generation LeafVersion(const ObjectId& id, const Generation& generation) const;
  Generation SlotVersion(int number, const Group& group, const std::map<int, Generation>& below,
                         bool is_root) const;
  Generation StarVersion(const FoldTask& task, const NodeKey& node) const;
  Generation RootVersion(std::string text, const NodeKey& node) const;
  std::string VersionText(bool root) const;
  // Of those that have a seat: what their result goes with.
  std::string Metadata() const;

  // ---- constant
  const ObjectId target;

  // ---- what is asked for
  ReduceSpec spec;
  NodeKey root;
  bool root_up;
  bool closed = false;
  bool begun = false;
  ReduceCosts costs;

  // ---- sources, in the order of the list
  std::vector<Source> sources;
  absl::flat_hash_map<ObjectId, int> index;  // for look-ups only
  int failed = 0;
  int ready = 0;
  absl::Status why_failed;
  uint64_t arrivals = 0;
  // (arrival, source) of those that are ready and have no seat.
  std::set<std::pair<uint64_t, int>> waiting;
  std::set<std::pair<uint64_t, int>> placeable;  // (arrival, source), seated or not

  // ---- the tree, or star
  Mode mode = Mode::kUnshaped;
  uint64_t size_bytes = 0;
  bool small = false;  // a star pays, if it can be
  std::optional<ReduceShape> shape;
  // Those of the shape; and one above the root, with no seats, if the root only delivers.
  std::vector<Slot> slots;
  bool reserved = false;  // the tree's root slot is computed at `root` while that is up
  int seated = 0;
  std::set<std::pair<int, int>> free;    // (slot, seat)
  std::set<std::pair<int, int>> marked;  // (-depth, slot)
  std::map<Generation, int> placed;      // numbers, of slots and leaves
  Fold star;
  int star_losses = 0;
  // Of the first `star_end` sources, so many could go into a star at `star_node`.
  NodeKey star_node;
  int star_end = 0;
  int star_usable = 0;
  // As of (how many have failed, how many there are).
  mutable std::pair<int, size_t> fixed_end_of = {-1, 0};
  mutable int fixed_end = 0;
  bool held = false;
  mutable uint64_t examined = 0;
  uint64_t epoch = 0;
  Generation last_root;
  // Roots that nodes were told to drop. A READY of one may still be on its way, and its generation
  // is void: what is placed there again has another version, whatever is in it.
  std::set<std::pair<NodeKey, Generation>> dropped_roots;

  // ---- the end
  bool committed = false;
  bool ended = false;

  // ---- before Begin: by (slot, seat); seat kNone is the slot itself
  int restored_slots = 0;
  int restored_degree = 0;
  std::map<std::pair<int, int>, Statement> restored;
  std::set<int> restored_sources;

  std::vector<ReduceEffect> effects;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCE_PLAN_IMPL_H_
