// Applies the shards' decisions about generations to this node's copies: verdicts on copies that
// were created here, senders for pulls, deletions, losses, evictions.
//
//   Verdict ─► adopted │ stands by │ superseded: withdrawn, dropped
//   Assign, Deliver, Fetch ─► PullManager, unless the generation is here or was deleted
//   Gone ─► deleted: tombstone, dropped │ lost, void, refused: PullManager and Gets
//   EvictReply ─► evicted │ kept
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_DIRECTORY_DECISIONS_H_
#define PHALANX_OBJECT_STORE_CHANNEL_DIRECTORY_DECISIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "phalanx/v1/directory.pb.h"
#include "src/object_store/channel/copy_reporter.h"
#include "src/object_store/memory/memory_queue.h"
#include "src/object_store/objects/deleted_generations.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/pulls/pull_runner.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/put_requests.h"

namespace phalanx::object_store {

class DirectoryDecisions {
 public:
  // All of them outlive this. `self` is this node.
  DirectoryDecisions(NodeKey self, const Executor& executor, Turns& turns, ObjectTable& table,
                     PullManager& pulls, GetRequests& gets, LocalCopies& copies,
                     CopyReporter& reporter, MemoryQueue& memory, PutRequests& puts,
                     PullRunner& runner, DeletedGenerations& deleted, StickyMarks& stickies);

  // Malformed messages are ignored.
  void OnVerdict(const v1::Verdict& verdict);
  void OnAssign(const v1::Assign& assign);
  void OnDeliver(const v1::Deliver& deliver);
  void OnFetch(const v1::Fetch& fetch);
  void OnFetchEnd(const ObjectId& id, PlanId order);
  void OnRelease(const ObjectId& id, PlanId order);
  void OnGone(const v1::Gone& gone);
  void OnEvictReply(const v1::EvictReply& reply);
  // The node hears of the end of a scope: its Gets end, and its copies are dropped by DropEnded.
  void OnScopeEnded(int shard, const v1::ScopeEnded& ended);
  // Drops copies of ended scopes, kMaxDroppedPerTurn of them, and confirms the scopes of which none
  // is left. Returns false if there are more.
  bool DropEnded();
  void OnSticky(int shard, const v1::Sticky& sticky);
  void OnKept(const v1::Kept& kept);

  // Copies of ended scopes that one turn drops.
  static constexpr size_t kMaxDroppedPerTurn = 1024;

 private:
  void OnSuperseded(Copy* copy, const v1::Verdict& verdict);
  void OnVoid(const ObjectId& id, const Generation& generation, const std::string& reason);
  void OnDeleted(const ObjectId& id, const Generation& generation, bool expired);
  // The generation is gone for good: drops the copy and ends its writer with `why`, and a Put that
  // waits for adoption with `put`. `of_object`: so do Gets that wait for its Seal.
  void EndCopy(const ObjectId& id, const Generation& generation, const absl::Status& why,
               const absl::StatusOr<PutResult>& put, bool of_object = true);
  // Reports a generation that was deleted, and returns true; else returns false.
  bool ReportIfDeleted(const ObjectId& id, const Generation& generation);
  // The shard has named this copy's generation as the object's, so none that is being fetched is.
  void NoteAdopted(Copy* copy);
  // Returns true if a copy of the generation is here and needs no pull.
  bool AlreadyHere(const ObjectId& id, const Generation& generation);
  // The shard names another generation than those created here.
  void StandBehind(const ObjectId& id, const Generation& adopted);

  const NodeKey self_;
  const Executor& executor_;
  Turns& turns_;
  ObjectTable& table_;
  PullManager& pulls_;
  GetRequests& gets_;
  LocalCopies& copies_;
  CopyReporter& reporter_;
  MemoryQueue& memory_;
  PutRequests& puts_;
  PullRunner& runner_;
  DeletedGenerations& deleted_;
  StickyMarks& stickies_;
  // The ended scopes whose copies are not all dropped: of each shard, by name, the greatest number.
  absl::btree_map<std::pair<int, std::string>, uint64_t> endings_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_DIRECTORY_DECISIONS_H_
