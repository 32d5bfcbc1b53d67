#include "src/common/ids/open_hold.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/ids/shard_of.h"

namespace phalanx {
namespace {

TEST(OpenHold, BelongsToTheShardOfItsTargetAndToNoOtherTarget) {
  for (const int shards : {1, 2, 3, 64}) {
    std::set<ObjectId> holds;
    for (int i = 0; i < 100; ++i) {
      const ObjectId target = ObjectId::FromName("test", absl::StrCat(i));
      const ObjectId hold = OpenHoldOf(target, shards);
      EXPECT_EQ(ShardOf(hold, shards), ShardOf(target, shards));
      EXPECT_NE(hold, target);
      EXPECT_TRUE(holds.insert(hold).second);
    }
  }
}

}  // namespace
}  // namespace phalanx
