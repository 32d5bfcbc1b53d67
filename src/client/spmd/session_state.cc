#include "src/client/spmd/session_state.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "src/client/spmd/disks/disk_runs.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd::internal {
namespace {

constexpr uint64_t kRecordsAtOnce = 64;

// The number of the run makes it the job's and the role's.
Scope ScopeOfFolds(uint64_t run, uint64_t call) {
  return {absl::StrCat("phalanx.spmd.fold/", absl::Hex(run, absl::kZeroPad16)), call};
}

std::optional<CheckpointFiles> FilesOf(const Membership& member, const std::string& directory) {
  if (directory.empty()) return std::nullopt;
  return CheckpointFiles(directory, member.job(), member.role(), member.rank());
}

}  // namespace

SessionState::SessionState(std::shared_ptr<Client> client, Membership member,
                           const Options& options)
    : client_(std::move(client)),
      member_(std::move(member)),
      group_(member_, {.on_loss = LossPolicy::kWait,
                       .timeout = options.peer_timeout,
                       .retain = kUntilReleased,
                       .retain_copies = options.result_copies}),
      patience_(options.peer_timeout),
      files_(FilesOf(member_, options.checkpoint_dir)) {
  folds_.left = member_.life() > 0;
  locals_.copies = options.local_copies + 1;
}

