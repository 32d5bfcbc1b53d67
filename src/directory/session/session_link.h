// One end of a session, the same for both ends: numbering, acknowledgement, deduplication, batches,
// heartbeats, and the detection of a silent peer. Pure; NodeSession and ShardSession put the
// handshake in front of it.
//
//   Send ──► unacknowledged: [sent on this stream | not yet sent] ──Fill──► batches, which refer to
//   them
//   batches ──Take──► delivered ──TakeDelivered──► user
//
// Invariants
//  1. The first unacknowledged message has the number acknowledged + 1; numbers have no gaps.
//  2. Messages go out on a stream in order of numbers; a new stream starts at the first message
//     that the other end lacks.
//  3. A message is delivered if its number is received + 1, and never otherwise.
//
// Acknowledgements ride on batches of messages. A batch without messages goes out only if an
// acknowledgement has waited for lease / 8 (or for kAckMessages, kAckBytes), or if nothing was sent
// for lease / 3: the heartbeat. Heartbeats fall on a grid of lease / 32, so that few turns of the
// loop serve all sessions of a shard.
//
// Thread rule: a value of one loop; `now` is passed in.
#ifndef PHALANX_DIRECTORY_SESSION_SESSION_LINK_H_
#define PHALANX_DIRECTORY_SESSION_SESSION_LINK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/repeated_field.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

// The number of message bytes at which a batch is closed (one message can be larger).
inline constexpr size_t kMaxBatchBytes = 1 << 20;
// A longer message is dropped and counted instead of sent; no message of the protocol is nearly as
// long.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// The largest frame that a transport must carry.
inline constexpr size_t kMaxFrameBytes = kMaxMessageBytes + (64 << 10);
// The first frames of either end are shorter: they carry the proof of the secret, and neither end
// buffers more for a peer that has not proved it.
inline constexpr int kGreetingFrames = 2;
inline constexpr size_t kMaxGreetingBytes = 64 << 10;
// After so much received data the link acknowledges at once, without waiting for a message to carry
// the acknowledgement.
inline constexpr uint64_t kAckMessages = 1000;
inline constexpr size_t kAckBytes = 4 << 20;

// How much one end keeps for a peer that does not acknowledge, before it ends the session. Messages
// of a registration do not count: they are as many as the node has objects, and a session that
// could not hold them could never begin.
struct SessionLimits {
  size_t unacknowledged_messages = 1 << 22;
  size_t unacknowledged_bytes = size_t{256} << 20;
};

template <typename Out, typename In>
class SessionLink {
 public:
  SessionLink(absl::Duration lease, SessionLimits limits) : lease_(lease), limits_(limits) {}

  // A new session: forgets everything of the old one.
  void Begin(absl::Duration lease) {
    lease_ = lease;
    Drop();
    delivered_.Clear();
    acknowledged_ = received_ = sent_ = 0;
    attached_ = overflowed_ = false;
  }

  // True if a stream can resume with a peer that has received so much.
  bool CanResume(uint64_t peer_received) const {
    return !overflowed_ && peer_received >= acknowledged_ &&
           peer_received <= acknowledged_ + unacknowledged_.size();
  }

  // A stream carries the session from now on. REQUIRES: CanResume(peer_received).
  void Attach(uint64_t peer_received, Instant now) {
    PHALANX_CHECK(CanResume(peer_received), "a stream resumes what is still held");
    attached_ = true;
    if (!DefectActive(Defect::kSequenceNotDeduplicated)) Acknowledged(peer_received);
    if (DefectActive(Defect::kMessageLostOnResume) && sent_ > 0) {
      PopFront();
    }
    sent_ = 0;
    last_sent_ = last_heard_ = now;
    ack_due_ = Instant::Infinite();
    unreported_messages_ = unreported_bytes_ = 0;
  }

  void Detach() { attached_ = false; }

  // Queues a message. `counts`: the message counts against the limits. Drops the message if the
  // session has overflowed.
  void Send(Out&& message, bool counts = true) {
    if (overflowed_) return;
    const size_t bytes = message.ByteSizeLong();
    if (bytes > kMaxMessageBytes) {
      ++oversized_;
      return;
    }
    unacknowledged_bytes_ += bytes;
    if (counts) {
      ++counted_messages_;
      counted_bytes_ += bytes;
    }
    Pending& pending = unacknowledged_.emplace_back();
    pending.message = std::move(message);
    pending.bytes = bytes;
    pending.counts = counts;
    if (counted_messages_ > limits_.unacknowledged_messages ||
        counted_bytes_ > limits_.unacknowledged_bytes) {
      overflowed_ = true;
      Drop();
      sent_ = 0;
    }
  }

