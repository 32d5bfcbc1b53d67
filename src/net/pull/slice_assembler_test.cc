#include "src/net/pull/slice_assembler.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/plane_objects.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using testing::ByteAt;
using ::testing::ElementsAre;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Grow;
using ::testing::HasSubstr;

class SliceAssemblerTest : public ::testing::Test {
 protected:
  static FrameHeader Segment(int slice, uint64_t offset, uint32_t bytes) {
    FrameHeader header;
    header.type = FrameType::kSegment;
    header.slice = static_cast<uint8_t>(slice);
    header.offset = offset;
    header.payload_bytes = bytes;
    return header;
  }
  // Fills the first `bytes` bytes of the segment's place.
  void Fill(const FrameHeader& header, size_t bytes) {
    const auto place = assembler_.Place(header);
    PHALANX_ASSERT_OK(place);
    ASSERT_EQ(place->size(), header.payload_bytes);
    const uint64_t begin = into_->layout().Begin(header.slice) + header.offset;
    for (size_t i = 0; i < bytes; ++i) (*place)[i] = ByteAt(begin + i);
  }
  void Add(const FrameHeader& header) {
    Fill(header, header.payload_bytes);
    PHALANX_EXPECT_OK(assembler_.Arrived(header, header.payload_bytes));
  }
  void ExpectRejected(const FrameHeader& header, const std::string& text) {
    EXPECT_THAT(assembler_.Place(header).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }

  DataPlaneCounters counters_;
  // 1000 bytes in two slices: 512 and 488.
  std::shared_ptr<TransferBuffer> into_ = EmptyBuffer(1000, 2);
  SliceAssembler assembler_{into_, 0b11, false, counters_};
};

TEST_F(SliceAssemblerTest, RequestsTheMissingPartsOfTheRequestedSlices) {
  Grow(*into_, 0, 512);
  Grow(*into_, 1, 100);
  EXPECT_THAT(assembler_.Begin(), ElementsAre(OpenPayload::Want{1, 100}));
  SliceAssembler first(EmptyBuffer(1000, 2), 0b01, false, counters_);
  EXPECT_THAT(first.Begin(), ElementsAre(OpenPayload::Want{0, 0}));
}

TEST_F(SliceAssemblerTest, IsFullAfterTheLastByteOfEverySlice) {
  assembler_.Begin();
  Add(Segment(0, 0, 500));
  Add(Segment(1, 0, 488));
  EXPECT_FALSE(assembler_.full());
  Add(Segment(0, 500, 12));
  EXPECT_TRUE(assembler_.full());
  EXPECT_TRUE(assembler_.BufferHasAll());
  EXPECT_EQ(assembler_.bytes_published(), 1000u);
  EXPECT_EQ(counters_.bytes_received, 1000u);
  EXPECT_EQ(FirstWrongByte(*into_), std::nullopt);
}

TEST_F(SliceAssemblerTest, PublishesAPartOfASegmentWithoutAChecksum) {
  assembler_.Begin();
  const FrameHeader header = Segment(0, 0, 500);
  Fill(header, 500);
  PHALANX_EXPECT_OK(assembler_.Arrived(header, 200));
  EXPECT_EQ(into_->watermark(0), 200u);
  PHALANX_EXPECT_OK(assembler_.Arrived(header, 500));
  EXPECT_EQ(into_->watermark(0), 500u);
}

TEST_F(SliceAssemblerTest, PublishesASegmentWithAChecksumAfterItsCheck) {
  assembler_.Begin();
  FrameHeader header = Segment(0, 0, 4);
  header.flags = kSegmentChecked;
  std::string bytes;
  for (uint64_t i = 0; i < 4; ++i) bytes.push_back(ByteAt(i));
  header.payload_check = FrameCheck(bytes);
  Fill(header, 4);
  PHALANX_EXPECT_OK(assembler_.Arrived(header, 3));
  EXPECT_EQ(into_->watermark(0), 0u);
  PHALANX_EXPECT_OK(assembler_.Arrived(header, 4));
  EXPECT_EQ(into_->watermark(0), 4u);
  header.offset = 4;
  Fill(header, 4);
  EXPECT_THAT(assembler_.Arrived(header, 4), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(into_->watermark(0), 4u);
  EXPECT_EQ(counters_.bytes_wasted, 4u);
}

TEST_F(SliceAssemblerTest, RejectsSegmentsThatDoNotFit) {
  SliceAssembler first(into_, 0b01, false, counters_);
  first.Begin();
  EXPECT_THAT(first.Place(Segment(1, 0, 10)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not requested")));
  assembler_.Begin();
  Add(Segment(0, 0, 100));
  ExpectRejected(Segment(2, 0, 10), "not requested");
  ExpectRejected(Segment(0, 99, 10), "not at the watermark 100");
  ExpectRejected(Segment(0, 101, 10), "not at the watermark 100");
  ExpectRejected(Segment(0, 100, 413), "beyond the end");
  SliceAssembler strict(into_, 0b11, true, counters_);
  strict.Begin();
  EXPECT_THAT(strict.Place(Segment(1, 0, 10)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("checksum")));
}

TEST_F(SliceAssemblerTest, AClosedBufferIsNotFilled) {
  assembler_.Begin();
  Add(Segment(0, 0, 512));
  const FrameHeader last = Segment(1, 0, 488);
  Fill(last, 488);
  into_->Close(absl::AbortedError("deleted"));
  PHALANX_EXPECT_OK(assembler_.Arrived(last, 488));
  EXPECT_TRUE(assembler_.full());
  EXPECT_FALSE(assembler_.BufferHasAll());
  EXPECT_THAT(assembler_.Place(Segment(0, 512, 1)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  SliceAssembler late(into_, 0b10, false, counters_);
  late.Begin();
  EXPECT_THAT(late.Place(Segment(1, 0, 1)).status(), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(SliceAssemblerTest, DetachedItHoldsNoReferenceToTheBuffer) {
  assembler_.Begin();
  EXPECT_EQ(into_.use_count(), 2);
  assembler_.Detach();
  EXPECT_EQ(into_.use_count(), 1);
}

}  // namespace
}  // namespace phalanx::net
