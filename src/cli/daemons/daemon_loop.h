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
  // `log_file`: reopened on SIGHUP.
  explicit DaemonLoop(std::string log_file) : log_file_(std::move(log_file)) {}
  ~DaemonLoop();

  net::EventLoop& loop() { return loop_; }

  // Runs until SIGTERM, SIGINT or OnEndOfFile. The first signal calls `leave`, which calls `gone`
  // when the daemon can end; this returns then, or at the second signal. Errors as ProcessSignals.
  // REQUIRES: called once.
  using Leave = absl::AnyInvocable<void(std::function<void()> gone)>;
  absl::Status Run(Leave leave);

  // Ends the loop at once when the other end of `fd` is closed, because no client is left.
  absl::Status StopAtEndOfFile(int fd);

 private:
  void OnSignal(int number);
  void ReadUntilEnd(int fd);

  const std::string log_file_;
  net::EventLoop loop_;
  Leave leave_;
  bool leaving_ = false;
  std::unique_ptr<ProcessSignals> signals_;
  std::unique_ptr<net::FdWatcher> lifeline_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_DAEMONS_DAEMON_LOOP_H_
