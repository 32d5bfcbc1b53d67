// Scopes as nodes end them: records that a scope has ended, has every node drop its copies, and
// frees the objects here, without a tombstone for each.
//
//   EndScopeRequest ──► ScopeTable ──► ScopeEnded to every node ──► ScopeConfirm ──► EndScopeReply
//   RegisterScope ────┘          └──► RunPending: kMaxFreedPerTurn objects are freed per turn
//
// An object that waits to be freed is freed before a message about it is handled (FreeIfEnded), so
// no request finds it.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_SCOPES_SCOPE_MANAGER_H_
#define PHALANX_DIRECTORY_SCOPES_SCOPE_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "phalanx/v1/scopes.pb.h"
#include "phalanx/v1/types.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/drain_manager.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/pull_scheduler.h"
#include "src/directory/reductions/reduction_manager.h"
#include "src/directory/scopes/scope_table.h"

namespace phalanx::directory {

class ScopeManager {
 public:
  // What the manager stands on; all of them outlive it.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    RecoveryGate& gate;
    ScopeTable& scopes;
    LossTable& losses;
    PlacementTable& placement_table;
    ObjectTable& objects;
    PullScheduler& pulls;
    DrainManager& drains;
    ReductionManager& reductions;
  };
  static constexpr size_t kMaxFreedPerTurn = 1024;

  explicit ScopeManager(const Parts& parts) : parts_(parts) {}

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnEndScope(Node& node, const v1::EndScopeRequest& m);
  absl::Status OnConfirm(Node& node, const v1::ScopeConfirm& m);
  // Counts only if an earlier life of the shard can have ended the scope, and would remember it.
  absl::Status OnRegister(const v1::RegisterScope& m);

  // The node names a scope in a Want. If the scope has ended, the node is notified; the Want
  // counts, for Gets there that name no scope.
  absl::Status OnNamed(Node& node, const v1::Scope& scope);
  // Returns true if an object with this info must not be announced or registered, because its scope
  // has ended; the node is notified, of each name once while it registers. A malformed scope is not
  // refused here.
  bool Refuses(Node& node, const v1::ObjectInfo& info);

  // A new session of the node begins, or the node is down.
  void SessionEnds(const NodeKey& node) { notified_.erase(node); }
  // The node's registration has ended: what the last session did not confirm is sent again.
  void SessionRegistered(const Node& node);
  // Frees the object now if its scope has ended.
  void FreeIfEnded(const ObjectId& id);
  // Frees objects of ended scopes, and answers requests.
  void RunPending();

 private:
  void Free(const ObjectId& id);
  // The message names the greatest number that has ended, so one is enough for all copies and wants
  // that the node registers.
  void Notify(const Node& node, const Scope& scope);
  void SendRefused(const NodeKey& to, const ObjectId& id, uint64_t want, const absl::Status& why);

  const Parts parts_;
  // The names of whose ends the nodes that register have been notified.
  absl::btree_map<NodeKey, absl::btree_set<std::string>> notified_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SCOPES_SCOPE_MANAGER_H_
