// A call made of other calls (parts). It ends when all parts have succeeded, with the value that a
// function makes of their results, or with the first failure. A failure, or a cancel of this call,
// cancels the other parts.
//
// Guarded by the connection's lock, which all parts share. This call ends in the same critical
// section as its last part, so that waiting for it inside a callback works as for any other call.
#ifndef PHALANX_CLIENT_JOIN_CALL_H_
#define PHALANX_CLIENT_JOIN_CALL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "phalanx/client.h"
#include "src/client/access.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {

template <typename T>
class JoinCall final : public FutureState<T> {
 public:
  using FutureState<T>::FutureState;

  // Adds a call of the same connection. REQUIRES: before Begin.
  template <typename Part>
  void Add(const Future<Part>& part) {
    const std::shared_ptr<FutureState<Part>> state = Access::StateOf(part);
    parts_.push_back(state);
    watches_.push_back([this, state] {
      if (state->done()) return OnPart(state->result->status());
      state->part_of = [self = std::static_pointer_cast<JoinCall>(this->shared_from_this())](
                           const absl::Status& status) { self->OnPart(status); };
    });
  }

  // `make` is called with the lock held when all parts have succeeded.
  void Begin(absl::AnyInvocable<T()> make) {
    make_ = std::move(make);
    left_ = parts_.size();
    auto watches = std::move(watches_);
    this->connection().Update([this, &watches] {
      if (watches.empty()) return End(make_());
      for (auto& watch : watches) watch();
    });
  }

  void OnFailure(const absl::Status& why) override { End(this->Explain(why)); }

 private:
  void OnPart(const absl::Status& status) {
    if (this->done()) return;
    if (!status.ok()) return End(status);
    if (--left_ == 0) End(make_());
  }

  void End(typename FutureState<T>::Result result) {
    this->Set(std::move(result));
    const auto parts = std::make_shared<std::vector<std::shared_ptr<Call>>>(std::move(parts_));
    for (const std::shared_ptr<Call>& part : *parts) {
      if (part->done()) continue;
      this->connection().CancelRequests(*part);
      part->OnFailure(absl::CancelledError("cancelled"));
    }
    // Both can hold objects that must not be destroyed under the lock.
    this->connection().Trash(parts);
    this->connection().Trash(std::make_shared<absl::AnyInvocable<T()>>(std::move(make_)));
  }

  std::vector<std::shared_ptr<Call>> parts_;
  std::vector<absl::AnyInvocable<void()>> watches_;
  size_t left_ = 0;
  absl::AnyInvocable<T()> make_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_JOIN_CALL_H_
