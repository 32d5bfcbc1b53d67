// One fold that a shard placed on this node, from the order to its end: the interface of tree slots
// (NodeFold) and ring members (RingFold), and what both do alike.
//
//   Start ─► [memory] ─► [folding] ─► [folded] ─► [sealed]
//                │            │            │          │
//   Drop, or a refusal, anywhere ──────────┴──────────┴─► [ending] ─► Gone
//
// Thread rule: everything on the control loop. Owned by the reducer, which is the Host.
#ifndef PHALANX_COLLECTIVES_FOLD_FOLD_H_
#define PHALANX_COLLECTIVES_FOLD_FOLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/fold/fold_order.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/threads/callback_guard.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

// The same for all folds of a node.
struct FoldOptions {
  NodeKey self;
  // How long a fold waits for memory.
  absl::Duration memory_patience;
  // How long a fold waits for a connection before it reports the sender, and waits on.
  absl::Duration connect_patience = absl::InfiniteDuration();
};

// A root, or a ring member of its own slice, holds back this many bytes at the end until it is
// committed, or all bytes if there are fewer.
inline constexpr uint64_t kHeldBackBytes = 4096;

class Fold {
 public:
  // What surrounds the folds of one node: sources, memory, peers, and the shards. Called from
  // within a fold's own calls.
  class Host {
   public:
    virtual ~Host() = default;
    virtual object_store::Store& store() = 0;
    // The store's client that owns the folds' pins and writers.
    virtual object_store::ClientId client() = 0;
    // Keeps a pin of that client until the last reference is destroyed, on the control loop.
    virtual std::shared_ptr<void> Hold(object_store::PinId pin) = 0;
    virtual net::DataPlane& data_plane() = 0;
    virtual Executor& NextIo() = 0;
    virtual void Report(const FoldOrder& order, v1::FoldReport report) = 0;
    // `bytes` of operands were folded; `done`: the fold is computed to its end.
    virtual void Folded(uint64_t bytes, bool done) = 0;
    // The result is sealed on this node, and committed.
    virtual void Sealed(const FoldOrder& order) = 0;
    // The output of another tree slot of the same target on this node, if the output has begun. The
    // caller reads the bytes from `from` on.
    virtual std::optional<net::ServeGrant> OutputOf(const ObjectId& target,
                                                    const SlotVersion& version, uint64_t from) = 0;
    // The fold's output can be served from now on.
    virtual void OutputBegan(Fold& fold) = 0;
    // The fold is not placed here any more. Gone follows.
    virtual void Leaving(Fold& fold) = 0;
    // The fold can be destroyed, in a later turn.
    virtual void Gone(Fold& fold) = 0;
  };

