#include "src/sim/cluster/tracing_connector.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "src/directory/core/validate.h"

namespace phalanx::sim {
namespace {

// Appends the fields of a message that help a reader: the object's name, generations as attempts,
// and the other short fields.
void AppendFields(const google::protobuf::Message& message, History& history, std::string* out) {
  const auto* reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    const std::string& name = field->name();
    if (name == "object_id") {
      const auto id = ObjectId::FromBinary(reflection->GetString(message, field));
      absl::StrAppend(out, " ", id.ok() ? history.NameOf(*id) : "?");
    } else if (field->is_repeated()) {
      absl::StrAppend(out, " ", name, " x ", reflection->FieldSize(message, field));
    } else if (field->type() == google::protobuf::FieldDescriptor::TYPE_BYTES) {
      absl::StrAppend(out, " ", name, " of ", reflection->GetString(message, field).size());
    } else if (name == "generation" || name == "adopted" || name == "version") {
      Generation generation;
      const auto* inner = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE
                              ? &reflection->GetMessage(message, field)
                              : nullptr;
      if (inner != nullptr) {
        generation = directory::FromProto(static_cast<const v1::Generation&>(*inner));
      }
      absl::StrAppend(out, " ", name);
      if (generation.valid()) {
        absl::StrAppend(out, " ", history.AttemptOf(generation), " (", generation.ToString(), ")");
      }
    } else if (name == "sender") {
      const auto& key = static_cast<const v1::NodeKey&>(reflection->GetMessage(message, field));
      absl::StrAppend(out, " from ", directory::FromProto(key).ToString());
    } else if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      std::string text;
      google::protobuf::TextFormat::Printer printer;
      printer.SetSingleLineMode(true);
      if (field->is_repeated()) continue;
      printer.PrintFieldValueToString(message, field, -1, &text);
      absl::StrAppend(out, " ", name, " ", text);
    }
  }
}

template <typename Message>
void Note(const std::string& prefix, absl::string_view arrow, const Message& message,
          History& history) {
  const auto* reflection = message.GetReflection();
  const auto* kind =
      reflection->GetOneofFieldDescriptor(message, message.GetDescriptor()->oneof_decl(0));
  if (kind == nullptr || kind->name() == "progress") return;
  std::string text = kind->name();
  AppendFields(reflection->GetMessage(message, kind), history, &text);
  history.journal().Note("    ", prefix, arrow, text);
}

class TracingStream final : public directory::NodeStream {
 public:
  TracingStream(std::unique_ptr<directory::NodeStream> stream, const Trace& trace, History& history)
      : stream_(std::move(stream)), trace_(trace), history_(history) {}

  void Start(Handlers handlers) override {
    handlers.on_message = [this,
                           next = std::move(handlers.on_message)](v1::ShardFrame frame) mutable {
      uint64_t sequence = frame.batch().first_sequence();
      for (const auto& message : frame.batch().messages()) {
        if (trace_.to_journal) Note(trace_.prefix, " <- ", message, history_);
        if (trace_.on_received) trace_.on_received(sequence, message);
        ++sequence;
      }
      next(std::move(frame));
    };
    stream_->Start(std::move(handlers));
  }
  bool writable() const override { return stream_->writable(); }
  void Send(const v1::NodeFrame& frame) override {
    for (const auto& message : frame.batch().messages()) {
      if (trace_.to_journal) Note(trace_.prefix, " -> ", message, history_);
      if (trace_.on_sent) trace_.on_sent(message);
    }
    stream_->Send(frame);
  }
  void Close(absl::Status why) override { stream_->Close(std::move(why)); }
  std::string peer() const override { return stream_->peer(); }

 private:
  const std::unique_ptr<directory::NodeStream> stream_;
  const Trace& trace_;
  History& history_;
};

class TracingConnector final : public directory::ShardConnector {
 public:
  TracingConnector(std::unique_ptr<directory::ShardConnector> connector, Trace trace,
                   History& history)
      : connector_(std::move(connector)), trace_(std::move(trace)), history_(history) {}

  // The connector must outlive its streams.
  std::unique_ptr<directory::NodeStream> Connect(Executor& executor) override {
    return std::make_unique<TracingStream>(connector_->Connect(executor), trace_, history_);
  }
  std::string target() const override { return connector_->target(); }

 private:
  const std::unique_ptr<directory::ShardConnector> connector_;
  const Trace trace_;
  History& history_;
};

}  // namespace

std::unique_ptr<directory::ShardConnector> NewTracingConnector(
    std::unique_ptr<directory::ShardConnector> connector, Trace trace, History& history) {
  return std::make_unique<TracingConnector>(std::move(connector), std::move(trace), history);
}

}  // namespace phalanx::sim
