// TcpStream: a ByteStream over a connected, non-blocking socket.
//
// Reads into and writes from the caller's buffers, nothing between. Made by TcpNetwork; owned by
// whoever dialled or accepted; used on its loop only.
#ifndef PHALANX_NET_TCP_TCP_STREAM_H_
#define PHALANX_NET_TCP_TCP_STREAM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/net/byte_stream.h"
#include "src/net/event_loop.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::net {

class TcpStream final : public ByteStream {
 public:
  // How long Close waits in the background for the peer to take what was written.
  static constexpr absl::Duration kLinger = absl::Seconds(10);

  // Takes a connected socket over. Called on `loop`, which outlives the stream. Unavailable when
  // the loop cannot watch it; the socket is then closed.
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

  // Gives the socket up to somebody else, with what has not been read; the stream is closed here
  // and the peer does not notice.
  UniqueFd Release();

 private:
  TcpStream(EventLoop& loop, UniqueFd fd, std::unique_ptr<FdWatcher> watcher, std::string peer);
  absl::Status Broken(int error) const;

  EventLoop& loop_;
  const std::string peer_;
  // Both gone after Close.
  UniqueFd fd_;
  std::unique_ptr<FdWatcher> watcher_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_TCP_STREAM_H_
