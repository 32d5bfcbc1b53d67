// The limits and timeouts of one shard. A plain value; fixed when the shard starts.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace phalanx::directory {

struct DirectoryOptions {
  absl::Duration lease = absl::Seconds(2);
  // The shard has no earlier incarnation whose state a node could report. Then an unknown object
  // does not exist from the start on, without waiting for a lease.
  bool first_life = false;
  uint64_t inline_cache_bytes = uint64_t{256} << 20;
  // Inline bytes that nodes have not acknowledged yet, over all sessions. Above this limit the
  // shard names a sender, if there is one, instead of sending the bytes.
  uint64_t inline_under_way_bytes = uint64_t{128} << 20;
  // The shard sends so many bytes in one turn before it compares with a pull from a sender.
  uint64_t inline_burst_bytes = 128 << 10;
  // The shard sends shorter objects in any case: naming a sender and handling the report of the
  // pull costs the shard about as much.
  uint64_t inline_always_bytes = 2 << 10;
  // About the number of bytes that a relay forwards at a time: the delay that it adds to each of
  // its receivers.
  uint64_t relay_bytes = 16 << 10;
  // A Want of a shorter object does not wait for a neighbour (v1::Want): links are not what takes
  // its time.
  uint64_t least_near_bytes = 1 << 20;
  absl::Duration tombstone_age = absl::Minutes(10);
  size_t max_tombstones = 1 << 20;
  // Waiting Wants over all objects; above this limit the shard answers a Want with
  // ResourceExhausted.
  size_t max_waiting = 1 << 22;
  // The index of this shard and the number of shards: the other shards watch sources for it.
  int shard_index = 0;
  int num_shards = 1;
  // Reductions that have not ended, and the sources of all of them; above these limits the shard
  // answers a ReduceRequest with ResourceExhausted.
  size_t max_reductions = 1 << 16;
  size_t max_reduce_sources = 1 << 22;
  // Requests that wait for reductions to end; above this limit the shard also answers a
  // ReduceRequest with ResourceExhausted.
  size_t max_reduce_askers = 1 << 20;
  // Ended reductions that the shard remembers; it forgets the oldest first. The second limit is for
  // the sources of open ones, and the requests for them.
  size_t max_ended_reductions = 1 << 14;
  size_t max_ended_entries = 1 << 20;
  // Objects with a failed producer that the shard remembers; it forgets the oldest first.
  size_t max_failed = 1 << 16;
  // The same for objects whose last copy was lost.
  size_t max_lost = 1 << 18;
  // Objects that nodes hold, over all nodes; above this limit the shard frees nothing until the
  // number falls.
  size_t max_holds = 1 << 26;
  // Deletes and queries that are deferred to the end of the first lease, and the bytes of the names
  // in these and in deferred broadcasts; above these limits the shard answers ResourceExhausted.
  size_t max_deferred = 1 << 20;
  size_t max_deferred_name_bytes = 64 << 20;
  // Bytes of the names in the marks of lost objects; above this limit the shard drops the mark.
  size_t max_lost_name_bytes = 64 << 20;
  // Sticky objects, and broadcasts that a caller waits for; above these limits the shard answers a
  // BroadcastRequest with ResourceExhausted.
  size_t max_sticky = 1 << 16;
  size_t max_broadcasts = 1 << 16;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
