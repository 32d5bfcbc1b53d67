// The objects that this node holds, and by what: clients, references that left this node and have
// not arrived, copies here whose bytes refer to other objects. The shards learn only whether this
// node holds an object at all. Pure.
//
//   clients ── Hold, Release ────────────►┐
//   Transit ── claimed, or its time over ─┼─► how many, per id ──► TakeChanges
//   copies ── AddReferences, Drop... ────►┘
//
// Invariants, checked by CheckInvariants
//  1. An id's count is the number of clients, transits and references that hold it; a client counts
//     once, however often it holds the id.
//  2. An id without holds is in the table only until its shard knows that.
//
// Bounded by ids per client, by references in transit (beyond the limit the oldest ends early), and
// by the memory that copies count for their references.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_HOLD_TABLE_H_
#define PHALANX_OBJECT_STORE_OBJECTS_HOLD_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/time/instant.h"

namespace phalanx::object_store {

struct HoldLimits {
  // Different ids that one client holds.
  size_t ids_per_client = 1 << 20;
  // References in transit, and references that linger.
  size_t transits = 1 << 20;
};

class HoldTable {
 public:
  using Client = uint64_t;
  using Ids = absl::Span<const ObjectId>;

  explicit HoldTable(HoldLimits limits) : limits_(limits) {}

  // ---- clients
  // ResourceExhausted, without holding any of them, if the client would hold too many.
  absl::Status Hold(Client client, Ids ids);
  // Ends one hold of each. Ids that the client does not hold are ignored.
  void Release(Client client, Ids ids);
  // Ends all holds of the client.
  void CloseClient(Client client);

  // ---- references in transit
  // Holds the id until `until`, or until EndTransit. REQUIRES: `number` was not used for this id.
  void Transit(const ObjectId& id, uint64_t number, Instant until);
  // Unknown numbers are ignored.
  void EndTransit(const ObjectId& id, uint64_t number);

  // ---- copies; ids of 20 bytes, one after the other
  void AddReferences(absl::string_view ids);
  void DropReferences(absl::string_view ids);
  // Holds the id until `until`.
  void Linger(const ObjectId& id, Instant until);

  // ---- time
  void Expire(Instant now);
  Instant NextDeadline() const;

  // ---- changes for the shards
  struct Changes {
    std::vector<ObjectId> held;
    std::vector<ObjectId> unheld;
    bool empty() const { return held.empty() && unheld.empty(); }
  };
  bool changed() const { return !touched_.empty(); }
  // The ids whose state differs from what their shard knows. They count as known from now on.
  Changes TakeChanges();
  // The chosen ids that are held, in order, for a shard that knows nothing. The state of all chosen
  // ids counts as known from now on.
  std::vector<ObjectId> ResendHeld(const std::function<bool(const ObjectId&)>& chosen);

  // ---- looking
  size_t ids() const { return ids_.size(); }
  // References in transit, and references that linger.
  size_t transits() const { return deadlines_.size(); }
  uint64_t references() const { return references_; }
  // Whether the client holds the id; for checkers.
  bool Holds(Client client, const ObjectId& id) const;
  // Transits that ended by time, not by a claim; and transits that ended early for lack of room.
  uint64_t unclaimed() const { return unclaimed_; }
  uint64_t cut_short() const { return cut_short_; }

  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    uint32_t count = 0;
    bool reported = false;
    bool touched = false;
  };
  using Deadline = std::pair<Instant, uint64_t>;  // with a serial number
  // A reference in transit, under its number, or one that lingers.
  struct Passing {
    ObjectId id;
    std::optional<uint64_t> number;
  };

  void Add(const ObjectId& id);
  void Drop(const ObjectId& id);
  void Touch(const ObjectId& id, Entry& entry);
  void AddPassing(const Deadline& deadline, Passing passing);
  void EndEarliest();

  const HoldLimits limits_;
  absl::flat_hash_map<ObjectId, Entry> ids_;
  std::vector<ObjectId> touched_;
  absl::flat_hash_map<Client, absl::flat_hash_map<ObjectId, uint32_t>> clients_;
  absl::flat_hash_map<std::pair<ObjectId, uint64_t>, Deadline> transits_;
  std::map<Deadline, Passing> deadlines_;
  uint64_t next_serial_ = 1;
  uint64_t references_ = 0;
  uint64_t unclaimed_ = 0;
  uint64_t cut_short_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_HOLD_TABLE_H_
