#include "src/net/tcp/resolver.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/threads/mutex.h"
#include "src/common/threads/thread.h"

namespace phalanx::net {

struct Resolver::State {
  struct Request {
    HostPort host_port;
    Executor* executor;
    Done done;
  };

  explicit State(BlockingLookUp look_up) : look_up(std::move(look_up)) {}

  const BlockingLookUp look_up;
  Mutex mu;
  CondVar changed;
  std::deque<Request> waiting ABSL_GUARDED_BY(mu);
  int threads ABSL_GUARDED_BY(mu) = 0;
  int idle ABSL_GUARDED_BY(mu) = 0;
  bool stopped ABSL_GUARDED_BY(mu) = false;
};

Resolver::Resolver(BlockingLookUp look_up) : state_(std::make_shared<State>(std::move(look_up))) {}

Resolver::~Resolver() {
  std::deque<State::Request> dropped;
  // `dropped` is declared first, so that callbacks are destroyed without the lock.
  MutexLock lock(state_->mu);
  state_->stopped = true;
  dropped.swap(state_->waiting);
  state_->changed.SignalAll();
}

void Resolver::LookUp(HostPort host_port, Executor& executor, Done done) {
  MutexLock lock(state_->mu);
  const absl::Status room = MakeRoom(state_);
  if (!room.ok()) {
    // Posted, since `done` runs in a later turn.
    executor.Post(
        [done = std::move(done), text = absl::StrCat("cannot resolve ", host_port.ToString(), ": ",
                                                     room.message())]() mutable {
          done(absl::UnavailableError(text));
        });
    return;
  }
  state_->waiting.push_back({std::move(host_port), &executor, std::move(done)});
  state_->changed.Signal();
}

// Makes room for one more request and ensures that a thread will take it.
absl::Status Resolver::MakeRoom(const std::shared_ptr<State>& state) {
  if (state->waiting.size() >= kMaxWaiting) {
    return absl::UnavailableError("too many names are being looked up");
  }
  if (state->idle > static_cast<int>(state->waiting.size()) || state->threads >= kMaxThreads) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::thread> thread = StartThread("resolver", [state] { Work(state); });
  // A thread that already runs takes the request later.
  if (!thread.ok()) return state->threads > 0 ? absl::OkStatus() : thread.status();
  ++state->threads;
  // Detached: getaddrinfo cannot be interrupted, and the destructor does not wait for it.
  thread->detach();
  return absl::OkStatus();
}

void Resolver::Work(const std::shared_ptr<State>& state) {
  while (true) {
    State::Request request;
    {
      MutexLock lock(state->mu);
      ++state->idle;
      while (state->waiting.empty() && !state->stopped) state->changed.Wait(state->mu);
      --state->idle;
      if (state->stopped) return;
      request = std::move(state->waiting.front());
      state->waiting.pop_front();
    }
    // Without the lock: a lookup can take seconds.
    Addresses addresses = state->look_up(request.host_port);
    // Under the lock: after the destructor has held it, no executor is used any more.
    MutexLock lock(state->mu);
    if (state->stopped) return;
    request.executor->Post(
        [done = std::move(request.done), addresses = std::move(addresses)]() mutable {
          done(std::move(addresses));
        });
  }
}

}  // namespace phalanx::net
