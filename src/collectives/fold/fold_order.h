// A shard's order to one node: the checked value of a Fold message.
//
// Pure; any thread.
#ifndef PHALANX_COLLECTIVES_FOLD_FOLD_ORDER_H_
#define PHALANX_COLLECTIVES_FOLD_FOLD_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/reduce_spec.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/net/stream/address.h"

namespace phalanx::collectives {

using directory::FoldInput;

// This node's place in a ring, in which each member folds one slice to its end.
struct RingPlace {
  // The target's, chosen by the shard: all members create the same generation.
  Generation generation;
  NodeKey before;
  net::Address address;
};

// The task as the shard's plan made it, and what the order adds for the node.
struct FoldOrder : directory::FoldTask {
  ObjectId target;
  // Without the sources: each input of the kinds kSource and kInline is one.
  ReduceSpec spec;
  bool owned = false;     // the target is
  ObjectName name;        // the target's
  std::string asked_for;  // the record of the reduction that the target answers
  // The reduction's.
  ReductionId number;
  // The fold above has the output's bytes below this one.
  uint64_t begin = 0;
  // Hands its only input on, for a node that cannot reach the input's node.
  bool relay = false;
  // This node is member `slot` of a ring of `slots`; the inputs are its own sources.
  std::optional<RingPlace> ring;

  // How many sources went into the target. REQUIRES: root.
  uint64_t sources() const { return reduced_from.size(); }
  // Whether the committed target is the result of such a reduction. Returns false for an open one:
  // the node does not know all of its sources.
  bool Answers(const v1::Reduction& asked) const;
  // The output is the bytes of the only input, unchanged.
  bool PassesOn() const;
  // Whether the orders differ only in where inputs come from, in `begin` and in the commit. An
  // input that was pulled can come from this node now, but not the other way around: no memory was
  // kept to pull it into.
  bool SameWork(const FoldOrder& other, const NodeKey& self) const;
};

// InvalidArgument naming the field.
absl::StatusOr<FoldOrder> ParseFold(const v1::Fold& fold);

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_FOLD_ORDER_H_
