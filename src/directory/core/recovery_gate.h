// Decides when a shard that has just started may conclude from what it does not know.
//
//   start ──► learning ──(one lease has passed and no node is still registering)──► open
//
// "The gate is learning" is the same as "the shard is learning" (docs/protocol.md): the gate holds
// that state. While the gate is learning, nodes register what an earlier life of the shard knew, so
// the absence of an object proves nothing: requests that would be decided by absence wait here. A
// shard whose options say `first_life` is open from the start.
//
// Owned by DirectoryCore, which opens the gate and answers the requests. Thread rule: the shard's
// control loop. Invariants
//  1. The queues are bounded by options.max_deferred, max_broadcasts and max_deferred_name_bytes.
//  2. The queues are empty once the gate is open.
#ifndef PHALANX_DIRECTORY_CORE_RECOVERY_GATE_H_
#define PHALANX_DIRECTORY_CORE_RECOVERY_GATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"

namespace phalanx::directory {

// A Query, Delete or Keep that waits. Dropped if the node opens a new session: it repeats the
// request there.
struct DeferredRequest {
  enum class Kind { kQuery, kDelete, kKeep };

  NodeKey node;
  uint64_t session = 0;
  uint64_t request_id = 0;
  Kind kind = Kind::kQuery;
  std::vector<std::string> names = {};  // of a query: the nodes that it asks about
};

struct DeferredBroadcast {
  NodeKey node;
  uint64_t session = 0;
  v1::BroadcastRequest request;
  bool cancelled = false;  // the requester left before the broadcast began
};

struct DeferredExtend {
  NodeKey node;
  uint64_t session = 0;
  v1::ExtendRequest request;
};

class RecoveryGate {
 public:
  explicit RecoveryGate(const CoreContext& context);

  bool learning() const { return learning_; }
  // Returns true if a node has registered something of an earlier life of this shard.
  bool restarted() const { return restarted_; }
  // Returns true if a new generation of an unknown id can be adopted: no node can register an older
  // one.
  bool MayAdoptFromAbsence() const { return !learning_ || !restarted_; }

  void NoteEarlierLife() { restarted_ = true; }
  // The process was paused: learning lasts at least until `until`.
  void ExtendTo(Instant until);
  // Returns true if learning can end now. `registering`: a node has not sent RegisterEnd. A node
  // that never does is waited for during kMaxLearningLeases.
  bool Due(bool registering) const;
  void Open() { learning_ = false; }
  Instant NextDeadline() const;

  // Each returns false, and keeps nothing, if too many requests wait.
  bool Defer(const ObjectId& id, DeferredRequest request);
  bool Defer(DeferredBroadcast broadcast);
  bool Defer(DeferredExtend extend);
  // The text of the ResourceExhausted that answers a refused request.
  std::string FullMessage(const ObjectId& id) const;
  // The requester of a broadcast that has not begun leaves.
  void CancelBroadcast(const NodeKey& node, uint64_t request_id);

  std::vector<DeferredRequest> TakeRequests(const ObjectId& id);
  // The smallest id with waiting requests; REQUIRES: has_requests().
  ObjectId NextRequestId() const { return requests_.begin()->first; }
  bool has_requests() const { return !requests_.empty(); }
  std::vector<DeferredBroadcast> TakeBroadcasts();
  std::vector<DeferredExtend> TakeExtends();
  size_t num_extends() const { return extends_.size(); }

  absl::Status CheckInvariants() const;

 private:
  const CoreContext& context_;
  bool learning_;
  bool restarted_ = false;
  Instant learn_until_;

  absl::btree_map<ObjectId, std::vector<DeferredRequest>> requests_;
  size_t num_requests_ = 0;
  std::vector<DeferredBroadcast> broadcasts_;
  size_t name_bytes_ = 0;  // of node names in requests_ and broadcasts_
  std::vector<DeferredExtend> extends_;
  size_t extend_sources_ = 0;  // of extends_, each with one more for itself
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_RECOVERY_GATE_H_
