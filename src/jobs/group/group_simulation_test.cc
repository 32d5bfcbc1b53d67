// Groups under faults, many seeds; and the seeded defects, each of which the same worlds detect.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs {
namespace {

using testing::GroupWorld;
using testing::GroupWorldOptions;

// PHALANX_TEST_SEEDS=5000 runs so many of each world.
uint64_t Seeds() {
  uint64_t seeds = 70;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return phalanx::testing::SeedGiven() ? 1 : seeds;
}

void RunSeeds(GroupWorldOptions options) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  GroupWorld::Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    GroupWorld world(seed, options);
    const std::vector<std::string> violations = world.Run();
    ASSERT_TRUE(violations.empty()) << absl::StrJoin(violations, "\n");
    all.answers += world.counts().answers;
    all.deaths += world.counts().deaths;
    all.parts += world.counts().parts;
    all.voids += world.counts().voids;
    all.given += world.counts().given;
    all.lost += world.counts().lost;
    all.fenced += world.counts().fenced;
    all.held += world.counts().held;
    all.vouched += world.counts().vouched;
    all.refused += world.counts().refused;
    all.progresses += world.counts().progresses;
    all.most_kept = std::max(all.most_kept, world.counts().most_kept);
  }
  std::cout << all.answers << " calls ended, " << all.deaths << " deaths, " << all.parts
            << " parts of results copied early, " << all.voids << " times in vain, " << all.given
            << " kept results given, " << all.lost << " lost, " << all.refused << " refused, "
            << all.fenced << " nodes were out of touch for too long, " << all.held
            << " answers were held, " << all.vouched << " given without the shard, "
            << all.progresses << " times progress, at most " << all.most_kept
            << " results kept at a node\n";
  EXPECT_EQ(all.held > 0, options.sleeps || options.cuts || options.away);
  EXPECT_TRUE(all.vouched > 0 || !(options.cuts || options.away));
  EXPECT_TRUE(all.parts > 0 || Seeds() == 1);
  EXPECT_TRUE(all.given > 0 || !options.retained || !options.deaths || Seeds() == 1);
  EXPECT_TRUE(all.progresses > 0 || !options.until_released || !options.deaths || Seeds() == 1);
  // However many rounds there are.
  EXPECT_TRUE(all.most_kept < 40 || !options.until_released);
}

TEST(GroupSimulation, CallsEndWithTheSameResultOnAllMembers) { RunSeeds({.deaths = false}); }

TEST(GroupSimulation, CallsWaitForTheNextLifeOfAMemberThatDies) {
  RunSeeds({.on_loss = OnLoss::kWait});
}

TEST(GroupSimulation, CallsOfALifeThatIsReplacedEnd) {
  RunSeeds({.on_loss = OnLoss::kWait, .replaced = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true});
}

TEST(GroupSimulation, CallsEndWhenLinksAreLost) {
  RunSeeds({.deaths = false, .losses = true});
  RunSeeds({.on_loss = OnLoss::kWait, .losses = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true, .losses = true});
}

TEST(GroupSimulation, ANodeThatStartsAgainAtOnceFailsNoCall) {
  RunSeeds({.on_loss = OnLoss::kWait, .restarts = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .restarts = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true, .restarts = true, .retained = true});
}

TEST(GroupSimulation, CallsGoOnWithoutAMemberThatDies) { RunSeeds({.on_loss = OnLoss::kExclude}); }

TEST(GroupSimulation, CallsFailIfAMemberDies) { RunSeeds({.on_loss = OnLoss::kFail}); }

TEST(GroupSimulation, CallsEndOnAllMembersAlsoIfSomeHaveLeftAfterTheirs) {
  RunSeeds({.deaths = false, .leaves = true});
  RunSeeds({.on_loss = OnLoss::kWait, .leaves = true});
  RunSeeds({.on_loss = OnLoss::kWait, .losses = true, .leaves = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .leaves = true});
  RunSeeds({.on_loss = OnLoss::kFail, .losses = true, .leaves = true});
}

TEST(GroupSimulation, NothingIsFoldedBeforeItIsCopied) {
  RunSeeds({.deaths = false, .fills_late = true});
  RunSeeds({.on_loss = OnLoss::kWait, .replaced = true, .fills_late = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .losses = true, .fills_late = true});
  RunSeeds({.on_loss = OnLoss::kFail, .fills_late = true, .leaves = true});
  RunSeeds({.on_loss = OnLoss::kWait, .losses = true, .fills_late = true, .retained = true});
}

TEST(GroupSimulation, ANextLifeGetsTheResultsOfTheCallsThatItHasMissed) {
  RunSeeds({.on_loss = OnLoss::kWait, .retained = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .retained = true});
  RunSeeds({.on_loss = OnLoss::kWait, .replaced = true, .losses = true, .retained = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .fills_late = true, .retained = true});
  RunSeeds({.on_loss = OnLoss::kWait, .retained = true, .whole_hosts = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .retained = true, .whole_hosts = true});
}

TEST(GroupSimulation, ANextLifeGetsAllResultsThatAreNotReleasedYet) {
  const GroupWorldOptions released{.retained = true, .until_released = true, .calls = 20};
  for (const OnLoss on_loss : {OnLoss::kWait, OnLoss::kExclude}) {
    GroupWorldOptions options = released;
    options.on_loss = on_loss;
    RunSeeds(options);
    options.replaced = true;
    options.losses = true;
    RunSeeds(options);
    options.losses = false;
    options.restarts = true;
    options.whole_hosts = true;
    RunSeeds(options);
  }
}