  // Host and executor outlive the fold.
  Fold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control);
  // Reports nothing; work on other loops ends in a later turn of theirs.
  virtual ~Fold() = default;
  Fold(const Fold&) = delete;
  Fold& operator=(const Fold&) = delete;

  virtual void Start() = 0;
  // A later order of the same target and version. Returns false if it orders other work: the caller
  // drops this fold then.
  virtual bool Update(const FoldOrder& order) = 0;
  virtual void Commit() = 0;
  // Idempotent. A sealed result stays.
  void Drop();

  // What peers pull as (target, version), as far as it is computed; nothing before the output
  // began.
  virtual std::optional<net::ServeGrant> Output() const = 0;
  // The output has no bytes below this one, whatever its watermark says.
  virtual uint64_t begin() const { return 0; }
  // Another fold on this node has begun the output `version` of the same target.
  virtual void OutputBeganHere(const SlotVersion&) {}
  // For a new session with the target's shard. Returns false if this fold is not registered.
  virtual bool Describe(v1::RegisterFold*) { return false; }
  // The fold cannot continue in a new session with the target's shard.
  virtual bool ends_with_session() const { return false; }
  // Reports the progress since the last report, if any. Returns false if no progress will follow.
  bool ReportProgress(Instant now);
  // Memory that the fold holds now beside the target, its output included.
  virtual uint64_t scratch_bytes() const { return 0; }

  const FoldOrder& order() const { return order_; }

 protected:
  enum class Stage : uint8_t { kNew, kMemory, kFolding, kPassingOn, kFolded, kSealed, kEnding };

  // One pull from a peer, and its retries.
  struct Pull {
    bool pulling = false;
    bool cancelling = false;
    net::DataPlane::PullHandle handle = 0;
    int failures = 0;
    TimerId retry = 0;
    // Of the running pull.
    NodeKey sender;
    std::shared_ptr<net::PullProgress> progress;
    TimerId connecting = 0;
  };

  // Wraps a callback so that it does nothing once the fold is destroyed. Destructors close guard_
  // first.
  template <typename F>
  auto Guarded(F f) {
    return guard_.Wrap(std::move(f));
  }
  bool ending() const { return stage_ == Stage::kEnding; }

  // ---- memory, and the target
  // What the result is put with.
  object_store::PutOptions TargetOptions() const;
  // Bytes that the result takes in the store.
  uint64_t TargetBytes() const;
  // Calls OnReserved with reserved_ set, or refuses with NO_MEMORY.
  void ReserveMemory(uint64_t bytes);
  virtual void OnReserved() = 0;
  // Calls OnCreated with writer_ set, or refuses. REQUIRES: reserved_.
  void CreateTarget(object_store::PutOptions target);
  virtual void OnCreated(const object_store::WriteGrant& grant) = 0;
  void RefuseTarget(const absl::Status& why);
  // Calls OnSealed. REQUIRES: writer_.
  void Seal();
  virtual void OnSealed(const absl::StatusOr<object_store::PutResult>& result) = 0;

  // ---- pulls
  // Starts the pull. `input` is its number in reports. Calls `done` when the pull has ended, and
  // reports a sender that it cannot connect to meanwhile.
  void StartPull(Pull& pull, size_t input, net::PullSpec spec, net::DataPlane::PullDone done);
  // REQUIRES: called first in `done`.
  void EndPull(Pull& pull);
  // Reports that the pull has failed, or is not connected.
  void ReportPull(const Pull& pull, size_t input, const absl::Status& why);
  void AwaitConnection(Pull& pull, size_t input);
  void OnConnectionDue(Pull& pull, size_t input);
  // Runs `again` after the pull failed once more, later each time.
  void RetryLater(Pull& pull, Task again);
  void CancelRetry(Pull& pull);
  // Cancels the pull; its end is called back later. A retry is never run.
  void Stop(Pull& pull);
  // As Stop, from the destructor: no callback follows.
  void Abandon(Pull& pull);

  // ---- reports
  // How many bytes of the output are computed.
  virtual uint64_t FoldedBytes() const = 0;
  // How many bytes of the input are here; less if some of them are about to be given up.
  virtual uint64_t ArrivedBytes(size_t) const { return FoldedBytes(); }
  // `sender`: the node that the input was pulled from, if it was.
  void Report(v1::FoldReport::Kind kind, const absl::Status& why, size_t input = 0,
              const NodeKey& sender = {});
  // A report of the progress since the last one that ReportProgress made.
  v1::FoldReport Progress(Instant now) const;
  // Reports, and ends.
  void Refuse(v1::FoldReport::Kind kind, const absl::Status& why);

  // ---- the end
  // Cancels what runs on other loops, and closes an output that no peer gets any more. `was`: the
  // stage before the end.
  virtual void StopWork() = 0;
  virtual void CloseOutput(Stage was, const absl::Status& why) = 0;
  // Calls Gone once nothing writes or reads any more. REQUIRES: ending().
  virtual void Settle() = 0;

  FoldOrder order_;
  const FoldOptions options_;
  Host& host_;
  Executor& control_;
  CallbackGuard guard_;

  Stage stage_ = Stage::kNew;
  object_store::RequestId request_ = 0;  // for memory, or for the target
  std::shared_ptr<object_store::Reservation> reserved_;
  object_store::WriterId writer_ = 0;  // of the target, until it is sealed
  uint64_t reported_ = 0;
  Instant reported_at_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_FOLD_H_
