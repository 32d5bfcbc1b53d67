#include "src/object_store/objects/hold_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }
Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

class HoldTableTest : public ::testing::Test {
 protected:
  ~HoldTableTest() override { EXPECT_THAT(table_.CheckInvariants(), IsOk()); }

  void Hold(HoldTable::Client client, std::vector<ObjectId> ids) {
    EXPECT_THAT(table_.Hold(client, ids), IsOk());
  }
  std::vector<ObjectId> NewlyHeld() {
    const HoldTable::Changes changes = table_.TakeChanges();
    EXPECT_THAT(changes.unheld, IsEmpty());
    return changes.held;
  }
  std::vector<ObjectId> NoLongerHeld() {
    const HoldTable::Changes changes = table_.TakeChanges();
    EXPECT_THAT(changes.held, IsEmpty());
    return changes.unheld;
  }

  HoldTable table_{HoldLimits{3, 4}};
};

TEST_F(HoldTableTest, OnlyTheFirstAndTheLastHoldAreReported) {
  Hold(1, {Id(1)});
  EXPECT_THAT(NewlyHeld(), ElementsAre(Id(1)));
  Hold(1, {Id(1)});
  Hold(2, {Id(1)});
  table_.Release(1, {{Id(1), Id(1)}});
  EXPECT_TRUE(table_.TakeChanges().empty()) << "the other client holds it";
  table_.Release(2, {{Id(1)}});
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
  EXPECT_EQ(table_.ids(), 0u);
}

TEST_F(HoldTableTest, TwoHoldsEndWithTwoReleases) {
  Hold(1, {Id(1), Id(1)});
  NewlyHeld();
  table_.Release(1, {{Id(1)}});
  EXPECT_TRUE(table_.TakeChanges().empty());
  table_.Release(1, {{Id(1)}});
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
}

TEST_F(HoldTableTest, AReleaseWithoutAHoldIsIgnored) {
  Hold(1, {Id(1)});
  NewlyHeld();
  table_.Release(2, {{Id(1)}});
  table_.Release(1, {{Id(2)}});
  EXPECT_TRUE(table_.TakeChanges().empty());
  EXPECT_TRUE(table_.Holds(1, Id(1)));
}

TEST_F(HoldTableTest, AHoldThatEndsBeforeTheReportIsNotReported) {
  Hold(1, {Id(1)});
  table_.Release(1, {{Id(1)}});
  EXPECT_TRUE(table_.TakeChanges().empty());
  EXPECT_EQ(table_.ids(), 0u);
}

TEST_F(HoldTableTest, AClientThatEndsHoldsNothing) {
  Hold(1, {Id(1), Id(2), Id(2)});
  Hold(2, {Id(2)});
  NewlyHeld();
  table_.CloseClient(1);
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
}

TEST_F(HoldTableTest, AHoldBeyondTheLimitIsRefusedAndTheOthersStay) {
  Hold(1, {Id(1), Id(2)});
  EXPECT_THAT(table_.Hold(1, {{Id(3), Id(4)}}), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(table_.Holds(1, Id(3)));
  // What it holds already takes no more room.
  Hold(1, {Id(3), Id(1)});
  EXPECT_TRUE(table_.Holds(1, Id(3)));
}

TEST_F(HoldTableTest, AReferenceInTransitIsHeldUntilItIsClaimedOrExpires) {
  table_.Transit(Id(1), 7, At(60));
  table_.Transit(Id(2), 8, At(61));
  NewlyHeld();
  EXPECT_EQ(table_.NextDeadline(), At(60));
  table_.EndTransit(Id(1), 7);
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
  table_.EndTransit(Id(1), 7);
  table_.EndTransit(Id(2), 7);
  table_.Expire(At(60));
  EXPECT_TRUE(table_.TakeChanges().empty()) << "claimed twice, and under another's number";
  table_.Expire(At(61));
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(2)));
  EXPECT_EQ(table_.unclaimed(), 1u);
  EXPECT_TRUE(table_.NextDeadline().infinite());
}

