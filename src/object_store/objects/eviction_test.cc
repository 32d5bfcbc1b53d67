#include "src/object_store/objects/eviction.h"

#include <deque>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/copies.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using testing::AddCopy;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant At(int millis) { return Instant::FromNanos(0) + absl::Milliseconds(millis); }

TEST(EvictionTest, AsksForAsManyCopiesAsAreNeededOldestFirst) {
  ObjectTable table(100);
  Eviction eviction(table);
  Copy* a = AddCopy(table, 1, 1, 30);
  Copy* b = AddCopy(table, 2, 1, 30);
  AddCopy(table, 3, 1, 30);
  EXPECT_FALSE(eviction.TryNow(50));
  const Eviction::Ticket ticket = eviction.Wait(50);
  const auto decisions = eviction.Decide(At(0));
  EXPECT_THAT(decisions.ask, ElementsAre(a, b));
  EXPECT_THAT(decisions.granted, IsEmpty());
  EXPECT_THAT(eviction.Decide(At(1)).ask, IsEmpty()) << "what is asked is not asked again";
  table.Detach(a);
  table.Detach(b);
  EXPECT_THAT(eviction.Decide(At(2)).granted, ElementsAre(ticket));
  EXPECT_EQ(table.reserved_bytes(), 50u);
  EXPECT_EQ(eviction.waiting(), 0u);
}

TEST(EvictionTest, NoRequestOvertakesOneThatEvictionServes) {
  ObjectTable table(100);
  Eviction eviction(table);
  Copy* a = AddCopy(table, 1, 1, 90);
  const Eviction::Ticket large = eviction.Wait(60);
  EXPECT_FALSE(eviction.TryNow(5));
  const Eviction::Ticket small = eviction.Wait(5);
  EXPECT_THAT(eviction.Decide(At(0)).granted, IsEmpty());
  table.Detach(a);
  EXPECT_THAT(eviction.Decide(At(0)).granted, ElementsAre(large, small));
}

TEST(EvictionTest, LaterRequestsOvertakeOneThatOnlyADeleteServes) {
  ObjectTable table(100);
  Eviction eviction(table);
  table.MakePrimary(AddCopy(table, 1, 1, 60));
  const Eviction::Ticket stuck = eviction.Wait(50);
  const Eviction::Ticket small = eviction.Wait(40);
  EXPECT_THAT(eviction.Decide(At(0)).granted, ElementsAre(small));
  table.Detach(table.First(ObjectId::FromName("test", "1")));
  EXPECT_THAT(eviction.Decide(At(0)).granted, ElementsAre(stuck));
}

TEST(EvictionTest, ARefusalLastsASecondAndHasATimerWhileARequestWaits) {
  ObjectTable table(100);
  Eviction eviction(table);
  Copy* a = AddCopy(table, 1, 1, 90);
  const Eviction::Ticket ticket = eviction.Wait(50);
  EXPECT_THAT(eviction.Decide(At(0)).ask, ElementsAre(a));
  eviction.Refused(a, At(100));
  EXPECT_THAT(eviction.Decide(At(1099)).ask, IsEmpty());
  EXPECT_EQ(eviction.NextDeadline(), At(1100));
  EXPECT_THAT(eviction.Decide(At(1100)).ask, ElementsAre(a));
  eviction.Refused(a, At(1200));
  eviction.Cancel(ticket);
  EXPECT_TRUE(eviction.NextDeadline().infinite());
}

