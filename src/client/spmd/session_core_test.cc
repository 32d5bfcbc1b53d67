#include "src/client/spmd/session_core.h"

#include <optional>
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
constexpr bool kGlobal = false;
constexpr bool kLocal = true;
constexpr bool kLazy = true;
constexpr bool kEager = false;

void EndCalls(SessionCore& core, int calls) {
  for (int i = 0; i < calls; ++i) core.OnCallEnded(kNeedsAll, 0);
}

// Two boot calls, three calls of version 0, and version 1.
SessionCore InVersionOne() {
  SessionCore core({});
  EndCalls(core, 2);
  core.OnLoaded(0, 0, kGlobal);
  EndCalls(core, 3);
  core.OnCheckpoint(kEager);
  return core;
}

TEST(SessionCore, AFirstLifeMakesAllCallsAndLoadsNothing) {
  SessionCore core({});
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 1u);
  EndCalls(core, 2);
  EXPECT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(0));
  core.OnLoaded(0, 0, kGlobal);
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
  core.OnLoaded(0, 0, kGlobal);
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
  core.OnLoaded(0, 0, kGlobal);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 0}));
  EndCalls(core, 3);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 0}));
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
  EndCalls(core, 1);
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 6, 2}));
}

TEST(SessionCore, ACheckpointIsFreedAfterTwoCallsOfTheNextVersionThatNeedAll) {
  SessionCore core = InVersionOne();
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCheckpoint(kEager);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kBroadcast, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  // It can have ended for this rank alone, whose node can end now.
  core.OnCallEnded(kNeedsAll, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kBroadcast, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kNeedsAll, 0);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1));
  core.OnCallEnded(kNeedsAll, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
}

TEST(SessionCore, TheSecondCallThatNeedsAllCanBeOfALaterVersion) {
  SessionCore core = InVersionOne();
  for (uint64_t version = 2; version < 6; ++version) {
    core.OnCheckpoint(kEager);
    core.OnCallEnded(kNeedsAll, 0);
    const std::vector<uint64_t> freed = core.TakeFreed();
    EXPECT_EQ(freed, version == 2 ? std::vector<uint64_t>{} : std::vector<uint64_t>{version - 2});
  }
}

TEST(SessionCore, SeveralCheckpointsWithoutACallBetweenThemAreFreedTogether) {
  SessionCore core = InVersionOne();
  core.OnCheckpoint(kEager);
  core.OnCheckpoint(kEager);
  EndCalls(core, 2);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1, 2));
  EXPECT_THAT(core.TakeRest(), ElementsAre(3));
}

TEST(SessionCore, ANextLifeRepeatsTheBootCallsAndThoseOfTheNewestVersion) {
  // As InVersionOne, and two calls have ended in version 1.
  SessionCore core({.ended = 7, .keep = {2, 5, 1}});
  EXPECT_TRUE(core.repeats());
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(1));
  core.OnLoaded(1, 5, kGlobal);
  EXPECT_EQ(core.next_call(), 6u);
  EXPECT_EQ(core.version(), 1u);
  for (int call = 6; call <= 7; ++call) {
    EXPECT_TRUE(core.repeats()) << call;
    core.OnCallEnded(kNeedsAll, 0);
  }
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 8u);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
  EXPECT_THAT(core.CheckCheckpoint(kGlobal), IsOk());
}

TEST(SessionCore, ANextLifeInTheFirstVersionRepeatsAllCalls) {
  SessionCore core({.ended = 4, .keep = {2, 2, 0}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(0));
  core.OnLoaded(0, 2, kGlobal);
  EXPECT_TRUE(core.repeats());
  EndCalls(core, 2);
  EXPECT_FALSE(core.repeats());
}

// The others have all gone on to version 2 without a call that has ended.
TEST(SessionCore, ANextLifeLoadsWhatTheNewestCallSaysAndNotMore) {
  SessionCore core({.ended = 5, .keep = {2, 2, 0}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(0));
  core.OnLoaded(0, 2, kGlobal);
  EndCalls(core, 3);
  EXPECT_FALSE(core.repeats());
  EXPECT_THAT(core.CheckCheckpoint(kGlobal), IsOk());
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1}));
}

