// Barriers of a parameter server: which tasks wait for each other, and how a barrier is named.
// phalanx/ps.h has the calls, docs/parameter-server.md the rules.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_BARRIER_H_
#define PHALANX_PS_BARRIER_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::ps {

// The tasks that wait for each other. Each group has barriers of its own. The numbers appear on the
// wire.
enum class BarrierGroup : uint8_t {
  kWorkers = 0,
  kServers = 1,
  kAll = 2,  // all servers and all workers
};

// The greatest number of a barrier.
inline constexpr uint64_t kMaxBarrierEpoch = std::numeric_limits<uint64_t>::max() - 1;

struct BarrierOptions {
  // The number of the barrier in its group. Without it: one more than that of the last barrier of
  // the group that this life of the task has called, from 0 on; the same again after a call that
  // has failed. A task that calls barrier 7 has come to all barriers before it, too.
  std::optional<uint64_t> epoch = {};
  // How long the call waits. Without it: Options::peer_timeout.
  std::optional<absl::Duration> timeout = {};
};

absl::string_view BarrierGroupName(BarrierGroup group);  // "workers", "servers", "all"

}  // namespace phalanx::ps

#endif  // PHALANX_PS_BARRIER_H_
