#include "src/directory/reductions/reduction_descriptors.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::Lines;
using testing::ReductionFixture;

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_reduce_sources = 10;
  options.max_deferred = 10;
  return options;
}

class ReductionDescriptorsTest : public ReductionFixture {
 protected:
  explicit ReductionDescriptorsTest(bool learning = false)
      : ReductionFixture(Options(), learning) {}

  Reduction& BeginOpen(int sources) { return Begin(SpecOf(sources, /*open=*/true)); }
  // A node's description of the open list: sources [first, end).
  bool JoinPart(Reduction& reduction, int first, int end, bool closed = false) {
    ReduceSpec spec = SpecOf(end, /*open=*/true);
    spec.sources.erase(spec.sources.begin(), spec.sources.begin() + first);
    v1::Reduction m;
    m.set_first_source(first);
    m.set_closed(closed);
    return descriptors_.Join(reduction, spec, m);
  }
  v1::ExtendRequest Extension(int first, int end, bool close = false) const {
    v1::ExtendRequest m;
    m.set_request_id(7);
    m.set_object_id(Bytes(target_));
    for (int i = first; i < end; ++i) m.add_source_ids(Bytes(Source(i)));
    m.set_close(close);
    return m;
  }
  // The code of the reply to the node; -1 if there is none.
  int Extend(const NodeKey& key, const v1::ExtendRequest& m) {
    outbox_.Take();
    PHALANX_EXPECT_OK(descriptors_.OnExtend(node(key), m));
    return Reply(key);
  }
  int Reply(const NodeKey& key) {
    int code = -1;
    for (const v1::ShardMessage& message : TakeMessages(key)) {
      if (message.has_extend_reply()) code = message.extend_reply().code();
    }
    return code;
  }
  static int Number(absl::StatusCode code) { return static_cast<int>(code); }
};

// ------------------------------------------------------------------------------------- joining

TEST_F(ReductionDescriptorsTest, ARequestWithTheSameArgumentsJoins) {
  Reduction& reduction = Begin(2);
  EXPECT_TRUE(descriptors_.Join(reduction, SpecOf(2), v1::Reduction()));
  EXPECT_FALSE(descriptors_.Join(reduction, SpecOf(3), v1::Reduction())) << "other sources";
  ReduceSpec other = SpecOf(2);
  other.op = ReduceOp::kMax;
  EXPECT_FALSE(descriptors_.Join(reduction, other, v1::Reduction()));
}

TEST_F(ReductionDescriptorsTest, AnOpenListGrowsAtItsEnd) {
  Reduction& reduction = BeginOpen(2);
  EXPECT_TRUE(JoinPart(reduction, 0, 1)) << "a beginning of the list";
  EXPECT_TRUE(JoinPart(reduction, 0, 3));
  EXPECT_EQ(reduction.plan.spec().sources, Sources(3));
  EXPECT_TRUE(watcher_.Watches(Source(2)));
  ReduceSpec other = SpecOf(1, /*open=*/true);
  other.sources = {Source(5)};
  EXPECT_FALSE(descriptors_.Join(reduction, other, v1::Reduction())) << "it contradicts the list";
}

TEST_F(ReductionDescriptorsTest, PartsArePutTogetherByTheirPlaces) {
  Reduction& reduction = BeginOpen(1);
  EXPECT_TRUE(JoinPart(reduction, 3, 4));
  EXPECT_TRUE(ReductionDescriptors::HasGap(reduction));
  EXPECT_EQ(reduction.plan.spec().sources.size(), 1u);
  EXPECT_TRUE(JoinPart(reduction, 1, 3));
  EXPECT_FALSE(ReductionDescriptors::HasGap(reduction));
  EXPECT_EQ(reduction.plan.spec().sources, Sources(4));
}

TEST_F(ReductionDescriptorsTest, TheListIsClosedOnce) {
  Reduction& reduction = BeginOpen(1);
  EXPECT_TRUE(JoinPart(reduction, 2, 3, /*closed=*/true));
  EXPECT_FALSE(reduction.plan.closed()) << "a source is missing";
  EXPECT_FALSE(JoinPart(reduction, 2, 4)) << "longer than the closed list";
  EXPECT_FALSE(JoinPart(reduction, 0, 2, /*closed=*/true)) << "closed at another place";
  EXPECT_TRUE(JoinPart(reduction, 1, 2));
  EXPECT_TRUE(reduction.plan.closed());
}

TEST_F(ReductionDescriptorsTest, NoPartIsAwaitedOnceThePlanHasBegun) {
  Reduction& reduction = BeginOpen(1);
  reduction.phase = ReductionPhase::kPlanned;
  EXPECT_FALSE(JoinPart(reduction, 2, 3));
  EXPECT_TRUE(JoinPart(reduction, 1, 2));
}

