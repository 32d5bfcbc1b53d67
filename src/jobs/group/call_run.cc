#include "src/jobs/group/call_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/collectives/kernels/kernels.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {
namespace {

uint64_t Count(const CallSpec& spec, uint64_t bytes) { return bytes / ElementSize(spec.dtype); }

}  // namespace

CallRun::CallRun(std::shared_ptr<const GroupPlan> plan, const CallSpec& spec, CallMemory memory,
                 int planned)
    : plan_(std::move(plan)),
      spec_(spec),
      memory_(std::move(memory)),
      planned_(static_cast<uint64_t>(planned)) {
  PHALANX_CHECK(memory_.work.size() >= plan_->work_bytes, "memory for the result");
  PHALANX_CHECK(memory_.scratch.size() >= plan_->scratch_bytes, "memory for the inputs of folds");
  arrived_.resize(plan_->receives.size());
  used_.resize(plan_->receives.size());
}

absl::Span<char> CallRun::At(StepMemory memory, uint64_t from, uint64_t bytes) const {
  return (memory == StepMemory::kWork ? memory_.work : memory_.scratch).subspan(from, bytes);
}

absl::StatusOr<absl::Span<char>> CallRun::Landing(int peer, uint64_t bytes) const {
  const auto at = static_cast<size_t>(peer);
  // Messages of one peer arrive in the order of the plan's Receives, so their number alone says for
  // which step a message is.
  const uint32_t index = arrived_[at];
  if (index >= plan_->receives[at].size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan has ", plan_->receives[at].size(), " messages, this is one more"));
  }
  const Step& step = plan_->steps[plan_->receives[at][index]];
  // All nodes compute plans that fit together, so another size is a fault of the peer.
  if (step.bytes != bytes) {
    return absl::FailedPreconditionError(absl::StrCat("message ", index, " of the plan has ",
                                                      step.bytes, " bytes, this one ", bytes));
  }
  return At(step.memory, step.at, step.bytes);
}

absl::Status CallRun::Arrived(int peer, absl::string_view bytes) {
  PHALANX_ASSIGN_OR_RETURN(const absl::Span<char> landing, Landing(peer, bytes.size()));
  // A payload that the link has read into its landing is in place already.
  if (!bytes.empty() && bytes.data() != landing.data()) {
    std::memcpy(landing.data(), bytes.data(), bytes.size());
  }
  ++arrived_[static_cast<size_t>(peer)];
  return absl::OkStatus();
}

// Steps are taken in the order of the plan. Each pair of nodes has one order of messages, and no
// cycle of nodes waits: a step waits only for steps of the same or an earlier round of its peer.
CallRun::State CallRun::Run(Sender send) {
  uint64_t share = kBytesPerRun;
  while (next_ < plan_->steps.size()) {
    const Step& step = plan_->steps[next_];
    // A blocked step has changed nothing, so the next Run takes it again.
    if (Take(step, send) != Taken::kYes) return State::kBlocked;
    ++next_;
    if (step.final || DefectActive(Defect::kGroupPartNotFinal)) KeepFinal(step);
    // Only folds and copies count against the share of a turn: the bytes of messages move
    // elsewhere.
    if (step.kind == StepKind::kReceive || step.kind == StepKind::kSend) continue;
    // After the last step nothing is left for another turn, so the call ends in this one.
    if (share <= step.bytes && next_ < plan_->steps.size()) return State::kMore;
    share -= std::min(share, step.bytes);
  }
  // A step may not have read all of an input, but a call that runs again can: its plan is another.
  for (size_t slot = 0; slot < memory_.inputs.size(); ++slot) {
    if (!Has(slot, {0, memory_.inputs[slot].size()})) return State::kBlocked;
  }
  return State::kDone;
}

void CallRun::KeepFinal(const Step& step) {
  if (step.kind == StepKind::kSend || step.memory != StepMemory::kWork) return;
  if (!final_.empty() && final_.back().end() == step.at) {
    final_.back().bytes += step.bytes;
  } else {
    final_.push_back({step.at, step.bytes});
  }
}

int CallRun::WaitsFor() const {
  if (next_ >= plan_->steps.size()) return -1;
  return plan_->steps[next_].peer;
}

absl::string_view CallRun::Bytes(const ResultPlace& place) const {
  if (place.memory == StepMemory::kInput) {
    return memory_.inputs[place.slot].substr(place.from, place.bytes);
  }
  const absl::Span<char> bytes = At(place.memory, place.from, place.bytes);
  return {bytes.data(), bytes.size()};
}

