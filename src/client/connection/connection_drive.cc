// Waiting and driving: leader and followers, output, callbacks, closing.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/client/connection/connection_lock.h"

namespace phalanx::internal {
namespace {

// How long Close waits for a daemon that does not read.
constexpr absl::Duration kFlushBeforeClosing = absl::Seconds(1);
// How long any other call waits for it.
constexpr absl::Duration kPushOut = absl::Milliseconds(50);

// How deep this thread is in callbacks, and the connection whose callback thread this is.
thread_local int callback_depth = 0;
thread_local const Connection* callback_thread_of = nullptr;

}  // namespace

// ---------------------------------------------------------------------------- output

void Connection::Flush(absl::string_view bytes) {
  out_.Flush(socket_, bytes);
  // The leader polls the socket for writing only if it knows that bytes are left.
  if (out_.size() > 0) waiters_.Nudge();
}

void Connection::PushOut() {
  if (!out_.WorthWaiting() || waiters_.leading()) return;
  // A node that has received Leave sends no answers but reads everything.
  if (closed_) return FlushBeforeClosing();
  if (!status_.ok()) return;
  const auto sent = [this] { return out_.size() == 0 || !status_.ok(); };
  Waiter self{sent, false, {}};
  // One timeout marks the node as stalled, so that further calls do not each wait 50 ms.
  out_.set_stalled(!WaitAs(self, MonotonicNow() + kPushOut, nullptr));
}

// ---------------------------------------------------------------------------- leader and followers

void Connection::Unlock() {
  if (readiness_fd_.made()) {
    ReadinessFd::Interest interest;
    if (status_.ok()) {
      interest.socket = socket_.fd();
      interest.write = out_.size() > 0;
      interest.deadline = calls_.next_deadline();
    }
    interest.callbacks = !ready_.empty() && !options_.callback_thread;
    readiness_fd_.Watch(interest);
  }
  CallTable::Trash trash;
  // Swapped out under the lock and destroyed after it: destructors of user objects can call the
  // client.
  trash.swap(trash_);
  mu_.Unlock();
}

void Connection::HandOver(const Waiter* self) {
  // A connection that has ended needs no leader.
  if (status_.ok()) waiters_.WakeNextLeader(self);
}

bool Connection::WaitFor(const Call& call, Instant until) {
  if (call.done()) return true;
  Lock lock(*this);
  return WaitLocked([&call] { return call.done(); }, until, Callbacks::kRun);
}

bool Connection::WaitInsideCall(absl::FunctionRef<bool()> done, Instant until) {
  Lock lock(*this);
  return WaitLocked(done, until, Callbacks::kLeave);
}

bool Connection::WaitLocked(absl::FunctionRef<bool()> done, Instant until, Callbacks callbacks,
                            int* callbacks_run) {
  Flush();
  Waiter self{done, callbacks == Callbacks::kRun && MayRunCallbacks(), {}};
  return WaitAs(self, until, callbacks_run);
}

bool Connection::WaitAs(Waiter& self, Instant until, int* callbacks_run) {
  const WaitQueue::Place place = waiters_.Add(self);
  bool ended = false;
  bool led = false;
  while (true) {
    const int ran = self.runs_callbacks ? RunCallbacks(&self) : 0;
    if (callbacks_run != nullptr) *callbacks_run += ran;
    ended = self.done();
    const Instant now = MonotonicNow();
    // A thread whose timeout is zero still leads once, to take in the frames that have already
    // arrived.
    if (ended || (now >= until && (led || waiters_.leading() || !status_.ok()))) break;
    // A callback became ready while others ran, when this thread was not asleep to be woken for it.
    const bool more = self.runs_callbacks && !ready_.empty();
    if (!waiters_.leading() && status_.ok()) {
      Lead(&self, more ? now : until);
      led = true;
    } else if (more) {
      continue;
    } else if (!trash_.empty()) {
      // A follower can sleep for long, so it empties the trash first.
      Unlock();
      mu_.Lock();
    } else {
      self.wake.WaitFor(mu_, until - now);
    }
  }
  waiters_.Remove(place);
  // This thread no longer leads, and frames for others can still arrive.
  HandOver(nullptr);
  return ended;
}

void Connection::Lead(Waiter* self, Instant until) {
  waiters_.BeginLead(self);
  // The lock is released below, so everything that the poll depends on is read here.
  until = std::min(until, calls_.next_deadline());
  const bool want_write = out_.size() > 0;
  Unlock();
  const absl::Status received = PollAndReceive(want_write, until);
  mu_.Lock();
  waiters_.EndLead();
  // Frames that arrived before the end of the stream are handled first: the last one can be a
  // Goodbye that says why.
  TakeFrames();
  if (!received.ok()) {
    Fail(absl::UnavailableError(
        absl::StrCat("the node at ", address(), " is gone: ", received.message())));
  }
  ExpireDeadlines();
  Flush();
  CloseSocketIfDone();
  waiters_.WakeEnded(!ready_.empty());
}

absl::Status Connection::PollAndReceive(bool want_write, Instant until) {
  pollfd ready[2] = {{socket_.fd(), POLLIN, 0}, {waiters_.nudge_fd(), POLLIN, 0}};
  if (want_write) ready[0].events |= POLLOUT;
  timespec limit{};
  if (!until.infinite()) {
    limit = absl::ToTimespec(std::max(until - MonotonicNow(), absl::ZeroDuration()));
  }
  const int count = ppoll(ready, 2, until.infinite() ? nullptr : &limit, nullptr);
  if (count <= 0 || (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
    return absl::OkStatus();
  }
  return in_.Receive(socket_);
}

// ---------------------------------------------------------------------------- callbacks

bool Connection::MayRunCallbacks() const {
  // A callback that waits does not run other callbacks: the recursion would have no limit.
  if (callback_depth > 0) return false;
  return !options_.callback_thread || callback_thread_of == this;
}

int Connection::RunCallbacks(const Waiter* self) {
  // Runs the callbacks that are ready now. Callbacks that these make ready run in the next turn, so
  // that the loop ends.
  size_t due = ready_.size();
  int ran = 0;
  if (due > 0) HandOver(self);
  for (; due > 0 && !ready_.empty(); --due) {
    std::optional<absl::AnyInvocable<void()>> callback(std::move(ready_.front()));
    ready_.pop_front();
    Unlock();
    ++callback_depth;
    (*callback)();
    // Destroyed without the lock too: its captures are the user's.
    callback.reset();
    --callback_depth;
    mu_.Lock();
    ++ran;
  }
  return ran;
}

void Connection::RunCallbackThread() {
  // Signals belong to the program's own threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  callback_thread_of = this;
  Lock lock(*this);
  WaitLocked([this] { return closed_; }, Instant::Infinite(), Callbacks::kRun);
  while (RunCallbacks(nullptr) > 0) {
  }
}

// ---------------------------------------------------------------------------- fd and Poll

int Connection::fd() {
  if (forked()) return -1;
  Lock lock(*this);
  return readiness_fd_.fd();
}

int Connection::Poll(absl::Duration timeout) {
  if (forked()) return 0;
  const Instant until = MonotonicNow() + std::max(timeout, absl::ZeroDuration());
  Lock lock(*this, Lock::Unsent::kLeave);
  const uint64_t before = progress_;
  const bool runs = MayRunCallbacks();
  int ran = runs ? RunCallbacks(nullptr) : 0;
  if (!waiters_.leading() && status_.ok()) {
    // With the current time as its limit: Poll first takes in what has arrived without waiting.
    Lead(nullptr, MonotonicNow());
    if (runs) ran += RunCallbacks(nullptr);
    HandOver(nullptr);
  }
  // A connection that has ended receives nothing more.
  const auto done = [this, before, &ran] {
    return ran > 0 || progress_ != before || !status_.ok();
  };
  if (!done()) WaitLocked(done, until, Callbacks::kRun, &ran);
  return ran;
}

// ---------------------------------------------------------------------------- closing

void Connection::Close() {
  if (forked()) return;
  {
    Lock lock(*this);
    if (closed_) return;
    closed_ = true;
    Fail(absl::FailedPreconditionError(absl::StrCat("the client of ", address(), " is closed")));
    // A connection that failed earlier reports from now on that it is closed.
    status_ =
        absl::FailedPreconditionError(absl::StrCat("the client of ", address(), " is closed"));
    for (const local::Leave& leave : memory_.LeaveMessages()) Send(leave);
    FlushBeforeClosing();
    waiters_.Nudge();
    if (!options_.callback_thread) {
      while (RunCallbacks(nullptr) > 0) {
      }
    }
  }
  if (!callback_thread_.joinable()) return;
  // The last callback can close the client; a thread cannot join itself.
  if (callback_thread_of == this) {
    callback_thread_.detach();
  } else {
    callback_thread_.join();
  }
}

void Connection::FlushBeforeClosing() {
  const Instant until = MonotonicNow() + kFlushBeforeClosing;
  while (true) {
    Flush();
    const absl::Duration left = until - MonotonicNow();
    if (out_.size() == 0) return;
    if (left <= absl::ZeroDuration()) break;
    pollfd ready{socket_.fd(), POLLOUT, 0};
    const timespec limit = absl::ToTimespec(left);
    if (ppoll(&ready, 1, &limit, nullptr) < 0 && errno != EINTR) break;
  }
  out_.Break();
}

void Connection::CloseSocketIfDone() {
  // Pins delay the close: each later Release still goes over this socket.
  const bool done = out_.broken() || (!memory_.has_pins() && out_.size() == 0);
  if (!closed_ || waiters_.leading() || !done || socket_.fd() < 0) return;
  if (readiness_fd_.made()) readiness_fd_.Watch({});
  socket_.Close();
}

}  // namespace phalanx::internal
