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
// An emptied output buffer larger than this is freed.
constexpr size_t kRestingOutput = size_t{1} << 20;

// How deep this thread is in callbacks, and the connection whose callback thread this is.
thread_local int callback_depth = 0;
thread_local const Connection* callback_thread_of = nullptr;

}  // namespace

// ---------------------------------------------------------------------------- output

void Connection::FlushWith(absl::string_view bytes) {
  while (!broken_ && queued() + bytes.size() > 0) {
    const iovec parts[2] = {{out_.data() + out_sent_, queued()},
                            {const_cast<char*>(bytes.data()), bytes.size()}};
    const absl::StatusOr<size_t> sent = socket_.Send(parts);
    // The node's last frame can hold the reason. The next thread that reads the socket finds it.
    if (!sent.ok()) broken_ = true;
    if (!sent.ok() || *sent == 0) break;
    const size_t of_queue = std::min(*sent, queued());
    out_sent_ += of_queue;
    bytes.remove_prefix(*sent - of_queue);
  }
  if (broken_) bytes = {};
  if (broken_ || queued() == 0) {
    out_.clear();
    out_sent_ = 0;
    if (out_.capacity() > kRestingOutput) out_.shrink_to_fit();
  }
  out_.append(bytes.data(), bytes.size());
  if (queued() > 0) Nudge();
}

void Connection::PushOut() {
  if (queued() == 0) stalled_ = false;
  if (queued() == 0 || broken_ || leading_ || stalled_) return;
  // A node that has received Leave sends no answers but reads everything.
  if (closed_) return FlushBeforeClosing();
  if (!status_.ok()) return;
  const auto sent = [this] { return queued() == 0 || !status_.ok(); };
  Waiter self{sent, false, {}};
  // One timeout marks the node as stalled, so that further calls do not each wait 50 ms.
  stalled_ = !WaitAs(self, MonotonicNow() + kPushOut, nullptr);
}

// ---------------------------------------------------------------------------- leader and followers

void Connection::Unlock() {
  if (readiness_fd_.made()) {
    ReadinessFd::Interest interest;
    if (status_.ok()) {
      interest.socket = socket_.fd();
      interest.write = queued() > 0;
      if (!deadlines_.empty()) interest.deadline = deadlines_.begin()->first.first;
    }
    interest.callbacks = !ready_.empty() && !options_.callback_thread;
    readiness_fd_.Watch(interest);
  }
  std::vector<std::shared_ptr<void>> trash;
  // Swapped out under the lock and destroyed after it: destructors of user objects can call the
  // client.
  trash.swap(trash_);
  mu_.Unlock();
}

void Connection::Nudge() {
  if (!leading_ || nudged_) return;
  nudged_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = write(nudge_, &one, sizeof(one));
}

void Connection::WakeWaiters() {
  bool runner_awake = false;
  for (Waiter* waiter : waiters_) {
    // One thread is enough to run all ready callbacks.
    const bool runs = waiter->runs_callbacks && !ready_.empty() && !runner_awake;
    if (!runs && !waiter->done()) continue;
    runner_awake = runner_awake || runs;
    if (waiter == leader_) {
      Nudge();
    } else {
      waiter->wake.Signal();
    }
  }
}

void Connection::HandOver(const Waiter* self) {
  if (leading_ || !status_.ok()) return;
  for (Waiter* waiter : waiters_) {
    if (waiter == self) continue;
    waiter->wake.Signal();
    return;
  }
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
  const auto place = waiters_.insert(waiters_.end(), &self);
  bool ended = false;
  bool led = false;
  while (true) {
    const int ran = self.runs_callbacks ? RunCallbacks(&self) : 0;
    if (callbacks_run != nullptr) *callbacks_run += ran;
    ended = self.done();
    const Instant now = MonotonicNow();
    // A thread whose timeout is zero still leads once, to take in the frames that have already
    // arrived.
    if (ended || (now >= until && (led || leading_ || !status_.ok()))) break;
    if (!leading_ && status_.ok()) {
      Lead(&self, until);
      led = true;
    } else if (!trash_.empty()) {
      // A follower can sleep for long, so it empties the trash first.
      Unlock();
      mu_.Lock();
    } else {
      self.wake.WaitFor(mu_, until - now);
    }
  }
  waiters_.erase(place);
  // This thread no longer leads, and frames for others can still arrive.
  HandOver(nullptr);
  return ended;
}

void Connection::Lead(Waiter* self, Instant until) {
  leading_ = true;
  leader_ = self;
  // The lock is released below, so everything that the poll depends on is read here.
  if (!deadlines_.empty()) until = std::min(until, deadlines_.begin()->first.first);
  const bool want_write = queued() > 0;
  Unlock();
  const absl::Status received = PollAndReceive(want_write, until);
  mu_.Lock();
  leading_ = false;
  leader_ = nullptr;
  if (nudged_) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t done = read(nudge_, &count, sizeof(count));
    nudged_ = false;
  }
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
  WakeWaiters();
}

absl::Status Connection::PollAndReceive(bool want_write, Instant until) {
  pollfd ready[2] = {{socket_.fd(), POLLIN, 0}, {nudge_, POLLIN, 0}};
  if (want_write) ready[0].events |= POLLOUT;
  timespec limit{};
  if (!until.infinite()) {
    limit = absl::ToTimespec(std::max(until - MonotonicNow(), absl::ZeroDuration()));
  }
  const int count = ppoll(ready, 2, until.infinite() ? nullptr : &limit, nullptr);
  if (count <= 0 || (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
    return absl::OkStatus();
  }
  const absl::StatusOr<size_t> got = socket_.Receive(in_.Space(), descriptors_);
  if (!got.ok()) return got.status();
  in_.Filled(*got);
  return absl::OkStatus();
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
  if (!leading_ && status_.ok()) {
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
    SendLeave();
    FlushBeforeClosing();
    Nudge();
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

void Connection::SendLeave() {
  local::Leave leave;
  for (const uint64_t pin : pins_) {
    // A client can have more pins than fit into one frame.
    leave.pins.push_back(pin);
    if (leave.pins.size() < local::kMaxPinsPerFrame) continue;
    leave.more = true;
    Send(leave);
    leave = local::Leave();
  }
  Send(leave);
}

void Connection::FlushBeforeClosing() {
  const Instant until = MonotonicNow() + kFlushBeforeClosing;
  while (true) {
    Flush();
    const absl::Duration left = until - MonotonicNow();
    if (queued() == 0) return;
    if (left <= absl::ZeroDuration()) break;
    pollfd ready{socket_.fd(), POLLOUT, 0};
    const timespec limit = absl::ToTimespec(left);
    if (ppoll(&ready, 1, &limit, nullptr) < 0 && errno != EINTR) break;
  }
  broken_ = true;
}

void Connection::CloseSocketIfDone() {
  // Pins delay the close: each later Release still goes over this socket.
  const bool done = broken_ || (pins_.empty() && queued() == 0);
  if (!closed_ || leading_ || !done || socket_.fd() < 0) return;
  if (readiness_fd_.made()) readiness_fd_.Watch({});
  socket_.Close();
}

}  // namespace phalanx::internal
