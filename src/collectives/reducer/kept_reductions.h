// The descriptors of reductions that this node keeps for their shards: after a restart a shard
// learns its reductions from the nodes that register.
//
// Thread rule: no thread, lock, clock or I/O inside; on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_REDUCER_KEPT_REDUCTIONS_H_
#define PHALANX_COLLECTIVES_REDUCER_KEPT_REDUCTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/time/instant.h"

namespace phalanx::collectives {

class KeptReductions {
 public:
  // Targets. Descriptors of more targets are not kept.
  static constexpr size_t kMaxKept = 1 << 16;

  // Keeps the descriptor, adds a part of a list to it, or forgets it. Malformed messages are
  // ignored. Returns true if the message says that the reduction is over, and does not mean an
  // earlier one than the one that is kept.
  bool OnKeep(const ObjectId& target, const v1::KeepReduction& keep, Instant now);
  // Appends the requests by which a new session registers what is kept for the chosen targets.
  // Forgets descriptors whose deadline has passed.
  void Register(const std::function<bool(const ObjectId& target)>& chosen, Instant now,
                std::vector<v1::NodeMessage>& messages);

 private:
  struct Kept {
    // The reduction's; not valid if the shard has not named it.
    ReductionId number;
    // By place in the list of sources. A reduction that is not open has one part.
    std::map<uint32_t, v1::Reduction> parts;
    bool owned = false;
    Instant deadline = Instant::Infinite();
  };

  static void AddPart(const v1::Reduction& part, Kept& kept);

  std::map<ObjectId, Kept> kept_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCER_KEPT_REDUCTIONS_H_
