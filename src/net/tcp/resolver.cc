#include "src/net/tcp/resolver.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/mutex.h"
#include "src/common/thread.h"

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
  MutexLock lock(state_->mu);
  state_->stopped = true;
  dropped.swap(state_->waiting);
  state_->changed.SignalAll();
}

void Resolver::LookUp(HostPort host_port, Executor& executor, Done done) {
  MutexLock lock(state_->mu);
  const absl::Status room = MakeRoom(state_);
  if (!room.ok()) {
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

// For one more request; there is a thread that will come to it.
absl::Status Resolver::MakeRoom(const std::shared_ptr<State>& state) {
  if (state->waiting.size() >= kMaxWaiting) {
    return absl::UnavailableError("too many names are being looked up");
  }
  if (state->idle > static_cast<int>(state->waiting.size()) || state->threads >= kMaxThreads) {
    return absl::OkStatus();
  }
  absl::StatusOr<std::thread> thread = StartThread("resolver", [state] { Work(state); });
  if (!thread.ok()) return state->threads > 0 ? absl::OkStatus() : thread.status();
  ++state->threads;
  // Detached: getaddrinfo cannot be interrupted, and nobody shall wait for it.
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
    Addresses addresses = state->look_up(request.host_port);
    // Under the lock: once the destructor has been through here, no executor is touched any more.
    MutexLock lock(state->mu);
    if (state->stopped) return;
    request.executor->Post(
        [done = std::move(request.done), addresses = std::move(addresses)]() mutable {
          done(std::move(addresses));
        });
  }
}

}  // namespace phalanx::net
