#include "src/collectives/fold/node_fold.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/collectives/fold/block_fold.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::collectives {
namespace {

using object_store::PutResult;
using object_store::Store;
using object_store::View;
using object_store::WriteGrant;

// Bytes of operands that are folded on the control loop in one turn.
constexpr uint64_t kAtOnceBytes = uint64_t{1} << 20;
// Failures to find another fold of this node before one is reported: the order of that fold can
// arrive a little later than this one's.
constexpr int kSilentLocalFailures = 4;
// A fold reports its progress after each such part, but not more often than this: the more slots
// the tree has, the less often, so that the shard's load does not grow with the tree.
constexpr uint64_t kReportedParts = 8;
constexpr uint64_t kLeastReportedPart = uint64_t{1} << 20;
constexpr absl::Duration kReportInterval = absl::Milliseconds(10);
constexpr absl::Duration kReportIntervalPerSlot = absl::Microseconds(100);

// The bytes below `begin` are not there and are never read: a pull continues behind them.
std::shared_ptr<net::TransferBuffer> BufferOver(absl::Span<char> bytes,
                                                std::shared_ptr<void> memory, uint64_t begin = 0) {
  auto buffer =
      std::make_shared<net::TransferBuffer>(SliceLayout{bytes.size(), 1}, bytes, std::move(memory));
  if (begin > 0) buffer->Publish(0, begin);
  return buffer;
}

std::shared_ptr<net::TransferBuffer> BufferOf(std::string bytes) {
  auto kept = std::make_shared<std::string>(std::move(bytes));
  auto buffer = BufferOver(absl::MakeSpan(kept->data(), kept->size()), kept);
  buffer->Publish(0, kept->size());
  buffer->Close(absl::OkStatus());
  return buffer;
}

}  // namespace

NodeFold::NodeFold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control)
    : Fold(std::move(order), options, host, control), inputs_(order_.inputs.size()) {}

NodeFold::~NodeFold() {
  guard_.Close();
  if (look_ != 0) control_.Cancel(look_);
  for (Input& input : inputs_) Abandon(input);
  if (output_watch_ != 0) output_->Unsubscribe(output_watch_);
  if (part_watch_ != 0) output_->Unsubscribe(part_watch_);
}

bool NodeFold::Remote(size_t i) const {
  const FoldInput& input = order_.inputs[i];
  return input.kind == FoldInput::Kind::kSlot && input.node != options_.self;
}

bool NodeFold::Local(size_t i) const {
  const FoldInput& input = order_.inputs[i];
  return input.kind == FoldInput::Kind::kSlot && input.node == options_.self;
}

void NodeFold::Start() {
  if (order_.PassesOn()) {
    PassOn();
  } else if (!FoldAtOnce()) {
    AskMemory();
  }
}

// --------------------------------------------------------------------------------- all at once

bool NodeFold::FoldAtOnce() {
  const uint64_t bytes = order_.size_bytes;
  if (!order_.root || !order_.committed || bytes > kMaxInlineBytes) return false;
  // On the control loop, so only as much as a client's request can wait for.
  if (bytes * inputs_.size() > kAtOnceBytes) return false;
  std::vector<BlockFold::Operand> operands;
  std::vector<std::shared_ptr<void>> held;  // pins, until the fold has read the sources
  for (const FoldInput& input : order_.inputs) {
    if (input.kind == FoldInput::Kind::kInline) {
      operands.push_back({input.bytes.data(), true});
      continue;
    }
    if (input.kind != FoldInput::Kind::kSource) return false;
    const absl::StatusOr<View> view =
        host_.store().PinCopy(host_.client(), input.source, input.generation);
    if (!view.ok()) return false;
    held.push_back(host_.Hold(view->pin));
    const uint64_t there = view->buffer->layout().object_bytes;
    const bool reaches =
        order_.spec.range_offset <= there && bytes <= there - order_.spec.range_offset;
    if (!view->buffer->complete() || !reaches) return false;
    operands.push_back({view->buffer->slice(0).data() + order_.spec.range_offset, true});
  }
  std::string result(bytes, '\0');
  BlockFold fold({order_.spec.elements, order_.spec.op, order_.planned, order_.sources()}, bytes);
  fold.Run(operands, result.data(), 0, bytes);
  folded_ = bytes;
  host_.Folded(bytes * operands.size(), /*done=*/true);
  stage_ = Stage::kMemory;
  object_store::PutOptions target = TargetOptions();
  target.deadline = control_.Now() + options_.memory_patience;
  request_ =
      host_.store().Put(host_.client(), std::move(target), std::move(result),
                        Guarded([this](const absl::StatusOr<PutResult>& put) { OnPut(put); }));
  return true;
}

