// One node's part in a reduction by a ring: of the n nodes that have the sources, each has a slice
// of the result end at it, and all of them get the whole.
//
//   member i-1 ═══ (target, version): slices as folded so far ═══► member i ═══► member i+1
//              ═══ (target, generation): slices of the result ═══►
//
// Slice s is folded from member s+1 on around the ring to member s, which finishes it; from there
// it goes around once more. So each link carries 2(n-1)/n of the object, one way (the bandwidth-
// optimal ring of Patarasuk and Yuan, 2009). Everything happens in the target's own memory: where
// a byte of the result arrives, what was folded there has gone around the whole ring, the next
// member included, and is not needed any more.
//
//   Start ─► [memory] ─► [folding] ──READY──► Commit ─► [sealed] once every slice is here
//   Drop, or a refusal, anywhere ─► [ending] ─► Gone
//
// The last bytes of each slice are held back by the member that finishes it until all of them are
// told to commit: nobody has a whole copy of what is not committed. Nothing is mended here: when a
// member fails its shard drops all of them and has the result computed another way.
//
// Thread rule: everything on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_RING_FOLD_H_
#define PHALANX_COLLECTIVES_RING_FOLD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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

class RingFold {
 public:
  class Host : public FoldHost {
   public:
    // What it has folded can be had from now on.
    virtual void OutputBegan(RingFold& fold) = 0;
    // To be destroyed, in a later turn. It may have been left by then.
    virtual void Gone(RingFold& fold) = 0;
    // It is not placed here any more. Gone follows.
    virtual void Leaving(RingFold& fold) = 0;
  };

  // All of them outlive it. REQUIRES: order.ring.
  RingFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control);
  ~RingFold();
  RingFold(const RingFold&) = delete;
  RingFold& operator=(const RingFold&) = delete;

  void Start();
  void Commit();
  // Idempotent. What is sealed stays.
  void Drop();

  // What the next member pulls as (target, version); nothing while it has not begun.
  std::optional<net::ServeGrant> Folded() const;
  // As NodeFold's.
  bool TellProgress(Instant now);

  const FoldOrder& order() const { return order_; }
  bool sealed() const { return stage_ == Stage::kSealed; }

 private:
  enum class Stage : uint8_t { kMemory, kFolding, kSealed, kEnding };
  // The two pulls from the member before.
  enum Way : size_t { kPartial, kResult, kWays };
  struct Pull {
    std::shared_ptr<net::TransferBuffer> into;
    Generation what;
    uint64_t slices = 0;
    bool pulling = false;
    bool cancelling = false;
    net::DataPlane::PullHandle handle = 0;
    int failures = 0;
    TimerId retry = 0;
  };
  struct Source {
    std::shared_ptr<net::TransferBuffer> buffer;
    std::shared_ptr<void> held;
  };

  template <typename F>
  auto Guarded(F f);
  bool ending() const { return stage_ == Stage::kEnding; }
  int slices() const { return static_cast<int>(order_.slots); }
  int own() const { return static_cast<int>(order_.slot); }
  // The slice that begins here.
  int first() const { return (own() + slices() - 1) % slices(); }

  void OnReserved(absl::StatusOr<std::shared_ptr<object_store::Reservation>> result);
  void OnCreated(absl::StatusOr<object_store::WriteGrant> result);
  bool PinSources();
  void Begin();
  void StartFold(int slice, Executor& loop);
  void OnFolded(int slice, const StreamFold::Outcome& outcome);
  void StartPull(Way way);
  void OnPullDone(Way way, const net::PullOutcome& outcome);
  void SealIfWhole();
  void OnSealed(const absl::StatusOr<object_store::PutResult>& result);
  void OnTargetClosed();
  void Report(v1::FoldReport::Kind kind, const absl::Status& why, size_t input = 0);
  // Says so, and ends.
  void Refuse(v1::FoldReport::Kind kind, const absl::Status& why);
  void Settle();

  FoldOrder order_;
  const FoldOptions options_;
  Host& host_;
  Executor& control_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();

  Stage stage_ = Stage::kMemory;
  object_store::RequestId request_ = 0;  // for memory, or the target
  std::shared_ptr<object_store::Reservation> reserved_;
  object_store::WriterId writer_ = 0;  // while it is not sealed
  // Three views of the target's memory: the result, what comes to be folded, and what has been.
  std::shared_ptr<net::TransferBuffer> target_;
  std::shared_ptr<net::TransferBuffer> folded_;
  net::TransferBuffer::SubscriptionId watch_ = 0;
  std::array<Pull, kWays> pulls_;
  std::vector<Source> sources_;
  std::vector<std::unique_ptr<StreamFold>> folds_;  // by slice; null: done
  int folding_ = 0;                                 // of them
  bool own_done_ = false;
  uint64_t told_ = 0;
  Instant told_at_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_RING_FOLD_H_
