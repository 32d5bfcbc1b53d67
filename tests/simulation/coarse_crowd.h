// Many broadcasts at once among a few nodes: the production DirectoryCore and its planner, around
// which nodes and links are a coarse model. Every link carries what its node sends, and what it
// receives, one hop of `hop_bytes` at a time each way; pulls take turns, each with at most
// `window_hops` on their way, as TCP connections that share links do, roughly. Requests of the
// nodes reach the shard in an order drawn from a seed. coarse_broadcast.h has one broadcast to
// thousands.
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

  // Each of the first `sources` nodes has an object; everybody gets all others at one moment. From
  // then until the last byte of the last.
  absl::Duration BroadcastFrom(int sources);
  // What the links of the nodes carried in the last call, at most, in objects.
  double most_sent() const;
  // Nodes on the longest way from a source to a receiver in the last call, not counting the source.
  int depth() const;

 private:
  class World;
  const std::unique_ptr<World> world_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_
