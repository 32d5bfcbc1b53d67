// The inside of DirectoryCore: its state, and what its parts ask of each other. Included by
// directory_core*.cc alone.
//
//   directory_core.cc           nodes come and go, messages are handed to their part, time passes
//   directory_core_adopt.cc     which generation counts: creation, sealing, withdrawal, loss
//   directory_core_register.cc  what nodes tell after a new session; the first lease after a start
//   directory_core_pull.cc      wants, plans, reports
//   directory_core_delete.cc    deletes and tombstones, queries, eviction
//   directory_core_drain.cc     leaving nodes, prefetch
//   directory_core_broadcast.cc who is to have which object, also of those that come later
//   directory_core_reduce.cc    reductions: who asks, what nodes report, what the plans decide
//   directory_core_commit.cc    nodes that were told to commit a result, and are gone
//   directory_core_ended.cc     reductions that are over, and their numbers
//   directory_core_join.cc      who joins or adds to them, and what nodes keep in mind of them
//   directory_core_watch.cc     their sources: here, at other shards, and those that failed
//   directory_core_hold.cc      who holds what, what is freed; objects that are lost
//   directory_core_tools.cc     descriptions, and the check of the invariants
#ifndef PHALANX_DIRECTORY_DIRECTORY_CORE_IMPL_H_
#define PHALANX_DIRECTORY_DIRECTORY_CORE_IMPL_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "src/directory/broadcast_planner.h"
#include "src/directory/broadcast_tree.h"
#include "src/directory/broadcasts/broadcasts.h"
#include "src/directory/directory_core.h"
#include "src/directory/directory_core_records.h"
#include "src/directory/directory_counters.h"
#include "src/directory/ended_reductions.h"
#include "src/directory/hold_sets.h"
#include "src/directory/reduce_plan.h"
#include "src/directory/reduce_result.h"
#include "src/directory/reduction.h"
#include "src/directory/validate.h"

namespace phalanx::directory {

struct DirectoryCore::Impl {
  Impl(DirectoryOptions options, Instant start, Random random);

  // ---- directory_core.cc: nodes, messages, time
  void NodeUp(const v1::NodeInfo& info, Instant now);
  void NodeDown(const NodeKey& key);
  void NodeConnected(const NodeKey& key, bool connected);
  // Names node and object in what Handle says.
  absl::Status OnMessage(const NodeKey& key, const v1::NodeMessage& message);
  absl::Status Handle(Node& node, const v1::NodeMessage& message);
  void Tick();
  void NotePause();
  Instant NextDeadline() const;
  Node* FindNode(const NodeKey& key);
  const Node* FindNode(const NodeKey& key) const;
  Object* FindObject(const ObjectId& id);
  Object& GetObject(const ObjectId& id);
  // Frees an object that nothing is known of any more. The reference is gone after it.
  void ReleaseIfEmpty(Object& object);
  bool MayComeBack(const Object& object) const;
  // Adds `id` to what the node is asked about when it goes, or takes it away if it has no part in
  // the object any more.
  void Involve(Node& node, const ObjectId& id) { node.objects.insert(id); }
  void UninvolveIfDone(const NodeKey& key, Object& object);
  void SetTimer(Object& object, Instant when);
  void OnTimer(Object& object);
  // After the start, when nothing may be decided from absence.
  bool Learning() const { return learning_; }
  // Carries out what follows from what a message, a node or time has changed.
  void Conclude();
  v1::ShardMessage& Send(const NodeKey& to);

