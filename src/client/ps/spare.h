// A spare: a process that waits until a server of the job has died and does not come back, and
// takes its part, as the server's next life.
//
//   joined as spare ──a server is dead for `after`──► joined as that server ──► left the spares
//
// Spares are members of a role of their own. The server that is dead with the least rank is the one
// of the spare that lives with the least rank, the next one that of the next spare: all see the
// same members, since a spare is a server before it leaves the others.
//
// Functions without state. The thread of the caller.
#ifndef PHALANX_CLIENT_PS_SPARE_H_
#define PHALANX_CLIENT_PS_SPARE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"

namespace phalanx::ps::internal {

struct SpareOptions {
  // What `phalanx launch --spares` has set for this process.
  int world = 0;
  absl::Duration after = absl::ZeroDuration();
  // The program's.
  std::string job = {};  // empty: PHALANX_JOB
  std::string server_role = {};
  absl::Duration join_timeout = absl::InfiniteDuration();
};
// Nothing: it is no spare. InvalidArgument names the variable.
absl::StatusOr<std::optional<SpareOptions>> SpareOptionsFromLaunch();

// Whose part the spare with this rank takes: of the dead servers, in their order; nothing yet.
std::optional<int> PartOf(int rank, const std::vector<Member>& spares,
                          const std::vector<int>& dead);

// Waits as long as the job lasts. Cancelled: all servers have left without it. Else the errors of
// Client::Join.
absl::StatusOr<Membership> JoinInsteadOf(Client& client, const SpareOptions& spare);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SPARE_H_
