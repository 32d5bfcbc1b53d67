// Which shard of the directory owns an object: the same on every node and shard of a cluster.
#ifndef PHALANX_COMMON_IDS_SHARD_OF_H_
#define PHALANX_COMMON_IDS_SHARD_OF_H_

#include <cstdint>

#include "phalanx/object_id.h"

namespace phalanx {

// In [0, num_shards). REQUIRES: num_shards >= 1.
inline int ShardOf(const ObjectId& id, int num_shards) {
  return static_cast<int>(id.ShardHash() % static_cast<uint64_t>(num_shards));
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_SHARD_OF_H_
