// The reductions' subsystem through its one door, without the router: requests, reports, nodes,
// time, and how reductions end.
#include "src/directory/reductions/reduction_manager.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/ids/open_hold.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/reductions/testing/reduction_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::ReductionMessages;

class FakeDeletedResults final : public DeletedResultListener {
 public:
  void OnDeletedGeneration(const ObjectId&, const Generation&) override {}
};

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_reduce_requesters = 3;
  return options;
}

class ReductionManagerTest : public ReductionMessages {
 protected:
  ReductionManagerTest() : ReductionMessages(Options()) {
    listeners_ = {&pulls_, &manager_, &drains_, &placements_};
  }
  ~ReductionManagerTest() override { PHALANX_EXPECT_OK(manager_.CheckInvariants()); }

  // ---- what the router does: each call, and what follows from it
  v1::ReduceRequest Request(int sources, bool open = false) {
    v1::ReduceRequest m;
    m.set_request_id(++requests_);
    m.set_object_id(Bytes(target_));
    ToProto(SpecOf(sources, open), kA, m.mutable_reduction());
    return m;
  }
  void Send(const NodeKey& key, const v1::ReduceRequest& m) {
    if (m.reduction().open()) {
      holds_.Hold(key, OpenHoldOf(target_, context_.options.num_shards));
    }
    PHALANX_ASSERT_OK(manager_.OnReduce(node(key), m));
    Run();
  }
  void Reduce(const NodeKey& key, int sources) { Send(key, Request(sources)); }
  void Run() {
    manager_.RunPending();
    for (Outgoing& out : outbox_.Take()) sent_.push_back(std::move(out));
  }
  void Report(const NodeKey& key, v1::FoldReport::Kind kind,
              absl::StatusCode code = absl::StatusCode::kOk) {
    v1::FoldReport m;
    m.set_object_id(Bytes(target_));
    *m.mutable_version() = LastFold(key)->version();
    m.set_kind(kind);
    m.set_code(static_cast<int>(code));
    PHALANX_ASSERT_OK(manager_.OnFoldReport(node(key), m));
    Run();
  }
  void GoDown(const NodeKey& key) {
    Node* gone = nodes_.BeginRemove(key);
    manager_.BeforeNodeDown(key);
    table_.NodeDown(*gone);
    manager_.NodeDown(key);
    nodes_.EndRemove();
    Run();
  }
  void Pass(absl::Duration time) {
    Advance(time);
    manager_.Tick();
    Run();
  }
  // The node announces the result of its fold, as a `version` of the plan or another one.
  void Announce(const NodeKey& key, bool complete) {
    const v1::Fold fold = *LastFold(key);
    v1::AnnounceCreate m;
    m.set_object_id(Bytes(target_));
    ToProto(Gen(key, 9), m.mutable_generation());
    m.mutable_info()->set_size_bytes(fold.size_bytes());
    m.mutable_info()->set_slices(1);
    m.mutable_info()->set_reduced_from(fold.reduced_from());
    m.mutable_info()->set_asked_for(fold.asked_for());
    *m.mutable_version() = fold.version();
    m.set_complete(complete);
    PHALANX_ASSERT_OK(manager_.OnCreate(node(key), m));
    Run();
  }

  // ---- what was sent
  std::optional<v1::Fold> LastFold(const NodeKey& key) const {
    std::optional<v1::Fold> fold;
    for (const Outgoing& out : sent_) {
      if (out.to == key && out.message.has_fold()) fold = out.message.fold();
    }
    return fold;
  }
  // The code of the last reply to the node; -1 if there is none.
  int Code(const NodeKey& key) const {
    int code = -1;
    for (const Outgoing& out : sent_) {
      if (out.to == key && out.message.has_reduce_reply()) code = out.message.reduce_reply().code();
    }
    return code;
  }
  bool WasSent(const NodeKey& key, v1::ShardMessage::KindCase kind) const {
    for (const Outgoing& out : sent_) {
      if (out.to == key && out.message.kind_case() == kind) return true;
    }
    return false;
  }
  static int Number(absl::StatusCode code) { return static_cast<int>(code); }
  bool Running() const { return manager_.IsReducing(target_); }

  // A reduction of the sources on a and b, with its root at a.
  void BeginFolding() {
    PutSources(2);
    Reduce(kA, 2);
    ASSERT_TRUE(LastFold(kA).has_value());
    ASSERT_TRUE(LastFold(kA)->root());
  }
  // The reduction ends with its result, which is on a.
  void Finish() {
    BeginFolding();
    Announce(kA, /*complete=*/false);
    Report(kA, v1::FoldReport::READY);
    v1::AnnounceSeal seal;
    seal.set_object_id(Bytes(target_));
    ToProto(Gen(kA, 9), seal.mutable_generation());
    PHALANX_ASSERT_OK(table_.OnSeal(node(kA), seal));
    Run();
  }

