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
#include "src/directory/core/directory_options.h"
#include "src/directory/core/outbox.h"

namespace phalanx::directory {

class DirectoryCore {
 public:
  using Outgoing = directory::Outgoing;

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
