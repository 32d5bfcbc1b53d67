// The id by which a node holds an open reduction open. While one of its clients can close the
// reduction, the node holds this id as it holds objects (docs/lifetime.md), so the shard learns of
// the end of the last such client whether that client, its node or the connection ended.
#ifndef PHALANX_COMMON_IDS_OPEN_HOLD_H_
#define PHALANX_COMMON_IDS_OPEN_HOLD_H_

#include "phalanx/object_id.h"

namespace phalanx {

// Returns the same id on every node and shard of a cluster with this number of shards. It belongs
// to the shard of `target`, so the holds and the requests of a node arrive in order. No object has
// it. REQUIRES: num_shards >= 1.
ObjectId OpenHoldOf(const ObjectId& target, int num_shards);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_OPEN_HOLD_H_
