#include "src/directory/objects/tombstone_table.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

const NodeKey kNode{1, 1};
const NodeKey kOther{2, 1};

Generation Gen(uint64_t sequence) { return Generation{kNode, sequence}; }

class TombstoneTableTest : public ::testing::Test {
 protected:
  explicit TombstoneTableTest(const DirectoryOptions& options = Options())
      : context_(options, Instant(), Random(1)), table_(context_) {}
  ~TombstoneTableTest() override { EXPECT_THAT(table_.CheckInvariants(), IsOk()); }

  static DirectoryOptions Options() {
    DirectoryOptions options;
    options.tombstone_age = absl::Seconds(10);
    options.max_tombstones = 4;
    return options;
  }
  static ObjectId Id(uint64_t i) { return ObjectId::FromName("test", std::to_string(i)); }
  void Advance(absl::Duration by) {
    context_.now = context_.now + by;
    table_.Expire();
  }

  CoreContext context_;
  TombstoneTable table_;
  const ObjectId id_ = ObjectId::FromName("test", "object");
};

TEST_F(TombstoneTableTest, RefusesDeletedGenerationsOnly) {
  table_.Add(id_, Gen(1));
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
  EXPECT_FALSE(table_.Refuses(id_, Gen(2)));
  EXPECT_FALSE(table_.Refuses(ObjectId::FromName("test", "another"), Gen(1)));
}

TEST_F(TombstoneTableTest, RevivedIdIsNotDeletedButStillRefusesItsOldGeneration) {
  table_.Add(id_, Gen(1));
  ASSERT_NE(table_.FindDeleted(id_), nullptr);
  table_.Revive(id_);
  EXPECT_EQ(table_.FindDeleted(id_), nullptr);
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
}

TEST_F(TombstoneTableTest, ListsTheGenerationDeletedLastFirst) {
  table_.Add(id_, Gen(1));
  table_.AddOlder(id_, Gen(7));
  const Tombstone& tombstone = table_.Add(id_, Gen(2));
  ASSERT_EQ(tombstone.generations.size(), 3u);
  EXPECT_EQ(tombstone.generations[0], Gen(2));
  EXPECT_EQ(tombstone.generations[1], Gen(1));
  EXPECT_EQ(tombstone.generations[2], Gen(7));
}

TEST_F(TombstoneTableTest, ForgetsTheOldestGenerationOfAFullTombstone) {
  for (uint64_t i = 1; i <= 65; ++i) table_.Add(id_, Gen(i));
  EXPECT_FALSE(table_.Refuses(id_, Gen(1)));
  EXPECT_TRUE(table_.Refuses(id_, Gen(2)));
  EXPECT_TRUE(table_.Refuses(id_, Gen(65)));
}

TEST_F(TombstoneTableTest, ExpiresAfterItsAge) {
  table_.Add(id_, Gen(1));
  EXPECT_EQ(table_.NextDeadline(), context_.now + absl::Seconds(10));
  Advance(absl::Seconds(9));
  EXPECT_EQ(table_.size(), 1u);
  Advance(absl::Seconds(1));
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_TRUE(table_.NextDeadline().infinite());
}

TEST_F(TombstoneTableTest, OutlivesItsAgeUntilEveryNodeHasConfirmed) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, id_, Gen(1), kNode, 1);
  table_.AwaitConfirm(tombstone, id_, Gen(1), kOther, 1);
  Advance(absl::Seconds(20));
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
  table_.Confirm(id_, Gen(1), kNode);
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
  table_.Confirm(id_, Gen(1), kOther);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, ANewSessionConfirmsGenerationsThatItDoesNotRegister) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, id_, Gen(1), kNode, /*session=*/1);
  Advance(absl::Seconds(20));
  table_.SessionRegistered(kNode, /*session=*/1);
  EXPECT_EQ(table_.size(), 1u);
  table_.SessionRegistered(kNode, /*session=*/2);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, ANodeThatIsDownConfirmsEverything) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, id_, Gen(1), kNode, 5);
  Advance(absl::Seconds(20));
  table_.NodeDown(kNode);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, BeyondTheLimitTheOldestGoesThoughUnconfirmed) {
  Tombstone& oldest = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(oldest, id_, Gen(1), kNode, 1);
  for (int i = 0; i < 4; ++i) table_.Add(ObjectId::FromName("test", std::to_string(i)), Gen(1));
  EXPECT_EQ(table_.NextDeadline(), context_.now);
  Advance(absl::ZeroDuration());
  EXPECT_EQ(table_.size(), 4u);
  EXPECT_FALSE(table_.Refuses(id_, Gen(1)));
}

TEST_F(TombstoneTableTest, BeyondTheLimitExpiredTombstonesGoBeforeRecentOnes) {
  for (uint64_t i = 0; i < 3; ++i) {
    table_.AwaitConfirm(table_.Add(Id(i), Gen(1)), Id(i), Gen(1), kNode, 1);
  }
  Advance(absl::Seconds(20));
  ASSERT_EQ(table_.size(), 3u);
  for (uint64_t i = 3; i < 6; ++i) table_.Add(Id(i), Gen(1));
  EXPECT_EQ(table_.NextDeadline(), context_.now);
  Advance(absl::ZeroDuration());
  EXPECT_EQ(table_.size(), 4u);
  EXPECT_FALSE(table_.Refuses(Id(0), Gen(1)));
  EXPECT_FALSE(table_.Refuses(Id(1), Gen(1)));
  for (uint64_t i = 2; i < 6; ++i) EXPECT_TRUE(table_.Refuses(Id(i), Gen(1))) << i;
  // A late confirmation of what was forgotten.
  table_.Confirm(Id(0), Gen(1), kNode);
  table_.NodeDown(kNode);
  EXPECT_EQ(table_.size(), 3u);
}

TEST_F(TombstoneTableTest, NodesThatNeverConfirmCostNewDeletionsNoTombstone) {
  for (uint64_t i = 0; i < 100; ++i) {
    table_.AwaitConfirm(table_.Add(Id(i), Gen(1)), Id(i), Gen(1), kNode, 1);
    Advance(absl::Seconds(20));
    EXPECT_LE(table_.size(), 4u);
    const ObjectId fresh = Id(1000 + i);
    table_.Add(fresh, Gen(1));
    Advance(absl::ZeroDuration());
    EXPECT_TRUE(table_.Refuses(fresh, Gen(1)));
  }
}

TEST_F(TombstoneTableTest, AnExpiredTombstoneOfAnIdThatIsDeletedAgainIsRecent) {
  table_.AwaitConfirm(table_.Add(id_, Gen(1)), id_, Gen(1), kNode, 1);
  Advance(absl::Seconds(20));
  table_.Add(id_, Gen(2));
  table_.Confirm(id_, Gen(1), kNode);
  EXPECT_TRUE(table_.Refuses(id_, Gen(2)));
  EXPECT_EQ(table_.NextDeadline(), context_.now + absl::Seconds(10));
}

}  // namespace
}  // namespace phalanx::directory
