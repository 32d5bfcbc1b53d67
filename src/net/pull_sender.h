// PullSender: the sending end of one accepted connection: one pull after another, for as long as
// the connection lives.
//
//        ┌──────────────── last word written ◄──────────────────┐
//        ▼                                                      │
//      idle ──OPEN──► asked ──granted, ACCEPT──► serving ──► finishing
//                       └────refused, CANCEL────────────────────┘
//
// While serving, it sends what the buffer has, slices taking turns; at the watermark it subscribes
// to the buffer and says STARVED once in every interval the receiver asked for. It holds the grant
// (and with it the object's pin) until the last byte was handed to the stream.
//
// A receiver that neither takes bytes nor says a word for kPatience of those intervals is gone:
// without that, a half-open connection would hold a pin until the kernel gives up on it.
//
// Owned by the loop's Pusher; one loop.
#ifndef PHALANX_NET_PULL_SENDER_H_
#define PHALANX_NET_PULL_SENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/net/byte_stream.h"
#include "src/net/data_plane_counters.h"
#include "src/net/egress_limiter.h"
#include "src/net/frame.h"
#include "src/net/frame_reader.h"
#include "src/net/frame_writer.h"
#include "src/net/pull.h"
#include "src/net/transfer_buffer.h"

namespace phalanx::net {

class PullSender final : private FrameSink {
 public:
  // Segments gathered into one write.
  static constexpr int kBatchSegments = 4;
  // Four stall timeouts of the receiver, which asks for four signs of life in each.
  static constexpr int kPatience = 16;
  // Bytes waiting unsent in the kernel: at first, and the bounds of what is adapted to about twice
  // the measured rate times the round trip.
  static constexpr size_t kFirstUnsentBytes = size_t{256} * 1024;
  static constexpr size_t kLeastUnsentBytes = size_t{128} * 1024;
  static constexpr size_t kMostUnsentBytes = size_t{8} << 20;

  struct Options {
    NodeKey self;
    size_t segment_bytes = size_t{64} * 1024;
    // Also sent to receivers that do not ask.
    bool checksums = false;
    absl::Duration idle_timeout;
  };

  class Host {
   public:
    virtual ~Host() = default;
    // A receiver wants something: to be answered by one call of Grant, in a later turn.
    virtual void Asked(PullSender& sender, uint32_t pull, ServeRequest request) = 0;
    // A grant is given back; once for each grant, unless the sender is destroyed first.
    virtual void GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) = 0;
    // The last word on a pull is written; the next may come. The sender must not be destroyed now.
    virtual void WentIdle(PullSender& sender) = 0;
    // The connection is closed; the last thing the sender does: it may be destroyed now.
    virtual void SenderClosed(PullSender& sender) = 0;
  };

  // `connection`: a name for the host's use. `receiver` is who proved itself in the handshake.
  // REQUIRES: all references outlive the sender.
  PullSender(uint64_t connection, Executor& executor, std::unique_ptr<ByteStream> stream,
             NodeKey receiver, Options options, EgressLimiter& limiter, absl::Span<char> scratch,
             DataPlaneCounters& counters, Host& host);
  // Calls nothing; closes the stream. See Stop.
  ~PullSender() override;
  PullSender(const PullSender&) = delete;
  PullSender& operator=(const PullSender&) = delete;

  // `rest`: bytes that were read with the handshake. Host calls may come from within this and every
  // call below.
  void Start(absl::string_view rest);
  // The answer to Asked. If the receiver has changed its mind meanwhile, the grant comes back.
  void Grant(uint32_t pull, absl::StatusOr<ServeGrant> answer);
  // Breaks off the push of this number with Aborted, if it is the one going on.
  void Abort(uint32_t pull, absl::string_view why);
  // Closes the connection and calls nothing; returns what the push going on, if any, held.
  ServeGrant Stop();

  uint64_t connection() const { return connection_; }
  // Number of the last pull that was opened.
  uint32_t pull() const { return pull_; }

 private:
  enum class State { kIdle, kAsked, kServing, kFinishing, kClosed };
  // One slice of the pull: what is left to send is [cursor, end).
  struct Lane {
    int slice;
    uint64_t cursor;
    uint64_t end;
  };

  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override;
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override;
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override;
  absl::Status Opened(const FrameHeader& header, absl::string_view payload);

  void Drive();
  absl::Status Read();
  absl::Status Pump();
  void Arm();

  absl::Status CheckWants(const TransferBuffer& from) const;
  void Fill();
  bool AddSegment();
  size_t Allowed(size_t want);
  Lane* NextLane();
  void QueueSegment(Lane& lane, size_t bytes);
  void WaitForBytes();
  void StopWaiting();
  void NoteFed(Instant now);

  void Finish(FrameType word, absl::string_view payload);
  void Refuse(const absl::Status& why);
  void EndPush();
  void ReturnGrant(ServeGrant grant);
  void Close();

  void OnTick();
  void OnIdle();
  void SetTimer(absl::Duration in, void (PullSender::*then)());
  void AdaptUnsentLimit();

  // Constant after construction.
  const uint64_t connection_;
  Executor& executor_;
  const NodeKey receiver_;
  const Options options_;
  EgressLimiter& limiter_;
  DataPlaneCounters& counters_;
  Host& host_;

  std::unique_ptr<ByteStream> stream_;
  FrameReader reader_;
  FrameWriter writer_;
  State state_ = State::kIdle;
  bool readable_armed_ = false;
  // The last turn ended because others are to have theirs, not because there was no more to do.
  bool turn_used_up_ = false;
  // Idle timer when idle, ticks otherwise.
  TimerId timer_ = 0;

  // The pull going on.
  uint32_t pull_ = 0;
  OpenPayload open_;
  ServeGrant grant_;
  bool checksums_ = false;
  std::vector<Lane> lanes_;
  size_t next_lane_ = 0;
  // The receiver took bytes of a segment, or said something.
  Instant last_sign_;
  Instant last_sent_;

  // Waiting for the buffer, or for the limiter.
  TransferBuffer::SubscriptionId subscription_ = 0;
  std::vector<uint64_t> seen_;
  TimerId limiter_timer_ = 0;
  // Reserved and not sent yet, and from when it may be. Kept from one pull to the next.
  size_t credit_bytes_ = 0;
  Instant credit_at_;
  bool starved_ = false;
  // The next segment is the first since the buffer had none.
  bool after_starved_ = false;
  Instant starved_since_;
  absl::Duration starved_total_;

  // Since the last tick.
  uint64_t tick_bytes_ = 0;
  bool tick_waited_ = false;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_SENDER_H_
