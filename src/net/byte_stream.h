// The seam for connections: a bidirectional stream of bytes, and the network that makes them.
//
// Implementations: net/tcp (real sockets) and sim/ (simulated links that may cut, stall, half-open
// or deliver one byte at a time). Both pass byte_stream_conformance.h.
//
// Thread rule: a stream belongs to the executor it was made for; every call and every callback
// happens there.
#ifndef PHALANX_NET_BYTE_STREAM_H_
#define PHALANX_NET_BYTE_STREAM_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/net/address.h"

namespace phalanx::net {

class ByteStream {
 public:
  // Destroying a stream closes it.
  virtual ~ByteStream() = default;

  // Moves 1..n bytes into the buffers (scattered in order); 0 when nothing is there now. OutOfRange
  // at end of file, Unavailable when the connection broke. Never blocks. May return fewer bytes
  // than are waiting.
  virtual absl::StatusOr<size_t> Read(absl::Span<const iovec> into) = 0;

  // Takes 0..n bytes, gathered in order. Unavailable when the connection broke. Never blocks, never
  // raises SIGPIPE.
  virtual absl::StatusOr<size_t> Write(absl::Span<const iovec> from) = 0;

  // Calls `ready` once, in a later turn, when Read (Write) would not return 0, or the stream
  // failed. Level-triggered: if that is so already it is called soon. At most one of each may be
  // armed; arming again replaces the callback. A null callback disarms.
  virtual void OnReadable(Task ready) = 0;
  virtual void OnWritable(Task ready) = 0;

  // Bounds the bytes that wait unsent in the kernel: Write takes no more once so many are queued. A
  // hint.
  virtual void SetUnsentLimit(size_t bytes) = 0;

  // What is written goes before others' bytes where those queue for the link. A hint.
  virtual void SetUrgent() {}

  // Smoothed round trip as the transport measured it; zero when unknown.
  virtual absl::Duration RoundTrip() const = 0;

  // The peer as text, for messages.
  virtual std::string peer() const = 0;

  // Idempotent. After it no callback of this stream runs, Read and Write are Unavailable; the peer
  // reads what was written and then end of file.
  virtual void Close() = 0;
};

// Closes on destruction.
class Listener {
 public:
  virtual ~Listener() = default;
  // With the real port.
  virtual Address address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  // Calls `done` once on `executor`, in a later turn: the stream, Unavailable (refused,
  // unreachable; text names the address), DeadlineExceeded, or InvalidArgument for an address that
  // does not parse.
  using DialDone = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>)>;
  virtual void Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) = 0;

  // Accepts connections on `executor`: `pick` names the executor that shall own the next stream,
  // `accepted` is called there, possibly on several executors at once. AlreadyExists when the port
  // is in use, InvalidArgument when the address does not parse or is not ours.
  using Accepted = absl::AnyInvocable<void(Executor& owner, std::unique_ptr<ByteStream>)>;
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(Executor& executor, const Address& on,
                                                           absl::AnyInvocable<Executor&()> pick,
                                                           Accepted accepted) = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_BYTE_STREAM_H_
