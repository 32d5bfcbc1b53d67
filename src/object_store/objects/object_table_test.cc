#include "src/object_store/objects/object_table.h"

#include <list>
#include <map>

#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/copies.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using testing::AddCopy;

Instant At(int seconds) { return Instant::FromNanos(0) + absl::Seconds(seconds); }

TEST(ObjectTableTest, MemoryIsReservedBeforeItExistsAndNeverBeyondTheCapacity) {
  ObjectTable table(100);
  EXPECT_TRUE(table.TryReserve(60));
  EXPECT_FALSE(table.TryReserve(41));
  EXPECT_EQ(table.used_bytes(), 60u);
  Copy* copy = table.Add(testing::CompleteCopy(1, 1, 60));
  EXPECT_EQ(table.used_bytes(), 60u);
  EXPECT_EQ(table.reserved_bytes(), 0u);
  EXPECT_TRUE(table.Detach(copy));
  EXPECT_EQ(table.used_bytes(), 0u);
}

TEST(ObjectTableTest, TheAdoptedGenerationIsFoundBeforeOneWithoutAVerdict) {
  ObjectTable table(100);
  Copy* pending = AddCopy(table, 1, 1, 10);
  Copy* standby = AddCopy(table, 1, 2, 10);
  standby->standing = Standing::kStandby;
  EXPECT_EQ(table.Complete(pending->id), pending);
  Copy* adopted = AddCopy(table, 1, 3, 10);
  adopted->standing = Standing::kAdopted;
  EXPECT_EQ(table.Complete(pending->id), adopted);
  EXPECT_EQ(table.Find(pending->id, standby->generation), standby);
  table.Detach(adopted);
  table.Detach(pending);
  EXPECT_EQ(table.Complete(standby->id), nullptr);
  EXPECT_EQ(table.objects(), 1u);
  table.Detach(standby);
  EXPECT_EQ(table.objects(), 0u);
}

TEST(ObjectTableTest, ADetachedCopyLivesUntilItsLastPinAndIsCountedUntilThen) {
  ObjectTable table(100);
  Copy* copy = AddCopy(table, 1, 1, 10);
  table.Pin(copy);
  table.Pin(copy);
  EXPECT_FALSE(table.Detach(copy));
  EXPECT_EQ(table.First(copy->id), nullptr);
  EXPECT_FALSE(table.Unpin(copy));
  EXPECT_EQ(table.used_bytes(), 10u);
  EXPECT_EQ(table.pinned_bytes(), 10u);
  EXPECT_THAT(table.CheckInvariants(), IsOk());
  EXPECT_TRUE(table.Unpin(copy));
  EXPECT_EQ(table.used_bytes(), 0u);
  EXPECT_EQ(table.pinned_bytes(), 0u);
}

TEST(ObjectTableTest, ACandidateCanBeMadeTheOldest) {
  ObjectTable table(100);
  Copy* a = AddCopy(table, 1, 1, 10);
  Copy* b = AddCopy(table, 2, 1, 10);
  table.MakeOldest(b);
  EXPECT_EQ(table.OldestCandidate(), b);
  table.Pin(a);
  table.MakeOldest(a);
  EXPECT_EQ(table.OldestCandidate(), b) << "it cannot be evicted";
  EXPECT_EQ(table.evictable_bytes(), 10u);
  EXPECT_THAT(table.CheckInvariants(), IsOk());
  table.Unpin(a);
}

TEST(ObjectTableTest, RefusedCopiesComeBackAsTheOldestOnesAfterTheirTime) {
  ObjectTable table(100);
  Copy* a = AddCopy(table, 1, 1, 10);
  Copy* b = AddCopy(table, 2, 1, 10);
  table.MarkAsked(a);
  EXPECT_EQ(table.OldestCandidate(), b);
  EXPECT_EQ(table.evictable_bytes(), 20u);
  table.MarkRefused(a, At(5));
  EXPECT_EQ(table.evictable_bytes(), 10u);
  table.Reconsider(At(4));
  EXPECT_EQ(table.OldestCandidate(), b);
  table.Reconsider(At(5));
  EXPECT_EQ(table.OldestCandidate(), a);
  EXPECT_TRUE(table.OldestRefusal().infinite());
}

// The dumb model: a list of what may be evicted, oldest use first.
TEST(ObjectTableTest, TheOrderOfEvictionIsThatOfALeastRecentlyUsedList) {
  const uint64_t seed = phalanx::testing::TestSeed(11);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  ObjectTable table(10000);
  std::map<int, Copy*> copies;
  std::map<int, int> pins;
  std::list<int> model;
  int next = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t dice = random.Below(10);
    const auto any = [&] {
      auto it = copies.begin();
      std::advance(it, random.Below(copies.size()));
      return it->first;
    };
    if (copies.empty() || (dice < 3 && table.free_bytes() > 200)) {
      copies[next] = AddCopy(table, next, 1, 1 + random.Below(200));
      if (random.Chance(0.2)) {
        table.MakePrimary(copies[next]);
      } else {
        model.push_back(next);
      }
      ++next;
    } else if (dice < 6) {
      const int id = any();
      table.Pin(copies[id]);
      if (pins[id]++ == 0) model.remove(id);
    } else if (dice < 9) {
      const int id = any();
      if (pins[id] == 0) continue;
      table.Unpin(copies[id]);
      if (--pins[id] == 0 && !copies[id]->primary) model.push_back(id);
    } else if (!model.empty()) {
      const int id = model.front();
      ASSERT_EQ(table.OldestCandidate(), copies[id]);
      table.MarkAsked(copies[id]);
      ASSERT_TRUE(table.Detach(copies[id]));
      copies.erase(id);
      model.pop_front();
    }
    Copy* oldest = table.OldestCandidate();
    ASSERT_EQ(oldest, model.empty() ? nullptr : copies[model.front()]);
    if (step % 50 == 0) {
      ASSERT_THAT(table.CheckInvariants(), IsOk());
    }
  }
}

}  // namespace
}  // namespace phalanx::object_store
