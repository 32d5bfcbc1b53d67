#include "src/net/push/push_source.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/plane_objects.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using testing::ByteAt;
using testing::EmptyBuffer;
using testing::Grow;
using testing::WholeBuffer;

class PushSourceTest : public ::testing::Test {
 protected:
  ~PushSourceTest() override {
    source_.Release();
    process_.reset();
  }

  Instant now() const { return scheduler_.now(); }
  // Cuts the next segment, of at most `most` bytes: "slice:offset+bytes", or "" if there is none.
  std::string Cut(uint64_t most) {
    const uint64_t available = source_.SelectSlice(now());
    if (available == 0) return "";
    const PushSource::Segment segment = source_.Cut(std::min(available, most));
    const FrameHeader& header = segment.header;
    const uint64_t begin = source_.buffer().layout().Begin(header.slice) + header.offset;
    EXPECT_EQ(header.payload_bytes, segment.payload.size());
    for (size_t i = 0; i < segment.payload.size(); ++i) {
      EXPECT_EQ(segment.payload[i], ByteAt(begin + i));
    }
    flags_ = header.flags;
    starved_ = DecodeStarvedBefore(header.starved);
    check_ = header.payload_check == FrameCheck({segment.payload.data(), segment.payload.size()});
    return absl::StrCat(header.slice, ":", header.offset, "+", header.payload_bytes);
  }
  void Await() {
    source_.AwaitBytes(now(), loop_, [this] { ++woken_; });
  }
  void RunFor(absl::Duration time) { scheduler_.RunFor(time); }

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_ = scheduler_.NewProcess("p");
  sim::SimExecutor& loop_ = process_->NewExecutor("loop");
  // 1000 bytes in two slices: 512 and 488.
  std::shared_ptr<TransferBuffer> partial_ = EmptyBuffer(1000, 2);
  PushSource source_;
  // Of the last segment.
  uint8_t flags_ = 0;
  absl::Duration starved_;
  bool check_ = false;
  int woken_ = 0;
};

TEST_F(PushSourceTest, SlicesTakeTurnsUntilEverythingIsSent) {
  PHALANX_ASSERT_OK(source_.Begin({WholeBuffer(1000, 2), nullptr}, {{0, 0}, {1, 400}}, false));
  EXPECT_EQ(Cut(300), "0:0+300");
  EXPECT_EQ(Cut(80), "1:400+80");
  EXPECT_EQ(Cut(300), "0:300+212");
  EXPECT_FALSE(source_.all_sent());
  EXPECT_EQ(Cut(300), "1:480+8");
  EXPECT_TRUE(source_.all_sent());
  EXPECT_EQ(Cut(300), "");
  EXPECT_EQ(flags_, 0);
}

TEST_F(PushSourceTest, OffersOnlyBytesBelowTheWatermark) {
  PHALANX_ASSERT_OK(source_.Begin({partial_, nullptr}, {{0, 0}, {1, 100}}, false));
  // The receiver is ahead of this node in slice 1.
  Grow(*partial_, 1, 99);
  EXPECT_EQ(Cut(300), "");
  Grow(*partial_, 1, 101);
  EXPECT_EQ(Cut(300), "1:100+1");
  Grow(*partial_, 0, 10);
  EXPECT_EQ(Cut(300), "0:0+10");
}

TEST_F(PushSourceTest, RejectsARequestBeyondTheObjectAndHoldsItsGrant) {
  EXPECT_THAT(source_.Begin({partial_, nullptr}, {{0, 0}, {2, 0}}, false),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Cut(300), "");
  EXPECT_EQ(source_.Release().from, partial_);
  EXPECT_THAT(source_.Begin({partial_, nullptr}, {{0, 513}}, false),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(PushSourceTest, SegmentsHaveChecksumsIfRequested) {
  PHALANX_ASSERT_OK(source_.Begin({WholeBuffer(1000, 2), nullptr}, {{0, 0}}, true));
  EXPECT_EQ(Cut(512), "0:0+512");
  EXPECT_EQ(flags_, kSegmentChecked);
  EXPECT_TRUE(check_);
}

TEST_F(PushSourceTest, CountsTheTimeStarvedAndPutsItIntoTheNextSegment) {
  PHALANX_ASSERT_OK(source_.Begin({partial_, nullptr}, {{0, 0}}, false));
  Await();
  EXPECT_TRUE(source_.starved());
  RunFor(absl::Milliseconds(2));
  EXPECT_EQ(source_.StarvedTime(now()), absl::Milliseconds(2));
  Grow(*partial_, 0, 10);
  EXPECT_EQ(Cut(5), "0:0+5");
  EXPECT_EQ(starved_, absl::Milliseconds(2));
  EXPECT_FALSE(source_.starved());
  RunFor(absl::Milliseconds(30));
  EXPECT_EQ(source_.StarvedTime(now()), absl::Milliseconds(2));
  EXPECT_EQ(Cut(5), "0:5+5");
  EXPECT_EQ(starved_, absl::ZeroDuration());
}

TEST_F(PushSourceTest, WakesOnceWhenAnUnfinishedSliceHasBytes) {
  PHALANX_ASSERT_OK(source_.Begin({partial_, nullptr}, {{0, 0}, {1, 100}}, false));
  Await();
  Await();
  Grow(*partial_, 1, 100);
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(woken_, 0) << "the receiver has these bytes";
  Grow(*partial_, 1, 101);
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(woken_, 1);
  EXPECT_EQ(Cut(300), "1:100+1");
  Await();
  partial_->Close(absl::OkStatus());
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(woken_, 2);
}

TEST_F(PushSourceTest, CallsNothingAfterReleaseAndTheNextPushStartsFresh) {
  PHALANX_ASSERT_OK(source_.Begin({partial_, nullptr}, {{0, 0}}, false));
  Await();
  RunFor(absl::Milliseconds(10));
  source_.StopWaiting(now());
  EXPECT_FALSE(source_.starved());
  EXPECT_EQ(source_.Release().from, partial_);
  EXPECT_EQ(source_.Release().from, nullptr);
  Grow(*partial_, 0, 10);
  RunFor(absl::Milliseconds(1));
  EXPECT_EQ(woken_, 0);
  PHALANX_ASSERT_OK(source_.Begin({partial_, nullptr}, {{0, 0}}, false));
  EXPECT_EQ(source_.StarvedTime(now()), absl::ZeroDuration());
  EXPECT_EQ(Cut(300), "0:0+10");
  EXPECT_EQ(starved_, absl::ZeroDuration());
}

}  // namespace
}  // namespace phalanx::net
