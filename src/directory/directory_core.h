// What one shard of the directory knows and decides: objects, generations, copies, who pulls from
// whom, who waits. The protocol's heart; pure. The contract with nodes is told in
// protos/phalanx/v1/directory.proto, the reasons in docs/protocol.md.
//
//   Shard (rim: sessions, streams, timers)
//     │ NodeUp / NodeDown / Connected / OnMessage(node, message, now) / Tick(now)
//     ▼
//   DirectoryCore ── uses ──► BroadcastPlanner ── uses ──► LinkModel
//     │
//     └► TakeOutbox(): messages to nodes, in the order they were decided
//
// Invariants, checked by CheckInvariants in tests and simulation
//  1. At most one generation per id is adopted; every Assign and Deliver names it.
//  2. The pulls of one (object, slice) form a forest: no node is its own ancestor.
//  3. A copy is listed only for a node that is up, and only while that node has not withdrawn it.
//  4. Every pull's receiver is in `wants`; every want is answered, assigned, or has nobody to be
//     assigned to.
//  5. An object without copies, wants, standbys and tombstone has no state at all.
//
// Thread rule: no thread, lock, clock or I/O inside; replays exactly from its inputs. Owned by the
// Shard, on its control loop.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CORE_H_
#define PHALANX_DIRECTORY_DIRECTORY_CORE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/common/random.h"

namespace phalanx::directory {

struct DirectoryOptions {
  absl::Duration lease = absl::Seconds(2);
  // The shard has had no earlier life of which a node could tell: what it does not know is not
  // there, from the start on and not only when a lease has passed.
  bool first_life = false;
  uint64_t inline_cache_bytes = uint64_t{256} << 20;
  // Inline bytes that nodes have not acknowledged yet, over all sessions: beyond it nodes are named
  // a sender, if there is one, instead of being sent the bytes.
  uint64_t inline_under_way_bytes = uint64_t{128} << 20;
  // So much is sent in one turn without asking whether a sender would be faster.
  uint64_t inline_burst_bytes = 128 << 10;
  // Shorter objects are sent without asking: to name a sender, and to hear of the pull, costs the
  // shard about as much.
  uint64_t inline_always_bytes = 2 << 10;
  // About so many bytes does a relay hand on at a time: what it adds to each of its receivers.
  uint64_t relay_bytes = 16 << 10;
  // Of shorter objects no neighbour is waited for (v1::Want): links are not what takes time.
  uint64_t least_near_bytes = 1 << 20;
  absl::Duration tombstone_age = absl::Minutes(10);
  size_t max_tombstones = 1 << 20;
  // Waiting Wants over all objects; beyond it a Want's node is told ResourceExhausted.
  size_t max_waiting = 1 << 22;
  // Which shard of how many this is: the others watch sources for it.
  int shard_index = 0;
  int num_shards = 1;
  // Reductions that have not ended, and their sources over all of them; beyond it a ReduceRequest
  // is answered ResourceExhausted.
  size_t max_reductions = 1 << 16;
  size_t max_reduce_sources = 1 << 22;
  // Requests that wait for reductions to end; beyond it a ReduceRequest is answered
  // ResourceExhausted, too.
  size_t max_reduce_askers = 1 << 20;
  // Reductions that are over are remembered, the oldest forgotten first; and of open ones so many
  // sources, and requests for them.
  size_t max_ended_reductions = 1 << 14;
  size_t max_ended_entries = 1 << 20;
  // Objects whose producers failed are remembered, the oldest forgotten first.
  size_t max_failed = 1 << 16;
  // So are those whose last copy was lost.
  size_t max_lost = 1 << 18;
  // Objects that nodes hold, over all nodes; beyond it nothing is freed until there are fewer.
  size_t max_holds = 1 << 26;
  // Deletes and queries put off to the end of the first lease, and the bytes of the names in these
  // and in broadcasts put off; beyond it they are answered ResourceExhausted.
  size_t max_deferred = 1 << 20;
  size_t max_deferred_name_bytes = 64 << 20;
  // Of the names in marks of lost objects; beyond it they are not remembered.
  size_t max_lost_name_bytes = 64 << 20;
  // Objects that are sticky, and broadcasts that are waited for; beyond it a BroadcastRequest is
  // answered ResourceExhausted.
  size_t max_sticky = 1 << 16;
  size_t max_broadcasts = 1 << 16;
};

class DirectoryCore {
 public:
  struct Outgoing {
    NodeKey to;
    v1::ShardMessage message;
  };

  DirectoryCore(DirectoryOptions options, Instant start, Random random);
  ~DirectoryCore();

  // A node opened a new session; its registration follows as messages. An earlier life of the same
  // node, or an earlier session of the same life, ends at once.
  void NodeUp(const v1::NodeInfo& node, Instant now);
  // The session is fenced (lease ran out) or the node said goodbye.
  void NodeDown(const NodeKey& node, Instant now);
  // The session's stream broke (false) or resumed (true): a node that is not connected is not
  // offered as a sender.
  void NodeConnected(const NodeKey& node, bool connected, Instant now);

  // Takes one message of a node that is up. InvalidArgument (naming the object and field) for one
  // that does not satisfy the contract; nothing is changed then. Messages that are merely late are
  // ignored with OK.
  absl::Status OnMessage(const NodeKey& node, const v1::NodeMessage& message, Instant now);

  // Does what is due.
  void Tick(Instant now);
  // The process was stopped for a while, or a turn took long: what nodes said meanwhile was not
  // heard, so every wait for their word begins anew. Before the next Tick.
  void NotePause(Instant now);
  Instant NextDeadline() const;

  // Everything decided since the last call, in order.
  std::vector<Outgoing> TakeOutbox();
  // How many bytes of what was taken from the outbox are not acknowledged. Zero until told.
  void NoteUnderWay(uint64_t bytes);

  // For the tools; each answer is bounded and says what was left out. Describe is NotFound for an
  // id that nobody knows, List InvalidArgument for an after_object_id that is no id.
  absl::Status Describe(const ObjectId& id, Instant now, v1::DescribeObjectResponse* out) const;
  absl::Status List(const v1::ListObjectsRequest& request, v1::ListObjectsResponse* out) const;
  void FillStatus(Instant now, v1::GetStatusResponse* out) const;

  // OK, or Internal with the invariant that does not hold.
  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DIRECTORY_CORE_H_
