#include "src/common/defects.h"

#include <set>

#include "gtest/gtest.h"
#include "src/common/testing/scoped_defect.h"

namespace phalanx {
namespace {

TEST(DefectsTest, AreAllOffUntilATestSwitchesOneOn) {
  for (const Defect defect : AllDefects()) EXPECT_FALSE(DefectActive(defect));
  {
    testing::ScopedDefect scope(Defect::kCyclicSender);
    for (const Defect defect : AllDefects()) {
      EXPECT_EQ(DefectActive(defect), defect == Defect::kCyclicSender) << DefectName(defect);
    }
  }
  EXPECT_FALSE(DefectActive(Defect::kCyclicSender));
}

TEST(DefectsTest, AreOnOneAtATime) {
  testing::ScopedDefect scope(Defect::kEvictLastCopy);
  EXPECT_DEATH(testing::ScopedDefect(Defect::kCyclicSender), "one defect at a time");
}

TEST(DefectsTest, HaveUniqueNamesThatParse) {
  std::set<std::string> names;
  for (const Defect defect : AllDefects()) {
    EXPECT_TRUE(names.insert(std::string(DefectName(defect))).second) << DefectName(defect);
    EXPECT_EQ(DefectFromName(DefectName(defect)), defect);
  }
  EXPECT_GE(names.size(), 24u);
  EXPECT_EQ(DefectFromName("none"), Defect::kNone);
  EXPECT_EQ(DefectFromName("no such defect"), std::nullopt);
}

}  // namespace
}  // namespace phalanx
