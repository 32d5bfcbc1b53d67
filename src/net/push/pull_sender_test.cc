// A data plane against a receiver that breaks the rules.
#include "src/net/push/pull_sender.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/scripted_peer.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using testing::ControlFrameOf;
using ::testing::ElementsAre;
using testing::EmptyBuffer;
using testing::Gen;
using testing::Grow;
using ::testing::HasSubstr;
using testing::Id;
using testing::ScriptedPeer;
using testing::SegmentOf;
using testing::SimPlane;
using testing::SimPlanes;
using testing::WholeBuffer;

class PullSenderTest : public ::testing::Test {
 protected:
  PullSenderTest() {
    node_.shelf.Put(Id(1), Gen(), WholeBuffer(1000, 2));
    node_.shelf.Put(Id(2), Gen(), partial_);
    receiver_.Dial(node_.address());
  }

  OpenPayload OpenOf(int object) {
    return {node_.self(), Id(object), Gen(), absl::Milliseconds(100), {{0, 0}, {1, 100}}};
  }
  static std::string OpenFrame(const OpenPayload& open, uint32_t pull = 1) {
    return ControlFrameOf(FrameType::kOpen, EncodePayload(open), pull);
  }
  absl::Status LastReason() {
    absl::Status reason;
    PHALANX_EXPECT_OK(DecodeAborted(receiver_.last_payload(), reason));
    return reason;
  }
  void ExpectClosed(uint64_t frames_refused = 1) {
    EXPECT_TRUE(receiver_.closed());
    EXPECT_EQ(node_.plane().stats().frames_refused, frames_refused);
    EXPECT_EQ(node_.plane().stats().connections, 0);
    EXPECT_EQ(node_.shelf.pins(), 0);
  }

  SimPlanes world_;
  SimPlane& node_ = world_.Add("a");
  std::shared_ptr<TransferBuffer> partial_ = EmptyBuffer(1000, 2);
  ScriptedPeer receiver_{world_, "r"};
};

TEST_F(PullSenderTest, ServesEachSliceFromTheRequestedOffset) {
  receiver_.Send(OpenFrame(OpenOf(1)));
  // 1000 bytes in two slices: 512 and 488.
  EXPECT_THAT(receiver_.received(),
              ElementsAre("ACCEPT", "SEGMENT 0:0+512", "SEGMENT 1:100+388", "ENDED"));
  EXPECT_EQ(node_.shelf.pins(), 0);
  EXPECT_FALSE(receiver_.closed());
}

TEST_F(PullSenderTest, ServesOnePullAfterAnother) {
  receiver_.Send(OpenFrame(OpenOf(1), 1));
  receiver_.Send(OpenFrame(OpenOf(1), 2));
  receiver_.Send(OpenFrame(OpenOf(1), 7));
  EXPECT_EQ(receiver_.received().size(), 12u);
}

