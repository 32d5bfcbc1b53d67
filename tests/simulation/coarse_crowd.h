// Many simultaneous broadcasts among a few nodes: the production DirectoryCore and its planner,
// with a coarse model of nodes and links. Every link carries one hop of `hop_bytes` at a time in
// each direction. Pulls take turns, each with at most `window_hops` in flight, roughly like TCP
// connections that share links. A seed draws the order in which requests reach the shard. Links can
// differ, change and stop; the receivers report their pulls as nodes do.
// coarse_broadcast.h has one broadcast to thousands of nodes.
//
// Replays from its inputs; one thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_
#define PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {

// The link of a node changes while it receives the first object.
struct CrowdChange {
  // -1: the first relay with at least two nodes below it.
  int node = -1;
  // When the node has this share of the object.
  double at_share = 0.5;
  // 0: the node stops as by SIGSTOP. It neither sends, receives nor reports.
  double bytes_per_second = 0;
  // Infinite: for ever.
  absl::Duration lasts = absl::InfiniteDuration();
};

// The link that joins two zones, in each direction. A lost hop arrives a round trip later, and
// those behind it wait for it. A pull begins with two hops in flight, and one more for each that
// arrived.
struct FarLink {
  absl::Duration latency;  // one way
  double bytes_per_second = 125e6;
  double loss = 0;  // of the hops
};

struct CrowdPlan {
  int nodes = 8;
  uint64_t size_bytes = 32 << 20;
  uint64_t hop_bytes = 64 << 10;
  // DirectoryOptions::relay_bytes: the hop for which the shard plans.
  uint64_t relay_bytes = directory::DirectoryOptions().relay_bytes;
  double bytes_per_second = 125e6;
  absl::Duration latency = absl::Microseconds(100);  // one way, to a node or to the shard
  int window_hops = 8;
  uint64_t seed = 1;
  // By node, in place of bytes_per_second; 0: that. Further nodes have bytes_per_second.
  std::vector<double> rates = {};
  // By node: when its requests reach the shard, in place of a drawn moment.
  std::vector<absl::Duration> ask_at = {};
  std::vector<CrowdChange> changes = {};
  // Neighbours are in one zone; the shard is in the first one.
  int zones = 1;
  FarLink far = {};
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
  // ---- of the last call
  // From the start of the call until the node had its last object; infinite if it has not.
  absl::Duration finished(int node) const;
  // The bytes that arrived at the node beyond the objects that it got.
  uint64_t bytes_twice(int node) const;
  // What crossed from one zone to another, in objects.
  double crossed() const;
  // The pulls that worked and were moved.
  uint64_t moves() const;
  // Applies to later calls.
  void SetChanges(std::vector<CrowdChange> changes);
  void SetAskAt(std::vector<absl::Duration> ask_at);
  // The number of nodes on the longest path from a source to a receiver in the last call, without
  // the source.
  int depth() const;

 private:
  class World;
  const std::unique_ptr<World> world_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_CROWD_H_
