// What a shard keeps of each object, node and request. Plain values, of DirectoryCore::Impl alone,
// which keeps them consistent (CheckInvariants); included by directory_core_impl.h.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CORE_RECORDS_H_
#define PHALANX_DIRECTORY_DIRECTORY_CORE_RECORDS_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/broadcast_planner.h"
#include "src/directory/broadcast_tree.h"
#include "src/directory/broadcasts/broadcasts.h"
#include "src/directory/reduce_result.h"
#include "src/directory/validate.h"

namespace phalanx::directory {

// How a copy came here, for the tools; made when its first pull is planned.
struct PullRecord {
  NodeKey sender;
  PlanId plan = 0;
  double bytes_per_second = 0;
  uint64_t bytes_received = 0;
  uint64_t starved_ns = 0;  // since `started`, by the receiver's last word
  Instant started;
  Instant ended = Instant::Infinite();
  uint32_t repairs = 0;
  // Its node has told how it ended. Until then the copy may be complete without our knowing.
  bool reported = false;
};

// A node's copy of the adopted generation.
struct Copy {
  bool complete = false;
  bool primary = false;
  // Created here and not yet sealed: grows by its writer's hand, not by a pull.
  bool writer = false;
  // Sent with a Deliver, which the node may not be able to keep: not counted when another is
  // evicted.
  bool unconfirmed = false;
  // Known from a session that has ended; gone unless the new session registers it.
  bool stale = false;
  // Listed by a registration in this session: its pull may have an earlier session's plan.
  bool registered = false;
  // Who feeds it, as its node told when it registered; until the registration ends.
  NodeKey registered_sender;
  // Of the mark that it was registered with: its node need not be told that one.
  uint64_t registered_stamp = 0;
  absl::InlinedVector<uint64_t, 1> watermarks;
  std::unique_ptr<PullRecord> pull;
};

struct Want {
  uint64_t order = 0;
  uint64_t number = 0;  // the node's; repeated in each Assign
  bool keep = false;
  // Assigned to a sender: the receiver has feeds in the tree, or is fed by a sender that has not
  // registered yet.
  bool pulling = false;
  NodeKey outside_sender;
  // From a session that has ended, or of one whose registration has not ended: not planned.
  bool held = false;
  int withdrawals = 0;
  Instant not_before;
  // Its node has no memory for this generation: not planned while it is the object's.
  Generation no_room_for;
  // Preferred for the first pull: the node that made this object, which is waited for until then.
  ObjectId near;
  std::optional<Instant> patient_until;
};

// A generation that is not the adopted one, at the node that holds it.
struct Attempt {
  Generation generation;
  NodeKey node;
  ObjectInfo info;
  bool complete = false;
  // Told SUPERSEDED; remembered until its node has dropped it.
  bool superseded = false;
  bool stale = false;
  // By its node's word it was adopted in an earlier life of the shard: what stands in its way now
  // may turn out to be deleted.
  bool adopted = false;
  BroadcastMark mark = {};  // as its node has registered it
};

struct Object {
  explicit Object(const ObjectId& object_id) : id(object_id) {}

  const ObjectId id;

  // The adopted generation, if there is one.
  bool adopted = false;
  // A complete copy was seen: from then on the generation can be lost, but not be void.
  bool sealed = false;
  // Adopted from absence, in the first lease after a start: gives way to one that was adopted
  // before.
  bool tentative = false;
  // Its creator is told that it is adopted when it is no longer tentative: who has been told so is
  // never let down.
  bool verdict_held = false;
  bool loss_told = false;
  // Whose complete copy went last.
  std::string last_holder;
  // Owned and held by nobody, yet not freed until then: a reduction may be about to need it again.
  Instant spared_until;
  // Plans from here on are of this adoption. A generation can be given up and come back with a
  // fenced node; what was reported under plans from before is void, as its nodes were told.
  PlanId first_plan = 0;
  Generation generation;
  ObjectInfo info;
  absl::btree_map<NodeKey, Copy> copies;
  int complete_copies = 0;
  int writers = 0;  // copies that are being written

