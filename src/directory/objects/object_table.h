// The objects of a shard: which generation of each is adopted, which nodes have copies of it, and
// which generations stand by.
//
//   Create, Register ──► Adopt ──► CompleteCopy ──► RemoveCopy ──► Reevaluate ──► lost or void
//                    └─► StandBy ──(the adopted generation dies)──► Adopt
//                               └──(the adopted generation is complete)──► Supersede
//
// Every change ends with Reevaluate(object), which draws the conclusions: loss, void, adoption of a
// generation that stands by, plans for the nodes that wait, release of an object without any state.
//
// Only ObjectTable writes the section of Object that object.h gives it. The components above it
// look objects up here and hear of changes through the interfaces of object_listeners.h.
//
// Invariants (CheckInvariants)
//  1. At most one generation per id is adopted; a generation that stands by is not the adopted one.
//  2. A copy is listed only for a node with a session, and that node is linked to the object.
//  3. complete_copies and writers count the copies; a complete copy is not being written.
//  4. An object without copies, wants and standby generations is released, unless a reduction or a
//     registration may still bring back a copy.
//
// Owned by DirectoryCore. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_

#include <cstdint>
#include <memory>
#include <set>
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
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/broadcasts/broadcasts.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/hold_sets.h"
#include "src/directory/objects/failure_table.h"
#include "src/directory/objects/inline_cache.h"
#include "src/directory/objects/loss_table.h"
#include "src/directory/objects/object.h"
#include "src/directory/objects/object_listeners.h"
#include "src/directory/objects/tombstone_table.h"