  // ---- directory_core_adopt.cc
  absl::Status OnCreate(Node& node, const v1::AnnounceCreate& m);
  // A new root's generation takes the place of one of which nobody can have all bytes.
  void ReplaceRoot(Object& object);
  void SendSuperseded(const NodeKey& to, const ObjectId& id, const Generation& generation,
                      const ObjectInfo& info);
  absl::Status OnSeal(Node& node, const v1::AnnounceSeal& m);
  absl::Status OnWithdraw(Node& node, const v1::Withdraw& m);
  // `node` holds the attempt; the verdict is told.
  void Adopt(Object& object, Node& node, const Generation& generation, ObjectInfo info,
             bool complete, bool tell);
  // Now, or at the end of the first lease.
  void TellAdopted(Object& object);
  // A generation that is not the adopted one: stands by, or is superseded at once.
  void StandBy(Object& object, Node& node, const Generation& generation, ObjectInfo info,
               bool complete, bool adopted = false);
  Attempt* FindAttempt(Object& object, const Generation& generation, const NodeKey& node);
  // The copy is complete: the generation is sealed, those who stood by are superseded, the want is
  // over.
  void CompleteCopy(Object& object, const NodeKey& key);
  void Supersede(Object& object, Attempt& attempt);
  // Those that stand by, once a complete copy is in sight.
  void SupersedeAll(Object& object);
  // On a connected session. Whether any other is still there is known when its session is back, or
  // its lease has ended.
  bool CompleteInSight(const Object& object) const;
  // Strikes a copy from the list; its receivers wait for another sender. Those of the last source
  // may have got every byte from it and not told yet, whether its node died or took it back (a
  // writer that publishes all and aborts). The consequences for the object follow by Settle.
  void StrikeCopy(Object& object, const NodeKey& key);
  // The last source is gone: what becomes of the generation waits for what its receivers report.
  void HopeFor(Object& object);
  void EndHope(Object& object, const NodeKey& key);
  // After copies, attempts or wants changed: decides loss, void, adoption of who stands by; plans;
  // frees. The object may be gone after it.
  void Settle(Object& object);
  // Who wants what was deleted and not put again is told so.
  void RefuseWantsOfDeleted(Object& object);
  static bool HasWriter(const Object& object) { return object.writers > 0; }
  static void SetWriter(Object& object, Copy& copy, bool writes);
  void DecideLoss(Object& object);
  void DecideVoid(Object& object);
  // The generation is no more: tells everybody who holds or wants it but those in `except`, and
  // forgets it.
  void VoidGeneration(Object& object, absl::string_view reason, const NodeKey& except);
  // What of it is left when it has no copies any more.
  void ForgetGeneration(Object& object);
  bool AdoptBestAttempt(Object& object);
  // What stands by is told so again, after another generation was adopted.
  void TellStandBys(Object& object);
  void EraseAttempt(Object& object, const Generation& generation, const NodeKey& node);
  // A new generation of an id of which nothing is known may be adopted: nobody can come back with
  // an older one.
  bool MayAdoptFromAbsence() const { return !learning_ || !restarted_; }
  void SendVerdict(const NodeKey& to, const Object& object, const Generation& generation,
                   v1::Verdict::Kind kind);
  void CacheInline(Object& object, const std::string& bytes);
  void DropInline(Object& object);

  // ---- directory_core_register.cc
  absl::Status OnRegisterBegin(Node& node, const v1::RegisterBegin& m);
  absl::Status OnRegisterCopy(Node& node, const v1::RegisterCopy& m);
  absl::Status OnRegisterWant(Node& node, const v1::RegisterWant& m);
  absl::Status OnRegisterTombstone(Node& node, const v1::RegisterTombstone& m);
  void OnRegisterEnd(Node& node);
  // The generation was deleted, as a node knows.
  void Entomb(const ObjectId& id, const Generation& generation);
  struct Registration {
    Generation generation;
    ObjectInfo info;
    bool primary = false;
    bool adopted = false;
    bool complete = false;
    bool writing = false;
    NodeKey sender;
    BroadcastMark mark = {};
  };
  void RegisterAdopted(Object& object, Node& node, const Registration& r,
                       absl::Span<const uint64_t> watermarks);
  // Nodes that stood by with the generation that turns out to be the adopted one have copies.
  void AbsorbAttempts(Object& object);
  void AdoptSpared(Object& object);
  // What stood by turns out to be deleted.
  void RefuseAttempts(Object& object, const Generation& generation, Tombstone& tombstone);
  void RegisterRival(Object& object, Node& node, const Registration& r,
                     absl::Span<const uint64_t> watermarks);
  bool RivalWins(const Object& object, const Registration& r) const;
  // The pull from a sender outside becomes an ordinary one now that the sender is listed.
  void AdmitOutsidePulls(Object& object, const NodeKey& sender);
  void AdmitRegisteredWant(Object& object, Node& node, Want& want);
  // True when `sender` was listed and could be made the receiver's sender in our books.
  bool LinkRegisteredPull(Object& object, Node& node, Want& want, const NodeKey& sender);
  void BeginStale(Node& node);
  void SweepStale(Node& node);
  // Once the first lease has passed and every node that is up has told all it has; a node that does
  // not come to an end is waited for as long as kMaxLearningLeases.
  void EndLearningIfDue();
  void EndLearning();

