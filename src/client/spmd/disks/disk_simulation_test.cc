// Jobs whose ranks all die now and then and that go on from disks, many seeds; and the seeded
// defects, each of which the same worlds detect.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/client/spmd/testing/disk_world.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"

namespace phalanx::spmd {
namespace {

using testing::DiskWorld;

// PHALANX_TEST_SEEDS=1000000 runs so many.
uint64_t Seeds() {
  uint64_t seeds = 3'000;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return phalanx::testing::SeedGiven() ? 1 : seeds;
}

TEST(DiskSimulation, AJobGoesOnFromTheNewestFilesOfTheNewestRun) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  DiskWorld::Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    DiskWorld world(seed);
    const std::vector<std::string> wrong = world.Run();
    ASSERT_TRUE(wrong.empty()) << absl::StrJoin(wrong, "\n");
    const DiskWorld::Counts& counts = world.counts();
    all.deaths += counts.deaths;
    all.runs += counts.runs;
    all.restored += counts.restored;
    all.passed_over += counts.passed_over;
    all.missing += counts.missing;
    all.ended += counts.ended;
    all.stale += counts.stale;
  }
  std::cout << all.deaths << " deaths, " << all.runs << " runs, " << all.restored
            << " went on from disks, " << all.passed_over << " runs passed over, " << all.missing
            << " times a rank had no file, " << all.ended << " runs ended, " << all.stale
            << " files of ended runs seen\n";
  if (Seeds() == 1) return;
  for (const uint64_t count : {all.restored, all.passed_over, all.missing, all.ended, all.stale}) {
    EXPECT_GT(count, 0u);
  }
}

// Returns the number of seeds until a world detects the defect, or 0.
uint64_t SeedsUntilDetected(Defect defect) {
  const phalanx::testing::ScopedDefect active(defect);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    if (!DiskWorld(seed).Run().empty()) return seed;
  }
  return 0;
}

TEST(DiskSimulation, EverySeededDefectIsDetected) {
  for (Defect defect = Defect::kDiskRunsNotCompared; defect <= Defect::kDiskEndNotMarked;
       defect = static_cast<Defect>(static_cast<int>(defect) + 1)) {
    const uint64_t seeds = SeedsUntilDetected(defect);
    std::cout << DefectName(defect) << ": " << seeds << " seeds\n";
    EXPECT_GT(seeds, 0u) << DefectName(defect);
  }
}

}  // namespace
}  // namespace phalanx::spmd
