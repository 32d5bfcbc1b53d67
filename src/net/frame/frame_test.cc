#include "src/net/frame/frame.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

FrameHeader Segment() {
  FrameHeader header;
  header.type = FrameType::kSegment;
  header.slice = 3;
  header.starved = 2;
  header.pull = 7;
  header.payload_bytes = 65536;
  header.offset = uint64_t{1} << 40;
  return header;
}

absl::string_view View(const FrameHeaderBytes& bytes) { return {bytes.data(), bytes.size()}; }

OpenPayload Open() {
  OpenPayload open;
  open.sender = {1, 2};
  open.object = ObjectId::FromName("test", "frame");
  open.generation = {{3, 4}, 5};
  open.sign_of_life = absl::Milliseconds(125);
  open.wants = {{0, 0}, {5, 4096}, {63, kMaxObjectBytes}};
  return open;
}

TEST(Frame, AHeaderSurvivesTheWire) {
  EXPECT_THAT(DecodeFrameHeader(View(EncodeFrameHeader(Segment()))), IsOkAndHolds(Segment()));
}

TEST(Frame, AHeaderIsLittleEndianAndThirtyTwoBytesLong) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(Segment());
  EXPECT_EQ(std::string(bytes.data(), 24),
            std::string("PXF1\x03\x00\x03\x02\x07\x00\x00\x00\x00\x00\x01\x00"
                        "\x00\x00\x00\x00\x00\x01\x00\x00",
                        24));
}

TEST(Frame, EverySingleFlippedBitOfAHeaderIsDetected) {
  const FrameHeaderBytes good = EncodeFrameHeader(Segment());
  for (size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    FrameHeaderBytes bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(DecodeFrameHeader(View(bad)), StatusIs(absl::StatusCode::kInvalidArgument)) << bit;
  }
}