  FakeDeletedResults listener_;
  ReductionManager manager_{parts_, listener_};
  std::vector<Outgoing> sent_;
  uint64_t requests_ = 0;
};

// ------------------------------------------------------------------------------------ requests

TEST_F(ReductionManagerTest, ARequestBeginsAReductionThatEndsWithItsResult) {
  Finish();
  EXPECT_TRUE(WasSent(kA, v1::ShardMessage::kFoldCommit));
  EXPECT_EQ(Code(kA), 0);
  EXPECT_FALSE(Running());
  EXPECT_EQ(context_.counters.reductions, 1u);
  EXPECT_EQ(context_.counters.reductions_committed, 1u);
  EXPECT_TRUE(manager_.NextDeadline().infinite());
}

TEST_F(ReductionManagerTest, EveryRequesterIsAnswered) {
  PutSources(1);
  for (const NodeKey& key : {kA, kB}) Reduce(key, 2);
  EXPECT_EQ(context_.counters.reductions, 1u) << "they join";
  manager_.CancelDeleted(target_);
  Run();
  for (const NodeKey& key : {kA, kB}) EXPECT_EQ(Code(key), Number(absl::StatusCode::kNotFound));
}

TEST_F(ReductionManagerTest, ARequestWithOtherArgumentsIsRefused) {
  Reduce(kA, 2);
  v1::ReduceRequest other = Request(2);
  other.mutable_reduction()->set_op(static_cast<uint32_t>(ReduceOp::kMax));
  Send(kB, other);
  EXPECT_EQ(Code(kB), Number(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(Running());
}

TEST_F(ReductionManagerTest, AnImpossibleRequestIsAnswered) {
  Send(kA, Request(0));
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(Running());
}

TEST_F(ReductionManagerTest, AMalformedMessageIsAnErrorOfTheStream) {
  v1::ReduceRequest m = Request(1);
  m.set_object_id("short");
  EXPECT_THAT(manager_.OnReduce(node(kA), m), HasCode(absl::StatusCode::kInvalidArgument));
  v1::FoldReport report;
  report.set_object_id(Bytes(target_));
  EXPECT_THAT(manager_.OnFoldReport(node(kA), report), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(ReductionManagerTest, TheRequestsThatWaitAreBounded) {
  for (int i = 0; i < 4; ++i) Reduce(kA, 2);
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(manager_.catalog().requesters(), 3u);
}

TEST_F(ReductionManagerTest, ANodeInALaterSessionIsNotAnswered) {
  Reduce(kA, 2);
  node(kA).session = nodes_.NewSession();
  manager_.CancelDeleted(target_);
  Run();
  EXPECT_EQ(Code(kA), -1);
}

TEST_F(ReductionManagerTest, TheLatestDeadlineCounts) {
  v1::ReduceRequest m = Request(2);
  m.set_timeout_ms(1000);
  Send(kA, m);
  m = Request(2);
  m.set_timeout_ms(2000);
  Send(kB, m);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Code(kA), -1);
  Pass(absl::Seconds(1));
  for (const NodeKey& key : {kA, kB}) {
    EXPECT_EQ(Code(key), Number(absl::StatusCode::kDeadlineExceeded));
  }
  EXPECT_EQ(context_.counters.reductions_failed, 1u);
}

TEST_F(ReductionManagerTest, AReplicaIsSentAForgetAtTheEnd) {
  BeginFolding();
  ASSERT_TRUE(WasSent(kB, v1::ShardMessage::kKeepReduction));
  sent_.clear();
  manager_.CancelDeleted(target_);
  Run();
  EXPECT_TRUE(WasSent(kB, v1::ShardMessage::kKeepReduction));
  EXPECT_TRUE(WasSent(kB, v1::ShardMessage::kFoldDrop));
}

// ----------------------------------------------------------------------------------- questions

TEST_F(ReductionManagerTest, TheObjectTableLearnsWhichResultIsPlanned) {
  EXPECT_EQ(manager_.PlannedResult(target_), std::nullopt);
  BeginFolding();
  EXPECT_FALSE(manager_.PlannedResult(target_)->valid());
  Announce(kA, /*complete=*/false);
  EXPECT_EQ(manager_.PlannedResult(target_), Gen(kA, 9));
  EXPECT_TRUE(manager_.Watches(Source(0)));
  EXPECT_FALSE(manager_.Watches(target_));
}

TEST_F(ReductionManagerTest, AResultThatIsToStayIsNotOwned) {
  EXPECT_FALSE(manager_.ClearOwned(target_)) << "none runs";
  v1::ReduceRequest m = Request(2);
  m.set_owned(true);
  Send(kA, m);
  EXPECT_TRUE(manager_.catalog().Find(target_)->requests.owned);
  EXPECT_TRUE(manager_.ClearOwned(target_));
  EXPECT_FALSE(manager_.catalog().Find(target_)->requests.owned);
}

// ------------------------------------------------------------------------------- folds, nodes

TEST_F(ReductionManagerTest, AFoldIsTriedAgainAfterAPauseThatDoubles) {
  BeginFolding();
  for (const int pause : {50, 100}) {
    Report(kB, v1::FoldReport::NO_MEMORY);
    const uint64_t placed = context_.counters.folds_placed;
    Pass(absl::Milliseconds(pause - 1));
    EXPECT_EQ(context_.counters.folds_placed, placed) << pause;
    Pass(absl::Milliseconds(1));
    EXPECT_GT(context_.counters.folds_placed, placed) << pause;
  }
}

TEST_F(ReductionManagerTest, ANodeThatFailsWithAFoldThatNoPlanKnowsDropsIt) {
  BeginFolding();
  v1::FoldReport m;
  m.set_object_id(Bytes(target_));
  ToProto(VersionOf(Digest128{1, 2}), m.mutable_version());
  m.set_kind(v1::FoldReport::FAILED);
  PHALANX_ASSERT_OK(manager_.OnFoldReport(node(kC), m));
  Run();
  EXPECT_TRUE(WasSent(kC, v1::ShardMessage::kFoldDrop));
}

TEST_F(ReductionManagerTest, AnAnnouncementThatThePlanDoesNotExpectIsSuperseded) {
  BeginFolding();
  const v1::Fold fold = *LastFold(kA);
  v1::AnnounceCreate m;
  m.set_object_id(Bytes(target_));
  ToProto(Gen(kC), m.mutable_generation());
  m.mutable_info()->set_size_bytes(fold.size_bytes());
  m.mutable_info()->set_slices(1);
  *m.mutable_version() = fold.version();
  PHALANX_ASSERT_OK(manager_.OnCreate(node(kC), m));
  Run();
  EXPECT_TRUE(WasSent(kC, v1::ShardMessage::kFoldDrop));
  EXPECT_TRUE(WasSent(kC, v1::ShardMessage::kVerdict));
  EXPECT_EQ(table_.Find(target_), nullptr);
}

TEST_F(ReductionManagerTest, TheFoldsOfANodeThatIsDownMoveToAnotherHolder) {
  BeginFolding();
  Object& source = *table_.Find(Source(1));
  table_.AddCopy(source, node(kC));
  table_.CompleteCopy(source, kC);
  table_.Reevaluate(source);
  Run();
  GoDown(kB);
  EXPECT_TRUE(LastFold(kC).has_value());
}

TEST_F(ReductionManagerTest, AFoldThatTheNewSessionDoesNotRegisterIsPlacedAgain) {
  BeginFolding();
  manager_.SessionBegins(kB);
  Run();
  EXPECT_EQ(manager_.catalog().requesters(), 1u) << "a waits in its session";
  sent_.clear();
  manager_.SessionRegistered(kB);
  Run();
  EXPECT_TRUE(LastFold(kB).has_value());
}

TEST_F(ReductionManagerTest, TheRequestsOfASessionEndWithIt) {
  Reduce(kA, 2);
  Reduce(kB, 2);
  manager_.SessionBegins(kA);
  EXPECT_EQ(manager_.catalog().requesters(), 1u);
  GoDown(kB);
  EXPECT_EQ(manager_.catalog().requesters(), 0u);
}

TEST_F(ReductionManagerTest, ACommittedResultIsAwaitedForALeaseWhenItsNodeIsGone) {
  BeginFolding();
  Object& source = *table_.Find(Source(0));
  table_.AddCopy(source, node(kC));
  table_.CompleteCopy(source, kC);
  Announce(kA, /*complete=*/false);
  Report(kA, v1::FoldReport::READY);
  sent_.clear();
  GoDown(kA);
  EXPECT_FALSE(LastFold(kB).has_value() || LastFold(kC).has_value()) << "a may return with it";
  Pass(context_.options.lease);
  EXPECT_TRUE(LastFold(kB).has_value() || LastFold(kC).has_value());
  EXPECT_TRUE(Running());
}

TEST_F(ReductionManagerTest, APutUnderTheTargetIsNoResult) {
  Put(kC, target_);
  Reduce(kA, 2);
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kAlreadyExists));
  EXPECT_FALSE(Running());
}

TEST_F(ReductionManagerTest, AFailedSourceEndsTheReduction) {
  Reduce(kA, 2);
  failures_.Set(Source(0), absl::AbortedError("no input"));
  manager_.OnObjectChanged(Source(0));
  Run();
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kAborted));
}

