// The seam for connections: a bidirectional stream of bytes, and the network that creates streams.
//
// Implementations: net/tcp (real sockets) and sim/ (simulated links that can cut, stall, half-open
// or deliver one byte at a time). Both pass byte_stream_conformance.h.
//
// Thread rule: a stream belongs to the executor for which it was created. Every call and every
// callback runs there.
#ifndef PHALANX_NET_STREAM_BYTE_STREAM_H_
#define PHALANX_NET_STREAM_BYTE_STREAM_H_

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
#include "src/common/time/executor.h"
#include "src/net/stream/address.h"

namespace phalanx::net {

class ByteStream;

// A connection on its way from one executor to another. Destroying it closes the connection. A
// value in effect: one thread at a time.
class DetachedStream {
 public:
  virtual ~DetachedStream() = default;

  // Returns the stream, which belongs to `executor` from now on; or Unavailable, and the connection
  // is closed. Called at most once, on `executor`.
  virtual absl::StatusOr<std::unique_ptr<ByteStream>> Attach(Executor& executor) = 0;
};

class ByteStream {
 public:
  // Destroying a stream closes it.
  virtual ~ByteStream() = default;

  // Reads 1..n bytes into the buffers, in order. Returns 0 if no bytes are available, OutOfRange at
  // end of file, and Unavailable if the connection is broken. Never blocks. Can return fewer bytes
  // than are available.
  virtual absl::StatusOr<size_t> Read(absl::Span<const iovec> into) = 0;

  // Writes 0..n bytes from the buffers, in order. Returns Unavailable if the connection is broken.
  // Never blocks and never raises SIGPIPE.
  virtual absl::StatusOr<size_t> Write(absl::Span<const iovec> from) = 0;

  // Calls `ready` once, in a later turn, when Read (Write) would not return 0 or the stream has
  // failed. Level-triggered: if this already holds, the call follows soon. At most one callback of
  // each kind is armed; arming again replaces it. A null callback disarms.
  virtual void OnReadable(Task ready) = 0;
  virtual void OnWritable(Task ready) = 0;

  // Limits the bytes that wait unsent in the kernel: Write accepts no more while this many are
  // queued. A hint.
  virtual void SetUnsentLimit(size_t bytes) = 0;

  // Bytes of this stream precede those of other streams where they queue for the link. A hint.
  virtual void SetUrgent() {}

  // Returns the smoothed round trip that the transport measured; zero if unknown.
  virtual absl::Duration RoundTrip() const = 0;

  // Returns the peer as text, for messages.
  virtual std::string peer() const = 0;

  // Idempotent. After Close no callback of this stream runs, and Read and Write return Unavailable.
  // The peer reads the written bytes and then end of file.
  virtual void Close() = 0;

  // Gives the connection up without closing it, with the bytes that were not read, so that another
  // executor of the same network can take it. This stream is as after Close. Returns null, and
  // changes nothing, if the implementation has no such connections (fakes of tests).
  virtual std::unique_ptr<DetachedStream> Detach() { return nullptr; }
};

// The destructor stops listening.
class Listener {
 public:
  virtual ~Listener() = default;
  // Returns the address with the actual port.
  virtual Address address() const = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  // Connects to `to`. Calls `done` once on `executor`, in a later turn, with the stream or an
  // error: Unavailable (refused, unreachable; the text names the address), DeadlineExceeded, or
  // InvalidArgument for an address that cannot be parsed.
  using DialDone = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<ByteStream>>)>;
  virtual void Dial(Executor& executor, const Address& to, Instant deadline, DialDone done) = 0;

  // Accepts connections on `executor`. `pick` returns the executor that owns the next stream;
  // `accepted` is called there, possibly on several executors at the same time. Returns
  // AlreadyExists if the port is in use, InvalidArgument if the address cannot be parsed or does
  // not belong to this machine.
  using Accepted = absl::AnyInvocable<void(Executor& owner, std::unique_ptr<ByteStream>)>;
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(Executor& executor, const Address& on,
                                                           absl::AnyInvocable<Executor&()> pick,
                                                           Accepted accepted) = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_STREAM_BYTE_STREAM_H_
