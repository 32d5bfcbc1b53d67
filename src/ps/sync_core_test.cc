// BSP, SSP and ASP in cases that are worked out by hand, and under random schedules against a model
// that keeps everything and looks at all of it each time.
#include "src/ps/sync_core.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Token = SyncCore::Token;

SyncCore Core(Sync sync, int workers, uint32_t staleness = 0) {
  return SyncCore({.table = "t", .sync = sync, .staleness = staleness, .workers = workers});
}

std::string Text(const SyncCore::Effect& effect) {
  if (const auto* apply = std::get_if<SyncCore::Apply>(&effect)) {
    return absl::StrCat("apply ", apply->push, " of ", apply->worker);
  }
  if (const auto* turn = std::get_if<SyncCore::Turn>(&effect)) {
    return absl::StrCat("turn ", turn->clock, ": ", absl::StrJoin(turn->pushes, " "));
  }
  if (const auto* answer = std::get_if<SyncCore::Answer>(&effect)) {
    return absl::StrCat("answer ", answer->pull);
  }
  return absl::StrCat("drop ", std::get<SyncCore::Drop>(effect).push);
}

std::vector<std::string> Take(SyncCore& core) {
  std::vector<std::string> texts;
  for (const SyncCore::Effect& effect : core.TakeEffects()) texts.push_back(Text(effect));
  return texts;
}

// Ends the worker's present clock.
void End(SyncCore& core, int worker) {
  EXPECT_THAT(core.Clock(worker, core.clocks().of(worker)), IsOkAndHolds(true));
}

// ---- Clocks

TEST(Clocks, TheLeastRisesWithTheLastWorker) {
  Clocks clocks(2);
  EXPECT_FALSE(clocks.Advance(0));
  EXPECT_TRUE(clocks.Advance(1));
  EXPECT_EQ(clocks.min(), 1u);
  EXPECT_FALSE(clocks.Advance(1));
  EXPECT_FALSE(clocks.Advance(1));
  EXPECT_EQ(clocks.min(), 1u);
  EXPECT_TRUE(clocks.Advance(0));
  EXPECT_EQ(clocks.min(), 2u);
  EXPECT_EQ(clocks.slowest(), 0);
}

// Raising the least clock by one leaves nobody at it, so that it never rises again.
TEST(Clocks, WithoutAStragglerTheLeastIsThatOfTheOthers) {
  Clocks clocks(2);
  for (int i = 0; i < 5; ++i) clocks.Advance(1);
  EXPECT_TRUE(clocks.Remove(0));
  EXPECT_EQ(clocks.min(), 5u);
  EXPECT_TRUE(clocks.Advance(1));
  EXPECT_EQ(clocks.min(), 6u);
  EXPECT_EQ(clocks.Rejoin(0), 6u);
  EXPECT_FALSE(clocks.Advance(1));
  EXPECT_TRUE(clocks.Advance(0));
  EXPECT_EQ(clocks.min(), 7u);
}

TEST(Clocks, RemovingAFastWorkerChangesNothing) {
  Clocks clocks(3);
  clocks.Advance(2);
  EXPECT_FALSE(clocks.Remove(2));
  EXPECT_FALSE(clocks.Remove(2));
  EXPECT_EQ(clocks.min(), 0u);
  EXPECT_FALSE(clocks.counted(2));
  EXPECT_EQ(clocks.of(2), 1u);
  EXPECT_EQ(clocks.Rejoin(2), 1u);
}

TEST(Clocks, WithNoWorkerTheLeastStays) {
  Clocks clocks(2);
  for (int i = 0; i < 3; ++i) clocks.Advance(0);
  clocks.Advance(1);
  clocks.Remove(0);
  EXPECT_FALSE(clocks.Remove(1));
  EXPECT_EQ(clocks.min(), 1u);
  EXPECT_EQ(clocks.slowest(), -1);
  Clocks loaded(2);
  loaded.Load(clocks.Save(), clocks.min());
  EXPECT_EQ(loaded.min(), 1u);
  // The first that comes back is the least one.
  EXPECT_EQ(loaded.Rejoin(0), 3u);
  EXPECT_EQ(loaded.min(), 3u);
  EXPECT_EQ(loaded.Rejoin(1), 3u);
}

