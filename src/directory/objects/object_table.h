// The objects of a shard: which generation of each is adopted, which nodes have copies of it, and
// which generations stand by.
//
//   Create, Register ──► Adopt ──► CompleteCopy ──► RemoveCopy ──► Reevaluate ──► lost or void
//                    └─► Standbys (another generation is adopted) ──► Adopt, or SUPERSEDED
//
// Every change ends with Reevaluate(object), which draws the conclusions: loss, void, adoption of a
// generation that stands by, plans for the nodes that wait, release of an object without any state.
//
// ObjectTable alone moves an object through ObjectPhase and a copy through CopyState (object.h).
// (SetCopyState is public for a defect under test only.)
// The components above it look objects up here and are notified of changes through the interfaces
// of object_listeners.h.
//
// Invariants (CheckInvariants)
//  1. At most one generation per id is adopted; a generation that stands by is not the adopted one.
//  2. A copy is listed only for a node with a session, and that node is linked to the object.
//  3. An object with a complete copy is sealed. A copy that was sent in a Deliver counts, although
//     its node has not confirmed it.
//  4. An object without copies, wants and standby generations is released, unless a reduction or a
//     registration may still bring back a copy.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/objects/expiry_queue.h"
#include "src/directory/objects/failure_table.h"
#include "src/directory/objects/hold_sets.h"
#include "src/directory/objects/inline_cache.h"
#include "src/directory/objects/loss_table.h"
#include "src/directory/objects/object.h"
#include "src/directory/objects/object_listeners.h"
#include "src/directory/objects/standbys.h"
#include "src/directory/objects/tombstone_table.h"
#include "src/directory/scopes/scope_table.h"

namespace phalanx::directory {

struct Announcement {
  Generation generation;
  ObjectInfo info;
  bool complete = false;
  const std::string* inline_bytes = nullptr;  // into the message; nullptr if it has none
  PlacementPolicy policy = {};                // that the creator wants
};
absl::StatusOr<Announcement> ParseAnnouncement(const v1::AnnounceCreate& m);

class ObjectTable {
 public:
  // What the table stands on; all of them outlive it.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    RecoveryGate& gate;
    const HoldSets& holds;
    TombstoneTable& tombstones;
    LossTable& losses;
    FailureTable& failures;
    InlineCache& inline_cache;
    ExpiryQueue& expiries;
    ScopeTable& scopes;
  };

  // `listeners` is filled in before the first call.
  ObjectTable(const Parts& parts, const ObjectListeners& listeners);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnCreate(Node& node, const v1::AnnounceCreate& m);
  absl::Status OnSeal(Node& node, const v1::AnnounceSeal& m);
  absl::Status OnWithdraw(Node& node, const v1::Withdraw& m);
  // Returns through `adopted` whether the object has an adopted generation now.
  absl::Status OnRegisterCopy(Node& node, const v1::RegisterCopy& m, bool* adopted);

  // ---- nodes and time
  // The node's session ended: it has no copies, wants or standby generations any more. Called after
  // NodeTable::BeginRemove.
  void NodeDown(const Node& node);
  // The node begins a new session: what it had is stale until the session registers it.
  void SessionBegins(Node& node);
  // RegisterEnd: what is still stale is removed, and the wants of the session are planned.
  void SessionRegistered(Node& node);
  void SetConnected(Node& node, bool connected);
  // The gate has opened: provisional adoptions are final, and absence counts.
  void EndLearning();
  void Tick();
  // The process was paused: the reports that are awaited have a lease more.
  void NotePause(Instant until);
  Instant NextDeadline() const;

  // ---- looking
  // Returns nullptr if nothing is known of the id.
  Object* Find(const ObjectId& id);
  const Object* Find(const ObjectId& id) const;
  // In the order of ids.
  const absl::btree_map<ObjectId, std::unique_ptr<Object>>& all() const { return objects_; }
  // Returns true if a copy may still be registered: a request about the id cannot be answered from
  // absence.
  bool MustLearnAbout(const ObjectId& id) const;
  // Returns true if the object is owned and no node holds a reference to it.
  bool Unreferenced(const Object& object) const;
  // When the shard deletes the object because its time to live has passed; infinite if never.
  Instant ExpiryOf(const Object& object) const { return expiries_.Find(object.id); }
  // Writes the object's info, with the time to live that is left at `now`.
  void WriteInfo(const Object& object, Instant now, v1::ObjectInfo* out) const;

  // ---- changes, for the components above. Where a comment says so, the caller calls Reevaluate
  // afterwards, once for all its changes of the object.
  Object& GetOrCreate(const ObjectId& id);
  // Draws the conclusions from what has changed. The object may be gone after it.
  void Reevaluate(Object& object);
  // Erases the object if it has no state. The reference is gone after it.
  void ReleaseIfEmpty(Object& object);
  void SetTimer(Object& object, Instant when);
  // The node has no part in the object any more, unless it has a copy, a want or a standby.
  void UnlinkNodeIfUnused(const NodeKey& key, Object& object);
  void NoteChange(const ObjectId& id) { listeners_.reductions->OnObjectChanged(id); }

