// Fuzzes FrameReader and the payload decoders with any input, cut at any byte.
//
// The first byte selects the mode. If it is even, the rest is the stream. If it is odd, the rest is
// a list of frames whose checks are corrected, so that the fuzzer gets past them. The stream is fed
// twice, at once and in pieces whose lengths are derived from the input. Both runs must give the
// same result.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/net/frame/frame.h"
#include "src/net/frame/frame_reader.h"

namespace phalanx::net {
namespace {

constexpr size_t kObjectBytes = 1 << 16;

class Sink : public FrameSink {
 public:
  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override {
    absl::StrAppend(&events, "segment ", header.slice, ":", header.offset, "+",
                    header.payload_bytes);
    PHALANX_CHECK(header.payload_bytes >= 1 && header.payload_bytes <= kMaxSegmentBytes, "length");
    PHALANX_CHECK(header.slice < kMaxSlices && header.offset <= kMaxObjectBytes, "place");
    if (header.payload_bytes > kObjectBytes) return absl::Span<char>();
    return absl::MakeSpan(object_).subspan(0, header.payload_bytes);
  }
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override {
    PHALANX_CHECK(arrived >= 1 && arrived <= header.payload_bytes, "arrived");
    if (arrived == header.payload_bytes) absl::StrAppend(&events, " whole ");
    return absl::OkStatus();
  }
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override {
    PHALANX_CHECK(payload.size() <= kMaxControlBytes, "control payloads are bounded");
    absl::StrAppend(&events, FrameTypeName(header.type), " ", Decode(payload), " ");
    return absl::OkStatus();
  }

  std::string events;

 private:
  // A decoded frame encodes to the same bytes.
  static std::string Decode(absl::string_view payload) {
    const absl::StatusOr<OpenPayload> open = DecodeOpen(payload);
    if (open.ok()) PHALANX_CHECK(EncodePayload(*open) == payload, "one form");
    const absl::StatusOr<AcceptPayload> accept = DecodeAccept(payload);
    if (accept.ok()) PHALANX_CHECK(EncodePayload(*accept) == payload, "one form");
    const absl::StatusOr<StarvedPayload> starved = DecodeStarved(payload);
    if (starved.ok()) PHALANX_CHECK(EncodePayload(*starved) == payload, "one form");
    absl::Status reason;
    const bool aborted = DecodeAborted(payload, reason).ok();
    if (aborted) PHALANX_CHECK(!reason.ok(), "a reason is an error");
    const absl::StatusOr<LinkPayload> link = DecodeLink(payload);
    if (link.ok()) PHALANX_CHECK(EncodePayload(*link) == payload, "one form");
    return absl::StrCat(open.ok(), accept.ok(), starved.ok(), aborted, link.ok());
  }

  std::vector<char> object_ = std::vector<char>(kObjectBytes);
};

// Builds well-formed frames from (type, flags, slice, pull, length, offset low, offset high,
// payload...).
std::string WithRightChecks(absl::string_view input) {
  constexpr size_t kFields = 7;
  std::string stream;
  while (input.size() >= kFields) {
    const auto field = [&input](size_t i) { return static_cast<uint8_t>(input[i]); };
    FrameHeader header;
    header.type = static_cast<FrameType>(field(0));
    header.flags = field(1);
    header.slice = field(2);
    header.pull = field(3);
    header.offset = field(5) | static_cast<uint64_t>(field(6)) << 40;
    const size_t length = field(4);
    input.remove_prefix(kFields);
    const absl::string_view payload = input.substr(0, length);
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    if (header.type != FrameType::kSegment || (header.flags & kSegmentChecked) != 0) {
      header.payload_check = FrameCheck(payload);
    }
    const FrameHeaderBytes bytes = EncodeFrameHeader(header);
    stream.append(bytes.data(), bytes.size());
    stream.append(payload.data(), payload.size());
    input.remove_prefix(payload.size());
  }
  return stream;
}

std::string FeedWhole(absl::string_view stream) {
  std::vector<char> scratch(100);
  Sink sink;
  FrameReader reader(sink, absl::MakeSpan(scratch));
  const absl::Status status = reader.Feed(stream);
  return sink.events + std::string(status.message());
}

std::string FeedInPieces(absl::string_view stream, uint64_t seed) {
  std::vector<char> scratch(7);
  Sink sink;
  FrameReader reader(sink, absl::MakeSpan(scratch));
  absl::Status status;
  while (status.ok() && !stream.empty()) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const absl::string_view piece = stream.substr(0, 1 + (seed >> 33) % 50);
    status = reader.Feed(piece);
    stream.remove_prefix(piece.size());
  }
  return sink.events + std::string(status.message());
}

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::net;
  if (size == 0) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string stream = data[0] % 2 == 0 ? std::string(input) : WithRightChecks(input);
  const std::string whole = FeedWhole(stream);
  PHALANX_CHECK(whole == FeedInPieces(stream, data[0]), "the pieces give the same frames");
  return 0;
}
