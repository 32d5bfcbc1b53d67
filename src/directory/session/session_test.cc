#include "src/directory/session/session.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/ids/ids.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::google::protobuf::RepeatedPtrField;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Instant kStart = Instant::FromNanos(1'000'000'000'000);
constexpr SessionId kId = 7;
constexpr uint64_t kIncarnation = 70;

v1::NodeInfo Node() {
  v1::NodeInfo node;
  node.mutable_key()->set_node(1);
  node.mutable_key()->set_incarnation(2);
  node.set_name("n1");
  node.set_address("10.0.0.1:7411");
  return node;
}

SessionConfig Config() {
  SessionConfig config;
  config.secret = "a secret";
  return config;
}

v1::NodeMessage Query(uint64_t number) {
  v1::NodeMessage message;
  message.mutable_query_request()->set_request_id(number);
  return message;
}

v1::ShardMessage Reply(uint64_t number) {
  v1::ShardMessage message;
  message.mutable_query_reply()->set_request_id(number);
  return message;
}

// Both ends of one session over a stream that delivers at once.
struct Pair {
  explicit Pair(SessionConfig config = Config()) : config(config), node(config, Node()) {}

  // Opens a stream and completes the handshake; frames after the Welcome stay with their ends.
  void Connect() {
    node.StreamOpened(std::string(32, 'n'), now);
    ShardHandshake handshake(config, std::string(32, 's'));
    const auto challenge = handshake.OnFrame(*node.NextFrame(now));
    PHALANX_ASSERT_OK(challenge);
    PHALANX_ASSERT_OK(node.OnFrame(**challenge, now));
    PHALANX_ASSERT_OK(handshake.OnFrame(*node.NextFrame(now)));
    ASSERT_TRUE(handshake.proven());
    const v1::Hello hello = handshake.TakeHello();
    if (shard == nullptr || !shard->CanResume(hello)) {
      shard = std::make_unique<ShardSession>(++last_id, kIncarnation, config, Node(), now);
    }
    shard->StreamOpened(hello, now, round_trip);
    PHALANX_ASSERT_OK(node.OnFrame(*shard->NextFrame(now), now));
    ASSERT_TRUE(node.established());
  }

  void Break() {
    node.StreamClosed(now);
    shard->StreamClosed(now);
  }

  // One frame in each direction, if there is one; the result is how many moved.
  int Exchange() {
    int frames = 0;
    if (const auto* frame = node.NextFrame(now)) {
      EXPECT_THAT(shard->OnFrame(*frame, now), IsOk());
      ++frames;
    }
    if (const auto* frame = shard->NextFrame(now)) {
      EXPECT_THAT(node.OnFrame(*frame, now), IsOk());
      ++frames;
    }
    return frames;
  }

  SessionConfig config;
  Instant now = kStart;
  absl::Duration round_trip;
  SessionId last_id = kId - 1;
  NodeSession node;
  std::unique_ptr<ShardSession> shard;
};

std::vector<uint64_t> Numbers(const RepeatedPtrField<v1::NodeMessage>& messages) {
  std::vector<uint64_t> numbers;
  for (const auto& message : messages) numbers.push_back(message.query_request().request_id());
  return numbers;
}

std::vector<uint64_t> Numbers(const RepeatedPtrField<v1::ShardMessage>& messages) {
  std::vector<uint64_t> numbers;
  for (const auto& message : messages) numbers.push_back(message.query_reply().request_id());
  return numbers;
}

using Values = std::vector<uint64_t>;

TEST(SessionTest, ANewSessionAsksTheNodeToRegister) {
  Pair pair;
  pair.Connect();
  EXPECT_EQ(pair.node.TakeEvent(), NodeSession::Event::kRegister);
  EXPECT_EQ(pair.node.TakeEvent(), std::nullopt);
  EXPECT_EQ(pair.node.shard_incarnation(), kIncarnation);
}

TEST(SessionTest, MessagesOfOneTurnTravelInOneBatch) {
  Pair pair;
  pair.Connect();
  for (uint64_t i = 0; i < 100; ++i) pair.node.Send(Query(i));
  const v1::NodeFrame* frame = pair.node.NextFrame(pair.now);
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(frame->batch().messages_size(), 100);
  EXPECT_EQ(pair.node.NextFrame(pair.now), nullptr);
}

