// YieldRule: when a copy beside a call lets other threads have its core.
//
// On a host with more ranks than cores a copy takes turns with its node, whose links the others
// wait for. Where programs compute on all cores, however, the core comes back milliseconds later, a
// whole turn of theirs, and 512 such turns make an AllReduce of 32 MiB four times as long. So a
// yield that was long ends the yields for a while.
//
// Any thread. Pure.
#ifndef PHALANX_JOBS_OVERLAP_YIELD_RULE_H_
#define PHALANX_JOBS_OVERLAP_YIELD_RULE_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::jobs {

// Copies and the work of a node take turns within less.
inline constexpr absl::Duration kLongYield = absl::Milliseconds(2);
inline constexpr absl::Duration kPauseAfterLongYield = absl::Seconds(1);

class YieldRule {
 public:
  bool MayYield(Instant now) const {
    return now.nanos() >= paused_until_.load(std::memory_order_relaxed);
  }
  void EndYield(Instant began, Instant ended) {
    if (ended - began < kLongYield) return;
    paused_until_.store((ended + kPauseAfterLongYield).nanos(), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> paused_until_{0};
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_OVERLAP_YIELD_RULE_H_
