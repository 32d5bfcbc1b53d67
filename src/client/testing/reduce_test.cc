// The reduction verbs against a real socket and store; reductions are simulated.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::object_store::testing::ReduceShard;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }
const ObjectId kTarget = ObjectId::FromName("test", "target");

std::vector<ObjectId> Sources(int count) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(Id(i));
  return ids;
}

class ReduceTest : public ::testing::Test {
 protected:
  ReduceTest() {
    ClientOptions options;
    options.address = node_.address();
    client_ = Client::Connect(options).value();
  }
  ~ReduceTest() override {
    client_.reset();
    EXPECT_THAT(node_.CheckInvariants(), IsOk());
  }

  void AwaitCalls(size_t count) {
    node_.Await([this, count] { return node_.reduce().calls.size() == count; });
  }
  // Waits for the next call and answers it.
  void Answer(absl::Status status = absl::OkStatus()) {
    node_.Await([this] { return !node_.reduce().calls.empty(); });
    node_.OnLoop([&] { node_.reduce().Answer(std::move(status)); });
  }

  // Leaves the store as a reduction does.
  void PutResult(const ObjectId& id, const std::vector<ObjectId>& sources) {
    bool put = false;
    node_.OnLoop([&] {
      object_store::PutOptions options;
      options.id = id;
      for (const ObjectId& source : sources) {
        options.reduced_from.append(source.binary().data(), ObjectId::kSize);
      }
      node_.store().Put(node_.store().OpenClient(), options, "result", [&put](auto done) {
        EXPECT_THAT(done, IsOk());
        put = true;
      });
    });
    node_.Await([&put] { return put; });
  }

  LocalNode node_;
  std::shared_ptr<Client> client_;
};

TEST_F(ReduceTest, AReductionReachesTheNodeWithItsArgumentsAndEndsWhenItIsCommitted) {
  ReduceOptions options;
  options.dtype = DType::kI16;
  options.op = ReduceOp::kBitOr;
  options.order = ReduceOptions::Order::kFixed;
  options.num_objects = 2;
  options.root = ReduceOptions::Root::kAny;
  options.offset = 4;
  options.length = 8;
  options.source_metadata = "f4 (16,)";
  const Future<Done> reduced = client_->Reduce(kTarget, Sources(3), options);
  AwaitCalls(1);
  node_.OnLoop([this] {
    const ReduceShard::Call& call = node_.reduce().calls[0];
    EXPECT_EQ(call.target.id, kTarget);
    EXPECT_EQ(call.spec.sources, Sources(3));
    EXPECT_EQ(call.spec.elements, ElementTypes(DType::kI16));
    EXPECT_EQ(call.spec.op, ReduceOp::kBitOr);
    EXPECT_EQ(call.spec.order, ReduceSpec::Order::kFixed);
    EXPECT_FALSE(call.spec.open);
    EXPECT_EQ(call.spec.num_objects, 2u);
    EXPECT_EQ(call.spec.range_offset, 4u);
    EXPECT_EQ(call.spec.range_bytes, 8u);
    EXPECT_EQ(call.spec.source_metadata, "f4 (16,)");
    EXPECT_FALSE(call.target.root_here);
    EXPECT_EQ(call.message.reduce_request().timeout_ms(), 0u);
  });
  EXPECT_FALSE(reduced.ready());
  Answer();
  EXPECT_THAT(reduced.Wait(), IsOk());
}

TEST_F(ReduceTest, AFailureOfTheReductionNamesTargetAndNode) {
  const Future<Done> reduced = client_->Reduce(kTarget, Sources(2));
  Answer(absl::AlreadyExistsError("another reduction has that id"));
  EXPECT_THAT(reduced.Wait(), StatusIs(absl::StatusCode::kAlreadyExists,
                                       AllOf(HasSubstr(kTarget.hex()), HasSubstr(node_.address()),
                                             HasSubstr("another reduction"))));
}

struct BadReduce {
  std::string says;
  std::vector<ObjectId> sources = Sources(3);
  ReduceOptions options = {};
};

