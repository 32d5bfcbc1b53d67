#include "src/net/link/link_writer.h"

#include <algorithm>
#include <utility>

#include "src/net/link/link_frame.h"

namespace phalanx::net {

void LinkWriter::Begin(std::string first, uint64_t received) {
  Reset();
  control_ = std::move(first);
  // LINK or WELCOME begins the connection, also in front of the rest of a frame.
  control_first_ = true;
  told_ = received;
}

void LinkWriter::Reset() {
  open_ = false;
  control_.clear();
  control_first_ = false;
  ack_due_ = false;
}

absl::Span<const iovec> LinkWriter::Gather(uint64_t received) {
  pieces_.clear();
  // If there are messages to write, their headers carry the count.
  if (ack_due_ && control_.empty() && outbox_.all_written()) {
    told_ = received;
    ack_due_ = false;
    control_ = LinkFrame(LinkFrameType::kAck, told_, "");
  }
  if (!control_.empty() && (control_first_ || outbox_.between_frames())) {
    // A part of it can be written now, and then the rest must follow before anything else.
    control_first_ = true;
    pieces_.push_back({control_.data(), control_.size()});
  }
  if (open_ && outbox_.Gather(received, kMaxPieces, pieces_)) {
    told_ = received;
    ack_due_ = false;
  }
  return pieces_;
}

void LinkWriter::Wrote(size_t bytes) {
  if (control_first_) {
    const size_t of_control = std::min(bytes, control_.size());
    control_.erase(0, of_control);
    control_first_ = !control_.empty();
    bytes -= of_control;
  }
  outbox_.Wrote(bytes);
}

}  // namespace phalanx::net
