#include "src/net/pull/segment_rate.h"

#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

constexpr uint64_t kSegment = 64 * 1024;

// Segments at intervals of `gap`, each with the given flag of its sender.
class Link {
 public:
  void Deliver(int segments, absl::Duration gap, bool starved = false) {
    for (int i = 0; i < segments; ++i) {
      now_ = now_ + gap;
      rate_.Segment(now_, kSegment, starved);
    }
  }
  double rate() const { return rate_.bytes_per_second(); }

 private:
  Instant now_ = Instant::FromNanos(1);
  SegmentRate rate_;
};

TEST(SegmentRate, IsTheLinksRateWhenTheSenderAlwaysHasBytes) {
  Link link;
  link.Deliver(100, absl::Microseconds(500));
  EXPECT_NEAR(link.rate(), kSegment / 500e-6, 1);
}

TEST(SegmentRate, ExcludesTheBurstOfABufferOnTheWay) {
  Link link;
  link.Deliver(4, absl::Microseconds(5));
  link.Deliver(50, absl::Microseconds(500));
  EXPECT_NEAR(link.rate(), kSegment / 500e-6, 1);
}

TEST(SegmentRate, IsUnknownForARelayThatSendsInBursts) {
  Link link;
  for (int i = 0; i < 200; ++i) {
    link.Deliver(1, absl::Milliseconds(2), /*starved=*/true);
    link.Deliver(3, absl::Microseconds(20));
  }
  EXPECT_EQ(link.rate(), 0);
}

TEST(SegmentRate, ExcludesTheTimeInWhichTheSenderWasStarved) {
  Link link;
  link.Deliver(50, absl::Microseconds(500));
  link.Deliver(1, absl::Seconds(3), /*starved=*/true);
  link.Deliver(50, absl::Microseconds(500));
  EXPECT_NEAR(link.rate(), kSegment / 500e-6, 1);
}

TEST(SegmentRate, IsNotChangedByAPausedReceiver) {
  Link link;
  link.Deliver(4, absl::Microseconds(500));
  for (int i = 0; i < 3; ++i) {
    link.Deliver(1, absl::Milliseconds(20));
    link.Deliver(39, absl::Microseconds(10));
    link.Deliver(100, absl::Microseconds(500));
  }
  EXPECT_NEAR(link.rate(), kSegment / 500e-6, 1);
}

TEST(SegmentRate, MeasuresSegmentsThatArriveManyInOneTurn) {
  Link link;
  for (int i = 0; i < 20; ++i) {
    link.Deliver(1, absl::Milliseconds(1));
    link.Deliver(15, absl::ZeroDuration());
  }
  EXPECT_NEAR(link.rate(), 16 * kSegment / 1e-3, 0.02 * 16 * kSegment / 1e-3);
}

TEST(SegmentRate, MeasuresALongPullInGrowingWindows) {
  Link link;
  link.Deliver(10000, absl::Microseconds(100));
  link.Deliver(50000, absl::Microseconds(500));
  EXPECT_NEAR(link.rate(), kSegment / 500e-6, 1);
}

TEST(SegmentRate, IsUnknownForAFewSegments) {
  Link link;
  link.Deliver(7, absl::Microseconds(500));
  EXPECT_EQ(link.rate(), 0);
}

}  // namespace
}  // namespace phalanx::net
