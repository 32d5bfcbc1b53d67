#include "src/net/stream/stream_handshake.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::net {
namespace {

// A hello and a proof are much shorter; the rest of the block can hold the first frame.
constexpr size_t kReadBytes = 1024;

std::string FreshNonce(const HandshakeConfig& config) {
  std::string nonce(kNonceBytes, '\0');
  config.nonce_bytes(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace

StreamHandshake::StreamHandshake(Executor& executor, std::unique_ptr<ByteStream> stream,
                                 const HandshakeConfig& config, Handshake::Role role,
                                 Instant deadline, Done done)
    : executor_(executor),
      stream_(std::move(stream)),
      handshake_(config, role, FreshNonce(config)),
      done_(std::move(done)),
      unsent_(handshake_.TakeOutput()) {
  deadline_timer_ = executor_.RunAt(deadline, [this] {
    deadline_timer_ = 0;
    End(absl::DeadlineExceededError(
        absl::StrCat("peer ", stream_->peer(), " did not finish the handshake in time")));
  });
  Arm();
}

StreamHandshake::~StreamHandshake() {
  if (deadline_timer_ != 0) executor_.Cancel(deadline_timer_);
}

void StreamHandshake::Arm() {
  // After the handshake, later bytes stay in the stream for its next owner.
  if (!handshake_.done()) stream_->OnReadable([this] { Drive(); });
  if (!unsent_.empty()) stream_->OnWritable([this] { Drive(); });
}

void StreamHandshake::Drive() {
  const absl::Status status = Advance();
  // The end waits until our own proof is written, too: the peer needs it.
  if (!status.ok() || (handshake_.done() && unsent_.empty())) return End(status);
  Arm();
}

absl::Status StreamHandshake::Advance() {
  for (;;) {
    PHALANX_ASSIGN_OR_RETURN(const bool wrote, WriteSome());
    // After the proof of the peer, its bytes belong to the protocol.
    if (handshake_.done()) return absl::OkStatus();
    PHALANX_ASSIGN_OR_RETURN(const bool read, ReadSome());
    if (!wrote && !read) return absl::OkStatus();
  }
}

absl::StatusOr<bool> StreamHandshake::WriteSome() {
  if (unsent_.empty()) return false;
  const iovec part = {unsent_.data(), unsent_.size()};
  PHALANX_ASSIGN_OR_RETURN(const size_t taken, stream_->Write(absl::MakeConstSpan(&part, 1)));
  unsent_.erase(0, taken);
  return taken > 0;
}

absl::StatusOr<bool> StreamHandshake::ReadSome() {
  std::array<char, kReadBytes> buffer;
  const iovec place = {buffer.data(), buffer.size()};
  absl::StatusOr<size_t> size = stream_->Read(absl::MakeConstSpan(&place, 1));
  if (absl::IsOutOfRange(size.status())) {
    return absl::UnavailableError(
        absl::StrCat("peer ", stream_->peer(), " closed the connection during the handshake"));
  }
  PHALANX_RETURN_IF_ERROR(size.status());
  const absl::string_view bytes(buffer.data(), *size);
  const absl::StatusOr<size_t> used = handshake_.Consume(bytes);
  // Before the check of `used`: after an error the peer still gets our hello, from which it learns
  // the reason.
  unsent_ += handshake_.TakeOutput();
  PHALANX_RETURN_IF_ERROR(used.status());
  rest_.append(bytes.data() + *used, bytes.size() - *used);
  return *size > 0;
}

void StreamHandshake::End(absl::Status status) {
  // `done` can destroy this object.
  Done done = std::move(done_);
  if (status.ok()) {
    stream_->OnReadable(nullptr);
    stream_->OnWritable(nullptr);
    done(Authenticated{std::move(stream_), handshake_.peer(), std::move(rest_)});
    return;
  }
  // From our hello the peer learns the reason. Bytes that the stream does not take now are lost.
  (void)WriteSome();
  stream_->Close();
  done(std::move(status));
}

}  // namespace phalanx::net