void NodeFold::OnPut(const absl::StatusOr<PutResult>& result) {
  request_ = 0;
  if (ending()) return;
  if (!result.ok()) return RefuseTarget(result.status());
  if (result->already_existed) {
    // A client of this node has put the target, and that copy can stand by for ever. A writer's
    // buffer is closed when its generation loses, so that the fold learns the outcome.
    folded_ = 0;
    return AskMemory();
  }
  stage_ = Stage::kSealed;
  target_ = result->generation;
  host_.Sealed(order_);
}

// -------------------------------------------------------------------------------------- memory

void NodeFold::AskMemory() {
  // Whole elements: the fold above asks for a byte that is not below this one.
  begin_ = order_.begin / order_.spec.elements.Grain() * order_.spec.elements.Grain();
  folded_ = begin_;
  uint64_t bytes = order_.root ? TargetBytes() : order_.size_bytes;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!Remote(i)) continue;
    // One pulled input lies in the output's memory. StreamFold takes only one of the first two.
    if (!in_place_ && i < 2) {
      in_place_ = i;
    } else if (bytes <= UINT64_MAX - order_.size_bytes) {
      inputs_[i].scratch_bytes = order_.size_bytes;
      bytes += order_.size_bytes;
    }
  }
  ReserveMemory(bytes);
}

void NodeFold::OnReserved() {
  if (!order_.root) Allocate(std::nullopt);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].scratch_bytes > 0) Allocate(i);
  }
  // Allocations call back in a later turn, so that this is a root without scratch.
  if (allocating_ == 0) CreateTarget(TargetOptions());
}

void NodeFold::Allocate(std::optional<size_t> input) {
  ++allocating_;
  host_.store().AllocateScratch(reserved_, order_.size_bytes,
                                Guarded([this, input](absl::StatusOr<Store::Scratch> result) {
                                  OnScratch(input, std::move(result));
                                }));
}

void NodeFold::OnScratch(std::optional<size_t> input, absl::StatusOr<Store::Scratch> result) {
  --allocating_;
  if (ending()) return;
  if (!result.ok()) return Refuse(v1::FoldReport::NO_MEMORY, result.status());
  auto buffer = BufferOver(result->block->bytes(), result->block, begin_);
  if (input) {
    inputs_[*input].buffer = std::move(buffer);
    inputs_[*input].held = result->counted;
  } else {
    output_ = std::move(buffer);
    output_held_ = result->counted;
    output_block_ = result->block;
    output_scratch_bytes_ = order_.size_bytes;
  }
  // All of the memory before any of the work (invariant 1).
  if (allocating_ > 0) return;
  if (order_.root) {
    CreateTarget(TargetOptions());
  } else {
    Begin();
  }
}

void NodeFold::OnCreated(const WriteGrant& grant) {
  target_ = grant.generation;
  output_ = grant.buffer;
  output_block_ = grant.block;
  WatchOutput();
  Begin();
}

void NodeFold::Begin() {
  stage_ = Stage::kFolding;
  // Gives back what the output, the target and the scratch have not taken.
  reserved_.reset();
  reported_at_ = control_.Now();
  if (in_place_) {
    inputs_[*in_place_].buffer = BufferOver(
        absl::MakeSpan(output_->slice(0).data(), order_.size_bytes), output_block_, begin_);
  }
  // Before the inputs: the nodes above pull while this node still waits for its first byte.
  host_.OutputBegan(*this);
  if (order_.root && DefectActive(Defect::kReadyTooEarly)) {
    Report(v1::FoldReport::READY, absl::OkStatus());
  }
  WatchPart();
  // Acquire can refuse the order, which ends the fold.
  for (size_t i = 0; i < inputs_.size() && stage_ == Stage::kFolding; ++i) Acquire(i);
}

