// What the store registers in a new session with a shard: the ended scopes that it knows, its
// holds, copies, wants and tombstones, a part in each turn; then it sends again what the old
// session has not answered.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_STORE_STORE_REGISTRANT_H_
#define PHALANX_OBJECT_STORE_STORE_STORE_REGISTRANT_H_

#include <map>
#include <utility>
#include <vector>

#include "src/common/time/executor.h"
#include "src/object_store/channel/copy_reporter.h"
#include "src/object_store/channel/hold_reporter.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/objects/deleted_generations.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/pulls/pull_runner.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/shard_requests.h"

namespace phalanx::object_store {

class StoreRegistrant final : public Registrant {
 public:
  // All of them outlive this.
  StoreRegistrant(size_t entries_per_turn, Executor& executor, Turns& turns, RequestTable& requests,
                  ObjectTable& table, PullManager& pulls, GetRequests& gets, LocalCopies& copies,
                  HoldReporter& holds, CopyReporter& reporter, ShardRequests& shard_requests,
                  PullRunner& runner, DeletedGenerations& deleted, StickyMarks& stickies,
                  ShardChannel& channel);
  ~StoreRegistrant() override;

  void FillBegin(int shard, v1::RegisterBegin* begin) override;
  std::vector<v1::NodeMessage> BeginSession(int shard) override;
  bool RegisterSome(int shard) override;
  void EndRegistrationTurn() override { Turns::Turn turn(turns_); }

 private:
  using CopyKey = std::pair<ObjectId, Generation>;
  // What is registered, and how far that has come. The lists are those at the beginning of the
  // session; each entry is described as it is when its turn comes.
  struct Registration {
    std::vector<Scope> scopes;  // that have ended
    std::vector<ObjectId> holds;
    std::vector<CopyKey> copies;
    std::vector<v1::RegisterWant> wants;
    std::vector<CopyKey> tombstones;
    size_t next_scope = 0;
    size_t next_hold = 0;
    size_t next_copy = 0;
    size_t next_want = 0;
    size_t next_tombstone = 0;
  };

  // Registers at most `most` of the ids that are held; returns how many.
  size_t RegisterHolds(int shard, Registration& registration, size_t most);
  void RegisterCopy(int shard, Copy* copy);
  // For Defect::kPinDroppedOnReconnect.
  void DropPins(int shard);

  const size_t entries_per_turn_;
  Executor& executor_;
  Turns& turns_;
  RequestTable& requests_;
  ObjectTable& table_;
  PullManager& pulls_;
  GetRequests& gets_;
  LocalCopies& copies_;
  HoldReporter& holds_;
  CopyReporter& reporter_;
  ShardRequests& shard_requests_;
  PullRunner& runner_;
  DeletedGenerations& deleted_;
  StickyMarks& stickies_;
  ShardChannel& channel_;
  std::map<int, Registration> registrations_;  // under way, by shard
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_STORE_REGISTRANT_H_
