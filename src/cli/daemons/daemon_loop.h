// Runs a daemon's process: one control loop on main's thread, until a signal arrives or the parent
// ends.
//
// Main's thread only.
#ifndef PHALANX_CLI_DAEMONS_DAEMON_LOOP_H_
#define PHALANX_CLI_DAEMONS_DAEMON_LOOP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/net/loop/event_loop.h"
#include "src/node/host/process_signals.h"

namespace phalanx::runtime {

class DaemonLoop {
 public:
  // The meaning of SIGHUP. A service reopens its log file, for log rotation. A command that belongs
  // to a terminal leaves with it, unless the signal is ignored, as under nohup.
  enum class OnHangup { kReopenLog, kLeave };
  DaemonLoop(std::string log_file, OnHangup on_hangup)
      : log_file_(std::move(log_file)), on_hangup_(on_hangup) {}
  ~DaemonLoop();

  net::EventLoop& loop() { return loop_; }

  // Runs until SIGTERM, SIGINT, SIGHUP of a terminal, or OnEndOfFile. The first signal calls
  // `leave`, which calls `gone` when the daemon can end; this returns then, or at the second
  // signal. Errors as ProcessSignals. REQUIRES: called once.
  using Leave = absl::AnyInvocable<void(std::function<void()> gone)>;
  absl::Status Run(Leave leave);

  // Ends the loop at once when the other end of `fd` is closed, because no client is left.
  absl::Status StopAtEndOfFile(int fd);

 private:
  void OnSignal(int number);
  void ReadUntilEnd(int fd);

  const std::string log_file_;
  const OnHangup on_hangup_;
  net::EventLoop loop_;
  Leave leave_;
  bool leaving_ = false;
  std::unique_ptr<ProcessSignals> signals_;
  std::unique_ptr<net::FdWatcher> lifeline_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_DAEMON_LOOP_H_
