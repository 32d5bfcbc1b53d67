// ServerDeath: where `phalanx launch --fail` has a server killed, to try out how a job survives.
//
//   push        it has a push of this clock, and no worker has an answer
//   clock       this clock has turned: all workers have ended it, and have no answer
//   snapshot    in its first snapshot of this clock or a later one: the node has so many bytes of
//               it; with more than it has: it has its copies, and does not count yet
//   restore     its table is restored, to this clock or a later one, and no worker is welcomed
//
// Workers die in worker_state.cc: at their first push or pull of the clock, and at its end, when
// the node has it.
//
// Belongs to a ServerState. The thread of Run.
#ifndef PHALANX_CLIENT_PS_SERVER_DEATH_H_
#define PHALANX_CLIENT_PS_SERVER_DEATH_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/job.h"
#include "src/client/jobs/declared_death.h"
#include "src/client/ps/snapshot_store.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {

class ServerDeath {
 public:
  explicit ServerDeath(Membership member);

  // The core has so many tables, and no worker has been welcomed.
  void OnRestored(const ServerCore& core, size_t tables);
  void OnMessage(const ServerCore& core, absl::string_view bytes);
  // A snapshot is to be written, of a table that is at this clock.
  void OnSnapshot(uint64_t clock, uint64_t attempt, absl::string_view bytes,
                  SnapshotStore& snapshots);

 private:
  using Kind = phalanx::internal::DeathPoint::Kind;
  [[noreturn]] void Die() const;

  const Membership member_;
  const phalanx::internal::DeathPoint point_;
  std::vector<uint64_t> clocks_;  // of each table
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SERVER_DEATH_H_