// ---- by hand

TEST(SyncCore, BspPushesAreInvisibleUntilTheClockTurns) {
  SyncCore core = Core(Sync::kBsp, 2);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 100), IsOkAndHolds(true));
  End(core, 0);
  PHALANX_EXPECT_OK(core.Pull(1, 0, 1));
  EXPECT_THAT(Take(core), ElementsAre("answer 1"));
  PHALANX_EXPECT_OK(core.Pull(0, 1, 2));
  EXPECT_THAT(Take(core), IsEmpty());
  ASSERT_EQ(core.parked().size(), 1u);
  EXPECT_EQ(core.parked()[0].worker, 0);
  EXPECT_EQ(core.parked()[0].clock, 1u);
  EXPECT_EQ(core.parked()[0].on, 1);
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 100", "answer 2"));
  PHALANX_EXPECT_OK(core.Pull(1, 1, 3));
  EXPECT_THAT(Take(core), ElementsAre("answer 3"));
}

TEST(SyncCore, BspFoldsInTheOrderOfWorkersNotOfArrival) {
  SyncCore core = Core(Sync::kBsp, 3);
  EXPECT_THAT(core.Push(2, {0, 1, 0}, 20), IsOkAndHolds(true));
  EXPECT_THAT(core.Push(1, {0, 1, 0}, 10), IsOkAndHolds(true));
  EXPECT_THAT(core.Push(1, {0, 1, 1}, 11), IsOkAndHolds(true));
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 0), IsOkAndHolds(true));
  EXPECT_THAT(core.Push(1, {0, 2, 0}, 12), IsOkAndHolds(true));
  for (const int worker : {1, 2, 0}) End(core, worker);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 0 10 11 12 20"));
}

// A worker that pushes without pulling is ahead of the others by any number of clocks.
TEST(SyncCore, BspKeepsPushesOfLaterClocks) {
  SyncCore core = Core(Sync::kBsp, 2);
  for (uint64_t clock = 0; clock < 3; ++clock) {
    EXPECT_THAT(core.Push(0, {clock, 1, 0}, clock), IsOkAndHolds(true));
    PHALANX_EXPECT_OK(core.Pull(0, clock, 100 + clock));
    End(core, 0);
  }
  EXPECT_THAT(Take(core), ElementsAre("answer 100"));
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 0", "answer 101"));
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("turn 1: 1", "answer 102"));
}

TEST(SyncCore, SspParksAPullThatIsTooFarAhead) {
  SyncCore core = Core(Sync::kSsp, 2, 2);
  for (int i = 0; i < 3; ++i) End(core, 0);
  PHALANX_EXPECT_OK(core.Pull(0, 3, 1));
  EXPECT_THAT(Take(core), IsEmpty());
  ASSERT_EQ(core.parked().size(), 1u);
  EXPECT_EQ(core.parked()[0].on, 1);
  EXPECT_THAT(core.Push(1, {0, 1, 0}, 7), IsOkAndHolds(true));
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("apply 7 of 1", "answer 1"));
}

// With all others frozen a worker completes exactly s + 1 iterations, then its pull waits.
TEST(SyncCore, SspWithAFrozenWorker) {
  for (uint32_t staleness = 0; staleness <= 5; ++staleness) {
    SyncCore core = Core(Sync::kSsp, 3, staleness);
    uint64_t done = 0;
    while (true) {
      PHALANX_ASSERT_OK(core.Pull(0, done, 1));
      if (Take(core).empty()) break;
      End(core, 0);
      ++done;
    }
    EXPECT_EQ(done, staleness + 1);
  }
}

TEST(SyncCore, AspAnswersAtOnce) {
  SyncCore core = Core(Sync::kAsp, 3);
  for (uint64_t round = 0; round < 1000; ++round) {
    for (const int worker : {1, 2}) {
      EXPECT_THAT(core.Push(worker, {round, 1, 0}, round), IsOkAndHolds(true));
      PHALANX_EXPECT_OK(core.Pull(worker, round, round));
      EXPECT_THAT(Take(core), ElementsAre(absl::StrCat("apply ", round, " of ", worker),
                                          absl::StrCat("answer ", round)));
      End(core, worker);
    }
  }
  EXPECT_THAT(core.parked(), IsEmpty());
  EXPECT_EQ(core.min(), 0u);
}

