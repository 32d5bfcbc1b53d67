#include "src/directory/local/local_message_stream.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::directory {
namespace {

// One end of a stream: its received frame and its handlers. Lives as long as the stream, and until
// the other end has closed.
template <typename Out, typename In>
class End : public std::enable_shared_from_this<End<Out, In>> {
 public:
  using Handlers = typename MessageStream<Out, In>::Handlers;
  using Other = End<In, Out>;

  End(Executor& executor, std::string peer) : executor_(executor), peer_(std::move(peer)) {}

  static void Join(const std::shared_ptr<End>& one, const std::shared_ptr<Other>& other) {
    one->other_ = other;
    other->other_ = one;
  }

  void Start(Handlers handlers) {
    PHALANX_CHECK(handlers_ == nullptr, "a stream is started once");
    handlers_ = std::make_shared<Handlers>(std::move(handlers));
    DeliverLater();
  }

  bool writable() {
    // Remembers the question: on_writable runs only for an end that found the stream busy.
    wake_when_writable_ = other_ == nullptr || other_->frame_.has_value();
    return handlers_ != nullptr && !wake_when_writable_;
  }

  void Send(const Out& frame) {
    // The other end has closed; on_closed reports it, so the frame is dropped silently.
    if (other_ == nullptr) return;
    PHALANX_CHECK(handlers_ != nullptr && !other_->frame_.has_value(), "one frame at a time");
    other_->frame_ = frame;
    other_->DeliverLater();
  }

  void Close(const absl::Status& why) {
    // No callback after Close, not even for a frame that is already posted.
    handlers_.reset();
    frame_.reset();
    // Breaks the cycle of the two ends, which hold each other.
    if (const std::shared_ptr<Other> other = std::exchange(other_, nullptr)) other->Closed(why);
  }

  // The other end has closed, or no shard listens.
  void Closed(absl::Status why) {
    other_.reset();
    closed_ = std::move(why);
    DeliverLater();
  }

  const std::string& peer() const { return peer_; }

 private:
  friend class End<In, Out>;

  void DeliverLater() {
    if (handlers_ == nullptr || !(frame_.has_value() || closed_.has_value())) return;
    // One task at a time: it delivers the frame, and then the close.
    if (std::exchange(posted_, true)) return;
    executor_.Post([self = this->shared_from_this()] {
      self->posted_ = false;
      self->Deliver();
    });
  }

  void Deliver() {
    // A copy of the pointer keeps the handlers alive if a handler destroys the stream.
    const std::shared_ptr<Handlers> handlers = handlers_;
    if (handlers == nullptr) return;
    if (frame_.has_value()) {
      In frame = *std::move(frame_);
      frame_.reset();
      // Before the handler runs, so that the other end can send its next frame meanwhile.
      if (other_ != nullptr) other_->Taken();
      handlers->on_message(std::move(frame));
      // The frames that were sent before the close arrive before it.
      DeliverLater();
    } else if (closed_.has_value()) {
      handlers_.reset();
      handlers->on_closed(*std::exchange(closed_, std::nullopt));
    }
  }

  // This end's last frame was taken.
  void Taken() {
    if (!std::exchange(wake_when_writable_, false)) return;
    executor_.Post([self = this->shared_from_this()] {
      if (const auto handlers = self->handlers_) handlers->on_writable();
    });
  }

  Executor& executor_;
  const std::string peer_;
  std::shared_ptr<Other> other_;        // null once either end has closed
  std::shared_ptr<Handlers> handlers_;  // null before Start, and after the last callback
  std::optional<In> frame_;
  std::optional<absl::Status> closed_;
  bool posted_ = false;
  bool wake_when_writable_ = false;
};

template <typename Out, typename In>
class LocalMessageStream final : public MessageStream<Out, In> {
 public:
  explicit LocalMessageStream(std::shared_ptr<End<Out, In>> end) : end_(std::move(end)) {}
  ~LocalMessageStream() override { Close(absl::CancelledError("the stream was dropped")); }

  void Start(typename MessageStream<Out, In>::Handlers handlers) override {
    end_->Start(std::move(handlers));
  }
  bool writable() const override { return end_->writable(); }
  void Send(const Out& frame) override { end_->Send(frame); }
  void Close(absl::Status why) override { end_->Close(why); }
  std::string peer() const override { return end_->peer(); }

 private:
  const std::shared_ptr<End<Out, In>> end_;
};

using NodeEnd = End<v1::NodeFrame, v1::ShardFrame>;
using ShardEnd = End<v1::ShardFrame, v1::NodeFrame>;

class LocalShardConnector final : public ShardConnector {
 public:
  LocalShardConnector(std::shared_ptr<LocalDoor::Accept> accept, std::string target)
      : accept_(std::move(accept)), target_(std::move(target)) {}

  std::unique_ptr<NodeStream> Connect(Executor& executor) override {
    auto node = std::make_shared<NodeEnd>(executor, target_);
    auto shard = std::make_shared<ShardEnd>(executor, "this process");
    NodeEnd::Join(node, shard);
    auto accepted = std::make_unique<LocalMessageStream<v1::ShardFrame, v1::NodeFrame>>(shard);
    executor.Post([accept = accept_, accepted = std::move(accepted), target = target_]() mutable {
      // The door is gone if `accept` is empty.
      if (*accept) return (*accept)(std::move(accepted));
      accepted->Close(absl::UnavailableError(absl::StrCat("no shard listens at ", target)));
    });
    return std::make_unique<LocalMessageStream<v1::NodeFrame, v1::ShardFrame>>(std::move(node));
  }

  std::string target() const override { return target_; }

 private:
  const std::shared_ptr<LocalDoor::Accept> accept_;
  const std::string target_;
};

}  // namespace

std::unique_ptr<ShardConnector> LocalDoor::NewConnector(std::string target) const {
  return std::make_unique<LocalShardConnector>(accept_, std::move(target));
}

}  // namespace phalanx::directory
