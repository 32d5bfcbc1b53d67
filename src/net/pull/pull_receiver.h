// PullReceiver: the receiving end of one pull over one authenticated connection.
//
//               OPEN ──►                 ┌──── outcome reported ────┐
//     requested ──ACCEPT──► receiving ──full / ABORTED / CANCEL / error──► released
//
// The receiver reports the outcome as soon as it is known, and writes nothing into the buffer after
// that. It releases the connection when the sender has sent its last frame of the pull, so that the
// connection can carry another pull. If that frame does not arrive, it closes the connection.
//
// The stream reads bytes directly into the buffer, where SliceAssembler publishes them.
//
// Owned by the loop's Puller; one loop.
#ifndef PHALANX_NET_PULL_PULL_RECEIVER_H_
#define PHALANX_NET_PULL_PULL_RECEIVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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
#include "src/net/pull/pull_timing.h"
#include "src/net/pull/slice_assembler.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

class PullReceiver final : private FrameSink {
 public:
  // The receiver discards up to this many bytes of a cancelled pull; if more follow, it closes the
  // connection.
  static constexpr uint64_t kMaxDrainBytes = uint64_t{4} << 20;

  struct Options {
    absl::Duration stall_timeout;
    // Requests checksums. The sender can also send them without a request.
    bool checksums = false;
  };

  class Observer {
   public:
    virtual ~Observer() = default;
    // Called once. The receiver does not touch the buffer after it. Must not destroy the receiver.
    virtual void PullEnded(PullOutcome outcome) = 0;
    // Called once, after PullEnded, as the last action of the receiver, which may be destroyed now.
    // `stream` is null if the connection is not reusable.
    virtual void StreamReleased(std::unique_ptr<ByteStream> stream) = 0;
  };

  // `pull`: the number of this pull on its connection. `spec.address` is ignored. REQUIRES:
  // `scratch`, `counters` and `observer` outlive the receiver.
  PullReceiver(Executor& executor, std::unique_ptr<ByteStream> stream, uint32_t pull, PullSpec spec,
               Options options, absl::Span<char> scratch, DataPlaneCounters& counters,
               Observer& observer);
  // Calls nothing. Closes the stream if it was not released.
  ~PullReceiver() override;
  PullReceiver(const PullReceiver&) = delete;
  PullReceiver& operator=(const PullReceiver&) = delete;

  // Sends the request and runs the pull. The observer can be called from within Start and Cancel.
  void Start();
  // Ends the pull with Cancelled if its outcome has not been reported.
  void Cancel();

  // True if any byte of the answer has arrived.
  bool answered() const { return timing_.any_byte(); }

 private:
  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override;
  absl::Status SegmentArrived(const FrameHeader& header, size_t arrived) override;
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override;
  absl::Status OnAccept(absl::string_view payload);
  absl::Status OnStarved(absl::string_view payload);

  std::string EncodeOpen();
  // Returns false if the stream was released: the receiver may no longer exist.
  bool Drive();
  absl::Status Exchange();
  absl::Status WritePending();
  absl::Status ReadAvailable();
  bool FinishTurn(const absl::Status& status);
  void OnStallTimer();
  void ArmStallTimer(absl::Duration patience);
  // How long the sender can be silent.
  absl::Duration Patience() const;
  void ReportOutcome(absl::Status status);
  absl::Status Annotate(const absl::Status& error) const;
  void Release(bool reusable);

  // Constant after construction.
  Executor& executor_;
  const uint32_t pull_;
  const Options options_;
  DataPlaneCounters& counters_;
  Observer& observer_;

  std::unique_ptr<ByteStream> stream_;
  // Without `into`, which belongs to the assembler.
  PullSpec spec_;
  FrameReader reader_;
  FrameWriter writer_;
  // Detached when the outcome is reported.
  SliceAssembler assembler_;
  PullTiming timing_;

  bool accepted_ = false;
  bool outcome_reported_ = false;
  // Set by the sender's last frame of the pull: OK for ENDED, the reason for ABORTED.
  std::optional<absl::Status> sender_result_;
  // How long the sender had no bytes to send, as it reported last.
  absl::Duration sender_starved_;
  TimerId stall_timer_ = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PULL_PULL_RECEIVER_H_
