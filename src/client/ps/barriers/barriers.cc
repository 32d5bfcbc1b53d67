#include "src/client/ps/barriers/barriers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/verb.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

using phalanx::internal::Access;
using phalanx::internal::FutureState;
using phalanx::internal::MemberCall;

// A message that was lost is sent again so soon, and an error names those that are missing as they
// were then.
constexpr absl::Duration kTickEvery = absl::Milliseconds(500);

MemberCall& CallOf(const Membership& member) { return *Access::StateOf(member)->call; }

}  // namespace

// The connection knows it as a timer, so that it ends at its deadline.
struct Barriers::BarrierCall final : public FutureState<Done> {
  explicit BarrierCall(Barriers& of) : FutureState(of.connection_, "Barrier", ObjectId()), in(of) {}
  // Its time is up, or it was cancelled.
  void OnFailure(const absl::Status& why) override {
    const std::string what = WaitsFor();
    in.Forget(ticket);
    Set(absl::Status(why.code(),
                     absl::IsDeadlineExceeded(why)
                         ? absl::StrCat("Barrier: ", in.Where(), ": ", what)
                         : absl::StrCat("Barrier: ", in.Where(), ": ", what, ": ", why.message())));
  }
  std::string WaitsFor() const override { return in.own_.WaitsFor(ticket); }
  // Used under the lock and until the call has ended, which OnEnd makes sure of.
  Barriers& in;
  BarrierMember::Ticket ticket = 0;
};

struct Barriers::TickTimer final : public phalanx::internal::Call {
  explicit TickTimer(Barriers& of) : Call(of.connection_, "Barrier", ObjectId()), in(of) {}
  void OnAnswer(uint64_t, const phalanx::internal::local::Answer&) override {}
  void OnFailure(const absl::Status&) override {
    connection().Finish(*this);
    in.Tick();
  }
  Barriers& in;
};

// What is lost is sent again by the next Tick of the task that waits.
Barriers::Barriers(Membership member, Roles roles)
    : member_(std::move(member)),
      roles_(std::move(roles)),
      connection_(CallOf(member_).shared_connection()),
      to_servers_(
          std::make_shared<MemberSends>(CallOf(member_), roles_.servers, [](int, uint64_t) {})),
      own_(member_.world()) {
  if (is_worker() || member_.rank() != 0) return;
  keeper_.emplace(member_.world(), member_.life());
  to_workers_ =
      std::make_shared<MemberSends>(CallOf(member_), roles_.workers, [](int, uint64_t) {});
  own_.OnKeeper(MemberState::kLive, member_.life());
}

std::string Barriers::Where() const {
  return absl::StrCat(is_worker() ? "worker " : "server ", member_.rank(), " of job ",
                      member_.job());
}

// What is refused is no arrival. The deadline is that of the call, which a Wait with a timeout of
// its own does not end.
Future<Done> Barriers::Begin(BarrierGroup group, const BarrierOptions& options,
                             absl::Duration patience) {
  absl::Status status = connection_->CheckProcess();
  if (status.ok() && (static_cast<int>(group) >= kBarrierGroups || !HasTask(group, is_worker()))) {
    status = absl::InvalidArgumentError(
        absl::StrCat("Barrier: ", Where(), " is none of group ", BarrierGroupName(group)));
  }
  if (status.ok() && options.epoch.value_or(0) > kMaxBarrierEpoch) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "Barrier: ", Where(), ": epoch ", *options.epoch, ", at most ", kMaxBarrierEpoch));
  }
  if (!status.ok()) {
    return phalanx::internal::Refused<Done>(connection_, "Barrier", ObjectId(), std::move(status));
  }
  auto call = std::make_shared<BarrierCall>(*this);
  connection_->Update([&] {
    if (!over_.ok()) return call->Set(over_);
    // Also one that has failed ends the member, and the call with it.
    connection_->StartTimer(call, MonotonicNow() + options.timeout.value_or(patience));
    call->ticket = own_.Begin(group, options.epoch);
    calls_[call->ticket] = call;
    Drain();
  });
  return Future<Done>(std::move(call));
}

