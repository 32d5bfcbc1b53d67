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
#include "src/client/spmd/checkpoint_files.h"
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

  absl::Status Begin();

  // ---- verbs
  // Calls `body` unless the session is over or used by another thread, and explains its error.
  template <typename Body>
  absl::Status Run(const char* verb, Body body);
  absl::Status CheckRoot(int root) const;
  // Of sizes that other ranks have sent, before memory is taken for them. An error ends the
  // session.
  absl::Status CheckBytes(uint64_t bytes);
  // One call of the group. `make` makes it; if its result is kept, that comes to `output` instead.
  // An error ends the session.
  using Make = absl::FunctionRef<Future<Done>(const Group&)>;
  absl::Status Call(const CallInfo& info, void* output, uint64_t bytes, Make make);
  absl::Status End(absl::Status why);
  void CountCall() { ++seq_; }

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
  uint64_t version() const { return core_->version(); }
  uint64_t seq() const { return seq_; }
  const Stats& stats() const { return stats_; }

 private:
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
    std::map<uint64_t, Buffer> held;  // as held_
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
    absl::Status failed;  // to be saved
  };

  absl::Status Explain(const char* verb, const absl::Status& why) const;
  absl::Status ExplainKind(const absl::Status& why) const;
  ObjectId IdOf(const Place& place) const;
  GetOptions Patiently() const;
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
  absl::Status RestoreGlobal(TakeBoth take);
  absl::Status RestoreLocal(TakeBoth take);
  absl::Status SendFile(uint64_t version, int root, bool has, std::string& bytes);
  static absl::Status LostFile(uint64_t version);
  absl::Status Agree(uint64_t& number, ReduceOp op);

  // ---- lazy checkpoints
  // Takes in what the node has reported of members. Returns whether all live.
  bool SeeMembers();
  // Within a call: saves the model if a member may need it. If the program throws, the session is
  // over.
  void SaveIfNeeded();
  // Waits for a call, and saves the model meanwhile if a member may need it.
  absl::Status Await(const Future<Done>& call);

  const Instant began_;
  const std::shared_ptr<Client> client_;
  const Membership member_;
  Group group_;
  const absl::Duration patience_;
  const std::optional<CheckpointFiles> files_;  // nothing without a directory

  std::atomic<bool> used_ = false;
  std::optional<SessionCore> core_;  // from Begin on
  bool recovers_ = false;            // until the first call with the other ranks
  uint64_t run_ = 0;
  uint64_t seq_ = 0;
  Stats stats_;
  absl::Status over_;  // not OK once the session is over
  // Checkpoints of this rank, by version, that an earlier life has put, perhaps on another node:
  // this node's copies stay as long as these.
  std::map<uint64_t, Buffer> held_;
  std::set<uint64_t> stored_;  // versions that this life has put
  Seen seen_;
  Lazy lazy_;
  Locals locals_;
};

template <typename Body>
absl::Status SessionState::Run(const char* verb, Body body) {
  if (used_.exchange(true, std::memory_order_acquire)) {
    return absl::FailedPreconditionError(
        absl::StrCat(verb, ": another call of the session is under way"));
  }
  // Also if a function of the program throws.
  const absl::Cleanup free = [this] { used_.store(false, std::memory_order_release); };
  absl::Status status = over_;
  if (status.ok()) {
    // Also in a child of fork, in which nothing else may be called.
    status = member_.status();
    if (status.ok()) status = body();
    status = Explain(verb, status);
    // The calls that follow return the error of the one that has failed.
    if (!status.ok() && !over_.ok()) over_ = status;
  }
  return status;
}

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_SESSION_STATE_H_
