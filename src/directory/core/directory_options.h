// The limits and timeouts of one shard. A plain value; fixed when the shard starts.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace phalanx::directory {

struct DirectoryOptions {
  absl::Duration lease = absl::Seconds(2);
  // The shard has had no earlier life of which a node could tell: what it does not know is not
  // there, from the start on and not only when a lease has passed.
  bool first_life = false;
  uint64_t inline_cache_bytes = uint64_t{256} << 20;
  // Inline bytes that nodes have not acknowledged yet, over all sessions: beyond it nodes are named
  // a sender, if there is one, instead of being sent the bytes.
  uint64_t inline_under_way_bytes = uint64_t{128} << 20;
  // So much is sent in one turn without asking whether a sender would be faster.
  uint64_t inline_burst_bytes = 128 << 10;
  // Shorter objects are sent without asking: to name a sender, and to hear of the pull, costs the
  // shard about as much.
  uint64_t inline_always_bytes = 2 << 10;
  // About so many bytes does a relay hand on at a time: what it adds to each of its receivers.
  uint64_t relay_bytes = 16 << 10;
  // Of shorter objects no neighbour is waited for (v1::Want): links are not what takes time.
  uint64_t least_near_bytes = 1 << 20;
  absl::Duration tombstone_age = absl::Minutes(10);
  size_t max_tombstones = 1 << 20;
  // Waiting Wants over all objects; beyond it a Want's node is told ResourceExhausted.
  size_t max_waiting = 1 << 22;
  // Which shard of how many this is: the others watch sources for it.
  int shard_index = 0;
  int num_shards = 1;
  // Reductions that have not ended, and their sources over all of them; beyond it a ReduceRequest
  // is answered ResourceExhausted.
  size_t max_reductions = 1 << 16;
  size_t max_reduce_sources = 1 << 22;
  // Requests that wait for reductions to end; beyond it a ReduceRequest is answered
  // ResourceExhausted, too.
  size_t max_reduce_askers = 1 << 20;
  // Reductions that are over are remembered, the oldest forgotten first; and of open ones so many
  // sources, and requests for them.
  size_t max_ended_reductions = 1 << 14;
  size_t max_ended_entries = 1 << 20;
  // Objects whose producers failed are remembered, the oldest forgotten first.
  size_t max_failed = 1 << 16;
  // So are those whose last copy was lost.
  size_t max_lost = 1 << 18;
  // Objects that nodes hold, over all nodes; beyond it nothing is freed until there are fewer.
  size_t max_holds = 1 << 26;
  // Deletes and queries put off to the end of the first lease, and the bytes of the names in these
  // and in broadcasts put off; beyond it they are answered ResourceExhausted.
  size_t max_deferred = 1 << 20;
  size_t max_deferred_name_bytes = 64 << 20;
  // Of the names in marks of lost objects; beyond it they are not remembered.
  size_t max_lost_name_bytes = 64 << 20;
  // Objects that are sticky, and broadcasts that are waited for; beyond it a BroadcastRequest is
  // answered ResourceExhausted.
  size_t max_sticky = 1 << 16;
  size_t max_broadcasts = 1 << 16;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
