// The encoded requests that the node has not read yet.
//
// Owned by a connection, used under its lock.
#ifndef PHALANX_CLIENT_SOCKET_REQUEST_QUEUE_H_
#define PHALANX_CLIENT_SOCKET_REQUEST_QUEUE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "src/client/socket/local_socket.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

namespace local = object_store::local;

class RequestQueue {
 public:
  // Bytes that the socket has not accepted.
  size_t size() const { return bytes_.size() - sent_; }

  void Add(const local::Request& request) { local::Encode(request, bytes_); }
  // Adds a Put up to its bytes. The caller passes these to Flush next.
  void AddAllButBytes(const local::Put& put) { local::EncodeAllButBytes(put, bytes_); }

  // Sends the queue and then `bytes`, as much as the socket accepts, and queues the rest. `bytes`
  // go to the socket from where they are, without a copy, if it has room.
  void Flush(LocalSocket& socket, absl::string_view bytes = {});

  // A batch holds fewer bytes back: the node can read a longer queue while it grows.
  static constexpr size_t kMaxBatchBytes = size_t{64} << 10;
  // Between the two, which can be nested, only a thread that waits flushes the queue. An end
  // without a begin does nothing.
  void BeginBatch() { ++batches_; }
  void EndBatch() { batches_ -= batches_ > 0 ? 1 : 0; }
  // Returns true if the queue is to wait for the end of a batch.
  bool batching() const { return batches_ > 0 && size() < kMaxBatchBytes; }

  // The socket accepts no more bytes: every later Flush drops what is queued. For good.
  void Break() { broken_ = true; }
  bool broken() const { return broken_; }

  // Whether a call should wait for the node to read the queue: bytes are left, and no call has
  // waited for them in vain (`stalled`).
  bool WorthWaiting();
  // Whether a wait for the node has timed out. Stays until the queue is empty.
  void set_stalled(bool stalled) { stalled_ = stalled; }

 private:
  std::string bytes_;
  size_t sent_ = 0;
  int batches_ = 0;
  bool broken_ = false;
  bool stalled_ = false;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_REQUEST_QUEUE_H_