  // Returns the object of a generation that `node` announces, or nullptr if a tombstone refuses it.
  absl::StatusOr<Object*> BeginCreate(Node& node, const ObjectId& id, const Generation& generation);
  // Adopts the generation if `may_adopt` and nothing else is adopted, else lets it stand by.
  // The caller calls Reevaluate afterwards.
  absl::Status FinishCreate(Object& object, Node& node, Announcement announced, bool may_adopt);
  // REQUIRES: no generation is adopted and there are no copies. `notify`: the creator is sent
  // ADOPTED. The caller calls Reevaluate afterwards.
  void Adopt(Object& object, Node& node, const Generation& generation, ObjectInfo info,
             bool complete, bool notify);
  // Adopts the registered generation unless it is adopted, and lists or updates the node's copy.
  void RegisterAdopted(Object& object, Node& node, const Registration& r,
                       absl::Span<const uint64_t> watermarks);
  // Lists a copy of the node, if there is none, and links the node.
  Copy& AddCopy(Object& object, Node& node);
  // A node writes the adopted generation beside its creator. The caller calls Reevaluate
  // afterwards.
  void AddWriter(Object& object, const NodeKey& key);
  // The copy has every byte: the generation is sealed, standby generations are superseded, the want
  // of its node ends. A copy that is not complete yet becomes kComplete or kDelivered, as `state`
  // says. The caller calls Reevaluate afterwards.
  void CompleteCopy(Object& object, const NodeKey& key, CopyState state = CopyState::kComplete);
  // For the defect kCompleteForPartial only.
  void SetCopyState(Object& object, Copy& copy, CopyState state) {
    object.copies.SetState(copy, state);
  }
  // The node has reported that it keeps the copy that it was sent in a Deliver. The caller calls
  // Reevaluate afterwards.
  void ConfirmCopy(Object& object, Copy& copy);
  // Receivers of the copy wait for another sender. The caller calls Reevaluate afterwards.
  void RemoveCopy(Object& object, const NodeKey& key);
  // The node has reported how its pull ended. The caller calls Reevaluate afterwards.
  void EndFinalReport(Object& object, const NodeKey& key);
  // The generation is given up: notifies every node that holds or wants it, but `except`.
  // The caller calls Reevaluate afterwards.
  void VoidGeneration(Object& object, absl::string_view reason, const NodeKey& except);
  // Resets what depends on the adopted generation. REQUIRES: the object has no copies.
  void ForgetGeneration(Object& object);
  // The deletion leaves an object without copies, wants and standby generations.
  void ForgetDeleted(Object& object);
  // The object is not owned any more: its holders are notified.
  void ClearOwned(Object& object);
  // An owned source is not freed for a lease: another node may watch it next.
  void GrantGrace(const ObjectId& id);
  void SendLoss(const NodeKey& to, const ObjectId& id);
  void CacheInline(Object& object, const std::string& bytes);

  // The ids that became unreferenced, or may have, since the last call.
  absl::btree_set<ObjectId> TakeUnreferenced() { return std::exchange(unreferenced_, {}); }
  void NoteUnreferenced(const ObjectId& id) { unreferenced_.insert(id); }

  // The generations that are not adopted.
  Standbys& standbys() { return standbys_; }

  absl::Status CheckInvariants() const;

 private:
  // Returns true if the object has no copy but one may still be registered.
  bool MayComeBack(const Object& object) const;
  void OnTimer(Object& object);

  // Notifies the creator, now or when the adoption is no longer provisional.
  void ReportAdopted(Object& object);

  // ---- copies
  // The last source is gone: the generation is decided when its receivers have reported.
  void AwaitFinalReports(Object& object);
  void DecideLoss(Object& object);
  void DecideVoid(Object& object);
  void DropInline(Object& object);

  // ---- registration (object_registration.cc)
  // Returns true if the registered generation was not adopted before.
  bool AdoptRegistered(Object& object, const Registration& r);
  // The copy takes over what the registration says of its pull.
  void UpdateCopy(Object& object, Node& node, Copy& copy, const Registration& r,
                  absl::Span<const uint64_t> watermarks);
  void RemoveStale(Node& node);

  absl::Status CheckObject(const Object& object) const;
  absl::Status CheckCopies(const Object& object) const;

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  RecoveryGate& gate_;
  const HoldSets& holds_;
  TombstoneTable& tombstones_;
  LossTable& losses_;
  FailureTable& failures_;
  InlineCache& inline_cache_;
  ExpiryQueue& expiries_;
  ScopeTable& scopes_;
  const ObjectListeners& listeners_;
  Standbys standbys_;
  absl::btree_map<ObjectId, std::unique_ptr<Object>> objects_;
  absl::btree_set<std::pair<Instant, ObjectId>> timers_;
  absl::btree_set<ObjectId> unreferenced_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_
