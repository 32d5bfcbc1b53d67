// The placement policy of an object: which nodes receive the object as soon as they join, and how
// many hosts have a primary copy of it.
//
// A plain value and pure functions; any thread.
#ifndef PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_POLICY_H_
#define PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "phalanx/v1/directory.pb.h"

namespace phalanx::directory {

struct PlacementPolicy {
  // Of two policies of one object, the one with the greater stamp is valid. 0: no policy.
  uint64_t stamp = 0;
  // Names of nodes, or "*" for every node. Empty with a stamp: no broadcast is sticky.
  absl::btree_set<std::string> nodes;
  // Primary copies that are wanted, each on another host; 0: no client has asked for a number.
  uint32_t copies = 0;

  bool sticky() const { return !nodes.empty(); }
  bool Names(const std::string& node) const { return nodes.contains(node) || nodes.contains("*"); }
};

// Only a node that violates the protocol sends a greater stamp; such a policy is ignored.
inline constexpr uint64_t kMaxPolicyStamp = uint64_t{1} << 61;

// Returns an empty policy if the stamp is invalid, and InvalidArgument if a name or the number of
// copies is.
absl::StatusOr<PlacementPolicy> ParsePolicy(const v1::StickyMark& mark);
void ToProto(const PlacementPolicy& policy, v1::StickyMark* out);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_POLICY_H_