namespace phalanx::directory {

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
    Broadcasts& placements;
  };

  // `listeners` is filled in before the first call.
  ObjectTable(const Parts& parts, const ObjectListeners& listeners);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  absl::Status OnCreate(Node& node, const v1::AnnounceCreate& m);
  absl::Status OnSeal(Node& node, const v1::AnnounceSeal& m);
  absl::Status OnWithdraw(Node& node, const v1::Withdraw& m);
  // Returns through `adopted` whether the object has an adopted generation now.
  absl::Status OnRegisterCopy(Node& node, const v1::RegisterCopy& m, bool* adopted);
  absl::Status OnFail(Node& node, const v1::FailRequest& m);

  // ---- nodes and time
  // The node's session ended: it has no copies, wants or standby generations any more. Called after
  // NodeTable::BeginRemove.
  void NodeDown(const Node& node);
  // The node begins a new session: what it had is stale until the session registers it.
  void SessionBegins(Node& node);
  // RegisterEnd: what is still stale is removed, and the wants of the session are planned.
  void SessionRegistered(Node& node);
  void SetConnected(Node& node, bool connected);
  // The gate has opened: tentative adoptions are final, and absence counts.
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
  static Attempt* FindAttempt(Object& object, const Generation& generation, const NodeKey& node);
  // Returns true if a complete copy exists on a connected node other than `except` that stays.
  bool HasOtherCompleteCopy(const Object& object, const NodeKey& except) const;
  // A node other than `except` whose complete copy is known from a Deliver only; nullptr if none.
  Node* FindUnconfirmed(const Object& object, const NodeKey& except);
  // Returns true if the node has a session, lacks a copy and could fetch one.
  bool LacksCopy(const ObjectId& id, const NodeKey& node) const;
  // Returns true if a copy may still be registered: a request about the id cannot be answered from
  // absence.
  bool MustLearnAbout(const ObjectId& id) const;
  // Returns true if the object is owned and no node holds a reference to it.
  bool Unreferenced(const Object& object) const;

  // ---- changes, for the components above. Each is followed by Reevaluate where it says so.
  Object& GetOrCreate(const ObjectId& id);
  // Draws the conclusions from what has changed. The object may be gone after it.
  void Reevaluate(Object& object);
  // Erases the object if it has no state. The reference is gone after it.
  void ReleaseIfEmpty(Object& object);
  void SetTimer(Object& object, Instant when);
  // The node has no part in the object any more, unless it has a copy, a want or a standby.
  void UnlinkNodeIfUnused(const NodeKey& key, Object& object);
  void NoteChange(const ObjectId& id) { listeners_.reductions->OnObjectChanged(id); }

  struct Announcement {
    Generation generation;
    ObjectInfo info;
    bool complete = false;
    const std::string* inline_bytes = nullptr;
  };
  static absl::StatusOr<Announcement> ParseAnnouncement(const v1::AnnounceCreate& m);
  // Returns the object of a generation that `node` announces, or nullptr if a tombstone refuses it.
  absl::StatusOr<Object*> BeginCreate(Node& node, const ObjectId& id, const Generation& generation);
  // Adopts the generation if `may_adopt` and nothing else is adopted, else lets it stand by.
  // Followed by Reevaluate.
  absl::Status FinishCreate(Object& object, Node& node, Announcement announced, bool may_adopt);
  // REQUIRES: no generation is adopted and there are no copies. `notify`: the creator is sent
  // ADOPTED.
  void Adopt(Object& object, Node& node, const Generation& generation, ObjectInfo info,
             bool complete, bool notify);
  // Lists a copy of the node, if there is none, and links the node. `added`: the copy is new.
  Copy& AddCopy(Object& object, Node& node, bool* added = nullptr);
  // A node writes the adopted generation beside its creator.
  void AddWriter(Object& object, const NodeKey& key);
  // The copy is complete: the generation is sealed, standby generations are superseded, the want of
  // its node ends.
  void CompleteCopy(Object& object, const NodeKey& key);
  // Receivers of the copy wait for another sender. Followed by Reevaluate.
  void RemoveCopy(Object& object, const NodeKey& key);
  // The node has reported how its pull ended.
  void EndFinalReport(Object& object, const NodeKey& key);
  // The generation is given up: notifies every node that holds or wants it, but `except`.
  void VoidGeneration(Object& object, absl::string_view reason, const NodeKey& except);
  // Resets what depends on the adopted generation. REQUIRES: the object has no copies.
  void ForgetGeneration(Object& object);
  // The deletion leaves an object without copies, wants and standby generations.
  void ForgetDeleted(Object& object);
  void EraseAttempt(Object& object, const Generation& generation, const NodeKey& node);
  // Erases the attempts that `which` selects.
  template <typename Predicate>
  void EraseAttempts(Object& object, Predicate which) {
    std::erase_if(object.attempts, which);
  }
  // The generation that was adopted turns out to be deleted: adopts the best of those that nodes
  // registered as adopted after that Delete.
  void AdoptSpared(Object& object);
  // Standby copies of a deleted generation are refused.
  void RefuseAttempts(Object& object, const Generation& generation, Tombstone& tombstone);
  // The generation is superseded on nodes whose standby copy lost to a complete one.
  void SupersedeAll(Object& object);
  // The object is not owned any more: its holders are notified.
  void ClearOwned(Object& object);
  // An owned source is not freed for a lease: another node may watch it next.
  void GrantGrace(const ObjectId& id);
  void SendLoss(const NodeKey& to, const ObjectId& id);
  void CacheInline(Object& object, const std::string& bytes);

  // The ids that became unreferenced, or may have, since the last call.
  absl::btree_set<ObjectId> TakeUnreferenced() { return std::exchange(unreferenced_, {}); }
  void NoteUnreferenced(const ObjectId& id) { unreferenced_.insert(id); }

  absl::Status CheckInvariants() const;

 private:
  // A copy as a node registers it.
  struct Registration {
    Generation generation;
    ObjectInfo info;
    bool primary = false;
    bool adopted = false;
    bool complete = false;
    bool writing = false;
    NodeKey sender;
    BroadcastMark policy = {};
  };
  static Registration FromAttempt(const Attempt& attempt);

  bool MayComeBack(const Object& object) const;
  void OnTimer(Object& object);

  // ---- adoption
  // Now, or when the adoption is no longer tentative.
  void ReportAdopted(Object& object);
  void StandBy(Object& object, Node& node, const Generation& generation, ObjectInfo info,
               bool complete, bool adopted = false);
  void Supersede(Object& object, Attempt& attempt);
  // A complete copy on a connected session. Whether any other still exists is known when its
  // session is back or its lease has ended.
  bool CompleteInSight(const Object& object) const;
  bool AdoptBestAttempt(Object& object);
  // Repeats STANDBY after another generation was adopted.
  void NotifyStandbys(Object& object);
  void SendVerdict(const NodeKey& to, const Object& object, const Generation& generation,
                   v1::Verdict::Kind kind);

  // ---- copies
  void SetWriter(Object& object, Copy& copy, bool writes);
  // The last source is gone: the generation is decided when its receivers have reported.
  void AwaitFinalReports(Object& object);
  void DecideLoss(Object& object);
  void DecideVoid(Object& object);
  void DropInline(Object& object);

  // ---- registration (object_registration.cc)
  void RegisterAdopted(Object& object, Node& node, const Registration& r,
                       absl::Span<const uint64_t> watermarks);
  // Nodes that stood by with the generation that is adopted now have copies.
  void AbsorbAttempts(Object& object);
  // A generation that is not the adopted one.
  void RegisterRival(Object& object, Node& node, const Registration& r,
                     absl::Span<const uint64_t> watermarks);
  bool RivalWins(const Object& object, const Registration& r) const;
  void RemoveStale(Node& node);

  // ---- placement policies
  void TakePolicy(const Object& object, const NodeKey& key, const BroadcastMark& policy);
  void KeepPolicy(const Object& object);
  void RestorePolicy(const Object& object);
  // Another generation was adopted: the nodes that were ordered to fetch the object are ordered
  // anew.
  void RestartPlacement(const Object& object);

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
  Broadcasts& placements_;
  const ObjectListeners& listeners_;
  absl::btree_map<ObjectId, std::unique_ptr<Object>> objects_;
  absl::btree_set<std::pair<Instant, ObjectId>> timers_;
  absl::btree_set<ObjectId> unreferenced_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_OBJECT_TABLE_H_
