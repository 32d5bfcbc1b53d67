// The reducer's messages to and from shards, beside those about folds: clients' requests,
// registration, kept descriptors, watched sources.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/collectives/reducer/reducer.h"
#include "src/collectives/testing/reduce_world.h"
#include "src/common/ids/open_hold.h"
#include "src/common/ids/shard_of.h"

namespace phalanx::collectives {
namespace {

using object_store::ClientId;
using object_store::IdBytes;
using object_store::RequestId;
using testing::FoldOf;
using testing::Named;
using testing::Numbers;
using testing::ReduceNode;
using testing::ReduceWorld;
using testing::Source;
using testing::Version;

using Kind = v1::NodeMessage::KindCase;

class ReducerDirectoryTest : public ::testing::Test {
 protected:
  static ReduceWorld::Options Shards(int num_shards) {
    ReduceWorld::Options options;
    options.num_shards = num_shards;
    return options;
  }
  // The arguments of a call.
  struct Call {
    ReduceTarget target;
    ReduceSpec spec;
    Instant deadline = Instant::Infinite();
  };
  Call SumOfTwo() {
    Call call;
    call.target.id = target_;
    call.spec.sources = {Source(1), Source(2)};
    return call;
  }
  using Result = std::shared_ptr<std::optional<absl::Status>>;
  Result Reduce(ReduceNode& node, const Call& call, RequestId* id = nullptr) {
    auto result = std::make_shared<std::optional<absl::Status>>();
    node.Run([&] {
      const RequestId request =
          node.reducer().Reduce(node.client(), call.target, call.spec, call.deadline,
                                [result](absl::Status status) { *result = status; });
      if (id != nullptr) *id = request;
      EXPECT_FALSE(result->has_value()) << "never inside the call";
    });
    return result;
  }
  static std::vector<v1::NodeMessage> SentOf(ReduceNode& node, Kind kind,
                                             std::optional<int> shard = std::nullopt) {
    std::vector<v1::NodeMessage> messages;
    for (const auto& sent : node.sent()) {
      const bool there = !shard || sent.shard == *shard;
      if (there && sent.message.kind_case() == kind) messages.push_back(sent.message);
    }
    return messages;
  }
  static v1::ShardMessage ReplyOf(uint64_t request, int code = 0, const std::string& text = "") {
    v1::ShardMessage message;
    message.mutable_reduce_reply()->set_request_id(request);
    message.mutable_reduce_reply()->set_code(code);
    message.mutable_reduce_reply()->set_message(text);
    return message;
  }
  void Extend(ReduceNode& node, ClientId client, bool close) {
    node.Run([&] {
      node.reducer().Extend(client, target_, {Source(3)}, close, Instant::Infinite(),
                            [](const absl::Status&) {});
    });
  }
  // The shard answers the last extension.
  void AnswerExtend(ReduceNode& node, absl::StatusCode code = absl::StatusCode::kOk) {
    const v1::ExtendRequest asked = SentOf(node, Kind::kExtendRequest).back().extend_request();
    v1::ShardMessage message;
    message.mutable_extend_reply()->set_request_id(asked.request_id());
    message.mutable_extend_reply()->set_code(static_cast<int>(code));
    node.Shard(message);
    world_.RunFor(absl::Milliseconds(1));
  }
  void EndClient(ReduceNode& node, ClientId client) {
    node.Run([&] {
      node.reducer().ClientClosed(client);
      node.store().CloseClient(client, /*clean=*/false);
    });
  }
  // The first name of that kind that belongs to shard `shard`.
  static ObjectId IdOfShard(absl::string_view kind, int shard, int num_shards) {
    for (int n = 0;; ++n) {
      const ObjectId id = Named(kind, n);
      if (ShardOf(id, num_shards) == shard) return id;
    }
  }
  void NewSession(ReduceNode& node, int shard = 0) {
    node.sent().clear();
    node.Run([&] { node.channel().OnSession(shard); });
  }
  static std::vector<Kind> Kinds(ReduceNode& node) {
    std::vector<Kind> kinds;
    for (const auto& sent : node.sent()) kinds.push_back(sent.message.kind_case());
    return kinds;
  }

