#include "benchmarks/delayed_link.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/common/check.h"
#include "src/common/time/clock.h"

namespace phalanx::benchmarks {
namespace {

constexpr size_t kMaxFrame = 65536;
// More than 145 ms at 10 Gbit/s.
constexpr size_t kMaxQueuedBytes = 256 << 20;
// One direction does not keep the other waiting for longer than this many frames take.
constexpr int kFramesPerTurn = 64;

}  // namespace

DelayedLink::Direction::Direction(int from, int to, absl::Duration delay, double loss,
                                  uint32_t seed)
    : from_(from), to_(to), delay_(delay), loss_(loss), random_(seed), buffer_(kMaxFrame) {}

void DelayedLink::Direction::Read(Instant now) {
  for (int i = 0; i < kFramesPerTurn; ++i) {
    const ssize_t size = read(from_, buffer_.data(), buffer_.size());
    if (size <= 0) return;
    const auto bytes = static_cast<size_t>(size);
    if (loss_(random_)) {
      ++counters_.lost;
    } else if (queued_bytes_ + bytes > kMaxQueuedBytes) {
      ++counters_.overflowed;
    } else {
      queued_bytes_ += bytes;
      queue_.push_back({now + delay_, std::string(buffer_.data(), bytes)});
    }
  }
}

void DelayedLink::Direction::Write(Instant now) {
  for (int i = 0; i < kFramesPerTurn && !queue_.empty() && queue_.front().due <= now; ++i) {
    const Frame& frame = queue_.front();
    // A device that is down refuses frames, as a link without a carrier loses them.
    if (write(to_, frame.bytes.data(), frame.bytes.size()) >= 0) {
      ++counters_.frames;
      counters_.bytes += frame.bytes.size();
    }
    counters_.latest = std::max(counters_.latest, now - frame.due);
    queued_bytes_ -= frame.bytes.size();
    queue_.pop_front();
  }
}

void DelayedLink::Turn(Instant now) {
  for (Direction& direction : directions_) {
    direction.Read(now);
    direction.Write(now);
  }
}

Instant DelayedLink::next() const { return std::min(directions_[0].next(), directions_[1].next()); }

DelayedLink::Counters DelayedLink::counters() const {
  Counters sum;
  for (const Direction& direction : directions_) {
    const Counters& counters = direction.counters();
    sum.frames += counters.frames;
    sum.bytes += counters.bytes;
    sum.lost += counters.lost;
    sum.overflowed += counters.overflowed;
    sum.latest = std::max(sum.latest, counters.latest);
  }
  return sum;
}

void DelayedLink::Run(absl::FunctionRef<void()> on_ready) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int stop = signalfd(-1, &signals, SFD_CLOEXEC);
  // A benchmark that is killed would leave the link behind, and with it the devices.
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  on_ready();
  std::array<pollfd, 3> polled = {pollfd{directions_[0].from(), POLLIN, 0},
                                  pollfd{directions_[1].from(), POLLIN, 0},
                                  pollfd{stop, POLLIN, 0}};
  // A parent that ended before prctl sends no signal.
  while (polled[2].revents == 0 && getppid() == parent) {
    Turn(MonotonicNow());
    const bool forever = next().infinite();
    const timespec wait = absl::ToTimespec(std::max(absl::ZeroDuration(), next() - MonotonicNow()));
    const int ready = ppoll(polled.data(), polled.size(), forever ? nullptr : &wait, nullptr);
    PHALANX_CHECK(ready >= 0 || errno == EINTR, "ppoll takes these arguments");
  }
  close(stop);
}

}  // namespace phalanx::benchmarks
