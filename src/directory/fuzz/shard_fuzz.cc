// A shard against nodes that send anything: raw frames, messages in well-formed batches, streams
// that open, resume, close and do not read, and time that passes, with or without heartbeats.
// Nothing aborts, no invariant of the core breaks, and the shard's messages are in order.
//
// An input is a list of (step and node, argument, ...); each step describes the bytes that follow.
// One byte can name an object (short_ids.h). If the highest bit of the first byte is set, there are
// two shards.
#include "src/directory/fuzz/shard_fuzz.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/directory/fuzz/short_ids.h"
#include "src/directory/session/shard.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::directory {
namespace {

constexpr size_t kNodes = 3;
constexpr int kMaxSteps = 200;
// The folds that a node remembers.
constexpr size_t kFolds = 8;
// Within a lease.
constexpr absl::Duration kBeat = absl::Seconds(1);

SessionConfig Config(uint32_t num_shards) {
  SessionConfig config;
  config.num_shards = num_shards;
  config.secret = "a secret that no input guesses";
  config.nonce_bytes = [](void* out, size_t size) { memset(out, 'n', size); };
  return config;
}

// The other end of a stream that the shard has.
struct Pipe {
  ShardStream::Handlers handlers;
  std::vector<v1::ShardFrame> said;
  bool closed = false;
  bool writable = true;
  // Takes one frame, and the next only after another call.
  bool slow = false;
};

class PipeStream : public ShardStream {
 public:
  // `listener` outlives it and is called with every frame; `node` is the destination's number.
  PipeStream(std::shared_ptr<Pipe> pipe, uint64_t node,
             const phalanx::testing::MessageListener& listener)
      : pipe_(std::move(pipe)), node_(absl::StrCat(node)), listener_(listener) {}
  ~PipeStream() override { pipe_->closed = true; }

  void Start(Handlers handlers) override { pipe_->handlers = std::move(handlers); }
  bool writable() const override { return pipe_->writable; }
  void Send(const v1::ShardFrame& frame) override {
    PHALANX_CHECK(pipe_->writable && !pipe_->closed, "who sends has asked before");
    PHALANX_CHECK(frame.ByteSizeLong() <= kMaxFrameBytes, "a frame fits");
    pipe_->writable = !pipe_->slow;
    if (listener_) listener_(node_, frame);
    pipe_->said.push_back(frame);
  }
  void Close(absl::Status) override { pipe_->closed = true; }
  std::string peer() const override { return "a pipe"; }

 private:
  const std::shared_ptr<Pipe> pipe_;
  const std::string node_;
  const phalanx::testing::MessageListener& listener_;
};

// A node's state of its session.
struct Node {
  std::shared_ptr<Pipe> pipe;
  uint64_t incarnation = 1;
  uint64_t session = 0;
  uint64_t shard_incarnation = 0;
  uint64_t sent = 0;
  uint64_t received = 0;
  // The orders to fold, the latest first.
  std::deque<v1::Fold> folds;
};

class World {
 public:
  World(uint32_t num_shards, const phalanx::testing::MessageListener& listener)
      : config_(Config(num_shards)),
        listener_(listener),
        process_(scheduler_.NewProcess("shard")),
        loop_(process_->NewExecutor("control")) {
    Run([this] {
      shard_ = std::make_unique<Shard>(loop_, config_, DirectoryOptions{}, Random(1));
    });
  }
  ~World() {
    Run([this] { shard_.reset(); });
  }

  void Play(absl::string_view input) {
    for (int step = 0; step < kMaxSteps && input.size() >= 2; ++step) {
      const auto what = static_cast<uint8_t>(input[0]);
      const auto argument = static_cast<uint8_t>(input[1]);
      input.remove_prefix(2);
      input.remove_prefix(Step(what & 7, nodes_[(what >> 3) % kNodes], argument, input));
      const absl::Status status = shard_->core().CheckInvariants();
      PHALANX_CHECK(status.ok(), status.message());
    }
    Ask();
  }

 private:
  // The result is the number of bytes that the step used.
  size_t Step(int what, Node& node, uint8_t argument, absl::string_view rest) {
    const absl::string_view bytes = rest.substr(0, argument);
    switch (what) {
      case 0:
        Open(node, (argument & 1) != 0, (argument & 2) != 0, (argument & 4) != 0);
        return 0;
      case 1:
      case 2:
        Say(node, bytes, what == 1);
        return bytes.size();
      case 3:
        SayFrame(node, bytes);
        return bytes.size();
      case 4:
        Accept(node);
        SayFrame(node, bytes);
        return bytes.size();
      case 5:
        Close(node);
        return 0;
      case 6:
        Pass(absl::Milliseconds(20) * argument, /*silent=*/(argument & 1) == 0);
        return 0;
      default:
        if (argument > 1) return AnswerFold(node, argument), 0;
        TakeMore(node, (argument & 1) != 0);
        return 0;
    }
  }

