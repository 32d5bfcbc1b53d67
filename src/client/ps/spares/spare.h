// A spare: a process that waits until a server of the job has died and does not come back, and
// takes its part, as the server's next life.
//
//   joined as spare ──a server is dead for `after`──► joined as that server ──► left the spares
//
// Spares are members of a role of their own. The server that has died first is for the spare that
// lives with the least rank, the next one for the next spare; a spare that does not take its part
// within a second does not keep the others from it. What a spare sees can be old, so it claims the
// part before it joins: an object of its own, named by the life that has died, which one can put.
// It ends with the spare; one whose process is stopped behind its claim keeps the part.
//
// A server that does not come at all counts as dead in the end: it may have failed before it has
// joined. So does one that had died before the spare came: a job is remembered for a minute, and
// the server of this run may be on its way.
//
// Functions without state. The thread of the caller.
#ifndef PHALANX_CLIENT_PS_SPARES_SPARE_H_
#define PHALANX_CLIENT_PS_SPARES_SPARE_H_

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
  // Nothing: half of join_timeout. `after` if that is longer.
  std::optional<absl::Duration> absent_after = {};
  int server_world = 0;          // 0: that of the first server which joins
  std::string server_task = {};  // in front of the rank of a server; empty: server_role
  std::string parts = {};        // the launch's file for the parts that it gets
  // The program's.
  std::string job = {};   // empty: PHALANX_JOB
  std::string task = {};  // empty: PHALANX_TASK
  std::string server_role = {};
  absl::Duration join_timeout = absl::InfiniteDuration();
  // For a claim; another is made after one that fails.
  absl::Duration claim_timeout = absl::Seconds(10);
};
// Nothing: it is no spare. InvalidArgument names the variable.
absl::StatusOr<std::optional<SpareOptions>> SpareOptionsFromLaunch();

// The servers that have died, in that order, and then those that have not come.
std::vector<Member> DeadServers(std::vector<Member> servers);
// Which of the dead servers, in their order, is for the spare with this rank; none yet.
std::optional<size_t> PartOf(int rank, const std::vector<Member>& spares, size_t dead);

// Waits as long as the job lasts. Cancelled: all servers have left without it. DeadlineExceeded: no
// server has joined within join_timeout, and the world of servers is not known. Else the errors of
// Client::Join, and of the connection.
absl::StatusOr<Membership> JoinInsteadOf(Client& client, const SpareOptions& spare);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SPARES_SPARE_H_