TEST_F(HoldTableTest, OfTooManyReferencesOnTheirWayTheOldestEndsEarly) {
  for (int i = 1; i <= 5; ++i) table_.Transit(Id(i), 1, At(i));
  NewlyHeld();
  EXPECT_EQ(table_.transits(), 4u);
  EXPECT_EQ(table_.cut_short(), 1u);
}

TEST_F(HoldTableTest, CopiesHoldTheObjectsTheyReferTo) {
  const std::string ids = std::string(Id(1).binary()) + std::string(Id(2).binary());
  table_.AddReferences(ids);
  table_.AddReferences(ids);
  EXPECT_THAT(NewlyHeld(), ElementsAre(Id(1), Id(2)));
  table_.DropReferences(ids);
  EXPECT_TRUE(table_.TakeChanges().empty());
  table_.Linger(Id(2), At(2));
  table_.DropReferences(ids);
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
  table_.Expire(At(2));
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(2)));
  EXPECT_EQ(table_.unclaimed(), 0u);
}

TEST_F(HoldTableTest, ANewSessionIsSentEveryHold) {
  Hold(1, {Id(1), Id(2), Id(3)});
  NewlyHeld();
  table_.Release(1, {{Id(2)}});
  std::vector<ObjectId> expected = {Id(1), Id(3)};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(table_.ResendHeld([](const ObjectId&) { return true; }), expected);
  EXPECT_TRUE(table_.TakeChanges().empty()) << "a hold that was not reported is not withdrawn";
  table_.Release(1, {{Id(1)}});
  EXPECT_THAT(NoLongerHeld(), ElementsAre(Id(1)));
}

TEST_F(HoldTableTest, OnlyTheChosenShardIsSentItsHoldsAgain) {
  Hold(1, {Id(1), Id(2)});
  EXPECT_THAT(table_.ResendHeld([](const ObjectId& id) { return id == Id(1); }),
              ElementsAre(Id(1)));
  EXPECT_THAT(NewlyHeld(), ElementsAre(Id(2)));
}

// The model: sets of (holder, object), and the holds that a shard knows from the reports.
TEST(HoldTableModel, ReportsTheHolds) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    HoldTable table(HoldLimits{100, 100});
    std::map<std::pair<uint64_t, int>, int> clients;  // client, object: how often
    std::set<std::pair<int, uint64_t>> transits;      // object, number
    std::set<ObjectId> shard;
    uint64_t number = 0;
    for (int step = 0; step < 300; ++step) {
      const uint64_t client = 1 + random.Below(3);
      const int object = static_cast<int>(random.Below(5));
      const ObjectId id = Id(object);
      switch (random.Below(7)) {
        case 0:
        case 1:
          EXPECT_THAT(table.Hold(client, {{id}}), IsOk());
          ++clients[{client, object}];
          break;
        case 2:
        case 3:
          table.Release(client, {{id}});
          if (int& times = clients[{client, object}]; times > 0) --times;
          break;
        case 4:
          table.Transit(id, ++number, Instant::Infinite());
          transits.insert({object, number});
          break;
        case 5:
          if (!transits.empty()) {
            const auto [of, which] = *transits.begin();
            table.EndTransit(Id(of), which);
            transits.erase(transits.begin());
          }
          break;
        default:
          table.CloseClient(client);
          for (auto& [who, times] : clients) times = who.first == client ? 0 : times;
      }
      ASSERT_THAT(table.CheckInvariants(), IsOk()) << "seed " << seed;
      if (random.Chance(0.1)) {
        const auto held = table.ResendHeld([](const ObjectId&) { return true; });
        shard = std::set<ObjectId>(held.begin(), held.end());
      }
      if (!random.Chance(0.5)) continue;
      const HoldTable::Changes changes = table.TakeChanges();
      for (const ObjectId& held : changes.held) EXPECT_TRUE(shard.insert(held).second);
      for (const ObjectId& gone : changes.unheld) EXPECT_EQ(shard.erase(gone), 1u);
      std::set<ObjectId> truth;
      for (const auto& [who, times] : clients) {
        if (times > 0) truth.insert(Id(who.second));
      }
      for (const auto& [of, which] : transits) truth.insert(Id(of));
      ASSERT_EQ(shard, truth) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace phalanx::object_store
