// A data plane against a sender that breaks the rules.
#include "src/net/pull/pull_receiver.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/scripted_peer.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::ScopedDefect;
using ::phalanx::testing::StatusIs;
using testing::ControlFrameOf;
using ::testing::ElementsAre;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::FrameOf;
using testing::Gen;
using ::testing::HasSubstr;
using testing::Id;
using testing::ScriptedPeer;
using testing::SegmentHeader;
using testing::SegmentOf;
using testing::SimPlane;
using testing::SimPlanes;
using testing::StartedPull;

constexpr uint64_t kObjectBytes = 1000;

std::string Accept(const AcceptPayload& accept = {Gen(), kObjectBytes, 1}) {
  return ControlFrameOf(FrameType::kAccept, EncodePayload(accept));
}
std::string Starved() {
  return ControlFrameOf(FrameType::kStarved, EncodePayload(StarvedPayload{}));
}
std::string Ended() { return ControlFrameOf(FrameType::kEnded, EncodePayload(StarvedPayload{})); }
std::string Aborted(const absl::Status& reason) {
  return ControlFrameOf(FrameType::kAborted, EncodePayload(reason));
}

class PullReceiverTest : public ::testing::Test {
 protected:
  PullReceiverTest() {
    sender_.Listen();
    pull_ = receiver_.Pull(
        {sender_.self(), sender_.address(), Id(1), Gen(), EmptyBuffer(kObjectBytes), 1});
    world_.RunFor(absl::Milliseconds(2));
  }

  // Sends the frame and expects the pull to end with this error, without wrong bytes in the buffer.
  void ExpectRefused(const std::string& bytes, absl::StatusCode code = absl::StatusCode::kDataLoss,
                     const std::string& text = "") {
    sender_.Send(bytes);
    ASSERT_TRUE(pull_.done());
    EXPECT_THAT(pull_.status(), StatusIs(code, HasSubstr(text)));
    EXPECT_EQ(FirstWrongByte(*pull_.into), std::nullopt);
    EXPECT_TRUE(sender_.closed());
  }

  SimPlanes world_;
  SimPlane& receiver_ = world_.Add("b");
  ScriptedPeer sender_{world_, "s"};
  StartedPull pull_;
};

TEST_F(PullReceiverTest, RequestsTheMissingBytes) {
  EXPECT_THAT(sender_.received(), ElementsAre("OPEN"));
  const absl::StatusOr<OpenPayload> open = DecodeOpen(sender_.last_payload());
  PHALANX_ASSERT_OK(open);
  EXPECT_EQ(open->object, Id(1));
  EXPECT_EQ(open->generation, Gen());
  EXPECT_EQ(open->sender, sender_.self());
  EXPECT_EQ(open->sign_of_life, absl::Milliseconds(125));
  EXPECT_THAT(open->wants, ElementsAre(OpenPayload::Want{0, 0}));
}

TEST_F(PullReceiverTest, RequestsNothingFromAnotherIncarnation) {
  ScriptedPeer other(world_, "other");
  other.Listen();
  const StartedPull pull =
      receiver_.Pull({{4711, 2}, other.address(), Id(1), Gen(), EmptyBuffer(kObjectBytes), 1});
  world_.RunFor(absl::Milliseconds(2));
  ASSERT_TRUE(pull.done());
  EXPECT_THAT(pull.status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("belongs to node")));
  EXPECT_TRUE(other.received().empty());
}

TEST_F(PullReceiverTest, AcceptsAWellBehavedSender) {
  sender_.Send(Accept() + SegmentOf(0, 600) + SegmentOf(600, 400) + Ended());
  ASSERT_TRUE(pull_.done());
  PHALANX_EXPECT_OK(pull_.status());
  EXPECT_EQ(FirstWrongByte(*pull_.into), std::nullopt);
  EXPECT_FALSE(sender_.closed()) << "the connection goes to the pool";
}

TEST_F(PullReceiverTest, CompletesAtTheLastByteWhateverFollows) {
  sender_.Send(Accept() + SegmentOf(0, 1000));
  ASSERT_TRUE(pull_.done());
  PHALANX_EXPECT_OK(pull_.status());
  sender_.Send("and now for something completely different");
  EXPECT_TRUE(sender_.closed());
}