std::vector<BadReduce> BadReduces() {
  std::vector<BadReduce> bad;
  bad.push_back({"no source is given", {}});
  bad.push_back({absl::StrCat("source ", Id(1).hex(), " is given twice"), {Id(1), Id(0), Id(1)}});
  bad.push_back({"the target is among its own sources", {Id(0), kTarget}});
  bad.push_back({"the nil id is among the sources", {Id(0), ObjectId()}});
  bad.push_back({"16385 sources", std::vector<ObjectId>(16385, Id(0))});
  bad.push_back({"4 of 3 sources"});
  bad.back().options.num_objects = 4;
  bad.push_back({"no bit-or of f32"});
  bad.back().options.op = ReduceOp::kBitOr;
  bad.push_back({"no mean of u8"});
  bad.back().options.dtype = DType::kU8;
  bad.back().options.op = ReduceOp::kMean;
  bad.push_back({"unknown op or dtype"});
  bad.back().options.dtype = static_cast<DType>(77);
  bad.push_back({"the range of 6 bytes at 0 does not consist of whole elements of f32"});
  bad.back().options.length = 6;
  bad.push_back({"the range of 8 bytes at 2 does not consist of whole elements of f32"});
  bad.back().options.offset = 2;
  bad.back().options.length = 8;
  bad.push_back({"no mean of i64"});
  bad.back().options.runs = {{64, DType::kF32}, {72, DType::kI64}};
  bad.back().options.op = ReduceOp::kMean;
  bad.push_back({"a run of f32 from byte 0 to 8"});
  bad.back().options.runs = {{8, DType::kF32}, {16, DType::kI64}};
  bad.push_back(
      {"the range of 64 bytes at 64 does not consist of whole elements of runs of f32, i64"});
  bad.back().options.runs = {{64, DType::kF32}, {72, DType::kI64}};
  bad.back().options.offset = 64;
  bad.back().options.length = 64;
  bad.push_back({"offset 4 needs a length"});
  bad.back().options.offset = 4;
  bad.push_back({"exceeds the largest object"});
  bad.back().options.offset = uint64_t{1} << 60;
  bad.back().options.length = 4;
  return bad;
}

TEST_F(ReduceTest, ElementsOfSeveralTypesReachTheNode) {
  ReduceOptions options;
  options.runs = {{64, DType::kF32}, {72, DType::kI64}};
  const Future<Done> reduced = client_->Reduce(kTarget, Sources(3), options);
  AwaitCalls(1);
  node_.OnLoop([this, &options] {
    const ReduceSpec& spec = node_.reduce().calls[0].spec;
    EXPECT_EQ(spec.elements, ElementTypes(DType::kF32, options.runs));
  });
}

TEST_F(ReduceTest, RejectsAndNamesBadArgumentsBeforeSending) {
  for (const BadReduce& bad : BadReduces()) {
    const Future<Done> reduced = client_->Reduce(kTarget, bad.sources, bad.options);
    const Future<Buffer> all = client_->AllReduce(kTarget, bad.sources, bad.options);
    ASSERT_TRUE(reduced.ready() && all.ready()) << bad.says;
    EXPECT_THAT(reduced.Wait(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr(kTarget.hex()), HasSubstr(bad.says))));
    EXPECT_THAT(all.Wait(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.says)));
  }
  EXPECT_THAT(client_->Reduce(ObjectId(), Sources(2)).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nil id")));
  EXPECT_THAT(client_->AddSources(kTarget, {}).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no source to add")));
  EXPECT_THAT(client_->AddSources(kTarget, {Id(1), Id(1)}).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Id(1).hex())));
  EXPECT_THAT(client_->Fail(Id(1), absl::OkStatus()).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Id(1).hex())));
  node_.OnLoop([this] { EXPECT_THAT(node_.reduce().calls, IsEmpty()); });
}

TEST_F(ReduceTest, AnOpenReductionStartsEmptyAndIsExtendedAndClosed) {
  ReduceOptions options;
  options.open = true;
  options.num_objects = 2;
  const Future<Done> reduced = client_->Reduce(kTarget, {}, options);
  const Future<Done> added = client_->AddSources(kTarget, Sources(2));
  const Future<Done> closed = client_->CloseReduction(kTarget);
  AwaitCalls(3);
  node_.OnLoop([this] {
    const auto& calls = node_.reduce().calls;
    EXPECT_TRUE(calls[0].spec.open);
    ASSERT_TRUE(calls[1].message.has_extend_request());
    EXPECT_EQ(calls[1].target.id, kTarget);
    EXPECT_EQ(calls[1].sources, Sources(2));
    EXPECT_FALSE(calls[1].message.extend_request().close());
    EXPECT_THAT(calls[2].sources, IsEmpty());
    EXPECT_TRUE(calls[2].message.extend_request().close());
  });
  Answer();
  Answer(absl::NotFoundError("no such reduction"));
  Answer();
  EXPECT_THAT(reduced.Wait(), IsOk());
  EXPECT_THAT(added.Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("AddSources")));
  EXPECT_THAT(closed.Wait(), IsOk());
}

TEST_F(ReduceTest, FailReachesTheNodeWithItsReason) {
  const Future<Done> failed = client_->Fail(Id(1), absl::DataLossError("its input was torn"));
  AwaitCalls(1);
  node_.OnLoop([this] {
    const auto& call = node_.reduce().calls[0];
    ASSERT_TRUE(call.message.has_fail_request());
    EXPECT_EQ(call.target.id, Id(1));
    EXPECT_EQ(call.why, absl::DataLossError("its input was torn"));
  });
  Answer();
  EXPECT_THAT(failed.Wait(), IsOk());
}

