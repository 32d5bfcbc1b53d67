#include "src/collectives/fold/fold_order.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/collectives/kernels/kernels.h"
#include "src/common/slice_layout.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/results/reduce_result.h"

namespace phalanx::collectives {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("Fold: ", what));
}

absl::StatusOr<FoldInput> ParseSender(const v1::Fold::Input& in) {
  FoldInput input;
  input.kind = FoldInput::Kind::kSlot;
  PHALANX_ASSIGN_OR_RETURN(input.node, directory::ParseNodeKey(in.sender()));
  PHALANX_ASSIGN_OR_RETURN(input.version, directory::ParseVersion(in.generation()));
  input.address = in.sender_address();
  return input;
}

absl::StatusOr<FoldInput> ParseSource(const v1::Fold::Input& in) {
  FoldInput input;
  input.kind = FoldInput::Kind::kSource;
  PHALANX_ASSIGN_OR_RETURN(input.source, directory::ParseObjectId(in.source_id()));
  PHALANX_ASSIGN_OR_RETURN(input.generation, directory::ParseGeneration(in.generation()));
  return input;
}

absl::StatusOr<FoldInput> ParseInput(const v1::Fold::Input& in, uint64_t size_bytes) {
  // The kind of an input follows from the fields that are set.
  if (in.has_sender() && (in.has_inline() || !in.source_id().empty())) {
    return Bad("an input is a source or comes from a sender, not both");
  }
  if (in.has_sender()) return ParseSender(in);
  if (!in.has_inline()) return ParseSource(in);
  FoldInput input;
  input.kind = FoldInput::Kind::kInline;
  // The source's id is there for a later registration, and optional.
  if (!in.source_id().empty()) {
    PHALANX_ASSIGN_OR_RETURN(input.source, directory::ParseObjectId(in.source_id()));
  }
  input.generation = directory::FromProto(in.generation());
  input.bytes = in.inline_bytes();
  if (input.bytes.size() != size_bytes) {
    return Bad(absl::StrCat("an inline input of ", input.bytes.size(), " bytes for an output of ",
                            size_bytes));
  }
  return input;
}

// `reduced_from` are the bytes of order.reduced_from.
absl::Status CheckOrder(const FoldOrder& order, absl::string_view reduced_from) {
  // The kernels abort on elements and ops that these two refuse.
  PHALANX_RETURN_IF_ERROR(CheckReducible(order.spec.elements, order.spec.op));
  PHALANX_RETURN_IF_ERROR(CheckWhole(order.spec.elements, order.size_bytes));
  // Within this limit no sum of an offset and a size overflows.
  if (order.size_bytes > kMaxObjectBytes || order.spec.range_offset > kMaxObjectBytes) {
    return Bad(absl::StrCat("bytes [", order.spec.range_offset, ", + ", order.size_bytes,
                            ") are beyond the largest object"));
  }
  if (order.inputs.empty()) return Bad("nothing to fold");
  if (order.planned < 1) return Bad("planned for no source");
  if (order.begin > (order.root ? 0 : order.size_bytes)) return Bad("begin is beyond the output");
  const bool hands_on = !order.root && order.inputs.size() == 1 &&
                        order.inputs[0].kind == FoldInput::Kind::kSlot &&
                        order.inputs[0].version == order.version;
  if (order.relay != hands_on)
    return Bad("a relay, and no other fold, has the version of its input");
  // Only a root carries what its target is put with.
  if (!order.root) return absl::OkStatus();
  const bool ids = reduced_from.size() % ObjectId::kSize == 0;
  if (!ids || order.sources() < 1 || order.sources() > kMaxReduceSources) {
    return Bad(absl::StrCat("reduced_from has ", reduced_from.size(), " bytes"));
  }
  if (order.metadata.size() > kMaxMetadataBytes) {
    return Bad(absl::StrCat("metadata has ", order.metadata.size(), " bytes, at most ",
                            kMaxMetadataBytes, " are allowed"));
  }
  if (order.asked_for.size() > directory::kMaxAskedForBytes) return Bad("asked_for is too long");
  return absl::OkStatus();
}

