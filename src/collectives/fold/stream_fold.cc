#include "src/collectives/fold/stream_fold.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::collectives {
namespace {

// A block stays in a core's cache from the first operand to the last.
constexpr uint64_t kBlockBytes = uint64_t{64} * 1024;
constexpr uint64_t kLeastBlockBytes = 4096;
// Bytes of operands in one turn: pulls and pushes share the loop.
constexpr uint64_t kBytesPerTurn = uint64_t{2} << 20;

// How far an input has arrived without a gap, and the slice in which the next byte arrives; kWhole
// if nothing is missing.
struct Reach {
  uint64_t bytes = 0;
  int slice = StreamFold::kWhole;
  uint64_t watermark = 0;  // of that slice
};

Reach ReachOf(const StreamFold::Input& input) {
  const net::TransferBuffer& buffer = *input.from;
  const SliceLayout& layout = buffer.layout();
  const bool whole = input.slice == StreamFold::kWhole;
  const int end = whole ? layout.slices : input.slice + 1;
  uint64_t there = 0;
  for (int slice = whole ? 0 : input.slice; slice < end; ++slice) {
    const uint64_t watermark = buffer.watermark(slice);
    there += watermark;
    if (watermark < layout.Size(slice)) return {there, slice, watermark};
  }
  return {there, StreamFold::kWhole, 0};
}

uint64_t BytesOf(const StreamFold::Input& input) {
  const SliceLayout& layout = input.from->layout();
  return input.slice == StreamFold::kWhole ? layout.object_bytes : layout.Size(input.slice);
}

const char* DataOf(const StreamFold::Input& input) {
  return input.from->slice(input.slice == StreamFold::kWhole ? 0 : input.slice).data();
}

}  // namespace

// Made on the control loop. From its first task on it belongs to the I/O loop, except `done`. Tasks
// keep it alive, so that the I/O loop never runs into the destruction of the StreamFold.
class StreamFold::Work : public std::enable_shared_from_this<Work> {
 public:
  Work(Spec spec, Executor& io, Executor& control, Done done);

  // ---- on the control loop
  void Start() {
    io_.Post([self = shared_from_this()] { self->Run(); });
  }
  void Release();
  void Cancel();
  void Forget() { done_ = nullptr; }
  uint64_t folded() const { return progress_.load(std::memory_order_relaxed); }

 private:
  struct Source {
    Input input;
    net::TransferBuffer::SubscriptionId subscription = 0;
  };
  // How far all inputs have arrived, or which input was closed before its end.
  struct Ahead {
    uint64_t to = 0;
    absl::Status failed;
    int failed_input = -1;
  };

  void Run();
  Ahead Look() const;
  void FoldNext(uint64_t bytes);
  void Publish();
  void WaitForMore();
  void StopWaiting();
  void End(absl::Status status, int input);

  // Constant after construction.
  Executor& io_;
  Executor& control_;
  uint64_t size_ = 0;
  uint64_t position_ = 0;  // of the output in its object
  uint64_t grain_ = 1;     // blocks are multiples of it, except the last one
  uint64_t block_ = 0;

  // On the I/O loop.
  Spec spec_;
  std::vector<Source> sources_;
  char* out_ = nullptr;
  uint64_t folded_ = 0;
  bool ended_ = false;
  std::optional<BlockFold> fold_;
  std::vector<BlockFold::Operand> operands_;  // of the current block; kept to save allocations

  // Written on the I/O loop, read on the control loop.
  std::atomic<uint64_t> progress_;

  // On the control loop.
  Done done_;
};

StreamFold::Work::Work(Spec spec, Executor& io, Executor& control, Done done)
    : io_(io), control_(control), progress_(spec.begin), done_(std::move(done)) {
  PHALANX_CHECK(!spec.inputs.empty(), "something is folded");
  size_ = spec.into->layout().Size(spec.into_slice);
  position_ = spec.into->layout().Begin(spec.into_slice);
  grain_ = spec.elements.Grain();
  // A slice of several types can end within a run, but begins at a multiple of the grain.
  const bool mixed = !spec.elements.runs.empty();
  PHALANX_CHECK(mixed ? position_ % grain_ == 0 : size_ % grain_ == 0, "whole elements");
  PHALANX_CHECK(spec.begin <= size_ && spec.hold_back <= size_, "within the output");
  for (Input& input : spec.inputs) {
    const uint64_t bytes = BytesOf(input);
    PHALANX_CHECK(input.offset <= bytes && bytes - input.offset >= size_, "long enough");
    sources_.push_back({std::move(input)});
  }
  // With many inputs the blocks become smaller, so that a turn stays bounded.
  const uint64_t share = kBytesPerTurn / sources_.size();
  block_ = std::clamp(share, kLeastBlockBytes, kBlockBytes) / grain_ * grain_;
  fold_.emplace(spec, block_);
  folded_ = spec.begin;
  out_ = spec.into->slice(spec.into_slice).data();
  spec_ = std::move(spec);
}

void StreamFold::Work::Release() {
  io_.Post([self = shared_from_this()] {
    // The end of the fold can have been posted before this.
    if (self->ended_) return;
    self->spec_.hold_back = 0;
    self->Publish();
  });
}