TEST(SessionTest, ABatchStopsGrowingAtItsLimit) {
  Pair pair;
  pair.Connect();
  for (int i = 0; i < 40; ++i) {
    v1::NodeMessage message;
    message.mutable_announce_create()->set_inline_bytes(std::string(kMaxInlineBytes, 'x'));
    pair.node.Send(std::move(message));
  }
  int frames = 0;
  for (; const auto* frame = pair.node.NextFrame(pair.now); ++frames) {
    EXPECT_LE(frame->ByteSizeLong(), kMaxBatchBytes + 100);
  }
  EXPECT_EQ(frames, 3);
}

TEST(SessionTest, AMessageThatNoFrameCanCarryIsDroppedAndCounted) {
  Pair pair;
  pair.Connect();
  v1::NodeMessage message;
  message.mutable_withdraw()->set_reason(std::string(kMaxMessageBytes, 'x'));
  pair.node.Send(std::move(message));
  pair.node.Send(Query(1));
  EXPECT_EQ(pair.node.oversized(), 1);
  pair.Exchange();
  EXPECT_EQ(Numbers(pair.shard->TakeMessages()), Values({1}));
}

TEST(SessionTest, AnAnswerCarriesTheAcknowledgement) {
  Pair pair;
  pair.Connect();
  pair.node.Send(Query(1));
  EXPECT_EQ(pair.Exchange(), 1);
  EXPECT_EQ(pair.node.unacknowledged(), 1);
  pair.shard->Send(Reply(1));
  EXPECT_EQ(pair.Exchange(), 1);
  EXPECT_EQ(pair.node.unacknowledged(), 0);
}

TEST(SessionTest, WithoutAnAnswerTheAcknowledgementWaitsAnEighthOfTheLease) {
  Pair pair;
  pair.Connect();
  pair.node.Send(Query(1));
  EXPECT_EQ(pair.Exchange(), 1);
  pair.now = kStart + absl::Milliseconds(249);
  EXPECT_EQ(pair.Exchange(), 0);
  EXPECT_EQ(pair.shard->NextDeadline(), kStart + absl::Milliseconds(250));
  pair.now = kStart + absl::Milliseconds(250);
  EXPECT_EQ(pair.Exchange(), 1);
  EXPECT_EQ(pair.node.unacknowledged(), 0);
}

TEST(SessionTest, AThousandMessagesAreAcknowledgedAtOnce) {
  Pair pair;
  pair.Connect();
  for (uint64_t i = 0; i < kAckMessages; ++i) pair.node.Send(Query(i));
  EXPECT_EQ(pair.Exchange(), 2);
  EXPECT_EQ(pair.node.unacknowledged(), 0);
}

TEST(SessionTest, AnIdleSessionCostsTwoFramesASecondEachWay) {
  Pair pair;
  pair.Connect();
  int from_node = 0, from_shard = 0;
  for (; pair.now < kStart + absl::Seconds(60); pair.now = pair.now + absl::Milliseconds(1)) {
    if (const auto* frame = pair.node.NextFrame(pair.now)) {
      ++from_node;
      ASSERT_THAT(pair.shard->OnFrame(*frame, pair.now), IsOk());
    }
    if (const auto* frame = pair.shard->NextFrame(pair.now)) {
      ++from_shard;
      ASSERT_THAT(pair.node.OnFrame(*frame, pair.now), IsOk());
    }
    ASSERT_FALSE(pair.shard->Expired(pair.now));
    ASSERT_FALSE(pair.node.ShardSilent(pair.now));
  }
  EXPECT_LE(from_node, 121);
  EXPECT_LE(from_shard, 121);
}

