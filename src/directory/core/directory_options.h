// The limits and timeouts of one shard: a plain value, fixed when the shard starts.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace phalanx::directory {

struct DirectoryOptions {
  absl::Duration lease = absl::Seconds(2);
  // The shard has had no earlier life that a node could know: absence counts from the start on, not
  // only after the first lease.
  bool first_life = false;

  // ---- inline objects
  uint64_t inline_cache_bytes = uint64_t{256} << 20;
  // Inline bytes that nodes have not acknowledged, over all sessions. Beyond the limit a node is
  // assigned a sender, if there is one, and is not sent the bytes.
  uint64_t inline_under_way_bytes = uint64_t{128} << 20;
  // This many bytes are sent in one turn without comparing with a sender.
  uint64_t inline_burst_bytes = 128 << 10;
  // Shorter objects are always sent: an Assign and a report cost the shard about as much.
  uint64_t inline_always_bytes = 2 << 10;

  // ---- pulls
  // The bytes that a relay forwards at a time: the delay that it adds for each of its receivers.
  uint64_t relay_bytes = 16 << 10;
  // At least so many nodes pull an object in two trees, each of half its slices, and only if the
  // last of them is expected to be complete in this share of the time with one tree.
  size_t least_in_halves = 64;
  double worth_of_halves = 0.8;
  // A receiver of a shorter object does not wait for its near node (v1::Want).
  uint64_t least_near_bytes = 1 << 20;

  // ---- tombstones
  absl::Duration tombstone_age = absl::Minutes(10);
  size_t max_tombstones = 1 << 20;

  // ---- shards. Other shards watch sources for this one.
  int shard_index = 0;
  int num_shards = 1;

  // ---- limits. Beyond a limit of requests, the shard answers ResourceExhausted; beyond a limit of
  // what is remembered, the shard forgets the oldest entry.
  // Open Wants over all objects.
  size_t max_waiting = 1 << 22;
  // Running reductions, their sources, and requests that wait for them.
  size_t max_reductions = 1 << 16;
  size_t max_reduce_sources = 1 << 22;
  size_t max_reduce_requesters = 1 << 20;
  // Reductions that have ended; and, of open ones, their sources and requests.
  size_t max_ended_reductions = 1 << 14;
  size_t max_ended_entries = 1 << 20;
  // Ids whose producers failed, and objects whose last copy was lost.
  size_t max_failed = 1 << 16;
  size_t max_lost = 1 << 18;
  // Holds over all nodes. Beyond the limit nothing is freed until there are fewer.
  size_t max_holds = 1 << 26;
  // Deletes, queries and keeps that wait for the end of the first lease, and the bytes of the names
  // in queries and broadcasts that wait.
  size_t max_deferred = 1 << 20;
  size_t max_deferred_name_bytes = 64 << 20;
  // Bytes of the names in placement policies of lost objects. Beyond it a policy is not kept.
  size_t max_lost_name_bytes = 64 << 20;
  // Sticky objects, and broadcasts that nodes wait for.
  size_t max_sticky = 1 << 16;
  size_t max_broadcasts = 1 << 16;
  // Jobs, the tasks that they know, and joins that wait for the end of the first lease.
  size_t max_jobs = 1 << 14;
  size_t max_job_members = 1 << 18;
  size_t max_waiting_joins = 1 << 16;

  // ---- jobs. So long after its last member has ended, a job is forgotten, and the lives of its
  // tasks with it.
  absl::Duration job_grace = absl::Minutes(1);
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_OPTIONS_H_
