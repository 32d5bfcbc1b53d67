// The oracle says the same of the same code, and something else of code with a mistake in it.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/log.h"
#include "src/common/testing/scoped_defect.h"
#include "tests/oracle/sources.h"

namespace phalanx::oracle {
namespace {

constexpr uint64_t kSeeds = 30;

SourceDigest Hear(const std::string& name, int threads = 2, bool texts = true) {
  SetLogLevel(LogLevel::kOff);
  for (const Source& source : AllSources(/*first=*/1, kSeeds)) {
    if (source.name == name) return Listen(source, threads, {.texts = texts});
  }
  ADD_FAILURE() << "no source " << name;
  return {};
}

struct Case {
  std::string source;
  Defect defect;
};

class OracleTest : public ::testing::TestWithParam<Case> {};

TEST_P(OracleTest, SaysTheSameAgainOnAnyNumberOfThreads) {
  const SourceDigest first = Hear(GetParam().source, /*threads=*/1);
  const SourceDigest second = Hear(GetParam().source, /*threads=*/2);
  EXPECT_GT(first.messages, first.cases.size());
  EXPECT_EQ(first.messages, second.messages);
  EXPECT_EQ(first.cases, second.cases);
  EXPECT_EQ(ToString(first.Whole()), ToString(second.Whole()));
}

TEST_P(OracleTest, NoticesADefectWithAndWithoutTexts) {
  for (const bool texts : {true, false}) {
    const SourceDigest without = Hear(GetParam().source, 2, texts);
    const testing::ScopedDefect defect(GetParam().defect);
    EXPECT_NE(ToString(Hear(GetParam().source, 2, texts).Whole()), ToString(without.Whole()));
  }
}

INSTANTIATE_TEST_SUITE_P(Each, OracleTest,
                         ::testing::Values(Case{"core-world", Defect::kCyclicSender},
                                           Case{"reduce-plan", Defect::kSpareTakenTwice}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.source;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace phalanx::oracle
