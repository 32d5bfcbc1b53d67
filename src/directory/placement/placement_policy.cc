#include "src/directory/placement/placement_policy.h"

#include "absl/strings/str_cat.h"
#include "src/common/ids/ids.h"
#include "src/common/status_macros.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {

absl::StatusOr<PlacementPolicy> ParsePolicy(const v1::StickyMark& mark) {
  // No stamp means no policy. A stamp beyond the limit would leave no greater one for a stop.
  if (mark.stamp() == 0 || mark.stamp() > kMaxPolicyStamp) return PlacementPolicy();
  if (mark.copies() > kMaxCopies) {
    return absl::InvalidArgumentError(
        absl::StrCat("mark.copies: ", mark.copies(), "; at most ", kMaxCopies));
  }
  PlacementPolicy parsed{mark.stamp(), {}, mark.copies()};
  if (mark.nodes_size() > 0) {
    PHALANX_ASSIGN_OR_RETURN(parsed.nodes, ParseNodeNames(mark.nodes()));
  }
  return parsed;
}

void ToProto(const PlacementPolicy& policy, v1::StickyMark* out) {
  out->set_stamp(policy.stamp);
  out->mutable_nodes()->Add(policy.nodes.begin(), policy.nodes.end());
  out->set_copies(policy.copies);
}

}  // namespace phalanx::directory
