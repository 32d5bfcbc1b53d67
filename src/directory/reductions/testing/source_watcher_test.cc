#include "src/directory/reductions/source_watcher.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
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

DirectoryOptions TwoShards() {
  DirectoryOptions options;
  options.num_shards = 2;
  options.inline_under_way_bytes = 10;
  return options;
}

class SourceWatcherTest : public ReductionFixture {
 protected:
  explicit SourceWatcherTest(bool learning = false) : ReductionFixture(TwoShards(), learning) {}

  bool Ready(const Reduction& reduction, const ObjectId& source) const {
    return reduction.sources.ready.contains(source);
  }
  void GoDown(const NodeKey& key) {
    table_.NodeDown(*nodes_.BeginRemove(key));
    watcher_.NodeDown(key);
    nodes_.EndRemove();
  }
  // ---- the target's side: `node` is the watch proxy
  Reduction& BeginForeign(const NodeKey& root = {}) {
    ReduceSpec spec;
    spec.sources = {ForeignSource()};
    Reduction& reduction = Begin(spec, root);
    watcher_.ChooseProxy(reduction);
    return reduction;
  }
  v1::SourceState StateOf(const NodeKey& holder) const {
    v1::SourceState state;
    state.set_target_id(Bytes(target_));
    state.set_source_id(Bytes(ForeignSource()));
    ToProto(Gen(holder), state.mutable_generation());
    state.set_size_bytes(8);
    v1::SourceState::Holder& to = *state.add_holders();
    ToProto(holder, to.mutable_node());
    to.set_complete(true);
    return state;
  }
  // ---- the source's side: another shard watches through `node`
  void WatchThrough(const NodeKey& key, const ObjectId& source, bool end = false) {
    v1::WatchSource m;
    m.set_target_id(Bytes(IdOf("far target", /*foreign=*/true)));
    m.add_source_ids(Bytes(source));
    m.set_end(end);
    PHALANX_ASSERT_OK(watcher_.OnWatchSource(node(key), m));
  }
  // The nodes that the shard reports as holders, in order.
  std::vector<NodeKey> HoldersSentTo(const NodeKey& key) {
    std::vector<NodeKey> holders;
    for (const v1::ShardMessage& message : TakeMessages(key)) {
      if (!message.has_source_state()) continue;
      holders.clear();
      for (const auto& holder : message.source_state().holders()) {
        holders.push_back(FromProto(holder.node()));
      }
    }
    return holders;
  }
};

// ---------------------------------------------------------------------- sources of this shard

TEST_F(SourceWatcherTest, ThePlanHearsOfASourceAtOnceAndOfEachChange) {
  Put(kA, Source(0));
  Reduction& reduction = Begin(2);
  EXPECT_TRUE(Ready(reduction, Source(0)));
  EXPECT_FALSE(Ready(reduction, Source(1)));
  Put(kB, Source(1));
  Changed(Source(1));
  EXPECT_TRUE(Ready(reduction, Source(1)));
  EXPECT_EQ(Touched(), 1u);
  Down(kA);
  Changed(Source(0));
  EXPECT_FALSE(Ready(reduction, Source(0)));
}

TEST_F(SourceWatcherTest, OnlyWatchedObjectsAreNoted) {
  Reduction& reduction = Begin(1);
  EXPECT_TRUE(watcher_.Watches(Source(0)));
  watcher_.NoteChange(Source(1));
  EXPECT_FALSE(watcher_.has_changes());
  watcher_.NoteChange(Source(0));
  EXPECT_TRUE(watcher_.has_changes());
  watcher_.RunChanges();
  EXPECT_FALSE(watcher_.has_changes());
  Erase(reduction);
  EXPECT_FALSE(watcher_.Watches(Source(0)));
  EXPECT_EQ(catalog_.sources(), 0u);
}

