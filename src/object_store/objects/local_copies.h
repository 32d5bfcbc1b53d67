// The life of this node's copies: how they are made, sealed, dropped and evicted, with all that
// hangs on a copy (readers, pushes, references, sticky marks).
//
//   New ─► Add ─► (writing or pulling) ─► Complete ─► Evict
//                          └───────── Drop ─────────────┘
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_LOCAL_COPIES_H_
#define PHALANX_OBJECT_STORE_OBJECTS_LOCAL_COPIES_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/channel/hold_reporter.h"
#include "src/object_store/objects/local_scopes.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/store_types.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

inline CopyTraits TraitsOf(const PutOptions& options) {
  CopyTraits traits{options.metadata,
                    options.reduced_from,
                    options.asked_for,
                    options.refers_to,
                    options.owned,
                    options.name,
                    options.ttl <= kMaxTtl ? options.ttl : absl::InfiniteDuration()};
  traits.copies = options.copies;
  traits.scope = options.scope;
  return traits;
}

class LocalCopies {
 public:
  // All of them outlive this.
  LocalCopies(const StoreOptions& options, Turns& turns, ObjectTable& table, GetRequests& gets,
              HoldReporter& holds, StickyMarks& stickies);
  void SetDataPlane(net::DataPlane* data_plane) { data_plane_ = data_plane; }

  // What an object counts beside its bytes.
  uint64_t RecordBytes(const CopyTraits& traits) const;

  std::unique_ptr<Copy> New(const ObjectId& id, const Generation& generation, uint64_t size,
                            int slices, CopyTraits traits,
                            std::shared_ptr<MemoryBlock> block) const;
  // Holds what its bytes refer to. REQUIRES: as ObjectTable::Add.
  Copy* Add(std::unique_ptr<Copy> copy);
  // All bytes are here: closes the buffer and ends the streaming Gets.
  void Complete(Copy* copy);
  // The copy leaves the table; its readers' views are void, its pushes end. The caller touches the
  // object.
  void Drop(Copy* copy, const absl::Status& why);
  // The copy leaves the table. Readers and pushes keep its memory until they end.
  void Evict(Copy* copy);

  // The ended scopes, and the scopes of the copies.
  LocalScopes& scopes() { return scopes_; }
  const LocalScopes& scopes() const { return scopes_; }

  uint64_t evictions() const { return evictions_; }

 private:
  const StoreOptions& options_;
  Turns& turns_;
  ObjectTable& table_;
  GetRequests& gets_;
  HoldReporter& holds_;
  StickyMarks& stickies_;
  LocalScopes scopes_;
  net::DataPlane* data_plane_ = nullptr;
  uint64_t evictions_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_LOCAL_COPIES_H_
