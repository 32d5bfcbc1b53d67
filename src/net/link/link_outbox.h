// LinkOutbox: the messages to one peer, until they are acknowledged. Pure.
//
// The frames of all messages of a session form one sequence of bytes. The outbox keeps those that
// the peer has not acknowledged, and knows the next byte to write:
//
//      acknowledged      written, kept      not written
//   ─────────────────┬──────────────────┬───────────────┤ end
//                 released          position
//
// A new connection goes on at the byte that the peer expects, in the middle of a payload too.
//
// Owned by a Link; one loop.
#ifndef PHALANX_NET_LINK_LINK_OUTBOX_H_
#define PHALANX_NET_LINK_LINK_OUTBOX_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/net/link/link_service.h"

namespace phalanx::net {

class LinkOutbox {
 public:
  // Adds a message at the end. If `keep` is null, copies the payload.
  // REQUIRES: the lengths are within the limits of link_frame.h.
  void Add(LinkService service, absl::string_view header, absl::string_view payload,
           std::shared_ptr<const void> keep);

  // The peer has received so many bytes of the sequence: releases the messages up to there. Returns
  // InvalidArgument for bytes that were not written.
  absl::Status Acknowledge(uint64_t received);
  // The same over a new connection, over which writing goes on there. Also InvalidArgument if the
  // byte was released already, or is in the middle of a frame's header.
  absl::Status Resume(uint64_t received);

  // Appends the next bytes to write to `pieces`: at most `max_pieces` pieces. Headers that are made
  // now report to the peer that `received` bytes of its messages have arrived. They stay valid
  // until the next call of a method that is not const. Returns true if such a header is among them.
  bool Gather(uint64_t received, size_t max_pieces, std::vector<iovec>& pieces);
  // So many bytes of the last Gather were written.
  void Wrote(size_t bytes);

  // The next byte to write is the first one of a frame, or there is none.
  bool between_frames() const;
  bool all_written() const { return position_ == end_; }
  // Every message is acknowledged.
  bool empty() const { return messages_.empty(); }
  size_t messages() const { return messages_.size(); }
  // Headers and payloads of the messages that are not acknowledged.
  size_t bytes() const { return end_ - begin_; }

 private:
  struct Message {
    LinkService service;
    // The frame's header and body; the header is encoded when its first byte is written.
    std::string head;
    absl::string_view payload;
    std::string copy;
    std::shared_ptr<const void> keep;
    uint64_t begin = 0;

    uint64_t end() const { return begin + head.size() + payload.size(); }
  };

  void Encode(Message& message, uint64_t received);
  void Release(uint64_t received);

  // In order; the first one begins at begin_, and the last one ends at end_.
  std::deque<Message> messages_;
  uint64_t begin_ = 0;
  uint64_t position_ = 0;
  uint64_t end_ = 0;
  // The index of the message at position_; messages_.size() if all is written.
  size_t next_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_OUTBOX_H_
