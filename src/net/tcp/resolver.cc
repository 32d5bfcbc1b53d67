#include "src/net/tcp/resolver.h"

#include <pthread.h>

#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/mutex.h"

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
  if (state_->waiting.size() >= kMaxWaiting) {
    executor.Post([done = std::move(done), name = host_port.ToString()]() mutable {
      done(absl::UnavailableError(
          absl::StrCat("cannot resolve ", name, ": too many names are being looked up")));
    });
    return;
  }
  state_->waiting.push_back({std::move(host_port), &executor, std::move(done)});
  if (state_->idle < static_cast<int>(state_->waiting.size()) && state_->threads < kMaxThreads) {
    ++state_->threads;
    // Detached: getaddrinfo cannot be interrupted, and nobody shall wait for it.
    std::thread([state = state_] {
      pthread_setname_np(pthread_self(), "resolver");
      Work(state);
    }).detach();
  }
  state_->changed.Signal();
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
