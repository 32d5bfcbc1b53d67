#include "src/client/spmd/async_calls.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"

namespace phalanx::spmd::internal {

using phalanx::internal::Access;
using phalanx::internal::Connection;
using phalanx::internal::FutureState;

struct AsyncCalls::Call final : public FutureState<Done> {
  Call(std::shared_ptr<Connection> connection, const EndedCall& its_end, std::string its_where,
       std::shared_ptr<FutureState<Done>> its_call)
      : FutureState(std::move(connection), "AllreduceAsync", ObjectId()),
        when_ended(its_end),
        where(std::move(its_where)),
        made(std::move(its_call)) {}

  // Cancelled: so is the call of the group, which writes to memory of the program until it ends.
  void OnFailure(const absl::Status& why) override {
    if (!made->done()) {
      connection().CancelRequests(*made);
      made->OnFailure(why);
    }
    if (!done()) Set(why);
  }

  const EndedCall when_ended;
  const std::string where;
  const std::shared_ptr<FutureState<Done>> made;
  std::optional<absl::Status> ended;  // of `made`
};

Future<Done> AsyncCalls::Add(const EndedCall& when_ended, const Future<Done>& made,
                             std::string where) {
  auto call =
      std::make_shared<Call>(connection_, when_ended, std::move(where), Access::StateOf(made));
  const auto on_end = [self = shared_from_this(), call](const absl::Status& status) {
    call->ended = status;
    self->EndInOrder();
  };
  connection_->Update([&] {
    calls_.push_back(call);
    if (call->made->done()) {
      on_end(call->made->result->status());
    } else {
      call->made->part_of = on_end;
    }
  });
  return Future<Done>(std::move(call));
}

void AsyncCalls::EndInOrder() {
  while (!calls_.empty() && calls_.front()->ended.has_value()) {
    const std::shared_ptr<Call> call = std::move(calls_.front());
    calls_.pop_front();
    const bool failed = over_.ok() && !call->ended->ok();
    if (failed) {
      over_ = absl::Status(call->ended->code(), absl::StrCat(call->where, call->ended->message()));
    }
    if (over_.ok()) ended_.push_back(call->when_ended);
    // The program can have cancelled it.
    if (!call->done() && over_.ok()) call->Set(Done{});
    if (!call->done()) call->Set(over_);
    // The last one of the group's state takes the lock.
    connection_->Trash(call);
    if (failed) CancelAll(over_);
  }
}

void AsyncCalls::CancelAll(const absl::Status& why) {
  // Those that end leave the list.
  const std::vector<std::shared_ptr<Call>> calls(calls_.begin(), calls_.end());
  for (const std::shared_ptr<Call>& call : calls) call->OnFailure(why);
  for (const std::shared_ptr<Call>& call : calls) connection_->Trash(call);
}

std::vector<AsyncCalls::EndedCall> AsyncCalls::TakeEnded() {
  std::vector<EndedCall> ended;
  connection_->Update([&] { ended.swap(ended_); });
  return ended;
}

absl::Status AsyncCalls::over() const {
  absl::Status over;
  // In a child of fork a thread that does not exist there can hold the lock.
  if (connection_->forked()) return over;
  connection_->Update([&] { over = over_; });
  return over;
}

size_t AsyncCalls::under_way() const {
  size_t calls = 0;
  connection_->Update([&] { calls = calls_.size(); });
  return calls;
}

void AsyncCalls::Cancel() {
  if (connection_->forked()) return;
  connection_->Update([&] { CancelAll(absl::CancelledError("the session has ended")); });
}

void AsyncCalls::AwaitOldest() const {
  std::shared_ptr<Call> oldest;
  connection_->Update([&] {
    if (!calls_.empty()) oldest = calls_.front();
  });
  // The program can have cancelled its future.
  if (oldest != nullptr) Future<Done>(oldest->made).Wait().IgnoreError();
}

Future<Done> AsyncCalls::EndedFuture(const Client& client, const absl::Status& status) {
  const std::shared_ptr<Connection>& connection = Access::ConnectionOf(client);
  FutureState<Done>::Result result = Done{};
  if (!status.ok()) result = status;
  return Future<Done>(
      FutureState<Done>::Ended(connection, "AllreduceAsync", ObjectId(), std::move(result)));
}

}  // namespace phalanx::spmd::internal
