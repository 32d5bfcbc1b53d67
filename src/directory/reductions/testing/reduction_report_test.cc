#include "src/directory/reductions/report/reduction_report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using ::testing::HasSubstr;
using testing::kA;
using ::testing::Not;
using testing::ReductionFixture;

class ReductionReportTest : public ReductionFixture {
 protected:
  v1::ReductionDescription Describe(const Reduction& reduction) {
    v1::ReductionDescription out;
    DescribeReduction(reduction, nodes_, context_.now, &out);
    return out;
  }
  v1::GetStatusResponse List() {
    v1::GetStatusResponse out;
    ListReductions(catalog_, context_.now, &out);
    return out;
  }
};

TEST_F(ReductionReportTest, MissingSourcesAreNamedFourAtMost) {
  Reduction& reduction = Begin(6);
  EXPECT_THAT(DescribeWaiting(reduction), HasSubstr("0 of 6 sources"));
  EXPECT_THAT(DescribeWaiting(reduction), HasSubstr(Source(3).hex()));
  EXPECT_THAT(DescribeWaiting(reduction), Not(HasSubstr(Source(4).hex())));
  EXPECT_THAT(DescribeWaiting(reduction), HasSubstr("..."));
}

TEST_F(ReductionReportTest, AReadySourceIsNotMissing) {
  Put(kA, Source(0));
  Reduction& reduction = Begin(2);
  EXPECT_THAT(DescribeWaiting(reduction), HasSubstr("1 of 2 sources"));
  EXPECT_THAT(DescribeWaiting(reduction), Not(HasSubstr(Source(0).hex())));
}

TEST_F(ReductionReportTest, TheTextSaysInWhichStateTheReductionIs) {
  PutSources(2);
  Reduction& open = Begin(SpecOf(2, /*open=*/true));
  EXPECT_EQ(DescribeWaiting(open), "it was not closed in time");
  EXPECT_TRUE(open.plan.Close().ok());
  BeginPlan(open);
  EXPECT_EQ(DescribeWaiting(open), "2 sources are being folded");
  open.plan.OnReady(open.plan.RootNode(), open.plan.RootVersion());
  EXPECT_EQ(DescribeWaiting(open), "its result is being published");
}

TEST_F(ReductionReportTest, ADescriptionSaysWhichNodeFoldsWhat) {
  PutSources(2);
  Reduction& reduction = Begin(2);
  BeginPlan(reduction);
  const NodeKey root = reduction.plan.RootNode();
  Reduction::Placed& placed = reduction.placed.at({root, reduction.plan.RootVersion()});
  placed.watermark = 77;
  placed.trouble = "slow";
  Advance(absl::Seconds(1));
  const v1::ReductionDescription out = Describe(reduction);
  EXPECT_EQ(out.ready(), 2u);
  EXPECT_EQ(out.needed(), 2u);
  EXPECT_EQ(out.spares(), 0u);
  EXPECT_EQ(out.size_bytes(), testing::kSourceBytes);
  EXPECT_EQ(out.elapsed_ns(), 1000000000u);
  EXPECT_FALSE(out.committed());
  EXPECT_EQ(out.missing_source_ids_size(), 0);
  std::string roots;
  for (const auto& slot : out.slots()) {
    if (slot.watermark() == 77) roots += slot.node_name() + " " + slot.trouble();
  }
  EXPECT_EQ(roots, nodes_.NameOf(root) + " slow");
}

TEST_F(ReductionReportTest, ReadySourcesBeyondTheNumberAreSpares) {
  PutSources(2);
  ReduceSpec spec = SpecOf(3);
  spec.num_objects = 1;
  Reduction& reduction = Begin(spec);
  const v1::ReductionDescription out = Describe(reduction);
  EXPECT_EQ(out.needed(), 1u);
  EXPECT_EQ(out.spares(), 1u);
  EXPECT_EQ(out.missing_source_ids_size(), 1);
}

TEST_F(ReductionReportTest, TheReductionsThatHaveRunLongestAreListed) {
  for (int i = 0; i < 20; ++i) {
    catalog_.Begin(IdOf("target" + std::to_string(19 - i)), SpecOf(0), kA, {});
    Advance(absl::Seconds(1));
  }
  const v1::GetStatusResponse out = List();
  ASSERT_EQ(out.running_reductions_size(), 16);
  EXPECT_EQ(out.running_reductions(0).object_id(), Bytes(IdOf("target19")));
  EXPECT_EQ(out.running_reductions(0).elapsed_ns(), 20000000000u);
  EXPECT_EQ(out.running_reductions(15).object_id(), Bytes(IdOf("target4")));
}

}  // namespace
}  // namespace phalanx::directory