// -------------------------------------------------------------------------------------- inputs

// The source's own buffer becomes the output, without a copy. A part of a source, or a source in
// slices, is copied: peers pull an output as one slice from its begin.
void NodeFold::PassOn() {
  if (!PinSource(0)) return;
  Input& source = inputs_[0];
  const SliceLayout& layout = source.buffer->layout();
  if (layout.slices != 1 || layout.object_bytes != order_.size_bytes) {
    Release(source);
    return AskMemory();
  }
  stage_ = Stage::kPassingOn;
  output_ = std::exchange(source.buffer, nullptr);
  output_held_ = std::exchange(source.held, nullptr);
  WatchOutput();
  host_.OutputBegan(*this);
}

void NodeFold::Acquire(size_t i) {
  switch (order_.inputs[i].kind) {
    case FoldInput::Kind::kInline:
      inputs_[i].buffer = BufferOf(order_.inputs[i].bytes);
      break;
    case FoldInput::Kind::kSource:
      if (!PinSource(i)) return;
      break;
    case FoldInput::Kind::kSlot:
      // A sender that has moved to this node since is pulled like any other: the memory is
      // reserved.
      if (inputs_[i].buffer != nullptr) {
        StartPull(i);
      } else if (!TakeLocal(i)) {
        return;
      }
      break;
  }
  TryFold();
}

bool NodeFold::PinSource(size_t i) {
  const FoldInput& source = order_.inputs[i];
  absl::StatusOr<View> view =
      host_.store().PinCopy(host_.client(), source.source, source.generation);
  if (!view.ok()) {
    Failed(i, view.status());
    return false;
  }
  // Held before the check: the pin is released on every way out.
  std::shared_ptr<void> held = host_.Hold(view->pin);
  const uint64_t bytes = view->buffer->layout().object_bytes;
  if (order_.spec.range_offset > bytes || bytes - order_.spec.range_offset < order_.size_bytes) {
    Refuse(v1::FoldReport::DROPPED,
           absl::InvalidArgumentError(absl::StrCat(
               "source ", source.source.hex(), " has ", bytes, " bytes, not [",
               order_.spec.range_offset, ", ", order_.spec.range_offset + order_.size_bytes, ")")));
    return false;
  }
  Input& input = inputs_[i];
  input.failures = 0;
  input.buffer = view->buffer;
  input.offset = order_.spec.range_offset;
  input.held = std::move(held);
  return true;
}

bool NodeFold::TakeLocal(size_t i) {
  const SlotVersion& version = order_.inputs[i].version;
  std::optional<net::ServeGrant> output = host_.OutputOf(order_.target, version, folded_);
  if (output && output->from->layout().object_bytes == order_.size_bytes) {
    inputs_[i].failures = 0;
    inputs_[i].buffer = std::move(output->from);
    inputs_[i].held = std::move(output->pin);
    return true;
  }
  Failed(i, absl::NotFoundError(
                absl::StrCat("no fold of version ", version.ToString(), " is on this node")));
  return false;
}

void NodeFold::OutputBeganHere(const SlotVersion& version) {
  for (size_t i = 0; i < inputs_.size() && stage_ == Stage::kFolding; ++i) {
    const FoldInput& input = order_.inputs[i];
    const bool missing = input.kind == FoldInput::Kind::kSlot && inputs_[i].buffer == nullptr;
    if (!missing || input.version != version) continue;
    // The input is here now; the retry would come later.
    CancelRetry(inputs_[i]);
    Acquire(i);
  }
}

void NodeFold::StartPull(size_t i) {
  const FoldInput& from = order_.inputs[i];
  Input& input = inputs_[i];
  // One pull at a time writes into an input (invariant 2).
  if (input.pulling || input.buffer->complete()) return;
  net::PullSpec spec{from.node, from.address, order_.target, from.version.AsGeneration(),
                     input.buffer};
  Fold::StartPull(input, i, std::move(spec),
                  Guarded([this, i](const net::PullOutcome& outcome) { OnPullDone(i, outcome); }));
  input.pace.emplace(control_.Now(), input.buffer->watermark(0));
  ArmLook();
}

