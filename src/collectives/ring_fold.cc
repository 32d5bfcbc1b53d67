#include "src/collectives/ring_fold.h"

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

uint64_t AllBut(int slices, int one) {
  const uint64_t all = slices == kMaxSlices ? ~uint64_t{0} : (uint64_t{1} << slices) - 1;
  return all & ~(uint64_t{1} << one);
}

}  // namespace

// Wraps what is called back later, so that it does nothing once this is gone.
template <typename F>
auto RingFold::Guarded(F f) {
  return [alive = std::weak_ptr<char>(alive_), f = std::move(f)](auto&&... args) mutable {
    if (!alive.expired()) f(std::forward<decltype(args)>(args)...);
  };
}

RingFold::RingFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control)
    : order_(std::move(order)), options_(options), host_(host), control_(control) {}

RingFold::~RingFold() {
  alive_.reset();
  for (Pull& pull : pulls_) {
    if (pull.retry != 0) control_.Cancel(pull.retry);
    if (pull.pulling) host_.data_plane().CancelPull(pull.handle);
  }
  if (watch_ != 0) target_->Unsubscribe(watch_);
}

// -------------------------------------------------------------------------------------- memory

void RingFold::Start() {
  object_store::PutOptions target;
  target.reduced_from = order_.reduced_from;
  target.metadata = order_.metadata;
  target.asked_for = order_.asked_for;
  const uint64_t bytes = host_.store().CountedBytes(order_.size_bytes, target);
  request_ = host_.store().ReserveScratch(
      host_.client(), order_.target, bytes, control_.Now() + options_.memory_patience,
      Guarded([this](absl::StatusOr<std::shared_ptr<object_store::Reservation>> result) {
        OnReserved(std::move(result));
      }));
}

void RingFold::OnReserved(absl::StatusOr<std::shared_ptr<object_store::Reservation>> result) {
  request_ = 0;
  if (ending()) return;
  if (!result.ok()) return Refuse(v1::FoldReport::NO_MEMORY, result.status());
  reserved_ = *std::move(result);
  object_store::PutOptions target;
  target.id = order_.target;
  target.version = order_.version;
  target.generation = order_.ring->generation;
  target.slices = slices();
  target.reduced_from = order_.reduced_from;
  target.owned = order_.owned;
  target.metadata = order_.metadata;
  target.asked_for = order_.asked_for;
  target.memory = reserved_;
  request_ = host_.store().Create(
      host_.client(), std::move(target), order_.size_bytes,
      Guarded([this](absl::StatusOr<WriteGrant> granted) { OnCreated(std::move(granted)); }));
}

void RingFold::OnCreated(absl::StatusOr<WriteGrant> result) {
  request_ = 0;
  if (ending()) {
    if (result.ok()) (void)host_.store().Abort(host_.client(), result->writer);
    return;
  }
  if (!result.ok()) {
    const bool full = absl::IsResourceExhausted(result.status());
    return Refuse(full ? v1::FoldReport::NO_MEMORY : v1::FoldReport::DROPPED, result.status());
  }
  reserved_.reset();
  writer_ = result->writer;
  target_ = result->buffer;
  const net::SliceLayout layout{order_.size_bytes, slices()};
  const absl::Span<char> bytes = result->block->bytes().subspan(0, order_.size_bytes);
  pulls_[kPartial].into = std::make_shared<net::TransferBuffer>(layout, bytes, result->block);
  folded_ = std::make_shared<net::TransferBuffer>(layout, bytes, result->block);
  const uint64_t never = UINT64_MAX;
  const std::vector<uint64_t> seen(order_.slots, never);
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
  told_at_ = control_.Now();
  pulls_[kPartial].what = order_.version;
  pulls_[kPartial].slices = AllBut(slices(), first());
  pulls_[kResult].into = target_;
  pulls_[kResult].what = order_.ring->generation;
  pulls_[kResult].slices = AllBut(slices(), own());
  StartPull(kPartial);
  StartPull(kResult);
  Executor* const near = host_.data_plane().LoopOf(pulls_[kPartial].handle);
  Executor& loop = near != nullptr ? *near : host_.NextIo();
  folds_.resize(order_.slots);
  folding_ = slices();
  for (int slice = 0; slice < slices(); ++slice) StartFold(slice, loop);
  host_.OutputBegan(*this);
}

// ------------------------------------------------------------------------------------- folding

void RingFold::StartFold(int slice, Executor& loop) {
  StreamFold::Spec spec;
  if (slice != first()) spec.inputs.push_back({pulls_[kPartial].into, 0, /*raw=*/false, slice});
  for (const Source& source : sources_) {
    spec.inputs.push_back({source.buffer, target_->layout().Begin(slice), /*raw=*/true});
  }
  spec.elements = order_.elements;
  spec.op = order_.op;
  spec.planned = order_.planned;
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
  if (folding_ == 0) sources_.clear();
  SealIfWhole();
}

void RingFold::Commit() {
  if (order_.committed || stage_ != Stage::kFolding || !own_done_) return;
  order_.committed = true;
  target_->Publish(own(), target_->layout().Size(own()));
  SealIfWhole();
}