TEST(SyncCore, RemovalReleasesAllThatWaited) {
  SyncCore core = Core(Sync::kBsp, 2);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 50), IsOkAndHolds(true));
  for (uint64_t clock = 0; clock < 5; ++clock) {
    EXPECT_THAT(core.Push(1, {clock, 1, 0}, clock), IsOkAndHolds(true));
    End(core, 1);
    PHALANX_EXPECT_OK(core.Pull(1, clock + 1, 100 + clock + 1));
  }
  PHALANX_EXPECT_OK(core.Pull(0, 0, 200));
  EXPECT_THAT(Take(core), ElementsAre("answer 200"));
  core.Remove(0);
  EXPECT_EQ(core.min(), 5u);
  // Each sees the turns before its clock and no other.
  EXPECT_THAT(Take(core), ElementsAre("drop 50", "turn 0: 0", "answer 101", "turn 1: 1",
                                      "answer 102", "turn 2: 2", "answer 103", "turn 3: 3",
                                      "answer 104", "turn 4: 4", "answer 105"));
  EXPECT_THAT(core.Clock(0, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr("table \"t\""), HasSubstr("worker 0"),
                                               HasSubstr("dropped"), HasSubstr("clock 0"))));
  EXPECT_EQ(core.Rejoin(0), 5u);
  End(core, 1);
  PHALANX_EXPECT_OK(core.Pull(1, 6, 106));
  EXPECT_THAT(Take(core), IsEmpty());
  End(core, 0);
  EXPECT_THAT(Take(core), ElementsAre("answer 106"));
}

// Also when that comes from a snapshot with any bytes.
TEST(SyncCore, ClocksRiseByAnyNumberAtOnce) {
  SyncCore core = Core(Sync::kBsp, 2);
  const uint64_t far = kMaxClock - 1;
  PHALANX_ASSERT_OK(core.Load({.clocks = {{3, true}, {far, true}},
                               .positions = {{3, 0, 0}, {far, 1, 0}},
                               .kept = {{1, {far - 1, 1, 0}, 2}},
                               .min = 3}));
  PHALANX_EXPECT_OK(core.Pull(1, far, 100));
  core.Remove(0);
  EXPECT_THAT(Take(core), ElementsAre(absl::StrCat("turn ", far - 1, ": 2"), "answer 100"));
  EXPECT_EQ(core.min(), far);
}

// What a dropped worker had ended counts; what it makes again counts once.
TEST(SyncCore, RemovalDropsOnlyTheClockThatHasNotEnded) {
  SyncCore core = Core(Sync::kBsp, 2);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 1), IsOkAndHolds(true));
  End(core, 0);
  EXPECT_THAT(core.Push(0, {1, 1, 0}, 2), IsOkAndHolds(true));
  core.Remove(0);
  core.Remove(0);
  EXPECT_THAT(Take(core), ElementsAre("drop 2"));
  EXPECT_EQ(core.Rejoin(0), 1u);
  EXPECT_EQ(core.PositionOf(0), (Position{1, 0, 0}));
  EXPECT_THAT(core.Push(0, {1, 1, 0}, 3), IsOkAndHolds(true));
  End(core, 0);
  End(core, 1);
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 1", "turn 1: 3"));
}

// Its pushes have counted already, and no other push can take them back.
TEST(SyncCore, SspKeepsPositionsOverRemoval) {
  SyncCore core = Core(Sync::kSsp, 2, 1);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 1), IsOkAndHolds(true));
  core.Remove(0);
  EXPECT_EQ(core.Rejoin(0), 0u);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 2), IsOkAndHolds(false));
  EXPECT_THAT(core.Push(0, {0, 2, 0}, 3), IsOkAndHolds(true));
  EXPECT_THAT(Take(core), ElementsAre("apply 1 of 0", "apply 3 of 0"));
}