  // ---- directory_core_pull.cc
  absl::Status OnWant(Node& node, const v1::Want& m);
  absl::Status OnUnwant(Node& node, const v1::Unwant& m);
  absl::Status OnPullReport(Node& node, const v1::PullReport& m);
  absl::Status OnProgress(Node& node, const v1::Progress& m);
  // Answers at once where it can, else remembers the want.
  void AddWant(Object& object, Node& node, const Want& asked);
  static bool LacksRoom(const Object& object, const Want& want);
  // Strikes what only the want's pull had brought: without it, it would keep its receivers waiting.
  void StrikePart(Object& object, const NodeKey& key);
  void EndWant(Object& object, const NodeKey& key);
  void Deliver(Object& object, Node& node, bool keep);
  // Whether the cached bytes of an object are sent to one node more without a look at who else
  // could; and whether they are, though `choice` was found.
  bool DeliversAtOnce(const Object& object) const;
  bool DeliversRather(const Object& object, const Node& receiver,
                      const BroadcastPlanner::Choice& choice) const;
  bool MayBeServed(const Object& object, const NodeKey& waiting) const;
  // Gives a node that waits the bytes, or a sender. False when nobody can be named to anybody.
  struct Round {
    // Of those who wait and may be served, the one at hand among them; counted once it matters.
    std::optional<size_t> left;
    bool patient = false;  // somebody waits for a neighbour
  };
  bool Serve(Object& object, Node& node, Want& want, Round& round);
  // Finds senders for those who wait, oldest first.
  void Plan(Object& object);
  void PlanRound(Object& object, Round& round);
  // The node that the want names as its neighbour; none if it names none, or that is of no use.
  NodeKey NeighbourOf(const Object& object, const NodeKey& key, const Want& want);
  // Whether it waits, for a while, until its neighbour has, or gets, some of the object.
  bool AwaitsNeighbour(const Object& object, const NodeKey& key, Want& want);
  void Assign(Object& object, Node& node, Want& want, BroadcastTree::Member* sender,
              Instant finish);
  // The want's pull, if any, has ended: it waits again.
  void Requeue(Object& object, const NodeKey& key);
  // `completed`: because the receiver has every byte.
  void EndFeeds(Object& object, const NodeKey& receiver, bool completed = false);
  BroadcastTree& Tree(Object& object);
  BroadcastTree::Member* Join(Object& object, const NodeKey& key, const Copy& copy);
  void LeaveTree(Object& object, const NodeKey& key);
  void RequeueReceivers(Object& object, const BroadcastTree::Member& sender);
  // After a failed pull: when only those downstream of the receiver are left to try.
  void TurnAround(Object& object, const NodeKey& receiver);
  void DropTreeIfIdle(Object& object);
  bool ReportsCurrentPull(const Object& object, const NodeKey& key, PlanId plan) const;
  void RefuseCompletion(Node& node, const ObjectId& id, const Generation& generation);
  void MeasurePull(Object& object, const NodeKey& receiver, const v1::PullReport& m);
  void NotePullProgress(Node& node, const v1::Progress::Pull& pull);
  // Another sender for a receiver whose own delivers too little, if there is a better one.
  void Relieve(Object& object, BroadcastTree::Member* receiver);
  void PullFailed(Object& object, Node& node, Want& want, const v1::PullReport& m);
  void SendGone(const NodeKey& to, const Object& object, const Generation& generation,
                v1::Gone::Kind kind, absl::string_view reason);

