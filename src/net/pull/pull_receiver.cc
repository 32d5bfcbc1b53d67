#include "src/net/pull/pull_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::net {
namespace {

// Limits the bytes read in one turn of the loop, so that a fast connection does not starve the
// others.
constexpr size_t kMaxBytesPerTurn = size_t{1} << 20;
// The receiver requests this number of signs of life per stall timeout, so that one late sign is no
// stall.
constexpr int kSignsPerStallTimeout = 4;

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Converts the error that the sender sent; see PullOutcome. Other codes must not look like errors
// of this node.
absl::Status FromSender(const absl::Status& word) {
  switch (word.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
      return word;
    default:
      return absl::UnavailableError(word.message());
  }
}

}  // namespace

PullReceiver::PullReceiver(Executor& executor, std::unique_ptr<ByteStream> stream, uint32_t pull,
                           PullSpec spec, Options options, absl::Span<char> scratch,
                           DataPlaneCounters& counters, Observer& observer)
    : executor_(executor),
      pull_(pull),
      options_(options),
      counters_(counters),
      observer_(observer),
      stream_(std::move(stream)),
      spec_(std::move(spec)),
      reader_(*this, scratch) {}

PullReceiver::~PullReceiver() {
  if (stall_timer_ != 0) executor_.Cancel(stall_timer_);
}

void PullReceiver::Start() {
  asked_at_ = last_heard_ = last_segment_ = executor_.Now();
  writer_.Control(FrameType::kOpen, pull_, Wants(), options_.checksums ? kWithChecksums : 0);
  ArmStallTimer();
  Drive();
}

std::string PullReceiver::Wants() {
  OpenPayload open;
  open.sender = spec_.sender;
  open.object = spec_.object;
  open.generation = spec_.generation;
  open.sign_of_life = options_.stall_timeout / kSignsPerStallTimeout;
  const SliceLayout& layout = spec_.into->layout();
  for (int i = 0; i < layout.slices; ++i) {
    uint64_t& cursor = cursor_[static_cast<size_t>(i)];
    cursor = spec_.into->watermark(i);
    // A full slice is not requested: the sender would have nothing to send for it.
    if ((spec_.slices >> i & 1) == 0 || cursor == layout.Size(i)) continue;
    if (DefectActive(Defect::kResumeOneByteLate) && cursor > 0) ++cursor;
    open.wants.push_back({static_cast<uint8_t>(i), cursor});
    bytes_missing_ += layout.Size(i) - cursor;
  }
  PHALANX_CHECK(!open.wants.empty(), "a pull that has everything is not started");
  return EncodePayload(open);
}

void PullReceiver::Cancel() {
  if (told_) return;
  Tell(absl::CancelledError("the pull was cancelled"));
  // The connection stays usable: the sender answers CANCEL with its last frame, and the rest is
  // discarded.
  writer_.Control(FrameType::kCancel, pull_, "");
  Drive();
}

bool PullReceiver::Drive() { return Settle(Exchange()); }

absl::Status PullReceiver::Exchange() {
  PHALANX_RETURN_IF_ERROR(WritePending());
  PHALANX_RETURN_IF_ERROR(ReadAvailable());
  // Reading can have queued an answer.
  return WritePending();
}

absl::Status PullReceiver::WritePending() {
  while (!writer_.empty()) {
    PHALANX_ASSIGN_OR_RETURN(const size_t taken, writer_.WriteOnce(*stream_));
    if (taken == 0) break;
  }
  return absl::OkStatus();
}