void StreamFold::Work::Cancel() {
  io_.Post([self = shared_from_this()] {
    if (!self->ended_) self->End(absl::CancelledError("the fold was cancelled"), -1);
  });
}

void StreamFold::Work::Run() {
  if (ended_) return;
  StopWaiting();
  // Before folding: a closed input fails the fold even if other inputs could be folded further.
  const Ahead ahead = Look();
  if (!ahead.failed.ok()) return End(ahead.failed, ahead.failed_input);
  for (uint64_t left = kBytesPerTurn; folded_ < ahead.to && left > 0;) {
    const uint64_t bytes = std::min(block_, ahead.to - folded_);
    FoldNext(bytes);
    Publish();
    left -= std::min(left, bytes * sources_.size());
  }
  if (folded_ == size_) return End(absl::OkStatus(), -1);
  if (folded_ < ahead.to) {
    // In a later turn: tasks of other connections on this loop come first.
    Start();
  } else {
    WaitForMore();
  }
}

StreamFold::Work::Ahead StreamFold::Work::Look() const {
  Ahead ahead;
  ahead.to = size_;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Input& input = sources_[i].input;
    // Read before the watermarks: a closed buffer gets no more bytes, an open one may get them
    // between the two reads.
    const bool closed = input.from->closed();
    const uint64_t there = ReachOf(input).bytes;
    if (there >= input.offset + size_) continue;
    if (closed) {
      ahead.failed = input.from->close_status();
      if (ahead.failed.ok())
        ahead.failed = absl::DataLossError("it ended before all its bytes had arrived");
      ahead.failed_input = static_cast<int>(i);
      return ahead;
    }
    // Whole elements: the rest of an element that is cut by the watermark is folded with the next
    // bytes.
    const uint64_t usable = there <= input.offset ? 0 : there - input.offset;
    ahead.to = std::min(ahead.to, usable / grain_ * grain_);
  }
  return ahead;
}

void StreamFold::Work::FoldNext(uint64_t bytes) {
  operands_.clear();
  for (const Source& source : sources_) {
    const Input& input = source.input;
    operands_.push_back({DataOf(input) + input.offset + folded_, input.raw});
  }
  if (operands_.size() > 2 && DefectActive(Defect::kInputLeftOut)) operands_.pop_back();
  fold_->Run(operands_, out_ + folded_, position_ + folded_, bytes);
  folded_ += bytes;
  progress_.store(folded_, std::memory_order_relaxed);
}

void StreamFold::Work::Publish() {
  // Published in order, so that a reader can send the bytes on while the rest is folded.
  const uint64_t to = std::min(folded_, size_ - spec_.hold_back);
  const int slice = spec_.into_slice;
  if (to > spec_.into->watermark(slice)) spec_.into->Publish(slice, to);
}

// Inputs that lag wake the fold by their next byte. The others wake it only if they are closed too
// early, so that a fast input causes no idle turns. If no input lags any more, bytes arrived since
// Look, and the fold continues at once.
void StreamFold::Work::WaitForMore() {
  std::vector<uint64_t> seen;
  bool waits = false;
  for (Source& source : sources_) {
    net::TransferBuffer& from = *source.input.from;
    const Reach reach = ReachOf(source.input);
    if (reach.slice == kWhole || reach.bytes >= source.input.offset + size_) continue;
    const bool lags = reach.bytes < source.input.offset + folded_ + grain_;
    waits = waits || lags;
    seen.assign(static_cast<size_t>(from.layout().slices), UINT64_MAX);
    if (lags) seen[static_cast<size_t>(reach.slice)] = reach.watermark;
    source.subscription =
        from.Subscribe(uint64_t{1} << reach.slice, seen, io_, [weak = weak_from_this()] {
          if (const std::shared_ptr<Work> self = weak.lock()) self->Run();
        });
  }
  if (!waits) Start();
}

void StreamFold::Work::StopWaiting() {
  for (Source& source : sources_) {
    if (source.subscription == 0) continue;
    source.input.from->Unsubscribe(std::exchange(source.subscription, 0));
  }
}

void StreamFold::Work::End(absl::Status status, int input) {
  StopWaiting();
  ended_ = true;
  // Before `done`, which frees the memory that the buffers lie in.
  sources_.clear();
  spec_.into.reset();
  // A copy that shares nothing with the status of this loop: see TransferBuffer::Close.
  Outcome outcome{absl::Status(status.code(), status.message()), input, folded_};
  control_.Post([self = shared_from_this(), outcome = std::move(outcome)] {
    Done done = std::exchange(self->done_, nullptr);
    if (done) done(outcome);
  });
}

StreamFold::StreamFold(Spec spec, Executor& io, Executor& control, Done done)
    : work_(std::make_shared<Work>(std::move(spec), io, control, std::move(done))) {
  work_->Start();
}

StreamFold::~StreamFold() {
  // Work that is under way on the I/O loop is not interrupted; Cancel is posted behind it.
  work_->Forget();
  work_->Cancel();
}

void StreamFold::Release() { work_->Release(); }
void StreamFold::Cancel() { work_->Cancel(); }
uint64_t StreamFold::folded() const { return work_->folded(); }

}  // namespace phalanx::collectives
