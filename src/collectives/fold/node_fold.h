// One slot of a reduction's tree on this node: folds its inputs into an output, or, at the root,
// into the target.
//
//   Start ─► [memory] ─► [folding] ─────────► [folded] ──Commit──► [sealed]      (root)
//     │                   pulls, pins,            │ serves (target, version)     (others)
//     │                   StreamFold              │
//     └─► [passing on]: the source's own bytes    │
//                                                 ▼
//   Drop, or a refusal, anywhere ─► [ending] ─► Gone, when nothing writes or reads here any more
//
// A small root that is committed beforehand and has all its inputs is folded in the turn of its
// order, and put like a small object: its bytes reach the shard with the announcement.
//
// Invariants
//  1. All memory is reserved at once, before any of it is used; no source is pinned while the fold
//     waits for memory.
//  2. At most one pull writes into an input: the next one begins after the callback of the last.
//  3. Neither the output nor a pulled input has bytes below `begin_`, and nothing reads them.
//  4. Pins and scratch are given back once the pulls and the StreamFold have ended, those of the
//     output once no peer is being sent the output either.
//
// Thread rule: everything on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_FOLD_NODE_FOLD_H_
#define PHALANX_COLLECTIVES_FOLD_NODE_FOLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/fold/fold.h"
#include "src/collectives/fold/fold_order.h"
#include "src/collectives/fold/input_pace.h"
#include "src/collectives/fold/stream_fold.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

class NodeFold final : public Fold {
 public:
  // Host and executor outlive the fold.
  NodeFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control);
  ~NodeFold() override;

  void Start() override;
  // Takes inputs from elsewhere, and a commit.
  bool Update(const FoldOrder& order) override;
  void Commit() override;

  // Nothing of a root: peers get the target from the store.
  std::optional<net::ServeGrant> Output() const override;
  uint64_t begin() const override { return begin_; }
  void OutputBeganHere(const SlotVersion& version) override;
  // An order that answers the registration finds the target announced again.
  bool Describe(v1::RegisterFold* out) override;
  // The shard of the new session orders relays again where it needs them.
  bool ends_with_session() const override { return order_.relay; }
  uint64_t scratch_bytes() const override;

 private:
  struct Input : Pull {
    // Null while the bytes cannot be had.
    std::shared_ptr<net::TransferBuffer> buffer;
    uint64_t offset = 0;
    // Keeps the bytes: a pin, memory of its own, another fold's output.
    std::shared_ptr<void> held;
    uint64_t scratch_bytes = 0;
    std::optional<InputPace> pace;  // of the running pull
  };

  bool Remote(size_t input) const;
  bool Local(size_t input) const;

  // ---- all at once
  // Returns false if the fold is not small, or an input is not complete on this node.
  bool FoldAtOnce();
  void OnPut(const absl::StatusOr<object_store::PutResult>& result);

  // ---- memory
  void AskMemory();
  void OnReserved() override;
  // Scratch for that input, or for the output.
  void Allocate(std::optional<size_t> input);
  void OnScratch(std::optional<size_t> input, absl::StatusOr<object_store::Store::Scratch> result);
  void OnCreated(const object_store::WriteGrant& grant) override;
  void Begin();

  // ---- inputs
  void PassOn();
  void Acquire(size_t input);
  bool PinSource(size_t input);
  bool TakeLocal(size_t input);
  void StartPull(size_t input);
  void OnPullDone(size_t input, const net::PullOutcome& outcome);
  void Failed(size_t input, const absl::Status& why);
  void Release(Input& input);

  // ---- how inputs arrive
  void ArmLook();
  void OnLook();
  void ReportPace(size_t input, const InputPace::News& news);

  // ---- folding
  void TryFold();
  // The loop on which an input's bytes arrive from the network, if there is one.
  Executor& FoldLoop();
  void OnFolded(const StreamFold::Outcome& outcome);
  void OnSealed(const absl::StatusOr<object_store::PutResult>& result) override;
  void WatchOutput();
  void OnOutputClosed();
  void WatchPart();
  void OnPart(Instant now);
  uint64_t FoldedBytes() const override;
  uint64_t ArrivedBytes(size_t input) const override;

  // ---- the end
  void StopWork() override;
  void CloseOutput(Stage was, const absl::Status& why) override;
  void Settle() override;

  std::vector<Input> inputs_;
  // Which input lies in the output's memory.
  std::optional<size_t> in_place_;
  size_t allocating_ = 0;
  TimerId look_ = 0;

  std::shared_ptr<net::TransferBuffer> output_;
  std::shared_ptr<void> output_held_;
  std::shared_ptr<void> output_block_;
  uint64_t output_scratch_bytes_ = 0;
  net::TransferBuffer::SubscriptionId output_watch_ = 0;
  net::TransferBuffer::SubscriptionId part_watch_ = 0;
  Generation target_;  // of the root, once it is announced
  bool announce_again_ = false;

  std::unique_ptr<StreamFold> stream_;
  uint64_t begin_ = 0;  // the watermarks of output and pulled inputs begin here
  uint64_t folded_ = 0;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_NODE_FOLD_H_