TEST_F(ReductionDescriptorsTest, OtherReplicasAreSentWhatARequestAdds) {
  Reduction& reduction = BeginOpen(1);
  descriptors_.Inform(reduction, kA, 1);
  outbox_.Take();
  EXPECT_TRUE(JoinPart(reduction, 0, 2));
  EXPECT_EQ(Sent(), Lines{"a: keep_reduction"});
}

TEST_F(ReductionDescriptorsTest, ADescriptionCanHaveSourcesThatTheListLacks) {
  Reduction& reduction = BeginOpen(2);
  EXPECT_FALSE(ReductionDescriptors::LacksSources(reduction, SpecOf(2, /*open=*/true)));
  EXPECT_TRUE(ReductionDescriptors::LacksSources(reduction, SpecOf(3, /*open=*/true)));
  EXPECT_FALSE(ReductionDescriptors::LacksSources(reduction, SpecOf(3))) << "not an open one";
}

// ----------------------------------------------------------------------------------- extending

TEST_F(ReductionDescriptorsTest, AnExtensionAddsSourcesAndIsSentToEveryReplica) {
  Reduction& reduction = BeginOpen(1);
  descriptors_.Inform(reduction, kA, 1);
  outbox_.Take();
  PHALANX_EXPECT_OK(descriptors_.OnExtend(node(kB), Extension(1, 3)));
  EXPECT_EQ(Sent(), (Lines{"a: keep_reduction", "b: keep_reduction", "b: extend_reply"}));
  EXPECT_EQ(reduction.plan.spec().sources, Sources(3));
  EXPECT_EQ(Touched(), 1u);
}

