// A simulation that finds nothing proves nothing: every named mistake, switched on, must be noticed
// by whole simulated clusters within 200 seeds, and the seed that notices it must be fine without.
#include "src/common/defects.h"

#include <cstdint>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "src/common/log.h"
#include "src/common/testing/scoped_defect.h"
#include "src/sim/simulation.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kSeeds = 200;

// What needs several rare things at once is looked for in runs that lean to them.
Focus LeanFor(Defect defect) {
  return defect == Defect::kNoGenerationCheck ? Focus::kRivals : Focus::kAnything;
}

struct Caught {
  uint64_t seed = 0;
  absl::Status how;
};

std::optional<Caught> FirstCaught(Defect defect) {
  const testing::ScopedDefect on(defect);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SimulationResult result = RunSimulation(DrawPlan(seed, LeanFor(defect)));
    if (!result.status.ok()) return Caught{seed, result.status};
  }
  return std::nullopt;
}

class SeededDefect : public ::testing::TestWithParam<Defect> {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
};

TEST_P(SeededDefect, IsNoticedBySimulatedClusters) {
  const std::optional<Caught> caught = FirstCaught(GetParam());
  ASSERT_TRUE(caught.has_value()) << "not noticed in " << kSeeds << " seeds";
  RecordProperty("seed", std::to_string(caught->seed));
  std::printf("%s: seed %lu\n", std::string(DefectName(GetParam())).c_str(), caught->seed);
  EXPECT_EQ(caught->how.code(), absl::StatusCode::kInternal) << caught->how;
  const SimulationResult without = RunSimulation(DrawPlan(caught->seed, LeanFor(GetParam())));
  EXPECT_TRUE(without.status.ok())
      << "seed " << caught->seed << " fails also without the defect: " << without.status;
}

INSTANTIATE_TEST_SUITE_P(Each, SeededDefect, ::testing::ValuesIn(AllDefects()),
                         [](const ::testing::TestParamInfo<Defect>& info) {
                           std::string name(DefectName(info.param));
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

TEST(SeededDefects, AreAtLeastTwenty) { EXPECT_GE(AllDefects().size(), 20u); }

}  // namespace
}  // namespace phalanx::sim
