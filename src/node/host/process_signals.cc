#include "src/node/host/process_signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

sigset_t SetOf(absl::Span<const int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

}  // namespace

void HoldSignals(absl::Span<const int> numbers) {
  const sigset_t set = SetOf(numbers);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

absl::StatusOr<std::unique_ptr<ProcessSignals>> ProcessSignals::Watch(
    net::EventLoop& loop, absl::AnyInvocable<void(int)> on_signal, absl::Span<const int> numbers) {
  const sigset_t set = SetOf(numbers);
  // A descriptor instead of a handler: the callback runs on the loop and can use all of its
  // objects.
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("signalfd: ", strerror(errno)));
  auto signals = std::unique_ptr<ProcessSignals>(new ProcessSignals(fd, std::move(on_signal)));
  PHALANX_ASSIGN_OR_RETURN(signals->watcher_, loop.Watch(fd));
  signals->watcher_->OnReadable([self = signals.get()] { self->Read(); });
  return signals;
}

ProcessSignals::~ProcessSignals() {
  // The watcher goes first: it must not watch a descriptor number that can be reused.
  watcher_.reset();
  close(fd_);
}

void ProcessSignals::Read() {
  signalfd_siginfo info;
  const bool one = read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
  // Armed again before the callback, which can destroy this object.
  watcher_->OnReadable([this] { Read(); });
  if (one) on_signal_(static_cast<int>(info.ssi_signo));
}

}  // namespace phalanx::runtime
