#include "src/client/spmd/session_core.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr bool kNeedsAll = true;
constexpr bool kBroadcast = false;

void EndCalls(SessionCore& core, int calls) {
  for (int i = 0; i < calls; ++i) core.OnCallEnded(kNeedsAll);
}

// Two boot calls, three calls of version 0, and version 1.
SessionCore InVersionOne() {
  SessionCore core({});
  EndCalls(core, 2);
  core.OnLoaded();
  EndCalls(core, 3);
  core.OnCheckpoint();
  return core;
}

TEST(SessionCore, AFirstLifeMakesAllCallsAndLoadsNothing) {
  SessionCore core({});
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 1u);
  EndCalls(core, 2);
  EXPECT_THAT(core.VersionToLoad(), IsOkAndHolds(0));
  core.OnLoaded();
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 3u);
}

TEST(SessionCore, CallsThatAreUnderWayHaveNumbers) {
  SessionCore core({.ended = 3, .keep = {}});
  core.OnCallMade();
  core.OnCallMade();
  EXPECT_EQ(core.next_call(), 3u);
  EXPECT_TRUE(core.repeats());
  core.OnCallMade();
  EXPECT_FALSE(core.repeats());
  core.OnCallMade();
  EndCalls(core, 4);
  EXPECT_EQ(core.next_call(), 5u);
  core.OnLoaded();
  EXPECT_EQ(core.keep(), (SessionKeep{4, 4, 0}));
  core.OnCallMade();
  EXPECT_EQ(core.keep(), (SessionKeep{4, 4, 0}));
  EXPECT_EQ(core.next_call(), 6u);
}

TEST(SessionCore, ACallSaysTheBootCallsAndWhereItsVersionBegan) {
  SessionCore core({});
  EXPECT_EQ(core.keep(), SessionKeep());
  EndCalls(core, 2);
  EXPECT_EQ(core.keep(), SessionKeep());
  core.OnLoaded();
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 0}));
  EndCalls(core, 3);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 0}));
  core.OnCheckpoint();
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
  EndCalls(core, 1);
  core.OnCheckpoint();
  EXPECT_EQ(core.keep(), (SessionKeep{2, 6, 2}));
}

TEST(SessionCore, ACheckpointIsFreedAfterACallOfTheNextVersionThatNeedsAll) {
  SessionCore core = InVersionOne();
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCheckpoint();
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kBroadcast);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kNeedsAll);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1));
  core.OnCallEnded(kNeedsAll);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
}

TEST(SessionCore, SeveralCheckpointsWithoutACallBetweenThemAreFreedTogether) {
  SessionCore core = InVersionOne();
  core.OnCheckpoint();
  core.OnCheckpoint();
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1, 2));
  EXPECT_THAT(core.TakeRest(), ElementsAre(3));
}

TEST(SessionCore, ANextLifeRepeatsTheBootCallsAndThoseOfTheNewestVersion) {
  // As InVersionOne, and two calls have ended in version 1.
  SessionCore core({.ended = 7, .keep = {2, 5, 1}});
  EXPECT_TRUE(core.repeats());
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(1));
  core.OnLoaded();
  EXPECT_EQ(core.next_call(), 6u);
  EXPECT_EQ(core.version(), 1u);
  for (int call = 6; call <= 7; ++call) {
    EXPECT_TRUE(core.repeats()) << call;
    core.OnCallEnded(kNeedsAll);
  }
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 8u);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
  EXPECT_THAT(core.CheckCheckpoint(), IsOk());
}