// ---------------------------------------------------------------------- reductions that ended

TEST_F(ReductionManagerTest, ARequestForAResultThatExistsIsAnsweredAtOnce) {
  Finish();
  Reduce(kB, 2);
  EXPECT_EQ(Code(kB), 0);
  EXPECT_EQ(context_.counters.reductions, 1u);
  v1::ReduceRequest other = Request(2);
  other.mutable_reduction()->set_op(static_cast<uint32_t>(ReduceOp::kMax));
  Send(kB, other);
  EXPECT_EQ(Code(kB), Number(absl::StatusCode::kAlreadyExists));
}

TEST_F(ReductionManagerTest, ADeletedTargetIsReducedAgainOnlyByANewRequest) {
  tombstones_.Add(target_, EarlierId(1).AsGeneration());
  v1::ReduceRequest m = Request(2);
  m.set_again(true);
  Send(kA, m);
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kNotFound));
  Reduce(kB, 2);
  EXPECT_EQ(Code(kB), -1);
  EXPECT_TRUE(Running());
}

TEST_F(ReductionManagerTest, ADeletedReductionIsNeverJoined) {
  tombstones_.Add(target_, EarlierId(1).AsGeneration());
  Reduce(kA, 2);
  v1::ReduceRequest m = Request(2);
  ToProto(EarlierId(1), m.mutable_reduction()->mutable_begun());
  Send(kB, m);
  EXPECT_EQ(Code(kB), Number(absl::StatusCode::kNotFound));
  EXPECT_EQ(Code(kA), -1);
}

