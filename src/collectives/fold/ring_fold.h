// One node's part in a reduction by a ring: of the n nodes that have the sources, each finishes one
// slice of the result, and all of them get the whole result.
//
//   member i-1 ═══ (target, version): partly folded slices ══════► member i ═══► member i+1
//              ═══ (target, generation): slices of the result ═══►
//
// Slice s is folded from member s+1 on around the ring to member s, which finishes it; from there
// the result of the slice goes around once more. So each link carries 2(n-1)/n of the object, one
// way (the bandwidth-optimal ring of Patarasuk and Yuan, 2009). Everything happens in the target's
// own memory: a byte of the result arrives after the partial byte at the same place has gone around
// the whole ring, the next member included, so that the partial byte is not needed any more.
//
//   Start ─► [memory] ─► [folding] ──READY──► Commit ─► [sealed] once every slice is here
//   Drop, or a refusal, anywhere ─► [ending] ─► Gone
//
// The member that finishes a slice holds the last bytes of the slice back until the shard commits
// the ring: before the commit no node has a whole copy. A ring is not mended: when a member fails,
// the shard drops all members and has the result computed by a tree.
//
// Thread rule: everything on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_FOLD_RING_FOLD_H_
#define PHALANX_COLLECTIVES_FOLD_RING_FOLD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/fold/fold.h"
#include "src/collectives/fold/fold_order.h"
#include "src/collectives/fold/stream_fold.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

class RingFold final : public Fold {
 public:
  // Host and executor outlive the fold. REQUIRES: order.ring.
  RingFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control);
  ~RingFold() override;

  void Start() override;
  // Nothing of a ring is mended: a repeated order changes nothing.
  bool Update(const FoldOrder&) override { return true; }
  void Commit() override;

  // The folded slices, which the next member pulls.
  std::optional<net::ServeGrant> Output() const override;
  // A ring lives in one session of each member with the shard, but a sealed result stays.
  bool ends_with_session() const override { return stage_ != Stage::kSealed; }

 private:
  // The two pulls from the member before.
  enum Way : size_t { kPartial, kResult, kWays };
  struct SlicesPull : Pull {
    std::shared_ptr<net::TransferBuffer> into;
    Generation what;  // the version of the partial slices, or the generation of the target
    uint64_t slices = 0;
  };
  struct Source {
    std::shared_ptr<net::TransferBuffer> buffer;
    std::shared_ptr<void> held;
  };

  int slices() const { return order_.slots; }
  int own() const { return order_.slot; }
  // The slice whose fold begins at this member.
  int first() const { return (own() + slices() - 1) % slices(); }

  void OnReserved() override;
  void OnCreated(const object_store::WriteGrant& grant) override;
  bool PinSources();
  void Begin();
  void StartFold(int slice, Executor& loop);
  void OnFolded(int slice, const StreamFold::Outcome& outcome);
  void StartPull(Way way);
  void OnPullDone(Way way, const net::PullOutcome& outcome);
  void SealIfWhole();
  void OnSealed(const absl::StatusOr<object_store::PutResult>& result) override;
  void OnTargetClosed();
  uint64_t FoldedBytes() const override;

  void StopWork() override;
  void CloseOutput(Stage was, const absl::Status& why) override;
  void Settle() override;

  // Three views of the target's memory: the result, the partial slices from the member before
  // (pulls_[kPartial].into), and the folded slices.
  std::shared_ptr<net::TransferBuffer> target_;
  std::shared_ptr<net::TransferBuffer> folded_;
  net::TransferBuffer::SubscriptionId watch_ = 0;
  std::array<SlicesPull, kWays> pulls_;
  std::vector<Source> sources_;
  std::vector<std::unique_ptr<StreamFold>> folds_;  // by slice; null: done
  int folding_ = 0;                                 // of them
  bool own_done_ = false;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_RING_FOLD_H_
