#include "src/directory/reductions/fold_dispatcher.h"

#include "gtest/gtest.h"
#include "src/directory/reductions/results/reduce_result.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::Lines;
using testing::ReductionFixture;

const NodeKey kUnknown{9, 1};

class FoldDispatcherTest : public ReductionFixture {
 protected:
  FoldDispatcherTest() { node(kB).info.set_address("10.0.0.2:7000"); }
  ~FoldDispatcherTest() override { Erase(reduction_); }

  static auto Version(uint64_t number) { return VersionOf(Digest128{number, 7}); }
  FoldTask Task() const {
    FoldTask task;
    task.slot = 1;
    task.slots = 3;
    task.degree = 2;
    task.version = Version(1);
    task.size_bytes = 8;
    task.planned = 3;
    return task;
  }
  FoldInput SourceInput(FoldInput::Kind kind) const {
    FoldInput input;
    input.kind = kind;
    input.source = Source(0);
    input.generation = Gen(kA);
    return input;
  }
  // The shard has the bytes of source 0.
  void CacheSource(const std::string& bytes) {
    Put(kA, Source(0), bytes.size());
    table_.CacheInline(*table_.Find(Source(0)), bytes);
    outbox_.Take();
  }
  v1::Fold Placed(FoldTask task) {
    dispatcher_.Apply(reduction_, PlaceFold{kA, std::move(task)});
    return TakeMessages(kA).front().fold();
  }

  Reduction& reduction_ = Begin(3);
};

TEST_F(FoldDispatcherTest, APlacedFoldIsOrderedAndItsNodeKeepsTheDescription) {
  dispatcher_.Apply(reduction_, PlaceFold{kA, Task()});
  EXPECT_EQ(Sent(), (Lines{"a: fold", "a: keep_reduction"}));
  EXPECT_TRUE(reduction_.placed.at({kA, Version(1)}).registered);
  EXPECT_EQ(context_.counters.folds_placed, 1u);
  EXPECT_TRUE(reduction_.commit.sent_to.empty());
}

TEST_F(FoldDispatcherTest, TheOrderSaysWhatIsComputedAndFromWhere) {
  FoldTask task = Task();
  task.inputs.push_back(SourceInput(FoldInput::Kind::kSource));
  FoldInput slot;
  slot.kind = FoldInput::Kind::kSlot;
  slot.node = kB;
  task.inputs.push_back(slot);
  const v1::Fold fold = Placed(task);
  EXPECT_EQ(fold.object_id(), Bytes(target_));
  EXPECT_EQ(fold.slot(), 1u);
  EXPECT_EQ(fold.slots(), 3u);
  EXPECT_EQ(fold.degree(), 2u);
  EXPECT_EQ(fold.size_bytes(), 8u);
  EXPECT_FALSE(fold.root());
  EXPECT_TRUE(fold.asked_for().empty()) << "only the root's";
  ASSERT_EQ(fold.inputs_size(), 2);
  EXPECT_EQ(fold.inputs(0).source_id(), Bytes(Source(0)));
  EXPECT_EQ(FromProto(fold.inputs(0).generation()), Gen(kA));
  EXPECT_EQ(FromProto(fold.inputs(1).sender()), kB);
  EXPECT_EQ(fold.inputs(1).sender_address(), "10.0.0.2:7000");
}

TEST_F(FoldDispatcherTest, TheRootIsSentWhatTheResultIsMadeOf) {
  reduction_.requests.owned = true;
  FoldTask task = Task();
  task.root = true;
  task.reduced_from = Sources(2);
  task.metadata = "meta";
  const v1::Fold fold = Placed(task);
  EXPECT_TRUE(fold.root());
  EXPECT_TRUE(fold.owned());
  EXPECT_EQ(fold.reduced_from(), Bytes(Source(0)) + Bytes(Source(1)));
  EXPECT_EQ(fold.metadata(), "meta");
  EXPECT_EQ(fold.asked_for(), ReduceRecord(reduction_.plan.spec()).Encode());
}

TEST_F(FoldDispatcherTest, BytesThatOnlyTheShardHasTravelWithTheOrder) {
  CacheSource("12345678");
  FoldTask task = Task();
  task.inputs.push_back(SourceInput(FoldInput::Kind::kInline));
  const v1::Fold fold = Placed(task);
  EXPECT_TRUE(fold.inputs(0).has_inline());
  EXPECT_EQ(fold.inputs(0).inline_bytes(), "12345678");
  EXPECT_TRUE(fold.inputs(0).source_id().empty());
}

TEST_F(FoldDispatcherTest, InlineBytesAreCounted) {
  CacheSource("12345678");
  FoldTask task = Task();
  task.inputs.push_back(SourceInput(FoldInput::Kind::kInline));
  dispatcher_.Apply(reduction_, PlaceFold{kA, task});
  EXPECT_EQ(outbox_.inline_bytes(), 8u);
}

TEST_F(FoldDispatcherTest, ARootThatIsCommittedInAdvanceDependsOnNoSource) {
  CacheSource("12345678");
  FoldTask task = Task();
  task.root = task.committed = true;
  task.inputs.push_back(SourceInput(FoldInput::Kind::kSource));
  const v1::Fold fold = Placed(task);
  EXPECT_EQ(fold.inputs(0).inline_bytes(), "12345678");
  EXPECT_TRUE(reduction_.commit.sent_to.contains(kA)) << "no FoldCommit follows";
}

TEST_F(FoldDispatcherTest, ADroppedFoldIsForgotten) {
  dispatcher_.Apply(reduction_, PlaceFold{kA, Task()});
  outbox_.Take();
  dispatcher_.Apply(reduction_, DropFold{kA, Version(1)});
  EXPECT_TRUE(reduction_.placed.empty());
  EXPECT_EQ(context_.counters.folds_dropped, 1u);
  EXPECT_EQ(Sent(), Lines{"a: fold_drop"});
}

TEST_F(FoldDispatcherTest, ACommitIsSentAndRemembered) {
  reduction_.commit.open_root = Gen(kC);
  dispatcher_.Apply(reduction_, CommitFold{kC, Version(2)});
  EXPECT_FALSE(reduction_.commit.open_root.valid());
  EXPECT_TRUE(reduction_.commit.sent_to.contains(kC));
  const v1::FoldCommit commit = TakeMessages(kC).front().fold_commit();
  EXPECT_EQ(commit.object_id(), Bytes(target_));
  v1::FoldCommit expected;
  ToProto(Version(2), expected.mutable_version());
  EXPECT_EQ(commit.version().sequence(), expected.version().sequence());
  EXPECT_EQ(commit.version().creator().node(), expected.version().creator().node());
}

TEST_F(FoldDispatcherTest, AnOrderIsRepeatedWithoutBeingPlacedAgain) {
  dispatcher_.Repeat(reduction_, Task(), kB);
  EXPECT_EQ(Sent(), Lines{"b: fold"});
  EXPECT_TRUE(reduction_.placed.empty());
}

TEST_F(FoldDispatcherTest, NothingIsSentToANodeWithoutASession) {
  dispatcher_.Apply(reduction_, PlaceFold{kUnknown, Task()});
  dispatcher_.Apply(reduction_, CommitFold{kUnknown, Version(1)});
  dispatcher_.Apply(reduction_, DropFold{kUnknown, Version(1)});
  EXPECT_EQ(Sent(), Lines{});
  EXPECT_TRUE(reduction_.placed.empty());
  EXPECT_TRUE(reduction_.commit.sent_to.empty());
}

}  // namespace
}  // namespace phalanx::directory
