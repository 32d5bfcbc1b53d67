// SessionCore: what one rank of a session repeats, what it makes, and what it no longer needs.
// docs/jobs.md, "Sessions", has the rules for users.
//
//   call        1  2  3 │ 4  5  6 │ 7  8  9 10 │ 11
//               boot    │ version 0│ version 1  │ version 2       `released` is 3, 3, 6, 10:
//            run        Load       Checkpoint   Checkpoint         the last call before the version
//
// Every rank makes the same calls of one group, so a number names the same call at all of them. The
// first one agrees on the number of the run. Each call says the first call and the number of the
// version in which it is made. A next life learns what the newest call has said that the others
// count, and the last call that has ended:
//
//   repeats the boot ──► loads that version's ──► repeats the calls ──► makes the next call, in
//   calls                checkpoint               since then            which the others wait
//
// Calls of a later version can be among those that it repeats: it writes that checkpoint on its
// way.
//
// 1. A call in which every rank gives something (not a Broadcast, whose receivers can be behind its
//    root) ends after all ranks have made it, and so have passed the checkpoint before it.
// 2. So the end of such a call of version v frees, at the nodes, the results before version v. A
//    life that has learned of version v - 1 and has not loaded it takes part in no such call.
// 3. The end of the next such call frees the checkpoints of version v - 1, of all ranks: now all
//    have a result of the one before, so every life that begins from now on learns of version v at
//    least. (If the first one has ended for one rank alone, and its node ends, no other knows.)
// 4. A rank's checkpoint is its own. Another rank's of the same version replaces it whole.
//
// Pure: no thread, clock or socket. Owned by a Session, or by a test. One thread at a time.
#ifndef PHALANX_CLIENT_SPMD_SESSION_CORE_H_
#define PHALANX_CLIENT_SPMD_SESSION_CORE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::spmd::internal {

// What a call says: the last boot call, the last call before its version, and the version. Zeros
// before Load.
struct SessionKeep {
  uint64_t boot = 0;
  uint64_t released = 0;
  uint64_t version = 0;

  friend bool operator==(const SessionKeep&, const SessionKeep&) = default;
};

// What a life learns when it joins: the last call that has ended, and what the newest one has said
// whose end frees results. Zeros if no call has.
struct SessionProgress {
  uint64_t ended = 0;
  SessionKeep keep = {};
};

// The name of a rank's checkpoint. Another run of the job, after all its members have ended, has
// other names: what an earlier one has left is not read.
std::string CheckpointName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                           uint64_t version);

class SessionCore {
 public:
  explicit SessionCore(const SessionProgress& progress) : progress_(progress) {}

  // ---- calls of the group
  // The number of the next one, from 1.
  uint64_t next_call() const { return made_ + 1; }
  // Whether it has ended, so that its result is taken instead.
  bool repeats() const;
  // What it says.
  SessionKeep keep() const;
  // It is made, and others can be before it has ended.
  void OnCallMade() { ++made_; }
  // The first one that has not ended has a result here; it need not have been made before.
  // `needs_all`: every rank gives something in it.
  void OnCallEnded(bool needs_all);

  // ---- versions
  // What Load is to read; 0: nothing. FailedPrecondition: it was called before. InvalidArgument:
  // the life before has made another number of calls before it.
  absl::StatusOr<uint64_t> VersionToLoad() const;
  // REQUIRES: VersionToLoad is OK; so here and below: all calls have ended that were made.
  void OnLoaded();
  // FailedPrecondition before Load.
  absl::Status CheckCheckpoint() const;
  // The checkpoint of the next version is there. REQUIRES: CheckCheckpoint is OK.
  void OnCheckpoint();
  uint64_t version() const { return version_; }

  // Versions whose checkpoints no rank needs any more, in their order; each is returned once.
  std::vector<uint64_t> TakeFreed() { return std::exchange(freed_, {}); }
  // The other ones, when the session is over for all ranks.
  std::vector<uint64_t> TakeRest();

 private:
  void FreeUntil(uint64_t version);

  const SessionProgress progress_;
  // That have ended here, or before the version that was loaded; and that were made.
  uint64_t calls_ = 0;
  uint64_t made_ = 0;
  bool loaded_ = false;
  uint64_t boot_ = 0;      // calls before Load
  uint64_t released_ = 0;  // calls before this version
  uint64_t version_ = 0;
  uint64_t known_ = 0;   // the version of the last call that needs all and has ended here
  uint64_t oldest_ = 1;  // the first version whose checkpoint can be there
  std::vector<uint64_t> freed_;
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_SESSION_CORE_H_
