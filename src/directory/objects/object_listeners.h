// What an ObjectTable asks of the components above it, as one interface for each of them. Each is
// implemented by exactly one component and by a fake in the table's own test.
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_LISTENERS_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_LISTENERS_H_

#include <optional>

#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/core/node_table.h"
#include "src/directory/objects/object.h"

namespace phalanx::directory {

// The wants and pulls of an object. Implemented by PullScheduler.
class ObjectPulls {
 public:
  virtual ~ObjectPulls() = default;

  // Finds senders for the nodes that wait.
  virtual void Plan(Object& object) = 0;
  // The node has every byte: its pull and its want end.
  virtual void OnCopyComplete(Object& object, const NodeKey& node) = 0;
  // The copy is about to be removed: its pull ends, and its receivers wait again.
  virtual void OnCopyRemoved(Object& object, const NodeKey& node) = 0;
  // The copy was registered; `connected`: its node's session is.
  virtual void OnCopyRegistered(Object& object, const NodeKey& node, bool connected) = 0;
  // The node's session was connected or lost.
  virtual void SetConnected(Object& object, const NodeKey& node, bool connected) = 0;
  // The node could not keep what it received: its want waits for a while before it is planned.
  virtual void Postpone(Object& object, const NodeKey& node) = 0;
  // The node's pull ends and its want, if there is one, waits again.
  virtual void Requeue(Object& object, const NodeKey& node) = 0;
  virtual void EndWant(Object& object, const NodeKey& node) = 0;
  // The registration of the want's node has ended. Returns false if the node had no such want.
  virtual bool AdmitRegisteredWant(Object& object, Node& node) = 0;
  // Nodes that pull from `sender`, which had not registered, are linked to it now. If it has no
  // copy, they wait again.
  virtual void AdmitOutsidePulls(Object& object, const NodeKey& sender) = 0;
  // Nodes that pull from a sender that never registered wait again.
  virtual void RequeueOutsidePulls(Object& object) = 0;
  // Ends the wants of an id that was deleted, or whose producer failed.
  virtual void RefuseWants(Object& object) = 0;
  virtual void DropTree(Object& object) = 0;
  virtual void DropTreeIfIdle(Object& object) = 0;
};

// The reductions whose source or target an object is. Implemented by ReductionManager.
class ObjectReductions {
 public:
  virtual ~ObjectReductions() = default;

  // Something of the object changed that a reduction can depend on. Called in the middle of changes
  // of the object: only notes the id, calls nothing back, and leaves the reaction to RunPending.
  virtual void OnObjectChanged(const ObjectId& id) = 0;
  // Returns true if a reduction of this target is running.
  virtual bool IsReducing(const ObjectId& id) const = 0;
  // The generation that the running reduction's root has announced (invalid if none); nullopt if no
  // reduction is running.
  virtual std::optional<Generation> PlannedResult(const ObjectId& id) const = 0;
  // Returns true if the object is a committed result whose node may come back with it.
  virtual bool AwaitsResult(const Object& object) const = 0;
  // No node holds this id any more. Returns true if the id is an open reduction's (OpenHoldOf).
  virtual bool OnUnheld(const ObjectId& id) = 0;
  // Returns true if a reduction of any shard reads the object as a source.
  virtual bool Watches(const ObjectId& source) const = 0;
  // The result is to stay. Returns false if no reduction of this target is running.
  virtual bool ClearOwned(const ObjectId& target) = 0;
};

// Frees objects that no node references. Implemented by ObjectRequests.
class ObjectFreer {
 public:
  virtual ~ObjectFreer() = default;
  // Deletes the object as a Delete does. The object may be gone after it.
  virtual void Free(Object& object) = 0;
};

// The draining nodes that hold an object's only complete copies. Implemented by DrainManager.
class ObjectDrains {
 public:
  virtual ~ObjectDrains() = default;

  // Complete copies of the object came or went.
  virtual void OnCopiesChanged(Object& object) = 0;
  // The node's copy and want are gone or stale: if it was to fetch the object, another node will.
  virtual void OnNodeLeft(Object& object, const NodeKey& node) = 0;
  // The object's timer fired: nodes that refused to fetch it may be asked again.
  virtual void OnTimer(const Object& object) = 0;
  // The object is about to be erased.
  virtual void OnReleased(const Object& object) = 0;
};

// The placement policy of an object, and the broadcasts that wait for its copies. Implemented by
// PlacementManager.
class ObjectPlacements {
 public:
  virtual ~ObjectPlacements() = default;

  // Another generation is adopted: nodes that were ordered to fetch the object are ordered again.
  virtual void OnAdopted(const Object& object) = 0;
  // The object returns from a registered copy: if it was lost, the policy from before is restored.
  virtual void OnReturned(const Object& object) = 0;
  // The node has registered a copy with the policy that it knows.
  virtual void OnPolicyRegistered(const Object& object, const NodeKey& node,
                                  const PlacementPolicy& policy) = 0;
  // Copies of the object came or went.
  virtual void OnCopiesChanged(const Object& object) = 0;
  // The node has a complete copy that it keeps.
  virtual void OnCopyConfirmed(const Object& object, const NodeKey& node) = 0;
  // The object is about to be erased.
  virtual void OnReleased(const Object& object) = 0;
};

struct ObjectListeners {
  ObjectPulls* pulls = nullptr;
  ObjectReductions* reductions = nullptr;
  ObjectDrains* drains = nullptr;
  ObjectPlacements* placements = nullptr;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_LISTENERS_H_
