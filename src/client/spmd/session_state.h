// SessionState: what a Session of include/phalanx/spmd.h has. session_state.cc has the calls, and
// session_checkpoints.cc what a rank loads and writes, with local models session_locals.cc;
// session_lazy.cc when it saves the model of a lazy checkpoint;
// session_files.cc how a job goes on from disks.
#ifndef PHALANX_CLIENT_SPMD_SESSION_STATE_H_
#define PHALANX_CLIENT_SPMD_SESSION_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"
#include "phalanx/spmd.h"
#include "src/client/spmd/async_calls.h"
#include "src/client/spmd/disks/checkpoint_files.h"
#include "src/client/spmd/fold_plan.h"
#include "src/client/spmd/fold_tree.h"
#include "src/client/spmd/session_core.h"
#include "src/common/time/clock.h"

namespace phalanx::spmd::internal {

inline constexpr bool kNeedsAll = true;
inline constexpr bool kNeedsRoot = false;

// Names of checkpoints are in this namespace.
inline constexpr char kNameSpace[] = "phalanx.spmd";
// Of how many ranks it is asked at a time whether they have a checkpoint.
inline constexpr int kAskedRanks = 64;

struct CallInfo {
  bool needs_all = kNeedsRoot;
  absl::string_view name = {};
  const Prepare* prepare = nullptr;  // can be a null function
};

class SessionState {
 public:
  SessionState(std::shared_ptr<Client> client, Membership member, const Options& options);
  // The others see that this rank has died, unless it has left. Calls under way end with Cancelled:
  // nothing is written any more.
  ~SessionState();

  absl::Status Begin();

  // ---- verbs
  // Calls `body` unless the session is over or used by another thread, and explains its error.
  template <typename Body>
  absl::Status Run(const char* verb, Body body);
  // The same when no call is under way any more.
  template <typename Body>
  absl::Status RunAlone(const char* verb, Body body);
  absl::Status CheckRoot(int root) const;
  // Of sizes that other ranks have sent, before memory is taken for them. An error ends the
  // session.
  absl::Status CheckBytes(uint64_t bytes);
  // Of memory for the result. The same.
  absl::Status CheckPlace(const void* place, uint64_t bytes);
  // A call of the program begins: before Load, under its name. Calls of the group do so, too; those
  // within one call of the program have one name. An error ends the session if the ranks differ, or
  // this life and an earlier one.
  absl::Status BeginCall(absl::string_view name);
  // One call of the group. `make` makes it; if its result is kept, that comes to `output` instead.
  // An error ends the session.
  using Make = absl::FunctionRef<Future<Done>(const Group&)>;
  absl::Status Call(const CallInfo& info, void* output, uint64_t bytes, Make make);
  // The same without waiting for it. Waits for earlier ones if there are too many.
  absl::StatusOr<Future<Done>> CallAsync(const char* verb, const CallInfo& info, void* output,
                                         uint64_t bytes, Make make);
  absl::Status End(absl::Status why);
  // The call of the session has ended: no part of it follows.
  void CountCall();
  void CountPrepared() { ++stats_.prepared; }

  // ---- folds with functions of the program
  const SessionCore& core() const { return *core_; }
  Client& client() const { return *client_; }
  // A FoldTree, whose result is that of this call of the group. Rank 0 ends the scope of its
  // objects once all ranks have ended the call.
  absl::Status FoldAlong(const FoldPlan& plan, uint64_t call, const FoldTree::Value& value);
  // By rank 0, once it has sent the error of the fold: no call follows.
  void EndFailedFold(uint64_t call);

  // ---- checkpoints
  absl::StatusOr<uint64_t> Load(absl::FunctionRef<absl::Status(absl::string_view)> take);
  absl::Status Checkpoint(absl::string_view bytes);
  // With local models.
  using TakeBoth =
      absl::FunctionRef<absl::Status(absl::string_view bytes, absl::string_view local)>;
  absl::StatusOr<uint64_t> LoadBoth(TakeBoth take);
  absl::Status CheckpointBoth(absl::string_view bytes, absl::string_view local);
  absl::Status LazyCheckpoint(std::function<std::string()> save);
  absl::Status Leave();

