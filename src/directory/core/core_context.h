// What every component of a shard's core shares: options, the time of the current turn, the random
// numbers, the counters and the two sequences that all components draw from.
//
// Owned by DirectoryCore. Components keep a reference and read `now`, which only DirectoryCore
// sets, once per turn. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_CORE_CORE_CONTEXT_H_
#define PHALANX_DIRECTORY_CORE_CORE_CONTEXT_H_

#include <cstdint>

#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/shard_of.h"
#include "src/common/random.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_counters.h"
#include "src/directory/core/directory_options.h"

namespace phalanx::directory {

struct CoreContext {
  CoreContext(const DirectoryOptions& directory_options, Instant started_at, Random random_numbers)
      : options(directory_options),
        start(started_at),
        now(started_at),
        random(random_numbers),
        last_plan((random.Next() & 0x7fffffff) << 32 | 1),
        life_low(random.Next()),
        life_high(random.Next()) {}

  PlanId NewPlan() { return ++last_plan; }
  // Orders wants, tombstones, losses and failures by age.
  uint64_t NewOrder() { return next_order++; }
  // Returns true if another shard plans for `id`.
  bool IsForeign(const ObjectId& id) const {
    return options.num_shards > 1 && ShardOf(id, options.num_shards) != options.shard_index;
  }

  const DirectoryOptions options;
  const Instant start;
  Instant now;
  Random random;
  // Grows within one life of the shard and starts elsewhere in each life, so that a node cannot
  // mistake a plan of an earlier life for a current one.
  PlanId last_plan;
  // Identify this life of the shard in the reduction ids that it mints.
  const uint64_t life_low;
  const uint64_t life_high;
  uint64_t next_order = 1;
  Counters counters;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_CORE_CONTEXT_H_
