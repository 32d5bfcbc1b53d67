#include "src/net/link/link_outbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_frame.h"

namespace phalanx::net {

void LinkOutbox::Add(LinkService service, absl::string_view header, absl::string_view payload,
                     std::shared_ptr<const void> keep) {
  PHALANX_CHECK(header.size() <= kMaxLinkBodyBytes && payload.size() <= kMaxLinkPayloadBytes,
                "messages are bounded");
  Message& message = messages_.emplace_back();
  message.service = service;
  message.head.reserve(kLinkHeaderBytes + header.size());
  // The header is encoded when it is written, with the newest count of received bytes.
  message.head.resize(kLinkHeaderBytes);
  message.head.append(header.data(), header.size());
  message.payload = payload;
  message.keep = std::move(keep);
  if (message.keep == nullptr) {
    message.copy = std::string(payload);
    message.payload = message.copy;
  }
  message.begin = end_;
  end_ = message.end();
}

absl::Status LinkOutbox::Acknowledge(uint64_t received) {
  if (received > position_) {
    return absl::InvalidArgumentError(absl::StrCat("the peer acknowledges byte ", received, " of ",
                                                   position_, " that were sent"));
  }
  Release(received);
  return absl::OkStatus();
}

// Counts only go up, so one that is behind says nothing new.
void LinkOutbox::Release(uint64_t received) {
  while (!messages_.empty() && messages_.front().end() <= received) {
    begin_ = messages_.front().end();
    messages_.pop_front();
    // next_ is an index from the front, and a released message was written.
    --next_;
  }
}

absl::Status LinkOutbox::Resume(uint64_t received) {
  PHALANX_RETURN_IF_ERROR(Acknowledge(received));
  if (DefectActive(Defect::kLinkResumesAtWritten)) return absl::OkStatus();
  if (received < begin_) {
    return absl::InvalidArgumentError(absl::StrCat("the peer asks for byte ", received,
                                                   ", but has acknowledged ", begin_, " before"));
  }
  // After Release, only the first message can have been received in part.
  if (received > begin_ && received - begin_ < messages_.front().head.size()) {
    return absl::InvalidArgumentError("the peer asks for the middle of a header");
  }
  // After Release the first message is the one in which the peer has stopped.
  next_ = 0;
  position_ = received;
  return absl::OkStatus();
}

void LinkOutbox::Encode(Message& message, uint64_t received) {
  const absl::string_view body = absl::string_view(message.head).substr(kLinkHeaderBytes);
  LinkHeader header;
  header.type = LinkFrameType::kMessage;
  header.service = static_cast<uint8_t>(message.service);
  header.body_bytes = static_cast<uint16_t>(body.size());
  header.payload_bytes = static_cast<uint32_t>(message.payload.size());
  header.body_check = FrameCheck(body);
  header.received = received;
  const LinkHeaderBytes bytes = EncodeLinkHeader(header);
  std::copy(bytes.begin(), bytes.end(), message.head.begin());
}

bool LinkOutbox::Gather(uint64_t received, size_t max_pieces, std::vector<iovec>& pieces) {
  bool reported = false;
  uint64_t at = position_;
  for (size_t i = next_; i < messages_.size() && pieces.size() + 2 <= max_pieces; ++i) {
    Message& message = messages_[i];
    // A frame of which a part is written keeps its header, as it was.
    if (at == message.begin) {
      Encode(message, received);
      reported = true;
    }
    const uint64_t done = at - message.begin;
    if (done < message.head.size()) {
      pieces.push_back({message.head.data() + done, message.head.size() - done});
    }
    const uint64_t skip = done > message.head.size() ? done - message.head.size() : 0;
    if (skip < message.payload.size()) {
      pieces.push_back(
          {const_cast<char*>(message.payload.data()) + skip, message.payload.size() - skip});
    }
    at = message.end();
  }
  return reported;
}

void LinkOutbox::Wrote(size_t bytes) {
  position_ += bytes;
  PHALANX_CHECK(position_ <= end_, "only queued bytes are written");
  while (next_ < messages_.size() && messages_[next_].end() <= position_) ++next_;
}

bool LinkOutbox::between_frames() const {
  return next_ == messages_.size() || position_ == messages_[next_].begin;
}

}  // namespace phalanx::net