void RingFold::SealIfWhole() {
  const bool whole = stage_ == Stage::kFolding && order_.committed && folding_ == 0 &&
                     target_->complete() && !pulls_[kPartial].pulling && !pulls_[kResult].pulling;
  if (!whole) return;
  stage_ = Stage::kSealed;
  target_->Unsubscribe(std::exchange(watch_, 0));
  host_.store().Seal(
      host_.client(), std::exchange(writer_, 0), /*wait_for_adoption=*/false,
      Guarded([this](const absl::StatusOr<PutResult>& result) { OnSealed(result); }));
}

void RingFold::OnSealed(const absl::StatusOr<PutResult>& result) {
  if (result.ok() && !result->already_existed) host_.Sealed(order_);
  // What was folded has gone around, and the target is the store's.
  result.ok() ? Drop() : Refuse(v1::FoldReport::DROPPED, result.status());
}

// Somebody else gives the target up: the store, since another one won.
void RingFold::OnTargetClosed() {
  watch_ = 0;
  if (stage_ != Stage::kFolding && stage_ != Stage::kMemory) return;
  const absl::Status why = target_->close_status();
  if (!why.ok()) Refuse(v1::FoldReport::DROPPED, why);
}

// --------------------------------------------------------------------------------------- pulls

void RingFold::StartPull(Way way) {
  Pull& pull = pulls_[way];
  pull.pulling = true;
  net::PullSpec spec{order_.ring->before, order_.ring->address, order_.target, pull.what,
                     pull.into,           pull.slices};
  pull.handle = host_.data_plane().StartPull(
      std::move(spec),
      Guarded([this, way](const net::PullOutcome& outcome) { OnPullDone(way, outcome); }));
}

void RingFold::OnPullDone(Way way, const net::PullOutcome& outcome) {
  Pull& pull = pulls_[way];
  pull.pulling = false;
  if (ending()) return Settle();
  if (stage_ != Stage::kFolding) return;
  if (outcome.status.ok()) return SealIfWhole();
  if (outcome.bytes_received > 0) pull.failures = 0;
  Report(v1::FoldReport::FAILED, outcome.status, way);
  const absl::Duration wait =
      std::min(options_.retry_after * (1 << std::min(pull.failures++, 16)), options_.retry_at_most);
  pull.retry = control_.RunAt(control_.Now() + wait, Guarded([this, way] {
                                pulls_[way].retry = 0;
                                if (stage_ == Stage::kFolding) StartPull(way);
                              }));
}

// --------------------------------------------------------------------------------------- ending

void RingFold::Drop() {
  if (ending()) return;
  const bool sealed = stage_ == Stage::kSealed;
  stage_ = Stage::kEnding;
  host_.Leaving(*this);
  const absl::Status why = absl::AbortedError("the ring was dropped");
  if (request_ != 0) host_.store().Cancel(host_.client(), std::exchange(request_, 0));
  for (const auto& fold : folds_) {
    if (fold != nullptr) fold->Cancel();
  }
  for (Pull& pull : pulls_) {
    if (pull.retry != 0) control_.Cancel(std::exchange(pull.retry, 0));
    if (!pull.pulling || std::exchange(pull.cancelling, true)) continue;
    host_.data_plane().CancelPull(pull.handle);
  }
  if (watch_ != 0) target_->Unsubscribe(std::exchange(watch_, 0));
  if (writer_ != 0) (void)host_.store().Abort(host_.client(), std::exchange(writer_, 0));
  if (folded_ != nullptr && !sealed) folded_->Close(why);
  host_.data_plane().AbortPushes(order_.target, order_.version, why);
  Settle();
}

void RingFold::Settle() {
  const bool busy = folding_ > 0 || pulls_[kPartial].pulling || pulls_[kResult].pulling;
  if (!ending() || busy) return;
  for (Pull& pull : pulls_) pull.into.reset();
  reserved_.reset();
  sources_.clear();
  target_.reset();
  folded_.reset();
  host_.Gone(*this);
}

void RingFold::Report(v1::FoldReport::Kind kind, const absl::Status& why, size_t input) {
  v1::FoldReport report;
  report.set_kind(kind);
  report.set_input(static_cast<uint32_t>(input));
  report.set_code(static_cast<int>(why.code()));
  report.set_message(std::string(why.message()));
  report.set_watermark(target_ != nullptr ? target_->bytes_present() : 0);
  host_.Report(order_, std::move(report));
}

void RingFold::Refuse(v1::FoldReport::Kind kind, const absl::Status& why) {
  Report(kind, why);
  Drop();
}

// -------------------------------------------------------------------------------------- looking

std::optional<net::ServeGrant> RingFold::Folded() const {
  if (stage_ != Stage::kFolding) return std::nullopt;
  return net::ServeGrant{folded_, nullptr};
}

bool RingFold::TellProgress(Instant now) {
  if (stage_ != Stage::kFolding) return stage_ == Stage::kMemory;
  const uint64_t here = target_->bytes_present();
  const double seconds = absl::ToDoubleSeconds(now - told_at_);
  if (here == told_ || seconds <= 0) return true;
  v1::FoldReport report;
  report.set_kind(v1::FoldReport::PROGRESS);
  report.set_watermark(here);
  report.set_bytes_per_second(static_cast<double>(here - told_) / seconds);
  told_ = here;
  told_at_ = now;
  host_.Report(order_, std::move(report));
  return true;
}

}  // namespace phalanx::collectives
