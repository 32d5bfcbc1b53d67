// DataPlaneCounters: what the loops of a data plane count together.
//
// Thread rule: written by the I/O loops, read by the control loop; relaxed atomics.
#ifndef PHALANX_NET_DATA_PLANE_COUNTERS_H_
#define PHALANX_NET_DATA_PLANE_COUNTERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace phalanx::net {

struct DataPlaneCounters {
  using Counter = std::atomic<uint64_t>;
  static constexpr size_t kApart = 64;

  static void Add(Counter& counter, uint64_t n = 1) {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
  static uint64_t Get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

  // Far enough apart for cache lines of their own: senders and receivers run on different loops.
  Counter bytes_sent{0};
  char apart_[kApart] = {};
  Counter bytes_received{0};
  char apart_too_[kApart] = {};
  Counter bytes_wasted{0};
  Counter handshakes_refused{0};
  Counter frames_refused{0};
  // Dialed and accepted, from their first to their last moment.
  std::atomic<int> connections{0};
};

// Counts one connection while it lives; refuses beyond a limit.
class ConnectionTicket {
 public:
  ConnectionTicket() = default;
  ConnectionTicket(ConnectionTicket&& other) noexcept : counters_(other.counters_) {
    other.counters_ = nullptr;
  }
  ConnectionTicket& operator=(ConnectionTicket&& other) noexcept {
    std::swap(counters_, other.counters_);
    return *this;
  }
  ~ConnectionTicket() {
    if (counters_ != nullptr) counters_->connections.fetch_sub(1, std::memory_order_relaxed);
  }

  // An invalid ticket when `limit` connections exist.
  static ConnectionTicket Take(DataPlaneCounters& counters, int limit) {
    ConnectionTicket ticket;
    if (counters.connections.fetch_add(1, std::memory_order_relaxed) < limit) {
      ticket.counters_ = &counters;
    } else {
      counters.connections.fetch_sub(1, std::memory_order_relaxed);
    }
    return ticket;
  }
  bool valid() const { return counters_ != nullptr; }

 private:
  DataPlaneCounters* counters_ = nullptr;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_DATA_PLANE_COUNTERS_H_
