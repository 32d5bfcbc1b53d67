// Fuzzes LinkInbox and the decoders of the bodies of links with any input, cut at any byte.
//
// The lowest bit of the first byte selects the mode: 0, the rest is the stream; 1, the rest is a
// list of frames whose checks are corrected, so that the fuzzer gets past them. The second bit
// says if a WELCOME comes first. The stream is fed twice, at once and in pieces whose lengths are
// derived from the input, part of them in the place of a payload. Both runs must give the same
// result.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_frame.h"
#include "src/net/link/link_inbox.h"
#include "src/net/link/link_service.h"

namespace phalanx::net {
namespace {

constexpr size_t kPlacedFrom = 16;
constexpr size_t kRefusedFrom = size_t{1} << 17;

class Sink : public LinkInbox::Sink {
 public:
  absl::StatusOr<absl::Span<char>> PlaceFor(LinkService service, absl::string_view header,
                                            size_t payload_bytes) override {
    absl::StrAppend(&events, "place ", static_cast<int>(service), " ", header, " ", payload_bytes,
                    " ");
    PHALANX_CHECK(payload_bytes >= 1 && payload_bytes <= kMaxLinkPayloadBytes, "length");
    if (payload_bytes >= kRefusedFrom) return absl::ResourceExhaustedError("no room");
    if (payload_bytes < kPlacedFrom) return absl::Span<char>();
    place_.resize(payload_bytes);
    return absl::MakeSpan(place_.data(), place_.size());
  }
  absl::Status Message(LinkService service, absl::string_view header,
                       absl::Span<char> payload) override {
    PHALANX_CHECK(header.size() <= kMaxLinkBodyBytes, "headers are bounded");
    absl::StrAppend(&events, "message ", static_cast<int>(service), " ", header, " ",
                    absl::string_view(payload.data(), payload.size()), " ");
    return absl::OkStatus();
  }
  absl::Status Acknowledged(uint64_t received) override {
    absl::StrAppend(&events, "ack ", received, " ");
    return absl::OkStatus();
  }
  absl::Status Welcome(const WelcomeBody& welcome, uint64_t received) override {
    PHALANX_CHECK(*DecodeWelcome(EncodeBody(welcome)) == welcome, "one form");
    absl::StrAppend(&events, "welcome ", static_cast<int>(welcome.verdict), " ", received, " ");
    return absl::OkStatus();
  }
  absl::Status End(const absl::Status& why) override {
    PHALANX_CHECK(!why.ok(), "an end has a reason");
    return why;
  }

  std::string events;

 private:
  std::vector<char> place_;
};

// Builds frames with right checks from (type, service, body length, payload length of two bytes,
// received, then both).
std::string WithRightChecks(absl::string_view input) {
  constexpr size_t kFields = 6;
  std::string stream;
  while (input.size() >= kFields) {
    const auto field = [&input](size_t i) { return static_cast<uint8_t>(input[i]); };
    LinkHeader header;
    header.type = static_cast<LinkFrameType>(field(0));
    header.service = field(1);
    const size_t body_bytes = field(2);
    header.payload_bytes = field(3) | static_cast<uint32_t>(field(4)) << 8;
    header.received = field(5);
    input.remove_prefix(kFields);
    const absl::string_view body = input.substr(0, body_bytes);
    input.remove_prefix(body.size());
    header.body_bytes = static_cast<uint16_t>(body.size());
    header.body_check = FrameCheck(body);
    const LinkHeaderBytes bytes = EncodeLinkHeader(header);
    absl::StrAppend(&stream, absl::string_view(bytes.data(), bytes.size()), body);
    std::string payload(input.substr(0, header.payload_bytes));
    input.remove_prefix(payload.size());
    payload.resize(header.payload_bytes);
    stream += payload;
  }
  return stream;
}

std::string FeedWhole(std::string stream, bool welcome_first) {
  Sink sink;
  LinkInbox inbox(sink);
  inbox.NewConnection(welcome_first);
  const absl::Status status = inbox.Feed(absl::MakeSpan(stream.data(), stream.size()));
  return absl::StrCat(sink.events, inbox.received(), status.message());
}

std::string FeedInPieces(std::string stream, bool welcome_first, uint64_t seed) {
  Sink sink;
  LinkInbox inbox(sink);
  inbox.NewConnection(welcome_first);
  absl::Status status;
  for (size_t at = 0; status.ok() && at < stream.size();) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const size_t piece = std::min<size_t>(stream.size() - at, 1 + (seed >> 33) % 50);
    const absl::Span<char> place = inbox.PayloadPlace();
    const size_t placed = (seed >> 20) % 2 == 0 ? 0 : std::min(piece, place.size());
    if (placed > 0) std::memcpy(place.data(), stream.data() + at, placed);
    status = inbox.Placed(placed);
    if (status.ok())
      status = inbox.Feed(absl::MakeSpan(stream).subspan(at + placed, piece - placed));
    at += piece;
  }
  return absl::StrCat(sink.events, inbox.received(), status.message());
}

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::net;
  if (size == 0) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string stream = data[0] % 2 == 0 ? std::string(input) : WithRightChecks(input);
  const bool welcome_first = (data[0] & 2) != 0;
  const std::string whole = FeedWhole(stream, welcome_first);
  PHALANX_CHECK(whole == FeedInPieces(stream, welcome_first, data[0]),
                "the pieces give the same frames");
  return 0;
}
