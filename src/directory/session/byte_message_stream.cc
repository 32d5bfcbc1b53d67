#include "src/directory/session/byte_message_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/directory/session/session_handshake.h"
#include "src/directory/session/session_link.h"

namespace phalanx::directory {
namespace {

enum FrameKind : uint8_t { kFrame = 0, kClose = 1 };

constexpr size_t kHeaderBytes = 5;
// An inline object of 64 KiB arrives with the message around it in one read.
constexpr size_t kReadBytes = 80 << 10;
// An empty buffer with a larger capacity is freed.
constexpr size_t kRestingBytes = 256 << 10;
// After a longer frame the loop's other tasks run before the next frame.
constexpr size_t kBytesPerTurn = 256 << 10;
// The limit of connecting. All addresses of a name are tried within the lease; after the lease the
// session considers its shard silent and opens another stream.
constexpr absl::Duration kConnectTimeout = absl::Seconds(2);
// How long a closed stream can take to send what is queued.
constexpr absl::Duration kLinger = absl::Seconds(1);

// A byte queue: appended at the back, taken from the front.
class Queue {
 public:
  absl::string_view view() const { return absl::string_view(bytes_).substr(begin_); }
  std::string& back() { return bytes_; }
  void Take(size_t bytes) {
    begin_ += bytes;
    if (begin_ == bytes_.size()) {
      bytes_.clear();
      begin_ = 0;
      if (bytes_.capacity() > kRestingBytes) bytes_.shrink_to_fit();
    } else if (begin_ > bytes_.size() / 2) {
      // More than half is free: each byte is moved a bounded number of times.
      bytes_.erase(0, begin_);
      begin_ = 0;
    }
  }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

// The shared state of a stream: lives as long as the stream, or until its queued bytes are sent.
// Everything on the executor.
template <typename Out, typename In>
class Connection : public std::enable_shared_from_this<Connection<Out, In>> {
 public:
  using Handlers = typename MessageStream<Out, In>::Handlers;

  Connection(Executor& executor, std::string peer) : executor_(executor), peer_(std::move(peer)) {}

  // The caller uses one of the two before everything else: this end is the node, or the shard.
  void SendPreamble() { output_.back().append(kStreamPreamble.data(), kStreamPreamble.size()); }
  void ExpectPreamble(absl::string_view already_read) {
    preamble_left_ = kStreamPreamble.size();
    input_.back().append(already_read.data(), already_read.size());
  }

  // The connection is made, or `bytes` has the error.
  void Connected(absl::StatusOr<std::unique_ptr<net::ByteStream>> bytes) {
    // The stream was closed, and its time to linger passed before the connection was made.
    if (over_) return;
    if (!bytes.ok()) return Broken(bytes.status());
    bytes_ = *std::move(bytes);
    // Control frames precede object bytes where both queue for the link.
    bytes_->SetUrgent();
    if (handlers_ != nullptr) ArmRead();
    Write();
  }

  void Start(Handlers handlers) {
    PHALANX_CHECK(handlers_ == nullptr, "a stream is started once");
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
    if (bytes_ != nullptr) ArmRead();
    // The connection failed before the owner had handlers to report to.
    if (early_failure_.has_value()) PostClosed(*std::exchange(early_failure_, std::nullopt));
  }

  bool writable() {
    wake_when_writable_ = sending_ || over_;
    return handlers_ != nullptr && !wake_when_writable_;
  }

  void Send(const Out& frame) {
    PHALANX_CHECK(handlers_ != nullptr && !sending_, "one frame at a time");
    if (over_) return;
    sending_ = true;
    Append(kFrame, frame);
    // A long frame occupied this turn; other tasks of the loop run before the next frame.
    yields_ = output_.view().size() > kBytesPerTurn;
    Write();
  }

  void Close(const absl::Status& why) {
    if (std::exchange(closing_, true)) return;
    handlers_.reset();
    // No more callbacks. The queued frames and the close still go out.
    input_ = Queue();
    if (bytes_ != nullptr) bytes_->OnReadable(nullptr);
    if (over_) return;
    Append(kClose, RefusedFrame(why).refused());
    // A peer that does not read must not keep the connection for ever.
    executor_.RunAt(executor_.Now() + kLinger, [self = this->shared_from_this()] { self->Over(); });
    Write();
  }

  absl::Duration RoundTrip() const {
    return bytes_ == nullptr ? absl::ZeroDuration() : bytes_->RoundTrip();
  }
  const std::string& peer() const { return peer_; }

