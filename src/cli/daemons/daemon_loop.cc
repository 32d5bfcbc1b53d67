#include "src/cli/daemons/daemon_loop.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "src/common/io/log.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

bool IsIgnored(int number) {
  struct sigaction action;
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

DaemonLoop::~DaemonLoop() {
  // The watchers belong to the loop, which is destroyed after them.
  signals_.reset();
  lifeline_.reset();
}

absl::Status DaemonLoop::Run(Leave leave) {
  leave_ = std::move(leave);
  PHALANX_ASSIGN_OR_RETURN(signals_,
                           ProcessSignals::Watch(loop_, [this](int number) { OnSignal(number); }));
  loop_.Run();
  return absl::OkStatus();
}

void DaemonLoop::OnSignal(int number) {
  // A blocked signal arrives here although it is ignored.
  if (number == SIGHUP && on_hangup_ == OnHangup::kLeave && IsIgnored(number)) return;
  if (number == SIGHUP && on_hangup_ == OnHangup::kReopenLog) {
    // Log rotation renames the file and sends SIGHUP.
    const absl::Status status = SetLogFile(log_file_);
    PHALANX_LOG(INFO) << "reopened the log" << LogField("status", status.ToString());
    return;
  }
  // The second signal stands for an operator who does not want to wait for the drain.
  if (std::exchange(leaving_, true)) {
    PHALANX_LOG(WARNING) << "a second signal: leaving at once";
    return loop_.Stop();
  }
  PHALANX_LOG(INFO) << "leaving" << LogField("signal", number);
  leave_([this] { loop_.Stop(); });
}

absl::Status DaemonLoop::StopAtEndOfFile(int fd) {
  PHALANX_ASSIGN_OR_RETURN(lifeline_, loop_.Watch(fd));
  lifeline_->OnReadable([this, fd] { ReadUntilEnd(fd); });
  return absl::OkStatus();
}

void DaemonLoop::ReadUntilEnd(int fd) {
  char ignored[256];
  const ssize_t size = read(fd, ignored, sizeof(ignored));
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) {
    // The watcher calls back once per registration; stray bytes are skipped.
    lifeline_->OnReadable([this, fd] { ReadUntilEnd(fd); });
    return;
  }
  loop_.Stop();
}

}  // namespace phalanx::runtime
