// CallSpec: what the members of a group must agree on in one call. CheckCall: which calls can be
// made.
//
// Values and pure functions; any thread.
#ifndef PHALANX_JOBS_GROUP_GROUP_CALL_H_
#define PHALANX_JOBS_GROUP_GROUP_CALL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/common/elements.h"

namespace phalanx::jobs {

// The numbers appear on the wire.
enum class CallKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};
inline constexpr uint8_t kCallKinds = 7;

// What a call does if a member ends before the call has a result. The numbers appear on the wire.
enum class OnLoss : uint8_t {
  kWait,     // the call waits for the member's next life, which makes the call again
  kExclude,  // the call goes on without the member
  kFail,     // the call fails with Unavailable
};
inline constexpr uint8_t kOnLosses = 3;

// The greatest input or result of one member.
inline constexpr uint64_t kMaxGroupBytes = uint64_t{4} << 30;
// How many results of its last calls a group can keep, and in how many copies.
inline constexpr uint32_t kMaxRetainedCalls = 1024;
inline constexpr uint32_t kMaxRetainedCopies = 16;
// Instead of a number of calls: results are kept until a call says that they are released.
inline constexpr uint32_t kUntilReleased = ~uint32_t{0};
// How many of these a group can keep.
inline constexpr uint64_t kMaxUnreleasedCalls = 65536;

// Which results are kept until they are released, as a call says: those of the calls 1 to `boot`,
// and those after `released`.
struct KeepSpec {
  uint64_t boot = 0;
  uint64_t released = 0;
  uint64_t mark = 0;  // the program's own

  friend bool operator==(const KeepSpec&, const KeepSpec&) = default;
};

struct CallSpec {
  CallKind kind = CallKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
  OnLoss on_loss = OnLoss::kFail;
  // AllReduce, Reduce, Broadcast: the bytes of the vector. AllGather: of each member's input.
  // ReduceScatter: of each member's result. AllToAll: of what one member sends to another one.
  // Barrier: 0.
  uint64_t bytes = 0;
  // Of Reduce and Broadcast, else 0.
  uint32_t root = 0;
  // The result is kept until so many later calls have ended, on as many hosts as `copies`, or on
  // all if these are fewer. Both are 0 if it is not kept.
  uint32_t retain = 0;
  uint32_t copies = 0;
  KeepSpec keep = {};  // with retain = kUntilReleased

  friend bool operator==(const CallSpec&, const CallSpec&) = default;
  // Returns a text like "AllReduce(sum of f32, 4096 bytes, on_loss=fail)". A call whose result is
  // kept says so, too.
  std::string ToString() const;
};

absl::string_view CallKindName(CallKind kind);
absl::string_view OnLossName(OnLoss on_loss);

// Whether the kind folds elements, so that op and dtype matter.
constexpr bool Folds(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}
constexpr bool HasRoot(CallKind kind) {
  return kind == CallKind::kReduce || kind == CallKind::kBroadcast;
}
// Whether every member gets the same result, so that any member's result can be given to another.
constexpr bool SameForAll(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kBroadcast ||
         kind == CallKind::kAllGather || kind == CallKind::kBarrier;
}

// Whether every member gives something, so that the call ends nowhere before all have made it.
constexpr bool NeedsAll(CallKind kind) {
  return kind != CallKind::kBroadcast && kind != CallKind::kReduce;
}

// The bytes that member `rank` gives and gets. REQUIRES: CheckCall is OK.
uint64_t InputBytes(const CallSpec& spec, int world, int rank);
uint64_t ResultBytes(const CallSpec& spec, int world, int rank);

// Returns InvalidArgument, naming the value and the limit, if the kind needs bytes and there are
// none, if they are no whole elements or too many, if op and dtype do not fit, or if the root is no
// rank, or if more results or copies are to be kept than the limits above, or one of the two is 0,
// or if released < boot.
// Fields that a kind does not use must have their default values.
absl::Status CheckCall(const CallSpec& spec, int world);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_CALL_H_
