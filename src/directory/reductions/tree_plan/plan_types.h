// The values of a tree plan: what a reduction asks for, what the plan knows of a source, and what
// the plan orders nodes to do. Plain values; any thread.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_PLAN_TYPES_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_PLAN_TYPES_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/reduce_spec.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"
#include "src/net/stream/address.h"

namespace phalanx::directory {

// A snapshot of a source, as the source's shard knows it.
struct ReduceSource {
  struct Holder {
    NodeKey node;
    bool complete = false;
    std::string zone;  // the node's zone label; may be empty
    // The rate of the node's link, as a share of that of the fast nodes, if the link is slow;
    // otherwise 1. 0: nothing arrives from the node.
    double speed = 1;
  };
  Generation generation;
  uint64_t size_bytes = 0;
  // The nodes that have bytes of the source, the best first. If empty, only the shard has the
  // bytes.
  std::vector<Holder> holders;
  // The shard can send the bytes themselves.
  bool has_inline = false;
  // The metadata of the generation.
  std::string metadata = {};
};

struct FoldInput {
  enum class Kind : uint8_t {
    kSource,  // a source that the fold's node holds: `source`, `generation`
    // The output of a fold, `version`, placed at `node`, which can be this fold's node.
    kSlot,
    kInline,  // a source whose bytes travel with the order: `source`, `generation`
  };
  Kind kind = Kind::kSource;
  ObjectId source;
  Generation generation;
  NodeKey node;
  SlotVersion version = {};  // of kSlot
  // Added to an order for the node that folds: the address of `node`, and the bytes of kInline.
  net::Address address = {};
  std::string bytes = {};

  friend bool operator==(const FoldInput&, const FoldInput&) = default;
};

// What one node computes: the inputs folded from left to right.
struct FoldTask {
  int slot = 0;
  // The number of slots and the degree of the tree, for ReducePlan::Restore. The slot above the
  // root that only delivers has the number `slots`; leaves within slots have greater numbers.
  int slots = 1;
  int degree = 1;
  SlotVersion version;
  uint64_t size_bytes = 0;
  std::vector<FoldInput> inputs;
  // The output is the target.
  bool root = false;
  // The node need not wait for CommitFold: all inputs are in the order itself or at the node.
  bool committed = false;
  // Of the root: the sources, in the order of the fold. Empty for others.
  std::vector<ObjectId> reduced_from;
  // Of the root: the metadata of the first source in the list that is in the fold and has any.
  // Empty if the reduction has a range.
  std::string metadata = {};
  // How many sources the whole reduction has, for means.
  uint64_t planned = 0;

  friend bool operator==(const FoldTask&, const FoldTask&) = default;
};

// ---- effects
// The node computes this task. If the node computes this version already, its inputs are elsewhere
// now.
struct PlaceFold {
  NodeKey node;
  FoldTask task;
};
// The node drops the fold. The node is up, but can have lost the fold before.
struct DropFold {
  NodeKey node;
  SlotVersion version;
};
// The root's version is the result.
struct CommitFold {
  NodeKey node;
  SlotVersion version;
};
// The reduction has failed. All its DropFolds precede this effect.
struct EndReduction {
  absl::Status why;
};
using ReduceEffect = std::variant<PlaceFold, DropFold, CommitFold, EndReduction>;

// ---- inside a plan
// What every component of one plan reads and only ReducePlan writes.
struct PlanInputs {
  const ObjectId target;
  // `sources` grows while the reduction is open; all else is constant.
  ReduceSpec spec;
  // The node that the caller wants to compute the root; not valid if the plan chooses.
  const NodeKey root;
  // `root` is valid and has never been down.
  bool root_up = false;
  ReduceCosts costs;
  // The bytes of each input of a fold. Set when the shape is chosen.
  uint64_t size_bytes = 0;
};

// A seat of a slot of the tree. A star has one slot with a seat for each source.
struct SeatId {
  int slot = ReduceShape::kNone;
  int seat = ReduceShape::kNone;

  bool valid() const { return slot != ReduceShape::kNone; }
  friend auto operator<=>(const SeatId&, const SeatId&) = default;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_PLAN_TYPES_H_