TEST(SessionTest, MessagesThatTheStreamLostAreSentAgainOnTheNext) {
  Pair pair;
  pair.Connect();
  pair.node.TakeEvent();
  pair.node.Send(Query(1));
  pair.Exchange();
  pair.node.Send(Query(2));
  pair.shard->Send(Reply(1));
  pair.node.NextFrame(pair.now);  // lost
  pair.shard->NextFrame(pair.now);
  pair.Break();
  pair.node.Send(Query(3));
  pair.shard->Send(Reply(2));
  pair.Connect();
  EXPECT_EQ(pair.node.TakeEvent(), NodeSession::Event::kResumed);
  pair.Exchange();
  EXPECT_EQ(Numbers(pair.shard->TakeMessages()), Values({1, 2, 3}));
  EXPECT_EQ(Numbers(pair.node.TakeMessages()), Values({1, 2}));
}

TEST(SessionTest, AnUnacknowledgedMessageThatArrivedIsNotDeliveredTwice) {
  Pair pair;
  pair.Connect();
  pair.node.Send(Query(1));
  const v1::NodeFrame* frame = pair.node.NextFrame(pair.now);
  EXPECT_THAT(pair.shard->OnFrame(*frame, pair.now), IsOk());
  EXPECT_THAT(pair.shard->OnFrame(*frame, pair.now), IsOk());
  pair.Break();
  pair.Connect();
  EXPECT_EQ(pair.node.unacknowledged(), 0);
  pair.Exchange();
  EXPECT_EQ(Numbers(pair.shard->TakeMessages()), Values({1}));
}

TEST(SessionTest, AnotherIncarnationOfTheShardVoidsTheSession) {
  Pair pair;
  pair.Connect();
  pair.node.TakeEvent();
  pair.node.Send(Query(1));
  pair.Break();
  pair.shard.reset();
  pair.Connect();
  EXPECT_EQ(pair.node.TakeEvent(), NodeSession::Event::kRegister);
  EXPECT_EQ(pair.node.unacknowledged(), 0);
  pair.node.Send(Query(2));
  pair.Exchange();
  EXPECT_EQ(Numbers(pair.shard->TakeMessages()), Values({2}));
}

TEST(SessionTest, AnotherLifeOfTheNodeDoesNotResume) {
  Pair pair;
  pair.Connect();
  v1::Hello hello;
  *hello.mutable_node() = Node();
  hello.set_session_id(kId);
  hello.set_shard_incarnation(kIncarnation);
  EXPECT_TRUE(pair.shard->CanResume(hello));
  hello.mutable_node()->mutable_key()->set_incarnation(3);
  EXPECT_FALSE(pair.shard->CanResume(hello));
}

TEST(SessionTest, AHelloThatClaimsAnUnsentMessageDoesNotResume) {
  Pair pair;
  pair.Connect();
  v1::Hello hello;
  *hello.mutable_node() = Node();
  hello.set_session_id(kId);
  hello.set_shard_incarnation(kIncarnation);
  hello.set_last_received(1);
  EXPECT_FALSE(pair.shard->CanResume(hello));
}

TEST(SessionTest, SilenceForALeaseFencesTheNodeAndEndsTheStream) {
  Pair pair;
  pair.Connect();
  pair.now = kStart + absl::Milliseconds(1999);
  EXPECT_FALSE(pair.shard->Expired(pair.now));
  EXPECT_FALSE(pair.node.ShardSilent(pair.now));
  pair.now = kStart + absl::Seconds(2);
  EXPECT_TRUE(pair.shard->Expired(pair.now));
  EXPECT_TRUE(pair.node.ShardSilent(pair.now));
}

TEST(SessionTest, WithoutAStreamTheGraceAndThreeRoundTripsFenceTheNode) {
  for (const absl::Duration round_trip : {absl::ZeroDuration(), absl::Milliseconds(145)}) {
    Pair pair;
    pair.round_trip = round_trip;
    pair.Connect();
    pair.Break();
    pair.now = kStart + absl::Milliseconds(29) + 3 * round_trip;
    EXPECT_FALSE(pair.shard->Expired(pair.now)) << round_trip;
    pair.now = kStart + absl::Milliseconds(30) + 3 * round_trip;
    EXPECT_TRUE(pair.shard->Expired(pair.now)) << round_trip;
  }
}

TEST(SessionTest, TheGraceIsTheLeaseAtMost) {
  Pair pair;
  pair.round_trip = absl::Seconds(1);
  pair.Connect();
  pair.Break();
  pair.now = kStart + absl::Seconds(2);
  EXPECT_TRUE(pair.shard->Expired(pair.now));
}