 private:
  template <typename Message>
  void Append(FrameKind kind, const Message& message) {
    const size_t size = message.ByteSizeLong();
    PHALANX_CHECK(size <= kMaxFrameBytes, "frames are bounded");
    ByteWriter out(output_.back());
    out.U32(static_cast<uint32_t>(size));
    out.U8(kind);
    std::string& bytes = output_.back();
    bytes.resize(bytes.size() + size);
    // ByteSizeLong above has left the sizes of its parts in the message.
    message.SerializeWithCachedSizesToArray(
        reinterpret_cast<uint8_t*>(bytes.data() + bytes.size() - size));
  }

  void Write() {
    if (bytes_ == nullptr || over_) return;
    while (!output_.view().empty()) {
      const absl::string_view left = output_.view();
      const iovec piece = {const_cast<char*>(left.data()), left.size()};
      const absl::StatusOr<size_t> wrote = bytes_->Write({&piece, 1});
      if (!wrote.ok()) {
        // The frames that the peer sent before it left are still to be read; reading also reports
        // the end.
        if (closing_) Over();
        return;
      }
      if (*wrote == 0) {
        bytes_->OnWritable([self = this->shared_from_this()] { self->Write(); });
        return;
      }
      output_.Take(*wrote);
    }
    if (closing_) return Over();
    if (std::exchange(yields_, false)) {
      return executor_.Post([self = this->shared_from_this()] { self->Write(); });
    }
    sending_ = false;
    if (!std::exchange(wake_when_writable_, false)) return;
    // A callback never runs inside a call of the stream's owner.
    executor_.Post([self = this->shared_from_this()] {
      if (const auto handlers = self->handlers_) handlers->on_writable();
    });
  }

  void ArmRead() {
    bytes_->OnReadable([self = this->shared_from_this()] { self->Read(); });
  }

  void Read() {
    char buffer[kReadBytes];
    const iovec piece = {buffer, sizeof(buffer)};
    const absl::StatusOr<size_t> read = bytes_->Read({&piece, 1});
    if (!read.ok()) {
      return Broken(absl::UnavailableError(
          absl::StrCat("the connection to ", peer_, " broke: ", read.status().message())));
    }
    input_.back().append(buffer, *read);
    // A handler can close or destroy the stream, so each frame checks again.
    while (handlers_ != nullptr && !over_ && TakePreamble() && TakeFrame()) {
    }
    if (handlers_ != nullptr && !over_) ArmRead();
  }

  // True if the whole preamble was read.
  bool TakePreamble() {
    if (preamble_left_ == 0) return true;
    const absl::string_view expected =
        kStreamPreamble.substr(kStreamPreamble.size() - preamble_left_);
    const absl::string_view got = input_.view().substr(0, expected.size());
    // Compares the bytes that arrived: a stranger is rejected at its first wrong byte.
    if (got != expected.substr(0, got.size())) {
      Broken(absl::InvalidArgumentError(absl::StrCat(peer_, " does not speak to a directory")));
      return false;
    }
    preamble_left_ -= got.size();
    input_.Take(got.size());
    return preamble_left_ == 0;
  }

  // Delivers the first frame of the input. False if the frame is incomplete.
  bool TakeFrame() {
    ByteReader in(input_.view());
    const uint32_t size = in.U32();
    const uint8_t kind = in.U8();
    if (!in.ok()) return false;
    // Before the payload is awaited: the length comes from the peer and bounds the buffer.
    if (size > (greetings_left_ > 0 ? kMaxGreetingBytes : kMaxFrameBytes) || kind > kClose) {
      Malformed(greetings_left_ == kGreetingFrames
                    ? "does not speak as we do: another program, or an older version of this one?"
                    : absl::StrCat("has sent a frame of kind ", kind, " and ", size, " bytes"));
      return false;
    }
    if (in.remaining() < size) return false;
    greetings_left_ = std::max(greetings_left_ - 1, 0);
    const absl::string_view payload = in.Raw(size);
    kind == kFrame ? TakeMessage(payload) : TakeClose(payload);
    return true;
  }

  void TakeMessage(absl::string_view payload) {
    In message;
    if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
      return Malformed("has sent a frame that is no proto");
    }
    // Before the handler runs, because the handler can close the stream, which replaces the input.
    input_.Take(kHeaderBytes + payload.size());
    // A copy of the pointer keeps the handlers alive if on_message destroys the stream.
    const auto handlers = handlers_;
    handlers->on_message(std::move(message));
  }