  // Takes a batch and delivers its new messages. InvalidArgument if numbers are missing or if the
  // batch acknowledges messages that were never sent; nothing of the batch is delivered then.
  template <typename Batch>
  absl::Status Take(Batch& batch, Instant now) {
    last_heard_ = now;
    if (batch.acknowledged() > acknowledged_ + sent_ &&
        !DefectActive(Defect::kSequenceNotDeduplicated)) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", batch.acknowledged(), " is acknowledged, but only ",
                       acknowledged_ + sent_, " were sent on this stream"));
    }
    Acknowledged(batch.acknowledged());
    if (batch.messages().empty()) {
      // Answers the peer's heartbeat in the same turn: an idle end wakes half as often.
      if (now >= last_sent_ + lease_ / 4) ack_due_ = now;
      return absl::OkStatus();
    }
    if (batch.first_sequence() == 0 || batch.first_sequence() > received_ + 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a batch starts at message ", batch.first_sequence(), ", expected was ", received_ + 1));
    }
    Deliver(batch, now);
    return absl::OkStatus();
  }

  google::protobuf::RepeatedPtrField<In> TakeDelivered() { return std::exchange(delivered_, {}); }

  // Returns an empty frame, which lives until the next call.
  template <typename Frame>
  Frame& NewFrame() {
    frames_->Reset();
    return *google::protobuf::Arena::CreateMessage<Frame>(frames_.get());
  }

  // Fills an empty batch with the messages to send now. Returns false if there is nothing to send.
  // REQUIRES: attached; the batch is of the last NewFrame. It refers to the queued messages: they
  // are not copied for the stream, and stay here until they are acknowledged.
  template <typename Batch>
  bool Fill(Batch& batch, Instant now) {
    if (now < NextSend()) return false;
    batch.set_first_sequence(acknowledged_ + sent_ + 1);
    batch.set_acknowledged(received_);
    size_t bytes = 0;
    while (sent_ < unacknowledged_.size()) {
      Pending& pending = unacknowledged_[sent_];
      bytes += pending.bytes + kMessageOverhead;
      if (bytes > kMaxBatchBytes && !batch.messages().empty()) break;
      batch.mutable_messages()->UnsafeArenaAddAllocated(&pending.message);
      ++sent_;
    }
    last_sent_ = now;
    ack_due_ = Instant::Infinite();
    unreported_messages_ = unreported_bytes_ = 0;
    return true;
  }

  // When Fill has something to send: in the past if messages wait.
  Instant NextSend() const {
    return sent_ < unacknowledged_.size() ? Instant() : std::min(ack_due_, HeartbeatDue());
  }

  // Any frame of the peer, and a pause of this process, counts as a sign of life.
  void Heard(Instant now) { last_heard_ = now; }
  Instant SilentAt() const { return last_heard_ + lease_; }

  bool attached() const { return attached_; }
  // The limit was exceeded: the session cannot continue, and every message in it is void.
  bool overflowed() const { return overflowed_; }
  uint64_t received() const { return received_; }
  size_t unacknowledged() const { return unacknowledged_.size(); }
  size_t unacknowledged_bytes() const { return unacknowledged_bytes_; }
  uint64_t oversized() const { return oversized_; }
  absl::Duration lease() const { return lease_; }
  Instant last_heard() const { return last_heard_; }

 private:
  struct Pending {
    Out message;
    size_t bytes = 0;
    bool counts = true;
  };
  // The tag and the length of a message in a batch.
  static constexpr size_t kMessageOverhead = 5;

  void Drop() {
    unacknowledged_.clear();
    unacknowledged_bytes_ = counted_messages_ = counted_bytes_ = 0;
  }

  void PopFront() {
    const Pending& front = unacknowledged_.front();
    unacknowledged_bytes_ -= front.bytes;
    if (front.counts) {
      --counted_messages_;
      counted_bytes_ -= front.bytes;
    }
    unacknowledged_.pop_front();
  }

  void Acknowledged(uint64_t sequence) {
    while (acknowledged_ < sequence && !unacknowledged_.empty()) {
      PopFront();
      ++acknowledged_;
      if (sent_ > 0) --sent_;
    }
  }

  template <typename Batch>
  void Deliver(Batch& batch, Instant now) {
    auto& messages = *batch.mutable_messages();
    const int count = messages.size();
    if (!DefectActive(Defect::kSequenceNotDeduplicated)) {
      // Nearly always none: a stream that resumes begins with the first message that is missing.
      const uint64_t had = received_ + 1 - batch.first_sequence();
      messages.DeleteSubrange(0, static_cast<int>(std::min<uint64_t>(had, messages.size())));
    }
    for (const In& message : messages) unreported_bytes_ += message.ByteSizeLong();
    unreported_messages_ += static_cast<uint64_t>(messages.size());
    const uint64_t last = batch.first_sequence() + static_cast<uint64_t>(count) - 1;
    received_ = std::max(received_, last);
    if (delivered_.empty()) {
      delivered_.Swap(&messages);
    } else {
      for (In& message : messages) delivered_.Add(std::move(message));
    }
    if (unreported_messages_ >= kAckMessages || unreported_bytes_ >= kAckBytes) {
      ack_due_ = now;
    } else if (ack_due_.infinite()) {
      ack_due_ = now + lease_ / 8;
    }
  }

  Instant HeartbeatDue() const {
    const int64_t grid = std::max<int64_t>(absl::ToInt64Nanoseconds(lease_ / 32), 1);
    const Instant due = last_sent_ + lease_ / 3;
    return Instant::FromNanos(due.nanos() - due.nanos() % grid);
  }

  absl::Duration lease_;
  const SessionLimits limits_;

  // Sending.
  std::deque<Pending> unacknowledged_;
  // Has the last frame. An arena does not destroy the messages that its frame refers to.
  std::unique_ptr<google::protobuf::Arena> frames_ = std::make_unique<google::protobuf::Arena>();
  size_t unacknowledged_bytes_ = 0;
  // The part of it that counts against the limits.
  size_t counted_messages_ = 0;
  size_t counted_bytes_ = 0;
  uint64_t acknowledged_ = 0;  // the last number that the other end is known to have
  size_t sent_ = 0;            // the messages of `unacknowledged_` that went out on this stream
  Instant last_sent_;
  uint64_t oversized_ = 0;

  // Receiving.
  google::protobuf::RepeatedPtrField<In> delivered_;
  uint64_t received_ = 0;
  uint64_t unreported_messages_ = 0;
  size_t unreported_bytes_ = 0;
  Instant ack_due_ = Instant::Infinite();
  Instant last_heard_;

  bool attached_ = false;
  bool overflowed_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_SESSION_LINK_H_
