// This node's holds, as the shards know them: changes of the HoldTable become messages, and copies
// here hold the objects that their bytes refer to.
//
//   clients, transits, copies ──► HoldTable ── Flush ──► ShardChannel (Hold, Claim, Unhold)
//
// A shard must know a hold before any message after which the object could lose its other holds:
// that an owned object begins, that a reduction of one is asked for, that a reference was claimed.
// So Flush comes before these.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_HOLD_REPORTER_H_
#define PHALANX_OBJECT_STORE_CHANNEL_HOLD_REPORTER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/common/time/executor.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/objects/hold_table.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/store_types.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

class HoldReporter {
 public:
  // All of them outlive this.
  HoldReporter(const StoreOptions& options, Executor& executor, ShardChannel& channel, Turns& turns,
               const RequestTable& clients);

  // ---- what holds
  // Errors as HoldTable::Hold; InvalidArgument for the nil id, or if the client is not
  // open.
  absl::Status Hold(ClientId client, absl::Span<const ObjectId> ids);
  // Holds the object, and sends the node that the reference comes from a Claimed. Errors as Hold.
  absl::Status Claim(ClientId client, const ObjectId& id, const TransitMark& from);
  // Held for `transit_patience`, or until it is claimed.
  void Transit(const ObjectId& id, uint64_t number);
  // What the copy's bytes refer to.
  void HoldReferences(const Copy& copy);
  // The copy is about to leave the table.
  void DropReferences(const Copy& copy);
  HoldTable& table() { return table_; }
  const HoldTable& table() const { return table_; }

  // ---- the shards
  void OnClaimed(const v1::Claimed& claimed);
  // Sends the changes and the claims since the last call.
  void Flush();
  // At the end of a turn: Flush (or later, with Defect::kHoldAfterAnnouncement).
  void Settle();

  // `copies`: all copies of the table. OK, or Internal.
  absl::Status CheckInvariants(const std::vector<Copy*>& copies) const;

 private:
  struct PendingClaim {
    ObjectId id;
    TransitMark from;
  };

  void Send(const std::vector<ObjectId>& ids, bool held);
  void SendClaims();

  const StoreOptions& options_;
  Executor& executor_;
  ShardChannel& channel_;
  Turns& turns_;
  const RequestTable& clients_;
  HoldTable table_;
  // Sent by the next Flush, after the holds.
  std::vector<PendingClaim> claims_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_HOLD_REPORTER_H_
