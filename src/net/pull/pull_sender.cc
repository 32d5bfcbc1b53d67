#include "src/net/pull/pull_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

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
      limiter_(limiter),
      counters_(counters),
      host_(host),
      stream_(std::move(stream)),
      reader_(*this, scratch) {}

PullSender::~PullSender() { Stop(); }

void PullSender::Start(absl::string_view rest) {
  stream_->SetUnsentLimit(kFirstUnsentBytes);
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
  if (status.ok()) status = Pump();
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
  if (!writer_.empty() || turn_used_up_) stream_->OnWritable([this] { Drive(); });
}

absl::Status PullSender::Read() {
  for (int reads = 0; reads < kMaxReadsPerTurn; ++reads) {
    PHALANX_ASSIGN_OR_RETURN(const size_t size, stream_->Read(reader_.Want()));
    if (size == 0) break;
    PHALANX_RETURN_IF_ERROR(reader_.Took(size));
    // Usually there is nothing to read, and after one frame there is rarely another.
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
    tick_bytes_ += taken;
    DataPlaneCounters::Add(counters_.bytes_sent, taken);
    last_sent_ = executor_.Now();
    // A STARVED that the kernel took proves nothing about the receiver.
    if (!starved_) last_sign_ = last_sent_;
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
  last_sign_ = executor_.Now();
  switch (header.type) {
    case FrameType::kOpen:
      return Opened(header, payload);
    case FrameType::kCancel:
      if (header.pull > pull_) return Malformed("CANCEL of a pull that was not opened");
      // The CANCEL crossed the last frame of the pull.
      if (header.pull < pull_ || (state_ != State::kServing && state_ != State::kAsked)) {
        return absl::OkStatus();
      }
      Refuse(absl::CancelledError("cancelled by the receiver"));
      return absl::OkStatus();
    case FrameType::kWaiting:
      return header.pull <= pull_ ? absl::OkStatus() : Malformed("WAITING for an unopened pull");
    default:
      return Malformed(absl::StrCat(FrameTypeName(header.type), " from a receiver"));
  }
}

absl::Status PullSender::Opened(const FrameHeader& header, absl::string_view payload) {
  if (state_ != State::kIdle) return Malformed("OPEN while another pull is served");
  // Numbers increase, so that frames of an earlier pull are recognized.
  if (header.pull <= pull_) return Malformed("OPEN with an old number");
  PHALANX_ASSIGN_OR_RETURN(open_, DecodeOpen(payload));
  pull_ = header.pull;
  checksums_ = options_.checksums || (header.flags & kWithChecksums) != 0;
  starved_total_ = absl::ZeroDuration();
  state_ = State::kAsked;
  SetTimer(open_.sign_of_life, &PullSender::OnTick);
  // An address can be reused by another node, or by a later incarnation of this one, which has
  // other objects.
  if (open_.sender != options_.self) {
    Refuse(absl::UnavailableError(absl::StrFormat(
        "this is node %s, not %s", options_.self.ToString(), open_.sender.ToString())));
    return absl::OkStatus();
  }
  ServeRequest request{receiver_, open_.object,    open_.generation,
                       0,         stream_->peer(), open_.sign_of_life * kUnansweredSigns};
  for (const OpenPayload::Want& want : open_.wants) request.slices |= uint64_t{1} << want.slice;
  host_.Asked(*this, pull_, std::move(request));
  return absl::OkStatus();
}

// The push.

void PullSender::Grant(uint32_t pull, absl::StatusOr<ServeGrant> answer) {
  if (state_ != State::kAsked || pull != pull_) {
    // The receiver has cancelled, or has opened another pull, before the control loop answered.
    if (answer.ok()) host_.GrantReturned(*this, pull, *std::move(answer));
    return;
  }
  absl::Status status = answer.status();
  if (answer.ok()) {
    grant_ = *std::move(answer);
    status = CheckWants(*grant_.from);
  }
  if (!status.ok()) {
    Refuse(status);
    return Drive();
  }
  const SliceLayout& layout = grant_.from->layout();
  lanes_.clear();
  for (const OpenPayload::Want& want : open_.wants) {
    lanes_.push_back({want.slice, want.offset, layout.Size(want.slice)});
  }
  next_lane_ = 0;
  after_starved_ = false;
  state_ = State::kServing;
  last_sign_ = executor_.Now();
  const AcceptPayload accept = {open_.generation, layout.object_bytes,
                                static_cast<uint8_t>(layout.slices)};
  writer_.Control(FrameType::kAccept, pull_, EncodePayload(accept),
                  checksums_ ? kWithChecksums : 0);
  // Queued together with ACCEPT, so that a small object is one write and one wake-up of the
  // receiver.
  Fill();
  Drive();
}

absl::Status PullSender::CheckWants(const TransferBuffer& from) const {
  const SliceLayout& layout = from.layout();
  for (const OpenPayload::Want& want : open_.wants) {
    if (want.slice >= layout.slices || want.offset > layout.Size(want.slice)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("requested slice %d from %d, of an object of %d bytes in %d slices",
                          want.slice, want.offset, layout.object_bytes, layout.slices));
    }
  }
  return absl::OkStatus();
}