  void Run(std::function<void()> f) {
    loop_.Post([f = std::move(f)] { f(); });
    scheduler_.RunFor(absl::ZeroDuration());
  }

  void Accept(Node& node) {
    Close(node);
    node.pipe = std::make_shared<Pipe>();
    Run([this, &node] {
      shard_->Accept(std::make_unique<PipeStream>(node.pipe, KeyOf(node).node(), listener_));
    });
  }

  void Open(Node& node, bool next_life, bool resume, bool slow) {
    Accept(node);
    if (next_life) ++node.incarnation;
    v1::NodeFrame frame;
    v1::Hello& hello = *frame.mutable_hello();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_cluster_id("default");
    hello.set_num_shards(config_.num_shards);
    *hello.mutable_node()->mutable_key() = KeyOf(node);
    hello.mutable_node()->set_name("node");
    hello.mutable_node()->set_address("10.0.0.1:7411");
    hello.set_nonce(std::string(32, 'm'));
    if (resume) {
      hello.set_session_id(node.session);
      hello.set_shard_incarnation(node.shard_incarnation);
      hello.set_last_received(node.received);
    }
    const v1::Hello said = hello;
    SendFrame(node, frame);
    if (node.pipe->said.empty() || !node.pipe->said.back().has_challenge()) return;
    node.pipe->slow = slow;
    frame.mutable_proof()->set_proof(SessionProof(config_.secret, SessionEnd::kNode, said,
                                                  node.pipe->said.back().challenge().nonce()));
    SendFrame(node, frame);
  }

  // Sends a message in the node's session. `acknowledge`: with the number of received messages.
  void Say(Node& node, absl::string_view bytes, bool acknowledge) {
    v1::NodeMessage message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    ExpandIds(message);
    Say(node, std::move(message), acknowledge);
  }

  void Say(Node& node, v1::NodeMessage message, bool acknowledge) {
    v1::NodeFrame frame;
    v1::NodeBatch& batch = *frame.mutable_batch();
    *batch.add_messages() = std::move(message);
    batch.set_first_sequence(++node.sent);
    if (acknowledge) batch.set_acknowledged(node.received);
    SendFrame(node, std::move(frame));
  }

  // Answers one of the node's folds: an input cannot guess a fold's version.
  void AnswerFold(Node& node, uint8_t argument) {
    const size_t which = (argument >> 4) & 7;
    if (which >= node.folds.size()) return;
    const v1::Fold& fold = node.folds[which];
    const int kind = (argument >> 1) & 7;
    v1::NodeMessage message;
    if (kind == 6) {
      FillCreate(node, fold, message.mutable_announce_create());
    } else if (kind == 7 && (argument & 128) != 0) {
      FillRegister(fold, message.mutable_register_fold());
    } else if (kind == 7) {
      message.mutable_announce_seal()->set_object_id(fold.object_id());
      *message.mutable_announce_seal()->mutable_generation() = ResultOf(node);
    } else {
      v1::FoldReport& report = *message.mutable_fold_report();
      report.set_object_id(fold.object_id());
      *report.mutable_version() = fold.version();
      report.set_kind(static_cast<v1::FoldReport::Kind>(kind));
      report.set_watermark((argument & 128) != 0 ? fold.size_bytes() : 1);
      report.set_input((argument & 128) != 0 ? 1 : 0);
    }
    Say(node, std::move(message), /*acknowledge=*/(argument & 1) != 0);
  }

  v1::NodeKey KeyOf(const Node& node) const {
    v1::NodeKey key;
    key.set_node(1 + static_cast<uint64_t>(&node - &nodes_[0]));
    key.set_incarnation(node.incarnation);
    return key;
  }

  v1::Generation ResultOf(const Node& node) const {
    v1::Generation generation;
    *generation.mutable_creator() = KeyOf(node);
    generation.set_sequence(99);
    return generation;
  }

  void FillCreate(const Node& node, const v1::Fold& fold, v1::AnnounceCreate* create) const {
    create->set_object_id(fold.object_id());
    *create->mutable_generation() = ResultOf(node);
    create->mutable_info()->set_size_bytes(fold.size_bytes());
    create->mutable_info()->set_slices(1);
    create->mutable_info()->set_metadata(fold.metadata());
    create->mutable_info()->set_reduced_from(fold.reduced_from());
    create->mutable_info()->set_asked_for(fold.asked_for());
    *create->mutable_version() = fold.version();
  }

