// What a shard orders one node to fold, checked: the value that a Fold message becomes.
//
// Pure; any thread.
#ifndef PHALANX_COLLECTIVES_FOLD_ORDER_H_
#define PHALANX_COLLECTIVES_FOLD_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/reduce_spec.h"
#include "src/directory/reduce_plan.h"
#include "src/net/address.h"

namespace phalanx::collectives {

using directory::FoldInput;

// The place of one of the nodes that fold a slice each, in a ring.
struct RingPlace {
  // Of the target, named by the shard: all members create it.
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
  std::string asked_for;  // the record of the reduction that the target answers
  // The reduction's.
  Generation number;
  // This node is member `slot` of a ring of `slots`; the inputs are its own sources.
  std::optional<RingPlace> ring;

  // How many sources went into the target. REQUIRES: root.
  uint64_t sources() const { return reduced_from.size(); }
  // Whether the target, once it is committed, is what such a reduction would give. False also when
  // that cannot be known here: of an open one.
  bool Answers(const v1::Reduction& asked) const;
  // The output may be the only input's bytes as they are.
  bool PassesOn() const;
  // The same but for where inputs come from and whether it is committed. An input that is this
  // node's own must have been so before: no memory was kept to pull it into.
  bool SameWork(const FoldOrder& other, const NodeKey& self) const;
};

// InvalidArgument naming the field.
absl::StatusOr<FoldOrder> ParseFold(const v1::Fold& fold);

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_ORDER_H_
