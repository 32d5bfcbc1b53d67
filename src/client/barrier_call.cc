#include "src/client/barrier_call.h"

#include "absl/strings/str_cat.h"
#include "src/common/time/clock.h"

namespace phalanx::internal {
namespace {

constexpr absl::Duration kDeleteTimeout = absl::Seconds(30);

}  // namespace

void BarrierCall::Begin(absl::Duration timeout) {
  deadline_ = MonotonicNow() + timeout;
  stats_left_ = 2;
  // The requests share a row of numbers so that a cancel of the call cancels all of them.
  first_ = connection().NewRequests(requests());
  // The answers come before this participant arrives: afterwards the release object can exist
  // because of this call.
  connection().Start(shared_from_this(), first_, requests(), deadline_,
                     StatOf(release_, StatRelease()));
  connection().Update([this] {
    if (!done()) connection().SendPart(shared_from_this(), StatOf(id(), StatOwn()), StatOwn());
  });
}

local::Request BarrierCall::StatOf(const ObjectId& id, uint64_t number) const {
  return local::Stat{number, id, false, false, deadline_ - MonotonicNow()};
}

local::Request BarrierCall::GetOf(const ObjectId& id, uint64_t number) const {
  return local::Get{number, id, false, deadline_ - MonotonicNow(), 0, UINT64_MAX};
}

void BarrierCall::OnStat(uint64_t request, const local::Answer& answer) {
  const auto described = Expect<local::Described>(answer);
  if (!described.ok()) {
    connection().CancelRequests(*this);
    return Set(described.status());
  }
  const bool deleted = (*described)->deleted;
  (request == StatRelease() ? release_known_ : own_known_) = {(*described)->known && !deleted,
                                                              deleted};
  if (--stats_left_ > 0) return;
  const bool was_passed =
      release_known_.deleted || own_known_.deleted || (release_known_.exists && !own_known_.exists);
  if (was_passed) {
    return Set(Explain(absl::StatusCode::kAlreadyExists,
                       absl::StrCat("the barrier \"", name_,
                                    "\" has been passed; a name is for "
                                    "one barrier, so add a number to it for each round")));
  }
  if (release_known_.exists) return Pass();
  Enter();
}

void BarrierCall::Enter() {
  connection().SendPart(shared_from_this(), GetOf(release_, GetRelease()), GetRelease());
  for (size_t i = 0; i < below_.size(); ++i) {
    connection().SendPart(shared_from_this(), GetOf(below_[i], GetBelow(i)), GetBelow(i));
  }
  if (below_.empty()) PutEmpty(id(), PutOwn());
}

void BarrierCall::PutEmpty(const ObjectId& id, uint64_t number) {
  local::Put message;
  message.request = number;
  message.object.id = id;
  message.object.timeout = deadline_ - MonotonicNow();
  connection().SendPart(shared_from_this(), message, number);
}

void BarrierCall::Pass() {
  // The release object exists only after the parent has read this participant's object, so that can
  // go. A second use of the name is known by its absence.
  connection().Send(local::Delete{DeleteOwn(), id(), kDeleteTimeout});
  connection().CancelRequests(*this);
  Set(Done());
}

void BarrierCall::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  if (request == StatRelease() || request == StatOwn()) return OnStat(request, answer);
  const bool succeeded = std::holds_alternative<local::Object>(answer) ||
                         std::holds_alternative<local::PutDone>(answer);
  if (!succeeded) {
    connection().CancelRequests(*this);
    // An arrival can fail only with the call as a whole: a barrier that misses one child never
    // completes.
    return Set(Refusal(answer));
  }
  if (request == GetRelease()) return Pass();
  if (request == PutOwn()) {
    // Index 0 arrives before it releases: a call that ends in between can be repeated.
    if (releases_) PutEmpty(release_, PutRelease());
  } else if (request != PutRelease() && ++arrived_ == below_.size()) {
    PutEmpty(id(), PutOwn());
  }
}

}  // namespace phalanx::internal
