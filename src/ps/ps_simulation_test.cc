// Workers and servers whose links are lost, which die and come again, many seeds; and the seeded
// defects, each of which the same worlds detect.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/ps/testing/ps_world.h"

namespace phalanx::ps {
namespace {

using testing::PsWorld;

// PHALANX_TEST_SEEDS=100000 runs so many.
uint64_t Seeds() {
  uint64_t seeds = 1000;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return phalanx::testing::SeedGiven() ? 1 : seeds;
}

TEST(PsSimulation, NothingIsLostOrCountedTwiceOrAnsweredEarly) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  PsWorld::Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    PsWorld world(seed);
    const std::vector<std::string> wrong = world.Run();
    ASSERT_TRUE(wrong.empty()) << absl::StrJoin(wrong, "\n");
    const PsWorld::Counts& counts = world.counts();
    all.worker_deaths += counts.worker_deaths;
    all.server_deaths += counts.server_deaths;
    all.lost_links += counts.lost_links;
    all.pulls += counts.pulls;
    all.restored += counts.restored;
    all.failed_stores += counts.failed_stores;
    all.waits += counts.waits;
    all.sums += counts.sums;
    all.lost_sums += counts.lost_sums;
    all.rings += counts.rings;
    all.broken_rings += counts.broken_rings;
    all.ahead += counts.ahead;
    all.fetches += counts.fetches;
    all.failed_versions += counts.failed_versions;
  }
  std::cout << all.worker_deaths << " deaths of workers, " << all.server_deaths << " of servers, "
            << all.lost_links << " links lost, " << all.restored << " snapshots restored, "
            << all.failed_stores << " not stored, " << all.waits << " waits for one, " << all.pulls
            << " pulls, " << all.sums << " sums of objects, " << all.lost_sums
            << " waits for a lost one, " << all.rings << " rings and " << all.broken_rings
            << " broken ones, " << all.ahead << " waits for what one makes, " << all.fetches
            << " versions read, " << all.failed_versions << " not\n";
  if (Seeds() == 1) return;
  for (const uint64_t count :
       {all.worker_deaths, all.server_deaths, all.lost_links, all.pulls, all.restored,
        all.failed_stores, all.waits, all.sums, all.lost_sums, all.rings, all.broken_rings,
        all.ahead, all.fetches, all.failed_versions}) {
    EXPECT_GT(count, 0u);
  }
}

// With kBsp the tables are those of a serial replay, bit for bit, though pushes depend on pulls.
TEST(PsSimulation, AWorkerThatDiesAtAnyMessageChangesNoBit) {
  uint64_t messages = 0;
  const uint64_t first = phalanx::testing::TestSeed(1);
  const uint64_t seeds = std::max<uint64_t>(1, Seeds() / 100);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    for (uint64_t message = 1;; ++message) {
      PsWorld world(seed, message);
      const std::vector<std::string> wrong = world.Run();
      ASSERT_TRUE(wrong.empty()) << "message " << message << ": " << absl::StrJoin(wrong, "\n");
      if (world.counts().worker_deaths == 0) break;
      ++messages;
    }
  }
  std::cout << messages << " messages\n";
  EXPECT_GT(messages, seeds * 10);
}

// Returns the first seed whose world of faults, or whose world with one death, detects the defect;
// or 0.
uint64_t SeedThatDetects(Defect defect) {
  const phalanx::testing::ScopedDefect active(defect);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    if (!PsWorld(seed).Run().empty() || !PsWorld(seed, 1 + seed % 40).Run().empty()) return seed;
  }
  return 0;
}

TEST(PsSimulation, EverySeededDefectIsDetected) {
  for (Defect defect = Defect::kPsPushSeenEarly; defect <= Defect::kPsAheadNotVoided;
       defect = static_cast<Defect>(static_cast<int>(defect) + 1)) {
    const uint64_t seed = SeedThatDetects(defect);
    std::cout << DefectName(defect) << ": seed " << seed << "\n";
    EXPECT_GT(seed, 0u) << DefectName(defect);
  }
}

}  // namespace
}  // namespace phalanx::ps
