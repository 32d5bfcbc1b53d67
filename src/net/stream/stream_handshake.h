// StreamHandshake: runs one end of the handshake over a new connection.
//
// Owned by the loop that owns the stream; every call and callback runs there. Destroying it before
// it has ended closes the stream and calls nothing.
#ifndef PHALANX_NET_STREAM_STREAM_HANDSHAKE_H_
#define PHALANX_NET_STREAM_STREAM_HANDSHAKE_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/handshake.h"

namespace phalanx::net {

class StreamHandshake {
 public:
  struct Authenticated {
    std::unique_ptr<ByteStream> stream;
    NodeKey peer;
    // Bytes that follow the handshake and were read with it.
    std::string rest;
  };
  // Called once, in a later turn, as the last action: it may destroy the StreamHandshake. Errors:
  // those of Handshake, Unavailable if the connection breaks, DeadlineExceeded at the deadline.
  using Done = absl::AnyInvocable<void(absl::StatusOr<Authenticated>)>;

  StreamHandshake(Executor& executor, std::unique_ptr<ByteStream> stream,
                  const HandshakeConfig& config, Handshake::Role role, Instant deadline, Done done);
  ~StreamHandshake();
  StreamHandshake(const StreamHandshake&) = delete;
  StreamHandshake& operator=(const StreamHandshake&) = delete;

 private:
  void Drive();
  // Returns false if the stream is not ready.
  absl::StatusOr<bool> WriteSome();
  absl::StatusOr<bool> ReadSome();
  absl::Status Advance();
  void Arm();
  void End(absl::Status status);

  Executor& executor_;
  std::unique_ptr<ByteStream> stream_;
  Handshake handshake_;
  Done done_;
  TimerId deadline_timer_ = 0;
  std::string unsent_;
  std::string rest_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_STREAM_STREAM_HANDSHAKE_H_
