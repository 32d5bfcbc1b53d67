// Reductions of thousands of sources compared with a closed form: ReduceTreeTime in
// coarse_reduce.h, after the cost model of the Hoplite paper (SIGCOMM 2021, section 3.4.2) with the
// actual in-order tree.
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"
#include "tests/simulation/coarse_reduce.h"

namespace phalanx::sim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

struct Case {
  const char* name;
  int sources;
  uint64_t size_bytes;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ReduceScale : public ::testing::TestWithParam<Case> {};

TEST_P(ReduceScale, TakesTheTimeOfTheBestTreeAndAnOrderForEachSource) {
  CoarseReducePlan plan;
  plan.sources = GetParam().sources;
  plan.size_bytes = GetParam().size_bytes;
  const CoarseReduceResult result = RunCoarseReduce(plan);
  const absl::Duration best = ReduceTreeTime(plan.links, plan.sources, plan.size_bytes, 0);
  const double ratio = absl::FDivDuration(result.time, best);
  std::printf(
      "%d sources of %g MiB: %.2f ms, model %.2f ms; depth %d, fan-in %d; "
      "%lu messages in, %lu out, %.1f us of the core per source\n",
      plan.sources, static_cast<double>(plan.size_bytes) / kMiB,
      absl::ToDoubleMilliseconds(result.time), absl::ToDoubleMilliseconds(best), result.depth,
      result.fan_in, result.messages_in, result.messages_out,
      absl::ToDoubleMicroseconds(result.core_time) / plan.sources);
  EXPECT_TRUE(result.whole);
  EXPECT_LE(ratio, 1.1);
  EXPECT_GE(ratio, 0.9) << "the model is wrong";
  EXPECT_EQ(result.depth, directory::ReduceShape::DepthOf(plan.sources, result.fan_in));
  // In: the request, the announcement, ready, sealed. Out: an order and its end for each source.
  EXPECT_EQ(result.messages_in, 4u);
  EXPECT_LE(result.messages_out, 2u * plan.sources + 8);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReduceScale,
                         ::testing::Values(Case{"Hundred1MiB", 100, kMiB},
                                           Case{"Thousand256KiB", 1000, kMiB / 4},
                                           Case{"Thousand1MiB", 1000, kMiB},
                                           Case{"Thousand16MiB", 1000, 16 * kMiB},
                                           Case{"Thousand1GiB", 1000, 1024 * kMiB},
                                           Case{"TenThousand1MiB", 10'000, kMiB}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phalanx::sim
