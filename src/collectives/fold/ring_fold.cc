#include "src/collectives/fold/ring_fold.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::collectives {
namespace {

using object_store::PutResult;
using object_store::View;
using object_store::WriteGrant;

uint64_t AllBut(int slices, int one) { return AllSlices(slices) & ~(uint64_t{1} << one); }

}  // namespace

RingFold::RingFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control)
    : Fold(std::move(order), options, host, control) {}

RingFold::~RingFold() {
  guard_.Close();
  for (SlicesPull& pull : pulls_) Abandon(pull);
  if (watch_ != 0) target_->Unsubscribe(watch_);
}

// -------------------------------------------------------------------------------------- memory

void RingFold::Start() { ReserveMemory(TargetBytes()); }

void RingFold::OnReserved() {
  object_store::PutOptions target = TargetOptions();
  // Named by the shard, because all members create one generation.
  target.generation = order_.ring->generation;
  target.slices = slices();
  CreateTarget(std::move(target));
}

void RingFold::OnCreated(const WriteGrant& grant) {
  // Gives back what the target has not taken.
  reserved_.reset();
  target_ = grant.buffer;
  const SliceLayout layout{order_.size_bytes, slices()};
  const absl::Span<char> bytes = grant.block->bytes().subspan(0, order_.size_bytes);
  pulls_[kPartial].into = std::make_shared<net::TransferBuffer>(layout, bytes, grant.block);
  folded_ = std::make_shared<net::TransferBuffer>(layout, bytes, grant.block);
  const uint64_t never = UINT64_MAX;
  // No watermark is above `never`: only the close of the target wakes the fold.
  const std::vector<uint64_t> seen(static_cast<size_t>(slices()), never);
  watch_ = target_->Subscribe(1, seen, control_, Guarded([this] { OnTargetClosed(); }));
  if (PinSources()) Begin();
}

bool RingFold::PinSources() {
  for (const FoldInput& source : order_.inputs) {
    absl::StatusOr<View> view =
        host_.store().PinCopy(host_.client(), source.source, source.generation);
    if (!view.ok()) {
      Refuse(v1::FoldReport::DROPPED, view.status());
      return false;
    }
    // Before the check: the pin is released on every way out.
    sources_.push_back({view->buffer, host_.Hold(view->pin)});
    const uint64_t bytes = view->buffer->layout().object_bytes;
    if (bytes != order_.size_bytes) {
      Refuse(v1::FoldReport::DROPPED,
             absl::InvalidArgumentError(absl::StrCat("source ", source.source.hex(), " has ", bytes,
                                                     " bytes, not ", order_.size_bytes)));
      return false;
    }
  }
  return true;
}

void RingFold::Begin() {
  stage_ = Stage::kFolding;
  reported_at_ = control_.Now();
  pulls_[kPartial].what = order_.version.AsGeneration();
  pulls_[kPartial].slices = AllBut(slices(), first());
  pulls_[kResult].into = target_;
  pulls_[kResult].what = order_.ring->generation;
  pulls_[kResult].slices = AllBut(slices(), own());
  // The slice that begins here has no partial bytes, and the own slice is finished here.
  StartPull(kPartial);
  StartPull(kResult);
  // The loop that receives the partial slices: no other thread has to be woken for them.
  Executor* const near = host_.data_plane().LoopOf(pulls_[kPartial].handle);
  Executor& loop = near != nullptr ? *near : host_.NextIo();
  folds_.resize(static_cast<size_t>(slices()));
  folding_ = slices();
  for (int slice = 0; slice < slices(); ++slice) StartFold(slice, loop);
  host_.OutputBegan(*this);
}

// ------------------------------------------------------------------------------------- folding

void RingFold::StartFold(int slice, Executor& loop) {
  StreamFold::Spec spec;
  // First, so that it is folded in place.
  if (slice != first()) spec.inputs.push_back({pulls_[kPartial].into, 0, /*raw=*/false, slice});
  for (const Source& source : sources_) {
    spec.inputs.push_back({source.buffer, target_->layout().Begin(slice), /*raw=*/true});
  }
  spec.elements = order_.spec.elements;
  spec.op = order_.spec.op;
  spec.planned = order_.planned;
  // Partial slices are published in folded_ alone: readers of the target see results only.
  spec.into = slice == own() ? target_ : folded_;
  spec.into_slice = slice;
  if (slice == own()) {
    spec.finish_sources = order_.sources();
    const bool shows_all = DefectActive(Defect::kRootShowsAll);
    spec.hold_back = shows_all ? 0 : std::min(target_->layout().Size(slice), kHeldBackBytes);
  }
  folds_[static_cast<size_t>(slice)] = std::make_unique<StreamFold>(
      std::move(spec), loop, control_,
      Guarded([this, slice](const StreamFold::Outcome& outcome) { OnFolded(slice, outcome); }));
}

