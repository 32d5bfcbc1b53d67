// One broadcast among thousands of nodes: the production DirectoryCore and its planner, with a
// coarse model of nodes and links. Nodes execute the assignments of the core and send the reports
// of real nodes. Bytes move in hops of `hop_bytes`; a link sends one hop at a time, to its
// receivers in turn. A node has no other parts (no sockets, no
// memory, no bytes), so that one process can simulate 10,000 nodes and 1 GiB. src/sim has worlds of
// whole nodes.
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
  // 1 or 2; with two, many receivers pull the object in two trees.
  int slices = 1;
  // First a smaller object goes from one node to another, so that the shard has measured a link. If
  // false, the broadcast is the first transfer that the shard sees.
  bool measured = true;
  // The receivers send their Gets before the object is put.
  bool waiting = false;
  // This many relays die when the first receiver has half of the object.
  int relays_killed = 0;
  OutgoingListener listener = {};
};

struct CoarseResult {
  // From the Gets, or the put if it is later, to the last byte of the last receiver.
  absl::Duration time;
  int complete = 0;
  // The depth of the pulls by which the receivers got their last bytes.
  int depth = 0;
  int fan_out = 0;
  // The work of the shard during this time: messages received, candidates examined, members visited
  // to read or change the receivers below another one.
  uint64_t messages = 0;
  uint64_t examined = 0;
  uint64_t visited = 0;
  // The part that the deaths caused.
  uint64_t repairs = 0;
  uint64_t repair_examined = 0;
  uint64_t repair_visited = 0;
  // The nodes below a relay when it died, summed over the dead relays. In a chain: the depth below
  // it.
  uint64_t repair_below = 0;
  // The time spent in the core, by the machine's clock.
  absl::Duration core_time;
};

CoarseResult RunCoarseBroadcast(const CoarsePlan& plan);

// Returns the least time of a broadcast to this many receivers, over trees in which every node
// feeds up to `fan_out` others:
//   2 control + latency                                  Get, assignment, start of the pull
//   + fan_out * S / B                                    the source's link carries it that often
//   + latency + (depth - 1) * (latency + fan_out * hop / B)   the last hop's way down
// With one receiver each (a chain) the depth is the number of receivers. `fan_out` 0: the best
// value.
absl::Duration TreeTime(const CoarseLinks& links, int receivers, uint64_t size_bytes, int fan_out);
// Returns the time with `fan_out` slices, each with a tree of other interior nodes, so that every
// link carries the object once.
absl::Duration SlicedTime(const CoarseLinks& links, int receivers, uint64_t size_bytes,
                          int fan_out);
int TreeDepth(int receivers, int fan_out);

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_BROADCAST_H_