TEST(GroupSimulation, ANextLifeGetsWhatIsNotReleasedAlsoIfNodesAreOutOfTouch) {
  RunSeeds({.on_loss = OnLoss::kExclude,
            .retained = true,
            .until_released = true,
            .sleeps = true,
            .cuts = true,
            .calls = 20});
  RunSeeds({.on_loss = OnLoss::kWait,
            .retained = true,
            .until_released = true,
            .away = true,
            .calls = 20});
}

TEST(GroupSimulation, ReleasedResultsTakeNoMemoryHoweverManyCallsThereAre) {
  RunSeeds({.deaths = false, .retained = true, .until_released = true, .calls = 100});
}

TEST(GroupSimulation, QuestionsAboutACallThatCannotBeMadeAreAnswered) {
  RunSeeds({.deaths = false, .replaced = true, .losses = true, .differs = true, .retained = true});
}

TEST(GroupSimulation, ANodeThatSleepsForLongerThanALeaseGivesNoOtherResultThanTheRest) {
  RunSeeds({.on_loss = OnLoss::kExclude, .deaths = false, .sleeps = true});
  RunSeeds({.on_loss = OnLoss::kWait, .sleeps = true});
  RunSeeds({.on_loss = OnLoss::kFail, .sleeps = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true, .losses = true, .sleeps = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .retained = true, .sleeps = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .fills_late = true, .sleeps = true});
}

TEST(GroupSimulation, ANodeThatIsCutOffFromTheShardGivesNoOtherResultThanTheRest) {
  RunSeeds({.on_loss = OnLoss::kExclude, .deaths = false, .cuts = true});
  RunSeeds({.on_loss = OnLoss::kWait, .cuts = true});
  RunSeeds({.on_loss = OnLoss::kFail, .sleeps = true, .cuts = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true, .losses = true, .cuts = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .retained = true, .sleeps = true, .cuts = true});
}

TEST(GroupSimulation, CallsGoOnWhileTheShardIsAway) {
  RunSeeds({.deaths = false, .away = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .deaths = false, .losses = true, .away = true});
  RunSeeds({.on_loss = OnLoss::kFail, .deaths = false, .fills_late = true, .away = true});
}

TEST(GroupSimulation, MembersThatEndWhileTheShardIsAwayGetNoOtherResultThanTheRest) {
  RunSeeds({.on_loss = OnLoss::kWait, .away = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .sleeps = true, .away = true});
  RunSeeds(
      {.on_loss = OnLoss::kExclude, .losses = true, .sleeps = true, .cuts = true, .away = true});
  RunSeeds({.on_loss = OnLoss::kFail, .restarts = true, .cuts = true, .away = true});
  RunSeeds({.on_loss = OnLoss::kExclude, .replaced = true, .retained = true, .away = true});
}

TEST(GroupSimulation, CallsThatDifferFailOnAllMembers) {
  RunSeeds({.deaths = false, .differs = true});
}

// Returns the number of seeds until some world detects the defect, or 0. One that most seeds miss
// is searched near a seed that detects it.
uint64_t SeedsUntilDetected(Defect defect) {
  const phalanx::testing::ScopedDefect active(defect);
  const uint64_t first = defect == Defect::kGroupOlderLifeUsed ? 241 : 1;
  for (uint64_t seed = first; seed < first + 200; ++seed) {
    std::vector<GroupWorldOptions> worlds = {
        {.on_loss = OnLoss::kWait},
        {.on_loss = OnLoss::kWait, .replaced = true},
        {.on_loss = OnLoss::kExclude},
        {.deaths = false, .differs = true},
        {.on_loss = OnLoss::kWait, .fills_late = true},
        {.on_loss = OnLoss::kExclude, .deaths = false, .sleeps = true},
    };
    if (defect == Defect::kGroupVouchedEarly || defect == Defect::kGroupOneVouchEnough) {
      worlds = {{.on_loss = OnLoss::kExclude, .deaths = false, .cuts = true},
                {.on_loss = OnLoss::kExclude, .deaths = false, .sleeps = true}};
    }
    if (defect == Defect::kGroupLeftEarly || defect == Defect::kGroupLeaveNotAskedAgain) {
      worlds = {{.on_loss = OnLoss::kExclude, .leaves = true},
                {.on_loss = OnLoss::kWait, .losses = true, .leaves = true}};
    }
    if (defect >= Defect::kResultsOnOneHost) {
      worlds = {{.on_loss = OnLoss::kExclude, .retained = true},
                {.on_loss = OnLoss::kWait, .retained = true},
                {.on_loss = OnLoss::kExclude, .retained = true, .whole_hosts = true},
                {.on_loss = OnLoss::kWait, .replaced = true, .losses = true, .retained = true}};
    }
    if (defect >= Defect::kResultsReleasedByBroadcast && defect <= Defect::kGroupOlderKeepTaken) {
      for (GroupWorldOptions& options : worlds) options.until_released = true;
    }
    for (const GroupWorldOptions& options : worlds) {
      if (!GroupWorld(seed, options).Run().empty()) return seed - first + 1;
    }
  }
  return 0;
}

TEST(GroupSimulation, EverySeededDefectIsDetected) {
  for (Defect defect = Defect::kGroupListsMixed; defect <= Defect::kResultPieceMisplaced;
       defect = static_cast<Defect>(static_cast<int>(defect) + 1)) {
    const uint64_t seeds = SeedsUntilDetected(defect);
    std::cout << DefectName(defect) << ": " << seeds << " seeds\n";
    EXPECT_GT(seeds, 0u) << DefectName(defect);
  }
}

}  // namespace
}  // namespace phalanx::jobs