TEST_F(ReductionManagerTest, ATombstoneOfItsIdEndsTheReduction) {
  v1::ReduceRequest m = Request(2);
  ToProto(EarlierId(3), m.mutable_reduction()->mutable_begun());
  Send(kA, m);
  manager_.EndIfDeleted(target_, EarlierId(2));
  EXPECT_TRUE(Running()) << "another one";
  manager_.EndIfDeleted(target_, EarlierId(3));
  Run();
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kNotFound));
}

TEST_F(ReductionManagerTest, TheLaterOfTwoReductionsRuns) {
  v1::ReduceRequest earlier = Request(2);
  ToProto(EarlierId(3), earlier.mutable_reduction()->mutable_begun());
  Send(kA, earlier);
  v1::ReduceRequest later = Request(3);
  ToProto(EarlierId(4), later.mutable_reduction()->mutable_begun());
  Send(kB, later);
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Code(kB), -1);
  EXPECT_TRUE(manager_.catalog().Find(target_)->Is(EarlierId(4)));
}

TEST_F(ReductionManagerTest, ARetryOfAnOpenReductionHearsHowItEnded) {
  v1::ReduceRequest m = Request(2, /*open=*/true);
  m.set_timeout_ms(1000);
  Send(kA, m);
  Pass(absl::Seconds(1));
  ASSERT_EQ(Code(kA), Number(absl::StatusCode::kDeadlineExceeded));
  sent_.clear();
  m.set_again(true);
  Send(kA, m);
  EXPECT_EQ(Code(kA), Number(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(Running());
}

TEST_F(ReductionManagerTest, ADeleteEndsTheReductionAndSaysWhichItWas) {
  EXPECT_FALSE(manager_.CancelDeleted(target_).was_running);
  BeginFolding();
  Announce(kA, /*complete=*/false);
  const auto id = manager_.catalog().Find(target_)->identity.id;
  const ReductionManager::Cancelled cancelled = manager_.CancelDeleted(target_);
  EXPECT_TRUE(cancelled.was_running);
  EXPECT_EQ(cancelled.id, id);
  EXPECT_EQ(cancelled.announced, Gen(kA, 9));
  Run();
  EXPECT_TRUE(WasSent(kA, v1::ShardMessage::kFoldDrop));
}

TEST_F(ReductionManagerTest, WhatWasSeenOfANodeIsForgottenWithIt) {
  for (const uint64_t n : {11, 12}) {
    links_.RecordBounds({{n, 1}, {}}, {{n + 2, 1}, {}}, 100e6, 200e6, context_.now);
  }
  BeginFolding();
  v1::FoldReport m;
  m.set_object_id(Bytes(target_));
  *m.mutable_version() = LastFold(kA)->version();
  m.set_kind(v1::FoldReport::PROGRESS);
  m.mutable_pace()->set_input(LastFold(kA)->inputs(0).has_sender() ? 0 : 1);
  ToProto(kB, m.mutable_pace()->mutable_sender());
  m.mutable_pace()->set_bytes_per_second(10e6);
  m.mutable_pace()->set_window_ns(40'000'000);
  PHALANX_ASSERT_OK(manager_.OnFoldReport(node(kA), m));
  const Reduction& reduction = *manager_.catalog().Find(target_);
  ASSERT_TRUE(reduction.slow_nodes.contains(kB));
  GoDown(kB);
  EXPECT_TRUE(reduction.slow_nodes.empty());
}

}  // namespace
}  // namespace phalanx::directory