TEST_F(PullReceiverTest, CompletesAtTheLastByteWhateverArrivesWithIt) {
  sender_.Send(Accept() + SegmentOf(0, 1000) + std::string(100, 'x'));
  ASSERT_TRUE(pull_.done());
  PHALANX_EXPECT_OK(pull_.status());
  EXPECT_TRUE(sender_.closed());
}

TEST_F(PullReceiverTest, AConnectionThatBreaksAfterItsAnswerIsNotRetried) {
  sender_.Send(Accept() + SegmentOf(0, 1000) + Ended());
  ASSERT_TRUE(pull_.done());
  const StartedPull next = receiver_.Pull(
      {sender_.self(), sender_.address(), Id(1), Gen(), EmptyBuffer(kObjectBytes), 1});
  world_.RunFor(absl::Milliseconds(2));
  const AcceptPayload accept = {Gen(), kObjectBytes, 1};
  sender_.Send(ControlFrameOf(FrameType::kAccept, EncodePayload(accept), 2));
  sender_.Disconnect();
  world_.RunFor(absl::Milliseconds(2));
  ASSERT_TRUE(next.done());
  EXPECT_THAT(next.status(), StatusIs(absl::StatusCode::kUnavailable));
}

// What a link has buffered when it slows down arrives slowly, and says no more about the sender
// than before.
TEST_F(PullReceiverTest, CountsTheTimeStarvedThatTheSenderNames) {
  const auto progress = std::make_shared<PullProgress>();
  ScriptedPeer other(world_, "other");
  other.Listen();
  const StartedPull pull = receiver_.Pull({.sender = other.self(),
                                           .address = other.address(),
                                           .object = Id(1),
                                           .generation = Gen(),
                                           .into = EmptyBuffer(kObjectBytes),
                                           .progress = progress});
  world_.RunFor(absl::Milliseconds(2));
  other.Send(Accept() + SegmentOf(0, 100));
  const auto send_after = [&](absl::Duration gap, uint64_t offset, absl::Duration starved) {
    const uint64_t before = progress->starved_ns;
    world_.RunFor(gap);
    FrameHeader header = SegmentHeader(offset, 100);
    header.starved = EncodeStarvedBefore(starved);
    other.Send(SegmentOf(header));
    return absl::Nanoseconds(static_cast<int64_t>(progress->starved_ns - before));
  };
  EXPECT_EQ(send_after(absl::Milliseconds(50), 100, absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(send_after(absl::Milliseconds(50), 200, absl::Milliseconds(1)),
            DecodeStarvedBefore(EncodeStarvedBefore(absl::Milliseconds(1))));
  // No more than there was.
  EXPECT_LT(send_after(absl::Milliseconds(1), 300, absl::Milliseconds(4)), absl::Milliseconds(4));
  // Longer than can be named: the whole gap.
  EXPECT_GE(send_after(absl::Milliseconds(50), 400, absl::Hours(1)), absl::Milliseconds(50));
}

TEST_F(PullReceiverTest, PublishesAPartOfASegment) {
  sender_.Send(Accept() + SegmentOf(0, 600).substr(0, kFrameHeaderBytes + 100));
  EXPECT_EQ(pull_.into->watermark(0), 100u);
}

TEST_F(PullReceiverTest, ABufferClosedBeforeTheLastByteIsAnError) {
  const std::string segment = SegmentOf(0, kObjectBytes);
  sender_.Send(Accept() + segment.substr(0, segment.size() - 1));
  ASSERT_EQ(pull_.into->watermark(0), kObjectBytes - 1);
  pull_.into->Close(absl::AbortedError("deleted"));
  sender_.Send(segment.substr(segment.size() - 1) + Ended());
  ASSERT_TRUE(pull_.done());
  EXPECT_THAT(pull_.status(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_FALSE(pull_.into->complete());
}

TEST_F(PullReceiverTest, AnswersSignsOfLife) {
  sender_.Send(Accept() + Starved());
  sender_.Send(Starved());
  EXPECT_THAT(sender_.received(), ElementsAre("OPEN", "WAITING", "WAITING"));
}

TEST_F(PullReceiverTest, HandlesABrokenConnectionInEveryState) {
  const std::string whole = Accept() + SegmentOf(0, 40) + Starved() + SegmentOf(40, 5);
  for (size_t size = 0; size <= whole.size(); ++size) {
    SimPlanes world;
    SimPlane& receiver = world.Add("b");
    ScriptedPeer sender(world, "s");
    sender.Listen();
    const StartedPull pull =
        receiver.Pull({sender.self(), sender.address(), Id(1), Gen(), EmptyBuffer(1000), 1});
    world.RunFor(absl::Milliseconds(2));
    sender.Send(whole.substr(0, size));
    ASSERT_FALSE(pull.done());
    sender.Disconnect();
    world.RunFor(absl::Milliseconds(2));
    ASSERT_TRUE(pull.done()) << "after " << size << " bytes";
    ASSERT_THAT(pull.status(), StatusIs(absl::StatusCode::kUnavailable));
    ASSERT_EQ(FirstWrongByte(*pull.into), std::nullopt);
    ASSERT_EQ((*pull.outcome)->bytes_received, pull.into->watermark(0));
  }
}

TEST_F(PullReceiverTest, HandlesASilentSenderInEveryState) {
  for (const std::string& sent_bytes :
       {std::string(), Accept().substr(0, 20), Accept(), Accept() + SegmentOf(0, 40),
        Accept() + SegmentOf(0, 40).substr(0, 50), Accept() + Starved()}) {
    SimPlanes world;
    SimPlane& receiver = world.Add("b");
    ScriptedPeer sender(world, "s");
    sender.Listen();
    const StartedPull pull =
        receiver.Pull({sender.self(), sender.address(), Id(1), Gen(), EmptyBuffer(1000), 1});
    world.RunFor(absl::Milliseconds(2));
    if (!sent_bytes.empty()) sender.Send(sent_bytes);
    ASSERT_LE(world.TimeUntilDone(pull), absl::Milliseconds(501));
    ASSERT_THAT(pull.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
}

TEST_F(PullReceiverTest, MapsTheSendersReasons) {
  const std::vector<std::pair<absl::StatusCode, absl::StatusCode>> reasons = {
      {absl::StatusCode::kNotFound, absl::StatusCode::kNotFound},
      {absl::StatusCode::kAborted, absl::StatusCode::kAborted},
      {absl::StatusCode::kResourceExhausted, absl::StatusCode::kResourceExhausted},
      {absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable},
      {absl::StatusCode::kInternal, absl::StatusCode::kUnavailable},
      {absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable},
      {absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnavailable},
      {absl::StatusCode::kOk, absl::StatusCode::kUnavailable}};
  for (const auto& [sent, expected] : reasons) {
    SimPlanes world;
    SimPlane& receiver = world.Add("b");
    ScriptedPeer sender(world, "s");
    sender.Listen();
    const StartedPull pull =
        receiver.Pull({sender.self(), sender.address(), Id(1), Gen(), EmptyBuffer(1000), 1});
    world.RunFor(absl::Milliseconds(2));
    sender.Send(Aborted(absl::Status(sent, "the reason")));
    ASSERT_TRUE(pull.done());
    EXPECT_THAT(pull.status(), StatusIs(expected));
    EXPECT_FALSE(sender.closed());
  }
}

TEST_F(PullReceiverTest, RefusesAnotherGeneration) {
  ExpectRefused(Accept({Gen(2), kObjectBytes, 1}) + SegmentOf(0, 1000), absl::StatusCode::kAborted,
                "generation");
  EXPECT_EQ(pull_.into->watermark(0), 0u);
}

TEST_F(PullReceiverTest, WithoutItsGenerationCheckItAcceptsAnotherGeneration) {
  const ScopedDefect defect(Defect::kNoGenerationCheck);
  sender_.Send(Accept({Gen(2), kObjectBytes, 1}) + SegmentOf(0, 1000));
  ASSERT_TRUE(pull_.done());
  PHALANX_EXPECT_OK(pull_.status());
}

TEST_F(PullReceiverTest, RefusesAnotherSizeOrCut) {
  ExpectRefused(Accept({Gen(), kObjectBytes + 1, 1}), absl::StatusCode::kDataLoss, "1001 bytes");
}

TEST_F(PullReceiverTest, RefusesAnotherNumberOfSlices) {
  ExpectRefused(Accept({Gen(), kObjectBytes, 2}), absl::StatusCode::kDataLoss, "2 slices");
}

TEST_F(PullReceiverTest, RefusesASegmentBeforeTheAccept) { ExpectRefused(SegmentOf(0, 10)); }

TEST_F(PullReceiverTest, RefusesAStarvedBeforeTheAccept) { ExpectRefused(Starved()); }

TEST_F(PullReceiverTest, RefusesASecondAccept) { ExpectRefused(Accept() + Accept()); }

TEST_F(PullReceiverTest, RefusesASegmentAboveTheWatermark) {
  ExpectRefused(Accept() + SegmentOf(0, 10) + SegmentOf(11, 10));
  EXPECT_EQ(pull_.into->watermark(0), 10u);
}

TEST_F(PullReceiverTest, RefusesASegmentBelowTheWatermark) {
  ExpectRefused(Accept() + SegmentOf(0, 10) + SegmentOf(9, 10));
  EXPECT_EQ(pull_.into->watermark(0), 10u);
}

TEST_F(PullReceiverTest, RefusesASegmentBeyondTheEnd) {
  ExpectRefused(Accept() + SegmentOf(0, 1001));
}

TEST_F(PullReceiverTest, RefusesASegmentThatBeginsWithinAndEndsBeyondTheEnd) {
  ExpectRefused(Accept() + SegmentOf(0, 600) + SegmentOf(600, 401));
  EXPECT_EQ(pull_.into->watermark(0), 600u);
}

TEST_F(PullReceiverTest, RefusesUncheckedBytesIfChecksumsWereRequested) {
  DataPlaneOptions options;
  options.checksums = true;
  SimPlane& careful = world_.Add("careful", options);
  ScriptedPeer sender(world_, "t");
  sender.Listen();
  const StartedPull pull =
      careful.Pull({sender.self(), sender.address(), Id(1), Gen(), EmptyBuffer(1000), 1});
  world_.RunFor(absl::Milliseconds(2));
  sender.Send(Accept() + SegmentOf(0, 1000));
  ASSERT_TRUE(pull.done());
  EXPECT_THAT(pull.status(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_EQ(pull.into->watermark(0), 0u);
}

TEST_F(PullReceiverTest, RefusesAnUnrequestedSlice) {
  ExpectRefused(Accept() + SegmentOf(SegmentHeader(0, 10, 1)));
}

TEST_F(PullReceiverTest, RefusesASegmentOfAnotherPull) {
  ExpectRefused(Accept() + SegmentOf(SegmentHeader(0, 10, 0, 2)));
}

TEST_F(PullReceiverTest, RefusesAControlFrameOfAnotherPull) {
  ExpectRefused(ControlFrameOf(FrameType::kEnded, EncodePayload(StarvedPayload{}), 2));
}

TEST_F(PullReceiverTest, RefusesAnEndedBeforeTheLastByte) {
  sender_.Send(Accept() + SegmentOf(0, 999) + Ended());
  ASSERT_TRUE(pull_.done());
  EXPECT_THAT(pull_.status(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PullReceiverTest, RefusesFramesThatOnlyReceiversSend) {
  ExpectRefused(ControlFrameOf(FrameType::kCancel));
}

TEST_F(PullReceiverTest, RefusesAHugeLength) {
  FrameHeader huge = SegmentHeader(0, 10);
  huge.payload_bytes = 0xffffffff;
  ExpectRefused(Accept() + FrameOf(huge, "0123456789"));
}

TEST_F(PullReceiverTest, RefusesATruncatedPayload) {
  ExpectRefused(ControlFrameOf(FrameType::kAccept, "short"));
}

TEST_F(PullReceiverTest, RefusesGarbage) {
  ExpectRefused(std::string(100, 'x'));
  EXPECT_EQ(receiver_.plane().stats().frames_refused, 1u);
}

TEST_F(PullReceiverTest, RefusesToDrainForever) {
  sender_.Send(Accept() + SegmentOf(0, 10));
  receiver_.plane().CancelPull(pull_.handle);
  world_.RunFor(absl::Milliseconds(2));
  ASSERT_TRUE(pull_.done());
  // A sender that ignores the cancellation.
  const std::string large = FrameOf(SegmentHeader(10, 60'000), std::string(60'000, 'x'));
  for (int i = 0; i < 200 && !sender_.closed(); ++i) sender_.Send(large);
  EXPECT_TRUE(sender_.closed());
  EXPECT_EQ(pull_.into->watermark(0), 10u);
}

}  // namespace
}  // namespace phalanx::net
