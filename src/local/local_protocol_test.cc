#include "src/local/local_protocol.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store::local {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

ObjectId Id() { return ObjectId::FromName("test", "id"); }

std::vector<ObjectId> Sources(int count) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(ObjectId::FromName("source", std::to_string(i)));
  return ids;
}

ObjectName Name() { return ObjectName::Of("batch", "job/7"); }

// One message of each kind, with no field at its default.
std::vector<Request> EveryRequest() {
  Description object{Id(), true,        64,     absl::Milliseconds(1500), "float32[3]",
                     true, Sources(2),  Name(), absl::Seconds(7),         5,
                     true, {"scope", 9}};
  return {
      ClientHello{7, 9},
      Put{1, object, "bytes"},
      Create{2, object, uint64_t{5} << 30},
      Publish{3, 65536, "more"},
      Seal{4, 3, true, true, "rest"},
      Abort{3},
      Get{5, Id(), true, absl::InfiniteDuration(), 10, 20, Id(), true, Name(), {"scope", 8}},
      Cancel{5},
      Release{77, false},
      Delete{6, Id(), absl::Seconds(30)},
      Stat{7, Id(), true, true, absl::ZeroDuration(), {"a", "*"}},
      Forget{11, true},
      Leave{true, {1, 2, 3}},
      Reduce{9,
             {Id(), false, true, true, Name()},
             {ElementTypes(DType::kU8, {{64, DType::kBf16}, {72, DType::kF64}}), ReduceOp::kMean,
              ReduceSpec::Order::kFixed, 2, true, Sources(3), 64, 72, "metadata"},
             absl::Seconds(2)},
      Extend{10, Id(), true, absl::Seconds(3), Sources(2)},
      Fail{11, Id(), absl::StatusCode::kDataLoss, "its task failed", absl::Seconds(4)},
      Hold{Sources(3)},
      Unhold{Sources(2)},
      Transit{Id(), 17},
      Claim{Id(), NodeKey{5, 6}, 17},
      Keep{12, Id(), absl::Seconds(5)},
      Broadcast{13, Id(), true, false, absl::Seconds(6), {"a", "node b", "*"}},
      Replicate{14, Id(), 3, absl::Seconds(7)},
      EndScope{15, {"scope", 7}, absl::Seconds(8)},
      Join{14, "train", "worker", "worker3", 8, true, 3, absl::Seconds(7)},
      LeaveJob{14, true},
      SendMessage{15, 14, "server", 2, true, 1, absl::Seconds(8), "some bytes"},
      MessageTaken{14, "server", 2, 1, 9, 10},
      GroupCall{15,
                14,
                {jobs::CallKind::kReduce,
                 ReduceOp::kMax,
                 DType::kI64,
                 jobs::OnLoss::kExclude,
                 16,
                 3,
                 100,
                 2,
                 {2, 5, 9}},
                absl::Seconds(8),
                9,
                16,
                "input",
                4,
                8},
      GroupBuffer{16, 1 << 20, absl::Seconds(9)},
      GroupFilled{15, 12, 4},
      GroupResult{17, 14, 57, absl::Seconds(10)},
      AskGroupProgress{18, 14, absl::Seconds(10)},
  };
}

