// Link: one pair of nodes: dials, reads and writes the connection that its session says, and moves
// bytes between it, the outbox and the inbox.
//
// Owned by NodeLinks, also by a task that reads from it; one loop, the control loop.
#ifndef PHALANX_NET_LINK_LINK_H_
#define PHALANX_NET_LINK_LINK_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/time/executor.h"
#include "src/net/link/link_inbox.h"
#include "src/net/link/link_outbox.h"
#include "src/net/link/link_service.h"
#include "src/net/link/link_session.h"
#include "src/net/link/link_types.h"
#include "src/net/link/link_writer.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/stream_handshake.h"

namespace phalanx::net {

class Link final : public std::enable_shared_from_this<Link>, private LinkInbox::Sink {
  using Phase = LinkSession::Phase;

 public:
  // What the links of a node share.
  struct Shared {
    Network& network;
    Executor& executor;
    const NodeLinksOptions options;
    // By service; null without a receiver.
    std::array<LinkReceiver*, kLinkServices + 1> receivers = {};
    // The links read into it in turn; no bytes stay there.
    std::vector<char> staging = {};
    uint64_t attempts = 0;
    LinkStats counters = {};
    // A link has given its peer up. Called in the midst of the link's work, once.
    std::function<void(const NodeKey& peer, const absl::Status& why)> on_lost = {};
  };

  // `session` as in LinkSession. REQUIRES: `shared` outlives the link.
  Link(Shared& shared, NodeKey peer, uint64_t session);
  // Closes the connection and calls nothing.
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // As NodeLinks::Send, after the checks that need no link. `address`: of the peer; a link that was
  // accepted learns it here. REQUIRES: !lost().
  absl::Status Send(const Address& address, LinkService service, absl::string_view header,
                    absl::string_view payload, std::shared_ptr<const void> keep);
  // Answers a request of the peer over `stream`, which the link keeps if the answer is kAccept.
  // After kRenew the stream is left to the caller, which gives the link up. REQUIRES: !lost().
  LinkSession::Answer Accept(std::unique_ptr<ByteStream>& stream, const LinkPayload& request);
  // Ends the link: releases what is queued, and calls on_lost. `notify`: sends END to a connected
  // peer.
  void GiveUp(const absl::Status& why, bool notify);

  bool lost() const { return lost_; }
  bool connected() const { return !lost_ && session_.phase() == Phase::kConnected; }
  size_t queued_bytes() const { return outbox_.bytes(); }
  // When a message was queued, or something has moved over a connection.
  Instant last_used() const { return std::max({last_queued_, last_write_, last_heard_}); }

 private:
  absl::StatusOr<absl::Span<char>> PlaceFor(LinkService service, absl::string_view header,
                                            size_t payload_bytes) override;
  absl::Status Message(LinkService service, absl::string_view header,
                       absl::Span<char> payload) override;
  absl::Status Acknowledged(uint64_t received) override;
  absl::Status Welcome(const WelcomeBody& welcome, uint64_t received) override;
  absl::Status End(const absl::Status& why) override;
  absl::StatusOr<LinkReceiver*> ReceiverOf(LinkService service) const;
  // The peer, for messages.
  std::string PeerName() const;

  // Making a connection.
  void Dial();
  void Dialed(uint64_t attempt, absl::StatusOr<std::unique_ptr<ByteStream>> stream);
  void Proven(absl::StatusOr<StreamHandshake::Authenticated> peer);
  void Retry();
  // Retry, unless the owner says that the peer has ended.
  void DialFailed();
  void DialAfter(absl::Duration pause);
  // Takes over the connection, whose first bytes are `first`.
  void UseStream(std::unique_ptr<ByteStream> stream, std::string first);
  void CloseStream();
  // The connection has ended.
  void Broke();
  void PostBroke();

  // Turns of the connection.
  void Read();
  absl::Status TakeBytes(absl::Span<char> place, size_t size);
  void Acknowledge();
  void OnAckTimer();
  void FlushSoon();
  void Flush();
  void Watch();
  void OnWatch();
  void SetTimer(TimerId Link::*timer, Instant when, void (Link::*then)());
  void CancelTimer(TimerId Link::*timer);

  // Constant after construction.
  Shared& shared_;
  const NodeKey peer_;

  Address address_;
  LinkSession session_;
  LinkOutbox outbox_;
  LinkInbox inbox_;
  LinkWriter writer_;
  bool lost_ = false;

  // The connection. While it is dialed there is no stream, then a handshake, and then a stream.
  Instant dial_deadline_;
  std::unique_ptr<StreamHandshake> handshake_;
  std::unique_ptr<ByteStream> stream_;
  // Counts the connections.
  uint64_t connection_ = 0;
  bool writable_armed_ = false;
  bool flush_posted_ = false;
  Instant last_write_;
  Instant last_queued_;
  Instant last_heard_;

  // Dials again in kIdle and kWaiting; ends an unanswered LINK in kAsked.
  TimerId dial_timer_ = 0;
  TimerId ack_timer_ = 0;
  TimerId watch_timer_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_H_
