// Each named defect of the core, switched on, shows within 200 random worlds: a broken invariant, a
// message that must not be sent, or a node that waits for ever.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/directory/testing/directory_core_world.h"

namespace phalanx::directory {
namespace {

using testing::World;

bool Noticed(uint64_t seed) {
  World world(World::Options(), seed);
  for (int i = 0; i < 400; ++i) {
    if (!world.Step().ok()) return true;
  }
  return !world.Settle().ok() || !world.Check().ok();
}

class DirectoryCoreDefectsTest : public ::testing::TestWithParam<Defect> {};

TEST_P(DirectoryCoreDefectsTest, IsNoticedWithin200Worlds) {
  const phalanx::testing::ScopedDefect defect(GetParam());
  uint64_t seed = 1;
  while (seed <= 200 && !Noticed(seed)) ++seed;
  EXPECT_LE(seed, 200u);
  RecordProperty("seed", static_cast<int>(seed));
}

std::string CamelCase(const ::testing::TestParamInfo<Defect>& info) {
  std::string name;
  bool upper = true;
  for (const char c : DefectName(info.param)) {
    if (c == '-') {
      upper = true;
      continue;
    }
    name += static_cast<char>(upper ? c - 'a' + 'A' : c);
    upper = false;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Core, DirectoryCoreDefectsTest,
    ::testing::Values(Defect::kCyclicSender, Defect::kTombstoneForgottenAtRestart,
                      Defect::kEvictLastCopy, Defect::kWaiterDroppedAtRestart,
                      Defect::kStandbyAdoptedEarly, Defect::kProvisionalBeatsAdopted,
                      Defect::kFencedDropsSoleCopy, Defect::kCompleteForPartial,
                      Defect::kCopyListKeepsDeadNode, Defect::kInlineKeptAfterDelete,
                      Defect::kOldPlanEndsNewPlan),
    CamelCase);

}  // namespace
}  // namespace phalanx::directory