TEST(SyncCore, WhatComesAgainIsIgnored) {
  for (const Sync sync : {Sync::kBsp, Sync::kSsp, Sync::kAsp}) {
    SyncCore core = Core(sync, 2);
    EXPECT_THAT(core.Push(0, {0, 1, 0}, 1), IsOkAndHolds(true));
    EXPECT_THAT(core.Push(0, {0, 1, 0}, 2), IsOkAndHolds(false));
    EXPECT_THAT(core.Push(0, {0, 1, 1}, 3), IsOkAndHolds(true));
    EXPECT_THAT(core.Push(0, {0, 1, 0}, 4), IsOkAndHolds(false));
    EXPECT_EQ(core.PositionOf(0), (Position{0, 1, 1}));
    End(core, 0);
    EXPECT_EQ(core.PositionOf(0), (Position{1, 0, 0}));
    EXPECT_THAT(core.Clock(0, 0), IsOkAndHolds(false));
    EXPECT_THAT(core.Push(0, {0, 9, 0}, 5), IsOkAndHolds(false));
    EXPECT_EQ(core.clocks().of(0), 1u);
    End(core, 1);
    if (sync == Sync::kBsp) {
      EXPECT_THAT(Take(core), ElementsAre("turn 0: 1 3"));
    } else {
      EXPECT_THAT(Take(core), ElementsAre("apply 1 of 0", "apply 3 of 0"));
    }
  }
}

TEST(SyncCore, AMarkMovesThePositionAlone) {
  SyncCore core = Core(Sync::kBsp, 1);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 1), IsOkAndHolds(true));
  EXPECT_THAT(core.Push(0, {0, kAllPushes, 0}, 2), IsOkAndHolds(false));
  EXPECT_EQ(core.PositionOf(0), (Position{0, kAllPushes, 0}));
  // A next life that makes more pushes than the one before.
  EXPECT_THAT(core.Push(0, {0, 2, 0}, 3), IsOkAndHolds(false));
  PHALANX_EXPECT_OK(Core(Sync::kBsp, 1).Load(core.Save()));
  End(core, 0);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 1"));
}

