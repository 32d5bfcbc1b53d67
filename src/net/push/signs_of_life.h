// SignsOfLife: when the sender of a pull owes its receiver a sign of life, and when it gives the
// receiver up.
//
// The receiver requests an interval in which it expects bytes or a STARVED. It gives signs itself:
// it takes bytes, or sends a frame. After kPatience intervals without one the sender closes the
// connection. Otherwise a half-open connection would hold a pin until the kernel gives up on it.
//
// Part of a PullSender; one loop.
#ifndef PHALANX_NET_PUSH_SIGNS_OF_LIFE_H_
#define PHALANX_NET_PUSH_SIGNS_OF_LIFE_H_

#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::net {

class SignsOfLife {
 public:
  // Four stall timeouts of the receiver, which requests four signs of life per stall timeout.
  static constexpr int kPatience = 16;

  // The receiver has requested this interval.
  void SetInterval(absl::Duration interval) { interval_ = interval; }
  absl::Duration interval() const { return interval_; }

  // The receiver gave a sign, or its time starts again.
  void ReceiverAlive(Instant now) { received_at_ = now; }
  // The kernel has taken bytes. If there are many, this is a sign that the receiver takes them. But
  // a starved sender writes only STARVED, and a STARVED that the kernel took proves nothing.
  void Wrote(Instant now, bool starved) {
    sent_at_ = now;
    if (!starved) received_at_ = now;
  }

  // True if the sender has written nothing for an interval.
  bool SignDue(Instant now) const { return now - sent_at_ >= interval_; }
  // True if the receiver gave no sign for kPatience intervals.
  bool ReceiverLost(Instant now) const { return now - received_at_ >= interval_ * kPatience; }

 private:
  absl::Duration interval_;
  Instant sent_at_;
  Instant received_at_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_SIGNS_OF_LIFE_H_
