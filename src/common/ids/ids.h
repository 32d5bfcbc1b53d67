// The identities of the protocol as strong value types: nodes and their incarnations, generations,
// sessions, pulls.
//
// All are plain values: ordered (cores keep them in ordered containers), hashable by Abseil,
// printable.
#ifndef PHALANX_COMMON_IDS_IDS_H_
#define PHALANX_COMMON_IDS_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace phalanx {

// One incarnation of one node. `node` identifies the node across restarts (derived from the name in
// its configuration). The node chooses `incarnation` at each start; a later incarnation of the same
// node has a greater number.
struct NodeKey {
  uint64_t node = 0;
  uint64_t incarnation = 0;

  bool valid() const { return node != 0; }
  friend auto operator<=>(const NodeKey&, const NodeKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodeKey& k) {
    return H::combine(std::move(h), k.node, k.incarnation);
  }
  // Returns "9f2c0011.5d1e": short forms of both numbers, for logs and messages.
  std::string ToString() const {
    return absl::StrFormat("%08x.%04x", static_cast<uint32_t>(node >> 32), incarnation & 0xffff);
  }
};

// One attempt to create an object. The creating node mints it and never reuses it. Bytes of two
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

// The assignment of a sender to a receiver, minted by the object's shard. A later one replaces an
// earlier one.
using PlanId = uint64_t;
// A session of a node with a shard.
using SessionId = uint64_t;

// Limits of the protocol. Every peer checks them before it allocates memory for a message.
inline constexpr int kMaxSlices = 64;
inline constexpr size_t kMaxInlineBytes = 65536;
inline constexpr size_t kMaxMetadataBytes = 4096;
inline constexpr size_t kMaxReduceSources = 16384;
// The greatest number of objects that one object can refer to, and of ids in one message about
// holds.
inline constexpr size_t kMaxReferences = 16384;
inline constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 46;
// Primary copies of one object that a client can ask for, each on another host.
inline constexpr uint32_t kMaxCopies = 64;
// A longer time to live is none.
inline constexpr absl::Duration kMaxTtl = absl::Hours(24 * 365 * 100);
inline constexpr uint32_t kProtocolVersion = 2;

// Bit i stands for slice i. REQUIRES: 1 <= slices <= kMaxSlices.
constexpr uint64_t AllSlices(int slices) {
  // A shift by 64 is undefined.
  return slices == kMaxSlices ? ~uint64_t{0} : (uint64_t{1} << slices) - 1;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_IDS_H_
