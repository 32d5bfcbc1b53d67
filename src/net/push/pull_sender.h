// PullSender: the sending end of one accepted connection, which serves one pull after another.
//
//          ┌──────────────── last frame written ◄────────────────────┐
//          ▼                                                         │
//        idle ──OPEN──► requested ──granted, ACCEPT──► serving ──► finishing
//                           └─────refused, CANCEL────────────────────┘
//
// A connection whose first frame is LINK leaves the sender instead.
//
// While serving, the sender sends the segments of its PushSource as far as its EgressCredit allows.
// If the source has none, the sender waits for the buffer and sends STARVED as SignsOfLife demands.
// It holds the grant (and with it the object's pin) until the stream has taken the last byte.
//
// Owned by the loop's Pusher; one loop.
#ifndef PHALANX_NET_PUSH_PULL_SENDER_H_
#define PHALANX_NET_PUSH_PULL_SENDER_H_

#include <cstdint>
#include <memory>
#include <optional>

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
#include "src/net/pull/pull.h"
#include "src/net/push/egress_credit.h"
#include "src/net/push/egress_limiter.h"
#include "src/net/push/push_source.h"
#include "src/net/push/signs_of_life.h"
#include "src/net/push/unsent_limit.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class PullSender final : private FrameSink {
 public:
  // Number of segments in one write.
  static constexpr int kBatchSegments = 4;

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
    virtual void PullRequested(PullSender& sender, uint32_t pull, ServeRequest request) = 0;
    // Returns a grant: once for each grant, unless the sender is destroyed first.
    virtual void GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) = 0;
    // The last frame of a pull is written, and the next pull can begin. Must not destroy the
    // sender.
    virtual void WentIdle(PullSender& sender) = 0;
    // The peer has made this connection a link, which is no longer the sender's. The last action of
    // the sender, which may be destroyed now.
    virtual void BecameLink(PullSender& sender, std::unique_ptr<ByteStream> stream,
                            LinkPayload request) = 0;
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
  // The answer to PullRequested. If the receiver has cancelled meanwhile, the sender returns the
  // grant.
  void Grant(uint32_t pull, absl::StatusOr<ServeGrant> answer);
  // Ends the push of this number with Aborted, if it is the current one.
  void Abort(uint32_t pull, absl::string_view reason);
  // Closes the connection and calls nothing. Returns the grant of the current push, if any.
  ServeGrant Stop();

  uint64_t connection() const { return connection_; }
  // Returns the number of the last opened pull.
  uint32_t pull() const { return request_.pull; }

 private:
  enum class State { kIdle, kRequested, kServing, kFinishing, kClosed };
  // An OPEN, decoded.
  struct Request {
    uint32_t pull = 0;
    bool checksums = false;
    OpenPayload open;
  };

  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override;
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override;
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override;
  absl::Status OnOpen(const FrameHeader& header, absl::string_view payload);
  absl::Status OnLink(absl::string_view payload);
  void LeaveToLink();

  void Drive();
  // The same without a read, which usually finds nothing: OnReadable reports the receiver's frames.
  void DriveOutput();
  void EndTurn(const absl::Status& status);
  absl::Status Read();
  absl::Status Pump();
  void Arm();

  void Fill();
  bool AddSegment(Instant now);
  void Finish(FrameType type, absl::string_view payload);
  void SendAborted(const absl::Status& reason);
  void EndPush();
  void ReturnGrant(ServeGrant grant);
  void Close();

  void OnTick();
  void OnIdle();
  void SetTimer(absl::Duration in, void (PullSender::*then)());

  // Constant after construction.
  const uint64_t connection_;
  Executor& executor_;
  const NodeKey receiver_;
  const Options options_;
  DataPlaneCounters& counters_;
  Host& host_;

  // The connection.
  std::unique_ptr<ByteStream> stream_;
  FrameReader reader_;
  FrameWriter writer_;
  State state_ = State::kIdle;
  bool readable_armed_ = false;
  // The last turn ended to let other connections run, not because there was nothing left to do.
  bool turn_used_up_ = false;
  // The idle timer in state kIdle, ticks otherwise.
  TimerId timer_ = 0;
  EgressCredit credit_;
  UnsentLimit unsent_limit_;

  // Set by LINK, until the stream leaves at the end of the turn.
  std::optional<LinkPayload> link_request_;

  // The last opened pull. The source is empty unless its grant is held.
  Request request_;
  PushSource source_;
  SignsOfLife signs_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PUSH_PULL_SENDER_H_