TEST_F(ReductionDescriptorsTest, AClosedReductionCannotBeExtended) {
  const Reduction& reduction = BeginOpen(1);
  EXPECT_EQ(Extend(kA, Extension(1, 1, /*close=*/true)), 0);
  EXPECT_TRUE(reduction.plan.closed());
  EXPECT_EQ(Extend(kA, Extension(1, 2)), Number(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ReductionDescriptorsTest, ARetryOfAnExtensionThatWasCarriedOutIsOk) {
  const Reduction& reduction = BeginOpen(1);
  v1::ExtendRequest m = Extension(1, 2, /*close=*/true);
  EXPECT_EQ(Extend(kA, m), 0);
  EXPECT_NE(Extend(kA, m), 0) << "another request";
  m.set_again(true);
  EXPECT_EQ(Extend(kA, m), 0);
  EXPECT_EQ(reduction.plan.spec().sources, Sources(2));
}

TEST_F(ReductionDescriptorsTest, AReductionThatDoesNotRunIsNotFound) {
  EXPECT_EQ(Extend(kA, Extension(0, 1)), Number(absl::StatusCode::kNotFound));
}

TEST_F(ReductionDescriptorsTest, ARetryOfAnExtensionOfAnEndedReductionIsOk) {
  EndedReduction ended;
  ended.arguments = SpecOf(0, /*open=*/true);
  ended.sources = Sources(2);
  catalog_.ended().Remember(target_, EarlierId(1), ended);
  v1::ExtendRequest m = Extension(1, 2);
  EXPECT_EQ(Extend(kA, m), Number(absl::StatusCode::kNotFound)) << "not a retry";
  m.set_again(true);
  EXPECT_EQ(Extend(kA, m), 0);
  m.set_close(true);
  EXPECT_EQ(Extend(kA, m), Number(absl::StatusCode::kNotFound)) << "it was not closed";
}

TEST_F(ReductionDescriptorsTest, TheNumberOfSourcesIsBounded) {
  const Reduction& reduction = BeginOpen(1);
  EXPECT_EQ(Extend(kA, Extension(1, 11)), Number(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(reduction.plan.spec().sources.size(), 1u);
  EXPECT_EQ(Extend(kA, Extension(1, 10)), 0);
}

TEST_F(ReductionDescriptorsTest, AMalformedExtensionChangesNothing) {
  v1::ExtendRequest m = Extension(1, 2);
  m.set_object_id("short");
  EXPECT_THAT(descriptors_.OnExtend(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Sent(), Lines{});
}

class LearningDescriptorsTest : public ReductionDescriptorsTest {
 protected:
  LearningDescriptorsTest() : ReductionDescriptorsTest(/*learning=*/true) {}

  void OpenGate() {
    gate_.Open();
    descriptors_.EndLearning();
  }
};

TEST_F(LearningDescriptorsTest, AnExtensionWaitsWhileItsReductionCanBeRegistered) {
  EXPECT_EQ(Extend(kA, Extension(1, 2)), -1);
  const Reduction& reduction = BeginOpen(1);
  EXPECT_EQ(reduction.plan.spec().sources.size(), 1u);
  OpenGate();
  EXPECT_EQ(Reply(kA), 0);
  EXPECT_EQ(reduction.plan.spec().sources.size(), 2u);
}

TEST_F(LearningDescriptorsTest, AnExtensionOfAnEarlierSessionIsDropped) {
  EXPECT_EQ(Extend(kA, Extension(0, 1)), -1);
  node(kA).session = nodes_.NewSession();
  OpenGate();
  EXPECT_EQ(Reply(kA), -1);
}

TEST_F(LearningDescriptorsTest, ExtensionsThatWaitAreBounded) {
  EXPECT_EQ(Extend(kA, Extension(0, 5)), -1);
  EXPECT_EQ(Extend(kA, Extension(5, 10)), Number(absl::StatusCode::kResourceExhausted));
}

// ------------------------------------------------------------------------------------ replicas

TEST_F(ReductionDescriptorsTest, AReplicaIsSentWhatItDoesNotKnow) {
  Reduction& reduction = BeginOpen(3);
  descriptors_.Inform(reduction, kA, 3);
  EXPECT_EQ(Sent(), Lines{}) << "it knows them";
  descriptors_.Inform(reduction, kB, 1);
  const std::vector<v1::ShardMessage> sent = TakeMessages(kB);
  ASSERT_EQ(sent.size(), 1u);
  const v1::Reduction& part = sent[0].keep_reduction().reduction();
  EXPECT_EQ(part.first_source(), 1u);
  EXPECT_EQ(part.source_ids_size(), 2);
}

TEST_F(ReductionDescriptorsTest, FourRequestersOfAnOpenReductionAreInformed) {
  Reduction& reduction = BeginOpen(1);
  for (uint64_t i = 1; i <= 5; ++i) descriptors_.Inform(reduction, NodeKey{i, 1}, 1);
  EXPECT_EQ(reduction.replicas.extensions.size(), 4u);
}

TEST_F(ReductionDescriptorsTest, TwoNodesThatDidNotRequestKeepTheWholeDescription) {
  Reduction& reduction = Begin(1);
  reduction.requests.waiting.push_back({kA, 1, 1});
  descriptors_.SendToReplica(reduction, kA);
  EXPECT_EQ(Sent(), Lines{}) << "it repeats its request";
  reduction.requests.waiting.clear();
  for (const NodeKey& key : {kA, kA, kB, kC}) descriptors_.SendToReplica(reduction, key);
  EXPECT_EQ(Sent(), (Lines{"a: keep_reduction", "b: keep_reduction"}));
}

TEST_F(ReductionDescriptorsTest, TheDescriptionSaysHowLongItIsKept) {
  Reduction& reduction = Begin(1);
  reduction.deadline = context_.now + absl::Seconds(3);
  descriptors_.SendPart(reduction, kA, 0);
  const v1::KeepReduction keep = TakeMessages(kA).at(0).keep_reduction();
  EXPECT_EQ(keep.object_id(), Bytes(target_));
  EXPECT_EQ(keep.timeout_ms(), 3000u);
  EXPECT_FALSE(keep.forget());
}

TEST_F(ReductionDescriptorsTest, EveryReplicaHearsOfTheId) {
  Reduction& reduction = BeginOpen(1);
  reduction.replicas.whole = {kA};
  reduction.replicas.parts = {kA, kB};
  reduction.replicas.extensions = {kC};
  descriptors_.SetId(reduction, EarlierId(4));
  EXPECT_EQ(Sent(), (Lines{"a: keep_reduction", "b: keep_reduction", "c: keep_reduction"}));
  EXPECT_TRUE(reduction.identity.confirmed);
  EXPECT_TRUE(reduction.Is(EarlierId(4)));
  EXPECT_TRUE(reduction.Is(reduction.identity.minted_id)) << "nodes may still name it";
}

TEST_F(ReductionDescriptorsTest, AForgetNamesTheReduction) {
  descriptors_.SendForget(kA, target_, EarlierId(4));
  descriptors_.SendForget(NodeKey{9, 1}, target_, EarlierId(4));
  std::vector<Outgoing> sent = outbox_.Take();
  ASSERT_EQ(sent.size(), 1u) << "the other has no session";
  EXPECT_TRUE(sent[0].message.keep_reduction().forget());
  EXPECT_EQ(sent[0].message.keep_reduction().reduction().source_ids_size(), 0);
}

TEST_F(ReductionDescriptorsTest, ANodeThatIsGoneKeepsNothing) {
  Reduction& reduction = BeginOpen(1);
  reduction.replicas.whole = reduction.replicas.parts = reduction.replicas.extensions = {kA, kB};
  ReductionDescriptors::ForgetReplica(reduction, kA);
  EXPECT_FALSE(reduction.replicas.whole.contains(kA));
  EXPECT_FALSE(reduction.replicas.parts.contains(kA));
  EXPECT_FALSE(reduction.replicas.extensions.contains(kA));
  EXPECT_TRUE(reduction.replicas.whole.contains(kB));
}

}  // namespace
}  // namespace phalanx::directory