  std::vector<Attempt> attempts;
  uint32_t conflicts = 0;

  absl::btree_map<NodeKey, Want> wants;
  absl::btree_set<std::pair<uint64_t, NodeKey>>
      waiting;                          // those of `wants` that are not pulling, oldest first
  std::unique_ptr<BroadcastTree> tree;  // while there is something to plan

  // The last source of bytes is gone: receivers it was feeding, who may have got every byte and not
  // told yet. Until they have, or a lease has passed, the generation is neither void nor lost.
  absl::btree_set<NodeKey> last_hopes;
  Instant void_at = Instant::Infinite();

  bool inline_cached = false;
  std::string inline_bytes;
  std::list<Object*>::iterator inline_age;

  // Who was asked to fetch the sole copy of a leaving node.
  NodeKey drain_target;
  Instant timer = Instant::Infinite();
};

struct Tombstone {
  // The deleted one first, then those that stood by. The number of a reduction is among them if it
  // was cancelled before anything was adopted.
  absl::InlinedVector<Generation, 1> generations;
  ObjectInfo info;
  // Who was told to drop which of them and has not confirmed it, and in which of its sessions: what
  // it does not register in the next is dropped.
  absl::btree_map<std::pair<NodeKey, Generation>, uint64_t> unconfirmed;
  // The id was put again since: only the old generations are refused, who wants the object waits.
  bool revived = false;
  Instant since;
  uint64_t order = 0;  // its place by age; 0 once it has outlived its age
};

struct Node {
  v1::NodeInfo info;
  NodeKey key;
  Endpoint endpoint;
  uint64_t session = 0;  // counts the node's sessions, to tell old requests from new ones
  bool connected = true;
  // From the session's beginning to RegisterEnd.
  bool registering = false;
  bool draining = false;
  // Where it has a copy, a want or an attempt. Iterated in order of ids only.
  absl::flat_hash_set<ObjectId> objects;
  absl::flat_hash_set<ObjectId> unconfirmed;  // tombstones
  uint64_t copies = 0;
  uint64_t pulls = 0;
  // While draining: objects whose only complete copies are on leaving nodes, this among them; those
  // that another node was asked to fetch, and those whose turn is still to come.
  absl::btree_set<ObjectId> sole_fetching;
  absl::btree_set<ObjectId> sole_queued;
  // For which no node had room; queued again when room may have come.
  absl::btree_set<ObjectId> sole_stuck;
  std::optional<size_t> drain_told;
  Instant last_heard;
};

// A node that could not take the sole copy of a leaving one.
struct DrainRefusal {
  int times = 0;
  Instant until;
};

// Requests that absence would decide wrongly, put off to the end of the first lease.
struct Deferred {
  NodeKey node;
  uint64_t session = 0;
  uint64_t request_id = 0;
  enum class Kind { kQuery, kDelete, kKeep } kind = Kind::kQuery;
  std::vector<std::string> names = {};  // of a query
};

struct DeferredBroadcast {
  NodeKey node;
  uint64_t session = 0;
  v1::BroadcastRequest request;
  bool left = false;
};

// What names take in what is deferred.
template <typename Names>
size_t BytesOf(const Names& names) {
  size_t bytes = 0;
  for (const std::string& name : names) bytes += sizeof(std::string) + name.size();
  return bytes;
}

// An object of which no complete copy is left.
struct LostObject {
  Generation generation;
  std::string reason;  // names the node that had the last one
  // Who returns with a copy was told it, or an earlier one.
  BroadcastMark mark = {};
  uint64_t order = 0;
};

// What hash sets are iterated by: the order in which things are decided is everywhere the same.
inline std::vector<ObjectId> Sorted(const absl::flat_hash_set<ObjectId>& ids) {
  std::vector<ObjectId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DIRECTORY_CORE_RECORDS_H_
