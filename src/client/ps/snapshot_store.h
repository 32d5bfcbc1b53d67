// SnapshotStore: the snapshots of one part of a table, as objects of the store, and how the next
// life of a server finds the newest one.
//
// Snapshots have numbers 1, 2, 3, ... Each is an object in a scope of its part, which is ended when
// the next one has its copies: no tombstone stays. A server that has just been started knows no
// number. So beside each snapshot there is a mark, an object that says which life and attempt have
// written it, and those marks stay that lead to it bit by bit:
//
//   newest snapshot    marks that are there       they are tested from the highest bit on
//   5 = 101            100, 101                   1000? no. 100? yes. 110? no. 101? yes: 5
//   6 = 110            100, 110                   1000? no. 100? yes. 110? yes. 111? no: 6
//   8 = 1000           1000
//
// A snapshot is named by its number, the life that has written it, and its attempt, the number that
// the server gives to what it writes: bytes that a failed attempt has left do not count, as the
// mark names another one. The marks with the same number of zeros at their end are in one scope. A
// mark is made when its snapshot has its copies, and ends those with fewer zeros. There are at most
// as many as bits.
//
// When all workers have left, the same job can begin anew, with later numbers: scopes that have
// ended refuse earlier ones. So the last number of a run stays for an hour, in one of two slots:
// objects with fixed names, which are deleted and put again. The marks of the next run count from
// that number, its base: they are named by the base and by how far they are behind it. A run with a
// base keeps it, for as long as it takes, in the other slot. The greater base counts, so a death
// between two steps leaves either the run that ends or its end, and never none of them.
//
// A job that goes on from disks finds nothing here, and a shard can remember what it had ended: so
// it counts from a number behind all that, which is its base.
//
// Belongs to a server. One thread at a time.
#ifndef PHALANX_CLIENT_PS_SNAPSHOT_STORE_H_
#define PHALANX_CLIENT_PS_SNAPSHOT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {

// The marks have so many bits: snapshots of a part in one run, at most.
inline constexpr int kMarkBits = 40;
// For a snapshot and its copies.
inline constexpr absl::Duration kWritePatience = absl::Minutes(2);

class SnapshotStore {
 public:
  // `part` names the job, role, table and part. Each snapshot is on so many hosts beside the
  // server's.
  SnapshotStore(std::shared_ptr<Client> client, std::string part, uint64_t life, uint32_t copies);

  // The newest snapshot that has had its copies. Nothing: there is none, or the job had ended.
  // DataLoss: none of its copies is left. DeadlineExceeded.
  struct Found {
    uint64_t attempt = 0;
    Buffer bytes;
  };
  absl::StatusOr<std::optional<Found>> Find(absl::Duration timeout);

  // Of what is in the store.
  uint64_t newest() const { return newest_; }
  // Snapshots get numbers behind this one from now on, also in later lives. REQUIRES: Find has
  // found nothing, and nothing was written that counts. AlreadyExists: another life does the same;
  // DeadlineExceeded.
  absl::Status BeginBehind(uint64_t number, absl::Duration timeout);
  // Begins to write the next snapshot; the bytes are copied. It fails if it has not its copies
  // after `patience`. REQUIRES: Find has been called, none is under way, and this store has written
  // no such attempt.
  void Write(uint64_t attempt, absl::string_view bytes, absl::Duration patience = kWritePatience);
  // For deaths on order: begins to write it, and returns true when the node has so many bytes of
  // it, or if it has no more than that, when it has its copies. Then there is no other call.
  bool WritePart(uint64_t attempt, absl::string_view bytes, uint64_t size);
  // What Write has begun: OK when the snapshot counts, or its error. Nothing: it is under way, or
  // there is none. Drives nothing; see Watch.
  std::optional<absl::Status> TakeWritten();
  // Whether TakeWritten has something to do. Any thread.
  bool ready() const;
  // Those before the newest are needed no more.
  void FreeOlder();
  // The job has ended: nothing of it stays but its last number. Waits for the store, up to the
  // timeout.
  absl::Status End(absl::Duration timeout);

 private:
  // What is in a slot.
  struct Slot {
    uint64_t base = 0;
    bool ended = false;  // by the run before, and it does not stay
  };
  ObjectId SlotId(int slot) const;
  // Nothing: there is none.
  absl::StatusOr<std::optional<Slot>> ReadSlot(int slot, Instant until) const;
  absl::Status WriteSlot(int slot, const Slot& content, Instant until);
  absl::Status DeleteSlot(int slot, Instant until);
  absl::Status FindBase(Instant until);
  ObjectId MarkId(uint64_t number) const;
  Scope MarkScope(uint64_t number) const;
  Scope MarksWithZeros(int zeros, uint64_t number) const;
  // Who has written a snapshot.
  struct Writer {
    uint64_t life = 0;
    uint64_t attempt = 0;
  };
  ObjectId SnapshotId(uint64_t number, const Writer& writer) const;
  static std::string MarkBytes(const Writer& writer);
  PutOptions Options(Scope scope, absl::Duration timeout) const;
  void EndSmallerMarks(uint64_t number);
  // AlreadyExists: what Write has written is that of an earlier life, and does not count.
  absl::Status Foreign() const;

  const std::shared_ptr<Client> client_;
  const std::string part_;
  Writer writer_;  // of this life
  const uint32_t copies_;
  uint64_t base_ = 0;    // the last number of the run before
  int base_slot_ = 0;    // that stays, if there is a base
  uint64_t newest_ = 0;  // that counts; base_ if there is none
  Future<PutResult> snapshot_, mark_;
  bool snapshot_under_way_ = false, mark_under_way_ = false;
  // Of scopes, that have not been answered.
  std::vector<Future<Done>> ends_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_SNAPSHOT_STORE_H_
