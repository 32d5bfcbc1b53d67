// The state and the decisions of one shard of the directory: objects, generations, copies, pulls,
// wants and reductions. The core of the protocol; pure. protos/phalanx/v1/directory.proto has the
// contract with the nodes, docs/protocol.md the reasons.
//
//   Shard (rim: sessions, streams, timers)
//     │ NodeUp / NodeDown / Connected / OnMessage(node, message, now) / Tick(now)
//     ▼
//   DirectoryCore ── uses ──► PullPlanner ── uses ──► LinkModel
//     │
//     └► TakeOutbox(): messages to nodes, in the order in which they were decided
//
// Invariants, checked by CheckInvariants in tests and simulation
//  1. At most one generation per id is adopted; every Assign and Deliver names it.
//  2. The pulls of one (object, slice) form a forest: no node is its own ancestor.
//  3. A copy is listed only for a node that is up, and only while that node has not withdrawn it.
//  4. Every pull's receiver is in `wants`; every want is answered, assigned, or has no possible
//     sender.
//  5. An object without copies, wants, standbys and tombstone has no state at all.
//
// Thread rule: no thread, lock, clock or I/O inside; replays exactly from its inputs. Owned by the
// Shard, on its control loop.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_options.h"
#include "src/directory/core/outbox.h"

namespace phalanx::directory {

class DirectoryCore {
 public:
  using Outgoing = directory::Outgoing;

  DirectoryCore(DirectoryOptions options, Instant start, Random random);
  ~DirectoryCore();

  // A node opened a new session; its registration follows as messages. If the node has an earlier
  // incarnation, or an earlier session of the same incarnation, that ends at once.
  void NodeUp(const v1::NodeInfo& node, Instant now);
  // The session is fenced (its lease ran out), or the node said goodbye. A node that may live can
  // serve its copies of names until `serves_until`; Deletes of these wait until then.
  void NodeDown(const NodeKey& node, Instant now, Instant serves_until = Instant());
  // The session's stream broke (false) or resumed (true). The core offers no disconnected node as a
  // sender.
  void NodeConnected(const NodeKey& node, bool connected, Instant now);

  // Takes one message of a node that is up. InvalidArgument, which names the object and the
  // field, if the message violates the contract; the state is unchanged then. Ignores a message
  // that is only late and returns OK.
  absl::Status OnMessage(const NodeKey& node, const v1::NodeMessage& message, Instant now);

  // Performs everything that is due.
  void Tick(Instant now);
  // The process was stopped for a while, or a turn took long. The shard did not read the nodes'
  // messages meanwhile, so every wait for a node's report starts over. Call before the next Tick.
  void NotePause(Instant now);
  Instant NextDeadline() const;

  // Everything decided since the last call, in order.
  std::vector<Outgoing> TakeOutbox();
  // Sets the number of bytes that were taken from the outbox and are not acknowledged. Zero before
  // the first call.
  void NoteUnderWay(uint64_t bytes);

  // Drains the nodes with this name until they have another session; repeated, says what is left.
  // NotFound if no node has the name; Unavailable while the shard does not know what the node has.
  absl::Status DrainNode(const v1::DrainNodeRequest& request, Instant now,
                         v1::DrainNodeResponse* out);

  // For the tools. Each answer is bounded and says what was left out. Describe returns NotFound if
  // neither the shard nor a node knows the id; List returns InvalidArgument if after_object_id is
  // not an id.
  absl::Status Describe(const ObjectId& id, Instant now, v1::DescribeObjectResponse* out) const;
  absl::Status List(const v1::ListObjectsRequest& request, Instant now,
                    v1::ListObjectsResponse* out) const;
  void ListJobs(const v1::ListJobsRequest& request, Instant now, v1::ListJobsResponse* out) const;
  // NotFound if no task of the job has joined at this shard, or the job has ended.
  absl::Status DescribeJob(const v1::DescribeJobRequest& request, Instant now,
                           v1::DescribeJobResponse* out) const;
  void FillStatus(Instant now, v1::GetStatusResponse* out) const;

  // OK, or Internal with the invariant that does not hold.
  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_H_
