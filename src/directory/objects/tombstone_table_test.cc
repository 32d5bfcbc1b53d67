#include "src/directory/objects/tombstone_table.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::testing::ElementsAre;

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
  EXPECT_THAT(table_.Generations(tombstone), ElementsAre(Gen(2), Gen(1), Gen(7)));
}

TEST_F(TombstoneTableTest, ListsTheGenerationThatWasDeletedAgainOnce) {
  table_.Add(id_, Gen(1));
  table_.Add(id_, Gen(2));
  table_.Add(id_, Gen(2));
  const Tombstone& tombstone = table_.Add(id_, Gen(1));
  EXPECT_THAT(table_.Generations(tombstone), ElementsAre(Gen(1), Gen(2)));
}

TEST_F(TombstoneTableTest, AFullTombstoneListsTheLast64Generations) {
  for (uint64_t i = 1; i <= 70; ++i) table_.Add(id_, Gen(i));
  const std::vector<Generation> listed = table_.Generations(*table_.Find(id_));
  ASSERT_EQ(listed.size(), 64u);
  EXPECT_EQ(listed.front(), Gen(70));
  EXPECT_EQ(listed.back(), Gen(7));
}

TEST_F(TombstoneTableTest, AFullTombstoneRefusesWhatItsCreatorsMintedBefore) {
  const Generation other{kOther, 3};
  table_.Add(id_, other);
  for (uint64_t i = 10; i <= 80; ++i) table_.Add(id_, Gen(i));
  for (const uint64_t sequence : {1, 9, 10, 11, 80}) {
    EXPECT_TRUE(table_.Refuses(id_, Gen(sequence))) << sequence;
  }
  EXPECT_TRUE(table_.Refuses(id_, other));
  EXPECT_FALSE(table_.Refuses(id_, Gen(81))) << "it was put after the Deletes";
  EXPECT_FALSE(table_.Refuses(id_, Generation{kOther, 4}));
  EXPECT_FALSE(table_.Refuses(id_, Generation{NodeKey{3, 1}, 1}));
}

TEST_F(TombstoneTableTest, AGenerationForWhichThereIsNoRoomIsRefused) {
  for (uint64_t i = 10; i <= 80; ++i) table_.Add(id_, Gen(i));
  table_.AddOlder(id_, Generation{kOther, 5});
  EXPECT_TRUE(table_.Refuses(id_, Generation{kOther, 5}));
  EXPECT_FALSE(table_.Refuses(id_, Generation{kOther, 6}));
}

// The shard draws the generations of a ring: their order says nothing.
TEST_F(TombstoneTableTest, AForgottenGenerationOfARingRefusesNoOther) {
  const uint64_t drawn = uint64_t{1} << 63;
  table_.Add(id_, Gen(drawn | 5));
  for (uint64_t i = 0; i < 70; ++i) table_.Add(id_, Generation{kOther, i + 1});
  EXPECT_FALSE(table_.Refuses(id_, Gen(drawn | 4)));
  EXPECT_FALSE(table_.Refuses(id_, Gen(1)));
}

TEST_F(TombstoneTableTest, AGenerationThatIsNotListedAnyMoreIsAwaitedAndConfirmed) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, Gen(1), kNode, 1);
  for (uint64_t i = 2; i <= 70; ++i) table_.Add(id_, Gen(i));
  EXPECT_EQ(table_.UnconfirmedOf(tombstone).size(), 1u);
  table_.Confirm(id_, Gen(1), kNode);
  EXPECT_EQ(table_.UnconfirmedOf(tombstone).size(), 0u);
}

// As nodes register them at a restarted shard: each by another creator, the newest first.
TEST_F(TombstoneTableTest, OfGenerationsThatAreRegisteredTheNewestAreRefused) {
  const auto by_age = [](uint64_t age) { return Generation{NodeKey{100 + age, 1}, 1}; };
  for (uint64_t age = 0; age < 200; ++age) table_.AddOlder(id_, by_age(age));
  const std::vector<Generation> listed = table_.Generations(*table_.Find(id_));
  ASSERT_EQ(listed.size(), 64u);
  EXPECT_EQ(listed.front(), by_age(0));
  EXPECT_EQ(listed.back(), by_age(63));
  for (uint64_t age = 64; age < 128; ++age) EXPECT_TRUE(table_.Refuses(id_, by_age(age))) << age;
  EXPECT_FALSE(table_.Refuses(id_, by_age(128)));
  // The next one that is forgotten is newer than all of them.
  for (uint64_t i = 1; i <= 2; ++i) table_.Add(id_, Gen(i));
  for (const uint64_t age : {62, 63, 125}) EXPECT_TRUE(table_.Refuses(id_, by_age(age))) << age;
  EXPECT_FALSE(table_.Refuses(id_, by_age(126)));
}

// A node that does not confirm, or that announces what is refused again and again.
TEST_F(TombstoneTableTest, ABoundedNumberOfConfirmationsOfANodeIsAwaited) {
  table_.Add(id_, Gen(1));
  for (uint64_t i = 1; i <= 1000; ++i) {
    Tombstone& tombstone = table_.Add(id_, Gen(i));
    for (const NodeKey& node : {kNode, kOther}) {
      table_.AwaitConfirm(tombstone, Gen(i), node, /*session=*/1);
    }
    EXPECT_LE(table_.UnconfirmedOf(tombstone).size(), 2 * 64u);
  }
  const Tombstone& tombstone = *table_.Find(id_);
  // The node confirms everything that it was asked, in that order.
  for (uint64_t i = 1; i < 1000; ++i) {
    table_.Confirm(id_, Gen(i), kNode);
    EXPECT_TRUE(table_.UnconfirmedOf(tombstone).contains({kNode, Gen(1000)}));
  }
  table_.Confirm(id_, Gen(1000), kNode);
  EXPECT_EQ(table_.UnconfirmedBy(kNode).size(), 0u);
  EXPECT_EQ(table_.UnconfirmedOf(tombstone).size(), 64u);
  EXPECT_EQ(table_.UnconfirmedBy(kOther).size(), 1u);
}