  const ObjectId target_ = Named("target", 0);
  ReduceWorld world_;
};

TEST_F(ReducerDirectoryTest, AReduceRequestHasAllItsArguments) {
  ReduceNode& a = world_.Add("a");
  Call call = SumOfTwo();
  call.spec.elements = DType::kF16;
  call.spec.op = ReduceOp::kMean;
  call.spec.order = ReduceSpec::Order::kFixed;
  call.spec.open = true;
  call.spec.num_objects = 2;
  call.spec.range_offset = 8;
  call.spec.range_bytes = 16;
  Reduce(a, call);
  const auto asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 1u);
  const v1::ReduceRequest& request = asked[0].reduce_request();
  EXPECT_EQ(request.object_id(), IdBytes(target_));
  EXPECT_EQ(request.timeout_ms(), 0u);
  const v1::Reduction& reduction = request.reduction();
  EXPECT_EQ(reduction.dtype(), static_cast<uint32_t>(DType::kF16));
  EXPECT_EQ(reduction.op(), static_cast<uint32_t>(ReduceOp::kMean));
  EXPECT_EQ(reduction.order(), 1u);
  EXPECT_TRUE(reduction.open());
  EXPECT_EQ(reduction.num_objects(), 2u);
  EXPECT_EQ(reduction.range_offset(), 8u);
  EXPECT_EQ(reduction.range_bytes(), 16u);
  EXPECT_THAT(reduction.source_ids(),
              ::testing::ElementsAre(IdBytes(Source(1)), IdBytes(Source(2))));
  EXPECT_EQ(directory::FromProto(reduction.root()), a.self());
}

TEST_F(ReducerDirectoryTest, ARequesterAtTheRootIsAnsweredWithoutAReplyOfTheShard) {
  ReduceNode& a = world_.Add("a");
  Call call = SumOfTwo();
  call.spec.elements = DType::kU32;
  const Result small = Reduce(a, call);
  a.Shard(FoldOf(target_, Version(1), 40)
              .Inline(Numbers(1, 10))
              .Inline(Numbers(2, 10))
              .Root({Source(2), Source(1)})
              .Answering(call.spec)
              .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return small->has_value(); }));
  EXPECT_TRUE((*small)->ok());
  EXPECT_TRUE(a.Complete(target_));

  call.target.id = Named("target", 1);
  const Result large = Reduce(a, call);
  const Generation g1 = a.Put(Source(1), Numbers(1, 100'000));
  const Generation g2 = a.Put(Source(2), Numbers(2, 100'000));
  FoldOf fold(call.target.id, Version(2), 400'000);
  a.Shard(fold.Source(Source(1), g1)
              .Source(Source(2), g2)
              .Root({Source(1), Source(2)})
              .Answering(call.spec));
  ASSERT_TRUE(world_.RunUntil([&] { return !a.Reports(v1::FoldReport::READY).empty(); }));
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_FALSE(large->has_value()) << "not before the commit";
  a.Shard(testing::CommitOf(call.target.id, Version(2)));
  ASSERT_TRUE(world_.RunUntil([&] { return large->has_value(); }));
  EXPECT_TRUE((*large)->ok());
  EXPECT_TRUE(a.Complete(call.target.id));
  EXPECT_EQ(a.reducer().stats().waiting, 0u);
}

TEST_F(ReducerDirectoryTest, AResultDoesNotAnswerARequestForAnotherReduction) {
  ReduceNode& a = world_.Add("a");
  Call made = SumOfTwo();
  made.spec.elements = DType::kU32;
  std::vector<Call> calls(7, SumOfTwo());
  calls[0].spec.op = ReduceOp::kMax;
  calls[1].spec.elements = DType::kI32;
  calls[2].spec.sources = {Source(1), Source(3)};
  calls[3].spec.num_objects = 1;
  calls[4].spec.range_offset = 8;
  calls[4].spec.range_bytes = 40;
  calls[5].spec.order = ReduceSpec::Order::kFixed;
  calls[5].spec.sources = {Source(2), Source(1)};
  calls[6].spec.order = ReduceSpec::Order::kFixed;
  std::vector<Result> results;
  for (Call& call : calls) {
    if (call.spec.elements != DType::kI32) call.spec.elements = DType::kU32;
    results.push_back(Reduce(a, call));
  }
  Call open = SumOfTwo();
  open.spec.elements = DType::kU32;
  open.spec.open = true;
  results.push_back(Reduce(a, open));
  a.Shard(FoldOf(target_, Version(1), 40)
              .Inline(Numbers(1, 10))
              .Inline(Numbers(2, 10))
              .Root({Source(1), Source(2)})
              .Answering(made.spec)
              .Committed());
  ASSERT_TRUE(world_.RunUntil([&] { return a.Complete(target_); }));
  world_.RunFor(absl::Milliseconds(10));
  for (size_t i = 0; i < results.size(); ++i) EXPECT_FALSE(results[i]->has_value()) << i;
}

TEST_F(ReducerDirectoryTest, TwoClientsThatAskForTheSameAreAnsweredEach) {
  ReduceNode& a = world_.Add("a");
  const Result first = Reduce(a, SumOfTwo());
  const Result second = Reduce(a, SumOfTwo());
  const auto asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(a.reducer().stats().waiting, 2u);
  a.Shard(ReplyOf(asked[0].reduce_request().request_id()));
  world_.RunFor(absl::Milliseconds(1));
  ASSERT_TRUE(first->has_value());
  EXPECT_TRUE((*first)->ok());
  EXPECT_FALSE(second->has_value());
  a.Shard(ReplyOf(asked[1].reduce_request().request_id(), 5, "the target was deleted"));
  a.Shard(ReplyOf(asked[1].reduce_request().request_id()));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ((*second)->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*second)->message(), "the target was deleted");
  EXPECT_EQ(a.reducer().stats().waiting, 0u);
}

TEST_F(ReducerDirectoryTest, ADeadlineIsSentToTheShardAndItsReplyHasAMomentMore) {
  ReduceNode& a = world_.Add("a");
  Call call = SumOfTwo();
  call.deadline = a.plane().control().Now() + absl::Microseconds(99'500);
  const Result result = Reduce(a, call);
  EXPECT_EQ(SentOf(a, Kind::kReduceRequest)[0].reduce_request().timeout_ms(), 100u);
  world_.RunFor(absl::Milliseconds(199));
  EXPECT_FALSE(result->has_value());
  world_.RunFor(absl::Milliseconds(1));
  ASSERT_TRUE(result->has_value());
  EXPECT_EQ((*result)->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReducerDirectoryTest, InvalidReductionsAreNotSent) {
  ReduceNode& a = world_.Add("a");
  Call nil = SumOfTwo();
  nil.target.id = ObjectId();
  Call bits = SumOfTwo();
  bits.spec.op = ReduceOp::kBitAnd;
  Call many = SumOfTwo();
  many.spec.sources.assign(kMaxReduceSources + 1, Source(1));
  for (const Call& call : {nil, bits, many}) {
    const Result result = Reduce(a, call);
    world_.RunFor(absl::Milliseconds(1));
    ASSERT_TRUE(result->has_value());
    EXPECT_EQ((*result)->code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(a.sent().empty());
}

TEST_F(ReducerDirectoryTest, ACallerThatCancelsOrLeavesIsNotCalled) {
  ReduceNode& a = world_.Add("a");
  RequestId id = 0;
  const Result cancelled = Reduce(a, SumOfTwo(), &id);
  const Result left = Reduce(a, SumOfTwo());
  a.Run([&] { a.reducer().Cancel(a.client() + 1, id); });
  EXPECT_EQ(a.reducer().stats().waiting, 2u) << "another client's is not theirs to cancel";
  a.Run([&] { a.reducer().Cancel(a.client(), id); });
  EXPECT_EQ(a.reducer().stats().waiting, 1u);
  a.Run([&] { a.reducer().ClientClosed(a.client()); });
  EXPECT_EQ(a.reducer().stats().waiting, 0u);
  for (const auto& asked : SentOf(a, Kind::kReduceRequest)) {
    a.Shard(ReplyOf(asked.reduce_request().request_id()));
  }
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_FALSE(cancelled->has_value());
  EXPECT_FALSE(left->has_value());
}

TEST_F(ReducerDirectoryTest, ExtendAndFailGoToTheirObjectsShard) {
  ReduceNode& a = world_.Add("a", Shards(3));
  std::optional<absl::Status> extended;
  std::optional<absl::Status> failed;
  const ObjectId open = IdOfShard("open", 2, 3);
  const ObjectId broken = IdOfShard("broken", 1, 3);
  a.Run([&] {
    a.reducer().Extend(a.client(), open, {Source(1)}, true, Instant::Infinite(),
                       [&](absl::Status status) { extended = status; });
    a.reducer().Fail(a.client(), broken, absl::DataLossError("no disk"), Instant::Infinite(),
                     [&](absl::Status status) { failed = status; });
  });
  const auto extends = SentOf(a, Kind::kExtendRequest, 2);
  const auto fails = SentOf(a, Kind::kFailRequest, 1);
  ASSERT_EQ(extends.size(), 1u);
  ASSERT_EQ(fails.size(), 1u);
  EXPECT_TRUE(extends[0].extend_request().close());
  EXPECT_EQ(fails[0].fail_request().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(fails[0].fail_request().message(), "no disk");
  v1::ShardMessage reply;
  reply.mutable_extend_reply()->set_request_id(extends[0].extend_request().request_id());
  a.Shard(reply);
  reply.mutable_fail_reply()->set_request_id(fails[0].fail_request().request_id());
  reply.mutable_fail_reply()->set_code(6);
  a.Shard(reply);
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_TRUE(extended && extended->ok());
  EXPECT_TRUE(failed && absl::IsAlreadyExists(*failed));
}

TEST_F(ReducerDirectoryTest, RequestsAndFoldsArePartOfTheRegistration) {
  ReduceNode& a = world_.Add("a");
  const Generation g = a.Put(Source(1), Numbers(1, 1000));
  Reduce(a, SumOfTwo());
  FoldOf fold(target_, Version(4), 4000);
  fold.Source(Source(1), g).Root({Source(1)});
  fold.fold().set_slot(3);
  fold.fold().set_slots(7);
  fold.fold().set_degree(2);
  fold.Number(3);
  a.Shard(fold);
  ASSERT_TRUE(world_.RunUntil([&] { return !a.Reports(v1::FoldReport::READY).empty(); }));
  NewSession(a);
  EXPECT_THAT(Kinds(a), ::testing::ElementsAre(Kind::kRegisterBegin, Kind::kRegisterCopy,
                                               Kind::kRegisterCopy, Kind::kReduceRequest,
                                               Kind::kRegisterFold, Kind::kRegisterEnd));
  const v1::ReduceRequest asked = SentOf(a, Kind::kReduceRequest)[0].reduce_request();
  EXPECT_NE(asked.request_id(), 0u);
  EXPECT_TRUE(asked.again());
  EXPECT_EQ(asked.reduction().source_ids_size(), 2) << "as the client has it";
  const v1::RegisterFold registered = SentOf(a, Kind::kRegisterFold)[0].register_fold();
  EXPECT_EQ(directory::VersionFromProto(registered.version()), Version(4));
  EXPECT_EQ(registered.slot(), 3u);
  EXPECT_EQ(registered.slots(), 7u);
  EXPECT_EQ(registered.degree(), 2u);
  EXPECT_EQ(directory::ReductionIdFromProto(registered.begun()), MakeReductionId(7, 7, 3));
  EXPECT_TRUE(registered.root());
  EXPECT_TRUE(registered.ready());
  EXPECT_THAT(registered.source_ids(), ::testing::ElementsAre(IdBytes(Source(1))));
  EXPECT_EQ(registered.generation().creator().node(), a.self().node);
  // The repeated order changes nothing, and has the target announced again.
  a.sent().clear();
  a.Shard(fold);
  EXPECT_THAT(Kinds(a), ::testing::ElementsAre(Kind::kAnnounceCreate, Kind::kFoldReport));
  EXPECT_EQ(directory::VersionFromProto(a.sent()[0].message.announce_create().version()),
            Version(4));
  a.sent().clear();
  a.Shard(fold);
  EXPECT_THAT(Kinds(a), ::testing::ElementsAre(Kind::kFoldReport)) << "once";
}

TEST_F(ReducerDirectoryTest, AKeptReductionIsRegisteredWithARestartedShardUntilItIsReleased) {
  ReduceNode& a = world_.Add("a");
  v1::ShardMessage keep;
  keep.mutable_keep_reduction()->set_object_id(IdBytes(target_));
  keep.mutable_keep_reduction()->mutable_reduction()->add_source_ids(IdBytes(Source(1)));
  keep.mutable_keep_reduction()->set_timeout_ms(1000);
  a.Shard(keep);
  world_.RunFor(absl::Milliseconds(400));
  NewSession(a);
  auto asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].reduce_request().request_id(), 0u);
  EXPECT_EQ(asked[0].reduce_request().timeout_ms(), 600u);
  EXPECT_EQ(asked[0].reduce_request().reduction().source_ids_size(), 1);
  world_.RunFor(absl::Milliseconds(600));
  NewSession(a);
  EXPECT_TRUE(SentOf(a, Kind::kReduceRequest).empty()) << "its time has passed";
  keep.mutable_keep_reduction()->clear_timeout_ms();
  a.Shard(keep);
  NewSession(a);
  asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].reduce_request().timeout_ms(), 0u);
  keep.mutable_keep_reduction()->set_forget(true);
  a.Shard(keep);
  NewSession(a);
  EXPECT_TRUE(SentOf(a, Kind::kReduceRequest).empty());
}

TEST_F(ReducerDirectoryTest, PartsOfAnOpenReductionAreKeptByPositionAndRegistered) {
  ReduceNode& a = world_.Add("a");
  const auto keep = [&](uint32_t first, const std::vector<ObjectId>& sources, bool closed) {
    v1::ShardMessage message;
    v1::KeepReduction& part = *message.mutable_keep_reduction();
    part.set_object_id(IdBytes(target_));
    part.mutable_reduction()->set_open(true);
    part.mutable_reduction()->set_closed(closed);
    part.mutable_reduction()->set_first_source(first);
    for (const ObjectId& id : sources) part.mutable_reduction()->add_source_ids(IdBytes(id));
    a.Shard(message);
  };
  keep(5, {Source(5)}, false);
  keep(2, {Source(2)}, false);
  keep(6, {Source(6), Source(7)}, false);
  keep(7, {Source(7), Source(8)}, false);
  keep(9, {}, true);
  NewSession(a);
  const auto asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].reduce_request().reduction().first_source(), 2u);
  EXPECT_FALSE(asked[0].reduce_request().reduction().closed());
  EXPECT_THAT(asked[0].reduce_request().reduction().source_ids(),
              ::testing::ElementsAre(IdBytes(Source(2))));
  const v1::Reduction& grown = asked[1].reduce_request().reduction();
  EXPECT_EQ(grown.first_source(), 5u);
  EXPECT_TRUE(grown.closed());
  EXPECT_THAT(grown.source_ids(), ::testing::ElementsAre(IdBytes(Source(5)), IdBytes(Source(6)),
                                                         IdBytes(Source(7)), IdBytes(Source(8))));
}

TEST_F(ReducerDirectoryTest, ARepeatedExtensionIsMarkedAsARetry) {
  ReduceNode& a = world_.Add("a");
  a.Run([&] {
    a.reducer().Extend(a.client(), target_, {Source(1)}, false, Instant::Infinite(),
                       [](const absl::Status&) {});
  });
  ASSERT_EQ(SentOf(a, Kind::kExtendRequest).size(), 1u);
  EXPECT_FALSE(SentOf(a, Kind::kExtendRequest)[0].extend_request().again());
  NewSession(a);
  EXPECT_THAT(Kinds(a), ::testing::ElementsAre(Kind::kRegisterBegin, Kind::kRegisterHolds,
                                               Kind::kRegisterEnd, Kind::kExtendRequest));
  EXPECT_TRUE(SentOf(a, Kind::kExtendRequest)[0].extend_request().again());
}

// The shard hears of the first client that can close an open reduction, and of the last one's end.
TEST_F(ReducerDirectoryTest, AnOpenReductionIsHeldOpenByItsRequesterAndByClientsThatAdd) {
  ReduceNode& a = world_.Add("a");
  Call call = SumOfTwo();
  call.spec.open = true;
  const Result opened = Reduce(a, call);
  EXPECT_THAT(Kinds(a), ::testing::ElementsAre(Kind::kHold, Kind::kReduceRequest));
  EXPECT_EQ(SentOf(a, Kind::kHold)[0].hold().object_ids(), IdBytes(OpenHoldOf(target_, 1)));
  ClientId second = 0;
  a.Run([&] { second = a.store().OpenClient(); });
  Extend(a, second, /*close=*/false);
  AnswerExtend(a);
  EndClient(a, a.client());
  EXPECT_TRUE(SentOf(a, Kind::kUnhold).empty()) << "the second client has added to it";
  EndClient(a, second);
  ASSERT_EQ(SentOf(a, Kind::kUnhold).size(), 1u);
  EXPECT_EQ(SentOf(a, Kind::kUnhold)[0].unhold().object_ids(), IdBytes(OpenHoldOf(target_, 1)));
}

TEST_F(ReducerDirectoryTest, AnOpenReductionIsNotHeldOpenAfterItsEnd) {
  ReduceNode& a = world_.Add("a");
  // By a reply, by an acknowledged close, and by the shard's order to forget it.
  for (const char* how : {"reply", "refused", "closed", "forgotten", "forgotten after a cancel"}) {
    a.sent().clear();
    Call call = SumOfTwo();
    call.spec.open = true;
    RequestId request = 0;
    if (how == absl::string_view("reply")) {
      Reduce(a, call);
      a.Shard(ReplyOf(SentOf(a, Kind::kReduceRequest)[0].reduce_request().request_id()));
    } else if (how == absl::string_view("forgotten after a cancel")) {
      Reduce(a, call, &request);
      a.Run([&] { a.reducer().Cancel(a.client(), request); });
      EXPECT_TRUE(SentOf(a, Kind::kUnhold).empty()) << "the reduction continues";
    } else {
      Extend(a, a.client(), /*close=*/false);
      AnswerExtend(a, how == absl::string_view("refused") ? absl::StatusCode::kNotFound
                                                          : absl::StatusCode::kOk);
    }
    if (how == absl::string_view("closed")) {
      Extend(a, a.client(), /*close=*/true);
      EXPECT_TRUE(SentOf(a, Kind::kUnhold).empty());
      AnswerExtend(a);
    } else if (absl::StartsWith(how, "forgotten")) {
      v1::ShardMessage forget;
      forget.mutable_keep_reduction()->set_object_id(IdBytes(target_));
      forget.mutable_keep_reduction()->set_forget(true);
      a.Shard(forget);
    }
    world_.RunFor(absl::Milliseconds(1));
    EXPECT_EQ(SentOf(a, Kind::kUnhold).size(), 1u) << how;
  }
}

// The shard's answer and the end of the reduction arrive in one batch.
TEST_F(ReducerDirectoryTest, AReductionThatEndsRightAfterAnAdditionIsNotHeldOpen) {
  ReduceNode& a = world_.Add("a");
  Extend(a, a.client(), /*close=*/false);
  const v1::ExtendRequest asked = SentOf(a, Kind::kExtendRequest).back().extend_request();
  v1::ShardMessage reply;
  reply.mutable_extend_reply()->set_request_id(asked.request_id());
  v1::ShardMessage forget;
  forget.mutable_keep_reduction()->set_object_id(IdBytes(target_));
  forget.mutable_keep_reduction()->set_forget(true);
  a.Run([&] {
    a.channel().OnMessage(0, reply);
    a.channel().OnMessage(0, forget);
  });
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(SentOf(a, Kind::kUnhold).size(), 1u);
}

TEST_F(ReducerDirectoryTest, AnEarlierReductionsEndLeavesALaterOneHeldOpen) {
  ReduceNode& a = world_.Add("a");
  Call call = SumOfTwo();
  call.spec.open = true;
  Reduce(a, call);
  // Crosses the request, which is for the next reduction of the target.
  v1::ShardMessage forget;
  forget.mutable_keep_reduction()->set_object_id(IdBytes(target_));
  forget.mutable_keep_reduction()->set_forget(true);
  a.Shard(forget);
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_TRUE(SentOf(a, Kind::kUnhold).empty());
}

// A repeated request carries the reduction's number, if the shard has sent the number meanwhile.
TEST_F(ReducerDirectoryTest, ARepeatedRequestNamesItsReduction) {
  ReduceNode& a = world_.Add("a");
  Reduce(a, SumOfTwo());
  a.Run([&] {
    a.reducer().Extend(a.client(), target_, {Source(3)}, false, Instant::Infinite(),
                       [](const absl::Status&) {});
  });
  NewSession(a);
  EXPECT_FALSE(SentOf(a, Kind::kReduceRequest)[0].reduce_request().reduction().has_begun());
  EXPECT_FALSE(SentOf(a, Kind::kExtendRequest)[0].extend_request().has_begun());
  const auto keep = [&](uint64_t count, bool forget = false) {
    v1::ShardMessage message;
    message.mutable_keep_reduction()->set_object_id(IdBytes(target_));
    message.mutable_keep_reduction()->set_forget(forget);
    v1::Reduction& reduction = *message.mutable_keep_reduction()->mutable_reduction();
    reduction.set_open(true);
    reduction.add_source_ids(IdBytes(Source(static_cast<int>(count))));
    directory::ToProto(MakeReductionId(7, 7, count), reduction.mutable_begun());
    a.Shard(message);
  };
  keep(1);
  keep(2);
  keep(1, /*forget=*/true);
  NewSession(a);
  const ReductionId number = MakeReductionId(7, 7, 2);
  const auto asked = SentOf(a, Kind::kReduceRequest);
  ASSERT_EQ(asked.size(), 2u) << "who waits, and what is kept in mind";
  for (const v1::NodeMessage& message : asked) {
    EXPECT_EQ(directory::ReductionIdFromProto(message.reduce_request().reduction().begun()),
              number);
  }
  EXPECT_THAT(asked[1].reduce_request().reduction().source_ids(),
              ::testing::ElementsAre(IdBytes(Source(2))))
      << "of another one nothing is kept";
  EXPECT_EQ(
      directory::ReductionIdFromProto(SentOf(a, Kind::kExtendRequest)[0].extend_request().begun()),
      number);
  keep(2, /*forget=*/true);
  NewSession(a);
  EXPECT_EQ(SentOf(a, Kind::kReduceRequest).size(), 1u);
}

class SourceWatchesTest : public ReducerDirectoryTest {
 protected:
  v1::ShardMessage WatchOf(const std::vector<ObjectId>& sources, bool end = false) {
    v1::ShardMessage message;
    v1::WatchSource& watch = *message.mutable_watch_source();
    watch.set_target_id(IdBytes(watched_));
    for (const ObjectId& source : sources) watch.add_source_ids(IdBytes(source));
    watch.set_end(end);
    return message;
  }
  v1::ShardMessage StateOf(const ObjectId& source) {
    v1::ShardMessage message;
    message.mutable_source_state()->set_target_id(IdBytes(watched_));
    message.mutable_source_state()->set_source_id(IdBytes(source));
    message.mutable_source_state()->set_size_bytes(7);
    return message;
  }

  ReduceNode& a_ = world_.Add("a", Shards(3));
  const ObjectId watched_ = IdOfShard("watched", 0, 3);
  const ObjectId one_ = IdOfShard("one", 1, 3);
  const ObjectId two_ = IdOfShard("two", 2, 3);
};

TEST_F(SourceWatchesTest, AreForwardedToTheShardsOfTheSourcesAndBack) {
  a_.Shard(WatchOf({one_, two_}));
  for (const auto& [shard, source] : {std::pair(1, one_), std::pair(2, two_)}) {
    const auto watches = SentOf(a_, Kind::kWatchSource, shard);
    ASSERT_EQ(watches.size(), 1u);
    EXPECT_EQ(watches[0].watch_source().target_id(), IdBytes(watched_));
    EXPECT_THAT(watches[0].watch_source().source_ids(), ::testing::ElementsAre(IdBytes(source)));
    EXPECT_FALSE(watches[0].watch_source().end());
  }
  a_.Shard(StateOf(one_));
  const auto back = SentOf(a_, Kind::kSourceState);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].source_state().size_bytes(), 7u);
  EXPECT_EQ(SentOf(a_, Kind::kSourceState, 0).size(), 1u);
  a_.Shard(StateOf(Source(5)));
  EXPECT_EQ(SentOf(a_, Kind::kSourceState).size(), 1u) << "no shard watches that one";
}

