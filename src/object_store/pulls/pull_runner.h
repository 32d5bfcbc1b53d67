// Carries out what the PullManager decides: memory for pulls, pulls on the data plane, their
// progress, and the node's own fetches.
//
//   PullManager ── PullEffect ──► PullRunner ──► MemoryQueue, DataPlane, LocalCopies, ShardChannel
//        ▲                            │
//        └── OnMemory, OnPullDone ────┘
//
// Invariants, checked by CheckInvariants
//  1. Exactly the pulls run that the PullManager decided; the copy of each is pinned.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_PULLS_PULL_RUNNER_H_
#define PHALANX_OBJECT_STORE_PULLS_PULL_RUNNER_H_

#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/channel/usage_reporter.h"
#include "src/object_store/memory/memory_queue.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/pulls/connection_prober.h"
#include "src/object_store/pulls/peer_server.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/pulls/pull_watch.h"
#include "src/object_store/store/get_requests.h"

namespace phalanx::object_store {

class PullRunner {
 public:
  struct Running {
    ObjectId id;
    uint64_t slices = 0;
    net::DataPlane::PullHandle handle = 0;
    Copy* copy = nullptr;  // pinned
    uint64_t bytes_at_progress = 0;
    Instant progress_at;  // the last report, or the start
    std::shared_ptr<net::PullProgress> progress;
    PullWatch watch{Instant(), 0};
  };

  // All of them outlive this.
  PullRunner(const StoreOptions& options, Executor& executor, Turns& turns, ObjectTable& table,
             PullManager& pulls, LocalCopies& copies, GetRequests& gets, MemoryQueue& memory,
             PeerServer& peers, ShardChannel& channel);
  // Cancels every pull.
  ~PullRunner();
  void SetDataPlane(net::DataPlane* data_plane) {
    data_plane_ = data_plane;
    prober_.SetDataPlane(data_plane);
  }

  // Returns true if there was an effect to carry out.
  bool ApplyEffects();
  // The memory of a pull. REQUIRES: the pull waits for it.
  void OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block);
  // The shard wants this node to have the object; see PullManager::Fetch.
  void Fetch(const ObjectId& id, bool keep, PlanId order);
  // The shard wants to know which peers this node reaches.
  void Probe(int shard, const v1::Probe& probe) { prober_.OnProbe(shard, probe); }

  // ---- the used memory, which is reported with the progress of pulls
  void BeginSession() { usage_.BeginSession(); }
  // At the end of a turn.
  void Settle() { usage_.Settle(executor_.Now()); }

  // ---- time
  // Ends fetches of objects that no node sends.
  void ExpireFetches(Instant now);
  // Sends the reports of progress and usage that are due.
  void ReportDue(Instant now);
  Instant NextDeadline();

  const absl::flat_hash_map<uint64_t, Running>& running() const { return running_; }
  uint64_t started() const { return started_; }
  uint64_t failed() const { return failed_; }
  absl::Status CheckInvariants() const;

 private:
  void Apply(ReportToShard& effect);
  void Apply(ReserveMemory& effect);
  void Apply(ForgetMemory& effect);
  void Apply(StartPull& effect);
  void Apply(CancelPull& effect);
  void Apply(FillCopy& effect);
  void Apply(DropPartial& effect);
  void Apply(CompleteCopy& effect);
  void Apply(EndGets& effect);
  void OnPullDone(uint64_t number, const net::PullOutcome& outcome);
  // The bytes that are here of what the pull fetches.
  static uint64_t Present(const Running& running);
  // The progress of all pulls.
  void SendProgress();
  // Reports pulls that are not connected when they should be.
  void CheckConnections(Instant now);
  // The progress of the pulls whose link has slowed down or fallen silent, or was measured
  // for the first time.
  void SendEarlyProgress(Instant now);
  // Messages by shard.
  using ProgressMessages = std::map<int, v1::NodeMessage>;
  v1::Progress::Pull& AddProgress(const PullManager::Running& pull, ProgressMessages& messages);
  void Send(ProgressMessages messages);

  const StoreOptions& options_;
  Executor& executor_;
  Turns& turns_;
  ObjectTable& table_;
  PullManager& pulls_;
  LocalCopies& copies_;
  GetRequests& gets_;
  MemoryQueue& memory_;
  PeerServer& peers_;
  ShardChannel& channel_;
  UsageReporter usage_;
  ConnectionProber prober_;
  net::DataPlane* data_plane_ = nullptr;

  absl::flat_hash_map<uint64_t, Running> running_;  // by the number of the pull
  // The node's own fetches, and when each is looked at; soonest first.
  std::deque<std::pair<Instant, ObjectId>> fetches_;
  // When the next reports are due.
  struct {
    Instant progress = Instant::Infinite();
    Instant check = Instant::Infinite();  // of a pull that is not connected by then
    Instant look = Instant::Infinite();   // at the watches
  } due_;
  uint64_t started_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PULL_RUNNER_H_
