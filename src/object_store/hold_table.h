// Who on this node holds which objects: clients, references that left this node and have not
// arrived, copies here whose bytes refer to others. The shards are told only whether anybody does.
// Pure.
//
//   clients ── Hold, Release ────────────►┐
//   Transit ── claimed, or its time over ─┼─► how many, per id ──► TakeChanges
//   copies ── AddReferences, Drop... ────►┘
//
// Invariants, checked by CheckInvariants
//  1. An id's count is what clients, transits and references have of it, each client once, however
//     often it holds the id.
//  2. An id that nobody holds, and of which its shard knows that, is not in the table.
//
// Bounded: by ids per client, by references on their way (beyond that the oldest ends early), and
// by the memory that copies count for what they refer to.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_HOLD_TABLE_H_
#define PHALANX_OBJECT_STORE_HOLD_TABLE_H_

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
#include "src/common/instant.h"

namespace phalanx::object_store {

struct HoldLimits {
  // Different ids that one client holds.
  size_t ids_per_client = 1 << 20;
  // References on their way from here, and those that copies had a moment ago.
  size_t transits = 1 << 20;
};

class HoldTable {
 public:
  using Client = uint64_t;
  using Ids = absl::Span<const ObjectId>;

  explicit HoldTable(HoldLimits limits) : limits_(limits) {}

  // ---- clients
  // ResourceExhausted, and none of them is held for it, when the client would hold too many.
  absl::Status Hold(Client client, Ids ids);
  // Ends one hold of each; what the client does not hold is passed over.
  void Release(Client client, Ids ids);
  // Everything that the client holds.
  void CloseClient(Client client);

  // ---- references on their way
  // Under a number that nobody else uses for this id; held until then, or until it is claimed.
  void Transit(const ObjectId& id, uint64_t number, Instant until);
  // Nothing happens if there is no such.
  void EndTransit(const ObjectId& id, uint64_t number);

  // ---- copies; ids of 20 bytes, one after the other
  void AddReferences(absl::string_view ids);
  void DropReferences(absl::string_view ids);
  // Held until then, by nobody in particular.
  void Linger(const ObjectId& id, Instant until);

  // ---- time
  void Expire(Instant now);
  Instant NextDeadline() const;

  // ---- what the shards are to be told
  struct Changes {
    std::vector<ObjectId> held;
    std::vector<ObjectId> unheld;
    bool empty() const { return held.empty() && unheld.empty(); }
  };
  bool changed() const { return !touched_.empty(); }
  // Since the last call, and only where it makes a difference.
  Changes TakeChanges();
  // All that is held of those chosen, in order of ids; they count as told, and the others among the
  // chosen as well: for a shard that knows nothing.
  std::vector<ObjectId> TellAgain(const std::function<bool(const ObjectId&)>& chosen);

  // ---- looking
  size_t ids() const { return ids_.size(); }
  // References on their way, and what lingers.
  size_t transits() const { return deadlines_.size(); }
  uint64_t references() const { return references_; }
  // Of a client; for checkers.
  bool Holds(Client client, const ObjectId& id) const;
  // References whose time was over before anybody claimed them; and those that ended early.
  uint64_t unclaimed() const { return unclaimed_; }
  uint64_t cut_short() const { return cut_short_; }

  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    uint32_t count = 0;
    bool told = false;
    bool touched = false;
  };
  using Deadline = std::pair<Instant, uint64_t>;  // with a serial number
  // A reference on its way, under its number, or what lingers.
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

#endif  // PHALANX_OBJECT_STORE_HOLD_TABLE_H_