TEST(EvictionTest, IdlePartialCopiesAreDroppedIfNothingElseServesARequest) {
  ObjectTable table(100);
  Eviction eviction(table);
  Copy* complete = AddCopy(table, 1, 1, 40);
  std::vector<Copy*> partial;
  for (int i = 2; i < 4; ++i) {
    ASSERT_TRUE(table.TryReserve(20));
    auto copy = testing::CompleteCopy(i, 1, 20);
    copy->state = CopyState::kPulling;
    partial.push_back(table.Add(std::move(copy)));
  }
  const Eviction::Ticket first = eviction.Wait(50);
  auto decisions = eviction.Decide(At(0));
  EXPECT_THAT(decisions.ask, ElementsAre(complete));
  EXPECT_THAT(decisions.give_up, IsEmpty());
  eviction.Cancel(first);
  eviction.Refused(complete, At(0));
  eviction.Wait(30);
  decisions = eviction.Decide(At(1));
  EXPECT_THAT(decisions.give_up, ElementsAre(partial[0]));
  table.Pin(partial[0]);
  EXPECT_THAT(eviction.Decide(At(1)).give_up, ElementsAre(partial[1]));
  table.Pin(partial[1]);
  EXPECT_THAT(eviction.Decide(At(1)).give_up, IsEmpty());
  table.Unpin(partial[0]);
  table.Unpin(partial[1]);
  EXPECT_THAT(table.CheckInvariants(), IsOk());
}

TEST(EvictionTest, SoManyQuestionsAreOpenAtATime) {
  ObjectTable table(Eviction::kMaxAsked * 2);
  Eviction eviction(table);
  for (size_t i = 0; i < Eviction::kMaxAsked * 2; ++i) AddCopy(table, static_cast<int>(i), 1, 1);
  eviction.Wait(Eviction::kMaxAsked * 2);
  EXPECT_EQ(eviction.Decide(At(0)).ask.size(), Eviction::kMaxAsked);
}

// The model: requests in a deque, served by the rule in the header.
TEST(EvictionTest, RequestsAreServedAsByTheModel) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const uint64_t used = phalanx::testing::TestSeed(seed);
    PHALANX_TRACE_SEED(used);
    Random random(used);
    ObjectTable table(1000);
    Eviction eviction(table);
    std::deque<std::pair<Eviction::Ticket, uint64_t>> model;
    std::map<int, Copy*> copies;
    std::vector<Copy*> asked;
    int next = 0;
    for (int step = 0; step < 300; ++step) {
      const Instant now = At(step * 10);
      const uint64_t dice = random.Below(10);
      const uint64_t free = table.free_bytes();
      if (dice < 4) {
        const uint64_t bytes = 1 + random.Below(600);
        model.emplace_back(eviction.Wait(bytes), bytes);
      } else if (dice < 5 && !model.empty()) {
        eviction.Cancel(model.front().first);
        model.pop_front();
      } else if (dice < 7 && free > 0 && model.empty()) {
        copies[next] = AddCopy(table, next, 1, 1 + random.Below(free));
        if (random.Chance(0.3)) table.MakePrimary(copies[next]);
        ++next;
      } else if (dice < 9 && !asked.empty()) {
        Copy* copy = asked.back();
        asked.pop_back();
        if (random.Chance(0.7)) {
          std::erase_if(copies, [&](const auto& c) { return c.second == copy; });
          table.Detach(copy);
        } else {
          eviction.Refused(copy, now);
        }
      } else if (!copies.empty()) {
        Copy* copy = copies.begin()->second;
        copies.erase(copies.begin());
        std::erase(asked, copy);
        table.Detach(copy);
      }
      table.Reconsider(now - Eviction::kRefusalHolds);
      // What the rule grants.
      std::vector<Eviction::Ticket> expected;
      uint64_t left = table.free_bytes();
      for (auto it = model.begin(); it != model.end();) {
        if (it->second <= left) {
          left -= it->second;
          expected.push_back(it->first);
          it = model.erase(it);
        } else if (it->second <= left + table.evictable_bytes()) {
          break;
        } else {
          ++it;
        }
      }
      const auto decisions = eviction.Decide(now);
      ASSERT_EQ(decisions.granted, expected);
      asked.insert(asked.end(), decisions.ask.begin(), decisions.ask.end());
      // What was granted is used and given back.
      table.Unreserve(table.reserved_bytes());
      ASSERT_EQ(eviction.waiting(), model.size());
      ASSERT_THAT(table.CheckInvariants(), IsOk());
    }
    if (phalanx::testing::SeedGiven()) return;
  }
}

}  // namespace
}  // namespace phalanx::object_store
