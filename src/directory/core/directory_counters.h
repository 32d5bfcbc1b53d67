// The counters of a shard, for its status. A plain value.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_COUNTERS_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_COUNTERS_H_

#include <cstdint>

namespace phalanx::directory {

struct Counters {
  uint64_t reductions = 0;
  uint64_t reductions_committed = 0;
  uint64_t reductions_failed = 0;
  uint64_t rings = 0;
  uint64_t folds_placed = 0;
  uint64_t folds_relayed = 0;  // handed on by a third node
  uint64_t folds_dropped = 0;
  uint64_t slow_replaced = 0;  // trees built again, with waiting sources for slow ones
  uint64_t reduce_sources_examined = 0;
  uint64_t creates = 0;
  uint64_t adopted = 0;
  uint64_t superseded = 0;
  uint64_t conflicts = 0;
  uint64_t wants = 0;
  uint64_t delivered = 0;
  uint64_t assigned = 0;
  uint64_t repairs = 0;
  uint64_t relieved = 0;
  uint64_t probes = 0;
  uint64_t pulls_completed = 0;
  uint64_t pulls_failed = 0;
  uint64_t pulls_relayed = 0;  // a third node was ordered to hand the bytes on
  uint64_t splits = 0;         // objects that were pulled in two trees from then on
  uint64_t late_messages = 0;
  uint64_t voided = 0;
  uint64_t lost = 0;
  uint64_t deleted = 0;
  uint64_t evictions_granted = 0;
  uint64_t evictions_refused = 0;
  uint64_t wants_refused = 0;
  uint64_t freed = 0;
  uint64_t expired = 0;         // counted in `deleted`, too
  uint64_t freed_by_scope = 0;  // with their scopes
  uint64_t claims = 0;
  uint64_t joins = 0;            // of tasks to jobs
  uint64_t members_died = 0;     // of jobs
  uint64_t members_refused = 0;  // that nodes registered, beyond the limits of jobs
  uint64_t members_left = 0;
  uint64_t job_updates = 0;  // messages to nodes about changes of jobs
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_COUNTERS_H_