TEST(Frame, AHeaderOfAnotherLengthIsRefused) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(Segment());
  EXPECT_THAT(DecodeFrameHeader(View(bytes).substr(1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeFrameHeader(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Well-formed, but not allowed.
struct Forbidden {
  const char* reason;
  void (*change)(FrameHeader&);
};
class ForbiddenHeader : public ::testing::TestWithParam<Forbidden> {};

TEST_P(ForbiddenHeader, IsRefused) {
  FrameHeader header = Segment();
  GetParam().change(header);
  EXPECT_THAT(DecodeFrameHeader(View(EncodeFrameHeader(header))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("malformed frame")))
      << GetParam().reason;
}

INSTANTIATE_TEST_SUITE_P(
    Frame, ForbiddenHeader,
    ::testing::Values(
        Forbidden{"type 0", [](FrameHeader& h) { h.type = static_cast<FrameType>(0); }},
        Forbidden{"type 10",
                  [](FrameHeader& h) { h = ControlHeader(static_cast<FrameType>(10), 1, ""); }},
        Forbidden{"flag", [](FrameHeader& h) { h.flags = 2; }},
        Forbidden{"slice", [](FrameHeader& h) { h.slice = kMaxSlices; }},
        Forbidden{"pull", [](FrameHeader& h) { h.pull = 0; }},
        Forbidden{"empty", [](FrameHeader& h) { h.payload_bytes = 0; }},
        Forbidden{"huge", [](FrameHeader& h) { h.payload_bytes = kMaxSegmentBytes + 1; }},
        Forbidden{"endless", [](FrameHeader& h) { h.payload_bytes = 0xffffffff; }},
        Forbidden{"far", [](FrameHeader& h) { h.offset = kMaxObjectBytes + 1; }},
        Forbidden{"farthest", [](FrameHeader& h) { h.offset = ~uint64_t{0}; }},
        Forbidden{"check without flag", [](FrameHeader& h) { h.payload_check = 1; }},
        Forbidden{"control with slice", [](FrameHeader& h) { h.type = FrameType::kEnded; }},
        Forbidden{"control after a starved time",
                  [](FrameHeader& h) {
                    h = ControlHeader(FrameType::kEnded, 1, "");
                    h.starved = 1;
                  }},
        Forbidden{"long control",
                  [](FrameHeader& h) {
                    h = ControlHeader(FrameType::kOpen, 1, "");
                    h.payload_bytes = kMaxControlBytes + 1;
                  }},
        Forbidden{"flag of a control frame",
                  [](FrameHeader& h) { h = ControlHeader(FrameType::kStarved, 1, "", 1); }}));

TEST(Frame, TheTimeStarvedBeforeASegmentIsRoundedUp) {
  const auto decoded = [](absl::Duration time) {
    return DecodeStarvedBefore(EncodeStarvedBefore(time));
  };
  EXPECT_EQ(decoded(absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(decoded(absl::Nanoseconds(1)), kStarvedUnit);
  EXPECT_EQ(decoded(254 * kStarvedUnit), 254 * kStarvedUnit);
  EXPECT_EQ(decoded(254 * kStarvedUnit + absl::Nanoseconds(1)), absl::InfiniteDuration());
  EXPECT_EQ(decoded(absl::Hours(1)), absl::InfiniteDuration());
}

TEST(Frame, AnOpenSurvivesTheWire) {
  EXPECT_THAT(DecodeOpen(EncodePayload(Open())), IsOkAndHolds(Open()));
}

TEST(Frame, AnOpenOfAllSlicesFitsAControlPayload) {
  OpenPayload open = Open();
  open.wants.clear();
  for (int i = 0; i < kMaxSlices; ++i) open.wants.push_back({static_cast<uint8_t>(i), 1});
  EXPECT_LE(EncodePayload(open).size(), kMaxControlBytes);
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), IsOkAndHolds(open));
}

TEST(Frame, AnOpenWithoutSlicesIsRefused) {
  OpenPayload open = Open();
  open.wants.clear();
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, AnOpenThatNamesASliceTwiceIsRefused) {
  OpenPayload open = Open();
  open.wants = {{1, 0}, {1, 0}};
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, AnOpenOfASliceOrAnOffsetBeyondTheLimitsIsRefused) {
  OpenPayload open = Open();
  open.wants = {{kMaxSlices, 0}};
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
  open.wants = {{0, kMaxObjectBytes + 1}};
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, AnOpenOfTheNilIdOrOfNoGenerationIsRefused) {
  OpenPayload open = Open();
  open.object = ObjectId();
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
  open = Open();
  open.generation.sequence = 0;
  EXPECT_THAT(DecodeOpen(EncodePayload(open)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, EveryPrefixOfAnOpenIsRefused) {
  const std::string whole = EncodePayload(Open());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(DecodeOpen(absl::string_view(whole).substr(0, size)),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(DecodeOpen(whole + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, AnAcceptSurvivesTheWire) {
  const AcceptPayload accept{{{3, 4}, 5}, kMaxObjectBytes, kMaxSlices};
  EXPECT_THAT(DecodeAccept(EncodePayload(accept)), IsOkAndHolds(accept));
}

TEST(Frame, AnAcceptBeyondTheLimitsIsRefused) {
  const Generation generation{{3, 4}, 5};
  EXPECT_THAT(DecodeAccept(EncodePayload(AcceptPayload{generation, kMaxObjectBytes + 1, 1})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeAccept(EncodePayload(AcceptPayload{generation, 1, kMaxSlices + 1})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeAccept(EncodePayload(AcceptPayload{generation, 1, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, TheTimeStarvedSurvivesTheWire) {
  const absl::StatusOr<StarvedPayload> starved =
      DecodeStarved(EncodePayload(StarvedPayload{absl::Microseconds(1234567)}));
  ASSERT_THAT(starved, ::phalanx::testing::IsOk());
  EXPECT_EQ(starved->total, absl::Microseconds(1234567));
  EXPECT_THAT(DecodeStarved(std::string(8, '\xff')), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Frame, AReasonSurvivesTheWireAndIsCut) {
  absl::Status reason;
  PHALANX_ASSERT_OK(DecodeAborted(EncodePayload(absl::AbortedError("deleted")), reason));
  EXPECT_THAT(reason, StatusIs(absl::StatusCode::kAborted, "deleted"));
  PHALANX_ASSERT_OK(
      DecodeAborted(EncodePayload(absl::NotFoundError(std::string(5000, 'x'))), reason));
  EXPECT_THAT(reason, StatusIs(absl::StatusCode::kNotFound, std::string(kMaxAbortTextBytes, 'x')));
}

TEST(Frame, AnUnknownReasonBecomesUnknown) {
  absl::Status reason;
  PHALANX_ASSERT_OK(DecodeAborted(EncodePayload(absl::OkStatus()), reason));
  EXPECT_THAT(reason, StatusIs(absl::StatusCode::kUnknown));
}

TEST(Frame, RandomBytesAreNeverAPayload) {
  const uint64_t seed = ::phalanx::testing::TestSeed(11);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  absl::Status reason;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random.Below(200), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Next());
    // A decoded value is within the limits, and nothing crashes.
    const absl::StatusOr<OpenPayload> open = DecodeOpen(bytes);
    if (open.ok()) {
      EXPECT_LE(open->wants.size(), static_cast<size_t>(kMaxSlices));
    }
    const absl::StatusOr<AcceptPayload> accept = DecodeAccept(bytes);
    if (accept.ok()) {
      EXPECT_LE(accept->object_bytes, kMaxObjectBytes);
    }
    if (DecodeAborted(bytes, reason).ok()) {
      EXPECT_FALSE(reason.ok());
    }
    EXPECT_THAT(DecodeFrameHeader(bytes), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace phalanx::net
