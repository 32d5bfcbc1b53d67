// What the services of links, and their owner, pass to them and get from them: peers, receivers,
// options, statistics, limits.
//
// Values, and one interface; the control loop.
#ifndef PHALANX_NET_LINK_LINK_TYPES_H_
#define PHALANX_NET_LINK_LINK_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/net/stream/address.h"
#include "src/net/stream/handshake.h"

namespace phalanx::net {

// See NodeLinks.
inline constexpr size_t kMaxLinkQueuedBytes = size_t{256} << 20;
inline constexpr size_t kMaxLinkQueuedMessages = size_t{1} << 16;
inline constexpr size_t kMaxNodeLinks = 4096;
// A link that was used less long ago is kept, whatever the owner says of its peer.
inline constexpr absl::Duration kKeepIdleLink = absl::Minutes(1);

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
  // of the link, at most NodeLinks::kMaxUnplacedBytes. An error gives the link up, on both sides.
  virtual absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, absl::string_view header,
                                                    size_t payload_bytes) = 0;

  // A message has arrived. `payload` is where PlaceFor said; or memory of the link, valid during
  // the call. May call Send and Forget.
  virtual void OnMessage(const NodeKey& from, absl::string_view header,
                         absl::Span<char> payload) = 0;

  // The link with `peer` was given up, for the reason `why`: messages from and to this incarnation
  // that have not arrived are lost. Aborted: that process has ended, and has a successor. Every
  // service with a receiver hears this, in a later turn than the cause; until then Send returns
  // Unavailable. May call Send and Forget.
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
  size_t max_links = kMaxNodeLinks;
  // Whether this incarnation has ended, as far as the owner knows, or the owner has nothing to do
  // with it any more. It is not dialed again then, and its link makes room for others. Called
  // seldom: after dials that fail, and at the limit of links. Null: none has ended.
  std::function<bool(const NodeKey& peer)> ended = {};
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

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_TYPES_H_
