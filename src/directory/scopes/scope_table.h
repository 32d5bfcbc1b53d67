// The scopes of a shard's objects: which have ended, which objects are in which scope, and the
// requests that wait until every node has heard of an end. Pure.
//
//   Add(scope, id) ──► live ──End(scope)──► ended, queued ──TakeEnded──► freed by ScopeManager
//   End(scope, requester) ──► missing nodes ──Confirm | NodeDown──► Answer
//
// Scopes of one name are ordered by their numbers, and to end one ends all with smaller numbers. So
// one record for each name is enough: the greatest number that has ended. It stands for a tombstone
// of each object.
//
// A record ends when the scope's last End is options.tombstone_age ago. Beyond
// options.max_ended_scopes the one whose End is the longest ago goes first.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no clock, no I/O. Invariants
// (CheckInvariants)
//  1. A name has a record while it has ended, has objects, or a request waits for it.
//  2. An object of an ended scope is queued until it is taken.
//  3. A request waits while a node is missing.
#ifndef PHALANX_DIRECTORY_SCOPES_SCOPE_TABLE_H_
#define PHALANX_DIRECTORY_SCOPES_SCOPE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"

namespace phalanx::directory {

class ScopeTable {
 public:
  // A request that is to be answered.
  struct Requester {
    NodeKey node;
    uint64_t request_id = 0;
  };

  // Among the nodes that a request waits for: those that have not registered yet, of a shard that
  // learns.
  static constexpr NodeKey kUnregistered{};

  explicit ScopeTable(CoreContext& context) : context_(context) {}

  // ---- records
  // The scope has ended, and those with smaller numbers. Returns true if it had not ended before;
  // in any case its record is as if it had ended now.
  bool End(const Scope& scope);
  // Returns false if there is no scope.
  bool HasEnded(const Scope& scope) const;
  // The greatest number that has ended. REQUIRES: one of the name has.
  uint64_t LastEnded(const std::string& name) const { return *records_.at(name).ended; }
  // Forgets the records that are old.
  void Expire();
  Instant NextDeadline() const;

  // ---- objects
  // The adopted generation of the object is in the scope. Does nothing if there is no scope.
  void Add(const Scope& scope, const ObjectId& id);
  void Remove(const Scope& scope, const ObjectId& id);
  // Returns up to `most` objects whose scopes have ended; they are listed until they are removed.
  std::vector<ObjectId> FirstEnded(size_t most) const;
  bool has_ended_objects() const { return !to_free_.empty(); }

  // ---- requests
  // The request is answered when each of the nodes has confirmed. Returns ResourceExhausted beyond
  // options.max_broadcasts requests.
  absl::Status Await(const Scope& scope, const Requester& requester,
                     absl::btree_set<NodeKey> missing);
  // The node has dropped what it had of the scope.
  void Confirm(const NodeKey& node, const Scope& scope);
  // A node has come: requests that wait for nodes that have not registered wait for it.
  void NodeAdded(const NodeKey& node);
  // No further node can register copies from before the requests.
  void EndLearning() { NodeDown(kUnregistered); }
  // A new session of the node: its own requests end, since it repeats them.
  void SessionBegins(const NodeKey& node);
  // The node's requests end, and no request waits for the node.
  void NodeDown(const NodeKey& node);
  // The scopes that requests wait for the node to confirm.
  std::vector<Scope> AwaitedFrom(const NodeKey& node) const;
  // The requests that wait for no node any more.
  std::vector<Requester> TakeAnswers() { return std::exchange(answers_, {}); }

  // ---- looking
  size_t ended() const { return ended_; }
  size_t requests() const { return requests_; }
  size_t objects() const { return objects_; }
  absl::Status CheckInvariants() const;

 private:
  struct Waiting {
    Requester requester;
    uint64_t number = 0;
    absl::btree_set<NodeKey> missing;
  };
  struct Record {
    std::optional<uint64_t> ended;  // the greatest number that has
    Instant ended_at;
    absl::btree_map<uint64_t, absl::btree_set<ObjectId>> objects;
    std::vector<Waiting> waiting;

    bool unused() const { return !ended.has_value() && objects.empty() && waiting.empty(); }
  };
  using Records = absl::btree_map<std::string, Record>;

  void Forget(Records::iterator at);
  void AnswerCompleted(Records::iterator at);
  // Ends the requests of the node; `down`: no request waits for it either.
  void EndParts(const NodeKey& node, bool down);

  CoreContext& context_;
  Records records_;
  absl::btree_set<std::pair<Instant, std::string>> by_age_;  // of the names that have ended
  absl::btree_set<ObjectId> to_free_;
  absl::btree_set<std::string> awaited_;  // the names for which requests wait
  std::vector<Requester> answers_;
  size_t ended_ = 0;
  size_t requests_ = 0;
  size_t objects_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SCOPES_SCOPE_TABLE_H_
