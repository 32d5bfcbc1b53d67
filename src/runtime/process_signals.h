// Signals as callbacks on an event loop.
//
// Owned by a daemon's main; loop rules as FdWatcher.
#ifndef PHALANX_RUNTIME_PROCESS_SIGNALS_H_
#define PHALANX_RUNTIME_PROCESS_SIGNALS_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/net/event_loop.h"

namespace phalanx::runtime {

// SIGTERM, SIGINT and SIGHUP wait for ProcessSignals instead of ending the process. To be called
// before the first thread starts: threads inherit it.
void HoldSignals();

class ProcessSignals {
 public:
  // `on_signal` is called on the loop with each of these signals. Unavailable.
  static absl::StatusOr<std::unique_ptr<ProcessSignals>> Watch(
      net::EventLoop& loop, absl::AnyInvocable<void(int)> on_signal);
  ~ProcessSignals();

 private:
  ProcessSignals(int fd, absl::AnyInvocable<void(int)> on_signal)
      : fd_(fd), on_signal_(std::move(on_signal)) {}
  void Read();

  const int fd_;
  absl::AnyInvocable<void(int)> on_signal_;
  std::unique_ptr<net::FdWatcher> watcher_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_PROCESS_SIGNALS_H_
