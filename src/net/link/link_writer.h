// LinkWriter: what a link writes to its connection next: frames of the outbox, and between them the
// frames that belong to the connection alone (LINK, WELCOME, ACK). Pure.
//
// A count of received bytes rides on the messages; an ACK is made only if there is none to write.
//
// Owned by a Link; one loop.
#ifndef PHALANX_NET_LINK_LINK_WRITER_H_
#define PHALANX_NET_LINK_LINK_WRITER_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "src/net/link/link_outbox.h"

namespace phalanx::net {

class LinkWriter {
 public:
  // REQUIRES: `outbox` outlives the writer.
  explicit LinkWriter(LinkOutbox& outbox) : outbox_(outbox) {}

  // A new connection, which begins with the bytes `first`. They report to the peer that `received`
  // of its bytes have arrived.
  void Begin(std::string first, uint64_t received);
  // The messages can follow.
  void OpenForMessages() { open_ = true; }
  // The connection has ended.
  void Reset();

  // The number of the peer's bytes that were not reported to it.
  uint64_t Owed(uint64_t received) const { return received - told_; }
  // They are to be reported as soon as possible.
  void AcknowledgeSoon() { ack_due_ = true; }

  // Returns the next bytes to write, valid until the next call; empty if there are none.
  absl::Span<const iovec> Gather(uint64_t received);
  // So many of them were written.
  void Wrote(size_t bytes);

  // Another frame can be written at once.
  bool between_frames() const { return !control_first_ && outbox_.between_frames(); }

 private:
  static constexpr size_t kMaxPieces = 64;

  LinkOutbox& outbox_;
  bool open_ = false;
  // Bytes that precede the next frame of the outbox. If some of them are written, or they begin the
  // connection, they also precede the rest of a frame that was begun.
  std::string control_;
  bool control_first_ = false;
  uint64_t told_ = 0;
  bool ack_due_ = false;
  std::vector<iovec> pieces_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LINK_LINK_WRITER_H_
