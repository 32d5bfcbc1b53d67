#include <utility>

#include "absl/cleanup/cleanup.h"
#include "phalanx/member_state.h"
#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

// How often a call that waits looks whether a member has died.
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);
// How long a call waits for room for a model before it looks whether it has ended.
constexpr absl::Duration kSavePatience = absl::Seconds(10);

}  // namespace

absl::Status SessionState::LazyCheckpoint(std::function<std::string()> save) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint(/*local=*/false));
  if (save == nullptr) return absl::InvalidArgumentError("no function that saves the model");
  if (!core_->CanBeLazy() || files_.has_value()) return Checkpoint(save());
  phalanx::internal::Access::DieIfDeclared(member_,
                                           phalanx::internal::DeathPoint::Kind::kCheckpoint);
  core_->OnCheckpoint(/*lazy=*/true);
  lazy_ = {};
  lazy_.save = std::move(save);
  seq_ = 0;
  return absl::OkStatus();
}

// A member that has left needs nothing.
bool SessionState::SeeMembers() {
  const absl::StatusOr<uint64_t> change = member_.WaitForChange(seen_.change, absl::ZeroDuration());
  if (!change.ok()) return seen_.all_live;
  seen_.change = *change;
  const std::vector<Member> members = member_.Members();
  seen_.ranks.resize(members.size());
  seen_.all_live = true;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const Member& now = members[rank];
    Seen::Rank& seen = seen_.ranks[rank];
    const bool live = now.live() || now.state == MemberState::kLeft;
    const bool died = seen.live && !live;
    if (seen.joined && (died || now.life != seen.life)) core_->OnLoss();
    seen = {now.state != MemberState::kAbsent, live, now.life};
    seen_.all_live &= live;
  }
  return seen_.all_live;
}

void SessionState::SaveIfNeeded() {
  if (!core_->lazy()) return;
  SeeMembers();
  if (core_->ToSave().has_value()) SaveLazy().IgnoreError();
}

// The model stays as it is until the last call of its version has ended, and what was saved of it
// is kept until there is room for it: it can be large, and a call looks often.
absl::Status SessionState::SaveLazy() {
  if (!core_->lazy()) return absl::OkStatus();
  if (!lazy_.bytes.has_value()) {
    absl::Cleanup thrown = [this] {
      End(Explain("LazyCheckpoint",
                  absl::AbortedError("the function that saves the model has thrown")))
          .IgnoreError();
    };
    lazy_.bytes = lazy_.save();
    std::move(thrown).Cancel();
  }
  lazy_.failed = Store(core_->version(), core_->base(), *lazy_.bytes, kSavePatience);
  if (!lazy_.failed.ok()) return lazy_.failed;
  stats_.checkpoint_bytes += lazy_.bytes->size();
  core_->OnSaved();
  lazy_ = {};
  return absl::OkStatus();
}

absl::Status SessionState::Await(const Future<Done>& call) {
  // If the program throws, the memory of the call goes.
  const absl::Cleanup end = [&call] {
    if (call.ready()) return;
    call.Cancel();
    call.Wait().IgnoreError();
  };
  while (core_->lazy()) {
    const absl::Status waited = call.Wait(kLookEvery).status();
    if (call.ready() || !absl::IsDeadlineExceeded(waited)) break;
    SaveIfNeeded();
  }
  const absl::Status status = call.Wait().status();
  if (status.ok() || lazy_.failed.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; the model of version ", core_->version(),
                                   " could not be saved: ", lazy_.failed.message()));
}

}  // namespace phalanx::spmd::internal