  // ---- directory_core_delete.cc
  absl::Status OnDelete(Node& node, const v1::DeleteRequest& m);
  absl::Status OnDeleteConfirm(Node& node, const v1::DeleteConfirm& m);
  absl::Status OnQuery(Node& node, const v1::QueryRequest& m);
  absl::Status OnEvict(Node& node, const v1::EvictRequest& m);
  void AnswerDelete(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  void AnswerQuery(const ObjectId& id, const NodeKey& node, uint64_t request_id,
                   absl::Span<const std::string> names);
  // No answer can be given yet: no generation is adopted, and one may still be registered, also
  // behind the tombstone of another.
  bool MustLearnAbout(const ObjectId& id);
  // False when too many wait already.
  bool Defer(const ObjectId& id, const Node& node, uint64_t request_id, Deferred::Kind kind,
             std::vector<std::string> names = {});
  std::string TooManyDeferred(const ObjectId& id) const;
  void AnswerDeferred(const ObjectId& id);
  // Tells everybody who has a part in the object, and leaves the tombstone. The object may be gone
  // after it.
  // `spare_others`: only the adopted generation, which turns out to have been deleted in an earlier
  // life of the shard; what was deleted together with it has tombstones. Who wants the object may
  // have asked for what was put after that, and waits for it.
  void DeleteObject(Object& object, bool spare_others = false);
  void DeleteAttempts(Object& object, Tombstone& tombstone, bool spare_others);
  // Those who were being sent what is deleted want the object still.
  void VoidReceivers(Object& object);
  Tombstone& Bury(const ObjectId& id, const Generation& generation);
  // A reduction that nothing was adopted of yet.
  void BuryReduction(const ObjectId& id, const Generation& number);
  // If no copy of it is left.
  void BuryLost(const ObjectId& id);
  // The same for what was deleted before that, or stood by: dropped when the tombstone is full.
  Tombstone& BuryBehind(const ObjectId& id, const Generation& generation);
  void BeginAge(Tombstone& tombstone, const ObjectId& id);
  // The tombstone that refuses this generation.
  Tombstone* Refusal(const ObjectId& id, const Generation& generation);
  Tombstone* FindTombstone(const ObjectId& id);
  Tombstone& GetTombstone(const ObjectId& id);
  void EraseTombstone(const ObjectId& id);
  // The tombstone of an id that was not put again.
  const Tombstone* FindDeleted(const ObjectId& id) const;
  void AwaitConfirm(Tombstone& tombstone, const ObjectId& id, const Generation& generation,
                    Node& node);
  void Confirm(const ObjectId& id, const Generation& generation, const NodeKey& key);
  // What is not waited for any more: that anybody confirms this generation; what the node was told
  // in sessions before `session`.
  void ForgetConfirms(const ObjectId& id, const Generation& generation, Tombstone& tombstone);
  void ForgetConfirms(const NodeKey& key, absl::Span<const ObjectId> ids, uint64_t session);
  void EndConfirm(const ObjectId& id, const NodeKey& key, Tombstone& tombstone);
  void ForgetTombstones();
  bool HasOtherCompleteCopy(const Object& object, const NodeKey& but) const;

  // ---- directory_core_hold.cc
  absl::Status OnRegisterHolds(Node& node, const v1::RegisterHolds& m);
  absl::Status OnHold(Node& node, const v1::Hold& m);
  absl::Status OnUnhold(Node& node, const v1::Unhold& m);
  absl::Status OnClaim(Node& node, const v1::Claim& m);
  absl::Status OnKeep(Node& node, const v1::KeepRequest& m);
  void AnswerKeep(const ObjectId& id, const NodeKey& node, uint64_t request_id);
  void HoldAll(Node& node, absl::Span<const ObjectId> ids);
  // It is not owned any more: those who have it are told.
  void KeepObject(Object& object);
  void SendKept(const NodeKey& to, const Object& object);
  // Owned, and nobody holds it.
  bool Unheld(const Object& object) const {
    return object.adopted && object.info.owned && !holds_.Held(object.id);
  }
  // And nothing else speaks for it.
  bool MayFree(const Object& object) const;
  // Deletes what may be freed; false when there was nothing to look at.
  bool FreeUnheld();
  // Holds that were not recorded do not stand in the way any more.
  void ReviewUnheld();
  // A watch of the source has ended without a word: it may be set up again by way of another node.
  void SpareSource(const ObjectId& source);
  std::string NameOf(const NodeKey& key) const;
  void NoteLoss(const Object& object);
  void ForgetLoss(const ObjectId& id);
  bool WasLost(const ObjectId& id, const Generation& generation) const;
  void TellLoss(const NodeKey& to, const ObjectId& id);

  // ---- directory_core_drain.cc
  absl::Status OnPrefetch(Node& node, const v1::PrefetchRequest& m);
  absl::Status OnDrain(Node& node);
  // After complete copies or draining nodes changed.
  void ReviewSole(Object& object);
  // Asks other nodes for the next of what only this one has.
  void StartDrainFetches(Node& leaving);
  void StartAllDrainFetches();
  // After room may have come somewhere: what nobody could take is tried again.
  void RetryStuckDrains();
  // A node, other than `but`, of whom only a Deliver says that it has the object; none: null.
  Node* FindUnconfirmed(const Object& object, const NodeKey& but);
  // Of those that stay, the node with the most room, if it has enough and has not refused the
  // object lately, or null.
  Node* ChooseDrainTarget(const Object& object);
  void ForgetDrainTarget(Object& object, const NodeKey& key);
  // The node was asked to fetch the object and cannot: others are asked, and it later.
  void RefuseDrain(Object& object, const NodeKey& key);
  bool HasRefusedDrain(const Object& object, const NodeKey& key) const;
  // Nobody can take the object: it is tried again when the first who refused it may be asked.
  void AwaitRefusers(Object& object);
  void RetryStuckDrain(const Object& object);
  // The order's number.
  PlanId SendFetch(const NodeKey& to, const ObjectId& id, bool keep, bool only_confirm = false);
  void TellDrains();
  static std::string NoNodeIsCalled(const ObjectId& id,
                                    const absl::btree_set<absl::string_view>& names);

  // ---- directory_core_broadcast.cc
  absl::Status OnBroadcast(Node& node, const v1::BroadcastRequest& m);
  void BeginBroadcast(Node& node, const v1::BroadcastRequest& m);
  bool Defer(const Node& node, const v1::BroadcastRequest& m);
  // Of one that no shard can have told, nothing.
  static absl::StatusOr<BroadcastMark> ParseMark(const v1::StickyMark& mark);
  // Of an object that is adopted: as who has begun and asks again was told it.
  void MergeMark(const v1::BroadcastRequest& m);
  // Of the nodes that are there, those that have a name in `names`, which is taken out of them.
  std::vector<Node*> NodesCalled(absl::btree_set<absl::string_view>& names) const;
  void AnswerDeferredBroadcasts();
  static bool HasConfirmed(const Object& object, const NodeKey& key);
  bool LacksCopy(const ObjectId& id, const NodeKey& key) const;
  void TakeMark(const Object& object, const NodeKey& key, const BroadcastMark& mark);
  // With what is known of its loss; and from that to the mark of who returns with a copy, if it is
  // an earlier one.
  void KeepMark(const Object& object);
  void RememberMark(LostObject& lost, BroadcastMark mark);
  void RestoreMark(const Object& object);
  // Another generation is the object's.
  void BroadcastAnew(const Object& object);
  void EndBroadcast(const Object& object, const absl::Status& why);
  // Looks at some of those that came, and carries out what was decided.
  void RunBroadcasts();
  void Carry(const OrderFetch& effect);
  void Carry(const TellMark& effect);
  void Carry(const TellBegun& effect);
  void Carry(const AnswerBroadcast& effect);
  void TellMarkTo(const Object& object, const NodeKey& key, const BroadcastMark& mark);
  static void WriteMark(const BroadcastMark& mark, v1::StickyMark* out);
  // It will be gone, and is waited for only with what it gets already.
  void LeaveBroadcasts(const Node& node);
  // How far it has come, to the nodes of these names.
  void CountNamed(const Object& object, absl::Span<const std::string> names, v1::QueryReply& out);

  // ---- directory_core_reduce.cc
  absl::Status OnReduce(Node& node, const v1::ReduceRequest& m);
  absl::Status OnFoldReport(Node& node, const v1::FoldReport& m);
  // Why a reduction of this id cannot begin, or how the one that is over ended; nothing: it may.
  // `again`: it was asked for before, nobody knows as which one, so that it is over if there was a
  // Delete.
  std::optional<absl::Status> AnswerBeforeBegin(const ObjectId& target, const ReduceSpec& spec,
                                                bool again);
  // What an object is the result of is not what is asked for: why; empty: it is.
  std::string DifferenceFrom(const ReduceSpec& asked, const Object& result) const;
  // Who has joined: answered at its end, or told to forget it then.
  void TakeAsker(Reduction& reduction, const Reduction::Asker& asker, const v1::ReduceRequest& m,
                 bool first);
  void ForgetAskers(Reduction& reduction, const NodeKey& node);
  // Under that number, or one of its own if it is not valid.
  absl::StatusOr<Reduction*> BeginReduction(const ObjectId& target, ReduceSpec spec,
                                            const NodeKey& root, const Generation& number);
  Reduction* FindReduction(const ObjectId& target);
  void SetReduceTimer(Reduction& reduction, Instant when);
  void OnReduceTimer(Reduction& reduction);
  void AnswerReduce(const ObjectId& target, const Reduction::Asker& asker,
                    const absl::Status& status);
  // Answers who asks and forgets it; its folds are dropped.
  void EndReduction(Reduction& reduction, const absl::Status& status);
  std::string DescribeWaiting(const Reduction& reduction) const;
  // The committed result is the object's generation, though its root may be gone.
  bool ResultUndecided(const Reduction& reduction);
  bool RootStandsBy(const Reduction& reduction);
  // A generation that a reduction's root announces: whether it is what the plan wants now.
  bool IsRoot(const ObjectId& target, const Generation& version, const NodeKey& node);
  // Carries out what the plans decided since the last call, and what follows from that.
  void RunReductions();
  void RunReduction(Reduction& reduction);
  // The error that ends it at once, if there is one.
  absl::Status BeginPlan(Reduction& reduction);
  void Carry(Reduction& reduction, const PlaceFold& effect);
  void Carry(Reduction& reduction, const DropFold& effect);
  void Carry(Reduction& reduction, const CommitFold& effect);
  // The fold's node does not have one of its own sources.
  void NoteAbsent(Reduction& reduction, const FoldTask& task, const NodeKey& node, size_t input);
  void FillFold(Reduction& reduction, const FoldTask& task, v1::Fold* out);
  void SendFoldDrop(const NodeKey& to, const ObjectId& target, const Generation& version);
  static void ForgetKeeper(Reduction& reduction, const NodeKey& key);
  void ReductionNodeDown(const NodeKey& key);
  void TellUnplaced(Reduction& reduction);
  // What is known of the source, and of all of them.
  void TellSource(Reduction& reduction, const ObjectId& source);
  void TellSources(Reduction& reduction);
  // What the node folds goes on, if it says so in its new session.
  void ReductionSessionBegins(const NodeKey& key);
  void ReductionSessionRegistered(const NodeKey& key);
  // The plans that waited for the shard to learn, and extensions that did.
  void BeginPlans();
  void TouchReduction(const ObjectId& target) { touched_reductions_.insert(target); }
  // Something of the object changed that a reduction may care for: its source, or its target.
  void NoteChange(const ObjectId& id) {
    if (!watchers_.empty() && watchers_.contains(id)) changed_sources_.insert(id);
    if (!reductions_.empty() && reductions_.contains(id)) TouchReduction(id);
  }
  void ListReductions(Instant now, v1::GetStatusResponse* out) const;
  void DescribeReduction(const Reduction& reduction, Instant now,
                         v1::ReductionDescription* out) const;

  // ---- directory_core_commit.cc
  // The node is gone: what it was told to commit may come back with it.
  void AwaitCommitted(const NodeKey& key);
  // Whether the object is such a result.
  bool AwaitsResult(const Object& object) const;
  // Who is awaited and has not come back is given up.
  void StopAwaiting(Reduction& reduction);
  // Another life of those nodes is there.
  void StopAwaitingOtherLives(const NodeKey& key);
  // The node has registered all it has: what is not there is lost.
  void CommittedIsBack(Reduction& reduction, const NodeKey& key);
  // Of a node that is back, and goes on with what it was told to commit.
  Reduction::Placed* PlaceAgain(Reduction& reduction, const NodeKey& node,
                                const Generation& version);
  // What was committed is void: nobody is awaited with it, and the plan hears who is gone.
  void ForgetCommitted(Reduction& reduction);
  // Nobody has the committed result.
  void BeginAnew(Reduction& reduction);

  // What the shape of a tree, or a ring, is chosen by now.
  ReduceCosts CostsNow() const;
  void DescribeFolder(const Reduction& reduction, const NodeKey& node, const Generation& version,
                      v1::ReductionDescription::Slot& out) const;

  // ---- directory_core_ring.cc
  // True: a ring computes the result, or is waited for; the plan does not begin.
  bool RunRing(Reduction& reduction);
  bool AwaitRing(Reduction& reduction);
  bool BeginRing(Reduction& reduction);
  void PlaceMember(Reduction& reduction, size_t place, const std::string& reduced_from);
  // The ring's generation is the object's.
  bool RingIsObject(const Reduction& reduction);
  // Whether a pull that failed may yet succeed.
  bool MayRecover(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                  const v1::FoldReport& m);
  bool IsRingMember(const ObjectId& target, const Generation& version, const NodeKey& node);
  absl::Status OnRingCreate(Node& node, const ObjectId& target, const Generation& generation,
                            ObjectInfo info);
  void ListWriter(Object& object, const NodeKey& key);
  void OnRingReport(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                    const v1::FoldReport& m);
  // The node is down, or has begun a new session: rings do not outlive theirs.
  void RingMemberLost(Reduction& reduction, const NodeKey& key);
  void BreakRing(Reduction& reduction);
  void DropMembers(Reduction& reduction);
  // What is not committed nobody can have: it is void, also for who has not begun to write it.
  void TakeBackRing(Reduction& reduction);
  void DescribeRing(const Reduction& reduction, v1::ReductionDescription* out) const;

  // ---- directory_core_ended.cc
  // A number that a node has told: those that this shard mints are later.
  void NoteNumber(const Generation& number);
  Generation MintNumber();
  // The reduction is told to be that one.
  void Renumber(Reduction& reduction, const Generation& number);
  void Remember(const Reduction& reduction, const absl::Status& status);
  // It is not under way, and will not be any more.
  bool Over(const ObjectId& target, const Generation& number);
  // Of what is asked for or kept in mind, and was begun after the one under way: that one ends.
  void EndIfEarlier(const ObjectId& target, const Generation& number, const ReduceSpec& spec);
  // What is asked for or kept in mind is a reduction that is over: how it ended. Nothing: it may be
  // the one that is under way, or begin.
  std::optional<absl::Status> AnswerOfEarlier(const Reduction::Asker& asker, const ObjectId& target,
                                              const ReduceSpec& spec, bool again);
  // The same for who asks again and was told no number.
  std::optional<absl::Status> AnswerOfUnnumbered(const Reduction::Asker& asker,
                                                 const ObjectId& target, const ReduceSpec& spec,
                                                 bool again);
  // Of an open one that is over, and not under way anew.
  absl::Status ResultOrLoss(const ObjectId& target, const ReduceSpec& spec, bool again);
  // An addition that was carried out before its reduction ended.
  bool TakenBefore(const v1::ExtendRequest& m, const ObjectId& target, const Generation& number);
  // The tombstone ends it, though it may have been asked for again before that was known.
  void EndIfBuried(const ObjectId& id, const Generation& number);

  // ---- directory_core_join.cc
  // False: another reduction is meant, or what is told of this one cannot be.
  bool Join(Reduction& reduction, const ReduceSpec& asked, const v1::Reduction& m);
  // The parts that have no gap before them any more. False: they contradict the list.
  bool TakeParts(Reduction& reduction);
  // Something before what is known of the list is missing.
  static bool HasGap(const Reduction& reduction);
  // Whether what a node keeps in mind of it has sources that are not in its list.
  static bool LacksSources(const Reduction& reduction, const ReduceSpec& kept);
  absl::Status OnExtend(Node& node, const v1::ExtendRequest& m);
  void AnswerExtend(const NodeKey& node, const v1::ExtendRequest& m);
  absl::Status Extend(Reduction& reduction, const NodeKey& node, const v1::ExtendRequest& m);
  void AnswerDeferredExtends();
  // The list, for who asks, from behind what that node knows of it.
  void Inform(Reduction& reduction, const NodeKey& node, size_t known);
  void TellPart(Reduction& reduction, const NodeKey& node, size_t first);
  void TellToKeep(Reduction& reduction, const NodeKey& node);
  void TellToForget(const NodeKey& node, const ObjectId& target, const Generation& number);
  void FillKeep(const Reduction& reduction, size_t first, v1::KeepReduction* out) const;
  absl::Status OnRegisterFold(Node& node, const v1::RegisterFold& m);
  // What it folds was cancelled: it is dropped, and what it made of it.
  bool RefuseFold(const NodeKey& node, const v1::RegisterFold& m);
  // Before anything that is registered is adopted from absence.
  void RefuseRegisteredFolds();
  void ForgetRegisteredFolds(const NodeKey& node);
  // To their reductions, when the shard has learned which there are.
  void HandOutRegisteredFolds();
  void NumberByFolds();
  void RestoreFolds(Reduction& reduction);

  // ---- directory_core_watch.cc
  absl::Status OnWatchSource(Node& node, const v1::WatchSource& m);
  absl::Status OnSourceState(Node& node, const v1::SourceState& m);
  absl::Status OnFail(Node& node, const v1::FailRequest& m);
  bool IsForeign(const ObjectId& id) const;
  void Watch(Reduction& reduction, absl::Span<const ObjectId> sources);
  void Unwatch(const ObjectId& source, const Watcher& watcher);
  void UnwatchAll(Reduction& reduction);
  void ForgetWatcher(const NodeKey& node);
  // Names a node through whom the foreign sources are watched, if there is none.
  void ChooseAgent(Reduction& reduction);
  // What the shard knows of the source.
  void ListHolders(const Object& object, v1::SourceState* state) const;
  v1::SourceState StateOf(const ObjectId& source, bool with_bytes);
  // For another shard; as much as `bytes_left` and what is under way allow, with the bytes.
  v1::SourceState ForeignStateOf(const ObjectId& source, size_t& bytes_left);
  void TellPlan(Reduction& reduction, const ObjectId& source, const v1::SourceState& state);
  // What the shard knows of a source of the reduction; as the plans take it, if it can be had.
  v1::SourceState StateOfSource(const Reduction& reduction, const ObjectId& source);
  std::optional<ReduceSource> KnownSource(const Reduction& reduction, const ObjectId& source,
                                          const v1::SourceState& state) const;
  // The plans in `held` decide when they have heard of everything.
  void TellWatchers(const ObjectId& source, absl::btree_set<ObjectId>& held);
  void TellChanges();
  void TellForeignAgain();
  // The bytes of the input's generation that the fold is of; null if the shard does not have them.
  std::optional<absl::string_view> InlineBytesOf(const Reduction& reduction, const FoldInput& input,
                                                 uint64_t size_bytes);
  void ForgetFailure(const ObjectId& id);
  void RefuseWantsOfFailed(Object& object);

  // ---- directory_core_tools.cc
  absl::Status Describe(const ObjectId& id, Instant now, v1::DescribeObjectResponse* out) const;
  void DescribeCopy(const Object& object, const NodeKey& key, const Copy& copy, Instant now,
                    v1::CopyDescription* out) const;
  absl::Status List(const v1::ListObjectsRequest& request, v1::ListObjectsResponse* out) const;
  void Summarize(const Object& object, v1::ObjectSummary* out) const;
  void Summarize(const ObjectId& id, const Tombstone& tombstone, v1::ObjectSummary* out) const;
  void FillStatus(Instant now, v1::GetStatusResponse* out) const;
  absl::Status CheckInvariants() const;
  absl::Status CheckReductions() const;
  absl::Status CheckObject(const Object& object) const;
  absl::Status CheckWants(const Object& object) const;
  absl::Status CheckCopies(const Object& object) const;

  const DirectoryOptions options_;
  const Instant start_;
  Random random_;
  Instant now_;
  bool learning_;
  Instant learn_until_;  // at least; a pause of the process moves it on
  // Somebody has told of an earlier life of this shard: what it does not know may well exist.
  bool restarted_ = false;
  PlanId next_plan_;
  // Of this life, in the numbers that it mints.
  const uint64_t life_low_;
  const uint64_t life_high_;
  uint64_t next_order_ = 1;
  uint64_t next_session_ = 1;

  absl::btree_map<NodeKey, std::unique_ptr<Node>> nodes_;
  absl::btree_set<NodeKey> draining_;
  // Of objects whose sole copies leave.
  absl::btree_map<ObjectId, absl::btree_map<NodeKey, DrainRefusal>> drain_refusals_;
  absl::btree_map<ObjectId, std::unique_ptr<Object>> objects_;
  // Found by hash: there may be a million, and every message about an object looks here.
  absl::flat_hash_map<ObjectId, std::unique_ptr<Tombstone>> tombstones_;
  absl::btree_set<ObjectId> tombstones_listed_;            // the same, in order of ids
  absl::btree_map<uint64_t, ObjectId> tombstones_by_age_;  // by order
  absl::btree_map<ObjectId, std::vector<Deferred>> deferred_;
  size_t num_deferred_ = 0;
  size_t deferred_name_bytes_ = 0;  // also of deferred_broadcasts_
  size_t lost_name_bytes_ = 0;      // of the marks in lost_
  absl::btree_set<std::pair<Instant, ObjectId>> timers_;
  size_t open_wants_ = 0;
  size_t waiting_wants_ = 0;
  std::list<Object*> inline_by_age_;  // front: used last
  uint64_t inline_bytes_ = 0;
  uint64_t inline_in_outbox_ = 0;
  uint64_t under_way_bytes_ = 0;
  BroadcastPlanner planner_;
  absl::btree_map<ObjectId, std::unique_ptr<Reduction>> reductions_;
  size_t reduce_sources_ = 0;
  size_t reduce_askers_ = 0;
  EndedReductions ended_;
  // The greatest count of any number that is known.
  uint64_t reductions_counted_ = 0;
  absl::btree_set<std::pair<Instant, ObjectId>> reduce_timers_;
  absl::btree_set<ObjectId> touched_reductions_;
  // Folds that nodes have registered while the shard learns, and their size: with a source each.
  absl::btree_map<NodeKey, std::vector<v1::RegisterFold>> registered_folds_;
  size_t registered_fold_sources_ = 0;
  std::vector<DeferredExtend> deferred_extends_;
  size_t deferred_extend_sources_ = 0;
  absl::btree_map<ObjectId, absl::btree_set<Watcher>> watchers_;
  // By node, the sources that it has other shards watch here.
  absl::btree_map<NodeKey, absl::btree_set<std::pair<ObjectId, ObjectId>>> watched_through_;
  absl::btree_set<ObjectId> changed_sources_;
  absl::btree_map<ObjectId, FailedObject> failed_;
  std::map<uint64_t, ObjectId> failed_by_age_;
  Broadcasts broadcasts_;
  std::vector<DeferredBroadcast> deferred_broadcasts_;
  HoldSets holds_;
  // May have to be freed: looked at before the turn is over.
  absl::btree_set<ObjectId> unheld_;
  bool holds_were_complete_ = true;
  absl::flat_hash_map<ObjectId, LostObject> lost_;
  std::map<uint64_t, ObjectId> lost_by_age_;
  const Node* going_ = nullptr;  // is being taken down
  Counters counters_;
  std::vector<Outgoing> outbox_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_DIRECTORY_CORE_IMPL_H_
