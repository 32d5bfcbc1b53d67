// DelayedLink: joins two descriptors that carry frames, such as TAP devices, by a link with a delay
// and loss: each frame read from one is held back and then written to the other.
//
// One thread; the descriptors do not block, and belong to the caller.
#ifndef PHALANX_BENCHMARKS_DELAYED_LINK_H_
#define PHALANX_BENCHMARKS_DELAYED_LINK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "src/common/time/instant.h"

namespace phalanx::benchmarks {

class DelayedLink {
 public:
  struct Counters {
    uint64_t frames = 0;
    uint64_t bytes = 0;
    uint64_t lost = 0;
    uint64_t overflowed = 0;
    absl::Duration latest;  // release of a frame after its time
  };

  // `delay`: in one direction; `loss`: the part of the frames that is dropped, the same ones in
  // each run.
  DelayedLink(int inner, int outer, absl::Duration delay, double loss)
      : directions_{Direction(inner, outer, delay, loss, 1),
                    Direction(outer, inner, delay, loss, 2)} {}

  // Takes the frames that have arrived, and hands on those whose time has come: some of each, so
  // that one direction does not keep the other waiting.
  void Turn(Instant now);
  // When the next frame is handed on; infinite if there is none.
  Instant next() const;
  // Of both directions.
  Counters counters() const;

  // Carries frames until the process gets SIGTERM or SIGINT, or its parent ends. Blocks these
  // signals, and calls `on_ready` when none of the three can be missed any more.
  void Run(absl::FunctionRef<void()> on_ready);

 private:
  class Direction {
   public:
    Direction(int from, int to, absl::Duration delay, double loss, uint32_t seed);

    int from() const { return from_; }
    const Counters& counters() const { return counters_; }
    void Read(Instant now);
    void Write(Instant now);
    Instant next() const { return queue_.empty() ? Instant::Infinite() : queue_.front().due; }

   private:
    struct Frame {
      Instant due;
      std::string bytes;
    };

    const int from_;
    const int to_;
    const absl::Duration delay_;
    std::bernoulli_distribution loss_;
    std::minstd_rand random_;
    std::vector<char> buffer_;
    std::deque<Frame> queue_;
    size_t queued_bytes_ = 0;
    Counters counters_;
  };

  std::array<Direction, 2> directions_;
};

}  // namespace phalanx::benchmarks

#endif  // PHALANX_BENCHMARKS_DELAYED_LINK_H_