TEST_F(SourceWatcherTest, AnOwnedSourceThatIsNoLongerWatchedIsNotedAsUnreferenced) {
  Put(kA, Source(0));
  Reduction& reduction = Begin(1);
  table_.Find(Source(0))->info.owned = true;
  table_.TakeUnreferenced();
  Erase(reduction);
  EXPECT_EQ(table_.TakeUnreferenced().count(Source(0)), 1u);
}

TEST_F(SourceWatcherTest, ASourceWhoseProducerFailedFails) {
  Reduction& reduction = Begin(1);
  failures_.Set(Source(0), absl::AbortedError("no input"));
  Changed(Source(0));
  EXPECT_TRUE(reduction.sources.failed);
}

TEST_F(SourceWatcherTest, ADeletedSourceFails) {
  Reduction& reduction = Begin(1);
  tombstones_.Add(Source(0), Gen(kA));
  Changed(Source(0));
  EXPECT_TRUE(reduction.sources.failed);
}

TEST_F(SourceWatcherTest, ASourceThatItsNodeHoldsForAFoldDoesNotFailWhenItIsDeleted) {
  PutSources(2);
  Reduction& reduction = Begin(2);
  BeginPlan(reduction);
  ASSERT_TRUE(reduction.plan.Placed(Source(0)));
  failures_.Set(Source(0), absl::AbortedError("deleted"));
  Changed(Source(0));
  EXPECT_FALSE(reduction.sources.failed);
  // The node reports that it does not hold it.
  reduction.sources.absent.insert({Source(0), Gen(kA), kA});
  watcher_.ReportSource(reduction, Source(0));
  EXPECT_TRUE(reduction.sources.failed);
}

TEST_F(SourceWatcherTest, ANodeThatReportedTheSourceAbsentIsNoHolder) {
  Put(kA, Source(0));
  Reduction& reduction = Begin(1);
  reduction.sources.absent.insert({Source(0), Gen(kA), kA});
  watcher_.ReportSources(reduction);
  EXPECT_FALSE(Ready(reduction, Source(0)));
}

TEST_F(SourceWatcherTest, TheTargetOfARunningReductionIsNoSourceBeforeItIsComplete) {
  Reduction& reduction = Begin(0);
  v1::AnnounceCreate m;
  m.set_object_id(Bytes(target_));
  ToProto(Gen(kA), m.mutable_generation());
  m.mutable_info()->set_size_bytes(8);
  m.mutable_info()->set_slices(1);
  PHALANX_ASSERT_OK(table_.OnCreate(node(kA), m));
  table_.Find(target_)->copies.at(kA).watermarks = {4};
  WatchThrough(kB, target_);
  EXPECT_EQ(HoldersSentTo(kB), std::vector<NodeKey>{});
  Erase(reduction);
  Changed(target_);
  EXPECT_EQ(HoldersSentTo(kB), std::vector<NodeKey>{kA});
}

TEST_F(SourceWatcherTest, BytesAreThoseOfTheGenerationInTheRange) {
  Put(kA, Source(0), 8);
  table_.CacheInline(*table_.Find(Source(0)), "12345678");
  ReduceSpec spec = SpecOf(1);
  spec.range_offset = 4;
  spec.range_bytes = 4;
  const Reduction& reduction = Begin(spec);
  FoldInput input;
  input.source = Source(0);
  input.generation = Gen(kA);
  EXPECT_EQ(watcher_.InlineBytesOf(reduction, input, 4), "5678");
  EXPECT_EQ(watcher_.InlineBytesOf(reduction, input, 8), std::nullopt) << "beyond the end";
  input.generation = Gen(kB);
  EXPECT_EQ(watcher_.InlineBytesOf(reduction, input, 4), std::nullopt);
}

// ------------------------------------------------------------------ sources of another shard

