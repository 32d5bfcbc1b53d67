// This node's copies of objects: their states, their pins, and the memory that they count. Pure.
//
//     id ──► Copy (adopted, complete) ──► Copy (standing by) ──► ...      almost always one
//              │ pins: readers, pushes, a writer, a running pull
//              ▼
//            detached: left the table (deleted, evicted, void); its bytes count until the last
//            pin goes
//
// Invariants, checked by CheckInvariants
//  1. used = reserved + the counted bytes of all copies, detached ones too; used <= capacity.
//     Memory is reserved before it exists.
//  2. At most one copy per (id, generation) is in the table.
//  3. The LRU list has exactly the copies that can be evicted and whose eviction no shard has been
//     asked for: complete, secondary, in the table, without pins. Oldest use first.
//  4. The list of idle partials has exactly the partial copies of pulls that have no pins. The copy
//     that has been idle for longest comes first.
//  5. A detached copy has pins.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop. A Copy* is
// valid until the copy is detached and its last pin is gone.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_OBJECT_TABLE_H_
#define PHALANX_OBJECT_STORE_OBJECTS_OBJECT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/object_store/memory/shared_memory.h"
#include "src/object_store/objects/copy_traits.h"
#include "src/object_store/objects/intrusive_list.h"

namespace phalanx::net {
class TransferBuffer;
}  // namespace phalanx::net

namespace phalanx::object_store {

enum class CopyState : uint8_t {
  kWriting,   // a client here writes it
  kPulling,   // a pull from a peer brings its bytes
  kComplete,  // all bytes are here and final
};

// The shard's verdict on the generation, as far as this node knows.
//
//   created here: kPending ─► kAdopted      pulled: kAdopted
//                     └─────► kStandby ─► kAdopted
enum class Standing : uint8_t {
  kPending,  // announced, no verdict yet
  kAdopted,  // it is the object's generation
  kStandby,  // another one is: these bytes are kept, but no Get reads them
};

struct Copy {
  // Constant.
  ObjectId id;
  Generation generation;
  uint64_t size_bytes = 0;
  CopyTraits traits;  // but for `owned` and `expires`
  // The bytes that its traits and its records count beside its own bytes.
  uint64_t record_bytes = 0;
  bool created_here = false;
  std::shared_ptr<net::TransferBuffer> buffer;
  std::shared_ptr<MemoryBlock> block;

  CopyState state = CopyState::kPulling;
  Standing standing = Standing::kPending;
  // The Put that waits for the verdict; 0 if none does.
  uint64_t waiting_put = 0;
  // The Gets of this node's clients.
  struct Reads {
    size_t streaming = 0;  // that read it now
    bool any = false;      // one was given a view of it
  };
  Reads reads;

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

  // The bytes of the capacity that it counts.
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
  // Returns false, and changes nothing, if the bytes do not fit.
  bool TryReserve(uint64_t bytes);
  // REQUIRES: so many bytes are reserved.
  void Unreserve(uint64_t bytes);
  uint64_t capacity_bytes() const { return capacity_; }
  uint64_t used_bytes() const { return used_; }
  uint64_t free_bytes() const { return capacity_ - used_; }
  uint64_t reserved_bytes() const { return reserved_; }
  // Of primary copies and copies with pins.
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  // Of all copies.
  uint64_t pins() const { return pins_; }

  // ---- copies
  // The copy takes over its reserved bytes. REQUIRES: counted_bytes() are reserved, and the
  // generation is not in the table.
  Copy* Add(std::unique_ptr<Copy> copy);
  // Null if the generation is not in the table.
  Copy* Find(const ObjectId& id, const Generation& generation) const;
  // The first copy of the id; the others follow by next_generation.
  Copy* First(const ObjectId& id) const;
  // The copy that answers Gets: complete and not standing by. Null if there is none.
  Copy* Complete(const ObjectId& id) const;

  void MarkComplete(Copy* copy);
  void MakePrimary(Copy* copy);
  // The copy may be evicted from now on.
  void MakeSecondary(Copy* copy);

  void Pin(Copy* copy);
  // The last pin of a detached copy destroys it; that of a secondary copy makes it the most
  // recently used. Returns true if the copy is destroyed.
  bool Unpin(Copy* copy);
  // Takes the copy out of the table, and destroys it now or with its last pin. Returns true if it
  // is destroyed.
  bool Detach(Copy* copy);

  // In order of (id, generation), without detached copies.
  std::vector<Copy*> Sorted() const;
  size_t objects() const { return copies_.size(); }

  // ---- eviction
  Copy* OldestCandidate() const { return lru_.front(); }
  // Of candidates, and of copies whose eviction the shards have been asked for.
  uint64_t evictable_bytes() const { return candidate_bytes_ + asked_bytes_; }
  uint64_t asked_bytes() const { return asked_bytes_; }
  size_t asked() const { return asked_; }
  // A candidate becomes the oldest one; another copy is left as it is.
  void MakeOldest(Copy* copy);
  // REQUIRES: a candidate.
  void MarkAsked(Copy* copy);
  // REQUIRES: asked. Not a candidate again before Reconsider.
  void MarkRefused(Copy* copy, Instant now);
  // Copies refused at or before `until` are candidates again, as the oldest ones.
  void Reconsider(Instant until);
  // The partial copy that has been idle for longest, and the one after a copy; null if none is.
  Copy* OldestIdlePartial() const { return idle_.front(); }
  static Copy* NextIdlePartial(const Copy* copy) { return List::Next(copy); }
  uint64_t idle_partial_bytes() const { return idle_bytes_; }
  // The time of the oldest refusal; infinite if there is none.
  Instant OldestRefusal() const;

  absl::Status CheckInvariants() const;

 private:
  // Puts the copy into the list that its state demands; `oldest`: at the front of the LRU list.
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

#endif  // PHALANX_OBJECT_STORE_OBJECTS_OBJECT_TABLE_H_
