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
// A peer that does not answer is dialed again and again, with a growing pause, until the owner says
// that it has ended (NodeLinksOptions::ended). At the limit of links those with peers that have
// ended make room. Nothing is sent over an idle connection. docs/data-plane.md describes the bytes
// on the wire.
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
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/link/incoming_link.h"
#include "src/net/link/link_service.h"
#include "src/net/link/link_types.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class NodeLinks {
 public:
  static constexpr size_t kMaxHeaderBytes = 512;
  static constexpr size_t kMaxPayloadBytes = size_t{16} << 20;
  // The greatest payload that a receiver need not find a place for, or that Send copies.
  static constexpr size_t kMaxUnplacedBytes = size_t{64} << 10;
  // Limits of one link: what is not acknowledged. Services bound what they send by credits of their
  // own; this is the last resort.
  static constexpr size_t kMaxQueuedBytes = kMaxLinkQueuedBytes;
  static constexpr size_t kMaxQueuedMessages = kMaxLinkQueuedMessages;
  // Peers of which there is state, unless the options say less.

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
  //                        as many others as the options allow
  absl::Status Send(const LinkPeer& to, LinkService service, std::string header,
                    absl::string_view payload, std::shared_ptr<const void> keep);

  // Gives the link with `peer` up, if there is one, and notifies the peer if it is connected.
  // Nothing is written to places that PlaceFor returned for it from here on.
  void Forget(const NodeKey& peer);
  // Whether there is a link with `peer`, also one that is given up and whose OnLost is still to be
  // called.
  bool Contains(const NodeKey& peer) const;

  // A peer has dialed the data plane's port for a link.
  void Accept(IncomingLink incoming);

  LinkStats stats() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_NODE_LINKS_H_