// Two Broadcasts of version 2 have ended. What they say does not count: receivers can be behind.
TEST(SessionCore, ANextLifeWritesACheckpointAmongTheCallsThatItRepeats) {
  SessionCore core({.ended = 8, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  core.OnLoaded(1, 5, kGlobal);
  core.OnCallEnded(kNeedsAll, 0);
  ASSERT_TRUE(core.repeats());
  ASSERT_THAT(core.CheckCheckpoint(kGlobal), IsOk());
  core.OnCheckpoint(kEager);
  EXPECT_TRUE(core.repeats());
  core.OnCallEnded(kBroadcast, 0);
  core.OnCallEnded(kBroadcast, 0);
  EXPECT_FALSE(core.repeats());
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  EXPECT_EQ(core.keep(), (SessionKeep{2, 6, 2}));
}

// The first call of version 1 has ended at its root alone, and is made again.
TEST(SessionCore, ANextLifeMakesACallAgainWhoseVersionIsNew) {
  SessionCore core({.ended = 5, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(1));
  core.OnLoaded(1, 5, kGlobal);
  EXPECT_FALSE(core.repeats());
  EXPECT_EQ(core.next_call(), 6u);
}

TEST(SessionCore, ANextLifeThatHasEndedBeforeLoadGoesOn) {
  SessionCore core({.ended = 2, .keep = {}});
  EndCalls(core, 2);
  EXPECT_FALSE(core.repeats());
  EndCalls(core, 1);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(0));
  core.OnLoaded(0, 0, kGlobal);
  EXPECT_EQ(core.keep(), (SessionKeep{3, 3, 0}));
}

TEST(SessionCore, ANextLifeFreesWhatTheLifeBeforeMayHaveLeft) {
  SessionCore core({.ended = 9, .keep = {1, 8, 3}});
  EndCalls(core, 1);
  core.OnLoaded(3, 8, kGlobal);
  // A call before this life does not count: its result can be on one node alone.
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(2));
  EXPECT_THAT(core.TakeRest(), ElementsAre(3));
}

TEST(SessionCore, LoadAfterAnotherNumberOfCallsThanBeforeIsRefused) {
  SessionCore core({.ended = 7, .keep = {2, 5, 1}});
  EndCalls(core, 1);
  EXPECT_THAT(
      core.VersionToLoad(kGlobal),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("after call 1 of the group, and in the life before after call 2")));
  EndCalls(core, 2);
  EXPECT_THAT(core.VersionToLoad(kGlobal), StatusIs(absl::StatusCode::kInvalidArgument));
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
  ASSERT_THAT(first.VersionToLoad(kGlobal), IsOkAndHolds(0));
  first.OnLoaded(0, 0, kGlobal);
  EndCalls(first, 1);
  first.OnCheckpoint(/*lazy=*/false);
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
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(1));
  core.OnLoaded(1, 7, kGlobal);
  EXPECT_EQ(core.next_call(), 8u);
  EXPECT_EQ(core.keep(), first.keep());
}

