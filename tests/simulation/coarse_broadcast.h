// One broadcast among thousands of nodes: the production DirectoryCore and its planner, around
// which nodes and links are a coarse model. Nodes do what the core assigns and report what real
// ones report; bytes move in hops of `hop_bytes`, of which a link sends one at a time, its
// receivers by turns. Nothing else of a node is there (no sockets, no memory, no bytes), so that
// 10,000 nodes and 1 GiB are within reach of one process; worlds of whole nodes are src/sim's.
//
// Times of the model
//   a message to or from the shard           `control`
//   a request, or a hop of bytes, on its way `latency` (one way)
//   a hop on a sender's link                 hop_bytes / bytes_per_second
//
// Replays from its inputs; one thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_BROADCAST_H_
#define PHALANX_TESTS_SIMULATION_COARSE_BROADCAST_H_

#include <cstdint>

#include "absl/time/time.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {

struct CoarseLinks {
  absl::Duration control = absl::Microseconds(50);
  absl::Duration latency = absl::Microseconds(50);
  double bytes_per_second = 1.25e9;
  uint64_t hop_bytes = 16 << 10;
};

struct CoarsePlan {
  CoarseLinks links;
  int receivers = 1000;
  // A multiple of hop_bytes.
  uint64_t size_bytes = 1 << 20;
  // A smaller object goes from one node to another first, so that the shard knows what links are
  // like. Otherwise the broadcast is the first that it sees.
  bool measured = true;
  // The receivers ask before the object is there.
  bool waiting = false;
  // This many relays die when the first receiver has half of the object.
  int relays_killed = 0;
  OutgoingListener listener = {};
};

struct CoarseResult {
  // From the moment at which everybody asks, or the object is put, to the last receiver's last
  // byte.
  absl::Duration time;
  int complete = 0;
  // Of the pulls by which the receivers got their last bytes.
  int depth = 0;
  int fan_out = 0;
  // What the shard did from then on: messages it was sent, candidates looked at, members visited to
  // see or change what is downstream of another.
  uint64_t messages = 0;
  uint64_t examined = 0;
  uint64_t visited = 0;
  // Of the deaths alone.
  uint64_t repairs = 0;
  uint64_t repair_examined = 0;
  uint64_t repair_visited = 0;
  // Nodes below a relay when it died, summed over those that died. In a chain: how deep it is
  // there.
  uint64_t repair_below = 0;
  // Spent in the core, by the machine's clock.
  absl::Duration core_time;
};

CoarseResult RunCoarseBroadcast(const CoarsePlan& plan);

// The least time, over trees in which everybody feeds up to `fan_out` others, of a broadcast to so
// many receivers:
//   2 control + latency                                  ask, be told whom, open the pull
//   + fan_out * S / B                                    the source's link carries it that often
//   + latency + (depth - 1) * (latency + fan_out * hop / B)   the last hop's way down
// With one receiver each (a chain) the depth is the number of receivers. `fan_out` 0: the best.
absl::Duration TreeTime(const CoarseLinks& links, int receivers, uint64_t size_bytes, int fan_out);
// What `fan_out` slices would take, each with a tree in which other nodes are interior, so that
// every link carries the object once. For comparison: the planner takes all slices from one sender.
absl::Duration SlicedTime(const CoarseLinks& links, int receivers, uint64_t size_bytes,
                          int fan_out);
int TreeDepth(int receivers, int fan_out);

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_BROADCAST_H_
