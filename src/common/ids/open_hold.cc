#include "src/common/ids/open_hold.h"

#include "absl/strings/str_cat.h"
#include "src/common/ids/shard_of.h"

namespace phalanx {

ObjectId OpenHoldOf(const ObjectId& target, int num_shards) {
  const int shard = ShardOf(target, num_shards);
  // Each name belongs to a shard at random, so as many names as there are shards are tried on
  // average.
  for (int i = 0;; ++i) {
    const ObjectId id = ObjectId::FromName("phalanx open hold", absl::StrCat(target.hex(), ".", i));
    if (ShardOf(id, num_shards) == shard) return id;
  }
}

}  // namespace phalanx
