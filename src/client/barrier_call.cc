#include "src/client/barrier_call.h"

#include "src/common/time/clock.h"

namespace phalanx::internal {
namespace {

constexpr absl::Duration kDeleteTimeout = absl::Seconds(30);

}  // namespace

void BarrierCall::Begin(absl::Duration timeout) {
  deadline_ = MonotonicNow() + timeout;
  // One Get of the root, one Get for each child, the Put and the Delete; they share a row of
  // numbers so that a cancel of the call cancels all of them.
  const size_t requests = below_.size() + 3;
  first_ = connection().NewRequests(requests);
  // The Get of the root goes first: a participant that repeats a finished barrier passes without
  // the children, whose objects are deleted by then.
  connection().Start(shared_from_this(), first_, requests, deadline_, GetOf(top_, first_));
  connection().Update([this] {
    for (size_t i = 0; i < below_.size() && !done(); ++i) {
      const uint64_t number = GetBelow(i);
      connection().SendPart(shared_from_this(), GetOf(below_[i], number), number);
    }
    if (below_.empty() && !done()) Arrive();
  });
}

local::Request BarrierCall::GetOf(const ObjectId& id, uint64_t number) const {
  return local::Get{number, id, false, deadline_ - MonotonicNow(), 0, UINT64_MAX};
}

void BarrierCall::Arrive() {
  local::Put message;
  message.request = put();
  message.object.id = id();
  message.object.timeout = deadline_ - MonotonicNow();
  connection().SendPart(shared_from_this(), message, put());
}

void BarrierCall::Pass() {
  // The root exists only after this object was read by the parent. A participant that calls the
  // barrier a second time finds the root, so this object can go.
  if (id() != top_) connection().Send(local::Delete{put() + 1, id(), kDeleteTimeout});
  connection().CancelRequests(*this);
  Set(Done());
}

void BarrierCall::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  const bool succeeded = std::holds_alternative<local::Object>(answer) ||
                         std::holds_alternative<local::PutDone>(answer);
  if (!succeeded) {
    connection().CancelRequests(*this);
    // An arrival can fail only with the call as a whole: a barrier that misses one child never
    // completes.
    return Set(Refusal(answer));
  }
  if (request == first_) return Pass();
  if (request != put() && ++arrived_ == below_.size()) Arrive();
}

}  // namespace phalanx::internal