TEST(SessionCore, LoadIsCalledOnceAndBeforeCheckpoint) {
  SessionCore core({});
  EndCalls(core, 1);
  EXPECT_THAT(core.CheckCheckpoint(kGlobal), StatusIs(absl::StatusCode::kFailedPrecondition));
  core.OnLoaded(0, 0, kGlobal);
  EXPECT_THAT(core.CheckCheckpoint(kGlobal), IsOk());
  EXPECT_THAT(core.VersionToLoad(kGlobal), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// ---- lazy checkpoints

// Version 1 is a lazy one; no member has died since.
SessionCore InLazyVersionOne() {
  SessionCore core({});
  core.OnCallEnded(kNeedsAll, core.SeenLosses(true));
  core.OnLoaded(0, 0, kGlobal);
  core.OnCallEnded(kNeedsAll, core.SeenLosses(true));
  EXPECT_TRUE(core.CanBeLazy());
  core.OnCheckpoint(kLazy);
  return core;
}

TEST(SessionCore, ALazyCheckpointIsSavedOnceAndOnlyAfterALoss) {
  SessionCore core = InLazyVersionOne();
  EXPECT_TRUE(core.lazy());
  EXPECT_EQ(core.ToSave(), std::nullopt);
  core.OnLoss();
  EXPECT_EQ(core.ToSave(), 1u);
  EXPECT_EQ(core.base(), 2u);
  core.OnSaved();
  EXPECT_FALSE(core.lazy());
  core.OnLoss();
  EXPECT_EQ(core.ToSave(), std::nullopt);
}

TEST(SessionCore, ALossBeforeALazyCheckpointCountsUntilACallOfAllLiveMembers) {
  SessionCore core = InLazyVersionOne();
  core.OnLoss();
  // Made before the next life has joined, it can have ended with the part of the life before.
  core.OnCallEnded(kNeedsAll, core.SeenLosses(false));
  core.OnCheckpoint(kLazy);
  EXPECT_EQ(core.ToSave(), 2u);
  // The next life.
  core.OnLoss();
  core.OnCallEnded(kBroadcast, core.SeenLosses(true));
  EXPECT_EQ(core.ToSave(), 2u);
  const uint64_t losses = core.SeenLosses(true);
  core.OnCallEnded(kNeedsAll, losses);
  EXPECT_EQ(core.ToSave(), std::nullopt);
  core.OnCheckpoint(kLazy);
  EXPECT_EQ(core.ToSave(), std::nullopt);
  // Seen within a call: it comes after what the call shows.
  core.OnLoss();
  core.OnCallEnded(kNeedsAll, losses);
  EXPECT_EQ(core.ToSave(), 3u);
}

TEST(SessionCore, ACheckpointIsLazyOnlyAfterACallThatNeedsAll) {
  SessionCore core = InLazyVersionOne();
  EXPECT_FALSE(core.CanBeLazy());
  core.OnCallEnded(kBroadcast, core.SeenLosses(true));
  EXPECT_FALSE(core.CanBeLazy());
  core.OnCheckpoint(kEager);
  EXPECT_FALSE(core.lazy());
  core.OnCallEnded(kNeedsAll, core.SeenLosses(true));
  EXPECT_TRUE(core.CanBeLazy());
}

TEST(SessionCore, ANextLifeMayLoadALaterVersionIfTheCallsBeforeItHaveEnded) {
  SessionCore core({.ended = 9, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kGlobal), IsOkAndHolds(1));
  EXPECT_TRUE(core.CanLoad(1, 5));
  EXPECT_FALSE(core.CanLoad(1, 6));
  EXPECT_FALSE(core.CanLoad(0, 2));
  EXPECT_TRUE(core.CanLoad(2, 9));
  EXPECT_FALSE(core.CanLoad(2, 10));
  EXPECT_TRUE(core.CanLoad(3, 9));
  EXPECT_FALSE(core.CanLoad(4, 9));
  core.OnLoaded(2, 8, kGlobal);
  EXPECT_EQ(core.version(), 2u);
  EXPECT_EQ(core.next_call(), 9u);
  EXPECT_TRUE(core.repeats());
  EXPECT_EQ(core.keep(), (SessionKeep{2, 8, 2}));
}

// ---- local models

TEST(SessionCore, WithLocalModelsACallSaysWhereTheVersionBeforeBegan) {
  SessionCore core({});
  EndCalls(core, 2);
  core.OnLoaded(0, 0, kLocal);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 0, 0, true}));
  EXPECT_EQ(core.LocalToAwait(), std::nullopt);
  EndCalls(core, 3);
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 1, 0, true}));
  EXPECT_EQ(core.LocalToAwait(), 1u);
  EndCalls(core, 1);
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 2, 0, true}));
  EXPECT_EQ(core.LocalToAwait(), 2u);
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCheckpoint(kEager);
  core.OnCallEnded(kBroadcast, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kNeedsAll, 0);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  core.OnCallEnded(kNeedsAll, 0);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1));
  EXPECT_THAT(core.TakeRest(), ElementsAre(2, 3));
}

