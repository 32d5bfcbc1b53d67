#include "src/ps_lite/keeper/kinds.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr Kinds::Time kBegin{};
constexpr Peer kFirst{Role::kServer, 0};
constexpr Peer kSecond{Role::kServer, 1};

TEST(Kinds, AnAppIsATableWhenAllServersHaveReportedTheSameValues) {
  Kinds kinds(2);
  EXPECT_FALSE(kinds.Report(kFirst, 3, ::ps::FLOAT, kBegin));
  // The next life of the same server.
  EXPECT_FALSE(kinds.Report(kFirst, 3, ::ps::FLOAT, kBegin));
  EXPECT_THAT(kinds.decided(), IsEmpty());
  EXPECT_TRUE(kinds.Report(kSecond, 3, ::ps::FLOAT, kBegin));
  EXPECT_FALSE(kinds.Report(kSecond, 3, ::ps::FLOAT, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(3, ::ps::FLOAT)));
}

TEST(Kinds, OneFunctionDecidesAtOnceAndForEver) {
  Kinds kinds(2);
  EXPECT_TRUE(kinds.Report(kSecond, 0, kFunctions, kBegin));
  EXPECT_FALSE(kinds.Report(kFirst, 0, ::ps::FLOAT, kBegin));
  EXPECT_FALSE(kinds.Report(kSecond, 0, ::ps::FLOAT, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(0, kFunctions)));
}

TEST(Kinds, OtherValuesAreFunctionsAsWell) {
  Kinds kinds(2);
  EXPECT_FALSE(kinds.Report(kFirst, 1, ::ps::INT64, kBegin));
  EXPECT_TRUE(kinds.Report(kSecond, 1, ::ps::DOUBLE, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(1, kFunctions)));
}

TEST(Kinds, AnAppOfWhichSomeServersReportNothingIsNoTable) {
  Kinds kinds(2);
  EXPECT_FALSE(kinds.Report(kFirst, 1, ::ps::FLOAT, kBegin));
  EXPECT_TRUE(kinds.Report(kFirst, 2, kFunctions, kBegin));
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience - std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience), ElementsAre(1));
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience), IsEmpty());
  EXPECT_FALSE(kinds.Report(kSecond, 1, ::ps::FLOAT, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(1, kFunctions), Pair(2, kFunctions)));
}

}  // namespace
}  // namespace phalanx::ps_lite
