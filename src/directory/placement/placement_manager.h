// Broadcasts as nodes request them: which nodes are to have which object, now or whenever they
// join.
//
//   BroadcastRequest ──► placement table ──► OrderFetch: the node is asked to fetch the object
//                                       ├──► AnnouncePolicy: holders are sent the placement policy
//                                       ├──► AnswerBroadcast: the requester is answered
//                                       └──► WantCopies: the copy keeper places primary copies
//
// The placement table decides which nodes are ordered; this class feeds it with requests and
// applies its effects. A node that is ordered wants the object like any other node, so
// PullScheduler plans the transfer.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_MANAGER_H_
#define PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_MANAGER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/copy_keeper.h"
#include "src/directory/placement/placement_table.h"

namespace phalanx::directory {

class PlacementManager final : public ObjectPlacements {
 public:
  // What the manager stands on; all of them outlive it.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    RecoveryGate& gate;
    ObjectTable& objects;
    const TombstoneTable& tombstones;
    LossTable& losses;
    PlacementTable& placements;
    CopyKeeper& copies;
  };

  explicit PlacementManager(const Parts& parts);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnBroadcast(Node& node, const v1::BroadcastRequest& m);

  // The gate has opened: broadcasts that waited begin.
  void EndLearning();
  // The node is draining: it is waited for only if it is receiving the object already.
  void NodeDrains(const Node& node);
  // Continues the walks over objects and applies what the placement table has decided.
  void RunPending();
  // Fills in how many of the named nodes have the object, and how many of its bytes.
  void CountNamed(const Object& object, absl::Span<const std::string> names, v1::QueryReply& out);

  // The node has evicted its copy: an order from the time when it had one has fetched nothing.
  void OnEvicted(const Object& object, const NodeKey& node);
  // The node must not evict its copy: an order to keep it, which crossed the question, was not
  // answered.
  void OnEvictRefused(const Object& object, const NodeKey& node);

  // ---- ObjectPlacements
  void OnAdopted(const Object& object) override;
  void OnReturned(const Object& object) override;
  void OnCopiesChanged(const Object& object) override;
  void OnPolicyRegistered(const Object& object, const NodeKey& node,
                          const PlacementPolicy& policy) override;
  void OnCopyConfirmed(const Object& object, const NodeKey& node) override;
  void OnReleased(const Object& object) override;

 private:
  // Returns true if the node has a session, lacks a copy and could fetch one.
  bool LacksCopy(const ObjectId& id, const NodeKey& node) const;
  void BeginBroadcast(Node& node, const v1::BroadcastRequest& m);
  // Primary copies on several hosts; the object exists.
  absl::Status BeginCopies(Node& node, const v1::BroadcastRequest& m);
  // A requester that repeats its request knows the policy that its first request made.
  void MergePolicy(const v1::BroadcastRequest& m);
  auto Lacks() const {
    return [this](const ObjectId& id, const NodeKey& node) { return LacksCopy(id, node); };
  }

  void ApplyEffects();
  void Apply(const OrderFetch& effect);
  void Apply(const AnnouncePolicy& effect);
  void Apply(const ConfirmStart& effect);
  void Apply(const AnswerBroadcast& effect);
  void Apply(const WantCopies& effect);
  void SendPolicy(const Object& object, const NodeKey& key, const PlacementPolicy& policy);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  RecoveryGate& gate_;
  ObjectTable& objects_;
  const TombstoneTable& tombstones_;
  LossTable& losses_;
  PlacementTable& placements_;
  CopyKeeper& copies_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_PLACEMENT_MANAGER_H_
