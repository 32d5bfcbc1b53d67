// One reduction of thousands of sources, each on its own node: the production DirectoryCore and its
// plan, with a coarse model of nodes and links. The nodes execute the orders. The time of each hop
// of each slot's output follows from the orders, because nothing fails here (src/sim has worlds of
// whole nodes with failures).
//
// Times of the model
//   a message to or from the shard             `control`
//   a request, or a hop of bytes, on its way   `latency` (one way)
//   a hop on a receiver's link                 hop_bytes / bytes_per_second, its children in turn
//
// One thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_REDUCE_H_
#define PHALANX_TESTS_SIMULATION_COARSE_REDUCE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "tests/simulation/coarse_broadcast.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {

struct CoarseReducePlan {
  CoarseLinks links;
  int sources = 1000;
  // A multiple of hop_bytes.
  uint64_t size_bytes = 1 << 20;
  OutgoingListener listener = {};
};

struct CoarseReduceResult {
  // From the first request, when all sources exist, to its answer.
  absl::Duration time;
  // The tree of orders: edges on the longest path to the root, and the most inputs from other
  // slots.
  int depth = 0;
  int fan_in = 0;
  // Every source is in exactly one order, and all sources are in the root's list.
  bool whole = false;
  // Messages to and from the shard during this time, and the time in the core by the machine's
  // clock.
  uint64_t messages_in = 0;
  uint64_t messages_out = 0;
  absl::Duration core_time;
};

CoarseReduceResult RunCoarseReduce(const CoarseReducePlan& plan);

// Returns the least time of a reduction along an in-order tree of that degree (0: of the best
// degree):
//   2 control + latency                     request, orders, start of the pulls
//   + depth * (latency + hop / B)           the first hop's way up
//   + fan-in * S / B                        the busiest link
//   + 4 control                             ready, commit, sealed, the answer
absl::Duration ReduceTreeTime(const CoarseLinks& links, int sources, uint64_t size_bytes,
                              int degree);

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_REDUCE_H_