TEST(SessionCore, ANextLifeInTheFirstVersionRepeatsAllCalls) {
  SessionCore core({.ended = 4, .keep = {2, 2, 0}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(0));
  core.OnLoaded();
  EXPECT_TRUE(core.repeats());
  EndCalls(core, 2);
  EXPECT_FALSE(core.repeats());
}

// The others have all gone on to version 2 without a call that has ended.
TEST(SessionCore, ANextLifeLoadsWhatTheNewestCallSaysAndNotMore) {
  SessionCore core({.ended = 5, .keep = {2, 2, 0}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(0));
  core.OnLoaded();
  EndCalls(core, 3);
  EXPECT_FALSE(core.repeats());
  EXPECT_THAT(core.CheckCheckpoint(), IsOk());
  core.OnCheckpoint();
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
}

// Two Broadcasts of version 2 have ended. What they say does not count: receivers can be behind.
TEST(SessionCore, ANextLifeWritesACheckpointAmongTheCallsThatItRepeats) {
  SessionCore core({.ended = 8, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  core.OnLoaded();
  core.OnCallEnded(kNeedsAll);
  ASSERT_TRUE(core.repeats());
  ASSERT_THAT(core.CheckCheckpoint(), IsOk());
  core.OnCheckpoint();
  EXPECT_TRUE(core.repeats());
  core.OnCallEnded(kBroadcast);
  core.OnCallEnded(kBroadcast);
  EXPECT_FALSE(core.repeats());
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  EXPECT_EQ(core.keep(), (SessionKeep{2, 6, 2}));
}

// The first call of version 1 has ended at its root alone, and is made again.
TEST(SessionCore, ANextLifeMakesACallAgainWhoseVersionIsNew) {
  SessionCore core({.ended = 5, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(1));
  core.OnLoaded();
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 6u);
}

TEST(SessionCore, ANextLifeThatHasEndedBeforeLoadGoesOn) {
  SessionCore core({.ended = 2, .keep = {}});
  EndCalls(core, 2);
  EXPECT_FALSE(core.repeats());
  EndCalls(core, 1);
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(0));
  core.OnLoaded();
  EXPECT_EQ(core.keep(), (SessionKeep{3, 3, 0}));
}

TEST(SessionCore, ANextLifeFreesWhatTheLifeBeforeMayHaveLeft) {
  SessionCore core({.ended = 9, .keep = {1, 8, 3}});
  EndCalls(core, 1);
  core.OnLoaded();
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(2));
  EXPECT_THAT(core.TakeRest(), ElementsAre(3));
}

TEST(SessionCore, LoadAfterAnotherNumberOfCallsThanBeforeIsRefused) {
  SessionCore core({.ended = 7, .keep = {2, 5, 1}});
  EndCalls(core, 1);
  EXPECT_THAT(
      core.VersionToLoad(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("after call 1 of the group, and in the life before after call 2")));
  EndCalls(core, 2);
  EXPECT_THAT(core.VersionToLoad(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionCore, CallsWithNamesCanComeInAnotherOrderInANextLife) {
  SessionCore first({});
  EndCalls(first, 1);
  for (const char* name : {"a", "b"}) {
    ASSERT_THAT(first.boot_calls().Begin(name), IsOk());
    EXPECT_NE(first.keep().names, 0u);
    // The record, and the call.
    EndCalls(first, 2);
  }
  ASSERT_THAT(first.boot_calls().BeginLoad(), IsOk());
  EndCalls(first, 1);
  ASSERT_THAT(first.VersionToLoad(), IsOkAndHolds(0));
  first.OnLoaded();
  EndCalls(first, 1);
  first.OnCheckpoint();
  EXPECT_EQ(first.keep(), (SessionKeep{6, 7, 1, 1}));
  EXPECT_EQ(SessionKeep::Of(6, 7, first.keep().mark()), first.keep());

  SessionCore core({.ended = 9, .keep = {6, 7, 1, 1}});
  EndCalls(core, 1);
  ASSERT_EQ(core.boot_calls().last_record(), 6u);
  BootCalls names(0, 0, false);
  uint64_t number = 2;
  for (const char* name : {"a", "b"}) {
    core.boot_calls().AddRecord(number, **names.Begin(name));
    number += 2;
  }
  core.boot_calls().AddRecord(number, **names.BeginLoad());
  ASSERT_THAT(core.boot_calls().Begin("b"), IsOk());
  EXPECT_EQ(core.next_call(), 5u);
  EXPECT_TRUE(core.repeats());
  EndCalls(core, 1);
  // It leaves "a" out.
  ASSERT_THAT(core.boot_calls().BeginLoad(), IsOk());
  ASSERT_THAT(core.VersionToLoad(), IsOkAndHolds(1));
  core.OnLoaded();
  EXPECT_EQ(core.next_call(), 8u);
  EXPECT_EQ(core.keep(), first.keep());
}

TEST(SessionCore, LoadIsCalledOnceAndBeforeCheckpoint) {
  SessionCore core({});
  EndCalls(core, 1);
  EXPECT_THAT(core.CheckCheckpoint(), StatusIs(absl::StatusCode::kFailedPrecondition));
  core.OnLoaded();
  EXPECT_THAT(core.CheckCheckpoint(), IsOk());
  EXPECT_THAT(core.VersionToLoad(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(CheckpointName, DiffersByRunRankAndVersion) {
  EXPECT_EQ(CheckpointName("train", "worker", 255, 3, 12), "train/worker/00000000000000ff/3/12");
}

}  // namespace
}  // namespace phalanx::spmd::internal
