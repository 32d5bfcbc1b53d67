// One fold that a shard has placed on this node, from the order to its end.
//
//   Start ─► [memory] ─► [folding] ─────────► [folded] ──Commit──► [sealed]      (root)
//     │                   pulls, pins,            │ serves (target, version)     (others)
//     │                   StreamFold              │
//     └─► [passing on]: the source's own bytes    │
//                                                 ▼
//   Drop, or a refusal, anywhere ─► [ending] ─► Gone, when nothing writes or reads here any more
//
// A small root that is committed beforehand and has all its inputs is folded in the turn in which
// it is ordered, and put like a small object: its bytes reach the shard with the announcement.
//
// Invariants
//  1. All its memory is reserved at once, before any of it is used; no source is pinned while it is
//     waited for.
//  2. At most one pull writes into an input: the next begins when the end of the last was told.
//  3. What the fold pins and reserves is given back when its pulls and its StreamFold have ended,
//     what its output is made of when nobody is being sent it either.
//
// Thread rule: everything on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_NODE_FOLD_H_
#define PHALANX_COLLECTIVES_NODE_FOLD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/fold_host.h"
#include "src/collectives/fold_order.h"
#include "src/collectives/stream_fold.h"
#include "src/common/executor.h"
#include "src/net/data_plane.h"
#include "src/object_store/store.h"

namespace phalanx::collectives {

class NodeFold {
 public:
  class Host : public FoldHost {
   public:
    // The output of a fold of the same target that is here, if it has begun.
    virtual std::optional<net::ServeGrant> OutputOf(const ObjectId& target,
                                                    const Generation& version) = 0;
    // Its output can be had from now on.
    virtual void OutputBegan(NodeFold& fold) = 0;
    // It is not placed here any more. Gone follows.
    virtual void Leaving(NodeFold& fold) = 0;
    // To be destroyed, in a later turn.
    virtual void Gone(NodeFold& fold) = 0;
  };

  // Both outlive it.
  NodeFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control);
  // Without a word to anybody; what runs on other loops ends in a later turn of theirs.
  ~NodeFold();
  NodeFold(const NodeFold&) = delete;
  NodeFold& operator=(const NodeFold&) = delete;

  void Start();
  // The same work with inputs from elsewhere, or committed. REQUIRES: order().SameWork(order).
  void Update(const FoldOrder& order);
  void Commit();
  // Idempotent.
  void Drop();

  // The output as it is to be had now; nothing for the root, or while it has not begun.
  std::optional<net::ServeGrant> Output() const;
  // An output of this version has begun on this node.
  void OutputBeganHere(const Generation& version);
  // For a new session: an order that comes in answer finds the target announced again.
  void Describe(v1::RegisterFold* out);
  // Reports how far it is, if that is further than it was. False when there is nothing to wait for.
  bool TellProgress(Instant now);

  const FoldOrder& order() const { return order_; }
  // Held for it now, its output included; of the root, without the target.
  uint64_t scratch_bytes() const;

 private:
  enum class Stage : uint8_t { kNew, kMemory, kFolding, kPassingOn, kFolded, kSealed, kEnding };

  struct Input {
    // Null: it is not to be had at the moment.
    std::shared_ptr<net::TransferBuffer> buffer;
    uint64_t offset = 0;
    // Keeps the bytes: a pin, memory of its own, another fold's output.
    std::shared_ptr<void> held;
    uint64_t scratch_bytes = 0;
    bool pulling = false;
    bool cancelling = false;
    net::DataPlane::PullHandle pull = 0;
    int failures = 0;
    TimerId retry = 0;
  };

  template <typename F>
  auto Guarded(F f);
  bool ending() const { return stage_ == Stage::kEnding; }
  bool Remote(size_t input) const;

  // ---- all at once
  // False: it is not small, or an input is not here as a whole.
  bool FoldAtOnce();
  void OnPut(const absl::StatusOr<object_store::PutResult>& result);
  // There is no place for the target here.
  void RefuseTarget(const absl::Status& why);

  // ---- memory
  void AskMemory();
  void OnReserved(absl::StatusOr<std::shared_ptr<object_store::Reservation>> result);
  void Allocate(std::optional<size_t> input);
  void OnScratch(std::optional<size_t> input, absl::StatusOr<object_store::Store::Scratch> result);
  void CreateTarget();
  void OnCreated(absl::StatusOr<object_store::WriteGrant> result);
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

  // ---- folding
  void TryFold();
  // Where the bytes of an input come from the network, if one's do.
  Executor& FoldLoop();
  void OnFolded(const StreamFold::Outcome& outcome);
  void Seal();
  void OnSealed(const absl::StatusOr<object_store::PutResult>& result);
  void WatchOutput();
  void OnOutputClosed();
  void WatchPart();
  void OnPart(Instant now);
  void Report(v1::FoldReport::Kind kind, const absl::Status& why, size_t input = 0);
  // Says so, and ends.
  void Refuse(v1::FoldReport::Kind kind, const absl::Status& why);
  void Settle();

  FoldOrder order_;
  const FoldOptions options_;
  Host& host_;
  Executor& control_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();

  Stage stage_ = Stage::kNew;
  std::vector<Input> inputs_;
  // Which input lies in the output's memory.
  std::optional<size_t> in_place_;

  object_store::RequestId request_ = 0;  // for memory, or the target
  std::shared_ptr<object_store::Reservation> reserved_;
  size_t allocating_ = 0;

  std::shared_ptr<net::TransferBuffer> output_;
  std::shared_ptr<void> output_held_;
  std::shared_ptr<void> output_block_;
  uint64_t output_scratch_bytes_ = 0;
  net::TransferBuffer::SubscriptionId output_watch_ = 0;
  net::TransferBuffer::SubscriptionId part_watch_ = 0;
  object_store::WriterId writer_ = 0;  // of the root, while it is not sealed
  Generation target_;                  // of the root, once it is announced
  bool announce_again_ = false;

  std::unique_ptr<StreamFold> stream_;
  uint64_t folded_ = 0;
  uint64_t told_ = 0;
  Instant told_at_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_NODE_FOLD_H_
