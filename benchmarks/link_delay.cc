// Joins two TAP devices by a link with a delay and loss, for emulated hosts on kernels without
// netem: each frame that one device sends is held back and then given to the other device.
//
//     link_delay DEVICE DEVICE MICROSECONDS LOSS
//
// MICROSECONDS is the delay in one direction; LOSS is the part of the frames that is dropped, for
// example 0.001. The devices exist and are up; `ip tuntap add NAME mode tap` makes one. Their
// queueing disciplines shape the link. Prints READY, runs until SIGTERM or SIGINT, and then prints
// one line of JSON: frames and bytes carried, frames lost, dropped because the queue was full, the
// latest release of a frame after its time, and the CPU time.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "src/common/time/clock.h"

namespace {

using phalanx::Instant;
using phalanx::MonotonicNow;

constexpr size_t kMaxFrame = 65536;
// More than 145 ms at 10 Gbit/s.
constexpr size_t kMaxQueuedBytes = 256 << 20;
// One direction does not keep the other waiting for longer than this many frames take.
constexpr int kFramesPerTurn = 64;

[[noreturn]] void Die(const char* what, const char* name) {
  std::fprintf(stderr, "link_delay: %s %s: %s\n", what, name, std::strerror(errno));
  std::exit(1);
}

int OpenTap(const char* name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) Die("cannot open", "/dev/net/tun");
  ifreq request = {};
  // IFF_NAPI: the kernel joins the segments that arrive in one turn, as a network card does.
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_NAPI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) != 0) Die("cannot attach to", name);
  return fd;
}

struct Counters {
  uint64_t frames = 0;
  uint64_t bytes = 0;
  uint64_t lost = 0;
  uint64_t overflowed = 0;
  absl::Duration latest;
};

// One direction of the link.
class Direction {
 public:
  Direction(int from, int to, absl::Duration delay, double loss, uint32_t seed)
      : from_(from), to_(to), delay_(delay), loss_(loss), random_(seed), buffer_(kMaxFrame) {}

  int from() const { return from_; }
  const Counters& counters() const { return counters_; }

  // Takes frames from the device.
  void Read() {
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
        queue_.push_back({MonotonicNow() + delay_, std::string(buffer_.data(), bytes)});
      }
    }
  }

  // Gives the frames whose time has come to the other device.
  void Write() {
    const Instant now = MonotonicNow();
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

  Instant next() const { return queue_.empty() ? Instant::Infinite() : queue_.front().due; }

 private:
  struct Frame {
    Instant due;
    std::string bytes;
  };

  const int from_;
  const int to_;
  const absl::Duration delay_;
  std::bernoulli_distribution loss_;
  std::minstd_rand random_;
  std::vector<char> buffer_;
  std::deque<Frame> queue_;
  size_t queued_bytes_ = 0;
  Counters counters_;
};

void Print(const std::array<Direction, 2>& directions) {
  Counters sum;
  for (const Direction& direction : directions) {
    const Counters& counters = direction.counters();
    sum.frames += counters.frames;
    sum.bytes += counters.bytes;
    sum.lost += counters.lost;
    sum.overflowed += counters.overflowed;
    sum.latest = std::max(sum.latest, counters.latest);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const absl::Duration cpu =
      absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  std::printf(
      "{\"frames\": %llu, \"bytes\": %llu, \"lost\": %llu, \"overflowed\": %llu, "
      "\"latest_s\": %.6f, \"cpu_s\": %.3f}\n",
      static_cast<unsigned long long>(sum.frames), static_cast<unsigned long long>(sum.bytes),
      static_cast<unsigned long long>(sum.lost), static_cast<unsigned long long>(sum.overflowed),
      absl::ToDoubleSeconds(sum.latest), absl::ToDoubleSeconds(cpu));
}

}  // namespace

int main(int argc, char** argv) {
  int64_t microseconds = 0;
  double loss = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[3], &microseconds) || microseconds < 0 ||
      !absl::SimpleAtod(argv[4], &loss) || !(loss >= 0 && loss < 1)) {
    std::fprintf(stderr, "usage: link_delay DEVICE DEVICE MICROSECONDS LOSS\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int stop = signalfd(-1, &signals, SFD_CLOEXEC);
  const int inner = OpenTap(argv[1]);
  const int outer = OpenTap(argv[2]);
  const absl::Duration delay = absl::Microseconds(microseconds);
  std::array<Direction, 2> directions = {Direction(inner, outer, delay, loss, 1),
                                         Direction(outer, inner, delay, loss, 2)};
  std::puts("READY");
  std::fflush(stdout);
  std::array<pollfd, 3> polled = {pollfd{directions[0].from(), POLLIN, 0},
                                  pollfd{directions[1].from(), POLLIN, 0}, pollfd{stop, POLLIN, 0}};
  while (true) {
    const Instant next = std::min(directions[0].next(), directions[1].next());
    const timespec wait = absl::ToTimespec(std::max(absl::ZeroDuration(), next - MonotonicNow()));
    const bool forever = next.infinite();
    if (ppoll(polled.data(), polled.size(), forever ? nullptr : &wait, nullptr) < 0 &&
        errno != EINTR) {
      Die("cannot wait for", "frames");
    }
    if (polled[2].revents != 0) break;
    for (size_t i = 0; i < directions.size(); ++i) {
      if (polled[i].revents != 0) directions[i].Read();
      directions[i].Write();
    }
  }
  Print(directions);
  return 0;
}