void NodeFold::OnPullDone(size_t i, const net::PullOutcome& outcome) {
  Input& input = inputs_[i];
  EndPull(input);
  const std::optional<InputPace::News> over = input.pace->End(control_.Now(), ArrivedBytes(i));
  input.pace.reset();
  if (over && !ending()) ReportPace(i, *over);
  const bool replaced = std::exchange(input.cancelling, false);
  if (ending()) return Settle();
  if (stage_ != Stage::kFolding) return Release(input);
  // A sender that makes progress is retried soon, however often its connection breaks.
  if (outcome.bytes_received > 0) input.failures = 0;
  if (input.buffer->complete()) return;
  // From the new sender, at the watermark: the version, and so the bytes, are the same.
  if (replaced) return StartPull(i);
  Failed(i, outcome.status);
}

void NodeFold::Failed(size_t i, const absl::Status& why) {
  Input& input = inputs_[i];
  // The order of the other fold can still be on its way.
  const bool silent = Local(i) && input.failures + 1 < kSilentLocalFailures;
  if (!silent) Report(v1::FoldReport::FAILED, why, i, Remote(i) ? input.sender : NodeKey());
  RetryLater(input, [this, i] {
    if (stage_ == Stage::kNew) return PassOn();
    if (stage_ == Stage::kFolding) Acquire(i);
  });
}

void NodeFold::Release(Input& input) {
  // The pull still writes into the buffer; its end releases the input.
  if (input.pulling) return;
  input.buffer.reset();
  input.held.reset();
  input.scratch_bytes = 0;
}

// ---------------------------------------------------------------------------- how inputs arrive

// One timer for all inputs: a fold has few, and their looks fall together.
void NodeFold::ArmLook() {
  Instant next = Instant::Infinite();
  for (const Input& input : inputs_) {
    if (input.pace) next = std::min(next, input.pace->next_look());
  }
  if (look_ != 0) control_.Cancel(std::exchange(look_, 0));
  if (next.infinite()) return;
  look_ = control_.RunAt(next, Guarded([this] {
                           look_ = 0;
                           if (!ending()) OnLook();
                         }));
}

void NodeFold::OnLook() {
  const Instant now = control_.Now();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    if (!input.pace || input.pace->next_look() > now) continue;
    const uint64_t present = input.buffer->watermark(0);
    const bool handed_on = FoldedBytes() > begin_ && FoldedBytes() >= present;
    const InputPace::Seen seen{present, input.progress->starved_ns.load(std::memory_order_relaxed)};
    if (const auto news = input.pace->Look(now, seen, handed_on)) ReportPace(i, *news);
  }
  ArmLook();
}

void NodeFold::ReportPace(size_t i, const InputPace::News& news) {
  const auto ns = [](absl::Duration time) {
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
  };
  v1::FoldReport report = Progress(control_.Now());
  v1::InputPace& pace = *report.mutable_pace();
  pace.set_input(static_cast<uint32_t>(i));
  directory::ToProto(inputs_[i].sender, pace.mutable_sender());
  pace.set_watermark(inputs_[i].buffer == nullptr ? FoldedBytes()
                                                  : inputs_[i].buffer->watermark(0));
  pace.set_bytes_per_second(news.bytes_per_second);
  pace.set_window_ns(ns(news.window));
  pace.set_starved_ns(news.starved_ns);
  pace.set_silent_ns(ns(news.silent));
  host_.Report(order_, std::move(report));
}

// ------------------------------------------------------------------------------------- folding

void NodeFold::TryFold() {
  if (stage_ != Stage::kFolding || stream_ != nullptr) return;
  StreamFold::Spec spec;
  // Backwards: inputs are acquired in order, so that the last one is mostly the one that is
  // missing.
  for (size_t i = inputs_.size(); i-- > 0;) {
    if (inputs_[i].buffer == nullptr) return;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    // Outputs of other slots are prepared already.
    const bool raw = order_.inputs[i].kind != FoldInput::Kind::kSlot;
    spec.inputs.push_back({inputs_[i].buffer, inputs_[i].offset, raw});
  }
  spec.elements = order_.spec.elements;
  spec.op = order_.spec.op;
  spec.into = output_;
  spec.planned = order_.planned;
  spec.begin = folded_;
  if (order_.root) {
    spec.finish_sources = order_.sources();
    // Readers of the target must not have all bytes of a result that can still be dropped.
    const bool shows_all = order_.committed || DefectActive(Defect::kRootShowsAll);
    spec.hold_back = shows_all ? 0 : std::min(order_.size_bytes, kHeldBackBytes);
  }
  stream_ = std::make_unique<StreamFold>(
      std::move(spec), FoldLoop(), control_,
      Guarded([this](const StreamFold::Outcome& outcome) { OnFolded(outcome); }));
}

