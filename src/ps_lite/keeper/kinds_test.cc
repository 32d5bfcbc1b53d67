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
  EXPECT_FALSE(kinds.Ask(3, kBegin));
  EXPECT_FALSE(kinds.Report(kFirst, 3, ::ps::FLOAT));
  // The next life of the same server.
  EXPECT_FALSE(kinds.Report(kFirst, 3, ::ps::FLOAT));
  EXPECT_THAT(kinds.decided(), IsEmpty());
  EXPECT_TRUE(kinds.Report(kSecond, 3, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Report(kSecond, 3, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Ask(3, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(3, ::ps::FLOAT)));
}

TEST(Kinds, WhatAServerReportsLastBeforeTheFirstQuestionCounts) {
  Kinds kinds(1);
  EXPECT_FALSE(kinds.Report(kFirst, 0, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Report(kFirst, 1, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Report(kFirst, 0, ::ps::INT32));
  EXPECT_TRUE(kinds.Report(kFirst, 1, kFunctions));
  EXPECT_TRUE(kinds.Ask(0, kBegin));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(0, ::ps::INT32), Pair(1, kFunctions)));
}

TEST(Kinds, OneFunctionDecidesAtOnceAndForEver) {
  Kinds kinds(2);
  EXPECT_TRUE(kinds.Report(kSecond, 0, kFunctions));
  EXPECT_FALSE(kinds.Report(kFirst, 0, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Report(kSecond, 0, ::ps::FLOAT));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(0, kFunctions)));
}

TEST(Kinds, OtherValuesAreFunctionsAsWell) {
  Kinds kinds(2);
  EXPECT_FALSE(kinds.Ask(1, kBegin));
  EXPECT_FALSE(kinds.Report(kFirst, 1, ::ps::INT64));
  EXPECT_TRUE(kinds.Report(kSecond, 1, ::ps::DOUBLE));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(1, kFunctions)));
}

TEST(Kinds, AnAppOfWhichSomeServersReportNothingIsNoTable) {
  Kinds kinds(2);
  // 1: one server reports; 2: none does; 3: no process asks.
  EXPECT_FALSE(kinds.Report(kFirst, 1, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Report(kFirst, 3, ::ps::FLOAT));
  EXPECT_FALSE(kinds.Ask(1, kBegin));
  EXPECT_FALSE(kinds.Ask(2, kBegin + std::chrono::seconds(1)));
  EXPECT_FALSE(kinds.Ask(1, kBegin + std::chrono::seconds(2)));
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience - std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience), ElementsAre(1));
  EXPECT_THAT(kinds.GiveUp(kBegin + kReportPatience), IsEmpty());
  EXPECT_FALSE(kinds.Report(kSecond, 1, ::ps::FLOAT));
  // A server has died.
  kinds.Prolong(kBegin + kReportPatience);
  EXPECT_THAT(kinds.GiveUp(kBegin + 2 * kReportPatience - std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(kinds.GiveUp(kBegin + 2 * kReportPatience), ElementsAre(2));
  EXPECT_THAT(kinds.decided(), ElementsAre(Pair(1, kFunctions), Pair(2, kFunctions)));
}

}  // namespace
}  // namespace phalanx::ps_lite