TEST_F(TombstoneTableTest, KeepsSizeSlicesAndName) {
  const ObjectName name = ObjectName::Of("batch", "job/7");
  table_.Add(id_, Gen(1)).SetObject(kMaxObjectBytes, kMaxSlices, name);
  const Tombstone& tombstone = *table_.FindDeleted(id_);
  EXPECT_EQ(tombstone.size_bytes, kMaxObjectBytes);
  EXPECT_EQ(tombstone.slices, static_cast<uint64_t>(kMaxSlices));
  EXPECT_EQ(tombstone.Name(), name);
  table_.Add(id_, Gen(2)).SetObject(0, 1, ObjectName());
  EXPECT_TRUE(tombstone.Name().empty());
}

// Ids that differ in their last bytes only, and others.
TEST_F(TombstoneTableTest, FindsEachIdAndTheNextOne) {
  std::set<ObjectId> ids;
  for (uint8_t i = 1; i <= 200; ++i) {
    std::string bytes(ObjectId::kSize, '\0');
    bytes.back() = static_cast<char>(i);
    ids.insert(*ObjectId::FromBinary(bytes));
    ids.insert(Id(i));
  }
  for (const ObjectId& id : ids) table_.Add(id, Gen(1));
  ObjectId at;
  for (const ObjectId& id : ids) {
    ASSERT_NE(table_.Find(id), nullptr);
    EXPECT_EQ(table_.Find(id)->id, id);
    ASSERT_NE(table_.FindAfter(at), nullptr);
    EXPECT_EQ(table_.FindAfter(at)->id, id);
    at = id;
  }
  EXPECT_EQ(table_.FindAfter(at), nullptr);
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

TEST_F(TombstoneTableTest, ExpiresUpToASecondLateAndNeverEarly) {
  Advance(absl::Milliseconds(1500));
  table_.Add(id_, Gen(1));
  Advance(absl::Milliseconds(9999));
  EXPECT_EQ(table_.size(), 1u);
  Advance(absl::Milliseconds(501));
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, OutlivesItsAgeUntilEveryNodeHasConfirmed) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, Gen(1), kNode, 1);
  table_.AwaitConfirm(tombstone, Gen(1), kOther, 1);
  Advance(absl::Seconds(20));
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
  table_.Confirm(id_, Gen(1), kNode);
  EXPECT_TRUE(table_.Refuses(id_, Gen(1)));
  table_.Confirm(id_, Gen(1), kOther);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, ANewSessionConfirmsGenerationsThatItDoesNotRegister) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, Gen(1), kNode, /*session=*/1);
  Advance(absl::Seconds(20));
  table_.SessionRegistered(kNode, /*session=*/1);
  EXPECT_EQ(table_.size(), 1u);
  table_.SessionRegistered(kNode, /*session=*/2);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, ANodeThatIsDownConfirmsEverything) {
  Tombstone& tombstone = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(tombstone, Gen(1), kNode, 5);
  Advance(absl::Seconds(20));
  table_.NodeDown(kNode);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(TombstoneTableTest, BeyondTheLimitTheOldestGoesThoughUnconfirmed) {
  Tombstone& oldest = table_.Add(id_, Gen(1));
  table_.AwaitConfirm(oldest, Gen(1), kNode, 1);
  for (int i = 0; i < 4; ++i) table_.Add(ObjectId::FromName("test", std::to_string(i)), Gen(1));
  EXPECT_EQ(table_.NextDeadline(), context_.now);
  Advance(absl::ZeroDuration());
  EXPECT_EQ(table_.size(), 4u);
  EXPECT_FALSE(table_.Refuses(id_, Gen(1)));
}

TEST_F(TombstoneTableTest, BeyondTheLimitExpiredTombstonesGoBeforeRecentOnes) {
  for (uint64_t i = 0; i < 3; ++i) {
    table_.AwaitConfirm(table_.Add(Id(i), Gen(1)), Gen(1), kNode, 1);
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
    table_.AwaitConfirm(table_.Add(Id(i), Gen(1)), Gen(1), kNode, 1);
    Advance(absl::Seconds(20));
    EXPECT_LE(table_.size(), 4u);
    const ObjectId fresh = Id(1000 + i);
    table_.Add(fresh, Gen(1));
    Advance(absl::ZeroDuration());
    EXPECT_TRUE(table_.Refuses(fresh, Gen(1)));
  }
}

TEST_F(TombstoneTableTest, AnExpiredTombstoneOfAnIdThatIsDeletedAgainIsRecent) {
  table_.AwaitConfirm(table_.Add(id_, Gen(1)), Gen(1), kNode, 1);
  Advance(absl::Seconds(20));
  table_.Add(id_, Gen(2));
  table_.Confirm(id_, Gen(1), kNode);
  EXPECT_TRUE(table_.Refuses(id_, Gen(2)));
  EXPECT_EQ(table_.NextDeadline(), context_.now + absl::Seconds(10));
}

}  // namespace
}  // namespace phalanx::directory
