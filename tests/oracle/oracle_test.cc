// The digest is the same for the same code, and differs for code with a defect.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/io/log.h"
#include "src/common/testing/scoped_defect.h"
#include "tests/oracle/sources.h"

namespace phalanx::oracle {
namespace {

constexpr uint64_t kSeeds = 30;

SourceDigest DigestOfSource(const std::string& name, int threads = 2, bool texts = true) {
  SetLogLevel(LogLevel::kOff);
  for (const Source& source : AllSources(/*first=*/1, kSeeds)) {
    if (source.name == name) return RunSource(source, threads, {.texts = texts});
  }
  ADD_FAILURE() << "no source " << name;
  return {};
}

std::string NameOf(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

class EachSource : public ::testing::TestWithParam<std::string> {};

TEST_P(EachSource, HasTheSameDigestsOnAnyNumberOfThreads) {
  const SourceDigest first = DigestOfSource(GetParam(), /*threads=*/1);
  const SourceDigest second = DigestOfSource(GetParam(), /*threads=*/2);
  EXPECT_GT(first.messages, first.cases.size());
  EXPECT_EQ(first.messages, second.messages);
  EXPECT_EQ(first.cases, second.cases);
  EXPECT_EQ(ToString(first.Whole()), ToString(second.Whole()));
}

INSTANTIATE_TEST_SUITE_P(Oracle, EachSource,
                         ::testing::Values("core-world", "reduce-plan", "coarse-broadcast",
                                           "coarse-reduce", "coarse-crowd", "cluster",
                                           "cluster-reduce", "cluster-lifetime", "cluster-delete",
                                           "cluster-broadcast", "shard-corpus", "store-corpus",
                                           "reducer-corpus"),
                         [](const auto& info) { return NameOf(info.param); });

// A source whose digest no defect changes would prove nothing. The coarse worlds have no faults
// that reach a defect.
struct Case {
  std::string source;
  Defect defect;
};

class DefectIn : public ::testing::TestWithParam<Case> {};

TEST_P(DefectIn, ChangesTheDigestWithAndWithoutTexts) {
  for (const bool texts : {true, false}) {
    const SourceDigest without = DigestOfSource(GetParam().source, 2, texts);
    const testing::ScopedDefect defect(GetParam().defect);
    EXPECT_NE(ToString(DigestOfSource(GetParam().source, 2, texts).Whole()),
              ToString(without.Whole()));
  }
}

INSTANTIATE_TEST_SUITE_P(Oracle, DefectIn,
                         ::testing::Values(Case{"core-world", Defect::kCyclicSender},
                                           Case{"reduce-plan", Defect::kSpareTakenTwice},
                                           Case{"cluster-reduce", Defect::kInputLeftOut},
                                           Case{"shard-corpus", Defect::kWaiterDroppedAtRestart},
                                           Case{"store-corpus", Defect::kReaderNotVoided},
                                           Case{"reducer-corpus", Defect::kReadyTooEarly}),
                         [](const auto& info) { return NameOf(info.param.source); });

}  // namespace
}  // namespace phalanx::oracle
