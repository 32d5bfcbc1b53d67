#include "src/client/spmd/session_state.h"

#include <utility>

#include "absl/types/span.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd::internal {

SessionState::SessionState(std::shared_ptr<Client> client, Membership member,
                           const Options& options)
    : began_(MonotonicNow()),
      client_(std::move(client)),
      member_(std::move(member)),
      group_(member_, {.on_loss = LossPolicy::kWait,
                       .timeout = options.peer_timeout,
                       .retain = kUntilReleased,
                       .retain_copies = options.result_copies}),
      patience_(options.peer_timeout),
      has_folds_(member_.life() > 0) {}

// The number of the run is that of the first call's result, so all lives of all ranks have the same
// one as long as any of them knows of the group.
absl::Status SessionState::Begin() {
  if (member_.life() == 0) PHALANX_RETURN_IF_ERROR(member_.WaitForWorld(patience_));
  PHALANX_ASSIGN_OR_RETURN(const GroupProgress progress, group_.Progress().Wait());
  const GroupKeep& said = progress.keep;
  core_.emplace(SessionProgress{progress.ended, {said.boot, said.released, said.mark}});
  recovers_ = progress.ended > 0;
  SeeMembers();
  return Run("Join", [this] {
    run_ = SystemRandom64();
    return Call({kNeedsAll}, &run_, sizeof(run_), [this](const Group& group) {
      return group.AllReduce(absl::MakeSpan(&run_, 1), ReduceOp::kMax);
    });
  });
}

absl::Status SessionState::Explain(const char* verb, const absl::Status& why) const {
  if (why.ok()) return why;
  return absl::Status(
      why.code(), absl::StrCat("job ", member_.job(), "/", member_.role(), ", rank ",
                               member_.rank(), ", version ", core_->version(), ", seq ", seq_, ": ",
                               verb, ": ", why.message()));
}

absl::Status SessionState::CheckRoot(int root) const {
  if (root >= 0 && root < member_.world()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("root ", root, " is no rank of a world of ", member_.world()));
}

absl::Status SessionState::CheckBytes(uint64_t bytes) {
  if (bytes <= jobs::kMaxGroupBytes) return absl::OkStatus();
  return End(absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes; the limit is ", jobs::kMaxGroupBytes)));
}

absl::Status SessionState::CheckPlace(const void* place, uint64_t bytes) {
  if (place != nullptr || bytes == 0) return absl::OkStatus();
  return End(absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes")));
}

absl::Status SessionState::Call(const CallInfo& info, void* output, uint64_t bytes, Make make) {
  SaveIfNeeded();
  const MadeCall call = MakeCall(info, output, bytes, make);
  const absl::Status ended = Await(call.future);
  // Those before it.
  PHALANX_RETURN_IF_ERROR(EndAsync(0));
  PHALANX_RETURN_IF_ERROR(End(ended));
  if (!call.repeats && group_.calls() != call.number) {
    return End(absl::InternalError(
        absl::StrCat("call ", call.number, " was call ", group_.calls(), " of the group")));
  }
  SaveIfNeeded();
  OnCallEnded(call.number, info.needs_all, call.losses);
  within_ = true;
  return absl::OkStatus();
}

SessionState::MadeCall SessionState::MakeCall(const CallInfo& info, void* output, uint64_t bytes,
                                              Make make) {
  MadeCall call{core_->next_call(), core_->repeats()};
  if (call.repeats) {
    ++stats_.repeated;
    call.future = group_.Result(call.number, output, bytes);
  } else {
    if (info.prepare != nullptr && *info.prepare != nullptr) {
      (*info.prepare)();
      ++stats_.prepared;
    }
    if (std::exchange(recovers_, false)) stats_.recovery = MonotonicNow() - began_;
    const SessionKeep keep = core_->keep();
    group_.Keep({.boot = keep.boot, .released = keep.released, .mark = keep.version});
    ++stats_.made;
    call.losses = core_->SeenLosses(SeeMembers());
    call.future = make(group_);
  }
  core_->OnCallMade();
  return call;
}

void SessionState::OnCallEnded(uint64_t number, bool needs_all, uint64_t losses) {
  core_->OnCallEnded(needs_all, losses);
  Free();
  if (needs_all) EndFolds(number);
}

void SessionState::CountCall() {
  ++seq_;
  within_ = false;
}

// The number of the run makes it the job's and the role's.
Scope SessionState::ScopeOfFolds(uint64_t call) const {
  return {absl::StrCat("phalanx.spmd.fold/", absl::Hex(run_, absl::kZeroPad16)), call};
}

Scope SessionState::BeginFold(uint64_t call) {
  has_folds_ = true;
  return ScopeOfFolds(call);
}

void SessionState::EndFolds(uint64_t call) {
  if (member_.rank() != 0 || !has_folds_) return;
  has_folds_ = false;
  folds_end_ = client_->EndScope(ScopeOfFolds(call - 1), patience_);
}

absl::Status SessionState::End(absl::Status why) {
  over_ = why;
  return why;
}

}  // namespace phalanx::spmd::internal