std::optional<BarrierTask> Barriers::TaskOf(const std::string& role, int rank) const {
  if (role == roles_.servers) return BarrierTask{.worker = false, .rank = rank};
  if (role == roles_.workers) return BarrierTask{.worker = true, .rank = rank};
  return std::nullopt;
}

// Arrivals are for the keeper, and verdicts come from server 0 alone: what is none of these is
// ignored.
bool Barriers::OnMessage(const Message& message) {
  if (!IsBarrierMessage(message.bytes)) return false;
  const std::optional<BarrierTask> from = TaskOf(message.role, message.rank);
  if (!from.has_value()) return true;
  if (keeper_.has_value()) {
    keeper_->OnMessage(*from, message.life, message.bytes);
  } else if (!from->worker && from->rank == 0) {
    own_.OnMessage(message.life, message.bytes);
  }
  Drain();
  return true;
}

// Workers need to know of server 0 alone, and server 0 of all.
void Barriers::OnMember(const Member& member) {
  const std::optional<BarrierTask> task = TaskOf(member.role, member.rank);
  if (!task.has_value()) return;
  if (keeper_.has_value()) {
    keeper_->OnMember(*task, member.state, member.life);
  } else if (!task->worker && task->rank == 0) {
    own_.OnKeeper(member.state, member.life);
  }
  Drain();
}

// The connection keeps timers until they end, so those of a worker that is gone end here.
void Barriers::OnEnd(const absl::Status& why) {
  if (!over_.ok()) return;
  over_ = why;
  to_servers_->Stop();
  if (to_workers_ != nullptr) to_workers_->Stop();
  if (timer_ != nullptr) connection_->Finish(*std::exchange(timer_, nullptr));
  for (const auto& [ticket, call] : std::exchange(calls_, {})) {
    own_.Forget(ticket);
    call->Set(why);
    connection_->Trash(call);
  }
}

// The call ends itself behind this, with the reason that its caller knows.
void Barriers::Forget(BarrierMember::Ticket ticket) {
  own_.Forget(ticket);
  const auto call = calls_.find(ticket);
  if (call == calls_.end()) return;
  connection_->Trash(std::move(call->second));
  calls_.erase(call);
}

void Barriers::Tick() {
  connection_->Trash(std::exchange(timer_, nullptr));
  if (!over_.ok()) return;
  own_.Tick();
  Drain();
}

// Server 0 and its own task exchange messages here: they lead to no more than an answer each.
void Barriers::Drain() {
  if (!over_.ok()) return;
  const BarrierTask self = {.worker = is_worker(), .rank = member_.rank()};
  for (BarrierMember::Send& send : own_.TakeSends()) {
    if (keeper_.has_value()) {
      keeper_->OnMessage(self, member_.life(), send.bytes);
    } else {
      to_servers_->Add(0, send.life, std::move(send.bytes));
    }
  }
  if (keeper_.has_value()) {
    for (BarrierKeeper::Send& send : keeper_->TakeSends()) {
      if (send.to == self) {
        own_.OnMessage(send.life, send.bytes);
      } else {
        (send.to.worker ? to_workers_ : to_servers_)
            ->Add(send.to.rank, send.life, std::move(send.bytes));
      }
    }
  }
  for (const BarrierMember::Ended& ended : own_.TakeEnded()) {
    const auto found = calls_.find(ended.ticket);
    if (found == calls_.end()) continue;
    const std::shared_ptr<BarrierCall> call = std::move(found->second);
    calls_.erase(found);
    if (ended.status.ok()) {
      call->Set(Done{});
    } else {
      call->Set(absl::Status(ended.status.code(),
                             absl::StrCat("Barrier: ", Where(), ": ", ended.status.message())));
    }
    connection_->Trash(call);
  }
  if (timer_ != nullptr || !own_.waiting() || !connection_->status().ok()) return;
  timer_ = std::make_shared<TickTimer>(*this);
  connection_->StartTimer(timer_, MonotonicNow() + kTickEvery);
}

}  // namespace phalanx::ps::internal
