#include "src/object_store/pulls/pull_watch.h"

#include <optional>

#include "gtest/gtest.h"

namespace phalanx::object_store {
namespace {

constexpr double kRate = 100e6;

// A link with a rate, looked at whenever the watch wants it.
class PullWatchTest : public ::testing::Test {
 protected:
  // Lets time pass; returns the first report in it.
  std::optional<PullWatch::Report> Pass(absl::Duration time, double rate) {
    std::optional<PullWatch::Report> first;
    for (const Instant end = now_ + time; watch_.next_look() <= end;) {
      seen_.present +=
          static_cast<uint64_t>(rate * absl::ToDoubleSeconds(watch_.next_look() - now_));
      now_ = watch_.next_look();
      const PullWatch::Report report = watch_.Look(now_, seen_);
      ++looks_;
      if (report.window > absl::ZeroDuration() && !first) {
        first = report;
        reported_at_ = now_;
      }
    }
    return first;
  }

  Instant now_ = Instant::FromNanos(1'000'000);
  PullWatch::Seen seen_;
  PullWatch watch_{now_, 0};
  Instant reported_at_;
  int looks_ = 0;
};

TEST_F(PullWatchTest, TheRateIsReportedOnceSoonAfterTheFirstBytes) {
  EXPECT_FALSE(Pass(absl::Seconds(1), 0).has_value());
  const Instant began = now_;
  const auto report = Pass(absl::Milliseconds(300), kRate);
  ASSERT_TRUE(report.has_value());
  // A pull without bytes is looked at seldom, so the first look can be late.
  EXPECT_LE(reported_at_ - began, PullWatch::kMaxTick + 2 * PullWatch::kTick);
  EXPECT_EQ(report->window, 2 * PullWatch::kTick);
  EXPECT_NEAR(report->bytes_per_second, kRate, 1);
  EXPECT_EQ(report->silent, absl::ZeroDuration());
  EXPECT_FALSE(Pass(absl::Seconds(5), kRate).has_value());
}

TEST_F(PullWatchTest, TheRateIsReportedOnceMoreOfALongerTime) {
  ASSERT_TRUE(Pass(absl::Milliseconds(60), kRate).has_value());
  const auto second = Pass(absl::Milliseconds(80), kRate / 2);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->window, 4 * PullWatch::kTick);
  EXPECT_NEAR(second->bytes_per_second, kRate / 2, 1);
  EXPECT_FALSE(Pass(absl::Seconds(5), kRate / 2).has_value());
}

TEST_F(PullWatchTest, APauseIsNoPartOfASecondRate) {
  ASSERT_TRUE(Pass(absl::Milliseconds(60), kRate).has_value());
  Pass(absl::Milliseconds(200), 0);
  for (int i = 0; i < 20; ++i) {
    const auto report = Pass(PullWatch::kTick, kRate);
    EXPECT_TRUE(!report.has_value() || report->bytes_per_second > kRate / 2);
  }
}

TEST_F(PullWatchTest, ALinkThatSlowsDownIsReportedOnce) {
  Pass(absl::Milliseconds(500), kRate);
  const auto report = Pass(absl::Milliseconds(60), kRate / 20);
  ASSERT_TRUE(report.has_value());
  EXPECT_LT(report->bytes_per_second, kRate / 4);
  EXPECT_EQ(report->silent, absl::ZeroDuration());
  EXPECT_FALSE(Pass(absl::Seconds(5), kRate / 20).has_value());
}

// The last time before it counts as usual: the sender waited for every byte then.
TEST_F(PullWatchTest, ASlowLinkBelowARelayIsReportedAsSoonAsOneBelowASource) {
  const auto report_after = [this](absl::Duration starved) {
    watch_ = PullWatch(now_, seen_.present);
    for (int i = 0; i < 30; ++i) {
      seen_.starved_ns += static_cast<uint64_t>(absl::ToInt64Nanoseconds(starved));
      Pass(PullWatch::kTick, kRate);
    }
    // A quarter of the first look, and what buffers hold of the bytes waited for before.
    const Instant began = now_;
    seen_.starved_ns += static_cast<uint64_t>(absl::ToInt64Nanoseconds(starved / 4));
    Pass(PullWatch::kTick, kRate / 5);
    EXPECT_TRUE(Pass(PullWatch::kTick, kRate / 20).has_value());
    return reported_at_ - began;
  };
  EXPECT_EQ(report_after(absl::ZeroDuration()), 2 * PullWatch::kTick);
  EXPECT_EQ(report_after(0.9 * PullWatch::kTick), 2 * PullWatch::kTick);
}

TEST_F(PullWatchTest, ASilentLinkIsReportedTwiceAndThenSeldom) {
  Pass(absl::Milliseconds(500), kRate);
  const Instant began = now_;
  const auto silent = Pass(absl::Milliseconds(45), 0);
  ASSERT_TRUE(silent.has_value());
  EXPECT_GE(silent->silent, absl::Milliseconds(30));
  EXPECT_LE(reported_at_ - began, absl::Milliseconds(40));
  ASSERT_TRUE(Pass(absl::Milliseconds(30), 0).has_value()) << "when the others have reported too";
  EXPECT_LE(reported_at_ - began, absl::Milliseconds(75));
  EXPECT_FALSE(Pass(absl::Milliseconds(40), 0).has_value());
}

TEST_F(PullWatchTest, AGapIsQuietOnlyIfTheLinkNeedsLess) {
  Pass(absl::Milliseconds(500), kRate);
  EXPECT_EQ(watch_.Quiet(now_), absl::ZeroDuration());
  Pass(absl::Milliseconds(100), 0);
  EXPECT_GE(watch_.Quiet(now_), absl::Milliseconds(90));
  Pass(absl::Milliseconds(100), kRate);
  EXPECT_EQ(watch_.Quiet(now_), absl::ZeroDuration());
}

TEST_F(PullWatchTest, ASlowLinkIsNotQuietBetweenItsBytes) {
  Pass(absl::Milliseconds(500), 1e6);
  Pass(absl::Milliseconds(100), 0);
  EXPECT_EQ(watch_.Quiet(now_), absl::ZeroDuration());
}

TEST_F(PullWatchTest, ARateIsReportedOnceStarvedAndOnceNot) {
  // Half of the time the sender has no bytes.
  int reports = 0;
  for (int i = 0; i < 10; ++i) {
    seen_.starved_ns += 10'000'000;
    const auto least = Pass(PullWatch::kTick, kRate / 2);
    if (!least.has_value()) continue;
    ++reports;
    EXPECT_EQ(least->starved_ns, 20'000'000u);
  }
  EXPECT_EQ(reports, 1);
  const auto report = Pass(3 * PullWatch::kTick, kRate);
  ASSERT_TRUE(report.has_value());
  EXPECT_NEAR(report->bytes_per_second, kRate, 1);
}

TEST_F(PullWatchTest, ALinkWhoseSenderIsStarvedHasNotSlowedDown) {
  Pass(absl::Milliseconds(500), kRate);
  for (int i = 0; i < 10; ++i) {
    seen_.starved_ns += 15'000'000;
    EXPECT_FALSE(Pass(PullWatch::kTick, kRate / 20).has_value());
  }
}

// As below any relay: buffers let the first bytes through at once.
TEST_F(PullWatchTest, ABurstAtTheStartDelaysNoReport) {
  Pass(PullWatch::kTick, kRate);
  const Instant began = now_;
  for (int i = 0; i < 2; ++i) {
    seen_.starved_ns += 15'000'000;
    const bool reported = Pass(PullWatch::kTick, kRate / 20).has_value();
    EXPECT_EQ(reported, i == 1);
  }
  EXPECT_EQ(now_ - began, 2 * PullWatch::kTick);
}

TEST_F(PullWatchTest, AGapLikeTheOnesBeforeIsNoSilence) {
  Pass(absl::Milliseconds(500), kRate);
  EXPECT_TRUE(Pass(absl::Milliseconds(120), 0).has_value());
  Pass(absl::Milliseconds(500), kRate);
  EXPECT_FALSE(Pass(absl::Milliseconds(120), 0).has_value());
}

TEST_F(PullWatchTest, TheSlowerTheLinkTheLongerTheSilence) {
  constexpr double kSlow = 1e6;
  Pass(absl::Milliseconds(500), kSlow);
  EXPECT_FALSE(Pass(absl::Milliseconds(400), 0).has_value());
  EXPECT_TRUE(Pass(absl::Milliseconds(400), 0).has_value());
}

TEST_F(PullWatchTest, APauseOfTheNodeItselfIsNoSilence) {
  Pass(absl::Milliseconds(500), kRate);
  now_ = now_ + absl::Seconds(1);
  EXPECT_EQ(watch_.Look(now_, seen_).window, absl::ZeroDuration());
  EXPECT_FALSE(Pass(absl::Milliseconds(500), kRate).has_value());
}

TEST_F(PullWatchTest, APullWithoutBytesIsLookedAtSeldom) {
  Pass(absl::Seconds(10), 0);
  EXPECT_LE(looks_, 70);
}

}  // namespace
}  // namespace phalanx::object_store
