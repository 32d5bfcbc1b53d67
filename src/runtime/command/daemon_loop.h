// The life of a daemon's process: one control loop on main's thread, until a signal or its parent's
// end.
//
// Main's thread only.
#ifndef PHALANX_RUNTIME_COMMAND_DAEMON_LOOP_H_
#define PHALANX_RUNTIME_COMMAND_DAEMON_LOOP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/net/event_loop.h"
#include "src/runtime/process_signals.h"

namespace phalanx::runtime {

class DaemonLoop {
 public:
  // `log_file`: opened again on SIGHUP.
  explicit DaemonLoop(std::string log_file) : log_file_(std::move(log_file)) {}
  ~DaemonLoop();

  net::EventLoop& loop() { return loop_; }

  // Runs until SIGTERM, SIGINT or OnEndOfFile. The first of them calls `leave`, which calls `gone`
  // when everything is in order; then, or at the second signal, this returns. Errors as
  // ProcessSignals. REQUIRES: called once.
  using Leave = absl::AnyInvocable<void(std::function<void()> gone)>;
  absl::Status Run(Leave leave);

  // The end of `fd`'s other end ends the loop at once: nobody is left to serve.
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

#endif  // PHALANX_RUNTIME_COMMAND_DAEMON_LOOP_H_
