#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/ps.h"
#include "src/client/connection/call.h"

namespace phalanx {

template <typename T>
typename Future<T>::Result Future<T>::Wait(absl::Duration timeout) const {
  if (state_ == nullptr) return absl::FailedPreconditionError("a Future without a call");
  // Without the lock: `done` is set after the result, so an ended call needs no connection.
  if (state_->done()) return *state_->result;
  internal::Connection& connection = state_->connection();
  const absl::Status process = connection.CheckProcess();
  if (!process.ok()) return process;
  if (connection.WaitFor(*state_, MonotonicNow() + timeout)) return *state_->result;
  // The call continues: a later Wait can still return its result.
  std::string why = "still waiting";
  connection.Update([&] {
    const std::string what = state_->done() ? "" : state_->WaitsFor();
    if (!what.empty()) absl::StrAppend(&why, ": ", what);
  });
  return state_->Explain(absl::StatusCode::kDeadlineExceeded, why);
}

template <typename T>
bool Future<T>::ready() const {
  return state_ != nullptr && state_->done();
}

template <typename T>
void Future<T>::OnReady(absl::AnyInvocable<void(const Result&)> callback) const {
  if (state_ == nullptr || state_->connection().forked()) return;
  state_->connection().Update([this, &callback] {
    // An ended call never calls back again, so the callback is queued here; it still runs in Wait
    // or Poll, not in this call.
    if (state_->done()) {
      state_->connection().AddReady(state_->Bind(std::move(callback)));
    } else {
      state_->callbacks.push_back(std::move(callback));
    }
  });
}

template <typename T>
void Future<T>::Cancel() const {
  if (state_ != nullptr) state_->connection().Cancel(*state_);
}

// All result types of the public headers, so that this source alone needs the implementation.
template class Future<PutResult>;
template class Future<Buffer>;
template class Future<std::vector<Buffer>>;
template class Future<std::vector<Client::Arrival>>;
template class Future<std::vector<ObjectId>>;
template class Future<ObjectStatus>;
template class Future<BroadcastProgress>;
template class Future<GroupProgress>;
template class Future<bool>;
template class Future<Done>;
template class Future<int>;
template class Future<ps::PulledRows>;
template class Future<ps::Reply>;

}  // namespace phalanx
