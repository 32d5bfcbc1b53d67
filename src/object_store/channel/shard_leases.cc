#include "src/object_store/channel/shard_leases.h"

#include <algorithm>

#include "src/common/defects.h"
#include "src/common/ids/random_id.h"

namespace phalanx::object_store {

bool ShardLeases::Serves(const ObjectId& id, Instant now) const {
  if (DefectActive(Defect::kServedBeyondLease)) return true;
  // The lease first: it is valid nearly always, and the mark of an id costs a hash.
  return Valid(ShardOf(id), now) || IsRandomId(id);
}

bool ShardLeases::Confirmed(int shard, Instant now) const {
  if (DefectActive(Defect::kGroupAnsweredBeyondLease)) return true;
  return leases_[Index(shard)].phase != Phase::kRegistering && Valid(shard, now);
}

bool ShardLeases::BeginSession(int shard, Instant now) {
  Lease& lease = leases_[Index(shard)];
  // What this node has was never announced to the shard, so no deletion of it can be unknown here.
  const bool first = lease.phase == Phase::kFree;
  lease.phase = first ? Phase::kRegistered : Phase::kRegistering;
  if (DefectActive(Defect::kServedBeforeRegistered)) lease.phase = Phase::kRegistered;
  lease.granted = Instant();
  return !first && !Valid(shard, now);
}

void ShardLeases::Heard(int shard, Instant heard, absl::Duration lease) {
  Lease& known = leases_[Index(shard)];
  known.granted = heard + lease * kLeaseShare;
  if (known.phase != Phase::kRegistered) return;
  known.until = known.until.infinite() ? known.granted : std::max(known.until, known.granted);
}

void ShardLeases::Registered(int shard) {
  Lease& lease = leases_[Index(shard)];
  lease.phase = Phase::kRegistered;
  lease.until = std::max(lease.until, lease.granted);
}

}  // namespace phalanx::object_store
