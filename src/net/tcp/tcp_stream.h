// TcpStream: a ByteStream over a connected, non-blocking socket.
//
// Reads into and writes from the buffers of the caller, without a copy. Created by TcpNetwork,
// owned by the code that dialed or accepted, used only on its loop.
#ifndef PHALANX_NET_TCP_TCP_STREAM_H_
#define PHALANX_NET_TCP_TCP_STREAM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/net/loop/event_loop.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {

class TcpStream final : public ByteStream {
 public:
  // How long the socket stays open after Close, until the peer has received the written bytes.
  static constexpr absl::Duration kLinger = absl::Seconds(10);

  // Takes over a connected socket. Called on `loop`, which outlives the stream. Returns Unavailable
  // if the loop cannot watch the socket, which is closed then.
  static absl::StatusOr<std::unique_ptr<TcpStream>> Make(EventLoop& loop, UniqueFd fd,
                                                         std::string peer);
  ~TcpStream() override;

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override;
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override;
  void OnReadable(Task ready) override;
  void OnWritable(Task ready) override;
  void SetUnsentLimit(size_t bytes) override;
  void SetUrgent() override;
  absl::Duration RoundTrip() const override;
  std::string peer() const override { return peer_; }
  void Close() override;
  std::unique_ptr<DetachedStream> Detach() override;

  // Releases the socket to the caller, with its unread bytes. The stream is closed, but the
  // connection stays open.
  UniqueFd Release();

 private:
  TcpStream(EventLoop& loop, UniqueFd fd, std::unique_ptr<FdWatcher> watcher, std::string peer);
  absl::Status Broken(int error) const;

  EventLoop& loop_;
  const std::string peer_;
  // Both empty after Close.
  UniqueFd fd_;
  std::unique_ptr<FdWatcher> watcher_;
};

// Returns `executor` as an EventLoop. REQUIRES: it is one.
EventLoop& LoopOf(Executor& executor);

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_STREAM_H_
