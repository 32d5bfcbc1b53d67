// LinkInbox: takes the frames of a link from the bytes of its connections. Pure.
//
//   loop:  n = stream.Read({inbox.PayloadPlace(), staging})
//          inbox.Placed(part of n in the place), then inbox.Feed(part in the staging)  ──► Sink
//
// The staging block holds many small frames, so that a small message costs one read; the rest of a
// large payload is read into its final place.
//
// A message that has arrived in part survives its connection: the next one goes on within its
// payload. A header that has arrived in part does not count, and comes again.
//
// Owned by a Link; one loop.
#ifndef PHALANX_NET_LINK_LINK_INBOX_H_
#define PHALANX_NET_LINK_LINK_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/net/link/link_frame.h"
#include "src/net/link/link_service.h"

namespace phalanx::net {

class LinkInbox {
 public:
  // The greatest payload that is read into memory of the inbox.
  static constexpr size_t kMaxUnplacedBytes = size_t{64} << 10;

  // Handles the frames. An error of any method ends the link: Feed and Placed return it, and the
  // inbox must not be used after it.
  class Sink {
   public:
    virtual ~Sink() = default;
    // As LinkReceiver::PlaceFor. Not called for an empty payload.
    virtual absl::StatusOr<absl::Span<char>> PlaceFor(LinkService service, absl::string_view header,
                                                      size_t payload_bytes) = 0;
    virtual absl::Status Message(LinkService service, absl::string_view header,
                                 absl::Span<char> payload) = 0;
    // Every frame but WELCOME has the peer's count of what it received; called before its contents.
    virtual absl::Status Acknowledged(uint64_t received) = 0;
    virtual absl::Status Welcome(const WelcomeBody& welcome, uint64_t received) = 0;
    // The peer has given the link up.
    virtual absl::Status End(const absl::Status& why) = 0;
  };

  // REQUIRES: `sink` outlives the inbox.
  explicit LinkInbox(Sink& sink) : sink_(sink) {}

  // Bytes follow over another connection, which goes on at received(); behind a WELCOME, if this
  // side has asked for one.
  void NewConnection(bool welcome_first);

  // Where the next bytes of the current payload go; empty between payloads.
  absl::Span<char> PayloadPlace();
  // So many bytes were stored in PayloadPlace.
  absl::Status Placed(size_t bytes);
  // The next bytes of the connection; may be changed. Takes all. Returns InvalidArgument for a
  // malformed frame, DataLoss if the check of a body does not match, ResourceExhausted for a large
  // payload without a place, and errors of the sink.
  absl::Status Feed(absl::Span<char> bytes);

  // The peer's bytes that have arrived, over all connections; without those of headers that are not
  // complete, and without frames that are no messages.
  uint64_t received() const;

 private:
  // Takes a part of the bytes: of a payload, or of a header and body.
  absl::StatusOr<size_t> FeedPayload(absl::Span<char> bytes);
  absl::StatusOr<size_t> FeedHead(absl::Span<char> bytes);
  absl::Status Frame(absl::string_view body);
  absl::Status BeginMessage(absl::string_view body);
  absl::Status EndMessage(absl::Span<char> payload);

  Sink& sink_;
  // The part of a header and body that has arrived, if it is not complete.
  std::string head_;
  // Of the frame at hand.
  LinkHeader header_;
  // A WELCOME precedes the rest of the payload.
  bool welcome_first_ = false;

  // The last message, and if its payload is being read.
  LinkHeader message_;
  bool in_payload_ = false;
  std::string message_header_;
  // Empty until the payload needs a place: one that is complete in the staging block and has none
  // of its own is never copied.
  absl::Span<char> place_;
  std::string unplaced_;
  size_t filled_ = 0;

  uint64_t received_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_INBOX_H_