// A call of version 4 that has ended here alone is forgotten with this node. Then the next life
// needs its local model of version 2.
TEST(SessionCore, AfterAVersionWithoutACallThatNeedsAllLocalModelsAreFreedLater) {
  SessionCore core({});
  EndCalls(core, 2);
  core.OnLoaded(0, 0, kLocal);
  for (int version = 1; version <= 2; ++version) {
    EndCalls(core, 1);
    core.OnCheckpoint(kEager);
  }
  EndCalls(core, 1);
  core.OnCheckpoint(kEager);
  core.OnCallEnded(kBroadcast, 0);
  core.OnCheckpoint(kEager);
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), IsEmpty());
  EndCalls(core, 1);
  EXPECT_THAT(core.TakeFreed(), ElementsAre(1, 2));
}

TEST(SessionCore, ANextLifeTakesItsLocalModelOfTheNewestVersionOrOfTheOneBefore) {
  const SessionProgress progress{.ended = 9, .keep = {2, 5, 3, 0, true}};
  for (const uint64_t version : {2, 3}) {
    SessionCore core(progress);
    EndCalls(core, 2);
    ASSERT_THAT(core.VersionToLoad(kLocal), IsOkAndHolds(3));
    EXPECT_TRUE(core.CanLoad(3, 8));
    EXPECT_FALSE(core.CanLoad(3, 10));
    EXPECT_TRUE(core.CanLoad(2, 5));
    EXPECT_FALSE(core.CanLoad(2, 4));
    EXPECT_FALSE(core.CanLoad(1, 5));
    EXPECT_FALSE(core.CanLoad(4, 9));
    EXPECT_EQ(core.GlobalOf(version), version);
    core.OnLoaded(version, version == 3 ? 8 : 5, kLocal);
    if (version == 2) {
      EndCalls(core, 3);
      EXPECT_THAT(core.TakeFreed(), IsEmpty());
      core.OnCheckpoint(kEager);
    }
    EXPECT_EQ(core.version(), 3u);
    EXPECT_TRUE(core.repeats());
    EndCalls(core, 1);
    EXPECT_FALSE(core.repeats());
    EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 3, 0, true}));
    EndCalls(core, 1);
    EXPECT_THAT(core.TakeFreed(), ElementsAre(1));
    core.OnCheckpoint(kEager);
    EXPECT_EQ(core.keep(), (SessionKeep{2, 8, 4, 0, true}));
  }
}

TEST(SessionCore, ANextLifeThatHasNoLocalModelOfVersionOneBeginsWithVersionZero) {
  SessionCore core({.ended = 6, .keep = {2, 2, 1, 0, true}});
  EndCalls(core, 2);
  ASSERT_THAT(core.VersionToLoad(kLocal), IsOkAndHolds(1));
  core.OnLoaded(0, 0, kLocal);
  EXPECT_EQ(core.version(), 0u);
  EXPECT_EQ(core.next_call(), 3u);
  EndCalls(core, 3);
  core.OnCheckpoint(kEager);
  EXPECT_EQ(core.keep(), (SessionKeep{2, 2, 1, 0, true}));
  EXPECT_TRUE(core.repeats());
}

