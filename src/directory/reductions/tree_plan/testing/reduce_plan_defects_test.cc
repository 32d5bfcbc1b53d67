// Each seeded defect of a plan is found within 200 random worlds: by an invariant, by a node that
// receives an impossible order, or because the reduction never ends.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_random.h"

namespace phalanx::directory {
namespace {

class ReducePlanDefectsTest : public ::testing::TestWithParam<Defect> {};

TEST_P(ReducePlanDefectsTest, IsNoticedWithin200Worlds) {
  const phalanx::testing::ScopedDefect defect(GetParam());
  uint64_t seed = 1;
  absl::Status status;
  while (seed <= 200 && (status = testing::RunRandomReduction(seed)).ok()) ++seed;
  EXPECT_LE(seed, 200u);
  RecordProperty("seed", static_cast<int>(seed));
  RecordProperty("noticed", std::string(status.message()));
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

INSTANTIATE_TEST_SUITE_P(Plan, ReducePlanDefectsTest,
                         ::testing::Values(Defect::kSpareTakenTwice, Defect::kAncestorsNotLowered,
                                           Defect::kOldVersionCommitted, Defect::kSlotAcrossNodes,
                                           Defect::kRestoredSlotGivenAway,
                                           Defect::kMovedFoldKeepsSender, Defect::kDeadRootKept,
                                           Defect::kSeatMiscountedAfterLoss,
                                           Defect::kFoldLeftBehind, Defect::kLostResultForgotten,
                                           Defect::kNewAttemptNotNoticed),
                         CamelCase);

}  // namespace
}  // namespace phalanx::directory
