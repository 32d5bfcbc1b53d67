#include "src/net/pull/pull_timing.h"

#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

const Instant kStart = Instant::FromNanos(1'000'000'000);
Instant After(int milliseconds) { return kStart + absl::Milliseconds(milliseconds); }

TEST(PullTiming, WithoutAnAnswerItHasTheTimeOfTheRequest) {
  PullTiming timing;
  timing.Begin(kStart);
  EXPECT_FALSE(timing.any_byte());
  EXPECT_EQ(timing.last_byte(), kStart);
  EXPECT_EQ(timing.last_segment(), kStart);
  EXPECT_EQ(timing.first_answer(), absl::ZeroDuration());
  EXPECT_EQ(timing.bytes_per_second(), 0);
}

TEST(PullTiming, TheFirstControlFrameGivesTheLatency) {
  PullTiming timing;
  timing.Begin(kStart);
  timing.ByteArrived(After(2));
  EXPECT_TRUE(timing.any_byte());
  EXPECT_EQ(timing.first_answer(), absl::ZeroDuration()) << "a part of a frame is no answer";
  timing.AnswerArrived(After(3));
  timing.AnswerArrived(After(9));
  EXPECT_EQ(timing.first_answer(), absl::Milliseconds(3));
}

TEST(PullTiming, AnAnswerInTheTurnOfTheRequestIsNotTakenForNone) {
  PullTiming timing;
  timing.Begin(kStart);
  timing.AnswerArrived(kStart);
  EXPECT_GT(timing.first_answer(), absl::ZeroDuration());
}

TEST(PullTiming, ReturnsTheGapBetweenSegments) {
  PullTiming timing;
  timing.Begin(kStart);
  EXPECT_EQ(timing.SegmentArrived(After(4), 10, false), absl::Milliseconds(4));
  timing.ByteArrived(After(6));
  EXPECT_EQ(timing.SegmentArrived(After(7), 10, true), absl::Milliseconds(3));
  EXPECT_EQ(timing.last_segment(), After(7));
  EXPECT_EQ(timing.last_byte(), After(6));
}

}  // namespace
}  // namespace phalanx::net
