// Sessions whose ranks and nodes die at every step, many seeds; and the seeded defects, each of
// which the same worlds detect.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/client/spmd/testing/session_world.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"

namespace phalanx::spmd {
namespace {

using testing::SessionWorld;

// PHALANX_TEST_SEEDS=1000000 runs so many.
uint64_t Seeds() {
  uint64_t seeds = 10'000;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return phalanx::testing::SeedGiven() ? 1 : seeds;
}

TEST(SessionSimulation, AllRanksEndWithTheStateOfARunWithoutDeaths) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  SessionWorld::Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    SessionWorld world(seed);
    const std::vector<std::string> wrong = world.Run();
    ASSERT_TRUE(wrong.empty()) << absl::StrJoin(wrong, "\n");
    const SessionWorld::Counts& counts = world.counts();
    all.deaths += counts.deaths;
    all.node_deaths += counts.node_deaths;
    all.repeated += counts.repeated;
    all.loads += counts.loads;
    all.of_others += counts.of_others;
    all.of_later += counts.of_later;
    all.given_up += counts.given_up;
    all.locals += counts.locals;
    all.of_before += counts.of_before;
    all.lazy += counts.lazy;
    all.saved += counts.saved;
    all.runs += counts.runs;
  }
  std::cout << all.deaths << " deaths, " << all.node_deaths << " of nodes, " << all.repeated
            << " calls repeated, " << all.loads << " checkpoints loaded, " << all.of_others
            << " of them of other ranks, " << all.of_later << " of later versions, " << all.given_up
            << " loads failed, " << all.locals << " local models loaded, " << all.of_before
            << " of the version before, " << all.saved << " of " << all.lazy
            << " lazy checkpoints saved, " << all.runs << " runs began anew\n";
  if (Seeds() == 1) return;
  for (const uint64_t count : {all.repeated, all.loads, all.of_others, all.of_later, all.locals,
                               all.of_before, all.saved, all.runs}) {
    EXPECT_GT(count, 0u);
  }
  // Nodes of two ranks end while a third one loads.
  EXPECT_LT(all.given_up, 1 + all.loads / 10'000);
}

// Returns the number of seeds until a world detects the defect, or 0.
uint64_t SeedsUntilDetected(Defect defect) {
  const phalanx::testing::ScopedDefect active(defect);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    if (!SessionWorld(seed).Run().empty()) return seed;
  }
  return 0;
}

TEST(SessionSimulation, EverySeededDefectIsDetected) {
  for (Defect defect = Defect::kSessionRepeatsOneLess; defect <= Defect::kSessionLocalNotCopied;
       defect = static_cast<Defect>(static_cast<int>(defect) + 1)) {
    const uint64_t seeds = SeedsUntilDetected(defect);
    std::cout << DefectName(defect) << ": " << seeds << " seeds\n";
    EXPECT_GT(seeds, 0u) << DefectName(defect);
  }
}

}  // namespace
}  // namespace phalanx::spmd