std::vector<Answer> EveryAnswer() {
  return {
      NodeHello{7, 9, absl::StatusCode::kPermissionDenied, "why", "node", "127.0.0.1:7400",
                NodeKey{7, 8}},
      File{12, true, uint64_t{1} << 33},
      Failed{1, absl::StatusCode::kNotFound, "deleted"},
      PutDone{2, true},
      Granted{3, 9, true, 12, 4096},
      Object{4, 5, "meta", "bytes"},
      Mapped{5, 77, 12, 64, 1 << 20, 100, true, "meta"},
      Progress{5, 200, true, {10, 0, 190}},
      Void{5, "its writer died"},
      Described{6,
                true,
                true,
                true,
                true,
                9,
                1,
                2,
                3,
                4,
                "meta",
                Sources(2),
                true,
                5,
                true,
                Name(),
                absl::Seconds(8),
                6,
                7,
                8,
                9,
                10,
                11},
      Counted{7, 8},
      Forgotten{12, true},
      Goodbye{absl::StatusCode::kInvalidArgument, "garbage"},
      Joined{8, 3, 2},
      MemberUpdate{8,
                   "worker",
                   4,
                   {5, 6},
                   true,
                   {{0, 1, MemberState::kLive, "worker0", "box", "node"},
                    {3, 0, MemberState::kLeft, "worker3", "box7", "node7"}}},
      MemberEnded{8, absl::StatusCode::kAborted, "a newer life"},
      MessageArrived{8, "server", 2, 1, 9, "some bytes"},
      GroupDone{9, 57, 8, {3, 4}, "result"},
      GroupPart{9, 4, 8},
      GroupProgress{9, 57, {2, 5, 9}},
  };
}

template <typename Message>
std::string Encoded(const Message& message) {
  std::string frame;
  Encode(message, frame);
  return frame;
}

TEST(LocalProtocol, EveryRequestKeepsAllItsFields) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encoded(request);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Request decoded,
                                 DecodeRequest(absl::string_view(frame).substr(4)));
    EXPECT_EQ(decoded.index(), request.index());
    EXPECT_EQ(Encoded(decoded), frame) << "kind " << static_cast<int>(frame[4]);
  }
  EXPECT_EQ(EveryRequest().size(), std::variant_size_v<Request>);
}

TEST(LocalProtocol, EveryAnswerKeepsAllItsFields) {
  for (const Answer& answer : EveryAnswer()) {
    const std::string frame = Encoded(answer);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Answer decoded,
                                 DecodeAnswer(absl::string_view(frame).substr(4)));
    EXPECT_EQ(decoded.index(), answer.index());
    EXPECT_EQ(Encoded(decoded), frame) << "kind " << static_cast<int>(frame[4]);
  }
  EXPECT_EQ(EveryAnswer().size(), std::variant_size_v<Answer>);
}

TEST(LocalProtocol, ValuesOfFieldsSurvive) {
  const std::string frame = Encoded(EveryRequest()[1]);
  PHALANX_ASSERT_OK_AND_ASSIGN(const Request decoded,
                               DecodeRequest(absl::string_view(frame).substr(4)));
  const Put& put = std::get<Put>(decoded);
  EXPECT_EQ(put.request, 1u);
  EXPECT_EQ(put.object.id, Id());
  EXPECT_TRUE(put.object.wait_for_adoption);
  EXPECT_EQ(put.object.slices, 64);
  EXPECT_EQ(put.object.timeout, absl::Milliseconds(1500));
  EXPECT_EQ(put.object.metadata, "float32[3]");
  EXPECT_EQ(put.object.name, Name());
  EXPECT_TRUE(put.object.owned);
  EXPECT_EQ(put.bytes, "bytes");
}

TEST(LocalProtocol, ATimeToLiveTakesNoBytesIfThereIsNone) {
  Description object{Id(), true, 64, absl::Milliseconds(1500), "float32[3]", true, Sources(2)};
  const size_t endless = Encoded(Request(Put{1, object, "bytes"})).size();
  for (const absl::Duration ttl : {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Hours(99)}) {
    object.ttl = ttl;
    const std::string frame = Encoded(Request(Put{1, object, "bytes"}));
    EXPECT_EQ(frame.size(), endless + 8);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Request decoded,
                                 DecodeRequest(absl::string_view(frame).substr(4)));
    EXPECT_EQ(std::get<Put>(decoded).object.ttl, ttl);
  }
}

