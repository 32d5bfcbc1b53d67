// Many simultaneous broadcasts among a few nodes: the production DirectoryCore and its planner,
// with a coarse model of nodes and links. Every link carries one hop of `hop_bytes` at a time in
// each direction. Pulls take turns, each with at most `window_hops` in flight, roughly like TCP
// connections that share links. A seed draws the order in which requests reach the shard.
// coarse_broadcast.h has one broadcast to thousands of nodes.
//
// Replays from its inputs; one thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_
#define PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {

struct CrowdPlan {
  int nodes = 8;
  uint64_t size_bytes = 32 << 20;
  uint64_t hop_bytes = 64 << 10;
  double bytes_per_second = 125e6;
  absl::Duration latency = absl::Microseconds(100);  // one way, to a node or to the shard
  int window_hops = 8;
  uint64_t seed = 1;
  OutgoingListener listener = {};
};

class CoarseCrowd {
 public:
  explicit CoarseCrowd(const CrowdPlan& plan);
  ~CoarseCrowd();
  CoarseCrowd(const CoarseCrowd&) = delete;
  CoarseCrowd& operator=(const CoarseCrowd&) = delete;

  // Each of the first `sources` nodes has an object, and all nodes get all others at one instant.
  // Returns the time from then until the last byte of the last Get.
  absl::Duration BroadcastFrom(int sources);
  // The most that the link of one node carried in the last call, in objects.
  double most_sent() const;
  // The number of nodes on the longest path from a source to a receiver in the last call, without
  // the source.
  int depth() const;

 private:
  class World;
  const std::unique_ptr<World> world_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_
