#include "src/jobs/group/group_call.h"

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {

absl::string_view CallKindName(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "AllReduce";
    case CallKind::kReduce:
      return "Reduce";
    case CallKind::kBroadcast:
      return "Broadcast";
    case CallKind::kAllGather:
      return "AllGather";
    case CallKind::kReduceScatter:
      return "ReduceScatter";
    case CallKind::kAllToAll:
      return "AllToAll";
    case CallKind::kBarrier:
      return "Barrier";
  }
  return "unknown";
}

absl::string_view OnLossName(OnLoss on_loss) {
  switch (on_loss) {
    case OnLoss::kWait:
      return "wait";
    case OnLoss::kExclude:
      return "exclude";
    case OnLoss::kFail:
      return "fail";
  }
  return "unknown";
}

std::string CallSpec::ToString() const {
  std::string text = absl::StrCat(CallKindName(kind), "(");
  if (Folds(kind)) absl::StrAppend(&text, ReduceOpName(op), " of ", DTypeName(dtype), ", ");
  if (kind != CallKind::kBarrier) absl::StrAppend(&text, bytes, " bytes, ");
  if (HasRoot(kind)) absl::StrAppend(&text, "root ", root, ", ");
  absl::StrAppend(&text, "on_loss=", OnLossName(on_loss));
  if (retain == kUntilReleased) {
    absl::StrAppend(&text, ", retain=until released (boot ", keep.boot, ", released ",
                    keep.released, ", mark ", keep.mark, ") in ", copies, " copies");
  } else if (retain > 0) {
    absl::StrAppend(&text, ", retain=", retain, " in ", copies, " copies");
  }
  absl::StrAppend(&text, ")");
  return text;
}

uint64_t InputBytes(const CallSpec& spec, int world, int rank) {
  switch (spec.kind) {
    case CallKind::kBroadcast:
      return static_cast<uint32_t>(rank) == spec.root ? spec.bytes : 0;
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return spec.bytes * static_cast<uint64_t>(world);
    default:
      return spec.bytes;
  }
}

uint64_t ResultBytes(const CallSpec& spec, int world, int rank) {
  switch (spec.kind) {
    case CallKind::kReduce:
      return static_cast<uint32_t>(rank) == spec.root ? spec.bytes : 0;
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
      return spec.bytes * static_cast<uint64_t>(world);
    default:
      return spec.bytes;
  }
}

absl::Status CheckCall(const CallSpec& spec, int world) {
  // The spec can come from a client, so no value of an enumeration is taken for granted.
  if (static_cast<uint8_t>(spec.kind) >= kCallKinds) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no call of kind ", static_cast<int>(spec.kind)));
  }
  if (static_cast<uint8_t>(spec.on_loss) >= kOnLosses) {
    return absl::InvalidArgumentError("on_loss is neither wait nor exclude nor fail");
  }
  const absl::string_view name = CallKindName(spec.kind);
  if (Folds(spec.kind)) {
    PHALANX_RETURN_IF_ERROR(CheckReducible(spec.dtype, spec.op));
    PHALANX_RETURN_IF_ERROR(CountElements(spec.dtype, spec.bytes).status());
  } else if (spec.op != ReduceOp::kSum || spec.dtype != DType::kF32) {
    // Unused fields have one value only, so that the specs of equal calls compare equal.
    return absl::InvalidArgumentError(absl::StrCat(name, " has neither an op nor a dtype"));
  }
  if (HasRoot(spec.kind) ? spec.root >= static_cast<uint32_t>(world) : spec.root != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": root ", spec.root, " is not in [0, ", world, ")"));
  }
  const bool until_released = spec.retain == kUntilReleased;
  if (until_released ? spec.keep.released < spec.keep.boot : spec.keep != KeepSpec{}) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": boot ", spec.keep.boot, ", released ",
                                                   spec.keep.released, ", mark ", spec.keep.mark,
                                                   " are no results to keep"));
  }
  if ((spec.retain > kMaxRetainedCalls && !until_released) || spec.copies > kMaxRetainedCopies ||
      (spec.retain == 0) != (spec.copies == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": retain=", spec.retain, " in ", spec.copies, " copies; the limits are ",
        kMaxRetainedCalls, " calls in 1 to ", kMaxRetainedCopies, " copies"));
  }
  if (spec.kind == CallKind::kBarrier) {
    if (spec.bytes == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("Barrier has no bytes");
  }
  if (spec.bytes == 0) return absl::InvalidArgumentError(absl::StrCat(name, " of 0 bytes"));
  // Kinds with a part for each member are limited in all parts together, the others in the vector
  // alone. The quotient cannot overflow, as the product could.
  if (spec.bytes > kMaxGroupBytes / static_cast<uint64_t>(world) &&
      (spec.bytes > kMaxGroupBytes || !(SameForAll(spec.kind) || spec.kind == CallKind::kReduce) ||
       spec.kind == CallKind::kAllGather)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " of ", spec.bytes, " bytes by ", world,
                                                   " members: a member's limit is ", kMaxGroupBytes,
                                                   " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace phalanx::jobs