TEST_F(SourceWatcherTest, TheRequestedRootIsTheProxyElseAnyNodeThatHasRegistered) {
  Reduction& reduction = BeginForeign(kB);
  EXPECT_EQ(Sent(), Lines{"b: watch_source"});
  EXPECT_EQ(reduction.sources.watch_proxy, kB);
  watcher_.ChooseProxy(reduction);
  EXPECT_EQ(Sent(), Lines{}) << "there is one";
  reduction.sources.watch_proxy = NodeKey();
  node(kB).connected = false;
  node(kA).registering = true;
  watcher_.ChooseProxy(reduction);
  EXPECT_EQ(Sent(), Lines{"c: watch_source"});
}

TEST_F(SourceWatcherTest, SourcesThatAreAddedLaterAreWatchedThroughTheSameProxy) {
  Reduction& reduction = Begin(SpecOf(0, /*open=*/true), kB);
  const std::vector<ObjectId> sources = {ForeignSource(), IdOf("foreign two", /*foreign=*/true)};
  for (size_t i = 0; i < sources.size(); ++i) {
    PHALANX_ASSERT_OK(reduction.plan.Add({sources[i]}));
    watcher_.Watch(reduction, {sources[i]});
    watcher_.ChooseProxy(reduction);
    EXPECT_EQ(Sent(), Lines{"b: watch_source"}) << i;
  }
}

TEST_F(SourceWatcherTest, ASourceStateOfTheProxyReachesThePlan) {
  Reduction& reduction = BeginForeign(kB);
  PHALANX_EXPECT_OK(watcher_.OnSourceState(node(kA), StateOf(kC)));
  EXPECT_FALSE(Ready(reduction, ForeignSource())) << "another node is the proxy";
  PHALANX_EXPECT_OK(watcher_.OnSourceState(node(kB), StateOf(kC)));
  EXPECT_TRUE(Ready(reduction, ForeignSource()));
  EXPECT_EQ(Touched(), 1u);
}

TEST_F(SourceWatcherTest, AMalformedSourceStateChangesNothing) {
  const Reduction& reduction = BeginForeign(kB);
  v1::SourceState state = StateOf(kC);
  state.set_size_bytes(kMaxObjectBytes + 1);
  EXPECT_THAT(watcher_.OnSourceState(node(kB), state), HasCode(absl::StatusCode::kInvalidArgument));
  state = StateOf(kC);
  state.mutable_holders(0)->clear_node();
  EXPECT_THAT(watcher_.OnSourceState(node(kB), state), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(Ready(reduction, ForeignSource()));
}

TEST_F(SourceWatcherTest, ASourceOnANodeWithoutASessionIsReadyWhenTheNodeHasOne) {
  const NodeKey later{7, 1};
  Reduction& reduction = BeginForeign(kB);
  PHALANX_EXPECT_OK(watcher_.OnSourceState(node(kB), StateOf(later)));
  EXPECT_FALSE(Ready(reduction, ForeignSource()));
  nodes_.Open(later).node.session = nodes_.NewSession();
  watcher_.NodeUp();
  EXPECT_TRUE(Ready(reduction, ForeignSource()));
}

TEST_F(SourceWatcherTest, BytesOfAForeignSourceAreKeptIfTheyAreAllOfThem) {
  const Reduction& reduction = BeginForeign(kB);
  v1::SourceState state = StateOf(kC);
  state.clear_holders();
  state.set_has_inline(true);
  state.set_inline_bytes("1234");
  PHALANX_EXPECT_OK(watcher_.OnSourceState(node(kB), state));
  EXPECT_FALSE(Ready(reduction, ForeignSource())) << "four bytes of eight";
  state.set_inline_bytes("12345678");
  PHALANX_EXPECT_OK(watcher_.OnSourceState(node(kB), state));
  EXPECT_TRUE(Ready(reduction, ForeignSource()));
  EXPECT_EQ(reduction.sources.foreign_inline_bytes, 8u);
}

TEST_F(SourceWatcherTest, TheEndOfTheReductionEndsTheWatch) {
  Reduction& reduction = BeginForeign(kB);
  outbox_.Take();
  Erase(reduction);
  const auto sent = TakeMessages(kB);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].watch_source().end());
}