TEST(SessionTest, AShardThatNeverAnswersAHelloIsSilent) {
  Pair pair;
  pair.node.StreamOpened(std::string(32, 'n'), pair.now);
  pair.node.NextFrame(pair.now);
  EXPECT_EQ(pair.node.NextDeadline(), kStart + absl::Seconds(2));
  EXPECT_TRUE(pair.node.ShardSilent(kStart + absl::Seconds(2)));
}

TEST(SessionTest, TooMuchUnacknowledgedEndsTheSessionAndBoundsTheMemory) {
  SessionConfig config = Config();
  config.limits.unacknowledged_messages = 10;
  Pair pair(config);
  pair.Connect();
  pair.node.TakeEvent();
  for (uint64_t i = 0; i < 20; ++i) pair.node.Send(Query(i));
  EXPECT_TRUE(pair.node.overflowed());
  EXPECT_EQ(pair.node.unacknowledged(), 0);
  EXPECT_EQ(pair.node.NextFrame(pair.now), nullptr);
  pair.Break();
  pair.Connect();
  EXPECT_EQ(pair.node.TakeEvent(), NodeSession::Event::kRegister);
  EXPECT_FALSE(pair.node.overflowed());
}

v1::NodeMessage Registration() {
  v1::NodeMessage message;
  message.mutable_register_copy()->set_object_id("x");
  return message;
}

TEST(SessionTest, ARegistrationMayBeLongerThanTheLimits) {
  SessionConfig config = Config();
  config.limits.unacknowledged_messages = 10;
  config.limits.unacknowledged_bytes = 100;
  Pair pair(config);
  pair.Connect();
  for (int i = 0; i < 1000; ++i) pair.node.Send(Registration());
  EXPECT_FALSE(pair.node.overflowed());
  // Later messages are bounded, even after the whole registration was acknowledged.
  for (uint64_t i = 0; i < 10; ++i) pair.node.Send(Query(i));
  EXPECT_FALSE(pair.node.overflowed());
  pair.Exchange();
  EXPECT_EQ(pair.shard->TakeMessages().size(), 1010u);
  for (uint64_t i = 0; i < 10; ++i) pair.node.Send(Query(i));
  EXPECT_FALSE(pair.node.overflowed());
  pair.node.Send(Query(10));
  EXPECT_TRUE(pair.node.overflowed());
}

TEST(SessionTest, AGoodbyeEndsTheSessionAfterItsLastMessages) {
  Pair pair;
  pair.Connect();
  pair.node.Send(Query(1));
  EXPECT_THAT(pair.shard->OnFrame(*pair.node.LastFrame(pair.now), pair.now), IsOk());
  EXPECT_TRUE(pair.shard->ended());
  EXPECT_EQ(Numbers(pair.shard->TakeMessages()), Values({1}));
}

