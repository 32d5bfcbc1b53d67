#include "src/runtime/client/barrier_call.h"

#include "src/common/clock.h"

namespace phalanx::internal {
namespace {

constexpr absl::Duration kDeleteTimeout = absl::Seconds(30);

}  // namespace

void BarrierCall::Begin(absl::Duration timeout) {
  deadline_ = MonotonicNow() + timeout;
  const size_t requests = below_.size() + 3;
  first_ = connection().NewRequests(requests);
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
  // Everybody who waited for it has got it, and who comes again finds the top.
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
    return Set(Refusal(answer));
  }
  if (request == first_) return Pass();
  if (request != put() && ++arrived_ == below_.size()) Arrive();
}

}  // namespace phalanx::internal
