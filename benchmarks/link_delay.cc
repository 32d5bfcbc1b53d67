// Joins two TAP devices by a link with a delay and loss, for emulated hosts on kernels without
// netem: each frame that one device sends is held back and then given to the other device.
//
//     link_delay DEVICE DEVICE MICROSECONDS LOSS
//
// MICROSECONDS is the delay in one direction; LOSS is the part of the frames that is dropped, for
// example 0.001. The devices exist and are up; `ip tuntap add NAME mode tap` makes one. Their
// queueing disciplines shape the link. Prints READY, runs until SIGTERM or SIGINT or the end of its
// parent, and then prints one line of JSON: frames and bytes carried, frames lost, dropped because
// the queue was full, the latest release of a frame after its time, and the CPU time.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "benchmarks/delayed_link.h"

namespace {

using phalanx::benchmarks::DelayedLink;

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

void Print(const DelayedLink::Counters& sum) {
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
  DelayedLink link(OpenTap(argv[1]), OpenTap(argv[2]), absl::Microseconds(microseconds), loss);
  link.Run([] {
    std::puts("READY");
    std::fflush(stdout);
  });
  Print(link.counters());
  return 0;
}
