// IncomingLink: a proven connection whose dialer has asked for a link, on its way from the I/O loop
// that accepted it to the control loop.
//
// A value that moves; any thread.
#ifndef PHALANX_NET_LINK_INCOMING_LINK_H_
#define PHALANX_NET_LINK_INCOMING_LINK_H_

#include <memory>

#include "src/common/ids/ids.h"
#include "src/net/frame/frame.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

struct IncomingLink {
  std::unique_ptr<DetachedStream> stream;
  // The node that proved itself in the handshake.
  NodeKey peer;
  LinkPayload request;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_INCOMING_LINK_H_