TEST(SessionCore, CheckpointsWithAndWithoutLocalModelsAreNotMixed) {
  SessionCore core({.ended = 7, .keep = {2, 5, 1}});
  EndCalls(core, 2);
  EXPECT_THAT(core.VersionToLoad(kLocal), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("in the life before it was without")));
  core.OnLoaded(1, 5, kGlobal);
  EXPECT_THAT(core.CheckCheckpoint(kLocal),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Load was without one")));
  SessionCore with_local({});
  EndCalls(with_local, 1);
  with_local.OnLoaded(0, 0, kLocal);
  EXPECT_THAT(with_local.CheckCheckpoint(kGlobal), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(with_local.CheckCheckpoint(kLocal), IsOk());
}

// ---- disks

TEST(SessionCore, AJobThatGoesOnFromDisksCountsTheCallsOfLoadApart) {
  for (const bool local : {kGlobal, kLocal}) {
    SessionCore core({});
    EndCalls(core, 2);
    ASSERT_THAT(core.VersionToLoad(local), IsOkAndHolds(0));
    ASSERT_TRUE(core.begins());
    EndCalls(core, 3);
    core.OnRestored(12, 2, local);
    EXPECT_EQ(core.version(), 12u);
    const SessionKeep keep{2, 5, 12, 0, local, /*restored=*/true};
    EXPECT_EQ(core.keep(), keep);
    EndCalls(core, 2);
    EXPECT_EQ(core.TakeFreed(), local ? std::vector<uint64_t>() : std::vector<uint64_t>{11});
    // A next life repeats the calls before Load, and loads what the others have written there.
    SessionCore next({.ended = 6, .keep = keep});
    EndCalls(next, 2);
    ASSERT_THAT(next.VersionToLoad(local), IsOkAndHolds(12));
    EXPECT_FALSE(next.begins());
    ASSERT_TRUE(next.CanLoad(12, 5));
    next.OnLoaded(12, 5, local);
    EXPECT_EQ(next.next_call(), 6u);
    EXPECT_EQ(next.keep(), keep);
    EXPECT_TRUE(next.restored());
  }
}

// Its calls of Load can be several also if it has begun with version 0.
TEST(SessionCore, ALifeWithLocalModelsKnowsWhetherItsRunHasBegunWithVersionZero) {
  for (const uint64_t version : {0, 1}) {
    SessionCore core({});
    EndCalls(core, 2);
    ASSERT_THAT(core.VersionToLoad(kLocal), IsOkAndHolds(0));
    EndCalls(core, 3);
    core.OnRestored(version, 2, kLocal);
    if (version == 0) core.OnCheckpoint(/*lazy=*/false);
    EXPECT_EQ(core.keep(), (SessionKeep{2, 5, 1, 0, kLocal, version == 1}));
    SessionCore next({.ended = 6, .keep = core.keep()});
    EndCalls(next, 2);
    ASSERT_THAT(next.VersionToLoad(kLocal), IsOkAndHolds(1));
    EXPECT_EQ(next.CanBeginAnew(), version == 0);
  }
}

TEST(SessionKeep, SaysInItsMarkWhetherThereAreLocalModels) {
  const SessionKeep keep{2, 5, 3, 0, true};
  EXPECT_EQ(SessionKeep::Of(2, 5, keep.mark()), keep);
  const SessionKeep restored{2, 5, 3, 0, false, true};
  EXPECT_EQ(SessionKeep::Of(2, 5, restored.mark()), restored);
  EXPECT_EQ((SessionKeep{2, 5, 3}.mark()), 3u);
  EXPECT_EQ(SessionKeep::Of(2, 5, 3), (SessionKeep{2, 5, 3}));
}

TEST(CheckpointMetadata, HasTheLastCallBeforeTheVersion) {
  EXPECT_THAT(BaseOf(CheckpointMetadata(57)), IsOkAndHolds(57u));
  for (const char* wrong : {"", "57", "after call ", "after call x"}) {
    EXPECT_THAT(BaseOf(wrong), StatusIs(absl::StatusCode::kDataLoss)) << wrong;
  }
}

TEST(CheckpointName, DiffersByRunRankAndVersion) {
  EXPECT_EQ(CheckpointName("train", "worker", 255, 3, 12), "train/worker/00000000000000ff/3/12");
}

}  // namespace
}  // namespace phalanx::spmd::internal
