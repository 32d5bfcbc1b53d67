#include "src/directory/reductions/tree_plan/source_table.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Inline;
using testing::InOrder;
using testing::kLarge;
using testing::Node;
using testing::On;
using testing::SumOf;
using testing::Target;

// Three sources; the second of two wanted ones is a spare for the first two.
class SourceTableTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(table_.CheckInvariants(), IsOk()); }

  PlanInputs inputs_{Target(), InOrder(SumOf(3, 2)), Node(1), /*root_up=*/true, {}, kLarge};
  SourceTable table_{inputs_};
};

TEST_F(SourceTableTest, ReadySourcesWaitInTheOrderOfTheirArrival) {
  table_.SetState(2, On(2, {3}));
  table_.SetState(0, Inline(On(0, {})));
  table_.SetState(1, On(1, {}));
  ASSERT_EQ(table_.waiting().size(), 2u) << "source 1 has neither a holder nor inline bytes";
  EXPECT_EQ(table_.waiting().begin()->second, 2);
  EXPECT_EQ(table_.FirstSeatable(), &table_[2]) << "source 0 has inline bytes alone";
  EXPECT_EQ(table_.ready(), 2);
}

TEST_F(SourceTableTest, ANewAttemptArrivesLast) {
  table_.SetState(0, On(0, {1}));
  table_.SetState(1, On(1, {2}));
  table_.SetState(0, On(0, {1, 2}));
  EXPECT_EQ(table_.waiting().begin()->second, 0) << "another copy is no new arrival";
  table_.SetState(0, On(0, {1}, kLarge, /*attempt=*/2));
  EXPECT_EQ(table_.waiting().begin()->second, 1);
}

TEST_F(SourceTableTest, ASeatedSourceDoesNotWait) {
  table_.SetState(0, On(0, {1}));
  table_.TakeSeat(0, {4, 0});
  EXPECT_TRUE(table_.waiting().empty());
  table_.SetState(0, std::nullopt);
  EXPECT_EQ(table_[0].seat, (SeatId{4, 0}));
  table_.LeaveSeat(0);
  EXPECT_TRUE(table_.waiting().empty()) << "the source is absent";
}

TEST_F(SourceTableTest, AFailureMovesTheEndOfAFixedOrder) {
  EXPECT_EQ(table_.EligibleEnd(), 2);
  table_.MarkFailed(0, absl::AbortedError("lost"));
  table_.SetState(0, std::nullopt);
  EXPECT_EQ(table_.EligibleEnd(), 3);
  EXPECT_EQ(table_.remaining(), 2);
  EXPECT_THAT(table_.why_failed(),
              StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("lost")));
}

TEST_F(SourceTableTest, AFailureThatIsClearedCountsNoMore) {
  table_.MarkFailed(0, absl::AbortedError("lost"));
  EXPECT_EQ(table_.EligibleEnd(), 3);
  table_.MarkFailed(2, absl::AbortedError("died"));
  table_.ClearFailure(0);
  EXPECT_EQ(table_.EligibleEnd(), 2) << "as many have failed as before, but another one";
  EXPECT_EQ(table_.remaining(), 2);
  EXPECT_EQ(table_.why_failed().message(), table_[2].failure.message());
  table_.MarkFailed(1, absl::AbortedError("killed"));
  table_.ClearFailure(1);
  EXPECT_EQ(table_.why_failed().message(), table_[2].failure.message());
  table_.ClearFailure(2);
  table_.SetState(2, On(2, {1}));
  EXPECT_EQ(table_.remaining(), 3);
  EXPECT_EQ(table_.ready(), 1);
  EXPECT_THAT(table_.why_failed(), IsOk());
}

TEST_F(SourceTableTest, ASourceOfAnotherSizeDoesNotFit) {
  table_.SetState(0, On(0, {1}, kLarge));
  table_.SetState(1, On(1, {1}, kLarge / 2));
  EXPECT_THAT(table_.CheckFits(table_[0]), IsOk());
  EXPECT_THAT(table_.CheckFits(table_[1]),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("the first")));
}

TEST_F(SourceTableTest, TheRequestedRootIsBestIfItHoldsTheWholeSource) {
  table_.SetState(0, On(0, {2, 1}));
  table_.SetState(1, On(1, {2}));
  EXPECT_TRUE(table_.AtRoot(table_[0]));
  EXPECT_FALSE(table_.AtRoot(table_[1]));
  inputs_.root_up = false;
  EXPECT_FALSE(table_.AtRoot(table_[0]));
}

}  // namespace
}  // namespace phalanx::directory
