// The identities of the protocol as strong value types: nodes, their lives, generations, sessions,
// pulls.
//
// All are plain values, ordered (so that cores can keep them in ordered containers), hashable by
// Abseil, printable.
#ifndef PHALANX_COMMON_IDS_H_
#define PHALANX_COMMON_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace phalanx {

// One life of one node: `node` names it for good (derived from the name in its configuration),
// `incarnation` is drawn anew at each start. A later life of the same node has a greater
// incarnation.
struct NodeKey {
  uint64_t node = 0;
  uint64_t incarnation = 0;

  bool valid() const { return node != 0; }
  friend auto operator<=>(const NodeKey&, const NodeKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodeKey& k) {
    return H::combine(std::move(h), k.node, k.incarnation);
  }
  // "9f2c0011.5d1e": short forms of both numbers, for logs and messages.
  std::string ToString() const {
    return absl::StrFormat("%08x.%04x", static_cast<uint32_t>(node >> 32), incarnation & 0xffff);
  }
};

// One attempt to create an object: minted by the creating node, never reused. Bytes of two
// generations never mix. The order ("the smaller token") settles ties after a directory restart.
struct Generation {
  NodeKey creator;
  uint64_t sequence = 0;

  bool valid() const { return sequence != 0; }
  friend auto operator<=>(const Generation&, const Generation&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Generation& g) {
    return H::combine(std::move(h), g.creator, g.sequence);
  }
  std::string ToString() const { return absl::StrFormat("%s#%d", creator.ToString(), sequence); }
};

// A sender's assignment to a receiver, minted by the object's shard; a later one replaces an
// earlier one.
using PlanId = uint64_t;
// A node's registration at a shard.
using SessionId = uint64_t;

// Limits of the protocol. Every peer checks them before it allocates anything.
inline constexpr int kMaxSlices = 64;
inline constexpr size_t kMaxInlineBytes = 65536;
inline constexpr size_t kMaxMetadataBytes = 4096;
inline constexpr size_t kMaxReduceSources = 16384;
// Objects that one object's bytes refer to; and ids in one message about holds.
inline constexpr size_t kMaxReferences = 16384;
inline constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 46;
inline constexpr uint32_t kProtocolVersion = 1;

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_H_