  static void FillRegister(const v1::Fold& fold, v1::RegisterFold* registered) {
    registered->set_object_id(fold.object_id());
    *registered->mutable_version() = fold.version();
    registered->set_slot(fold.slot());
    registered->set_slots(fold.slots());
    registered->set_degree(fold.degree());
    for (const v1::Fold::Input& input : fold.inputs()) {
      if (!input.source_id().empty()) registered->add_source_ids(input.source_id());
    }
    registered->set_root(fold.root());
  }

  // Lets time pass; nodes that are not silent send heartbeats.
  void Pass(absl::Duration time, bool silent) {
    for (; time > absl::ZeroDuration(); time -= kBeat) {
      scheduler_.RunFor(std::min(time, kBeat));
      for (Node& node : nodes_) silent ? Read(node) : Beat(node);
    }
  }

  void Beat(Node& node) {
    v1::NodeFrame frame;
    frame.mutable_batch()->set_acknowledged(node.received);
    SendFrame(node, std::move(frame));
  }

  void SayFrame(Node& node, absl::string_view bytes) {
    v1::NodeFrame frame;
    if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    ExpandIds(frame);
    SendFrame(node, std::move(frame));
  }

  void SendFrame(Node& node, v1::NodeFrame frame) {
    Run([pipe = node.pipe, &frame] {
      if (pipe != nullptr && !pipe->closed) pipe->handlers.on_message(std::move(frame));
    });
    Read(node);
  }

  void Close(Node& node) {
    Run([pipe = node.pipe] {
      if (pipe != nullptr && !std::exchange(pipe->closed, true)) {
        pipe->handlers.on_closed(absl::UnavailableError("closed"));
      }
    });
  }

  void TakeMore(Node& node, bool slow) {
    Run([pipe = node.pipe, slow] {
      if (pipe == nullptr || pipe->closed) return;
      pipe->slow = slow;
      if (!std::exchange(pipe->writable, true)) pipe->handlers.on_writable();
    });
    Read(node);
  }

  // Checks the order of the shard's messages: no number is left out, and every message has a kind.
  void Read(Node& node) {
    if (node.pipe == nullptr) return;
    for (const v1::ShardFrame& frame : std::exchange(node.pipe->said, {})) {
      if (frame.has_challenge()) node.pipe->said.push_back(frame);
      if (frame.has_welcome()) {
        node.session = frame.welcome().session_id();
        node.shard_incarnation = frame.welcome().shard_incarnation();
        node.sent = frame.welcome().last_received();
        if (!frame.welcome().resumed()) node.received = 0;
      }
      if (!frame.has_batch() || frame.batch().messages().empty()) continue;
      const v1::ShardBatch& batch = frame.batch();
      PHALANX_CHECK(batch.first_sequence() == node.received + 1, "numbers have no gaps");
      node.received += static_cast<uint64_t>(batch.messages().size());
      for (const v1::ShardMessage& message : batch.messages()) {
        PHALANX_CHECK(message.kind_case() != v1::ShardMessage::KIND_NOT_SET, "a message says what");
        if (!message.has_fold()) continue;
        node.folds.push_front(message.fold());
        if (node.folds.size() > kFolds) node.folds.pop_back();
      }
    }
  }

  // Queries the shard as the tools do.
  void Ask() {
    Run([this] {
      v1::GetStatusResponse status;
      shard_->FillStatus(&status);
      v1::ListObjectsResponse list;
      PHALANX_CHECK(shard_->core().List({}, loop_.Now(), &list).ok(), "a list needs nothing");
      if (listener_) listener_("list", list);
      for (const char id : {'a', 'b'}) {
        v1::DescribeObjectResponse description;
        (void)shard_->core().Describe(*ObjectId::FromBinary(LongId(id)), loop_.Now(), &description);
        if (listener_) listener_("description", description);
      }
    });
  }

  const SessionConfig config_;
  const phalanx::testing::MessageListener& listener_;
  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  std::unique_ptr<Shard> shard_;
  std::array<Node, kNodes> nodes_;
};

}  // namespace

void PlayShardInput(absl::string_view input, const phalanx::testing::MessageListener& listener) {
  const bool two_shards = !input.empty() && (static_cast<uint8_t>(input[0]) & 0x80) != 0;
  World world(two_shards ? 2 : 1, listener);
  world.Play(input);
}

}  // namespace phalanx::directory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::directory::PlayShardInput(absl::string_view(reinterpret_cast<const char*>(data), size),
                                     {});
  return 0;
}