TEST_F(SourceWatchesTest, EndWhenTheShardOfTheTargetEndsThem) {
  a_.Shard(WatchOf({one_, two_}));
  a_.sent().clear();
  a_.Shard(WatchOf({one_}, /*end=*/true));
  ASSERT_EQ(SentOf(a_, Kind::kWatchSource).size(), 1u);
  EXPECT_TRUE(SentOf(a_, Kind::kWatchSource, 1)[0].watch_source().end());
  a_.Shard(StateOf(one_));
  EXPECT_TRUE(SentOf(a_, Kind::kSourceState).empty());
  a_.Shard(WatchOf({}, /*end=*/true));
  EXPECT_EQ(SentOf(a_, Kind::kWatchSource, 2).size(), 1u) << "none named: all of them";
  a_.sent().clear();
  NewSession(a_, 2);
  EXPECT_TRUE(SentOf(a_, Kind::kWatchSource).empty());
}

TEST_F(SourceWatchesTest, AreSentAgainToTheShardOfASourceInANewSession) {
  a_.Shard(WatchOf({one_, two_}));
  NewSession(a_, 1);
  EXPECT_THAT(Kinds(a_),
              ::testing::ElementsAre(Kind::kRegisterBegin, Kind::kRegisterEnd, Kind::kWatchSource));
  EXPECT_THAT(a_.sent()[2].message.watch_source().source_ids(),
              ::testing::ElementsAre(IdBytes(one_)));
}

