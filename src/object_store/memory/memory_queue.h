// The requests and pulls that wait for memory on this node, and the bytes of the capacity that are
// reserved before they are an object's.
//
//   Ask ─► fits now? ── yes ─────────────────► Allocate ─► SharedMemory ─► MemoryUser::OnMemory
//            └── no ──► Eviction's queue ─ granted ──┘
//                           └─ ExpireWaits: a pull that waited for too long (PullManager::OnNoRoom)
//
// A piece of memory is for a request (a Put, a Create, a reservation) or for a pull. Memory is
// reserved in the ObjectTable before it is allocated; the user makes it a copy's, or the queue
// gives it back.
//
// Invariants, checked by CheckInvariants
//  1. The table has reserved exactly what is being allocated and what reservations hold.
//  2. Each ticket has one owner; a pull's token has at most one ticket.
//  3. A request that has a ticket waits: what answers the request forgets its ticket first.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_MEMORY_MEMORY_QUEUE_H_
#define PHALANX_OBJECT_STORE_MEMORY_MEMORY_QUEUE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/common/time/executor.h"
#include "src/object_store/memory/shared_memory.h"
#include "src/object_store/objects/eviction.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

// The request that a piece of memory is for or, without one, the pull with this token.
struct MemoryOwner {
  RequestId request = 0;
  ObjectId object;
  uint64_t token = 0;
  PullTarget target;
  uint64_t size_bytes = 0;  // of the object itself
};

// What the queue needs from the store.
class MemoryUser {
 public:
  virtual ~MemoryUser() = default;
  // The owner has not ended meanwhile.
  virtual bool StillWants(const MemoryOwner& owner) const = 0;
  // The block, with its bytes and records reserved. REQUIRES: StillWants.
  virtual void OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) = 0;
  virtual void OnNoMemory(const MemoryOwner& owner, const absl::Status& why) = 0;
  // Asks the copy's shard whether the copy can be evicted.
  virtual void RequestEviction(Copy* copy) = 0;
};

class MemoryQueue {
 public:
  // All of them outlive this.
  MemoryQueue(const StoreOptions& options, Executor& executor, SharedMemory& memory, Turns& turns,
              RequestTable& requests, ObjectTable& table, PullManager& pulls, MemoryUser& user);

  // ---- owners
  // OK, or ResourceExhausted if so many bytes can never be had.
  absl::Status CheckFits(const ObjectId& id, uint64_t bytes) const;
  // Ends in OnMemory or OnNoMemory, in this call or later; or waits until it is granted, forgotten,
  // or the request's deadline passes.
  void Ask(uint64_t size, uint64_t record_bytes, MemoryOwner owner);
  // Takes `bytes` out of the reservation instead. REQUIRES: it has so many.
  void AskFrom(Reservation& from, uint64_t bytes, MemoryOwner owner);
  // The request does not wait any more.
  void Forget(Request& request);
  // Nor does the pull. Memory that is being allocated is given back when it comes.
  void ForgetToken(uint64_t token);

  // ---- reservations; contracts as in Store
  RequestId Reserve(ClientId client, const ObjectId& purpose, uint64_t bytes, Instant deadline,
                    ReserveDone done);
  void AllocateScratch(Reservation& from, uint64_t bytes, ScratchDone done);

  // ---- what happens
  // Hands out the memory that was found at once, and grants what can be granted now. Returns true
  // if there was anything to do.
  bool HandOut();
  // Pulls that have waited for too long are not promised to the shards any longer.
  void ExpireWaits();
  // The shard refused to have the copy evicted.
  void OnRefused(Copy* copy) { eviction_.Refused(copy, executor_.Now()); }
  Instant NextDeadline();

  size_t waiting() const { return eviction_.waiting(); }
  absl::Status CheckInvariants() const;

 private:
  class CountedReservation;
  // A pull that waits for memory, or did.
  struct MemoryWait {
    Instant until;
    ObjectId object;
    uint64_t token = 0;
  };

  // A block that was there when it was asked for. Handed out at the end of the turn, because its
  // owner is still in the call that asks.
  struct Found {
    uint64_t counted = 0;
    MemoryOwner owner;
    std::shared_ptr<MemoryBlock> block;
  };

  // `counted`: with the records, and reserved.
  void Allocate(uint64_t counted, MemoryOwner owner);
  void OnAllocated(uint64_t counted, const MemoryOwner& owner,
                   absl::StatusOr<std::shared_ptr<MemoryBlock>> result);
  bool HandOutFound();
  void CancelTicket(Eviction::Ticket ticket);

  const StoreOptions& options_;
  Executor& executor_;
  SharedMemory& memory_;
  Turns& turns_;
  RequestTable& requests_;
  ObjectTable& table_;
  PullManager& pulls_;
  MemoryUser& user_;

  Eviction eviction_;
  absl::flat_hash_map<Eviction::Ticket, std::pair<uint64_t, MemoryOwner>> owners_;
  absl::flat_hash_map<uint64_t, Eviction::Ticket> ticket_of_token_;
  std::deque<MemoryWait> waits_;  // in order of time
  absl::InlinedVector<Found, 1> found_;
  uint64_t allocating_bytes_ = 0;  // of `found_`, and of what is being made
  uint64_t reserved_bytes_ = 0;    // of reservations
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_MEMORY_QUEUE_H_