TEST(LocalProtocol, ANameTakesNoBytesIfThereIsNone) {
  Description object{Id(), true, 64, absl::Milliseconds(1500), "float32[3]", true, Sources(2)};
  const size_t unnamed = Encoded(Request(Put{1, object, "bytes"})).size();
  object.name = Name();
  // Two lengths and the texts.
  EXPECT_EQ(Encoded(Request(Put{1, object, "bytes"})).size(), unnamed + 8 + Name().size());
}

TEST(LocalProtocol, RejectsANameThatCannotBeKept) {
  Description object{Id(), false, 1, absl::ZeroDuration(), ""};
  object.name = Name();
  const std::string frame = Encoded(Request(Put{1, object, ""}));
  const size_t at = frame.find("job/7");
  ASSERT_NE(at, std::string::npos);
  for (const char bad : {'\n', '\x1b', '\x7f', '\xff'}) {
    std::string broken = frame;
    broken[at] = bad;
    EXPECT_THAT(DecodeRequest(absl::string_view(broken).substr(4)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  }
}

TEST(LocalProtocol, RejectsAFlagThatThereIsNot) {
  std::string frame = Encoded(Request(Put{1, {Id(), false, 1, absl::ZeroDuration(), ""}, ""}));
  // After the length, the kind, the request and the id.
  const size_t flags = 4 + 1 + 8 + ObjectId::kSize;
  ASSERT_EQ(frame[flags], 0);
  frame[flags] = static_cast<char>(0x80);
  EXPECT_THAT(DecodeRequest(absl::string_view(frame).substr(4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("flag")));
}

TEST(LocalProtocol, RejectsEveryShorterFrame) {
  for (const Request& request : EveryRequest()) {
    const std::string frame = Encoded(request);
    for (size_t length = 0; length + 4 < frame.size(); ++length) {
      EXPECT_FALSE(DecodeRequest(frame.substr(4, length)).ok())
          << "kind " << static_cast<int>(frame[4]) << " cut to " << length;
    }
    EXPECT_FALSE(DecodeRequest(frame.substr(4) + "x").ok());
  }
}

TEST(LocalProtocol, RejectsAnUnknownKindByNumber) {
  EXPECT_THAT(DecodeRequest("\x63"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown kind 99")));
  // An answer is no request.
  EXPECT_FALSE(DecodeRequest(Encoded(Answer(Counted{1, 2})).substr(4)).ok());
}

TEST(LocalProtocol, RejectsValuesOutOfRange) {
  Description object{Id(), false, 0, absl::ZeroDuration(), ""};
  EXPECT_THAT(DecodeRequest(Encoded(Request(Put{1, object, ""})).substr(4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 is not in 1..64")));
  object.slices = 65;
  EXPECT_FALSE(DecodeRequest(Encoded(Request(Put{1, object, ""})).substr(4)).ok());
  object.slices = 1;
  const std::string large(4097, 'm');
  object.metadata = large;
  EXPECT_THAT(DecodeRequest(Encoded(Request(Create{1, object, 1})).substr(4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("over the limit of 4096")));
}

TEST(LocalProtocol, AReductionKeepsItsSourcesAndArguments) {
  Reduce sent;
  sent.request = 7;
  sent.target.id = Id();
  sent.spec.elements = DType::kU64;
  sent.spec.op = ReduceOp::kBitXor;
  sent.spec.num_objects = 3;
  sent.spec.range_offset = 8;
  sent.spec.range_bytes = 16;
  sent.spec.sources = Sources(5);
  const std::string frame = Encoded(Request(sent));
  PHALANX_ASSERT_OK_AND_ASSIGN(const Request decoded,
                               DecodeRequest(absl::string_view(frame).substr(4)));
  const Reduce& got = std::get<Reduce>(decoded);
  EXPECT_EQ(got.target.id, Id());
  EXPECT_EQ(got.spec.elements, ElementTypes(DType::kU64));
  EXPECT_EQ(got.spec.op, ReduceOp::kBitXor);
  EXPECT_EQ(got.spec.order, ReduceSpec::Order::kArrival);
  EXPECT_FALSE(got.spec.open);
  EXPECT_TRUE(got.target.root_here);
  EXPECT_EQ(got.spec.num_objects, 3u);
  EXPECT_EQ(got.spec.range_offset, 8u);
  EXPECT_EQ(got.spec.range_bytes, 16u);
  EXPECT_EQ(got.timeout, absl::InfiniteDuration());
  EXPECT_EQ(got.spec.sources, Sources(5));
}

TEST(LocalProtocol, AFrameFitsTheMostSourcesOfAReductionAndNotOneMore) {
  Reduce reduce;
  reduce.spec.sources.resize(kMaxReduceSources, Id());
  std::string frame = Encoded(Request(reduce));
  EXPECT_LE(frame.size(), kMaxFrameBytes);
  EXPECT_THAT(DecodeRequest(absl::string_view(frame).substr(4)), IsOk());
  reduce.spec.sources.push_back(Id());
  frame = Encoded(Request(reduce));
  EXPECT_THAT(DecodeRequest(absl::string_view(frame).substr(4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("16385 ids are too many")));
}

TEST(LocalProtocol, RejectsAnUnknownDTypeOrOp) {
  const std::string good = Encoded(Request(Reduce{}));
  const size_t dtype = 4 + 1 + 8 + ObjectId::kSize;
  for (const size_t place : {dtype, dtype + 1}) {
    std::string bad = good;
    bad[place] = 11;
    EXPECT_THAT(
        DecodeRequest(absl::string_view(bad).substr(4)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("11 is not a valid choice")));
  }
}

TEST(LocalProtocol, AFrameFitsTheMostRunsOfAReduction) {
  Reduce reduce;
  for (uint64_t i = 1; i <= kMaxElementRuns; ++i) {
    reduce.spec.elements.runs.push_back(
        {i * kElementRunAlignment, kAllDTypes[i % kAllDTypes.size()]});
  }
  std::string frame = Encoded(Request(reduce));
  PHALANX_ASSERT_OK_AND_ASSIGN(const Request decoded,
                               DecodeRequest(absl::string_view(frame).substr(4)));
  EXPECT_EQ(std::get<Reduce>(decoded).spec.elements, reduce.spec.elements);
  reduce.spec.elements.runs.push_back({1 << 20, DType::kI8});
  frame = Encoded(Request(reduce));
  EXPECT_THAT(DecodeRequest(absl::string_view(frame).substr(4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65 runs are too many")));
}

TEST(LocalProtocol, TimeoutsAreLimitedToTheirRange) {
  const auto round_trip = [](absl::Duration timeout) {
    const std::string frame = Encoded(Request(Delete{1, Id(), timeout}));
    return std::get<Delete>(*DecodeRequest(absl::string_view(frame).substr(4))).timeout;
  };
  EXPECT_EQ(round_trip(absl::InfiniteDuration()), absl::InfiniteDuration());
  EXPECT_EQ(round_trip(-absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(round_trip(absl::Hours(24 * 365 * 300)), absl::InfiniteDuration());
  EXPECT_EQ(round_trip(absl::Nanoseconds(1)), absl::Nanoseconds(1));
}

TEST(LocalProtocol, APutInTwoPartsIsTheSameFrame) {
  const Put put{9, {Id(), false, 2, absl::Seconds(1), "m"}, "the bytes"};
  std::string frame;
  EncodeAllButBytes(put, frame);
  frame.append("the bytes");
  EXPECT_EQ(frame, Encoded(Request(put)));
}

TEST(LocalProtocol, AMessageInTwoPartsIsTheSameFrame) {
  const MessageArrived message{9, "worker", 3, 2, 7, "the bytes"};
  std::string frame;
  EncodeAllButBytes(message, frame);
  frame.append("the bytes");
  EXPECT_EQ(frame, Encoded(Answer(message)));
}

// Feeds `stream` in pieces of `step` bytes; the payloads that came out.
std::vector<std::string> Cut(absl::string_view stream, size_t step) {
  FrameBuffer buffer;
  std::vector<std::string> payloads;
  while (!stream.empty()) {
    absl::Span<char> space = buffer.Space();
    const size_t n = std::min({space.size(), step, stream.size()});
    stream.copy(space.data(), n);
    stream.remove_prefix(n);
    buffer.Filled(n);
    while (true) {
      const auto payload = buffer.Next();
      EXPECT_THAT(payload, IsOk());
      if (!payload.ok() || !payload->has_value()) break;
      payloads.emplace_back((*payload)->data(), (*payload)->size());
    }
  }
  return payloads;
}

TEST(FrameBuffer, ReturnsWholeFramesHoweverTheyArrive) {
  const std::string large(kOwnFileBytes, 'x');
  std::string stream;
  std::vector<std::string> expected;
  for (const Request& request : EveryRequest()) {
    Encode(request, stream);
    expected.push_back(Encoded(request).substr(4));
  }
  const Put put{1, {Id(), false, 1, absl::ZeroDuration(), ""}, large};
  Encode(Request(put), stream);
  expected.push_back(Encoded(Request(put)).substr(4));
  Encode(EveryRequest()[2], stream);
  expected.push_back(Encoded(EveryRequest()[2]).substr(4));
  for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, stream.size()}) {
    EXPECT_EQ(Cut(stream, step), expected) << "in steps of " << step;
  }
}

// Passes a Put of so many bytes through the buffer, and returns the number of reads for it.
int Pass(FrameBuffer& buffer, size_t object_bytes) {
  const std::string bytes(object_bytes, 'x');
  std::string frame;
  Encode(Request(Put{1, {Id(), false, 1, absl::ZeroDuration(), ""}, bytes}), frame);
  absl::string_view rest = frame;
  int reads = 0;
  for (; !rest.empty(); ++reads) {
    const absl::Span<char> space = buffer.Space();
    const size_t n = std::min(space.size(), rest.size());
    rest.substr(0, n).copy(space.data(), n);
    rest.remove_prefix(n);
    buffer.Filled(n);
    const auto payload = buffer.Next();
    EXPECT_THAT(payload, IsOk());
    EXPECT_EQ(payload->has_value(), rest.empty());
  }
  return reads;
}

TEST(FrameBuffer, KeepsRoomForAnotherInlineObjectButNotForALargeOne) {
  FrameBuffer buffer;
  EXPECT_EQ(Pass(buffer, kMaxInlineAnswerBytes), 2) << "the first read shows the length";
  EXPECT_EQ(Pass(buffer, kMaxInlineAnswerBytes), 1);
  EXPECT_EQ(Pass(buffer, 2 * kMaxInlineAnswerBytes), 2);
  EXPECT_EQ(Pass(buffer, kMaxInlineAnswerBytes), 2) << "the buffer has shrunk";
}

TEST(FrameBuffer, KeepsAsMuchAsItIsMadeFor) {
  FrameBuffer buffer(kMaxFrameBytes);
  EXPECT_EQ(Pass(buffer, 2 * kMaxInlineAnswerBytes), 2);
  EXPECT_EQ(Pass(buffer, 2 * kMaxInlineAnswerBytes), 1);
  EXPECT_EQ(Pass(buffer, kMaxInlineAnswerBytes), 1);
  EXPECT_EQ(Pass(buffer, 2 * kMaxInlineAnswerBytes), 1);
}

TEST(FrameBuffer, RejectsAHugeOrEmptyLengthForGood) {
  for (const char* header : {"\xff\xff\xff\xff", "\0\0\0\0", "\x01\x20\x15\x00"}) {
    FrameBuffer buffer;
    std::copy(header, header + 4, buffer.Space().data());
    buffer.Filled(4);
    EXPECT_THAT(buffer.Next(), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_LE(buffer.Space().size(), kMaxFrameBytes + 4);
    EXPECT_THAT(buffer.Next(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace phalanx::object_store::local