Executor& NodeFold::FoldLoop() {
  // The loop that receives an input's bytes: no other thread has to be woken for them.
  for (const Input& input : inputs_) {
    Executor* const loop = input.pulling ? host_.data_plane().LoopOf(input.handle) : nullptr;
    if (loop != nullptr) return *loop;
  }
  return host_.NextIo();
}

void NodeFold::OnFolded(const StreamFold::Outcome& outcome) {
  stream_.reset();
  // A fold that stopped short continues from here once its input is back.
  const uint64_t before = std::exchange(folded_, outcome.folded);
  host_.Folded((folded_ - before) * inputs_.size(), outcome.status.ok());
  if (ending()) return Settle();
  if (!outcome.status.ok()) {
    PHALANX_CHECK(outcome.input >= 0, "only an input's end keeps a fold from its own");
    const size_t i = static_cast<size_t>(outcome.input);
    Release(inputs_[i]);
    return Failed(i, outcome.status);
  }
  stage_ = Stage::kFolded;
  // Sources and scratch are not needed to serve the output.
  for (Input& input : inputs_) Release(input);
  if (!order_.root) return;
  if (order_.committed) {
    Seal();
  } else {
    Report(v1::FoldReport::READY, absl::OkStatus());
  }
}

void NodeFold::OnSealed(const absl::StatusOr<PutResult>& result) {
  if (result.ok() && !result->already_existed) return host_.Sealed(order_);
  if (!ending() && !result.ok()) Refuse(v1::FoldReport::DROPPED, result.status());
}

void NodeFold::Commit() {
  order_.committed = true;
  if (!order_.root || stage_ == Stage::kSealed || ending()) return;
  if (stage_ == Stage::kFolded) return Seal();
  // Still folding: the stream publishes the last bytes itself when it comes to them.
  if (stream_ != nullptr) stream_->Release();
}

// The store closes a buffer that is not this fold's alone: a source that is passed on and deleted,
// or a target whose generation lost. No watermark is above `never`: only the close wakes the fold.
void NodeFold::WatchOutput() {
  const uint64_t never = UINT64_MAX;
  output_watch_ = output_->Subscribe(1, absl::MakeConstSpan(&never, 1), control_,
                                     Guarded([this] { OnOutputClosed(); }));
}

void NodeFold::OnOutputClosed() {
  output_watch_ = 0;
  if (ending() || output_ == nullptr) return;
  const absl::Status why = output_->close_status();
  if (why.ok()) return;
  if (order_.root) return Refuse(v1::FoldReport::DROPPED, why);
  // The source that was passed on is gone from this node; it can be put again.
  stage_ = Stage::kNew;
  output_.reset();
  output_held_.reset();
  Failed(0, why);
}

// ----------------------------------------------------------------------------------- directory

bool NodeFold::Update(const FoldOrder& order) {
  if (!order_.SameWork(order, options_.self)) return false;
  order_.slot = order.slot;
  order_.slots = order.slots;
  order_.degree = order.degree;
  order_.number = order.number;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    FoldInput& mine = order_.inputs[i];
    const FoldInput& theirs = order.inputs[i];
    if (mine.node == theirs.node && mine.address == theirs.address) continue;
    mine.node = theirs.node;
    mine.address = theirs.address;
    Input& input = inputs_[i];
    input.failures = 0;
    CancelRetry(input);
    if (stage_ != Stage::kFolding) continue;
    // A pull that is cancelled starts again from the new sender when its end is called back.
    input.pulling ? Stop(input) : Acquire(i);
  }
  // The shard that registered this fold has ordered it again, so it expects the target.
  if (std::exchange(announce_again_, false)) {
    host_.store().AnnounceAgain(order_.target, target_, order_.version);
  }
  if (order.committed) {
    Commit();
  } else if (order_.root && stage_ == Stage::kFolded) {
    // A shard that has restarted does not know of the first report.
    Report(v1::FoldReport::READY, absl::OkStatus());
  }
  return true;
}

