// PullReceiver: the receiving end of one pull over one authenticated connection.
//
//        OPEN ──►            ┌─────── told ────────┐
//   asked ──ACCEPT──► receiving ──full / ABORTED / CANCEL / error──► released
//
// The outcome is told as soon as it is known, and nothing is written into the buffer afterwards;
// the connection is released when the sender has said its last word on the pull, so that it can
// carry another one, or closed if that word does not come.
//
// Bytes are read straight into the buffer. Without checksums the watermark follows every read;
// with them it passes a segment after its check.
//
// Owned by the loop's Puller; one loop.
#ifndef PHALANX_NET_PULL_RECEIVER_H_
#define PHALANX_NET_PULL_RECEIVER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/net/byte_stream.h"
#include "src/net/data_plane_counters.h"
#include "src/net/frame.h"
#include "src/net/frame_reader.h"
#include "src/net/frame_writer.h"
#include "src/net/pull.h"
#include "src/net/segment_rate.h"
#include "src/net/transfer_buffer.h"

namespace phalanx::net {

class PullReceiver final : private FrameSink {
 public:
  // Bytes of a cancelled pull that are read and thrown away before the connection is rather closed.
  static constexpr uint64_t kMaxDrainBytes = uint64_t{4} << 20;

  struct Options {
    absl::Duration stall_timeout;
    // Asks for checksums; the sender may send them unasked.
    bool checksums = false;
  };

  class Observer {
   public:
    virtual ~Observer() = default;
    // Once; the buffer is not touched any more. Must not destroy the receiver.
    virtual void PullEnded(PullOutcome outcome) = 0;
    // Once, after PullEnded, as the last thing the receiver does: it may be destroyed now. `stream`
    // is null if the connection is of no more use.
    virtual void StreamReleased(std::unique_ptr<ByteStream> stream) = 0;
  };

  // `pull`: the number of this pull on its connection. `spec.address` is not used. REQUIRES:
  // `scratch`, `counters` and `observer` outlive the receiver.
  PullReceiver(Executor& executor, std::unique_ptr<ByteStream> stream, uint32_t pull, PullSpec spec,
               Options options, absl::Span<char> scratch, DataPlaneCounters& counters,
               Observer& observer);
  // Calls nothing; closes the stream if it was not released.
  ~PullReceiver() override;
  PullReceiver(const PullReceiver&) = delete;
  PullReceiver& operator=(const PullReceiver&) = delete;

  // Asks, and does the rest. The observer may be called from within Start and Cancel.
  void Start();
  // Ends the pull with Cancelled, unless its outcome was told before.
  void Cancel();

  // Something of the answer has come.
  bool heard() const { return heard_; }

 private:
  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override;
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override;
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override;
  absl::Status Accepted(absl::string_view payload);
  absl::Status Starved(absl::string_view payload);
  absl::Status CheckFits(const FrameHeader& header) const;
  absl::Status CheckSegment(const FrameHeader& header) const;
  void Publish(const FrameHeader& header, uint64_t to);

  std::string Wants();
  // False when the stream was released: the receiver may not exist any more.
  bool Drive();
  absl::Status Exchange();
  absl::Status WritePending();
  absl::Status ReadAvailable();
  void OnStallTimer();
  void ArmStallTimer();
  bool Settle(const absl::Status& status);
  absl::Status CheckPublished() const;
  void Tell(absl::Status status);
  absl::Status Explain(const absl::Status& error) const;
  void Release(bool reusable);

  // Constant after construction.
  Executor& executor_;
  const uint32_t pull_;
  const Options options_;
  DataPlaneCounters& counters_;
  Observer& observer_;

  std::unique_ptr<ByteStream> stream_;
  // `into` is let go when the outcome is told.
  PullSpec spec_;
  FrameReader reader_;
  FrameWriter writer_;

  // Per slice: bytes in place (and checked), and where the slice ends.
  std::array<uint64_t, kMaxSlices> cursor_ = {};
  uint64_t bytes_missing_ = 0;
  // The segment being read.
  absl::Span<char> place_;
  uint64_t segment_published_ = 0;

  bool answered_ = false;
  bool accepted_ = false;
  bool heard_ = false;
  bool told_ = false;
  // The sender's last word; `last_word_` is OK for ENDED.
  bool finished_ = false;
  absl::Status last_word_;

  Instant asked_at_;
  // Of any byte, and of a segment's.
  Instant last_heard_;
  Instant last_segment_;
  TimerId stall_timer_ = 0;
  SegmentRate rate_;
  PullOutcome outcome_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_RECEIVER_H_
