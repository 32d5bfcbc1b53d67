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
#include "src/common/elements.h"
#include "src/common/ids.h"
#include "src/net/address.h"

namespace phalanx::collectives {

struct FoldInput {
  enum class Kind : uint8_t {
    kSource,  // a copy that this node holds
    kSender,  // the output of another fold, perhaps of one on this very node
    kInline,  // bytes that came with the order
  };
  Kind kind = Kind::kSource;
  ObjectId source;
  Generation generation;  // of the source, or the other fold's version
  NodeKey sender;
  net::Address address;
  std::string bytes;
};

// The place of one of the nodes that fold a slice each, in a ring.
struct RingPlace {
  // Of the target, named by the shard: all members create it.
  Generation generation;
  NodeKey before;
  net::Address address;
};

struct FoldOrder {
  ObjectId target;
  Generation version;
  // Where in the tree: for who looks at it, and for registration.
  uint32_t slot = 0;
  uint32_t slots = 0;
  uint32_t degree = 0;
  ElementTypes elements;
  ReduceOp op = ReduceOp::kSum;
  uint64_t planned = 1;
  uint64_t range_offset = 0;
  uint64_t size_bytes = 0;
  std::vector<FoldInput> inputs;
  bool root = false;
  bool committed = false;
  std::string reduced_from;
  bool owned = false;     // the target is
  std::string metadata;   // the target's
  std::string asked_for;  // and what it answers
  // The reduction's.
  Generation number;
  // This node is member `slot` of a ring of `slots`; the inputs are its own sources.
  std::optional<RingPlace> ring;

  // How many sources went into the target. REQUIRES: root.
  uint64_t sources() const { return reduced_from.size() / ObjectId::kSize; }
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
