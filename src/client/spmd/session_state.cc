#include "src/client/spmd/session_state.h"

#include <utility>

#include "absl/types/span.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd::internal {

namespace {

std::optional<CheckpointFiles> FilesOf(const Membership& member, const std::string& directory) {
  if (directory.empty()) return std::nullopt;
  return CheckpointFiles(directory, member.job(), member.role(), member.rank());
}

}  // namespace

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
      files_(FilesOf(member_, options.checkpoint_dir)) {
  locals_.copies = options.local_copies + 1;
}

// The number of the run is that of the first call's result, so all lives of all ranks have the same
// one as long as any of them knows of the group.
absl::Status SessionState::Begin() {
  if (member_.life() == 0) PHALANX_RETURN_IF_ERROR(member_.WaitForWorld(patience_));
  PHALANX_ASSIGN_OR_RETURN(const GroupProgress progress, group_.Progress().Wait());
  const GroupKeep& said = progress.keep;
  core_.emplace(
      SessionProgress{progress.ended, SessionKeep::Of(said.boot, said.released, said.mark)});
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

absl::Status SessionState::Call(const CallInfo& info, void* output, uint64_t bytes, Make make) {
  const uint64_t number = core_->next_call();
  const bool repeats = core_->repeats();
  uint64_t losses = 0;
  SaveIfNeeded();
  if (repeats) {
    ++stats_.repeated;
    PHALANX_RETURN_IF_ERROR(End(Await(group_.Result(number, output, bytes))));
  } else {
    if (info.prepare != nullptr && *info.prepare != nullptr) {
      (*info.prepare)();
      ++stats_.prepared;
    }
    if (std::exchange(recovers_, false)) stats_.recovery = MonotonicNow() - began_;
    const SessionKeep keep = core_->keep();
    group_.Keep({.boot = keep.boot, .released = keep.released, .mark = keep.mark()});
    ++stats_.made;
    losses = core_->SeenLosses(SeeMembers());
    PHALANX_RETURN_IF_ERROR(End(ExplainKind(Await(make(group_)))));
    if (group_.calls() != number) {
      return End(absl::InternalError(
          absl::StrCat("call ", number, " was call ", group_.calls(), " of the group")));
    }
  }
  SaveIfNeeded();
  core_->OnCallEnded(info.needs_all, losses);
  Free();
  return absl::OkStatus();
}

// If they are with local models on some ranks alone, the calls' marks differ.
absl::Status SessionState::ExplainKind(const absl::Status& why) const {
  if (!absl::IsInvalidArgument(why) || !core_->loaded()) return why;
  return absl::InvalidArgumentError(absl::StrCat(why.message(), "; checkpoints of this rank are ",
                                                 core_->local() ? "with" : "without",
                                                 " local models"));
}

absl::Status SessionState::End(absl::Status why) {
  over_ = why;
  return why;
}

}  // namespace phalanx::spmd::internal