TEST_F(PullSenderTest, RefusesASliceThatTheObjectDoesNotHave) {
  OpenPayload open = OpenOf(1);
  open.wants = {{2, 0}};
  receiver_.Send(OpenFrame(open));
  EXPECT_THAT(receiver_.received(), ElementsAre("ABORTED"));
  EXPECT_THAT(LastReason(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(node_.shelf.pins(), 0);
}

TEST_F(PullSenderTest, RefusesAnOffsetBeyondTheSlice) {
  OpenPayload open = OpenOf(1);
  open.wants = {{0, 513}};
  receiver_.Send(OpenFrame(open));
  EXPECT_THAT(LastReason(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PullSenderTest, AnOffsetAtTheEndIsServedWithoutBytes) {
  OpenPayload open = OpenOf(1);
  open.wants = {{0, 512}};
  receiver_.Send(OpenFrame(open));
  EXPECT_THAT(receiver_.received(), ElementsAre("ACCEPT", "ENDED"));
}

TEST_F(PullSenderTest, RefusesARequestForAnotherIncarnation) {
  OpenPayload open = OpenOf(1);
  open.sender.incarnation += 1;
  receiver_.Send(OpenFrame(open));
  EXPECT_THAT(LastReason(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("this is node")));
  EXPECT_EQ(node_.shelf.requests(), 0);
}

TEST_F(PullSenderTest, NeverSendsWhatIsNotPublished) {
  Grow(*partial_, 0, 10);
  receiver_.Send(OpenFrame(OpenOf(2)));
  Grow(*partial_, 0, 25);
  Grow(*partial_, 1, 99);
  EXPECT_THAT(receiver_.received(), ElementsAre("ACCEPT", "SEGMENT 0:0+10", "SEGMENT 0:10+15"));
  Grow(*partial_, 1, 101);
  EXPECT_THAT(receiver_.received(),
              ElementsAre("ACCEPT", "SEGMENT 0:0+10", "SEGMENT 0:10+15", "SEGMENT 1:100+1"));
}

TEST_F(PullSenderTest, SendsStarvedOnceInEveryInterval) {
  receiver_.Send(OpenFrame(OpenOf(2)));
  for (int i = 0; i < 10; ++i) {
    world_.RunFor(absl::Milliseconds(100));
    receiver_.Send(ControlFrameOf(FrameType::kWaiting));
  }
  EXPECT_NEAR(static_cast<double>(receiver_.received().size()), 11, 1);
  EXPECT_EQ(receiver_.received().back(), "STARVED");
}

TEST_F(PullSenderTest, GivesUpOnAReceiverThatNeverAnswers) {
  receiver_.Send(OpenFrame(OpenOf(2)));
  world_.RunFor(absl::Milliseconds(100 * (SignsOfLife::kPatience - 2)));
  EXPECT_EQ(node_.shelf.pins(), 1);
  world_.RunFor(absl::Milliseconds(400));
  ExpectClosed(0);
}

TEST_F(PullSenderTest, StopsAfterACancel) {
  receiver_.Send(OpenFrame(OpenOf(2)));
  receiver_.Send(ControlFrameOf(FrameType::kCancel));
  EXPECT_THAT(receiver_.received(), ElementsAre("ACCEPT", "ABORTED"));
  EXPECT_THAT(LastReason(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(node_.shelf.pins(), 0);
  receiver_.Send(OpenFrame(OpenOf(1), 2));
  EXPECT_EQ(receiver_.received().back(), "ENDED");
}

TEST_F(PullSenderTest, ACancelTogetherWithTheOpenReturnsTheGrant) {
  receiver_.Send(OpenFrame(OpenOf(2)) + ControlFrameOf(FrameType::kCancel));
  EXPECT_THAT(receiver_.received(), ElementsAre("ABORTED"));
  EXPECT_EQ(node_.shelf.requests(), 1);
  EXPECT_EQ(node_.shelf.pins(), 0);
  EXPECT_EQ(node_.plane().stats().pushes_active, 0);
}

TEST_F(PullSenderTest, ACancelThatCrossesTheEndIsIgnored) {
  receiver_.Send(OpenFrame(OpenOf(1)));
  receiver_.Send(ControlFrameOf(FrameType::kCancel));
  receiver_.Send(OpenFrame(OpenOf(1), 2) + ControlFrameOf(FrameType::kCancel, "", 1));
  EXPECT_EQ(receiver_.received().back(), "ENDED");
  EXPECT_FALSE(receiver_.closed());
}

TEST_F(PullSenderTest, ClosingInEveryStateReleasesThePin) {
  const std::string open = OpenFrame(OpenOf(2));
  for (size_t size = 0; size <= open.size(); ++size) {
    ScriptedPeer receiver(world_, absl::StrCat("r", size));
    receiver.Dial(node_.address());
    receiver.Send(open.substr(0, size));
    ASSERT_EQ(node_.shelf.pins(), size == open.size() ? 1 : 0);
    receiver.Disconnect();
    world_.RunFor(absl::Milliseconds(2));
    ASSERT_EQ(node_.shelf.pins(), 0);
  }
  EXPECT_EQ(node_.plane().stats().connections, 1) << "the fixture's own";
}

TEST_F(PullSenderTest, AGrantForAClosedConnectionIsReturned) {
  std::optional<ServeRequest> requested;
  DataPlane::ServeReply later;
  node_.serve = [&](const ServeRequest& request, DataPlane::ServeReply reply) {
    requested = request;
    later = std::move(reply);
  };
  receiver_.Send(OpenFrame(OpenOf(2)));
  ASSERT_TRUE(requested.has_value());
  receiver_.Disconnect();
  world_.RunFor(absl::Milliseconds(2));
  later(node_.shelf.Serve(*requested));
  EXPECT_EQ(node_.plane().stats().pushes_active, 1);
  world_.RunFor(absl::Milliseconds(2));
  EXPECT_EQ(node_.shelf.pins(), 0);
  EXPECT_EQ(node_.plane().stats().pushes_active, 0);
}

TEST_F(PullSenderTest, RefusesTwoPullsAtOnce) {
  receiver_.Send(OpenFrame(OpenOf(2), 1));
  receiver_.Send(OpenFrame(OpenOf(2), 2));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesAnOldNumber) {
  receiver_.Send(OpenFrame(OpenOf(1), 5));
  receiver_.Send(OpenFrame(OpenOf(1), 5));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesACancelOfAnUnopenedPull) {
  receiver_.Send(ControlFrameOf(FrameType::kCancel));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesAWaitingForAnUnopenedPull) {
  receiver_.Send(ControlFrameOf(FrameType::kWaiting));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesASegment) {
  receiver_.Send(SegmentOf(0, 10));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesFramesThatOnlySendersSend) {
  receiver_.Send(ControlFrameOf(FrameType::kEnded, EncodePayload(StarvedPayload{})));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesABrokenOpen) {
  receiver_.Send(ControlFrameOf(FrameType::kOpen, "not an open"));
  ExpectClosed();
}

TEST_F(PullSenderTest, RefusesGarbageAmidAPush) {
  receiver_.Send(OpenFrame(OpenOf(2)));
  EXPECT_EQ(node_.shelf.pins(), 1);
  receiver_.Send(std::string(64, 'x'));
  ExpectClosed();
}

// A stream that accepts everything at once and is always writable.
class GreedyStream final : public ByteStream {
 public:
  GreedyStream(Executor& executor, std::string input, uint64_t& taken, int& turns)
      : executor_(executor), input_(std::move(input)), taken_(taken), turns_(turns) {}

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    size_t read = 0;
    for (const iovec& part : into) {
      const size_t size = input_.copy(static_cast<char*>(part.iov_base), part.iov_len);
      input_.erase(0, size);
      read += size;
    }
    return read;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override {
    size_t size = 0;
    for (const iovec& part : from) size += part.iov_len;
    taken_ += size;
    return size;
  }
  void OnReadable(Task ready) override {
    if (!input_.empty() && ready != nullptr) executor_.Post(std::move(ready));
  }
  void OnWritable(Task ready) override {
    ++turns_;
    executor_.Post(std::move(ready));
  }
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::ZeroDuration(); }
  std::string peer() const override { return "greedy"; }
  void Close() override {}

 private:
  Executor& executor_;
  std::string input_;
  uint64_t& taken_;
  int& turns_;
};

class GrantingHost final : public PullSender::Host {
 public:
  void PullRequested(PullSender&, uint32_t pull, ServeRequest) override { requested = pull; }
  void GrantReturned(PullSender&, uint32_t, ServeGrant) override { ended = true; }
  void WentIdle(PullSender&) override { idle = true; }
  void BecameLink(PullSender&, std::unique_ptr<ByteStream>, LinkPayload) override {}
  void SenderClosed(PullSender&) override {}

  uint32_t requested = 0;
  bool ended = false;
  bool idle = false;
};

TEST_F(PullSenderTest, YieldsToOthersAndContinues) {
  constexpr uint64_t kBytes = 5 << 20;
  const auto process = world_.scheduler().NewProcess("greedy");
  sim::SimExecutor& loop = process->NewExecutor("loop");
  EgressLimiter limiter(0);
  DataPlaneCounters counters;
  GrantingHost host;
  std::vector<char> scratch(100);
  uint64_t taken = 0;
  int turns = 0;
  OpenPayload open = OpenOf(1);
  open.wants = {{0, 0}};
  PullSender sender(1, loop, std::make_unique<GreedyStream>(loop, OpenFrame(open), taken, turns),
                    {2, 1}, {.self = node_.self(), .idle_timeout = absl::Seconds(60)}, limiter,
                    absl::MakeSpan(scratch), counters, host);
  sender.Start("");
  world_.RunFor(absl::Milliseconds(1));
  ASSERT_EQ(host.requested, 1u);
  sender.Grant(1, ServeGrant{WholeBuffer(kBytes), nullptr});
  EXPECT_LT(taken, kBytes / 2) << "not all in one turn";
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_GT(taken, kBytes);
  EXPECT_GE(turns, 4);
  EXPECT_TRUE(host.ended);
}

TEST_F(PullSenderTest, SurvivesRandomBytes) {
  const uint64_t seed = ::phalanx::testing::TestSeed(23);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (int i = 0; i < 200; ++i) {
    ScriptedPeer stranger(world_, absl::StrCat("stranger", i));
    stranger.Dial(node_.address());
    std::string bytes = random.Chance(0.5) ? OpenFrame(OpenOf(2)) : "";
    const size_t size = 1 + random.Below(200);
    for (size_t n = 0; n < size; ++n) bytes.push_back(static_cast<char>(random.Next()));
    stranger.Send(bytes);
  }
  world_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(node_.shelf.pins(), 0);
  receiver_.Send(OpenFrame(OpenOf(1)));
  EXPECT_EQ(receiver_.received().back(), "ENDED");
}

}  // namespace
}  // namespace phalanx::net