// The numbers of the run are those of the first call's result, so all lives of all ranks have the
// same ones as long as any of them knows of the group. A directory that cannot be read is an error
// of Load, on all ranks.
absl::Status SessionState::Begin() {
  if (member_.life() == 0) PHALANX_RETURN_IF_ERROR(member_.WaitForWorld(patience_));
  PHALANX_ASSIGN_OR_RETURN(const GroupProgress progress, group_.Progress().Wait());
  const GroupKeep& said = progress.keep;
  core_.emplace(
      SessionProgress{progress.ended, SessionKeep::Of(said.boot, said.released, said.mark)});
  recovery_.under_way = progress.ended > 0;
  SeeMembers();
  return Run("Join", [this]() -> absl::Status {
    std::array<uint64_t, 2> run = {SystemRandom64(), 0};
    if (files_.has_value()) {
      files_->RemoveUnfinished();
      run[1] = files_->ProposePlace(static_cast<uint32_t>(SystemRandom64())).value_or(0);
    }
    PHALANX_RETURN_IF_ERROR(Call({kNeedsAll}, run.data(), sizeof(run), [&run](const Group& group) {
      return group.AllReduce(absl::MakeSpan(run), ReduceOp::kMax);
    }));
    run_ = run[0];
    if (files_.has_value()) files_->Begin(RunAt(run[1], run_));
    return ReadRecords();
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

absl::Status SessionState::BeginCall(absl::string_view name) {
  if (core_->loaded()) return absl::OkStatus();
  if (within_) return End(core_->boot_calls().CheckNext());
  PHALANX_ASSIGN_OR_RETURN(const std::optional<NameRecord> record, core_->boot_calls().Begin(name));
  if (!record.has_value()) return End(core_->boot_calls().CheckNext());
  const absl::Status made = MakeRecord(*record);
  // The call itself can still be left out, if its input throws, and be made then.
  within_ = false;
  if (made.ok() || name.empty()) return made;
  return End(absl::Status(made.code(),
                          absl::StrCat("before the call named \"", name, "\": ", made.message())));
}

// What the call says has the name as well, so it fails if the ranks differ.
absl::Status SessionState::MakeRecord(NameRecord record) {
  const absl::Span<uint64_t> numbers = absl::MakeSpan(record);
  return CallGroup({kNeedsAll}, record.data(), sizeof(record),
                   [&](const Group& group) { return group.AllReduce(numbers, ReduceOp::kMax); });
}

// Results of other sizes are no records. They come to this node, which needs them as well.
absl::Status SessionState::ReadRecords() {
  BootCalls& calls = core_->boot_calls();
  const uint64_t last = calls.last_record();
  for (uint64_t first = 2; first <= last; first += kRecordsAtOnce) {
    std::vector<NameRecord> records(std::min(kRecordsAtOnce, last + 1 - first));
    std::vector<Future<Done>> reads;
    for (size_t i = 0; i < records.size(); ++i) {
      reads.push_back(group_.Result(first + i, absl::MakeSpan(records[i])));
    }
    absl::Status failed;
    for (size_t i = 0; i < records.size(); ++i) {
      const absl::Status read = reads[i].Wait().status();
      if (read.ok() && BootCalls::IsRecord(records[i])) calls.AddRecord(first + i, records[i]);
      if (!read.ok() && !absl::IsInvalidArgument(read)) failed = read;
    }
    PHALANX_RETURN_IF_ERROR(End(failed));
  }
  return absl::OkStatus();
}

absl::Status SessionState::Call(const CallInfo& info, void* output, uint64_t bytes, Make make) {
  PHALANX_RETURN_IF_ERROR(BeginCall(info.name));
  return CallGroup(info, output, bytes, make);
}

absl::Status SessionState::CallGroup(const CallInfo& info, void* output, uint64_t bytes,
                                     Make make) {
  SaveIfNeeded();
  const MadeCall call = MakeCall(info, output, bytes, make);
  const absl::Status ended = ExplainKind(Await(call.future));
  // Those before it.
  PHALANX_RETURN_IF_ERROR(EndAsync(0));
  PHALANX_RETURN_IF_ERROR(End(ended));
  if (!call.repeats && group_.calls() != call.number) {
    return End(absl::InternalError(
        absl::StrCat("call ", call.number, " was call ", group_.calls(), " of the group")));
  }
  OnCallEnded({call.number, call.losses}, info.needs_all);
  within_ = true;
  return absl::OkStatus();
}

SessionState::MadeCall SessionState::MakeCall(const CallInfo& info, void* output, uint64_t bytes,
                                              Make make) {
  MadeCall call{core_->next_call(), core_->repeats(), 0, {}};
  if (call.repeats) {
    ++stats_.repeated;
    call.future = group_.Result(call.number, output, bytes);
  } else {
    if (info.prepare != nullptr && *info.prepare != nullptr) {
      (*info.prepare)();
      ++stats_.prepared;
    }
    if (std::exchange(recovery_.under_way, false)) {
      stats_.recovery = MonotonicNow() - recovery_.began;
    }
    const SessionKeep keep = core_->keep();
    group_.Keep({.boot = keep.boot, .released = keep.released, .mark = keep.mark()});
    ++stats_.made;
    call.losses = core_->SeenLosses(SeeMembers());
    call.future = make(group_);
  }
  core_->OnCallMade();
  return call;
}

void SessionState::OnCallEnded(const AsyncCalls::EndedCall& call, bool needs_all) {
  SaveIfNeeded();
  core_->OnCallEnded(needs_all, call.losses);
  Free();
  if (needs_all) EndFolds(call.number);
}

void SessionState::CountCall() {
  ++seq_;
  within_ = false;
}

absl::Status SessionState::FoldAlong(const FoldPlan& plan, uint64_t call,
                                     const FoldTree::Value& value) {
  folds_.left = true;
  folds_.last = call;
  const auto look = [this] {
    SaveIfNeeded();
    return core_->lazy();
  };
  FoldTree tree(*client_, member_, plan, ScopeOfFolds(run_, call), patience_, look);
  return tree.Climb(value);
}

void SessionState::EndFailedFold(uint64_t call) {
  folds_.end = client_->EndScope(ScopeOfFolds(run_, call), patience_);
}

void SessionState::EndFolds(uint64_t call) {
  if (member_.rank() != 0 || core_->repeats()) return;
  // It is asked for again.
  if (folds_.end.ready() && !folds_.end.Wait().ok()) folds_.left = true;
  if (!folds_.left || call <= folds_.last) return;
  folds_.left = false;
  folds_.end = client_->EndScope(ScopeOfFolds(run_, call - 1), patience_);
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
