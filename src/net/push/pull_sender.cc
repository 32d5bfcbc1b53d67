#include "src/net/push/pull_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/status_macros.h"
#include "src/net/pull/transfer_buffer.h"

namespace phalanx::net {
namespace {

// Limits of one turn of the loop, so that a fast connection does not starve the others.
constexpr size_t kMaxBytesWrittenPerTurn = size_t{1} << 20;
constexpr int kMaxReadsPerTurn = 16;

// The number of missing signs of life that a receiver tolerates while its request waits: it gives
// up after four.
constexpr double kUnansweredSigns = 4.0 / 3;

absl::Status Malformed(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

PullSender::PullSender(uint64_t connection, Executor& executor, std::unique_ptr<ByteStream> stream,
                       NodeKey receiver, Options options, EgressLimiter& limiter,
                       absl::Span<char> scratch, DataPlaneCounters& counters, Host& host)
    : connection_(connection),
      executor_(executor),
      receiver_(receiver),
      options_(options),
      counters_(counters),
      host_(host),
      stream_(std::move(stream)),
      reader_(*this, scratch),
      credit_(limiter, executor) {}

PullSender::~PullSender() { Stop(); }

void PullSender::Start(absl::string_view rest) {
  stream_->SetUnsentLimit(UnsentLimit::kFirstBytes);
  SetTimer(options_.idle_timeout, &PullSender::OnIdle);
  if (!reader_.Feed(rest).ok()) {
    DataPlaneCounters::Add(counters_.frames_refused);
    return Close();
  }
  Drive();
}

// A turn of the connection.

void PullSender::Drive() {
  if (state_ == State::kClosed) return;
  absl::Status status = Read();
  if (status.ok() && link_request_.has_value()) return LeaveToLink();
  if (status.ok()) status = Pump();
  EndTurn(status);
}

void PullSender::DriveOutput() {
  if (state_ != State::kClosed) EndTurn(Pump());
}

void PullSender::EndTurn(const absl::Status& status) {
  if (status.ok()) return Arm();
  if (absl::IsInvalidArgument(status) || absl::IsDataLoss(status)) {
    DataPlaneCounters::Add(counters_.frames_refused);
  }
  Close();
}

void PullSender::Arm() {
  if (!std::exchange(readable_armed_, true)) {
    stream_->OnReadable([this] {
      readable_armed_ = false;
      Drive();
    });
  }
  if (!writer_.empty() || turn_used_up_) stream_->OnWritable([this] { DriveOutput(); });
}

absl::Status PullSender::Read() {
  for (int reads = 0; reads < kMaxReadsPerTurn; ++reads) {
    PHALANX_ASSIGN_OR_RETURN(const size_t size, stream_->Read(reader_.ReadBuffers()));
    if (size == 0) break;
    PHALANX_RETURN_IF_ERROR(reader_.Commit(size));
    // After one frame there is rarely another.
    if (reader_.between_frames()) break;
  }
  return absl::OkStatus();
}

absl::Status PullSender::Pump() {
  size_t written = 0;
  while (written < kMaxBytesWrittenPerTurn) {
    // Segments are queued only if the queue is empty, which limits it (see FrameWriter).
    if (writer_.empty() && state_ == State::kServing) Fill();
    if (writer_.empty()) break;
    PHALANX_ASSIGN_OR_RETURN(const size_t taken, writer_.WriteOnce(*stream_));
    if (taken == 0) break;
    written += taken;
    unsent_limit_.Wrote(taken);
    DataPlaneCounters::Add(counters_.bytes_sent, taken);
    signs_.Wrote(executor_.Now(), source_.starved());
  }
  turn_used_up_ = written >= kMaxBytesWrittenPerTurn;
  if (writer_.empty() && state_ == State::kFinishing) EndPush();
  return absl::OkStatus();
}

// Frames of the receiver.

absl::StatusOr<absl::Span<char>> PullSender::PlaceSegment(const FrameHeader&) {
  return Malformed("a segment from a receiver");
}
absl::Status PullSender::SegmentArrived(const FrameHeader&, size_t) {
  return Malformed("a segment from a receiver");
}

absl::Status PullSender::ControlFrame(const FrameHeader& header, absl::string_view payload) {
  signs_.ReceiverAlive(executor_.Now());
  switch (header.type) {
    case FrameType::kOpen:
      return OnOpen(header, payload);
    case FrameType::kLink:
      return OnLink(payload);
    case FrameType::kCancel:
      if (header.pull > request_.pull) return Malformed("CANCEL of a pull that was not opened");
      // The CANCEL crossed the last frame of the pull.
      if (header.pull < request_.pull ||
          (state_ != State::kServing && state_ != State::kRequested)) {
        return absl::OkStatus();
      }
      SendAborted(absl::CancelledError("cancelled by the receiver"));
      return absl::OkStatus();
    case FrameType::kWaiting:
      return header.pull <= request_.pull ? absl::OkStatus()
                                          : Malformed("WAITING for an unopened pull");
    default:
      return Malformed(absl::StrCat(FrameTypeName(header.type), " from a receiver"));
  }
}

absl::Status PullSender::OnOpen(const FrameHeader& header, absl::string_view payload) {
  if (state_ != State::kIdle) return Malformed("OPEN while another pull is served");
  // Numbers increase, so that frames of an earlier pull are recognized.
  if (header.pull <= request_.pull) return Malformed("OPEN with an old number");
  PHALANX_ASSIGN_OR_RETURN(request_.open, DecodeOpen(payload));
  request_.pull = header.pull;
  request_.checksums = options_.checksums || (header.flags & kWithChecksums) != 0;
  state_ = State::kRequested;
  const OpenPayload& open = request_.open;
  signs_.SetInterval(open.sign_of_life);
  SetTimer(signs_.interval(), &PullSender::OnTick);
  // An address can be reused by another node, or by a later incarnation of this one, which has
  // other objects.
  if (open.sender != options_.self) {
    SendAborted(absl::UnavailableError(absl::StrFormat(
        "this is node %s, not %s", options_.self.ToString(), open.sender.ToString())));
    return absl::OkStatus();
  }
  ServeRequest request{receiver_, open.object,     open.generation,
                       0,         stream_->peer(), open.sign_of_life * kUnansweredSigns};
  request.from = UINT64_MAX;
  for (const OpenPayload::Want& want : open.wants) {
    request.slices |= uint64_t{1} << want.slice;
    request.from = std::min(request.from, want.offset);
  }
  host_.PullRequested(*this, request_.pull, std::move(request));
  return absl::OkStatus();
}

absl::Status PullSender::OnLink(absl::string_view payload) {
  if (request_.pull != 0 || link_request_.has_value()) return Malformed("LINK after other frames");
  PHALANX_ASSIGN_OR_RETURN(link_request_, DecodeLink(payload));
  return absl::OkStatus();
}

void PullSender::LeaveToLink() {
  // The dialer sends nothing until its request is answered.
  if (!reader_.between_frames()) return EndTurn(Malformed("bytes behind LINK"));
  if (timer_ != 0) executor_.Cancel(std::exchange(timer_, 0));
  state_ = State::kClosed;
  stream_->OnReadable(nullptr);
  stream_->OnWritable(nullptr);
  host_.BecameLink(*this, std::move(stream_), *link_request_);
}

// The push.

void PullSender::Grant(uint32_t pull, absl::StatusOr<ServeGrant> answer) {
  if (state_ != State::kRequested || pull != request_.pull) {
    // The receiver has cancelled, or has opened another pull, before the control loop answered.
    if (answer.ok()) host_.GrantReturned(*this, pull, *std::move(answer));
    return;
  }
  absl::Status status = answer.status();
  if (answer.ok()) {
    status = source_.Begin(*std::move(answer), request_.open.wants, request_.checksums);
  }
  if (!status.ok()) {
    SendAborted(status);
    return DriveOutput();
  }
  state_ = State::kServing;
  // While it waited for the answer, the receiver had nothing to take.
  signs_.ReceiverAlive(executor_.Now());
  const SliceLayout& layout = source_.buffer().layout();
  const AcceptPayload accept = {request_.open.generation, layout.object_bytes,
                                static_cast<uint8_t>(layout.slices)};
  writer_.Control(FrameType::kAccept, request_.pull, EncodePayload(accept),
                  request_.checksums ? kWithChecksums : 0);
  // Queued together with ACCEPT, so that a small object is one write and one wake-up of the
  // receiver.
  Fill();
  DriveOutput();
}

void PullSender::Abort(uint32_t pull, absl::string_view reason) {
  if (pull != request_.pull || (state_ != State::kServing && state_ != State::kRequested)) return;
  SendAborted(absl::AbortedError(reason));
  DriveOutput();
}

// Queues segments, and ENDED after the last one. If there are no bytes, subscribes to the buffer.
void PullSender::Fill() {
  const TransferBuffer& buffer = source_.buffer();
  // Read before the watermarks: after Close no more bytes follow, so the watermarks read now are
  // final.
  const bool closed = buffer.closed();
  if (closed && !buffer.close_status().ok()) {
    return SendAborted(absl::AbortedError(buffer.close_status().message()));
  }
  const Instant now = executor_.Now();
  int segments = 0;
  while (segments < kBatchSegments && AddSegment(now)) ++segments;
  if (source_.all_sent()) {
    return Finish(FrameType::kEnded, EncodePayload(StarvedPayload{source_.StarvedTime(now)}));
  }
  if (segments > 0 || credit_.waiting()) return;
  if (closed) {
    return SendAborted(absl::AbortedError("the object was closed before it was complete"));
  }
  unsent_limit_.Waited();
  source_.AwaitBytes(now, executor_, [this] { DriveOutput(); });
}

// Returns false if no slice has bytes, or if the credit is used up.
bool PullSender::AddSegment(Instant now) {
  const uint64_t available = source_.SelectSlice(now);
  if (available == 0) return false;
  const size_t bytes = credit_.Take(std::min<uint64_t>(available, options_.segment_bytes));
  if (bytes == 0) {
    unsent_limit_.Waited();
    credit_.Await([this] { DriveOutput(); });
    return false;
  }
  PushSource::Segment segment = source_.Cut(bytes);
  segment.header.pull = request_.pull;
  writer_.Segment(segment.header, segment.payload);
  return true;
}

// Queues the last frame of the pull. The push has ended once it is written.
void PullSender::Finish(FrameType type, absl::string_view payload) {
  source_.StopWaiting(executor_.Now());
  credit_.StopWaiting();
  writer_.Control(type, request_.pull, payload);
  state_ = State::kFinishing;
}

void PullSender::SendAborted(const absl::Status& reason) {
  // A frame that is partly written must be completed. Later frames are dropped.
  writer_.DropUnstarted();
  Finish(FrameType::kAborted, EncodePayload(reason));
}

void PullSender::EndPush() {
  state_ = State::kIdle;
  SetTimer(options_.idle_timeout, &PullSender::OnIdle);
  ReturnGrant(source_.Release());
  host_.WentIdle(*this);
}

void PullSender::ReturnGrant(ServeGrant grant) {
  if (grant.from != nullptr) host_.GrantReturned(*this, request_.pull, std::move(grant));
}

void PullSender::Close() {
  if (state_ == State::kClosed) return;
  ReturnGrant(Stop());
  host_.SenderClosed(*this);
}

ServeGrant PullSender::Stop() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return {};
  ServeGrant grant = source_.Release();
  credit_.StopWaiting();
  if (timer_ != 0) executor_.Cancel(std::exchange(timer_, 0));
  stream_->Close();
  // The queue refers to memory that the grant keeps alive.
  writer_ = {};
  return grant;
}

// Time.

void PullSender::SetTimer(absl::Duration in, void (PullSender::*then)()) {
  if (timer_ != 0) executor_.Cancel(timer_);
  timer_ = executor_.RunAt(executor_.Now() + in, [this, then] {
    timer_ = 0;
    (this->*then)();
  });
}

void PullSender::OnIdle() { Close(); }

void PullSender::OnTick() {
  const Instant now = executor_.Now();
  SetTimer(signs_.interval(), &PullSender::OnTick);
  if (signs_.ReceiverLost(now)) return Close();
  // Without an answer of the control loop this sender cannot know if the push will happen, so it
  // sends no sign of life.
  if (state_ == State::kRequested) return;
  const auto limit = unsent_limit_.EndInterval(signs_.interval(), stream_->RoundTrip());
  if (limit.has_value()) stream_->SetUnsentLimit(*limit);
  // Queued frames are a sign of life as soon as the stream takes them.
  if (state_ == State::kServing && writer_.empty() && signs_.SignDue(now)) {
    writer_.Control(FrameType::kStarved, request_.pull,
                    EncodePayload(StarvedPayload{source_.StarvedTime(now)}));
  }
  Drive();
}

}  // namespace phalanx::net
