// DataPlaneCounters: counters that the loops of a data plane share.
//
// Thread rule: written by the I/O loops, read by the control loop; relaxed atomics.
#ifndef PHALANX_NET_PULL_DATA_PLANE_COUNTERS_H_
#define PHALANX_NET_PULL_DATA_PLANE_COUNTERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace phalanx::net {

struct DataPlaneCounters {
  using Counter = std::atomic<uint64_t>;
  static constexpr size_t kCacheLineBytes = 64;

  static void Add(Counter& counter, uint64_t n = 1) {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
  static uint64_t Get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

  // On separate cache lines: senders and receivers run on different loops.
  Counter bytes_sent{0};
  char padding_after_sent_[kCacheLineBytes] = {};
  Counter bytes_received{0};
  char padding_after_received_[kCacheLineBytes] = {};
  Counter bytes_wasted{0};
  Counter handshakes_refused{0};
  Counter frames_refused{0};
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_DATA_PLANE_COUNTERS_H_
