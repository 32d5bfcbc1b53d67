#include "src/directory/pulls/failed_pairs.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

using absl::StatusCode;

constexpr absl::Duration kLease = absl::Seconds(2);
const NodeKey kA{1, 1};
const NodeKey kB{2, 1};

class FailedPairsTest : public ::testing::Test {
 protected:
  void Fail(StatusCode code) { pairs_.Remember(kA, kB, code, now_); }
  bool Cut() const { return pairs_.Cut(kA, kB, now_); }
  bool Avoided() const { return pairs_.Find(kA, kB, now_).avoided; }
  void Pass(absl::Duration time) {
    now_ = now_ + time;
    pairs_.Tick(now_);
  }

  FailedPairs pairs_{kLease};
  Instant now_;
};

// A shard without work does not tick.
TEST_F(FailedPairsTest, AnOldFailureCountsForNothingBeforeATick) {
  Fail(StatusCode::kDeadlineExceeded);
  Fail(StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pairs_.Failures(kA, kB, now_), 2);
  EXPECT_EQ(pairs_.TakeNewCuts().size(), 1u);
  now_ = now_ + kLease;
  EXPECT_EQ(pairs_.Failures(kA, kB, now_), 0);
  Fail(StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pairs_.Failures(kA, kB, now_), 1) << "a row of its own";
  EXPECT_EQ(pairs_.TakeNewCuts().size(), 1u) << "the cut is news again";
}

TEST_F(FailedPairsTest, ATimeoutIsACutForALease) {
  Fail(StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Cut());
  EXPECT_FALSE(pairs_.Cut(kB, kA, now_)) << "the other direction can be fine";
  Pass(kLease - absl::Milliseconds(1));
  EXPECT_TRUE(Cut());
  Pass(absl::Milliseconds(1));
  EXPECT_FALSE(Cut());
  EXPECT_TRUE(pairs_.empty());
}

TEST_F(FailedPairsTest, OneBrokenConnectionIsAvoidedAndTwoAreACut) {
  Fail(StatusCode::kUnavailable);
  EXPECT_TRUE(Avoided());
  EXPECT_FALSE(Cut());
  Fail(StatusCode::kUnavailable);
  EXPECT_TRUE(Cut());
}

TEST_F(FailedPairsTest, ASenderThatAnswersInBetweenIsNotCut) {
  Fail(StatusCode::kUnavailable);
  Pass(absl::Seconds(1));
  Fail(StatusCode::kNotFound);
  Fail(StatusCode::kUnavailable);
  EXPECT_FALSE(Cut());
}

TEST_F(FailedPairsTest, ABusySenderIsAvoidedForAPauseThatDoubles) {
  Fail(StatusCode::kResourceExhausted);
  Pass(absl::Milliseconds(10));
  EXPECT_FALSE(Avoided());
  Fail(StatusCode::kResourceExhausted);
  Pass(absl::Milliseconds(10));
  EXPECT_TRUE(Avoided());
  EXPECT_EQ(pairs_.Failures(kA, kB, now_), 2);
  Pass(absl::Milliseconds(10));
  EXPECT_FALSE(Avoided());
  EXPECT_FALSE(Cut());
}

TEST_F(FailedPairsTest, AForgottenPairIsLikeNew) {
  Fail(StatusCode::kDeadlineExceeded);
  pairs_.Forget(kA, kB);
  EXPECT_FALSE(Cut());
  EXPECT_EQ(pairs_.Failures(kA, kB, now_), 0);
}

}  // namespace
}  // namespace phalanx::directory
