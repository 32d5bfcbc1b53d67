#include "src/sim/tracing_connector.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace phalanx::sim {
namespace {

// The object a message is about, by its short name; "" if it is about none.
template <typename Message>
std::string Subject(const Message& message, History& history) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  const auto* kind = reflection->GetOneofFieldDescriptor(message, descriptor->oneof_decl(0));
  if (kind == nullptr) return "";
  const auto& inner = reflection->GetMessage(message, kind);
  const auto* field = inner.GetDescriptor()->FindFieldByName("object_id");
  if (field == nullptr || field->is_repeated()) return "";
  const auto id = ObjectId::FromBinary(inner.GetReflection()->GetString(inner, field));
  return id.ok() ? history.NameOf(*id) : "";
}

template <typename Message>
void Note(const std::string& who, absl::string_view arrow, const Message& message,
          History& history) {
  std::string text = message.ShortDebugString();
  if (text.size() > 700) text.resize(700);
  history.journal().Note("    ", who, arrow, Subject(message, history), " ", text);
}

class TracingStream final : public directory::NodeStream {
 public:
  TracingStream(std::unique_ptr<directory::NodeStream> stream, std::string who, History& history)
      : stream_(std::move(stream)), who_(std::move(who)), history_(history) {}

  void Start(Handlers handlers) override {
    handlers.on_message = [this,
                           next = std::move(handlers.on_message)](v1::ShardFrame frame) mutable {
      for (const auto& message : frame.batch().messages()) Note(who_, " <- ", message, history_);
      next(std::move(frame));
    };
    stream_->Start(std::move(handlers));
  }
  bool writable() const override { return stream_->writable(); }
  void Send(v1::NodeFrame frame) override {
    for (const auto& message : frame.batch().messages()) Note(who_, " -> ", message, history_);
    stream_->Send(std::move(frame));
  }
  void Close(absl::Status why) override { stream_->Close(std::move(why)); }
  std::string peer() const override { return stream_->peer(); }

 private:
  const std::unique_ptr<directory::NodeStream> stream_;
  const std::string who_;
  History& history_;
};

class TracingConnector final : public directory::ShardConnector {
 public:
  TracingConnector(std::unique_ptr<directory::ShardConnector> connector, std::string who,
                   History& history)
      : connector_(std::move(connector)), who_(std::move(who)), history_(history) {}

  std::unique_ptr<directory::NodeStream> Connect(Executor& executor) override {
    return std::make_unique<TracingStream>(connector_->Connect(executor), who_, history_);
  }
  std::string target() const override { return connector_->target(); }

 private:
  const std::unique_ptr<directory::ShardConnector> connector_;
  const std::string who_;
  History& history_;
};

}  // namespace

std::unique_ptr<directory::ShardConnector> NewTracingConnector(
    std::unique_ptr<directory::ShardConnector> connector, std::string who, History& history) {
  return std::make_unique<TracingConnector>(std::move(connector), std::move(who), history);
}

}  // namespace phalanx::sim