TEST_F(ReduceTest, AllReduceEndsWhenTheResultIsFetchedAndCommitted) {
  for (const bool committed_first : {true, false}) {
    const ObjectId target = Id(100 + committed_first);
    const Future<Buffer> all = client_->AllReduce(target, Sources(2));
    AwaitCalls(1);
    node_.OnLoop([this] { EXPECT_FALSE(node_.reduce().calls[0].target.root_here); });
    if (committed_first) Answer();
    EXPECT_FALSE(all.ready());
    PHALANX_ASSERT_OK(client_->Put(target, "result").Wait());
    if (!committed_first) Answer();
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer got, all.Wait());
    EXPECT_EQ(got.view(), "result");
  }
}

TEST_F(ReduceTest, AllReduceFailsWithTheReductionAndCancelsItsGet) {
  const Future<Buffer> all = client_->AllReduce(kTarget, Sources(2));
  Answer(absl::InvalidArgumentError("source 1 has 5 bytes"));
  EXPECT_THAT(all.Wait(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5 bytes")));
  node_.Await([this] { return node_.store().stats().waiting_gets == 0; });
}

TEST_F(ReduceTest, AllReduceDoesNotReturnAnEarlierObjectWithTheId) {
  PHALANX_ASSERT_OK(client_->Put(kTarget, "of somebody else").Wait());
  const Future<Buffer> all = client_->AllReduce(kTarget, Sources(2));
  AwaitCalls(1);
  // The answer to a later request shows that the Get was answered.
  PHALANX_ASSERT_OK(client_->Contains(kTarget).Wait());
  EXPECT_FALSE(all.ready());
  Answer(absl::AlreadyExistsError("the target was put"));
  EXPECT_THAT(all.Wait(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ReduceTest, CancelReachesTheNode) {
  const Future<Done> reduced = client_->Reduce(kTarget, Sources(2));
  const Future<Buffer> all = client_->AllReduce(Id(9), Sources(2));
  AwaitCalls(2);
  reduced.Cancel();
  all.Cancel();
  EXPECT_THAT(reduced.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(all.Wait(), StatusIs(absl::StatusCode::kCancelled));
  node_.Await([this] { return node_.reducer().stats().waiting == 0; });
  node_.Await([this] { return node_.store().stats().waiting_gets == 0; });
}

TEST_F(ReduceTest, ALeavingClientCancelsItsCallsAndIsClosed) {
  const Future<Done> reduced = client_->Reduce(kTarget, Sources(2));
  AwaitCalls(1);
  client_->Close();
  EXPECT_THAT(reduced.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
  node_.Await([this] { return node_.reducer().stats().waiting == 0; });
}

TEST_F(ReduceTest, ReducedFromIsInTheOrderOfTheFold) {
  EXPECT_THAT(client_->ReducedFrom(kTarget).Wait(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kTarget.hex())));
  PHALANX_ASSERT_OK(client_->Put(Id(1), "put").Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<ObjectId> none,
                               client_->ReducedFrom(Id(1)).Wait());
  EXPECT_THAT(none, IsEmpty());
  const std::vector<ObjectId> sources = {Id(3), Id(1), Id(2)};
  PutResult(kTarget, sources);
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<ObjectId> from,
                               client_->ReducedFrom(kTarget).Wait());
  EXPECT_EQ(from, sources);
  PHALANX_ASSERT_OK(client_->Delete(kTarget).Wait());
  EXPECT_THAT(client_->ReducedFrom(kTarget).Wait(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
}

TEST_F(ReduceTest, ReducedFromRejectsAnIncompleteObject) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const WritableBuffer writer, client_->Create(kTarget, 8));
  EXPECT_THAT(client_->ReducedFrom(kTarget).Wait(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not complete")));
}

TEST_F(ReduceTest, ManyAnswersWithSourcesAtOnceAreBounded) {
  PutResult(kTarget, Sources(16384));
  std::vector<Future<std::vector<ObjectId>>> asked;
  for (int i = 0; i < 200; ++i) asked.push_back(client_->ReducedFrom(kTarget));
  int answered = 0;
  for (const auto& future : asked) {
    const auto from = future.Wait();
    if (from.ok()) {
      ++answered;
      EXPECT_EQ(from->size(), 16384u);
    } else {
      EXPECT_THAT(from, StatusIs(absl::StatusCode::kResourceExhausted));
    }
  }
  EXPECT_GE(answered, 64);
}

TEST_F(ReduceTest, OutstandingIdsOfOneClientAreBounded) {
  const std::vector<ObjectId> sources = Sources(16384);
  std::vector<Future<Done>> reduced;
  for (int i = 0; i < 64; ++i) reduced.push_back(client_->Reduce(Id(-1 - i), sources));
  EXPECT_THAT(reduced.back().Wait(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1048576")));
  AwaitCalls(63);
  for (int i = 0; i < 63; ++i) Answer();
  for (int i = 0; i < 63; ++i) EXPECT_THAT(reduced[static_cast<size_t>(i)].Wait(), IsOk());
  const Future<Done> again = client_->Reduce(kTarget, sources);
  Answer();
  EXPECT_THAT(again.Wait(), IsOk());
}

}  // namespace
}  // namespace phalanx
