#include "src/net/frame/frame_reader.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;

// Records its calls. Stores segments in `object` at their offset, regardless of their slice.
class Recorder : public FrameSink {
 public:
  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override {
    if (throw_away) return absl::Span<char>();
    if (header.offset + header.payload_bytes > object.size()) {
      return absl::OutOfRangeError("outside the object");
    }
    return absl::MakeSpan(object).subspan(header.offset, header.payload_bytes);
  }
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override {
    EXPECT_GT(arrived, last_arrived);
    last_arrived = arrived == header.payload_bytes ? 0 : arrived;
    if (arrived == header.payload_bytes) {
      events.push_back(absl::StrCat("segment ", header.offset, "+", arrived));
    }
    return absl::OkStatus();
  }
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override {
    events.push_back(absl::StrCat(FrameTypeName(header.type), " ", payload));
    return absl::OkStatus();
  }

  std::vector<char> object = std::vector<char>(300, '.');
  std::vector<std::string> events;
  size_t last_arrived = 0;
  bool throw_away = false;
};

std::string Frame(const FrameHeader& header, absl::string_view payload) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(header);
  return absl::StrCat(absl::string_view(bytes.data(), bytes.size()), payload);
}
std::string Control(FrameType type, absl::string_view payload) {
  return Frame(ControlHeader(type, 1, payload), payload);
}
std::string Segment(uint64_t offset, size_t size) {
  FrameHeader header;
  header.type = FrameType::kSegment;
  header.pull = 1;
  header.offset = offset;
  header.payload_bytes = static_cast<uint32_t>(size);
  std::string payload;
  for (size_t i = 0; i < size; ++i) payload.push_back(static_cast<char>(offset + i));
  return Frame(header, payload);
}
std::string Conversation() {
  return absl::StrCat(Control(FrameType::kAccept, "hello"), Segment(0, 100), Segment(100, 1),
                      Control(FrameType::kWaiting, ""), Segment(101, 199),
                      Control(FrameType::kEnded, "bye"));
}
const auto kExpectedEvents = ElementsAre("ACCEPT hello", "segment 0+100", "segment 100+1",
                                         "WAITING ", "segment 101+199", "ENDED bye");

class FrameReaderTest : public ::testing::Test {
 protected:
  void ExpectWholeObject() {
    for (size_t i = 0; i < sink_.object.size(); ++i) {
      ASSERT_EQ(sink_.object[i], static_cast<char>(i)) << "byte " << i;
    }
  }

  Recorder sink_;
  std::vector<char> scratch_ = std::vector<char>(16);
  FrameReader reader_{sink_, absl::MakeSpan(scratch_)};
};

TEST_F(FrameReaderTest, CutsAConversationFedAtOnce) {
  PHALANX_ASSERT_OK(reader_.Feed(Conversation()));
  EXPECT_THAT(sink_.events, kExpectedEvents);
  ExpectWholeObject();
  EXPECT_TRUE(reader_.between_frames());
}

TEST_F(FrameReaderTest, CutsAConversationFedByteByByte) {
  for (const char byte : Conversation()) {
    PHALANX_ASSERT_OK(reader_.Feed(absl::string_view(&byte, 1)));
  }
  EXPECT_THAT(sink_.events, kExpectedEvents);
  ExpectWholeObject();
}

TEST_F(FrameReaderTest, CutsAConversationAtRandomPointsAlike) {
  const uint64_t seed = ::phalanx::testing::TestSeed(5);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (int round = 0; round < 500; ++round) {
    sink_.events.clear();
    const std::string whole = Conversation();
    absl::string_view rest = whole;
    while (!rest.empty()) {
      const size_t part = 1 + random.Below(std::min<size_t>(rest.size(), 64));
      PHALANX_ASSERT_OK(reader_.Feed(rest.substr(0, part)));
      rest.remove_prefix(part);
    }
    ASSERT_THAT(sink_.events, kExpectedEvents);
  }
  ExpectWholeObject();
}

TEST_F(FrameReaderTest, ReadsAPayloadAndTheNextHeaderInOneRead) {
  const std::string stream = Segment(0, 100);
  PHALANX_ASSERT_OK(reader_.Feed(absl::string_view(stream).substr(0, kFrameHeaderBytes)));
  const absl::Span<const iovec> buffers = reader_.ReadBuffers();
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0].iov_base, sink_.object.data());
  EXPECT_EQ(buffers[0].iov_len, 100u);
  EXPECT_EQ(buffers[1].iov_len, kFrameHeaderBytes);
}

TEST_F(FrameReaderTest, DiscardsPayloadsThatTheSinkDoesNotWant) {
  sink_.throw_away = true;
  PHALANX_ASSERT_OK(reader_.Feed(Conversation()));
  EXPECT_THAT(sink_.events, ElementsAre("ACCEPT hello", "WAITING ", "ENDED bye"));
  EXPECT_EQ(sink_.object, std::vector<char>(300, '.'));
  EXPECT_EQ(reader_.bytes_discarded(), 300u);
}

TEST_F(FrameReaderTest, StoresNothingAfterDiscard) {
  const std::string stream = Segment(0, 100) + Control(FrameType::kEnded, "bye");
  PHALANX_ASSERT_OK(reader_.Feed(absl::string_view(stream).substr(0, kFrameHeaderBytes + 40)));
  reader_.Discard();
  PHALANX_ASSERT_OK(reader_.Feed(absl::string_view(stream).substr(kFrameHeaderBytes + 40)));
  EXPECT_EQ(sink_.object[39], 39);
  EXPECT_EQ(sink_.object[40], '.');
  EXPECT_EQ(reader_.bytes_discarded(), 60u);
  EXPECT_THAT(sink_.events, ElementsAre("ENDED bye"));
}

TEST_F(FrameReaderTest, RefusesAControlPayloadWithAFlippedBit) {
  std::string stream = Control(FrameType::kEnded, "bye");
  stream.back() ^= 1;
  EXPECT_THAT(reader_.Feed(stream), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(sink_.events.empty());
}

TEST_F(FrameReaderTest, RefusesGarbage) {
  EXPECT_THAT(reader_.Feed(std::string(kFrameHeaderBytes, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FrameReaderTest, ReturnsTheErrorOfTheSink) {
  EXPECT_THAT(reader_.Feed(Segment(250, 100)), StatusIs(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace phalanx::net
