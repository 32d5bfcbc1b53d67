#include "src/net/pull/pull_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
absl::Status FromSender(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
      return error;
    default:
      return absl::UnavailableError(error.message());
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
      reader_(*this, scratch),
      assembler_(std::move(spec_.into), spec_.slices, options.checksums, counters) {}

PullReceiver::~PullReceiver() {
  if (stall_timer_ != 0) executor_.Cancel(stall_timer_);
}

void PullReceiver::Start() {
  timing_.Begin(executor_.Now());
  writer_.Control(FrameType::kOpen, pull_, EncodeOpen(), options_.checksums ? kWithChecksums : 0);
  // Without the round trips, which take a system call: most pulls end before this time.
  ArmStallTimer(options_.stall_timeout);
  // Without a read, which would find nothing: the sender has not seen the request.
  FinishTurn(WritePending());
}

std::string PullReceiver::EncodeOpen() {
  OpenPayload open;
  open.sender = spec_.sender;
  open.object = spec_.object;
  open.generation = spec_.generation;
  open.sign_of_life = options_.stall_timeout / kSignsPerStallTimeout;
  open.wants = assembler_.Begin();
  return EncodePayload(open);
}

void PullReceiver::Cancel() {
  if (outcome_reported_) return;
  ReportOutcome(absl::CancelledError("the pull was cancelled"));
  // The connection stays usable: the sender answers CANCEL with its last frame, and the rest is
  // discarded.
  writer_.Control(FrameType::kCancel, pull_, "");
  Drive();
}

bool PullReceiver::Drive() { return FinishTurn(Exchange()); }

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
  while (!sender_result_.has_value() && budget > 0) {
    const absl::Span<const iovec> buffers = reader_.ReadBuffers();
    size_t capacity = 0;
    for (const iovec& part : buffers) capacity += part.iov_len;
    PHALANX_ASSIGN_OR_RETURN(const size_t size, stream_->Read(buffers));
    if (size == 0) break;
    timing_.ByteArrived(executor_.Now());
    PHALANX_RETURN_IF_ERROR(reader_.Commit(size));
    // A short read has emptied the stream, so another read would return 0.
    if (size < capacity) break;
    budget -= std::min(budget, size);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<char>> PullReceiver::PlaceSegment(const FrameHeader& header) {
  if (header.pull != pull_) return Malformed("a segment of another pull");
  if (!accepted_ && !outcome_reported_) return Malformed("a segment before the pull was accepted");
  // After the outcome the buffer no longer belongs to this pull: the reader discards the bytes.
  if (outcome_reported_) return absl::Span<char>();
  return assembler_.Place(header);
}

absl::Status PullReceiver::SegmentArrived(const FrameHeader& header, size_t arrived) {
  PHALANX_RETURN_IF_ERROR(assembler_.Arrived(header, arrived));
  if (arrived < header.payload_bytes) return absl::OkStatus();
  const bool after_starved = header.starved != 0;
  const absl::Duration gap = timing_.SegmentArrived(executor_.Now(), arrived, after_starved);
  if (after_starved && spec_.progress != nullptr) {
    // Not the whole gap: what a link has buffered when it slows down arrives slowly, too, long
    // after the sender had to wait for it.
    const absl::Duration starved = std::min(gap, DecodeStarvedBefore(header.starved));
    spec_.progress->starved_ns.fetch_add(static_cast<uint64_t>(absl::ToInt64Nanoseconds(starved)),
                                         std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Status PullReceiver::ControlFrame(const FrameHeader& header, absl::string_view payload) {
  if (header.pull != pull_) {
    return Malformed(absl::StrCat(FrameTypeName(header.type), " of another pull"));
  }
  timing_.AnswerArrived(executor_.Now());
  switch (header.type) {
    case FrameType::kAccept:
      return OnAccept(payload);
    case FrameType::kStarved:
      return OnStarved(payload);
    case FrameType::kEnded: {
      PHALANX_ASSIGN_OR_RETURN(const StarvedPayload starved, DecodeStarved(payload));
      sender_starved_ = starved.total;
      sender_result_ = absl::OkStatus();
      return absl::OkStatus();
    }
    case FrameType::kAborted:
      return DecodeAborted(payload, sender_result_.emplace());
    default:
      return Malformed(absl::StrCat(FrameTypeName(header.type), " from a sender"));
  }
}

absl::Status PullReceiver::OnAccept(absl::string_view payload) {
  if (accepted_) return Malformed("ACCEPT twice");
  PHALANX_ASSIGN_OR_RETURN(const AcceptPayload accept, DecodeAccept(payload));
  accepted_ = true;
  // The assembler is detached, and what follows is discarded.
  if (outcome_reported_) return absl::OkStatus();
  // Bytes of another generation must never enter the buffer, even if sizes match.
  if (accept.generation != spec_.generation && !DefectActive(Defect::kNoGenerationCheck)) {
    return absl::AbortedError(absl::StrFormat("the sender has generation %s, not %s",
                                              accept.generation.ToString(),
                                              spec_.generation.ToString()));
  }
  const SliceLayout offered = {accept.object_bytes, accept.slices};
  const SliceLayout& expected = assembler_.layout();
  if (offered == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "the sender's object has %d bytes in %d slices, ours %d in %d", offered.object_bytes,
      offered.slices, expected.object_bytes, expected.slices));
}

absl::Status PullReceiver::OnStarved(absl::string_view payload) {
  if (!accepted_) return Malformed("STARVED before ACCEPT");
  PHALANX_ASSIGN_OR_RETURN(const StarvedPayload starved, DecodeStarved(payload));
  sender_starved_ = starved.total;
  // If frames are still queued, the sender has unread bytes of this node and needs no sign of life.
  if (writer_.empty()) writer_.Control(FrameType::kWaiting, pull_, "");
  return absl::OkStatus();
}

// Reports the outcome if it is known now, and releases the connection if it is not needed anymore.
// `status`: of the exchange of bytes in this turn. Returns as Drive.
bool PullReceiver::FinishTurn(const absl::Status& status) {
  if (!outcome_reported_) {
    // The order matters: the pull has succeeded once all bytes are in place, even if the connection
    // failed after the last one.
    if (accepted_ && assembler_.full()) {
      ReportOutcome(assembler_.BufferHasAll()
                        ? absl::OkStatus()
                        : Annotate(absl::AbortedError("the object was closed on this node")));
    } else if (!status.ok()) {
      ReportOutcome(Annotate(status));
    } else if (sender_result_.has_value()) {
      ReportOutcome(
          Annotate(sender_result_->ok()
                       ? absl::DataLossError("the sender ended the pull before the last byte")
                       : FromSender(*sender_result_)));
    }
  }
  // Draining a cancelled pull is cheaper than a new connection, but only up to kMaxDrainBytes.
  const bool broken = !status.ok() || reader_.bytes_discarded() > kMaxDrainBytes;
  if (sender_result_.has_value() || broken) {
    Release(!broken && reader_.between_frames() && writer_.empty());
    return false;
  }
  stream_->OnReadable([this] { Drive(); });
  if (!writer_.empty()) stream_->OnWritable([this] { Drive(); });
  return true;
}

void PullReceiver::ReportOutcome(absl::Status status) {
  outcome_reported_ = true;
  // From here on the memory of the object can be freed, so no read may target it.
  reader_.Discard();
  assembler_.Detach();
  PullOutcome outcome;
  outcome.status = std::move(status);
  outcome.bytes_received = assembler_.bytes_published();
  outcome.first_byte = timing_.first_answer();
  outcome.bytes_per_second = timing_.bytes_per_second();
  outcome.starved = sender_starved_;
  observer_.PullEnded(std::move(outcome));
}

absl::Status PullReceiver::Annotate(const absl::Status& error) const {
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

void PullReceiver::ArmStallTimer(absl::Duration patience) {
  const Instant now = executor_.Now();
  const Instant due = timing_.last_byte() + patience;
  stall_timer_ = executor_.RunAt(due > now ? due : now + patience, [this] { OnStallTimer(); });
}

absl::Duration PullReceiver::Patience() const {
  // A packet that was lost, and lost again when it was sent again, is late by two round trips.
  return options_.stall_timeout + 2 * stream_->RoundTrip();
}

void PullReceiver::OnStallTimer() {
  stall_timer_ = 0;
  // Reads the bytes that wait in the kernel first: if the loop itself was late, the sender is not
  // to blame.
  if (!Drive()) return;
  // A STARVED is a byte, too: a sender that waits for its own sender has not stalled.
  const Instant last =
      DefectActive(Defect::kStarvedCountedAsStalled) ? timing_.last_segment() : timing_.last_byte();
  const absl::Duration silence = executor_.Now() - last;
  const absl::Duration patience = Patience();
  if (silence < patience || DefectActive(Defect::kStallNotDetected)) {
    ArmStallTimer(patience);
    return;
  }
  FinishTurn(absl::DeadlineExceededError(
      absl::StrCat("received nothing for ", absl::FormatDuration(silence))));
}

}  // namespace phalanx::net
