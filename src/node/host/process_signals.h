// Delivers signals as callbacks on an event loop.
//
// Owned by a daemon's main; loop rules as FdWatcher.
#ifndef PHALANX_NODE_HOST_PROCESS_SIGNALS_H_
#define PHALANX_NODE_HOST_PROCESS_SIGNALS_H_

#include <signal.h>

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::runtime {

// The signals that end a daemon.
inline constexpr int kEndSignals[] = {SIGTERM, SIGINT, SIGHUP};

// Blocks signals, so that they wait for ProcessSignals instead of ending the process. Must be
// called before the first thread starts, because threads inherit the mask.
void HoldSignals(absl::Span<const int> numbers = kEndSignals);

class ProcessSignals {
 public:
  // Calls `on_signal` on the loop with each of these signals. Returns Unavailable if the system
  // refuses.
  static absl::StatusOr<std::unique_ptr<ProcessSignals>> Watch(
      net::EventLoop& loop, absl::AnyInvocable<void(int)> on_signal,
      absl::Span<const int> numbers = kEndSignals);
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

#endif  // PHALANX_NODE_HOST_PROCESS_SIGNALS_H_