void PullSender::Abort(uint32_t pull, absl::string_view why) {
  if (pull != pull_ || (state_ != State::kServing && state_ != State::kAsked)) return;
  Refuse(absl::AbortedError(why));
  Drive();
}

// Queues segments, and ENDED after the last one. If there are no bytes, subscribes to the buffer.
void PullSender::Fill() {
  // Read before the watermarks: after Close no more bytes follow, so the watermarks read now are
  // final.
  const bool closed = grant_.from->closed();
  if (closed && !grant_.from->close_status().ok()) {
    return Refuse(absl::AbortedError(grant_.from->close_status().message()));
  }
  int segments = 0;
  while (segments < kBatchSegments && AddSegment()) ++segments;
  const bool all_sent = std::all_of(lanes_.begin(), lanes_.end(),
                                    [](const Lane& lane) { return lane.cursor == lane.end; });
  if (all_sent) return Finish(FrameType::kEnded, EncodePayload(StarvedPayload{starved_total_}));
  if (segments > 0 || limiter_timer_ != 0) return;
  if (closed) return Refuse(absl::AbortedError("the object was closed before it was complete"));
  WaitForBytes();
}

bool PullSender::AddSegment() {
  Lane* const lane = NextLane();
  if (lane == nullptr) return false;
  NoteFed(executor_.Now());
  const uint64_t there = grant_.from->watermark(lane->slice) - lane->cursor;
  const size_t allowed = Allowed(std::min<uint64_t>(there, options_.segment_bytes));
  if (allowed == 0) return false;
  QueueSegment(*lane, allowed);
  return true;
}

// Returns how much of `want` the limiter allows now. If the result is 0, a timer is set for the
// time when it allows more.
size_t PullSender::Allowed(size_t want) {
  if (!limiter_.limited()) return want;
  const Instant now = executor_.Now();
  if (credit_bytes_ == 0) {
    credit_bytes_ = want;
    credit_at_ = limiter_.Reserve(now, want);
  }
  if (credit_at_ <= now) {
    const size_t allowed = std::min(want, credit_bytes_);
    credit_bytes_ -= allowed;
    return allowed;
  }
  tick_waited_ = true;
  if (limiter_timer_ == 0) {
    limiter_timer_ = executor_.RunAt(credit_at_, [this] {
      limiter_timer_ = 0;
      Drive();
    });
  }
  return 0;
}

// Returns the next lane, in turn, that has bytes, or null if none has.
PullSender::Lane* PullSender::NextLane() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[next_lane_];
    next_lane_ = (next_lane_ + 1) % lanes_.size();
    // The receiver can be ahead of this node in a slice: this node serves it only from there on.
    if (grant_.from->watermark(lane.slice) > lane.cursor) return &lane;
  }
  return nullptr;
}

void PullSender::QueueSegment(Lane& lane, size_t bytes) {
  absl::Span<const char> payload = grant_.from->slice(lane.slice).subspan(lane.cursor, bytes);
  if (DefectActive(Defect::kWrongSliceOffset) && lane.slice > 0) {
    payload = grant_.from->slice(lane.slice - 1).subspan(0, bytes);
  }
  FrameHeader header;
  header.type = FrameType::kSegment;
  header.pull = pull_;
  header.slice = static_cast<uint8_t>(lane.slice);
  header.offset = lane.cursor;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  if (checksums_) {
    header.flags |= kSegmentChecked;
    header.payload_check = FrameCheck({payload.data(), payload.size()});
  }
  if (std::exchange(after_starved_, false)) header.flags |= kSegmentAfterStarved;
  writer_.Segment(header, payload);
  lane.cursor += payload.size();
}