absl::StatusOr<RingPlace> ParseRing(const v1::Fold& fold, const FoldOrder& order) {
  RingPlace place;
  PHALANX_ASSIGN_OR_RETURN(place.generation, directory::ParseGeneration(fold.ring().generation()));
  PHALANX_ASSIGN_OR_RETURN(place.before, directory::ParseNodeKey(fold.ring().before()));
  place.address = fold.ring().before_address();
  if (order.slots < 2 || order.slots > kMaxSlices || order.slot < 0 || order.slot >= order.slots) {
    return Bad(absl::StrCat("no ring has member ", order.slot, " of ", order.slots));
  }
  // The shard commits a ring only after all members are ready.
  if (!order.root || order.committed) return Bad("a ring makes the target, and is not committed");
  for (const FoldInput& input : order.inputs) {
    if (input.kind != FoldInput::Kind::kSource) return Bad("a ring's inputs are its own sources");
  }
  const SliceLayout layout{order.size_bytes, order.slots};
  // Each member finishes a slice of whole elements.
  if (layout.Size(layout.slices - 1) == 0 || layout.Size(0) % kElementRunAlignment != 0) {
    return Bad(absl::StrCat(order.size_bytes, " bytes are too few for ", order.slots, " slices"));
  }
  return place;
}

}  // namespace

bool FoldOrder::Answers(const v1::Reduction& asked) const {
  if (!root || asked_for.empty() || asked.open()) return false;
  const absl::StatusOr<ReduceSpec> other = directory::ParseReduction(asked);
  // Equal records mean equal arguments, sources included.
  return other.ok() && directory::ReduceRecord(*other).Encode() == asked_for;
}

// The bytes of such a slot are the source's own, so nothing is computed or copied.
bool FoldOrder::PassesOn() const {
  return !root && inputs.size() == 1 && inputs[0].kind == FoldInput::Kind::kSource &&
         !NeedsPrepare(spec.elements, spec.op);
}

bool FoldOrder::SameWork(const FoldOrder& other, const NodeKey& self) const {
  if (spec != other.spec || planned != other.planned || size_bytes != other.size_bytes ||
      root != other.root || relay != other.relay || reduced_from != other.reduced_from ||
      metadata != other.metadata || asked_for != other.asked_for ||
      inputs.size() != other.inputs.size()) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const FoldInput& mine = inputs[i];
    const FoldInput& theirs = other.inputs[i];
    // The bytes of an inline input are the generation's, so they need no comparison.
    if (mine.kind != theirs.kind || mine.source != theirs.source ||
        mine.generation != theirs.generation || mine.version != theirs.version) {
      return false;
    }
    // An input that was on this node has no memory reserved for a pull.
    if (mine.node == self && theirs.node != self) return false;
  }
  return true;
}

absl::StatusOr<FoldOrder> ParseFold(const v1::Fold& fold) {
  FoldOrder order;
  PHALANX_ASSIGN_OR_RETURN(order.target, directory::ParseObjectId(fold.object_id()));
  PHALANX_ASSIGN_OR_RETURN(order.version, directory::ParseVersion(fold.version()));
  order.slot = static_cast<int>(fold.slot());
  order.slots = static_cast<int>(fold.slots());
  order.degree = static_cast<int>(fold.degree());
  PHALANX_ASSIGN_OR_RETURN(order.spec.elements,
                           directory::ParseElements(fold.dtype(), fold.runs()));
  order.spec.op = static_cast<ReduceOp>(fold.op());
  order.planned = fold.planned();
  order.spec.range_offset = fold.range_offset();
  order.size_bytes = fold.size_bytes();
  order.root = fold.root();
  order.committed = fold.committed();
  order.relay = fold.relay();
  order.begin = fold.begin();
  order.reduced_from = directory::IdsIn(fold.reduced_from());
  order.owned = fold.owned();
  order.metadata = fold.metadata();
  order.asked_for = fold.asked_for();
  order.name = directory::NameOf(fold);
  PHALANX_ASSIGN_OR_RETURN(order.number, directory::ParseReductionId(fold));
  // Before anything is allocated for them.
  if (fold.inputs_size() > static_cast<int>(kMaxReduceSources)) return Bad("too many inputs");
  for (const v1::Fold::Input& in : fold.inputs()) {
    PHALANX_ASSIGN_OR_RETURN(FoldInput input, ParseInput(in, order.size_bytes));
    order.inputs.push_back(std::move(input));
  }
  PHALANX_RETURN_IF_ERROR(CheckOrder(order, fold.reduced_from()));
  if (fold.has_ring()) {
    PHALANX_ASSIGN_OR_RETURN(order.ring, ParseRing(fold, order));
  }
  return order;
}

}  // namespace phalanx::collectives