TEST(SessionTest, AMissingNumberIsRefused) {
  Pair pair;
  pair.Connect();
  v1::NodeFrame frame;
  frame.mutable_batch()->set_first_sequence(2);
  *frame.mutable_batch()->add_messages() = Query(1);
  EXPECT_THAT(pair.shard->OnFrame(frame, pair.now),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("starts at message 2")));
  frame.mutable_batch()->set_first_sequence(0);
  EXPECT_THAT(pair.shard->OnFrame(frame, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(pair.shard->TakeMessages().empty());
}

TEST(SessionTest, AnAcknowledgementOfTheFutureIsRefused) {
  Pair pair;
  pair.Connect();
  v1::ShardFrame frame;
  frame.mutable_batch()->set_acknowledged(1);
  EXPECT_THAT(pair.node.OnFrame(frame, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionTest, FramesOutOfOrderAreRefused) {
  Pair pair;
  v1::ShardFrame batch;
  batch.mutable_batch();
  v1::ShardFrame welcome;
  welcome.mutable_welcome();
  EXPECT_THAT(pair.node.OnFrame(batch, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
  pair.node.StreamOpened(std::string(32, 'n'), pair.now);
  pair.node.NextFrame(pair.now);
  EXPECT_THAT(pair.node.OnFrame(welcome, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(pair.node.OnFrame({}, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionTest, AWelcomeThatResumesAnotherSessionIsRefusedAndForgotten) {
  Pair pair;
  pair.Connect();
  pair.Break();
  pair.node.StreamOpened(std::string(32, 'n'), pair.now);
  ShardHandshake handshake(pair.config, std::string(32, 's'));
  EXPECT_THAT(pair.node.OnFrame(**handshake.OnFrame(*pair.node.NextFrame(pair.now)), pair.now),
              IsOk());
  pair.node.NextFrame(pair.now);
  v1::ShardFrame frame;
  frame.mutable_welcome()->set_session_id(kId + 1);
  frame.mutable_welcome()->set_shard_incarnation(kIncarnation);
  frame.mutable_welcome()->set_resumed(true);
  frame.mutable_welcome()->set_lease_ms(2000);
  EXPECT_THAT(pair.node.OnFrame(frame, pair.now), StatusIs(absl::StatusCode::kInvalidArgument));
  pair.node.StreamClosed(pair.now);
  pair.node.StreamOpened(std::string(32, 'n'), pair.now);
  EXPECT_EQ(pair.node.NextFrame(pair.now)->hello().session_id(), 0);
}

// ------------------------------------------------------------------------------------- handshake

v1::Hello HelloOf(const SessionConfig& config) {
  NodeSession node(config, Node());
  node.StreamOpened(std::string(32, 'n'), kStart);
  return node.NextFrame(kStart)->hello();
}

absl::Status Answer(const SessionConfig& shard, const v1::Hello& hello) {
  ShardHandshake handshake(shard, std::string(32, 's'));
  v1::NodeFrame frame;
  *frame.mutable_hello() = hello;
  return handshake.OnFrame(frame).status();
}

TEST(SessionHandshakeTest, AMismatchNamesBothSides) {
  SessionConfig other = Config();
  other.protocol_version = 9;
  EXPECT_THAT(Answer(Config(), HelloOf(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat("version is ", kProtocolVersion)),
                             HasSubstr("node's is 9"))));
  other = Config();
  other.cluster_id = "blue";
  EXPECT_THAT(Answer(Config(), HelloOf(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("\"default\""), HasSubstr("\"blue\""))));
  other = Config();
  other.num_shards = 3;
  EXPECT_THAT(Answer(Config(), HelloOf(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("number of shards is 1"), HasSubstr("node's is 3"))));
  other = Config();
  other.num_shards = 3;
  other.shard_index = 2;
  SessionConfig shard = other;
  shard.shard_index = 0;
  EXPECT_THAT(Answer(shard, HelloOf(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("index is 0"), HasSubstr("node's is 2"))));
}

TEST(SessionHandshakeTest, TheLongestDescriptionOfANodeIsTaken) {
  v1::Hello hello = HelloOf(Config());
  hello.mutable_node()->set_name(std::string(kMaxNodeNameBytes, 'n'));
  hello.mutable_node()->set_address(std::string(kMaxNodeAddressBytes, '1'));
  for (size_t i = 0; i < kMaxNodeLabels; ++i) {
    const std::string key = absl::StrCat("label", i);
    (*hello.mutable_node()->mutable_labels())[key] =
        std::string(kMaxNodeLabelBytes - key.size(), 'x');
  }
  EXPECT_THAT(Answer(Config(), hello), IsOk());
}

TEST(SessionHandshakeTest, AMalformedHelloIsRefused) {
  const v1::Hello good = HelloOf(Config());
  EXPECT_THAT(Answer(Config(), good), IsOk());
  v1::Hello bad = good;
  bad.set_nonce("short");
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  bad.mutable_node()->clear_key();
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  bad.mutable_node()->set_name(std::string(kMaxNodeNameBytes + 1, 'x'));
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad.mutable_node()->clear_name();
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  bad.mutable_node()->set_address(std::string(kMaxNodeAddressBytes + 1, '1'));
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  (*bad.mutable_node()->mutable_labels())["zone"] = std::string(kMaxNodeLabelBytes - 3, 'z');
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  bad.GetReflection()->MutableUnknownFields(&bad)->AddLengthDelimited(
      1000, std::string(kMaxHelloBytes, 'x'));
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  for (size_t i = 0; i <= kMaxNodeLabels; ++i) {
    (*bad.mutable_node()->mutable_labels())[absl::StrCat("label", i)] = "x";
  }
  EXPECT_THAT(Answer(Config(), bad), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionHandshakeTest, TheNodeRefusesAShardWithAnotherSecret) {
  SessionConfig other = Config();
  other.secret = "another secret";
  NodeSession node(Config(), Node());
  node.StreamOpened(std::string(32, 'n'), kStart);
  ShardHandshake handshake(other, std::string(32, 's'));
  EXPECT_THAT(node.OnFrame(**handshake.OnFrame(*node.NextFrame(kStart)), kStart),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(node.NextFrame(kStart), nullptr);
}

TEST(SessionHandshakeTest, TheShardRefusesAProofOfAnotherStream) {
  NodeSession node(Config(), Node());
  node.StreamOpened(std::string(32, 'n'), kStart);
  const SessionConfig config = Config();
  ShardHandshake first(config, std::string(32, 's'));
  const v1::NodeFrame hello = *node.NextFrame(kStart);
  EXPECT_THAT(node.OnFrame(**first.OnFrame(hello), kStart), IsOk());
  const v1::NodeFrame proof = *node.NextFrame(kStart);
  EXPECT_THAT(first.OnFrame(proof), IsOk());
  EXPECT_TRUE(first.proven());

  ShardHandshake second(config, std::string(32, 't'));
  EXPECT_THAT(second.OnFrame(hello), IsOk());
  EXPECT_THAT(second.OnFrame(proof), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_FALSE(second.proven());
}

TEST(SessionHandshakeTest, TheShardsOwnProofDoesNotServeAsTheNodes) {
  const SessionConfig config = Config();
  ShardHandshake handshake(config, std::string(32, 's'));
  v1::NodeFrame frame;
  *frame.mutable_hello() = HelloOf(config);
  const auto challenge = handshake.OnFrame(frame);
  PHALANX_ASSERT_OK(challenge);
  frame.mutable_proof()->set_proof((*challenge)->challenge().proof());
  EXPECT_THAT(handshake.OnFrame(frame), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(SessionHandshakeTest, AHelloThatWasChangedOnItsWayIsNotProven) {
  const SessionConfig config = Config();
  NodeSession node(config, Node());
  node.StreamOpened(std::string(32, 'n'), kStart);
  v1::NodeFrame hello = *node.NextFrame(kStart);
  hello.mutable_hello()->mutable_node()->set_address("6.6.6.6:6");
  ShardHandshake handshake(config, std::string(32, 's'));
  EXPECT_THAT(node.OnFrame(**handshake.OnFrame(hello), kStart),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(SessionHandshakeTest, FramesOutOfOrderAreRefused) {
  const SessionConfig config = Config();
  v1::NodeFrame proof;
  proof.mutable_proof();
  ShardHandshake first(config, std::string(32, 's'));
  EXPECT_THAT(first.OnFrame(proof), StatusIs(absl::StatusCode::kInvalidArgument));
  ShardHandshake second(config, std::string(32, 's'));
  v1::NodeFrame hello;
  *hello.mutable_hello() = HelloOf(config);
  EXPECT_THAT(second.OnFrame(hello), IsOk());
  EXPECT_THAT(second.OnFrame(hello), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SessionHandshakeTest, ARefusalTravelsWithItsCodeAndReadableText) {
  const v1::ShardFrame frame =
      RefusedFrame(absl::PermissionDeniedError(absl::string_view("bad \xff\x01 text")));
  EXPECT_EQ(RefusedStatus(frame.refused()), absl::PermissionDeniedError("bad ?? text"));
  const absl::Status endless = absl::InvalidArgumentError(std::string(kMaxFrameBytes, 'x'));
  EXPECT_EQ(RefusedFrame(endless).refused().message(), std::string(kMaxRefusalBytes, 'x'));
  v1::Refused odd;
  for (const int code : {-1, 0, 17, 1000}) {
    odd.set_code(code);
    EXPECT_EQ(RefusedStatus(odd).code(), absl::StatusCode::kUnknown);
  }
}

}  // namespace
}  // namespace phalanx::directory