  const Membership& member() const { return member_; }
  uint64_t seq() const { return seq_; }
  const Stats& stats() const { return stats_; }

 private:
  // In Load, of a job that goes on from disks.
  class Restoring;

  // A rank's checkpoint.
  struct Place {
    int rank = 0;
    uint64_t version = 0;
  };
  struct Found {
    Buffer bytes;
    Place at;
    uint64_t base = 0;
  };
  // What this rank has seen of the members.
  struct Seen {
    struct Rank {
      bool joined = false;
      bool live = false;
      uint64_t life = 0;
    };
    uint64_t change = 0;
    bool all_live = false;
    std::vector<Rank> ranks;
  };
  struct Locals {
    int copies = 0;                   // hosts that are to have a local model
    std::map<uint64_t, Buffer> held;  // as in Written
    // The global model of the version before the one that was loaded: other ranks can need it.
    uint64_t before = 0;
    Future<Buffer> of_before;
  };
  // Models of one version.
  struct Pair {
    Found global;
    Buffer local;
  };
  struct Lazy {
    std::function<std::string()> save;
    std::optional<std::string> bytes;  // that were saved, and have found no room
    absl::Status failed;               // to be written
  };

  // Checkpoints of this rank.
  struct Written {
    // By version, what an earlier life has put, perhaps on another node: this node's copies stay as
    // long as these.
    std::map<uint64_t, Buffer> held;
    std::set<uint64_t> versions;  // that this life has put
  };
  struct Recovery {
    Instant began = MonotonicNow();
    bool under_way = false;  // until the first call with the other ranks
  };
  struct Folds {
    // Objects of folds can be there, of this life or an earlier one, up to this call.
    bool left = false;
    uint64_t last = 0;
    Future<Done> end;  // of their scope
  };
  // By rank 0, of checkpoints.
  struct Freeing {
    uint64_t last = 0;    // up to this version no rank needs them
    uint64_t wanted = 0;  // up to this version they are to go now
    uint64_t asked = 0;
    Future<Done> end;
  };

  struct MadeCall {
    uint64_t number = 0;
    bool repeats = false;
    uint64_t losses = 0;  // that were seen as it was made
    Future<Done> future;
  };

  // Before Load: calls that name the next ones.
  absl::Status MakeRecord(NameRecord record);
  absl::Status ReadRecords();

  absl::Status CallGroup(const CallInfo& info, void* output, uint64_t bytes, Make make);
  MadeCall MakeCall(const CallInfo& info, void* output, uint64_t bytes, Make make);
  void OnCallEnded(const AsyncCalls::EndedCall& call, bool needs_all);
  // Takes in the calls that have ended. Waits until at most so many are under way.
  absl::Status EndAsync(size_t left);

  absl::Status Explain(const char* verb, const absl::Status& why) const;
  absl::Status ExplainKind(const absl::Status& why) const;
  ObjectId IdOf(const Place& place) const;
  // Of the checkpoints of all ranks.
  Scope ScopeOf(uint64_t version) const;
  // All ranks: this one, then those on its node, whose checkpoints need not travel, then the
  // others.
  std::vector<int> NearestRanks() const;
  // The names of the calls before it are known.
  absl::Status BeginLoad();
  // A checkpoint that this life can load.
  absl::StatusOr<Found> Find(uint64_t version);
  // The first one of these that is there; nothing if none is.
  std::optional<Found> FindAmong(const std::vector<Place>& places);
  std::optional<Found> Loadable(Buffer bytes, const Place& place) const;
  // This rank's checkpoint is on its node when this returns.
  absl::Status Store(uint64_t version, uint64_t base, absl::string_view bytes,
                     absl::Duration timeout);
  absl::Status Put(const ObjectId& id, PutOptions options, uint64_t base, absl::string_view bytes,
                   Buffer& held);
  // Deletes this rank's checkpoint, if it can be there.
  void Delete(uint64_t version, std::vector<Future<Done>>& deletions);
  // Whether this rank, in any life, can have written it.
  bool MayBeThere(uint64_t version) const;
  void Free();
  // All ranks have made this call, so they have ended those before it. A call that needs all comes
  // after the last one that is repeated, so that one is enough.
  void EndFolds(uint64_t call);

