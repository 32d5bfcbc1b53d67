// What this node holds: every copy of every object, who holds it in memory, and how much memory
// that is. Pure.
//
//     id ──► Copy (adopted, complete) ──► Copy (standing by) ──► ...      almost always one
//              │ pins: readers, pushes, a writer, a running pull
//              ▼
//            detached: left the table (deleted, evicted, void), its bytes still counted until the
//            last pin goes
//
// Invariants, checked by CheckInvariants
//  1. used = reserved + what all copies count, detached ones too; used <= capacity. Memory is
//     reserved before it exists.
//  2. At most one copy per (id, generation) is in the table.
//  3. The LRU list holds exactly the copies that may be evicted and were not asked for: complete,
//     secondary, in the table, without pins. Oldest use first.
//  4. The list of idle partials holds exactly the copies that were begun to be pulled, and that
//     nobody writes or reads at the moment. Idle for longest first.
//  5. A detached copy has pins.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop. A Copy* is
// valid until the copy is detached and its last pin is gone.
#ifndef PHALANX_OBJECT_STORE_OBJECT_TABLE_H_
#define PHALANX_OBJECT_STORE_OBJECT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/object_store/copy_traits.h"
#include "src/object_store/intrusive_list.h"
#include "src/object_store/shared_memory.h"

namespace phalanx::net {
class TransferBuffer;
}  // namespace phalanx::net

namespace phalanx::object_store {

enum class CopyState : uint8_t {
  kWriting,   // a client here writes it
  kPulling,   // bytes of it come, or came, from a peer
  kComplete,  // all of it is here and final
};

// What the shard says of the generation, as far as this node knows.
enum class Standing : uint8_t {
  kPending,  // announced, no verdict yet
  kAdopted,  // it is the object's generation
  kStandby,  // another one is: these bytes are kept, and shown to nobody
};

struct Copy {
  // Constant.
  ObjectId id;
  Generation generation;
  uint64_t size_bytes = 0;
  CopyTraits traits;  // but for `owned`
  // What is kept for it beside its bytes, as far as that counts: its metadata, its sources, what it
  // refers to, and its records.
  uint64_t record_bytes = 0;
  bool created_here = false;
  std::shared_ptr<net::TransferBuffer> buffer;
  std::shared_ptr<MemoryBlock> block;

  CopyState state = CopyState::kPulling;
  Standing standing = Standing::kPending;
  // The Put that waits for a verdict, 0 if none.
  uint64_t waiting_put = 0;
  // Streaming Gets that look through it.
  size_t readers = 0;

  // Changed by ObjectTable only.
  bool primary = false;
  bool detached = false;
  uint32_t pins = 0;
  enum class Eviction : uint8_t { kNone, kCandidate, kAsked, kRefused, kIdlePartial };
  Eviction eviction = Eviction::kNone;
  bool counted_as_pinned = false;
  Instant refused_at;
  Copy* next_generation = nullptr;
  ListHook<Copy> list;

  // What it counts of the capacity.
  uint64_t counted_bytes() const { return size_bytes + record_bytes; }
};

class ObjectTable {
  using List = IntrusiveList<Copy, &Copy::list>;

 public:
  explicit ObjectTable(uint64_t capacity_bytes);
  ~ObjectTable();
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;

  // ---- memory
  // False, and nothing changed, when it does not fit.
  bool TryReserve(uint64_t bytes);
  // REQUIRES: so much is reserved.
  void Unreserve(uint64_t bytes);
  uint64_t capacity_bytes() const { return capacity_; }
  uint64_t used_bytes() const { return used_; }
  uint64_t free_bytes() const { return capacity_ - used_; }
  uint64_t reserved_bytes() const { return reserved_; }
  // Of primary copies and of those with pins.
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  // Over all copies.
  uint64_t pins() const { return pins_; }

  // ---- copies
  // Its memory passes from reserved to the copy. REQUIRES: counted_bytes() are reserved, the
  // generation is not in the table.
  Copy* Add(std::unique_ptr<Copy> copy);
  // Null if it is not in the table.
  Copy* Find(const ObjectId& id, const Generation& generation) const;
  // The first copy of the id; the others follow by next_generation.
  Copy* First(const ObjectId& id) const;
  // The copy that Gets here are answered from: complete and not standing by. Null if there is none.
  Copy* Complete(const ObjectId& id) const;

  void MarkComplete(Copy* copy);
  void MakePrimary(Copy* copy);

  void Pin(Copy* copy);
  // The last pin of a detached copy ends it; that of a secondary copy makes it the most recently
  // used. True: it is gone.
  bool Unpin(Copy* copy);
  // Takes it out of the table. It ends now, or with its last pin. True: it is gone.
  bool Detach(Copy* copy);

  // In order of (id, generation); detached ones are not among them.
  std::vector<Copy*> Sorted() const;
  size_t objects() const { return copies_.size(); }

  // ---- eviction
  Copy* OldestCandidate() const { return lru_.front(); }
  // Of candidates and of copies that were asked for.
  uint64_t evictable_bytes() const { return candidate_bytes_ + asked_bytes_; }
  uint64_t asked_bytes() const { return asked_bytes_; }
  size_t asked() const { return asked_; }
  // REQUIRES: a candidate.
  void MarkAsked(Copy* copy);
  // REQUIRES: asked. Not a candidate again before Reconsider.
  void MarkRefused(Copy* copy, Instant now);
  // Those refused at or before `until` are candidates again, as the oldest ones.
  void Reconsider(Instant until);
  // The partial copy that has been idle for longest, and the next; null if there is none.
  Copy* OldestIdlePartial() const { return idle_.front(); }
  static Copy* NextIdlePartial(const Copy* copy) { return List::Next(copy); }
  uint64_t idle_partial_bytes() const { return idle_bytes_; }
  // When the oldest refusal was; infinite if none stands.
  Instant OldestRefusal() const;

  absl::Status CheckInvariants() const;

 private:
  // Puts the copy into the LRU list or takes it out, as it now may be evicted or not; `oldest`: at
  // the front.
  void Update(Copy* copy, bool oldest = false);
  void LeaveEviction(Copy* copy);
  void Unlink(Copy* copy);
  void End(Copy* copy);

  const uint64_t capacity_;
  uint64_t used_ = 0;
  uint64_t reserved_ = 0;
  uint64_t pinned_bytes_ = 0;
  uint64_t pins_ = 0;
  uint64_t candidate_bytes_ = 0;
  uint64_t asked_bytes_ = 0;
  uint64_t idle_bytes_ = 0;
  size_t asked_ = 0;
  absl::flat_hash_map<ObjectId, Copy*> copies_;  // owned
  List lru_;
  List refused_;
  List idle_;
  List detached_;  // owned
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECT_TABLE_H_
