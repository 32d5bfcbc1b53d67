// The inside of DirectoryCore: the components of a shard, the order in which they hear of nodes and
// time, and the component that handles each kind of message. Decides nothing itself.
//
//                         DirectoryCore::Impl (router)
//     ┌───────────┬───────────┬─────┴──────┬──────────────┬──────────────┐
//   requests  holds, scopes  report    placements  drains, copies   reductions
//     └───────────┴───────────┴─────┬──────┴──────────────┴──────────────┘
//                                 pulls                                          jobs
//                                   │   (ObjectPulls, ObjectReductions, ObjectDrains,
//                                   ObjectPlacements: up)
//                                objects
//     ┌──────────┬──────────┬───────┴────┬──────────────┬─────────────────┐
//   nodes     outbox      gate     tombstones,    losses, failures,  hold sets, placement table
//                                  expiries       scope table
//
// An arrow down is a reference; the only way up is an interface. Included by directory_core.cc
// alone.
#ifndef PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_IMPL_H_
#define PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_IMPL_H_

#include "absl/status/status.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/core/status_report.h"
#include "src/directory/jobs/job_manager.h"
#include "src/directory/objects/expiry_queue.h"
#include "src/directory/objects/failure_table.h"
#include "src/directory/objects/hold_manager.h"
#include "src/directory/objects/hold_sets.h"
#include "src/directory/objects/inline_cache.h"
#include "src/directory/objects/loss_table.h"
#include "src/directory/objects/object_requests.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/objects/tombstone_table.h"
#include "src/directory/placement/copy_keeper.h"
#include "src/directory/placement/drain_manager.h"
#include "src/directory/placement/placement_manager.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/pull_scheduler.h"
#include "src/directory/reductions/reduction_manager.h"
#include "src/directory/scopes/scope_manager.h"
#include "src/directory/scopes/scope_table.h"

namespace phalanx::directory {

// The components that order nodes to keep copies, and what the pulls report to both of them.
struct KeepOrders final : public PullListener {
  explicit KeepOrders(const CopyKeeper::Parts& parts)
      : drains(parts.context, parts.nodes, parts.outbox, parts.objects), copies(parts) {}

  void OnRefused(Object& object, const NodeKey& node) override {
    drains.OnRefused(object, node);
    copies.OnRefused(object.id, node);
  }
  void OnOrderRefused(const ObjectId& id, const NodeKey& node, PlanId plan) override {
    copies.OnOrderRefused(id, node, plan);
  }
  void OnReported(Object& object, const NodeKey& node, PlanId plan, bool primary) override {
    copies.OnReported(object, node, plan, primary);
  }
  void OnRoomFreed() override {
    drains.OnRoomFreed();
    copies.OnRoomFreed();
  }

  DrainManager drains;
  CopyKeeper copies;
};

// Why there is no copy of an object, for nodes that want it.
struct Absences {
  explicit Absences(CoreContext& context) : losses(context), failures(context), scopes(context) {}

  LossTable losses;
  FailureTable failures;
  ScopeTable scopes;
};

struct DirectoryCore::Impl {
  Impl(const DirectoryOptions& options, Instant start, Random random);

  // ---- nodes
  void NodeUp(const v1::NodeInfo& info);
  void NodeDown(const NodeKey& key, Instant serves_until);
  void NodeConnected(const NodeKey& key, bool connected);

  // ---- messages. OnMessage prefixes the error of Handle with the node and the object.
  absl::Status OnMessage(const NodeKey& key, const v1::NodeMessage& message);
  absl::Status Handle(Node& node, const v1::NodeMessage& message);
  absl::Status HandleRegistration(Node& node, const v1::NodeMessage& message);
  absl::Status OnRegisterCopy(Node& node, const v1::RegisterCopy& m);
  void OnRegisterEnd(Node& node);
  void OnDrain(Node& node);
  std::vector<Node*> NodesNamed(const std::string& name) const;
  // The node has registered, and its lease begins.
  void SendRegistered(Node& node);

  // ---- time
  void Tick();
  void NotePause();
  Instant NextDeadline() const;
  void EndLearningIfDue();
  void EndLearning();
  // Answers the requests about the object that waited at the gate.
  void AnswerDeferred(const ObjectId& id);
  // Ends a turn. Does what the components put off until the message, node or time of this turn was
  // handled: the plans of changed reductions, the deletion of unreferenced objects, the orders and
  // answers of broadcasts, and the reports of drains.
  void RunPendingWork();

  // What the tools are shown: reads the components.
  StatusReport Report() const {
    return StatusReport({context, nodes, hold_sets, tombstones, requests.delete_waits(),
                         inline_cache, placement_table, orders.copies, absences.scopes, objects,
                         pulls, reductions, jobs});
  }
  absl::Status CheckInvariants() const;

  CoreContext context;
  Outbox outbox;
  NodeTable nodes;
  RecoveryGate gate;
  InlineCache inline_cache;
  TombstoneTable tombstones;
  Absences absences;
  ExpiryQueue expiries;
  HoldSets hold_sets;
  PlacementTable placement_table;
  ObjectListeners listeners;
  ObjectTable objects;
  KeepOrders orders;
  PullScheduler pulls;
  PlacementManager placements;
  ObjectRequests requests;
  ReductionManager reductions;
  HoldManager holds;
  JobManager jobs;
  ScopeManager scopes;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_DIRECTORY_CORE_IMPL_H_
