// Placement policies in the wire's messages. Pure functions, any thread.
#ifndef PHALANX_DIRECTORY_PLACEMENT_POLICY_MESSAGES_H_
#define PHALANX_DIRECTORY_PLACEMENT_POLICY_MESSAGES_H_

#include "absl/status/statusor.h"
#include "phalanx/v1/directory.pb.h"
#include "src/directory/broadcasts/broadcasts.h"

namespace phalanx::directory {

// Returns an empty policy if the stamp is invalid, and InvalidArgument if a name is.
absl::StatusOr<BroadcastMark> ParsePolicy(const v1::StickyMark& mark);
void ToProto(const BroadcastMark& policy, v1::StickyMark* out);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_POLICY_MESSAGES_H_
