#include "src/net/link/link_inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/net/frame/frame.h"

namespace phalanx::net {

void LinkInbox::NewConnection(bool welcome_first) {
  // The peer sends an incomplete header again. A payload goes on where it has stopped.
  head_.clear();
  welcome_first_ = welcome_first;
}

uint64_t LinkInbox::received() const {
  if (DefectActive(Defect::kLinkCountsLate) && !in_payload_) {
    // As if the last message had not arrived.
    const uint64_t last = kLinkHeaderBytes + message_header_.size() + message_.payload_bytes;
    return received_ >= last ? received_ - last : received_;
  }
  return received_;
}

absl::Span<char> LinkInbox::PayloadPlace() {
  // The WELCOME of a new connection comes before the rest of a payload, and must not land in it.
  if (!in_payload_ || welcome_first_) return {};
  return place_.subspan(filled_);
}

absl::Status LinkInbox::Placed(size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  PHALANX_CHECK(in_payload_ && filled_ + bytes <= place_.size(), "bytes of the payload");
  filled_ += bytes;
  received_ += bytes;
  return filled_ == place_.size() ? EndMessage(place_) : absl::OkStatus();
}

absl::Status LinkInbox::Feed(absl::Span<char> bytes) {
  while (!bytes.empty()) {
    PHALANX_ASSIGN_OR_RETURN(const size_t taken,
                             in_payload_ && !welcome_first_ ? FeedPayload(bytes) : FeedHead(bytes));
    bytes.remove_prefix(taken);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> LinkInbox::FeedPayload(absl::Span<char> bytes) {
  if (place_.empty()) {
    // A payload that is complete in the staging block is handed over without a copy.
    if (bytes.size() >= message_.payload_bytes) {
      const absl::Span<char> payload = bytes.subspan(0, message_.payload_bytes);
      received_ += payload.size();
      PHALANX_RETURN_IF_ERROR(EndMessage(payload));
      return payload.size();
    }
    // The next read uses the staging block again, so this part has to be copied.
    unplaced_.resize(message_.payload_bytes);
    place_ = absl::MakeSpan(unplaced_.data(), unplaced_.size());
  }
  const size_t part = std::min(bytes.size(), place_.size() - filled_);
  std::memcpy(place_.data() + filled_, bytes.data(), part);
  PHALANX_RETURN_IF_ERROR(Placed(part));
  return part;
}

absl::StatusOr<size_t> LinkInbox::FeedHead(absl::Span<char> bytes) {
  const absl::string_view input(bytes.data(), bytes.size());
  // A frame that is complete in the input is not copied.
  if (head_.empty() && input.size() >= kLinkHeaderBytes) {
    PHALANX_ASSIGN_OR_RETURN(header_, DecodeLinkHeader(input.substr(0, kLinkHeaderBytes)));
    const size_t size = kLinkHeaderBytes + header_.body_bytes;
    if (input.size() >= size) {
      PHALANX_RETURN_IF_ERROR(Frame(input.substr(kLinkHeaderBytes, header_.body_bytes)));
      return size;
    }
  }
  size_t taken = 0;
  const auto take_until = [&](size_t size) {
    const size_t part = std::min(size - head_.size(), input.size() - taken);
    head_.append(input.data() + taken, part);
    taken += part;
    return head_.size() == size;
  };
  if (head_.size() < kLinkHeaderBytes) {
    if (!take_until(kLinkHeaderBytes)) return taken;
    PHALANX_ASSIGN_OR_RETURN(header_, DecodeLinkHeader(head_));
  }
  if (!take_until(kLinkHeaderBytes + header_.body_bytes)) return taken;
  const std::string head = std::exchange(head_, {});
  PHALANX_RETURN_IF_ERROR(Frame(absl::string_view(head).substr(kLinkHeaderBytes)));
  return taken;
}

absl::Status LinkInbox::Frame(absl::string_view body) {
  if (FrameCheck(body) != header_.body_check) {
    return absl::DataLossError("checksum mismatch in a frame of a link");
  }
  if (welcome_first_ != (header_.type == LinkFrameType::kWelcome)) {
    return absl::InvalidArgumentError("a link begins with one WELCOME");
  }
  if (header_.type == LinkFrameType::kWelcome) {
    welcome_first_ = false;
    PHALANX_ASSIGN_OR_RETURN(const WelcomeBody welcome, DecodeWelcome(body));
    return sink_.Welcome(welcome, header_.received);
  }
  // Before the contents, so that the receiver of a message finds room in the outbox.
  PHALANX_RETURN_IF_ERROR(sink_.Acknowledged(header_.received));
  if (header_.type == LinkFrameType::kMessage) return BeginMessage(body);
  if (header_.type == LinkFrameType::kAck) return absl::OkStatus();
  absl::Status why;
  PHALANX_RETURN_IF_ERROR(DecodeEnd(body, why));
  return sink_.End(why);
}

absl::Status LinkInbox::BeginMessage(absl::string_view body) {
  message_ = header_;
  // Counted only when the whole header is here: one that arrives in part comes again.
  received_ += kLinkHeaderBytes + body.size();
  message_header_.assign(body.data(), body.size());
  in_payload_ = true;
  filled_ = 0;
  place_ = {};
  const size_t size = message_.payload_bytes;
  if (size == 0) return EndMessage({});
  PHALANX_ASSIGN_OR_RETURN(
      place_, sink_.PlaceFor(static_cast<LinkService>(message_.service), message_header_, size));
  PHALANX_CHECK(place_.empty() || place_.size() == size, "a place is as large as its payload");
  if (place_.empty() && size > kMaxUnplacedBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no place for a message of ", size, " bytes over a link"));
  }
  return absl::OkStatus();
}

absl::Status LinkInbox::EndMessage(absl::Span<char> payload) {
  in_payload_ = false;
  place_ = {};
  return sink_.Message(static_cast<LinkService>(message_.service), message_header_, payload);
}

}  // namespace phalanx::net
