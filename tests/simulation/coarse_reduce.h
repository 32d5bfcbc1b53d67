// One reduction of thousands of sources, each on a node of its own: the production DirectoryCore
// and its plan, around which nodes and links are a coarse model. The nodes do what they are
// ordered; when each hop of each slot's output is there follows from the orders, since nothing
// fails here (worlds of whole nodes, in which things do, are src/sim's).
//
// Times of the model
//   a message to or from the shard             `control`
//   a request, or a hop of bytes, on its way   `latency` (one way)
//   a hop on a receiver's link                 hop_bytes / bytes_per_second, its children by turns
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
  // From the moment at which the first node asks, when all sources are there, to its answer.
  absl::Duration time;
  // Of the tree of orders: edges on the longest way to the root, most inputs of other slots.
  int depth = 0;
  int fan_in = 0;
  // Every source is in one order, and all of them in the root's list.
  bool whole = false;
  // To and from the shard from then on, and the time that the core took by the machine's clock.
  uint64_t messages_in = 0;
  uint64_t messages_out = 0;
  absl::Duration core_time;
};

CoarseReduceResult RunCoarseReduce(const CoarseReducePlan& plan);

// The least time of a reduction along an in-order tree of that degree (0: of the best):
//   2 control + latency                     ask, be told, open the pulls
//   + depth * (latency + hop / B)           the first hop's way up
//   + fan-in * S / B                        the busiest link
//   + 4 control                             ready, commit, sealed, the answer
absl::Duration ReduceTreeTime(const CoarseLinks& links, int sources, uint64_t size_bytes,
                              int degree);

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_REDUCE_H_
