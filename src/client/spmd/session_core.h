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
// With local models, which each rank has of its own, a rank can die with the newest one before it
// is copied to other hosts. So a call of version v says where version v - 1 began:
//
//   call        1  2  3 │ 4  5  6 │ 7  8  9 10 │ 11
//               boot    │ version 0│ version 1  │ version 2       `released` is 3, 3, 3, 6
//                       Load       Checkpoint   Checkpoint, after the copies of version 1
//
// 5. The checkpoint of version v + 1 waits for the copies of the local model of version v. So a
//    next life that has learned of version v finds its local model of version v - 1, and perhaps
//    that of v. It takes that of v if it is there, with the global model of the same version, and
//    never another rank's.
// 6. So each checkpoint is freed one version later than without local models: a life that learns of
//    version v needs that of v - 1.
//
// A lazy checkpoint is not written. The rank saves its model within a call of its version if a
// member may need it, since the program changes it after the last one.
//
// 7. A member that has died, or begun a next life, may need it (a loss). A life that makes a call
//    has loaded, or loads nothing, and a part of a call that an earlier life has given does not
//    count. So if all members live as a call that needs all is made, and it ends, no loss from
//    before it needs a checkpoint.
// 8. A next life that has learned of version u takes the first of u, u + 1 and u + 2 that a rank
//    has, and there is one if a rank lives that has loaded. If that is in u or u + 1, it saves its
//    model in the next call, or has written it. If it is further, it has written u + 2, since no
//    call that needs all has ended in u + 1: a checkpoint is lazy only after such a call since the
//    one before it.
// 9. A later version than u is taken only if the calls before it had ended when the life joined,
//    since that makes its first call after these. A rank that passes a later call without it (a
//    Broadcast) has seen by the end of the call that this life has joined: its node knew of it when
//    the nodes agreed on what has ended, and reports members before ends of calls. So in that call
//    it saves the version before, or has written it.
//
// A job that begins anew can go on from checkpoints on disks (disks/disk_runs.h has which ones
// count). Load then has calls of its own: in these, the ranks agree on the version, and get its
// model.
//
//   call        1  2  3 │ 4  5  6 │ 7  8  9         a life that has learned of version 12 repeats
//               boot    │ of Load │ version 12      calls 1 to 3, and loads an object that a rank
//                       Load                      has written in Load
//
// Pure: no thread, clock or socket. Owned by a Session, or by a test. One thread at a time.
#ifndef PHALANX_CLIENT_SPMD_SESSION_CORE_H_
#define PHALANX_CLIENT_SPMD_SESSION_CORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/client/spmd/boot_calls.h"

namespace phalanx::spmd::internal {

// What a call says: the last boot call, the last call before its version (with local models, before
// the version before it), and the version; zeros before Load. `names`: before Load what BootCalls
// says of the call, after it whether there are records among the boot calls.
struct SessionKeep {
  uint64_t boot = 0;
  uint64_t released = 0;
  uint64_t version = 0;
  uint64_t names = 0;
  bool local = false;     // with local models
  bool restored = false;  // the run has gone on from disks

  // The last three as one number, of which the group knows, and back.
  uint64_t mark() const;
  static SessionKeep Of(uint64_t boot, uint64_t released, uint64_t mark);

  friend bool operator==(const SessionKeep&, const SessionKeep&) = default;
};

// What a life learns when it joins: the last call that has ended, and what the newest one has said
// whose end frees results. Zeros if no call has.
struct SessionProgress {
  uint64_t ended = 0;
  SessionKeep keep = {};
};

// A rank can have a checkpoint of this version or of one of the next ones, if it has passed lazy
// ones.
inline constexpr uint64_t kLoadableVersions = 3;

// The name of a rank's checkpoint. Another run of the job, after all its members have ended, has
// other names: what an earlier one has left is not read.
std::string CheckpointName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                           uint64_t version);
std::string LocalName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                      uint64_t version);
// What stands beside its bytes: the last call before it. DataLoss if it is not that.
std::string CheckpointMetadata(uint64_t base);
absl::StatusOr<uint64_t> BaseOf(absl::string_view metadata);

class SessionCore {
 public:
  explicit SessionCore(const SessionProgress& progress)
      : progress_(progress),
        boot_calls_(progress.ended, progress.keep.boot, progress.keep.names != 0) {}

