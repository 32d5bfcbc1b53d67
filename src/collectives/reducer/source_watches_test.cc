// Watches of sources at other shards, and the refusal of watches beyond the limit.
#include "src/collectives/reducer/source_watches.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::collectives {
namespace {

using ::testing::HasSubstr;

std::string Bytes(const ObjectId& id) {
  return std::string(id.binary().data(), id.binary().size());
}
ObjectId Named(int n) { return ObjectId::FromName("test", absl::StrCat(n)); }

class SourceWatchesLimit : public ::testing::Test {
 protected:
  static v1::WatchSource Watch(int target, int first, int count, bool end = false) {
    v1::WatchSource watch;
    watch.set_target_id(Bytes(Named(target)));
    for (int i = 0; i < count; ++i) watch.add_source_ids(Bytes(Named(first + i)));
    watch.set_end(end);
    return watch;
  }
  std::vector<v1::SourceState> Refused() {
    std::vector<v1::SourceState> states;
    for (const auto& [shard, message] : sent_) {
      if (message.has_source_state()) states.push_back(message.source_state());
    }
    return states;
  }

  std::vector<std::pair<int, v1::NodeMessage>> sent_;
  SourceWatches watches_{
      "node-a", /*num_shards=*/3,
      [this](int shard, v1::NodeMessage message) { sent_.emplace_back(shard, std::move(message)); },
      /*max_watches=*/4};
};

TEST_F(SourceWatchesLimit, AWatchBeyondTheLimitFailsAndNamesTheNode) {
  watches_.OnWatch(Watch(1000, 0, 4));
  EXPECT_TRUE(Refused().empty());
  sent_.clear();
  watches_.OnWatch(Watch(1001, 10, 2));
  ASSERT_EQ(Refused().size(), 2u);
  EXPECT_EQ(sent_.size(), 2u) << "no shard is asked to watch them";
  for (const v1::SourceState& state : Refused()) {
    EXPECT_EQ(state.target_id(), Bytes(Named(1001)));
    EXPECT_EQ(state.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(state.message(), HasSubstr("node-a"));
  }
  EXPECT_EQ(watches_.size(), 4u);
  // Watches that end make room.
  watches_.OnWatch(Watch(1000, 0, 4, /*end=*/true));
  sent_.clear();
  watches_.OnWatch(Watch(1001, 10, 2));
  EXPECT_TRUE(Refused().empty());
  EXPECT_EQ(watches_.size(), 2u);
}

TEST_F(SourceWatchesLimit, ASourceCountsOnceTowardTheLimit) {
  watches_.OnWatch(Watch(1000, 0, 4));
  watches_.OnWatch(Watch(1000, 0, 4));
  EXPECT_TRUE(Refused().empty());
  EXPECT_EQ(watches_.size(), 4u);
}

}  // namespace
}  // namespace phalanx::collectives
