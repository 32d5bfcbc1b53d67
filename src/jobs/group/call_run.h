// CallRun: one node's part in one call, under way. It takes the steps of a GroupPlan over the
// memory of the call, as far as messages and the network allow.
//
//   Run ──► kBlocked ──Arrived, room to send, more of an input──► Run
//    ├────► kMore (the turn's share is used) ──► Run
//    └────► kDone: the result is final
//
// Owned by the GroupCore, which also keeps the memory: it outlives every landing that was handed
// out. Pure; one thread at a time.
#ifndef PHALANX_JOBS_GROUP_CALL_RUN_H_
#define PHALANX_JOBS_GROUP_CALL_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/jobs/group/group_plan.h"
#include "src/jobs/overlap/byte_ranges.h"

namespace phalanx::jobs {

// Bytes that one Run folds and copies before it returns kMore.
inline constexpr uint64_t kBytesPerRun = 1 << 20;

// The bytes of a call at one node.
struct CallMemory {
  // By slot, the inputs of this node's members. Unchanged until the call is settled.
  std::vector<absl::string_view> inputs;
  absl::Span<char> work;     // GroupPlan::work_bytes
  absl::Span<char> scratch;  // GroupPlan::scratch_bytes
  // By slot, what is there of an input; null or missing: all of it. The other bytes come later.
  std::vector<std::shared_ptr<const ByteRanges>> filled = {};
};

class CallRun {
 public:
  enum class State { kBlocked, kMore, kDone };
  // Sends the bytes as the next message to a node; with `copy` they change after the call. Returns
  // false if the node cannot be sent more now: the step is taken again later.
  using Sender = absl::FunctionRef<bool(int peer, absl::string_view bytes, bool copy)>;

  // `planned`: the members whose inputs are folded.
  CallRun(std::shared_ptr<const GroupPlan> plan, const CallSpec& spec, CallMemory memory,
          int planned);

  // Where the next message from `peer` goes. FailedPrecondition if the plan expects none from it or
  // another size.
  absl::StatusOr<absl::Span<char>> Landing(int peer, uint64_t bytes) const;
  // The next message from `peer` has arrived; `bytes` may be the landing itself. Errors as Landing.
  absl::Status Arrived(int peer, absl::string_view bytes);
  State Run(Sender send);

  // The node from which the next step needs a message, or to which it sends one; or -1.
  int WaitsFor() const;
  absl::string_view Bytes(const ResultPlace& place) const;
  // Returns the bytes of work that have become final since the last call, in the order in which
  // they have; adjacent ones are one.
  std::vector<ByteRange> TakeFinal() { return std::exchange(final_, {}); }

 private:
  enum class Taken { kYes, kNoMessage, kNoRoom, kNoInput };
  Taken Take(const Step& step, Sender send);
  void FoldStep(const Step& step);
  void KeepFinal(const Step& step);
  // Whether the bytes of inputs that the step reads are there.
  bool HasInput(const Step& step) const;
  bool Has(size_t slot, ByteRange range) const {
    const bool late = slot < memory_.filled.size() && memory_.filled[slot] != nullptr;
    return !late || memory_.filled[slot]->Has(range);
  }
  absl::Span<char> At(StepMemory memory, uint64_t from, uint64_t bytes) const;
  // The fold of this node's inputs at [at, at + bytes): an input itself, or a temporary.
  const char* Own(uint64_t at, uint64_t bytes, char* into);

  // Constant after construction.
  const std::shared_ptr<const GroupPlan> plan_;
  const CallSpec spec_;
  const CallMemory memory_;
  const uint64_t planned_;

  size_t next_ = 0;
  std::vector<ByteRange> final_;
  // By node, messages that have arrived, and that steps have used.
  std::vector<uint32_t> arrived_;
  std::vector<uint32_t> used_;
  std::string own_;       // one piece of the fold of several inputs
  std::string prepared_;  // one piece of one input
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_CALL_RUN_H_