  // ---- calls of the group
  // The number of the next one, from 1.
  uint64_t next_call() const { return loaded_ ? made_ + 1 : boot_calls_.next(); }
  // Whether it has ended, so that its result is taken instead.
  bool repeats() const;
  // What it says.
  SessionKeep keep() const;
  // It is made, and others can be before it has ended.
  void OnCallMade();
  // The first one that has not ended has a result here; it need not have been made before.
  // `needs_all`: every rank gives something in it. `losses`: what SeenLosses was as it was made; 0
  // if it was repeated.
  void OnCallEnded(bool needs_all, uint64_t losses);

  // ---- before Load
  bool loaded() const { return loaded_; }
  // Where each call begins, and Load. REQUIRES: !loaded().
  BootCalls& boot_calls() { return boot_calls_; }

  // ---- versions
  // What Load is to read; 0: nothing. FailedPrecondition: it was called before. InvalidArgument:
  // the life before has made another number of calls before it, or had local models and this one
  // has none, or the reverse.
  absl::StatusOr<uint64_t> VersionToLoad(bool local) const;
  // Whether it may read this one instead, before which call `base` is the last one.
  bool CanLoad(uint64_t version, uint64_t base) const;
  // The version of the global model that goes with a local model.
  uint64_t GlobalOf(uint64_t version) const;
  // REQUIRES: VersionToLoad is OK, and 0, or CanLoad (with local models the version can be 0 if
  // VersionToLoad is 1); and, here and below, all calls have ended that were made.
  void OnLoaded(uint64_t version, uint64_t base, bool local);
  // Whether no call after Load has ended in this run of the job: it can go on from disks. REQUIRES:
  // VersionToLoad is 0.
  bool begins() const { return progress_.keep.boot == 0; }
  // With local models, of which VersionToLoad is 1: whether this run has begun with version 0.
  bool CanBeginAnew() const { return !progress_.keep.restored; }
  // Instead of OnLoaded: in Load, which began after the call `boot`, the ranks have agreed on this
  // version.
  void OnRestored(uint64_t version, uint64_t boot, bool local);
  // FailedPrecondition before Load. InvalidArgument: Load was with a local model, and this is
  // without one, or the reverse.
  absl::Status CheckCheckpoint(bool local) const;
  // The version whose local model must have its copies before the next checkpoint.
  std::optional<uint64_t> LocalToAwait() const;
  // The last call before the next version.
  uint64_t next_base() const { return next_call() - 1; }
  // Whether the next checkpoint can be lazy.
  bool CanBeLazy() const { return can_be_lazy_; }
  // The checkpoint of the next version is there, or is a lazy one. REQUIRES: CheckCheckpoint is OK;
  // if it is lazy, CanBeLazy, and there are no local models.
  void OnCheckpoint(bool lazy);
  uint64_t version() const { return version_; }
  bool local() const { return local_; }
  // Whether the run has gone on from disks.
  bool restored() const { return restored_; }

  // ---- lazy checkpoints
  // This rank has seen that a member has died, or has begun another life.
  void OnLoss() { ++losses_; }
  bool AnyLoss() const { return losses_ > 1; }
  // As a call is made. `all_live`: as this rank sees it.
  uint64_t SeenLosses(bool all_live) const { return all_live ? losses_ : 0; }
  // Whether there is a lazy checkpoint that was not saved.
  bool lazy() const { return unsaved_.has_value(); }
  // Within a call: the version whose model is to be saved now.
  std::optional<uint64_t> ToSave() const;
  uint64_t base() const { return base_; }
  void OnSaved() { unsaved_.reset(); }

  // Versions whose checkpoints no rank needs any more, in their order; each is returned once.
  std::vector<uint64_t> TakeFreed() { return std::exchange(freed_, {}); }
  // The other ones, when the session is over for all ranks.
  std::vector<uint64_t> TakeRest();

 private:
  void FreeUntil(uint64_t version);

  const SessionProgress progress_;
  BootCalls boot_calls_;
  uint64_t under_way_ = 0;
  uint64_t made_ = 0;  // the last one after Load
  bool loaded_ = false;
  bool local_ = false;        // with local models
  bool restored_ = false;     // the run has gone on from disks
  uint64_t boot_ = 0;         // calls before Load
  uint64_t base_ = 0;         // calls before this version
  uint64_t base_before_ = 0;  // calls before the version before it, if this life has passed it
  uint64_t version_ = 0;
  uint64_t known_ = 0;   // the version of the last call that needs all and has ended here
  uint64_t oldest_ = 1;  // the first version whose checkpoint can be there
  bool can_be_lazy_ = false;
  std::optional<uint64_t> unsaved_;  // a lazy checkpoint
  // A life does not know what was before it.
  uint64_t losses_ = 1;
  uint64_t past_losses_ = 0;  // of members that need no checkpoint since
  std::vector<uint64_t> freed_;
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_SESSION_CORE_H_
