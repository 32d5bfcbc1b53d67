// What nodes and shards agree on about the rates of transfers: when a node reports one, and what a
// shard concludes from that. Constants.
#ifndef PHALANX_COMMON_PACE_RULES_H_
#define PHALANX_COMMON_PACE_RULES_H_

#include "absl/time/time.h"

namespace phalanx {

// Less than these bytes of a link's rate prove nothing: they fit into the buffers on the way.
inline constexpr double kPaceProofBytes = 512 * 1024;
// The receiver of a fold's input looks at it so often while bytes arrive.
inline constexpr absl::Duration kPaceTick = absl::Milliseconds(20);
// A rate that was reported lasts until so many times its bytes have come since, in this time at
// least. Then it is reported again.
inline constexpr double kPaceRise = 2;
inline constexpr absl::Duration kPaceRiseWindow = absl::Milliseconds(40);

}  // namespace phalanx

#endif  // PHALANX_COMMON_PACE_RULES_H_
