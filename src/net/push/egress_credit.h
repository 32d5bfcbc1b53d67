// EgressCredit: the bytes that one connection has reserved at the node's EgressLimiter and not sent
// yet.
//
//   none ──Take reserves──► reserved ──its time comes──► usable ──Take of all of it──► none
//
// Reserved bytes that are not sent are lost for all connections of the node. So a connection keeps
// its credit from one pull to the next, and reserves no more before it has used the credit up.
//
// Part of a PullSender; one loop.
#ifndef PHALANX_NET_PUSH_EGRESS_CREDIT_H_
#define PHALANX_NET_PUSH_EGRESS_CREDIT_H_

#include <algorithm>
#include <cstddef>
#include <utility>

#include "src/common/time/executor.h"
#include "src/net/push/egress_limiter.h"

namespace phalanx::net {

class EgressCredit {
 public:
  // REQUIRES: both references outlive the credit.
  EgressCredit(EgressLimiter& limiter, Executor& executor)
      : limiter_(limiter), executor_(executor) {}
  ~EgressCredit() { StopWaiting(); }
  EgressCredit(const EgressCredit&) = delete;
  EgressCredit& operator=(const EgressCredit&) = delete;

  // Returns how many of `bytes` bytes the caller can send now, at least 1 unless the time of the
  // reserved bytes has not come. REQUIRES: bytes > 0.
  size_t Take(size_t bytes) {
    if (!limiter_.limited()) return bytes;
    const Instant now = executor_.Now();
    if (reserved_bytes_ == 0) {
      reserved_bytes_ = bytes;
      usable_at_ = limiter_.Reserve(now, bytes);
    }
    if (usable_at_ > now) return 0;
    // Another slice can have fewer bytes than were reserved; the rest is for the next segment.
    const size_t taken = std::min(bytes, reserved_bytes_);
    reserved_bytes_ -= taken;
    return taken;
  }

  // Calls `wake` once when the reserved bytes can be sent. No effect while another call waits.
  // REQUIRES: Take has returned 0. `wake` is copied.
  template <typename Wake>
  void Await(Wake wake) {
    if (waiting()) return;
    timer_ = executor_.RunAt(usable_at_, [this, wake] {
      timer_ = 0;
      wake();
    });
  }
  bool waiting() const { return timer_ != 0; }
  void StopWaiting() {
    if (waiting()) executor_.Cancel(std::exchange(timer_, 0));
  }

 private:
  EgressLimiter& limiter_;
  Executor& executor_;
  size_t reserved_bytes_ = 0;
  // When the reserved bytes can be sent.
  Instant usable_at_;
  TimerId timer_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_EGRESS_CREDIT_H_