  // ---- local models
  ObjectId LocalIdOf(uint64_t version) const;
  // The copies of the last one are there.
  absl::Status AwaitCopies();
  // The pair of this version or of the one before, whichever is there. Nothing: version 0.
  absl::StatusOr<std::optional<Pair>> FindPair(uint64_t newest);
  std::optional<Pair> PairOf(uint64_t version, absl::Status& why);
  std::vector<Place> PlacesOf(uint64_t version) const;
  void HoldBefore(uint64_t version);

  absl::Status StoreBoth(uint64_t version, uint64_t base, absl::string_view bytes,
                         absl::string_view local);

  // ---- files
  absl::StatusOr<uint64_t> Restore(TakeBoth take, bool local);

  // ---- lazy checkpoints
  // Takes in what the node has reported of members. Returns whether all live.
  bool SeeMembers();
  // Within a call: saves the model if a member may need it. If the program throws, the session is
  // over.
  void SaveIfNeeded();
  // Saves the model of a lazy checkpoint.
  absl::Status SaveLazy();
  // Waits for a call, and saves the model meanwhile if a member may need it.
  absl::Status Await(const Future<Done>& call);

  const std::shared_ptr<Client> client_;
  const Membership member_;
  Group group_;
  const absl::Duration patience_;
  std::optional<CheckpointFiles> files_;  // nothing without a directory

  std::atomic<bool> used_ = false;
  std::optional<SessionCore> core_;  // from Begin on
  Recovery recovery_;
  uint64_t run_ = 0;
  uint64_t seq_ = 0;
  std::shared_ptr<AsyncCalls> async_;  // from the first one on
  bool within_ = false;                // a part of a call has ended, and others can follow
  Folds folds_;
  Stats stats_;
  absl::Status over_;  // not OK once the session is over
  Written written_;
  Seen seen_;
  Lazy lazy_;
  Locals locals_;
  Freeing freeing_;
};

template <typename Body>
absl::Status SessionState::Run(const char* verb, Body body) {
  if (used_.exchange(true, std::memory_order_acquire)) {
    return absl::FailedPreconditionError(
        absl::StrCat(verb, ": another call of the session is under way"));
  }
  bool thrown = true;
  within_ = false;
  // Also if a function of the program throws. The other ranks go on with the next part of the call.
  const absl::Cleanup free = [&] {
    if (thrown && within_ && over_.ok()) {
      over_ = Explain(verb, absl::AbortedError("a function of the program has thrown"));
    }
    used_.store(false, std::memory_order_release);
  };
  absl::Status status = over_;
  if (status.ok()) {
    // Also in a child of fork, in which nothing else may be called.
    status = member_.status();
    if (status.ok()) status = EndAsync(SIZE_MAX);
    if (status.ok()) status = body();
    // An error of a call that was under way is explained.
    if (status.ok() || async_ == nullptr || status != async_->over()) {
      status = Explain(verb, status);
    } else {
      over_ = status;
    }
    // The calls that follow return the error of the one that has failed.
    if (!status.ok() && !over_.ok()) over_ = status;
  }
  thrown = false;
  return status;
}

template <typename Body>
absl::Status SessionState::RunAlone(const char* verb, Body body) {
  return Run(verb, [this, &body] {
    const absl::Status status = EndAsync(0);
    return status.ok() ? body() : status;
  });
}

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_SESSION_STATE_H_