void NodeFold::StopWork() {
  if (look_ != 0) control_.Cancel(std::exchange(look_, 0));
  if (stream_ != nullptr) stream_->Cancel();
  for (Input& input : inputs_) Stop(input);
  if (output_watch_ != 0) output_->Unsubscribe(std::exchange(output_watch_, 0));
  if (part_watch_ != 0) output_->Unsubscribe(std::exchange(part_watch_, 0));
}

void NodeFold::CloseOutput(Stage was, const absl::Status& why) {
  // A target is the store's, and a source that is passed on stays a source.
  const bool own_output = output_ != nullptr && !order_.root && was != Stage::kPassingOn;
  if (own_output) output_->Close(why);
}

void NodeFold::Settle() {
  // Called again at the end of the stream and of each pull.
  if (!ending() || stream_ != nullptr) return;
  for (Input& input : inputs_) {
    Release(input);
    // An I/O loop still writes into this input's memory.
    if (input.pulling) return;
  }
  reserved_.reset();
  output_.reset();
  output_held_.reset();
  output_block_.reset();
  output_scratch_bytes_ = 0;
  host_.Gone(*this);
}

// ------------------------------------------------------------------------------------- looking

std::optional<net::ServeGrant> NodeFold::Output() const {
  const bool begun =
      stage_ == Stage::kFolding || stage_ == Stage::kPassingOn || stage_ == Stage::kFolded;
  if (order_.root || !begun) return std::nullopt;
  return net::ServeGrant{output_, output_held_};
}

bool NodeFold::Describe(v1::RegisterFold* out) {
  if (order_.relay) return false;
  announce_again_ = target_.valid();
  out->set_slot(static_cast<uint32_t>(order_.slot));
  out->set_slots(static_cast<uint32_t>(order_.slots));
  out->set_degree(static_cast<uint32_t>(order_.degree));
  if (order_.number.valid()) directory::ToProto(order_.number, out->mutable_begun());
  out->set_root(order_.root);
  if (target_.valid()) directory::ToProto(target_, out->mutable_generation());
  out->set_ready(order_.root && (stage_ == Stage::kFolded || stage_ == Stage::kSealed));
  for (const FoldInput& input : order_.inputs) {
    const bool own = input.kind != FoldInput::Kind::kSlot && !input.source.nil();
    if (own) directory::ToProto(input.source, out->add_source_ids());
  }
  return true;
}

uint64_t NodeFold::FoldedBytes() const { return stream_ != nullptr ? stream_->folded() : folded_; }

uint64_t NodeFold::ArrivedBytes(size_t input) const {
  const bool pulled = Remote(input) && inputs_[input].buffer != nullptr;
  return pulled ? inputs_[input].buffer->watermark(0) : FoldedBytes();
}

// Subscribes to the end of the next part. Small folds are reported by the reducer's timer alone.
void NodeFold::WatchPart() {
  const uint64_t part = order_.size_bytes / kReportedParts;
  const uint64_t there = output_->watermark(0);
  const uint64_t next = part == 0 ? 0 : (there / part + 1) * part;
  if (part < kLeastReportedPart || next >= order_.size_bytes || output_->closed()) return;
  const uint64_t seen = next - 1;
  part_watch_ = output_->Subscribe(1, absl::MakeConstSpan(&seen, 1), control_, Guarded([this] {
                                     part_watch_ = 0;
                                     OnPart(control_.Now());
                                   }));
}

void NodeFold::OnPart(Instant now) {
  if (ending() || output_ == nullptr) return;
  const absl::Duration between = std::max(kReportInterval, kReportIntervalPerSlot * order_.slots);
  if (now - reported_at_ >= between) ReportProgress(now);
  WatchPart();
}

uint64_t NodeFold::scratch_bytes() const {
  uint64_t bytes = output_scratch_bytes_;
  // Scratch that is reserved, but not allocated yet, is not held.
  for (const Input& input : inputs_) bytes += input.held != nullptr ? input.scratch_bytes : 0;
  return bytes;
}

}  // namespace phalanx::collectives
