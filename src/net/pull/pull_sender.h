// PullSender: the sending end of one accepted connection, which serves one pull after another.
//
//          ┌────────────── last frame written ◄───────────────────┐
//          ▼                                                      │
//        idle ──OPEN──► asked ──granted, ACCEPT──► serving ──► finishing
//                         └────refused, CANCEL────────────────────┘
//
// While serving, the sender sends the bytes below the watermarks of the buffer; slices take turns.
// At the watermark it subscribes to the buffer and sends STARVED once in every interval that the
// receiver requested. It holds the grant (and with it the object's pin) until the stream has taken
// the last byte.
//
// The sender closes the connection if the receiver neither takes bytes nor sends a frame for
// kPatience of those intervals. Otherwise a half-open connection would hold a pin until the kernel
// gives up on it.
//
// Owned by the loop's Pusher; one loop.
#ifndef PHALANX_NET_PULL_PULL_SENDER_H_
#define PHALANX_NET_PULL_PULL_SENDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/time/executor.h"
#include "src/net/frame/frame.h"
#include "src/net/frame/frame_reader.h"
#include "src/net/frame/frame_writer.h"
#include "src/net/pull/data_plane_counters.h"
#include "src/net/pull/egress_limiter.h"
#include "src/net/pull/pull.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class PullSender final : private FrameSink {
 public:
  // Number of segments in one write.
  static constexpr int kBatchSegments = 4;
  // Four stall timeouts of the receiver, which requests four signs of life per stall timeout.
  static constexpr int kPatience = 16;
  // Limits of the bytes that wait unsent in the kernel: the initial value, and the bounds of the
  // adapted one, which is about twice the measured rate times the round trip.
  static constexpr size_t kFirstUnsentBytes = size_t{256} * 1024;
  static constexpr size_t kLeastUnsentBytes = size_t{128} * 1024;
  static constexpr size_t kMostUnsentBytes = size_t{8} << 20;

  struct Options {
    NodeKey self;
    size_t segment_bytes = size_t{64} * 1024;
    // Sends checksums also to receivers that do not request them.
    bool checksums = false;
    absl::Duration idle_timeout;
  };

  class Host {
   public:
    virtual ~Host() = default;
    // A receiver requests a pull. The host answers with one call of Grant, in a later turn.
    virtual void Asked(PullSender& sender, uint32_t pull, ServeRequest request) = 0;
    // Returns a grant: once for each grant, unless the sender is destroyed first.
    virtual void GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) = 0;
    // The last frame of a pull is written, and the next pull can begin. Must not destroy the
    // sender.
    virtual void WentIdle(PullSender& sender) = 0;
    // The connection is closed. The last action of the sender, which may be destroyed now.
    virtual void SenderClosed(PullSender& sender) = 0;
  };

  // `connection`: an id for the host's use. `receiver`: the node that proved itself in the
  // handshake. REQUIRES: all references outlive the sender.
  PullSender(uint64_t connection, Executor& executor, std::unique_ptr<ByteStream> stream,
             NodeKey receiver, Options options, EgressLimiter& limiter, absl::Span<char> scratch,
             DataPlaneCounters& counters, Host& host);
  // Calls nothing. Closes the stream. See Stop.
  ~PullSender() override;
  PullSender(const PullSender&) = delete;
  PullSender& operator=(const PullSender&) = delete;

  // `rest`: bytes that were read with the handshake. Start and the following methods can call the
  // host.
  void Start(absl::string_view rest);
  // The answer to Asked. If the receiver has cancelled meanwhile, the sender returns the grant.
  void Grant(uint32_t pull, absl::StatusOr<ServeGrant> answer);
  // Ends the push of this number with Aborted, if it is the current one.
  void Abort(uint32_t pull, absl::string_view why);
  // Closes the connection and calls nothing. Returns the grant of the current push, if any.
  ServeGrant Stop();

  uint64_t connection() const { return connection_; }
  // Returns the number of the last opened pull.
  uint32_t pull() const { return pull_; }

 private:
  enum class State { kIdle, kAsked, kServing, kFinishing, kClosed };
  // One slice of the pull: [cursor, end) remains to be sent.
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
  // The last turn ended to let other connections run, not because there was nothing left to do.
  bool turn_used_up_ = false;
  // The idle timer in state kIdle, ticks otherwise.
  TimerId timer_ = 0;

  // The current pull.
  uint32_t pull_ = 0;
  OpenPayload open_;
  ServeGrant grant_;
  bool checksums_ = false;
  std::vector<Lane> lanes_;
  size_t next_lane_ = 0;
  // When the receiver last took bytes of a segment or sent a frame.
  Instant last_sign_;
  Instant last_sent_;

  // While waiting for the buffer or for the limiter.
  TransferBuffer::SubscriptionId subscription_ = 0;
  std::vector<uint64_t> seen_;
  TimerId limiter_timer_ = 0;
  // Bytes reserved and not sent yet, and the time from which they may be sent. Kept from one pull
  // to the next.
  size_t credit_bytes_ = 0;
  Instant credit_at_;
  bool starved_ = false;
  // The next segment is the first one since the buffer had no bytes.
  bool after_starved_ = false;
  Instant starved_since_;
  absl::Duration starved_total_;

  // Since the last tick.
  uint64_t tick_bytes_ = 0;
  bool tick_waited_ = false;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_PULL_SENDER_H_
