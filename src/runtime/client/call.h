// A call in progress: one request, or a row of them, whose answers make one result; and
// FutureState, a call whose result a Future hands out.
//
// Owned by the futures that wait for it and, until it ends, by its connection. What answers change
// is guarded by the connection's lock; `done` and the result may be read without it once done() is
// true.
#ifndef PHALANX_RUNTIME_CLIENT_CALL_H_
#define PHALANX_RUNTIME_CLIENT_CALL_H_

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
#include "src/common/instant.h"
#include "src/local/local_protocol.h"
#include "src/runtime/client/connection.h"

namespace phalanx::internal {

namespace local = object_store::local;

class Call : public std::enable_shared_from_this<Call> {
 public:
  // `verb` ("Get") is for messages, and a literal.
  Call(std::shared_ptr<Connection> connection, const char* verb, const ObjectId& id)
      : connection_(std::move(connection)), verb_(verb), id_(id) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Before it is started: the client holds the object that it makes from its first request on,
  // unless it fails.
  void HoldFirst() { holds_first_ = true; }
  // Lock held; before it begins. The client holds the object from now on, unless the call fails.
  void HoldUnlessItFails() { holds_ = true; }
  // Whether it has done so.
  bool holds() const { return holds_; }

  // Lock held; not called once the call has ended. `answer` points into the receive buffer.
  virtual void OnAnswer(uint64_t request, const local::Answer& answer) = 0;
  // Lock held: the call ends without an answer (the connection broke, the deadline passed, Cancel).
  virtual void OnFailure(const absl::Status& why) = 0;

  bool done() const { return done_.load(std::memory_order_acquire); }
  Connection& connection() const { return *connection_; }
  const std::shared_ptr<Connection>& shared_connection() const { return connection_; }
  const ObjectId& id() const { return id_; }
  // `why` with the verb, the object and the node's address in front.
  absl::Status Explain(const absl::Status& why) const;
  absl::Status Explain(absl::StatusCode code, absl::string_view why) const {
    return Explain(absl::Status(code, why));
  }
  // For an answer of a kind that does not belong to the request.
  absl::Status Unexpected() const;
  // Why a call fails whose answer was to be of another kind: as the node said, or Unexpected.
  absl::Status Refusal(const local::Answer& answer) const;
  // The answer as the kind that belongs to the request, or why the call fails.
  template <typename Kind>
  absl::StatusOr<const Kind*> Expect(const local::Answer& answer) const {
    if (const Kind* expected = std::get_if<Kind>(&answer)) return expected;
    return Refusal(answer);
  }

 protected:
  // Lock held: the call has failed.
  void LetGo();

 private:
  friend class Connection;

  // Constant after construction.
  const std::shared_ptr<Connection> connection_;
  const char* const verb_;
  const ObjectId id_;

  // The connection's: the numbers [first_, first_ + requests_) are this call's.
  uint64_t first_ = 0;
  uint64_t requests_ = 0;
  Instant deadline_ = Instant::Infinite();
  bool holds_first_ = false;
  bool holds_ = false;
  std::atomic<bool> done_{false};
};

template <typename T>
struct FutureState : public Call {
  using Result = absl::StatusOr<T>;
  using Call::Call;

  // Lock held: the call ends with this.
  void Set(Result value) {
    result.emplace(std::move(value));
    if (!result->ok()) LetGo();
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

  // For a call that ends, with a value or a status, before it began, and is not known to any other
  // thread. No lock.
  template <typename Value>
  static std::shared_ptr<FutureState> Ended(std::shared_ptr<Connection> connection,
                                            const char* verb, const ObjectId& id, Value&& value) {
    auto state = std::make_shared<FutureState>(std::move(connection), verb, id);
    state->result.emplace(std::forward<Value>(value));
    state->connection().MarkEnded(*state);
    return state;
  }

  absl::AnyInvocable<void()> Bind(absl::AnyInvocable<void(const Result&)> callback) {
    return [self = std::static_pointer_cast<FutureState>(shared_from_this()),
            callback = std::move(callback)]() mutable { callback(*self->result); };
  }

  // Told, lock held, when this call ends.
  using PartOf = absl::AnyInvocable<void(const absl::Status&)>;
  PartOf part_of;

  std::optional<Result> result;
  std::vector<absl::AnyInvocable<void(const Result&)>> callbacks;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_CALL_H_