absl::Status PullReceiver::ReadAvailable() {
  size_t budget = kMaxBytesPerTurn;
  while (!finished_ && budget > 0) {
    const absl::Span<const iovec> want = reader_.Want();
    size_t wanted = 0;
    for (const iovec& part : want) wanted += part.iov_len;
    PHALANX_ASSIGN_OR_RETURN(const size_t size, stream_->Read(want));
    if (size == 0) break;
    heard_ = true;
    last_heard_ = executor_.Now();
    PHALANX_RETURN_IF_ERROR(reader_.Took(size));
    // A short read has emptied the stream, so another read would return 0.
    if (size < wanted) break;
    budget -= std::min(budget, size);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<char>> PullReceiver::PlaceSegment(const FrameHeader& header) {
  place_ = {};
  if (header.pull != pull_) return Malformed("a segment of another pull");
  if (!accepted_ && !told_) return Malformed("a segment before the pull was accepted");
  // After the outcome the buffer no longer belongs to this pull: the reader discards the bytes.
  if (told_) return place_;
  PHALANX_RETURN_IF_ERROR(CheckFits(header));
  // Each Publish would be ignored, so more bytes are of no use.
  if (spec_.into->closed()) return absl::AbortedError("the object was closed on this node");
  place_ = spec_.into->slice(header.slice).subspan(header.offset, header.payload_bytes);
  segment_published_ = header.offset;
  return place_;
}

absl::Status PullReceiver::CheckFits(const FrameHeader& header) const {
  const SliceLayout& layout = spec_.into->layout();
  if (header.slice >= layout.slices || (spec_.slices >> header.slice & 1) == 0) {
    return Malformed(
        absl::StrCat("a segment of slice ", header.slice, ", which was not requested"));
  }
  // Bytes must be contiguous: the watermark declares everything below it final.
  if (header.offset != cursor_[header.slice]) {
    return Malformed(absl::StrFormat("a segment of slice %d at %d, not at the watermark %d",
                                     header.slice, header.offset, cursor_[header.slice]));
  }
  if (header.payload_bytes > layout.Size(header.slice) - header.offset) {
    return Malformed(absl::StrCat("a segment beyond the end of slice ", header.slice));
  }
  if (options_.checksums && (header.flags & kSegmentChecked) == 0) {
    return Malformed("a segment without the requested checksum");
  }
  return absl::OkStatus();
}

absl::Status PullReceiver::SegmentArrived(const FrameHeader& header, size_t arrived) {
  const bool whole = arrived == header.payload_bytes;
  const bool checked = (header.flags & kSegmentChecked) != 0;
  if (!checked || DefectActive(Defect::kWatermarkBeforeCheck)) {
    Publish(header, header.offset + arrived);
  }
  if (!whole) return absl::OkStatus();
  if (checked) {
    PHALANX_RETURN_IF_ERROR(CheckSegment(header));
    Publish(header, header.offset + arrived);
  }
  const bool after_starved = (header.flags & kSegmentAfterStarved) != 0;
  const Instant before = std::exchange(last_segment_, executor_.Now());
  rate_.Segment(last_segment_, arrived, after_starved);
  if (after_starved && spec_.progress != nullptr) {
    // An estimate until the sender reports its own total: the flag says that the sender had no
    // bytes, and the gap between two segments says for how long.
    const int64_t waited = absl::ToInt64Nanoseconds(last_segment_ - before);
    spec_.progress->starved_ns.fetch_add(static_cast<uint64_t>(waited), std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Status PullReceiver::CheckSegment(const FrameHeader& header) const {
  if (FrameCheck({place_.data(), place_.size()}) == header.payload_check) return absl::OkStatus();
  DataPlaneCounters::Add(counters_.bytes_wasted, header.payload_bytes);
  return absl::DataLossError(absl::StrFormat("checksum mismatch in slice %d at [%d, %d)",
                                             header.slice, header.offset,
                                             header.offset + header.payload_bytes));
}

void PullReceiver::Publish(const FrameHeader& header, uint64_t to) {
  const uint64_t bytes = to - segment_published_;
  segment_published_ = to;
  cursor_[header.slice] = to;
  bytes_missing_ -= bytes;
  outcome_.bytes_received += bytes;
  DataPlaneCounters::Add(counters_.bytes_received, bytes);
  spec_.into->Publish(header.slice, to);
}

absl::Status PullReceiver::ControlFrame(const FrameHeader& header, absl::string_view payload) {
  if (header.pull != pull_) {
    return Malformed(absl::StrCat(FrameTypeName(header.type), " of another pull"));
  }
  if (!std::exchange(answered_, true)) {
    // Zero means that there was no answer, but the clock does not advance within a turn.
    outcome_.first_byte = std::max(executor_.Now() - asked_at_, absl::Nanoseconds(1));
  }
  switch (header.type) {
    case FrameType::kAccept:
      return Accepted(payload);
    case FrameType::kStarved:
      return Starved(payload);
    case FrameType::kEnded: {
      PHALANX_ASSIGN_OR_RETURN(const StarvedPayload starved, DecodeStarved(payload));
      outcome_.starved = starved.total;
      finished_ = true;
      return absl::OkStatus();
    }
    case FrameType::kAborted:
      finished_ = true;
      return DecodeAborted(payload, last_word_);
    default:
      return Malformed(absl::StrCat(FrameTypeName(header.type), " from a sender"));
  }
}

absl::Status PullReceiver::Accepted(absl::string_view payload) {
  if (accepted_) return Malformed("ACCEPT twice");
  PHALANX_ASSIGN_OR_RETURN(const AcceptPayload accept, DecodeAccept(payload));
  accepted_ = true;
  if (told_) return absl::OkStatus();
  // Bytes of another generation must never enter the buffer, even if sizes match.
  if (accept.generation != spec_.generation && !DefectActive(Defect::kNoGenerationCheck)) {
    return absl::AbortedError(absl::StrFormat("the sender has generation %s, not %s",
                                              accept.generation.ToString(),
                                              spec_.generation.ToString()));
  }
  const SliceLayout offered = {accept.object_bytes, accept.slices};
  const SliceLayout& expected = spec_.into->layout();
  if (offered == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "the sender's object has %d bytes in %d slices, ours %d in %d", offered.object_bytes,
      offered.slices, expected.object_bytes, expected.slices));
}

absl::Status PullReceiver::Starved(absl::string_view payload) {
  if (!accepted_) return Malformed("STARVED before ACCEPT");
  PHALANX_ASSIGN_OR_RETURN(const StarvedPayload starved, DecodeStarved(payload));
  outcome_.starved = starved.total;
  // If frames are still queued, the sender has unread bytes of this node and needs no sign of life.
  if (writer_.empty()) writer_.Control(FrameType::kWaiting, pull_, "");
  return absl::OkStatus();
}

bool PullReceiver::Settle(const absl::Status& status) {
  // The pull has succeeded once all bytes are in place, even if the connection failed after the
  // last one.
  if (!told_ && accepted_ && bytes_missing_ == 0) Tell(CheckPublished());
  if (!told_ && !status.ok()) Tell(Explain(status));
  if (!told_ && finished_) {
    Tell(last_word_.ok()
             ? Explain(absl::DataLossError("the sender ended the pull before the last byte"))
             : Explain(FromSender(last_word_)));
  }
  // Draining a cancelled pull is cheaper than a new connection, but only up to kMaxDrainBytes.
  const bool hopeless = !status.ok() || reader_.bytes_discarded() > kMaxDrainBytes;
  if (finished_ || hopeless) {
    Release(!hopeless && reader_.between_frames() && writer_.empty());
    return false;
  }
  stream_->OnReadable([this] { Drive(); });
  if (!writer_.empty()) stream_->OnWritable([this] { Drive(); });
  return true;
}

// A buffer that was closed meanwhile has ignored the last Publish calls.
absl::Status PullReceiver::CheckPublished() const {
  const SliceLayout& layout = spec_.into->layout();
  for (int i = 0; i < layout.slices; ++i) {
    if ((spec_.slices >> i & 1) != 0 && spec_.into->watermark(i) < layout.Size(i)) {
      return Explain(absl::AbortedError("the object was closed on this node"));
    }
  }
  return absl::OkStatus();
}

void PullReceiver::Tell(absl::Status status) {
  told_ = true;
  // From here on the memory of the object can be freed, so no read may target it.
  reader_.Discard();
  spec_.into.reset();
  outcome_.status = std::move(status);
  outcome_.bytes_per_second = rate_.bytes_per_second();
  observer_.PullEnded(std::move(outcome_));
}

absl::Status PullReceiver::Explain(const absl::Status& error) const {
  const std::string text =
      absl::StrFormat("pull of %s from node %s at %s: %s", spec_.object.ShortHex(),
                      spec_.sender.ToString(), stream_->peer(), error.message());
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
      DataPlaneCounters::Add(counters_.frames_refused);
      return absl::DataLossError(text);
    case absl::StatusCode::kOutOfRange:
      return absl::UnavailableError(absl::StrCat(text, " (before the object was complete)"));
    default:
      return absl::Status(error.code(), text);
  }
}

void PullReceiver::Release(bool reusable) {
  if (stall_timer_ != 0) executor_.Cancel(std::exchange(stall_timer_, 0));
  DataPlaneCounters::Add(counters_.bytes_wasted, reader_.bytes_discarded());
  std::unique_ptr<ByteStream> stream = std::move(stream_);
  stream->OnReadable(nullptr);
  stream->OnWritable(nullptr);
  if (!reusable) {
    stream->Close();
    stream.reset();
  }
  observer_.StreamReleased(std::move(stream));
}

void PullReceiver::ArmStallTimer() {
  const Instant now = executor_.Now();
  const Instant due = last_heard_ + options_.stall_timeout;
  stall_timer_ =
      executor_.RunAt(due > now ? due : now + options_.stall_timeout, [this] { OnStallTimer(); });
}

void PullReceiver::OnStallTimer() {
  stall_timer_ = 0;
  // Reads the bytes that wait in the kernel first: if the loop itself was late, the sender is not
  // to blame.
  if (!Drive()) return;
  const Instant heard =
      DefectActive(Defect::kStarvedCountedAsStalled) ? last_segment_ : last_heard_;
  const absl::Duration silence = executor_.Now() - heard;
  if (silence < options_.stall_timeout || DefectActive(Defect::kStallNotDetected)) {
    ArmStallTimer();
    return;
  }
  Settle(absl::DeadlineExceededError(
      absl::StrCat("received nothing for ", absl::FormatDuration(silence))));
}

}  // namespace phalanx::net
