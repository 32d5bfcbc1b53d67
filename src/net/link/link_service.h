// LinkService: what a message over a link is for. The numbers appear on the wire.
//
// A value; any thread.
#ifndef PHALANX_NET_LINK_LINK_SERVICE_H_
#define PHALANX_NET_LINK_LINK_SERVICE_H_

#include <cstdint>

namespace phalanx::net {

enum class LinkService : uint8_t {
  kMessages = 1,  // messages between members of a job
  kGroups = 2,    // collectives of a group
};

// The numbers are 1..kLinkServices.
inline constexpr int kLinkServices = 2;

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_SERVICE_H_
