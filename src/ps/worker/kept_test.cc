#include "src/ps/worker/kept.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KeptEntries::Kept PushAt(uint64_t clock, uint32_t push, uint64_t ticket) {
  KeptEntries::Kept kept;
  kept.at = {.clock = clock, .push = push};
  kept.ticket = ticket;
  kept.values = "12345678";
  return kept;
}

KeptEntries::Kept EndOf(uint64_t clock) {
  KeptEntries::Kept kept;
  kept.at = {.clock = clock + 1};
  kept.is_clock = true;
  kept.first_clock = clock;
  return kept;
}

TEST(Kept, FreesUpToAPosition) {
  KeptEntries kept;
  kept.Add(PushAt(0, 1, 1), true);
  kept.Add(PushAt(0, 2, 2), true);
  kept.Add(EndOf(0), true);
  kept.Add(EndOf(1), true);
  kept.Add(EndOf(2), true);
  kept.Add(PushAt(3, 1, 3), true);
  EXPECT_EQ(kept.entries().size(), 4u);
  EXPECT_EQ(kept.undone(), 4u);
  EXPECT_EQ(kept.MarkOneDone({.clock = 0, .push = 2}), 2u);
  EXPECT_EQ(kept.MarkOneDone({.clock = 0, .push = 2}), 0u);
  EXPECT_EQ(kept.MarkOneDone({.clock = 2}), 0u);
  EXPECT_EQ(kept.undone(), 3u);
  EXPECT_THAT(kept.Free({.clock = 2}), ElementsAre(1));
  ASSERT_EQ(kept.entries().size(), 2u);
  EXPECT_EQ(kept.entries()[0].first_clock, 2u);
  EXPECT_THAT(kept.MarkDone({.clock = 3}), IsEmpty());
  EXPECT_EQ(kept.undone(), 1u);
  kept.Drop(3);
  EXPECT_EQ(kept.undone(), 0u);
  EXPECT_THAT(kept.Free({.clock = 3}), IsEmpty());
  EXPECT_EQ(kept.bytes(), 0u);
  EXPECT_EQ(kept.freed(), (Position{.clock = 3}));
}

TEST(Kept, KnowsTheLastPushThatALifeOfTheServerHasHad) {
  KeptEntries kept;
  EXPECT_EQ(kept.Had(), Position());
  kept.Add(PushAt(0, 1, 1), true);
  kept.Add(PushAt(0, 2, 2), true);
  kept.Add(EndOf(0), true);
  kept.Add(PushAt(1, 1, 3), true);
  EXPECT_EQ(kept.Had(), Position());
  kept.MarkDone({.clock = 1});
  EXPECT_EQ(kept.Had(), (Position{.clock = 0, .push = 2}));
  // The next life has none of them, and its calls have ended all the same.
  kept.MarkLost({});
  EXPECT_EQ(kept.undone(), 4u);
  EXPECT_EQ(kept.Had(), (Position{.clock = 0, .push = 2}));
  kept.Free({.clock = 0, .push = 2});
  EXPECT_EQ(kept.Had(), Position());
  kept.MarkOneDone({.clock = 1, .push = 1});
  EXPECT_EQ(kept.Had(), (Position{.clock = 1, .push = 1}));
  kept.Clear();
  EXPECT_EQ(kept.Had(), Position());
}

TEST(Kept, CountsWhatIsBehindAnObjectOfAClock) {
  const auto object_at = [](uint64_t clock, uint32_t push, uint64_t ticket) {
    KeptEntries::Kept kept = PushAt(clock, push, ticket);
    kept.values.clear();
    kept.object = "a";
    kept.object_bytes = 1000;
    return kept;
  };
  KeptEntries kept;
  const uint64_t object = object_at(0, 1, 1).bytes(), push = PushAt(0, 1, 1).bytes();
  kept.Add(PushAt(0, 1, 1), true);
  EXPECT_EQ(kept.BytesFromObject(0), 0u);
  kept.Add(object_at(0, 2, 2), true);
  kept.Add(PushAt(0, 3, 3), true);
  kept.Add(object_at(0, 4, 4), true);
  EXPECT_EQ(kept.BytesFromObject(0), 2 * object + push);
  kept.Drop(3);
  EXPECT_EQ(kept.BytesFromObject(0), 2 * object);
  // A snapshot can have the push before the second object, and has none without the first.
  kept.Add(PushAt(0, 5, 7), true);
  kept.Drop(2);
  EXPECT_EQ(kept.BytesFromObject(0), object + push);
  kept.Drop(4);
  EXPECT_EQ(kept.BytesFromObject(0), 0u);
  kept.Add(EndOf(0), true);
  EXPECT_EQ(kept.BytesFromObject(1), 0u);
  kept.Add(PushAt(1, 1, 5), true);
  kept.Add(object_at(1, 2, 6), true);
  EXPECT_EQ(kept.BytesFromObject(1), object);
  kept.Free({.clock = 1});
  EXPECT_EQ(kept.BytesFromObject(1), object);
  kept.Free({.clock = 1, .push = 2});
  EXPECT_EQ(kept.BytesFromObject(1), 0u);
}

TEST(Kept, WhatANextLifeHasLostIsNotDone) {
  KeptEntries kept;
  kept.Add(PushAt(0, 1, 1), true);
  kept.Add(PushAt(0, 2, 2), true);
  kept.Add(EndOf(0), true);
  kept.Add(PushAt(1, 1, 3), true);
  EXPECT_THAT(kept.MarkDone({.clock = 1}), ElementsAre(1, 2));
  kept.MarkLost({.clock = 0, .push = 1});
  EXPECT_EQ(kept.undone(), 3u);
  // The call of the second push has ended.
  EXPECT_THAT(kept.MarkDone({.clock = 1, .push = 1}), ElementsAre(3));
  EXPECT_EQ(kept.undone(), 0u);
}

TEST(Kept, WhatWasFreedIsDone) {
  KeptEntries kept;
  kept.Begin({.clock = 2});
  EXPECT_TRUE(kept.IsDone({.clock = 1, .push = 9}));
  kept.Add(PushAt(2, 1, 1), true);
  kept.Add(EndOf(2), true);
  EXPECT_FALSE(kept.IsDone({.clock = 2, .push = 1}));
  EXPECT_FALSE(kept.IsDone({.clock = 2, .push = 2}));
  kept.MarkOneDone({.clock = 2, .push = 1});
  EXPECT_TRUE(kept.IsDone({.clock = 2, .push = 1}));
  EXPECT_FALSE(kept.IsDone({.clock = 3}));
  kept.MarkLost({.clock = 2});
  EXPECT_FALSE(kept.IsDone({.clock = 2, .push = 1}));
  kept.Free({.clock = 3});
  EXPECT_TRUE(kept.IsDone({.clock = 2, .push = 1}));
  EXPECT_TRUE(kept.IsDone({.clock = 3}));
}

TEST(Kept, ClocksThatGoOnAreNotDone) {
  KeptEntries kept;
  kept.Add(EndOf(0), true);
  EXPECT_EQ(kept.MarkOneDone({.clock = 1}), 0u);
  EXPECT_EQ(kept.undone(), 0u);
  kept.Add(EndOf(1), true);
  EXPECT_EQ(kept.undone(), 1u);
  EXPECT_EQ(kept.entries().size(), 1u);
  kept.MarkOneDone({.clock = 1});
  EXPECT_EQ(kept.undone(), 1u);
  kept.MarkOneDone({.clock = 2});
  EXPECT_EQ(kept.undone(), 0u);
}

}  // namespace
}  // namespace phalanx::ps::internal
