#include "src/collectives/fold/input_pace.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::collectives {
namespace {

constexpr double kRate = 100e6;
constexpr absl::Duration kTick = object_store::PullWatch::kTick;

// A pull whose bytes arrive at a rate, looked at whenever it is to be.
class InputPaceTest : public ::testing::Test {
 protected:
  std::vector<InputPace::News> Pass(absl::Duration time, double rate, bool handed_on = true) {
    std::vector<InputPace::News> all;
    for (const Instant end = now_ + time; pace_.next_look() <= end;) {
      seen_.present +=
          static_cast<uint64_t>(rate * absl::ToDoubleSeconds(pace_.next_look() - now_));
      now_ = pace_.next_look();
      if (const auto news = pace_.Look(now_, seen_, handed_on)) all.push_back(*news);
    }
    return all;
  }

  Instant now_ = Instant::FromNanos(1'000'000);
  InputPace::Seen seen_;
  InputPace pace_{now_, 0};
};

TEST_F(InputPaceTest, ARateIsReportedSoonAndOnceMore) {
  const auto news = Pass(absl::Seconds(2), kRate);
  ASSERT_EQ(news.size(), 2u);
  EXPECT_EQ(news[0].window, 2 * kTick);
  EXPECT_NEAR(news[0].bytes_per_second, kRate, 1);
  EXPECT_EQ(news[1].silent, absl::ZeroDuration());
}

TEST_F(InputPaceTest, ASilenceIsReportedWithTheRateBeforeIt) {
  Pass(absl::Milliseconds(200), kRate);
  const auto news = Pass(absl::Milliseconds(70), 0);
  ASSERT_EQ(news.size(), 2u) << "and once more";
  for (const InputPace::News& one : news) {
    EXPECT_GE(one.silent, absl::Milliseconds(30));
    EXPECT_NEAR(one.bytes_per_second, kRate, 1);
  }
  EXPECT_GE(news[1].silent, news[0].silent + kTick / 2);
}

TEST_F(InputPaceTest, TheEndOfASilenceIsReportedOnce) {
  Pass(absl::Milliseconds(200), kRate);
  ASSERT_FALSE(Pass(absl::Milliseconds(70), 0).empty());
  const auto news = Pass(absl::Milliseconds(25), kRate);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].window, absl::ZeroDuration());
  EXPECT_EQ(news[0].silent, absl::ZeroDuration());
  EXPECT_FALSE(pace_.End(now_, seen_.present).has_value());
}

TEST_F(InputPaceTest, ThePullsEndIsTheEndOfItsSilence) {
  Pass(absl::Milliseconds(200), kRate);
  EXPECT_FALSE(pace_.End(now_, seen_.present).has_value()) << "there was none";
  ASSERT_FALSE(Pass(absl::Milliseconds(70), 0).empty());
  EXPECT_TRUE(pace_.End(now_, seen_.present).has_value());
}

TEST_F(InputPaceTest, ARateThatRisesAgainIsReportedOnce) {
  Pass(absl::Milliseconds(200), kRate);
  ASSERT_EQ(Pass(absl::Milliseconds(100), kRate / 10).size(), 1u) << "it has fallen";
  const auto news = Pass(absl::Seconds(2), kRate);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].window, 2 * kTick) << "of which the first half was slow";
  EXPECT_NEAR(news[0].bytes_per_second, 0.55 * kRate, 1);
}

// The shard takes a low rate to last: at no look have more than twice as many bytes come.
TEST_F(InputPaceTest, AReportedRateHoldsUntilTheNextReport) {
  Instant reported_at = now_;
  double rate = 0;
  uint64_t then = 0;
  for (int i = 0; i < 200; ++i) {
    const double real = i % 37 < 12 ? kRate / 20 : kRate * (i % 5) / 4;
    for (const InputPace::News& one : Pass(kTick, real)) {
      rate = one.window > absl::ZeroDuration() ? one.bytes_per_second : 0;
      reported_at = now_;
      then = seen_.present;
    }
    if (rate == 0 || now_ - reported_at < 2 * kTick) continue;
    EXPECT_LE(static_cast<double>(seen_.present - then),
              2 * rate * absl::ToDoubleSeconds(now_ - reported_at) + 1);
  }
}

TEST_F(InputPaceTest, ThePullsEndIsTheEndOfALowRateThatRoseJustBefore) {
  Pass(absl::Milliseconds(200), kRate);
  ASSERT_EQ(Pass(absl::Milliseconds(60), kRate / 10).size(), 1u);
  EXPECT_FALSE(pace_.End(now_, seen_.present).has_value()) << "it lasts";
  EXPECT_TRUE(pace_.End(now_ + kTick, seen_.present + 2'000'000).has_value());
}

TEST_F(InputPaceTest, AFirstConnectionIsNoSilence) {
  EXPECT_TRUE(Pass(absl::Seconds(2), 0, /*handed_on=*/false).empty());
}

TEST_F(InputPaceTest, AFoldThatHasHandedOnBytesSaysThatItWaits) {
  const auto news = Pass(absl::Seconds(2), 0);
  ASSERT_FALSE(news.empty());
  EXPECT_LE(news.size(), 5u) << "ever more seldom";
  for (const InputPace::News& one : news) {
    EXPECT_GE(one.silent, InputPace::kLeastWait);
    EXPECT_EQ(one.bytes_per_second, 0) << "which is no proof against the sender";
  }
}

}  // namespace
}  // namespace phalanx::collectives