TEST_F(SourceWatchesTest, EndWithTheSessionOfTheShardOfTheTarget) {
  a_.Shard(WatchOf({one_, two_}));
  NewSession(a_, 0);
  EXPECT_TRUE(SentOf(a_, Kind::kWatchSource, 1)[0].watch_source().end());
  EXPECT_TRUE(SentOf(a_, Kind::kWatchSource, 2)[0].watch_source().end());
  a_.Shard(StateOf(one_));
  EXPECT_TRUE(SentOf(a_, Kind::kSourceState).empty());
  a_.sent().clear();
  a_.Shard(WatchOf({one_}));
  EXPECT_FALSE(SentOf(a_, Kind::kWatchSource, 1)[0].watch_source().end());
}

TEST_F(SourceWatchesTest, MalformedOnesAreIgnored) {
  v1::ShardMessage message = WatchOf({one_});
  message.mutable_watch_source()->set_target_id("short");
  a_.Shard(message);
  message = WatchOf({});
  message.mutable_watch_source()->add_source_ids("short");
  a_.Shard(message);
  message = StateOf(one_);
  message.mutable_source_state()->clear_source_id();
  a_.Shard(message);
  EXPECT_TRUE(a_.sent().empty());
}

}  // namespace
}  // namespace phalanx::collectives