void PullSender::WaitForBytes() {
  if (!starved_) {
    starved_ = true;
    starved_since_ = executor_.Now();
  }
  tick_waited_ = true;
  if (subscription_ != 0) return;
  seen_.assign(static_cast<size_t>(grant_.from->layout().slices), 0);
  uint64_t slices = 0;
  for (const Lane& lane : lanes_) {
    if (lane.cursor == lane.end) continue;
    slices |= uint64_t{1} << lane.slice;
    // Wakes as soon as there is a byte to send in any unfinished lane.
    seen_[static_cast<size_t>(lane.slice)] = lane.cursor;
  }
  subscription_ = grant_.from->Subscribe(slices, seen_, executor_, [this] {
    subscription_ = 0;
    Drive();
  });
}

void PullSender::NoteFed(Instant now) {
  if (!std::exchange(starved_, false)) return;
  starved_total_ += now - starved_since_;
  after_starved_ = true;
}

void PullSender::StopWaiting() {
  if (subscription_ != 0) grant_.from->Unsubscribe(std::exchange(subscription_, 0));
  if (limiter_timer_ != 0) executor_.Cancel(std::exchange(limiter_timer_, 0));
}

// Queues the last frame of the pull. The push has ended once it is written.
void PullSender::Finish(FrameType word, absl::string_view payload) {
  StopWaiting();
  NoteFed(executor_.Now());
  writer_.Control(word, pull_, payload);
  state_ = State::kFinishing;
}

void PullSender::Refuse(const absl::Status& why) {
  // A frame that is partly written must be completed. Later frames are dropped.
  writer_.DropUnstarted();
  Finish(FrameType::kAborted, EncodePayload(why));
}

void PullSender::EndPush() {
  state_ = State::kIdle;
  lanes_.clear();
  SetTimer(options_.idle_timeout, &PullSender::OnIdle);
  ReturnGrant(std::exchange(grant_, {}));
  host_.WentIdle(*this);
}

void PullSender::ReturnGrant(ServeGrant grant) {
  if (grant.from != nullptr) host_.GrantReturned(*this, pull_, std::move(grant));
}

void PullSender::Close() {
  if (state_ == State::kClosed) return;
  ReturnGrant(Stop());
  host_.SenderClosed(*this);
}

ServeGrant PullSender::Stop() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return {};
  StopWaiting();
  if (timer_ != 0) executor_.Cancel(std::exchange(timer_, 0));
  stream_->Close();
  // The queue refers to memory that the grant keeps alive.
  writer_ = {};
  return std::exchange(grant_, {});
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
  SetTimer(open_.sign_of_life, &PullSender::OnTick);
  if (now - last_sign_ >= open_.sign_of_life * kPatience) return Close();
  // Without an answer of the control loop this sender cannot know if the push will happen, so it
  // sends no sign of life.
  if (state_ == State::kAsked) return;
  AdaptUnsentLimit();
  if (state_ == State::kServing && writer_.empty() && now - last_sent_ >= open_.sign_of_life) {
    const absl::Duration current = starved_ ? now - starved_since_ : absl::ZeroDuration();
    writer_.Control(FrameType::kStarved, pull_,
                    EncodePayload(StarvedPayload{starved_total_ + current}));
  }
  Drive();
}

void PullSender::AdaptUnsentLimit() {
  const uint64_t bytes = std::exchange(tick_bytes_, 0);
  const absl::Duration round_trip = stream_->RoundTrip();
  if (std::exchange(tick_waited_, false) || round_trip <= absl::ZeroDuration()) return;
  // A tick measures the link only if the sender always had bytes to send.
  const double rate = static_cast<double>(bytes) / absl::ToDoubleSeconds(open_.sign_of_life);
  const double twice = 2 * rate * absl::ToDoubleSeconds(round_trip);
  stream_->SetUnsentLimit(
      std::clamp(static_cast<size_t>(twice), kLeastUnsentBytes, kMostUnsentBytes));
}

}  // namespace phalanx::net