TEST(SyncCore, RefusesClocksThatAreNotReachedAndWorkersThatAreNotThere) {
  SyncCore core = Core(Sync::kBsp, 2);
  End(core, 1);
  const auto wrong = [](const char* clock, const char* at) {
    return StatusIs(
        absl::StatusCode::kInvalidArgument,
        AllOf(HasSubstr("table \"t\""), HasSubstr("worker 1"), HasSubstr(clock), HasSubstr(at)));
  };
  EXPECT_THAT(core.Push(1, {2, 1, 0}, 1), wrong("of clock 2", "is at clock 1"));
  EXPECT_THAT(core.Clock(1, 3), wrong("of clock 3", "is at clock 1"));
  EXPECT_THAT(core.Pull(1, 4, 1), wrong("of clock 4", "is at clock 1"));
  EXPECT_THAT(core.Push(1, {1, 0, 0}, 1), wrong("clock 1", "numbered from 1"));
  for (const int worker : {-1, 2}) {
    EXPECT_THAT(core.Push(worker, {0, 1, 0}, 1), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(core.Clock(worker, 0), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(core.Pull(worker, 0, 1), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Take(core), IsEmpty());
}

// The next life of a worker asks again.
TEST(SyncCore, ForgottenPullsAreNotAnswered) {
  SyncCore core = Core(Sync::kBsp, 3);
  End(core, 0);
  End(core, 1);
  PHALANX_EXPECT_OK(core.Pull(0, 1, 1));
  PHALANX_EXPECT_OK(core.Pull(1, 1, 2));
  PHALANX_EXPECT_OK(core.Pull(0, 1, 3));
  core.Forget(0);
  ASSERT_EQ(core.parked().size(), 1u);
  EXPECT_EQ(core.parked()[0].worker, 1);
  PHALANX_EXPECT_OK(core.Pull(0, 1, 4));
  End(core, 2);
  EXPECT_THAT(Take(core), ElementsAre("answer 2", "answer 4"));
  // Of a clock that has ended: with what there is now.
  PHALANX_EXPECT_OK(core.Pull(0, 0, 5));
  EXPECT_THAT(Take(core), ElementsAre("answer 5"));
}

TEST(SyncCore, LoadsOnlyWhatCanHaveBeenSaved) {
  SyncCore core = Core(Sync::kBsp, 2);
  EXPECT_THAT(core.Push(0, {0, 1, 0}, 5), IsOkAndHolds(true));
  End(core, 0);
  EXPECT_THAT(core.Push(0, {1, 1, 0}, 6), IsOkAndHolds(true));
  const SyncCore::Saved good = core.Save();
  ASSERT_EQ(good.kept.size(), 2u);
  PHALANX_EXPECT_OK(Core(Sync::kBsp, 2).Load(good));
  using Change = std::function<void(SyncCore::Saved&)>;
  for (const Change& change : std::vector<Change>{
           [](auto& saved) { saved.clocks.pop_back(); },
           [](auto& saved) { saved.positions.emplace_back(); },
           [](auto& saved) { saved.min = 1; },
           [](auto& saved) { saved.positions[0].clock = 2; },
           [](auto& saved) { saved.clocks[1].clock = 1; },
           [](auto& saved) { saved.clocks[1].clock = saved.positions[1].clock = ~uint64_t{0}; },
           [](auto& saved) {
             saved.min = ~uint64_t{0}, saved.clocks = {{0, false}, {0, false}};
           },
           [](auto& saved) { saved.kept[1].worker = 2; },
           [](auto& saved) { saved.kept[1].worker = -1; },
           [](auto& saved) { saved.kept[1].worker = 1; },
           [](auto& saved) { saved.kept[1].at.push = 2; },
           [](auto& saved) { saved.kept[1].at.clock = 2; },
           [](auto& saved) { saved.kept[0].at.push = 0; },
           [](auto& saved) { saved.kept[0].at.push = kAllPushes; },
           [](auto& saved) { saved.kept[1] = saved.kept[0]; },
           [](auto& saved) { saved.clocks[0].clock = saved.clocks[1].clock = 3; },
       }) {
    SyncCore::Saved bad = good;
    change(bad);
    EXPECT_THAT(core.Load(bad), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Core(Sync::kSsp, 2).Load(good), StatusIs(absl::StatusCode::kInvalidArgument));
  // A refused one changes nothing.
  End(core, 1);
  EXPECT_THAT(Take(core), ElementsAre("turn 0: 5"));
}

// ---- random schedules

// Everything that was ever accepted. Each question looks at all of it.
class Model {
 public:
  Model(Sync sync, uint32_t staleness, int workers)
      : sync_(sync), staleness_(staleness), clock_(workers, 0), counted_(workers, true) {}

  uint64_t clock(int worker) const { return clock_[worker]; }
  bool counted(int worker) const { return counted_[worker]; }
  uint64_t Min() {
    uint64_t least = ~uint64_t{0};
    for (size_t i = 0; i < clock_.size(); ++i) {
      if (counted_[i]) least = std::min(least, clock_[i]);
    }
    if (least != ~uint64_t{0}) min_ = std::max(min_, least);
    return min_;
  }

  void Push(int worker, const Position& at, Token push) {
    pushes_.push_back({at.clock, worker, at, push});
  }
  void Clock(int worker) { ++clock_[worker]; }
  void Pull(int worker, uint64_t clock, Token pull) { waiting_[pull] = {worker, clock}; }
  void Forget(int worker) {
    std::erase_if(waiting_, [&](const auto& pull) { return pull.second.worker == worker; });
  }
  void Remove(int worker) {
    Forget(worker);
    counted_[worker] = false;
    if (sync_ != Sync::kBsp) return;
    for (const Pushed& pushed : pushes_) {
      if (pushed.worker == worker && pushed.clock >= clock_[worker]) to_drop_.insert(pushed.token);
    }
    std::erase_if(pushes_, [&](const Pushed& pushed) {
      return pushed.worker == worker && pushed.clock >= clock_[worker];
    });
  }
  void Rejoin(int worker) {
    counted_[worker] = true;
    clock_[worker] = std::max(clock_[worker], min_);
  }

  // Checks the effects of one event, which is in the model already.
  void Check(const std::vector<SyncCore::Effect>& effects) {
    const uint64_t min = Min();
    for (const SyncCore::Effect& effect : effects) {
      if (const auto* apply = std::get_if<SyncCore::Apply>(&effect)) {
        EXPECT_NE(sync_, Sync::kBsp);
        EXPECT_TRUE(applied_.insert(apply->push).second) << "twice";
      } else if (const auto* turn = std::get_if<SyncCore::Turn>(&effect)) {
        EXPECT_EQ(sync_, Sync::kBsp);
        SkipEmpty(turn->clock);
        EXPECT_FALSE(turn->pushes.empty());
        EXPECT_EQ(turn->clock, turned_++);
        EXPECT_LE(turned_, min);
        EXPECT_EQ(turn->pushes, Of(turn->clock));
      } else if (const auto* drop = std::get_if<SyncCore::Drop>(&effect)) {
        EXPECT_EQ(to_drop_.erase(drop->push), 1u);
      } else {
        CheckAnswer(std::get<SyncCore::Answer>(effect).pull, min);
      }
    }
    EXPECT_TRUE(to_drop_.empty());
    if (sync_ == Sync::kBsp) {
      SkipEmpty(min);
      EXPECT_EQ(turned_, min);
    } else {
      EXPECT_EQ(applied_.size(), pushes_.size());
    }
    for (const auto& [token, pull] : waiting_) {
      EXPECT_NE(sync_, Sync::kAsp);
      EXPECT_GT(pull.clock, min + staleness_) << "may be answered";
    }
    for (auto& [token, pull] : waiting_) pull.parked = true;
  }

  struct Waiting {
    int worker;
    uint64_t clock;
    bool parked = false;
  };
  const std::map<Token, Waiting>& waiting() const { return waiting_; }

 private:
  struct Pushed {
    uint64_t clock;
    int worker;
    Position at;
    Token token;
  };

  std::vector<Token> Of(uint64_t clock) const {
    std::vector<Pushed> of;
    std::copy_if(pushes_.begin(), pushes_.end(), std::back_inserter(of),
                 [clock](const Pushed& pushed) { return pushed.clock == clock; });
    std::sort(of.begin(), of.end(), [](const Pushed& a, const Pushed& b) {
      return std::tie(a.worker, a.at) < std::tie(b.worker, b.at);
    });
    std::vector<Token> tokens;
    for (const Pushed& pushed : of) tokens.push_back(pushed.token);
    return tokens;
  }

  // Clocks without pushes turn without an effect.
  void SkipEmpty(uint64_t upto) {
    while (turned_ < upto && Of(turned_).empty()) ++turned_;
  }

  void CheckAnswer(Token token, uint64_t min) {
    const auto at = waiting_.find(token);
    ASSERT_NE(at, waiting_.end()) << "answered twice, or forgotten";
    const Waiting pull = at->second;
    waiting_.erase(at);
    if (sync_ == Sync::kBsp) {
      // What there was when clock c began. A pull of an ended clock sees what there is.
      const uint64_t expected = pull.parked ? pull.clock : std::max(pull.clock, min);
      SkipEmpty(expected);
      EXPECT_EQ(turned_, expected);
      return;
    }
    if (sync_ == Sync::kSsp) {
      EXPECT_LE(pull.clock, min + staleness_);
    }
    for (const Pushed& pushed : pushes_) {
      const bool own = pushed.worker == pull.worker;
      if (own || pushed.clock + staleness_ < pull.clock) {
        EXPECT_EQ(applied_.count(pushed.token), 1u);
      }
    }
  }

  const Sync sync_;
  const uint32_t staleness_;
  std::vector<uint64_t> clock_;
  std::vector<bool> counted_;
  uint64_t min_ = 0;
  uint64_t turned_ = 0;
  std::vector<Pushed> pushes_;
  std::set<Token> applied_;
  std::set<Token> to_drop_;
  std::map<Token, Waiting> waiting_;
};

// Workers that push, clock and pull at random, send again what they have sent, die and come back.
class Schedule {
 public:
  Schedule(uint64_t seed, Sync sync)
      : random_(seed),
        workers_(2 + static_cast<int>(random_.Below(7))),
        staleness_(sync == Sync::kSsp ? static_cast<uint32_t>(random_.Below(6)) : 0),
        core_({.table = "t", .sync = sync, .staleness = staleness_, .workers = workers_}),
        model_(sync, staleness_, workers_),
        number_(workers_, 0) {}

  void Step() {
    const int worker = static_cast<int>(random_.Below(workers_));
    const uint64_t chance = random_.Below(100);
    if (!model_.counted(worker)) {
      if (chance < 30) Rejoin(worker);
    } else if (chance < 2) {
      core_.Remove(worker);
      model_.Remove(worker);
      number_[worker] = 0;
    } else if (chance < 4) {
      core_.Forget(worker);
      model_.Forget(worker);
    } else if (chance < 40) {
      Push(worker);
    } else if (chance < 70) {
      Pull(worker);
    } else if (chance < 75) {
      Again(worker);
    } else {
      End(core_, worker);
      model_.Clock(worker);
      number_[worker] = 0;
    }
    model_.Check(core_.TakeEffects());
    EXPECT_EQ(core_.min(), model_.Min());
    EXPECT_EQ(core_.parked().size(), model_.waiting().size());
  }

 private:
  void Rejoin(int worker) {
    model_.Rejoin(worker);
    EXPECT_EQ(core_.Rejoin(worker), model_.clock(worker));
    number_[worker] = core_.PositionOf(worker).push;
  }
  void Push(int worker) {
    const Position at = {model_.clock(worker), ++number_[worker],
                         static_cast<uint32_t>(random_.Below(3))};
    EXPECT_THAT(core_.Push(worker, at, next_), IsOkAndHolds(true));
    model_.Push(worker, at, next_++);
  }
  void Pull(int worker) {
    const uint64_t clock = model_.clock(worker);
    const uint64_t of = random_.Chance(0.1) ? random_.Below(clock + 1) : clock;
    PHALANX_EXPECT_OK(core_.Pull(worker, of, next_));
    model_.Pull(worker, of, next_++);
  }
  void Again(int worker) {
    const uint64_t clock = model_.clock(worker);
    if (number_[worker] > 0) {
      const auto push = static_cast<uint32_t>(1 + random_.Below(number_[worker]));
      EXPECT_THAT(core_.Push(worker, {clock, push, 0}, next_++), IsOkAndHolds(false));
    }
    if (clock > 0) {
      const uint64_t old = random_.Below(clock);
      EXPECT_THAT(core_.Clock(worker, old), IsOkAndHolds(false));
      EXPECT_THAT(core_.Push(worker, {old, 1000, 0}, next_++), IsOkAndHolds(false));
    }
  }

  Random random_;
  const int workers_;
  const uint32_t staleness_;
  SyncCore core_;
  Model model_;
  std::vector<uint32_t> number_;
  Token next_ = 1;
};

TEST(SyncCore, RandomSchedulesAgainstTheModel) {
  const uint64_t first = testing::TestSeed(1);
  const uint64_t last = testing::SeedGiven() ? first : first + 99;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    for (const Sync sync : {Sync::kBsp, Sync::kSsp, Sync::kAsp}) {
      SCOPED_TRACE(SyncName(sync));
      Schedule schedule(seed, sync);
      for (int i = 0; i < 300; ++i) schedule.Step();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// One call of a worker's program, and its token.
struct Call {
  enum class Kind { kPush, kClock, kPull } kind;
  int worker;
  Position at;
  Token token;
};

void Do(SyncCore& core, const Call& call) {
  switch (call.kind) {
    case Call::Kind::kPush:
      PHALANX_EXPECT_OK(core.Push(call.worker, call.at, call.token));
      return;
    case Call::Kind::kClock:
      PHALANX_EXPECT_OK(core.Clock(call.worker, call.at.clock));
      return;
    case Call::Kind::kPull:
      PHALANX_EXPECT_OK(core.Pull(call.worker, call.at.clock, call.token));
  }
}

// What each worker does, by the seed alone.
std::vector<std::vector<Call>> Programs(int workers, uint64_t clocks, uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<Call>> programs(workers);
  for (int worker = 0; worker < workers; ++worker) {
    for (uint64_t clock = 0; clock < clocks; ++clock) {
      const Token base = (clock * workers + worker) * 10;
      const auto pushes = static_cast<uint32_t>(random.Below(4));
      for (uint32_t push = 1; push <= pushes; ++push) {
        programs[worker].push_back({Call::Kind::kPush, worker, {clock, push, 0}, base + push});
      }
      programs[worker].push_back({Call::Kind::kPull, worker, {clock, 0, 0}, base + 9});
      programs[worker].push_back({Call::Kind::kClock, worker, {clock, 0, 0}, 0});
    }
  }
  return programs;
}

std::vector<Call> Interleave(const std::vector<std::vector<Call>>& programs, Random& random) {
  std::vector<Call> calls;
  std::vector<size_t> at(programs.size(), 0);
  std::vector<int> open;
  for (size_t i = 0; i < programs.size(); ++i) open.push_back(static_cast<int>(i));
  while (!open.empty()) {
    const size_t which = random.Below(open.size());
    const int worker = open[which];
    calls.push_back(programs[worker][at[worker]++]);
    if (at[worker] == programs[worker].size()) open.erase(open.begin() + which);
  }
  return calls;
}

TEST(SyncCore, BspTurnsAreTheSameHoweverTheWorkersInterleave) {
  Random random(11);
  for (int workers = 2; workers <= 8; workers += 3) {
    const auto programs = Programs(workers, 12, workers);
    std::vector<std::string> first;
    for (int interleaving = 0; interleaving < 60; ++interleaving) {
      SyncCore core = Core(Sync::kBsp, workers);
      for (const Call& call : Interleave(programs, random)) Do(core, call);
      std::vector<std::string> turns;
      size_t answers = 0;
      for (const std::string& text : Take(core)) {
        if (text.starts_with("turn")) turns.push_back(text);
        if (text.starts_with("answer")) ++answers;
      }
      EXPECT_EQ(turns.size(), 12u);
      EXPECT_EQ(answers, 12u * workers);
      if (interleaving == 0) first = turns;
      EXPECT_EQ(turns, first);
    }
  }
}

// A server that dies after any step goes on as if it had not; workers ask again for what they wait.
TEST(SyncCore, SavedAndLoadedAfterEachStepItGoesOnTheSame) {
  Random random(13);
  for (const Sync sync : {Sync::kBsp, Sync::kSsp, Sync::kAsp}) {
    SCOPED_TRACE(SyncName(sync));
    const uint32_t staleness = sync == Sync::kSsp ? 2 : 0;
    const std::vector<Call> calls = Interleave(Programs(3, 6, 5), random);
    for (size_t cut = 0; cut <= calls.size(); ++cut) {
      SyncCore whole = Core(sync, 3, staleness);
      std::map<Token, Call> asked;
      for (size_t i = 0; i < cut; ++i) {
        Do(whole, calls[i]);
        if (calls[i].kind == Call::Kind::kPull) asked.emplace(calls[i].token, calls[i]);
        if (i == cut / 2 && i % 3 == 0) whole.Remove(2), whole.Rejoin(2);
      }
      for (const SyncCore::Effect& effect : whole.TakeEffects()) {
        if (const auto* answer = std::get_if<SyncCore::Answer>(&effect)) asked.erase(answer->pull);
      }
      SyncCore next = Core(sync, 3, staleness);
      PHALANX_ASSERT_OK(next.Load(whole.Save()));
      EXPECT_EQ(next.min(), whole.min());
      EXPECT_THAT(next.parked(), IsEmpty());
      // Whoever waits has forgotten both servers' tickets.
      for (int worker = 0; worker < 3; ++worker) whole.Forget(worker);
      for (const auto& [token, call] : asked) {
        Do(whole, call);
        Do(next, call);
      }
      for (size_t i = cut; i < calls.size(); ++i) {
        EXPECT_EQ(next.PositionOf(calls[i].worker), whole.PositionOf(calls[i].worker));
        Do(whole, calls[i]);
        Do(next, calls[i]);
      }
      EXPECT_EQ(Take(next), Take(whole)) << "after step " << cut;
    }
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