// ------------------------------------------------------- sources that other shards watch here

TEST_F(SourceWatcherTest, AnotherShardIsSentTheStateAndEachChange) {
  WatchThrough(kC, Source(0));
  EXPECT_EQ(Sent(), Lines{"c: source_state"}) << "there is none";
  Put(kA, Source(0));
  outbox_.Take();
  Changed(Source(0));
  EXPECT_EQ(HoldersSentTo(kC), std::vector<NodeKey>{kA});
  WatchThrough(kC, Source(0), /*end=*/true);
  EXPECT_FALSE(watcher_.Watches(Source(0)));
}

TEST_F(SourceWatcherTest, ASourceOfAnotherShardCannotBeWatchedHere) {
  v1::WatchSource m;
  m.set_target_id(Bytes(target_));
  m.add_source_ids(Bytes(Source(0)));
  m.add_source_ids(Bytes(ForeignSource()));
  EXPECT_THAT(watcher_.OnWatchSource(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(watcher_.Watches(Source(0)));
}

TEST_F(SourceWatcherTest, ThePrimaryComesFirstAndADisconnectedHolderLast) {
  Put(kA, Source(0));
  Object& object = *table_.Find(Source(0));
  for (const NodeKey& key : {kB, kC}) {
    table_.AddCopy(object, node(key));
    table_.CompleteCopy(object, key);
  }
  object.copies.at(kC).primary = true;
  node(kA).connected = false;
  outbox_.Take();
  WatchThrough(kC, Source(0));
  EXPECT_EQ(HoldersSentTo(kC), (std::vector<NodeKey>{kC, kB, kA}));
}

TEST_F(SourceWatcherTest, BytesTravelWhileTheUnacknowledgedOnesAreWithinTheLimit) {
  Put(kA, Source(0), 8);
  table_.CacheInline(*table_.Find(Source(0)), "12345678");
  outbox_.Take();
  WatchThrough(kC, Source(0));
  EXPECT_EQ(outbox_.inline_bytes(), 8u);
  EXPECT_EQ(TakeMessages(kC).at(0).source_state().inline_bytes(), "12345678");
  outbox_.SetUnacknowledgedBytes(8);
  WatchThrough(kC, Source(0));
  EXPECT_FALSE(TakeMessages(kC).at(0).source_state().has_inline());
}

TEST_F(SourceWatcherTest, AnOwnedSourceThatWasWatchedThroughANodeThatIsGoneHasGrace) {
  Put(kA, Source(0));
  table_.Find(Source(0))->info.owned = true;
  WatchThrough(kC, Source(0));
  GoDown(kC);
  EXPECT_FALSE(watcher_.Watches(Source(0)));
  EXPECT_EQ(table_.Find(Source(0))->gc_grace_until, context_.now + context_.options.lease);
}

class LearningSourceWatcherTest : public SourceWatcherTest {
 protected:
  LearningSourceWatcherTest() : SourceWatcherTest(/*learning=*/true) {}
};

TEST_F(LearningSourceWatcherTest, AbsenceIsReportedWhenTheGateHasOpened) {
  WatchThrough(kC, Source(0));
  Changed(Source(0));
  EXPECT_EQ(Sent(), Lines{});
  gate_.Open();
  watcher_.EndLearning();
  watcher_.RunChanges();
  EXPECT_EQ(Sent(), Lines{"c: source_state"});
}

TEST_F(LearningSourceWatcherTest, ATombstoneDoesNotFailASourceThatCanStillBeRegistered) {
  gate_.NoteEarlierLife();
  tombstones_.Add(Source(0), Gen(kA));
  Reduction& reduction = Begin(1);
  EXPECT_FALSE(reduction.sources.failed);
  gate_.Open();
  watcher_.EndLearning();
  watcher_.RunChanges();
  EXPECT_TRUE(reduction.sources.failed);
}

}  // namespace
}  // namespace phalanx::directory