CallRun::Taken CallRun::Take(const Step& step, Sender send) {
  if (step.kind == StepKind::kReceive) {
    const auto peer = static_cast<size_t>(step.peer);
    if (used_[peer] == arrived_[peer]) return Taken::kNoMessage;
    // The bytes are in place since Arrived. The step only lets the steps behind it read them.
    ++used_[peer];
    return Taken::kYes;
  }
  if (!HasInput(step) && !DefectActive(Defect::kGroupInputNotAwaited)) return Taken::kNoInput;
  if (step.kind != StepKind::kSend) {
    FoldStep(step);
    return Taken::kYes;
  }
  // A Send without bytes is a signal: its memory and offset mean nothing.
  absl::string_view bytes;
  if (step.bytes > 0 && step.memory == StepMemory::kInput) {
    bytes = memory_.inputs[step.slot].substr(step.from, step.bytes);
  } else if (step.bytes > 0) {
    const absl::Span<char> at = At(step.memory, step.from, step.bytes);
    bytes = {at.data(), at.size()};
  }
  return send(step.peer, bytes, step.copy) ? Taken::kYes : Taken::kNoRoom;
}

bool CallRun::HasInput(const Step& step) const {
  switch (step.kind) {
    case StepKind::kOwn:
    case StepKind::kAddOwn:
      for (size_t slot = 0; slot < memory_.inputs.size(); ++slot) {
        if (!Has(slot, {step.at, step.bytes})) return false;
      }
      return true;
    case StepKind::kTake:
      return Has(step.slot, {step.from, step.bytes});
    case StepKind::kSend:
      return step.memory != StepMemory::kInput || Has(step.slot, {step.from, step.bytes});
    default:
      return true;
  }
}

void CallRun::FoldStep(const Step& step) {
  char* const work = memory_.work.data() + step.at;
  const uint64_t count = Count(spec_, step.bytes);
  switch (step.kind) {
    case StepKind::kOwn: {
      // A single input that needs no preparation is not moved by Own, so it is copied here.
      const char* own = Own(step.at, step.bytes, work);
      if (own != work) std::memcpy(work, own, step.bytes);
      return;
    }
    case StepKind::kAddOwn:
      // The temporary only grows, so that a long call allocates it once.
      own_.resize(std::max<size_t>(own_.size(), step.bytes));
      collectives::Fold(spec_.dtype, spec_.op, work, work, Own(step.at, step.bytes, own_.data()),
                        count);
      return;
    case StepKind::kAdd:
      collectives::Fold(spec_.dtype, spec_.op, work, work, memory_.scratch.data() + step.from,
                        count);
      return;
    case StepKind::kFinish:
      collectives::Finish(spec_.dtype, spec_.op, work, count, planned_, planned_);
      return;
    case StepKind::kTake:
      std::memcpy(work, memory_.inputs[step.slot].data() + step.from, step.bytes);
      return;
    case StepKind::kClear:
      std::memset(work, 0, step.bytes);
      return;
    default:
      PHALANX_CHECK(false, "a step that moves no message");
  }
}

// Folds the members of this node in the order of their ranks, which is part of the association.
const char* CallRun::Own(uint64_t at, uint64_t bytes, char* into) {
  const bool prepare = collectives::NeedsPrepare(spec_.dtype, spec_.op);
  const uint64_t count = Count(spec_, bytes);
  if (memory_.inputs.size() == 1 && !prepare) return memory_.inputs[0].data() + at;
  const char* first = memory_.inputs[0].data() + at;
  if (prepare) {
    collectives::Prepare(spec_.dtype, spec_.op, into, first, count, planned_);
    first = into;
  }
  // In the order of the ranks: the bits of a result depend on the order of its folds.
  for (size_t slot = 1; slot < memory_.inputs.size(); ++slot) {
    const char* input = memory_.inputs[slot].data() + at;
    if (prepare) {
      prepared_.resize(std::max<size_t>(prepared_.size(), bytes));
      collectives::Prepare(spec_.dtype, spec_.op, prepared_.data(), input, count, planned_);
      input = prepared_.data();
    }
    collectives::Fold(spec_.dtype, spec_.op, into, first, input, count);
    first = into;
  }
  return first;
}

}  // namespace phalanx::jobs
