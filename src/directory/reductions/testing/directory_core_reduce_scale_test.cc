// How the work of reductions grows with their sources: counts examined sources, not seconds.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/testing/directory_core_reduce_harness.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Bytes;
using testing::kTarget;

// Small sources whose bytes the shard does not have: the shard checks again and again if a single
// fold can take all of them.
class ManySources : public testing::ReduceTest {
 protected:
  static constexpr int kMany = 5000;

  uint64_t Examined() {
    v1::GetStatusResponse status;
    h_.core().FillStatus(h_.now(), &status);
    return status.counters().at("reduce_sources_examined");
  }
  void PutPlain(int node, int source) {
    h_.Create(nodes_[node], Source(source), {.size = 4, .complete = true});
  }
  void ReduceSome(int node, int of, int wanted) {
    v1::NodeMessage message = Request(of);
    message.mutable_reduce_request()->mutable_reduction()->set_num_objects(wanted);
    Send(node, message);
  }
};

TEST_F(ManySources, AreTakenFromTheSparesInOneTurnWhenANodeDies) {
  h_.CheckEvery(2 * kMany);
  AddNodes(3);
  for (int i = 0; i < 2 * kMany; ++i) PutPlain(i % 3, i);
  ReduceSome(2, 2 * kMany, kMany);
  ASSERT_GE(RootAt(), 0);
  const uint64_t before = Examined();
  h_.Clear();
  h_.Down(nodes_[0]);
  EXPECT_GE(RootAt(), 0) << "folded from the spares";
  EXPECT_LT(Examined() - before, 10u * 2 * kMany);
}

TEST_F(ManySources, ThatComeOneByOneAreLookedAtAFewTimesEach) {
  h_.CheckEvery(2 * kMany);
  AddNodes(3);
  const uint64_t before = Examined();
  ReduceSome(2, 2 * kMany, kMany);
  for (int i = 0; i < 2 * kMany; ++i) PutPlain(i % 3, i);
  ASSERT_GE(RootAt(), 0);
  // The sources of one node are deleted one by one, and put again.
  for (int i = 0; i < 500; ++i) h_.Delete(nodes_[2], Source(2 * kMany - 1 - i));
  EXPECT_LT(Examined() - before, 10u * 2 * kMany);
}

}  // namespace
}  // namespace phalanx::directory