void RingFold::OnFolded(int slice, const StreamFold::Outcome& outcome) {
  folds_[static_cast<size_t>(slice)].reset();
  --folding_;
  const uint64_t operands = sources_.size() + (slice == first() ? 0 : 1);
  host_.Folded(outcome.folded * operands, outcome.status.ok() && folding_ == 0);
  if (ending()) return Settle();
  if (!outcome.status.ok()) return Refuse(v1::FoldReport::DROPPED, outcome.status);
  if (slice == own()) {
    own_done_ = true;
    Report(v1::FoldReport::READY, absl::OkStatus());
  }
  // The pulls of the result may take long; the sources need not stay pinned for them.
  if (folding_ == 0) sources_.clear();
  SealIfWhole();
}

void RingFold::Commit() {
  if (order_.committed || stage_ != Stage::kFolding || !own_done_) return;
  // The StreamFold of this slice has ended, so its bytes are published here.
  order_.committed = true;
  target_->Publish(own(), target_->layout().Size(own()));
  SealIfWhole();
}

void RingFold::SealIfWhole() {
  // A pull that has all bytes but has not ended yet still refers to the target's memory.
  const bool whole = stage_ == Stage::kFolding && order_.committed && folding_ == 0 &&
                     target_->complete() && !pulls_[kPartial].pulling && !pulls_[kResult].pulling;
  if (!whole) return;
  target_->Unsubscribe(std::exchange(watch_, 0));
  Seal();
}

void RingFold::OnSealed(const absl::StatusOr<PutResult>& result) {
  if (result.ok() && !result->already_existed) host_.Sealed(order_);
  // The partial slices have gone around, and the target belongs to the store now.
  result.ok() ? Drop() : Refuse(v1::FoldReport::DROPPED, result.status());
}

// The store closes the target if another generation has won.
void RingFold::OnTargetClosed() {
  watch_ = 0;
  if (stage_ != Stage::kFolding && stage_ != Stage::kMemory) return;
  const absl::Status why = target_->close_status();
  if (!why.ok()) Refuse(v1::FoldReport::DROPPED, why);
}

// --------------------------------------------------------------------------------------- pulls

void RingFold::StartPull(Way way) {
  SlicesPull& pull = pulls_[way];
  // Both pulls are from the member before: its partial slices under the version, its results under
  // the generation.
  net::PullSpec spec{order_.ring->before, order_.ring->address, order_.target, pull.what,
                     pull.into,           pull.slices};
  Fold::StartPull(pull, way, std::move(spec), Guarded([this, way](const net::PullOutcome& outcome) {
                    OnPullDone(way, outcome);
                  }));
}

void RingFold::OnPullDone(Way way, const net::PullOutcome& outcome) {
  SlicesPull& pull = pulls_[way];
  EndPull(pull);
  if (ending()) return Settle();
  if (stage_ != Stage::kFolding) return;
  if (outcome.status.ok()) return SealIfWhole();
  // A sender that makes progress is retried soon, however often its connection breaks.
  if (outcome.bytes_received > 0) pull.failures = 0;
  ReportPull(pull, way, outcome.status);
  RetryLater(pull, [this, way] {
    if (stage_ == Stage::kFolding) StartPull(way);
  });
}

// --------------------------------------------------------------------------------------- ending

void RingFold::StopWork() {
  for (const auto& fold : folds_) {
    if (fold != nullptr) fold->Cancel();
  }
  for (SlicesPull& pull : pulls_) Stop(pull);
  if (watch_ != 0) target_->Unsubscribe(std::exchange(watch_, 0));
}

void RingFold::CloseOutput(Stage was, const absl::Status& why) {
  if (folded_ != nullptr && was != Stage::kSealed) folded_->Close(why);
}

void RingFold::Settle() {
  // Called again at the end of each fold and pull.
  const bool busy = folding_ > 0 || pulls_[kPartial].pulling || pulls_[kResult].pulling;
  if (!ending() || busy) return;
  for (SlicesPull& pull : pulls_) pull.into.reset();
  reserved_.reset();
  sources_.clear();
  target_.reset();
  folded_.reset();
  host_.Gone(*this);
}

// -------------------------------------------------------------------------------------- looking

std::optional<net::ServeGrant> RingFold::Output() const {
  if (stage_ != Stage::kFolding) return std::nullopt;
  return net::ServeGrant{folded_, nullptr};
}

uint64_t RingFold::FoldedBytes() const { return target_ != nullptr ? target_->bytes_present() : 0; }

}  // namespace phalanx::collectives
