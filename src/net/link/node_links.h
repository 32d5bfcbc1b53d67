// NodeLinks: reliable, ordered messages between this node and other nodes, on the control loop.
//
// A pair of node incarnations shares one authenticated connection, which either of them dials when
// it has something to send. If the connection breaks, it is made again and goes on at the byte at
// which it broke. So every message arrives once, and in the order of Send over all services, until
// one side gives the pair up. Both sides then hear OnLost, and whatever was under way is lost; a
// later Send begins anew.
//
//            Send                                   Forget, the peer's Forget, a newer
//    (none) ──────► dialing ◄──────► connected      incarnation of the peer, a bad message
//                     │  ▲ broken        │        ────────────────────────────────────────► OnLost
//                     └──┴── retried ◄───┘
//
// A peer that does not answer is dialed again and again, with a growing pause: only the owner, who
// hears from the directory which nodes have ended, knows when to call Forget. Nothing is sent over
// an idle connection. docs/data-plane.md describes the bytes on the wire.
//
// A small message costs one write in the turn of its Send and one read in one turn of the
// receiver's control loop; no other thread takes part. Payloads are written from and read into
// memory of the services.
//
// Thread rule: constructed, used and destroyed on the control loop; every callback runs there.
// Owned by the node.
#ifndef PHALANX_NET_LINK_NODE_LINKS_H_
#define PHALANX_NET_LINK_NODE_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/link/incoming_link.h"
#include "src/net/link/link_service.h"
#include "src/net/stream/address.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/handshake.h"

namespace phalanx::net {

// An incarnation of a node, and where it listens.
struct LinkPeer {
  NodeKey key;
  Address address;
};

// The receiving side of one service.
class LinkReceiver {
 public:
  virtual ~LinkReceiver() = default;

  // The header of a message with a payload has arrived. Returns where the payload goes: exactly
  // `payload_bytes` bytes, which stay valid until OnMessage or OnLost; or an empty span for memory
  // of the link, at most kMaxUnplacedBytes. An error gives the link up, on both sides.
  virtual absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, absl::string_view header,
                                                    size_t payload_bytes) = 0;

  // A message has arrived. `payload` is where PlaceFor said; or memory of the link, valid during
  // the call. May call Send and Forget.
  virtual void OnMessage(const NodeKey& from, absl::string_view header,
                         absl::Span<char> payload) = 0;

  // The link with `peer` was given up, for the reason `why`: messages from and to this incarnation
  // that have not arrived are lost. Every service with a receiver hears this, in a later turn than
  // the cause; until then Send returns Unavailable. May call Send and Forget.
  virtual void OnLost(const NodeKey& peer, const absl::Status& why) = 0;
};

struct NodeLinksOptions {
  // Names this node, and proves it to peers.
  HandshakeConfig handshake;
  // Limits connecting and the handshake together.
  absl::Duration connect_timeout = absl::Seconds(2);
  // A connection over which nothing was heard for so long, while an acknowledgement is due, is
  // replaced.
  absl::Duration silence_timeout = absl::Seconds(2);
};

struct LinkStats {
  // Peers of which there is state, and those that are connected.
  int links = 0;
  int connections = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  // Connections that were made, the first of each link included.
  uint64_t connects = 0;
  // Links that were given up.
  uint64_t lost = 0;
  // Payloads and headers that are not acknowledged, over all links.
  uint64_t queued_bytes = 0;
};

class NodeLinks {
 public:
  static constexpr size_t kMaxHeaderBytes = 512;
  static constexpr size_t kMaxPayloadBytes = size_t{16} << 20;
  // The greatest payload that a receiver need not find a place for, or that Send copies.
  static constexpr size_t kMaxUnplacedBytes = size_t{64} << 10;
  // Limits of one link: what is not acknowledged. Services bound what they send by credits of their
  // own; this is the last resort.
  static constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
  static constexpr size_t kMaxQueuedMessages = size_t{1} << 16;
  // Peers of which there is state.
  static constexpr size_t kMaxLinks = 4096;

  // REQUIRES: `network` and `control` outlive this object.
  NodeLinks(Network& network, Executor& control, NodeLinksOptions options);
  // Closes all connections and calls nothing.
  ~NodeLinks();
  NodeLinks(const NodeLinks&) = delete;
  NodeLinks& operator=(const NodeLinks&) = delete;

  // Messages for a service without a receiver give their link up. `receiver` outlives this object,
  // or is replaced by null.
  void SetReceiver(LinkService service, LinkReceiver* receiver);

  // Queues a message; never blocks, and calls nothing. `payload` stays unchanged while the link
  // holds `keep`: until the peer has acknowledged the message, or the link is given up. If `keep`
  // is null, the payload is copied; it has at most kMaxUnplacedBytes then. Errors, after which
  // nothing was queued:
  //     InvalidArgument    the header or the payload is too long, or the peer is this node
  //     Unavailable        OnLost of this peer is still to be called
  //     ResourceExhausted  the link has kMaxQueuedBytes or kMaxQueuedMessages, or there are
  //                        kMaxLinks others
  absl::Status Send(const LinkPeer& to, LinkService service, std::string header,
                    absl::string_view payload, std::shared_ptr<const void> keep);

  // Returns the bytes of headers and payloads that this peer has not acknowledged.
  size_t QueuedBytes(const NodeKey& peer) const;

  // Gives the link with `peer` up, if there is one, and tells the peer so if it is connected.
  // Nothing is written to places that PlaceFor returned for it from here on.
  void Forget(const NodeKey& peer);

  // A peer has dialed the data plane's port for a link.
  void Accept(IncomingLink incoming);

  LinkStats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_NODE_LINKS_H_