  void TakeClose(absl::string_view payload) {
    v1::Refused refused;
    if (!refused.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
      return Malformed("has sent a close that is no proto");
    }
    Broken(refused.code() == 0 ? absl::OkStatus() : RefusedStatus(refused));
  }

  // The bytes after this cannot be parsed. Sends the error to the peer, in case it still reads.
  void Malformed(absl::string_view what) {
    absl::Status why = absl::InvalidArgumentError(absl::StrCat(peer_, " ", what));
    Append(kClose, RefusedFrame(why).refused());
    Write();
    Broken(std::move(why));
  }

  void Broken(absl::Status why) {
    Over();
    // The owner closed the stream itself, so it gets no callback.
    if (closing_) return;
    if (handlers_ == nullptr) {
      early_failure_ = std::move(why);
    } else {
      PostClosed(std::move(why));
    }
  }

  void PostClosed(absl::Status why) {
    executor_.Post([self = this->shared_from_this(), why = std::move(why)]() mutable {
      if (const auto handlers = std::exchange(self->handlers_, nullptr)) {
        handlers->on_closed(std::move(why));
      }
    });
  }

  void Over() {
    over_ = true;
    if (bytes_ != nullptr) bytes_->Close();
  }

  Executor& executor_;
  const std::string peer_;
  std::unique_ptr<net::ByteStream> bytes_;  // null until connected
  std::shared_ptr<Handlers> handlers_;      // null before Start, and after the last callback
  std::optional<absl::Status> early_failure_;
  Queue input_;
  Queue output_;
  size_t preamble_left_ = 0;
  int greetings_left_ = kGreetingFrames;  // of the peer's
  bool sending_ = false;
  bool yields_ = false;
  bool wake_when_writable_ = false;
  bool closing_ = false;
  bool over_ = false;
};

template <typename Out, typename In>
class ByteMessageStream final : public MessageStream<Out, In> {
 public:
  explicit ByteMessageStream(std::shared_ptr<Connection<Out, In>> connection)
      : connection_(std::move(connection)) {}
  ~ByteMessageStream() override { Close(absl::CancelledError("the stream was dropped")); }

  void Start(typename MessageStream<Out, In>::Handlers handlers) override {
    connection_->Start(std::move(handlers));
  }
  bool writable() const override { return connection_->writable(); }
  void Send(const Out& frame) override { connection_->Send(frame); }
  void Close(absl::Status why) override { connection_->Close(why); }
  absl::Duration RoundTrip() const override { return connection_->RoundTrip(); }
  std::string peer() const override { return connection_->peer(); }

 private:
  const std::shared_ptr<Connection<Out, In>> connection_;
};

using NodeConnection = Connection<v1::NodeFrame, v1::ShardFrame>;
using ShardConnection = Connection<v1::ShardFrame, v1::NodeFrame>;

class ByteShardConnector final : public ShardConnector {
 public:
  ByteShardConnector(net::Network& network, net::Address address)
      : network_(network), address_(std::move(address)) {}

  std::unique_ptr<NodeStream> Connect(Executor& executor) override {
    auto connection = std::make_shared<NodeConnection>(executor, address_);
    connection->SendPreamble();
    network_.Dial(executor, address_, executor.Now() + kConnectTimeout,
                  [connection](absl::StatusOr<std::unique_ptr<net::ByteStream>> bytes) {
                    connection->Connected(std::move(bytes));
                  });
    return std::make_unique<ByteMessageStream<v1::NodeFrame, v1::ShardFrame>>(
        std::move(connection));
  }

  std::string target() const override { return address_; }

 private:
  net::Network& network_;
  const net::Address address_;
};

}  // namespace

std::unique_ptr<ShardConnector> NewByteShardConnector(net::Network& network, net::Address address) {
  return std::make_unique<ByteShardConnector>(network, std::move(address));
}

std::unique_ptr<ShardStream> NewByteShardStream(Executor& executor,
                                                std::unique_ptr<net::ByteStream> bytes,
                                                std::string already_read) {
  auto connection = std::make_shared<ShardConnection>(executor, bytes->peer());
  connection->ExpectPreamble(already_read);
  connection->Connected(std::move(bytes));
  return std::make_unique<ByteMessageStream<v1::ShardFrame, v1::NodeFrame>>(std::move(connection));
}

}  // namespace phalanx::directory
