// A call in progress: one request, or a row of requests, whose answers make one result. FutureState
// is a call whose result a Future returns.
//
// Owned by the futures that wait for it and, until it ends, by its connection. State that answers
// change is guarded by the connection's lock; `done` and the result can be read without the lock
// once done() is true.
#ifndef PHALANX_CLIENT_CONNECTION_CALL_H_
#define PHALANX_CLIENT_CONNECTION_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "src/client/connection/connection.h"
#include "src/common/time/instant.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

namespace local = object_store::local;

class Call : public std::enable_shared_from_this<Call> {
 public:
  // `verb` ("Get") appears in error messages; it must be a string literal.
  Call(std::shared_ptr<Connection> connection, const char* verb, const ObjectId& id)
      : connection_(std::move(connection)), verb_(verb), id_(id) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Before Start: the client holds the object that the call creates from the first request on,
  // unless the call fails.
  void HoldFirst() { holds_first_ = true; }
  // Lock held; before the call begins. The client holds the object from now on, unless the call
  // fails.
  void HoldUnlessItFails() { holds_ = true; }
  // Whether the client holds the object through this call.
  bool holds() const { return holds_; }

  // Lock held; not called after the call has ended. `answer` points into the receive buffer.
  virtual void OnAnswer(uint64_t request, const local::Answer& answer) = 0;
  // Lock held. Ends the call without an answer: the connection broke, the deadline passed, or the
  // caller called Cancel.
  virtual void OnFailure(const absl::Status& why) = 0;
  // Lock held; not called after the call has ended. What the call waits for, as a text for the
  // error of a Wait that runs out; empty if there is nothing to say.
  virtual std::string WaitsFor() const { return ""; }

  // Nothing changes the result any more. Lock held, or no other thread knows the call.
  void MarkEnded() { done_.store(true, std::memory_order_release); }
  bool done() const { return done_.load(std::memory_order_acquire); }
  Connection& connection() const { return *connection_; }
  const std::shared_ptr<Connection>& shared_connection() const { return connection_; }
  const ObjectId& id() const { return id_; }
  // Prefixes `why` with the verb, the object and the node's address.
  absl::Status Explain(const absl::Status& why) const;
  absl::Status Explain(absl::StatusCode code, absl::string_view why) const {
    return Explain(absl::Status(code, why));
  }
  // The error for an answer of a kind that does not belong to the request.
  absl::Status Unexpected() const;
  // The error of a call whose answer has another kind than expected: the node's own error if the
  // answer carries one, else Unexpected.
  absl::Status Refusal(const local::Answer& answer) const;
  // Returns the answer as the kind that belongs to the request, or the error with which the call
  // fails.
  template <typename Kind>
  absl::StatusOr<const Kind*> Expect(const local::Answer& answer) const {
    if (const Kind* expected = std::get_if<Kind>(&answer)) return expected;
    return Refusal(answer);
  }

 protected:
  // Lock held. The call has failed: drops the hold that it took.
  void LetGo();

 private:
  friend class Connection;

  // Constant after construction.
  const std::shared_ptr<Connection> connection_;
  const char* const verb_;
  const ObjectId id_;

  CallRequests requests_;  // set by the connection
  bool holds_first_ = false;
  bool holds_ = false;
  std::atomic<bool> done_{false};
};

template <typename T>
struct FutureState : public Call {
  using Result = absl::StatusOr<T>;
  using Call::Call;

  // Lock held. Ends the call with this result.
  void Set(Result value) {
    result.emplace(std::move(value));
    if (!result->ok()) {
      *result = connection().names().WithNames(result->status());
      LetGo();
    }
    for (auto& callback : callbacks) connection().AddReady(Bind(std::move(callback)));
    callbacks.clear();
    connection().Finish(*this);
    if (part_of == nullptr) return;
    auto whole = std::make_shared<PartOf>(std::exchange(part_of, nullptr));
    (*whole)(result->status());
    connection().Trash(std::move(whole));
  }
  void OnFailure(const absl::Status& why) override { Set(Explain(why)); }
  void OnAnswer(uint64_t, const local::Answer&) override { Set(Unexpected()); }

  // Returns a call that has already ended, with a value or a status, and that no other thread
  // knows. No lock.
  template <typename Value>
  static std::shared_ptr<FutureState> Ended(std::shared_ptr<Connection> connection,
                                            const char* verb, const ObjectId& id, Value&& value) {
    auto state = std::make_shared<FutureState>(std::move(connection), verb, id);
    state->result.emplace(std::forward<Value>(value));
    const absl::Status& status = state->result->status();
    if (!status.ok() && !state->connection().forked()) {
      *state->result = state->connection().names().WithNames(status);
    }
    state->MarkEnded();
    return state;
  }

  absl::AnyInvocable<void()> Bind(absl::AnyInvocable<void(const Result&)> callback) {
    return [self = std::static_pointer_cast<FutureState>(shared_from_this()),
            callback = std::move(callback)]() mutable { callback(*self->result); };
  }

  // Called with the lock held when this call ends.
  using PartOf = absl::AnyInvocable<void(const absl::Status&)>;
  PartOf part_of;

  std::optional<Result> result;
  std::vector<absl::AnyInvocable<void(const Result&)>> callbacks;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_CALL_H_
