// A node's end of a control stream against arbitrary bytes, at once and in pieces: both runs
// deliver the same frames and the same end, no callback follows the end or a Close, and nothing
// aborts if the shard reads the node's frames in pieces, or not at all.
//
// The first byte says if the node closes after some frames (1; the upper bits give the number)
// and if the shard reads nothing (2). The rest is what the shard sends.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/common/check.h"
#include "src/common/random.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::directory {
namespace {

struct Plan {
  std::optional<size_t> close_after;
  bool deaf = false;    // the shard does not read
  bool pieces = false;  // both directions in pieces
};

// Reads as its bytes, then end of file.
class Tape final : public net::ByteStream {
 public:
  Tape(Executor& executor, absl::string_view bytes, const Plan& plan)
      : executor_(executor), bytes_(bytes), plan_(plan) {}

  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    PHALANX_CHECK(!closed_, "who closed does not read");
    if (bytes_.empty()) return absl::OutOfRangeError("end of file");
    const size_t size = std::min(Piece(bytes_.size()), into[0].iov_len);
    memcpy(into[0].iov_base, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return size;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override {
    PHALANX_CHECK(!closed_, "who closed does not write");
    return plan_.deaf ? 0 : Piece(from[0].iov_len);
  }
  void OnReadable(Task ready) override { Call(std::move(ready)); }
  void OnWritable(Task ready) override {
    if (!plan_.deaf) Call(std::move(ready));
  }
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::ZeroDuration(); }
  std::string peer() const override { return "a tape"; }
  void Close() override {
    closed_ = true;
    *alive_ = false;
  }
  ~Tape() override { Close(); }

 private:
  size_t Piece(size_t size) {
    return plan_.pieces && size > 0 ? 1 + random_.Below(std::min<size_t>(size, 9)) : size;
  }
  // Like a stream that is ready: calls back in a later turn.
  void Call(Task ready) {
    if (ready == nullptr) return;
    executor_.Post([alive = alive_, ready = std::move(ready)]() mutable {
      if (*alive) ready();
    });
  }

  Executor& executor_;
  absl::string_view bytes_;
  const Plan plan_;
  Random random_{1};
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool closed_ = false;
};

class TapeNetwork final : public net::Network {
 public:
  explicit TapeNetwork(std::unique_ptr<Tape> tape) : tape_(std::move(tape)) {}
  void Dial(Executor& executor, const net::Address&, Instant, DialDone done) override {
    executor.Post([this, done = std::move(done)]() mutable { done(std::move(tape_)); });
  }
  absl::StatusOr<std::unique_ptr<net::Listener>> Listen(Executor&, const net::Address&,
                                                        absl::AnyInvocable<Executor&()>,
                                                        Accepted) override {
    return absl::UnimplementedError("a tape");
  }

 private:
  std::unique_ptr<Tape> tape_;
};

// The callbacks of one end of a stream.
struct Heard {
  std::vector<std::string> frames;
  std::optional<std::string> end;

  friend bool operator==(const Heard&, const Heard&) = default;
};

void Listen(NodeStream& stream, const Plan& plan, Heard& heard) {
  auto over = std::make_shared<bool>(false);
  const auto send = [&stream] {
    if (stream.writable()) stream.Send(v1::NodeFrame());
  };
  stream.Start({.on_message =
                    [&, over, plan, send](const v1::ShardFrame& frame) {
                      PHALANX_CHECK(!*over, "nothing comes after the end");
                      heard.frames.push_back(frame.SerializeAsString());
                      send();
                      if (heard.frames.size() != plan.close_after) return;
                      *over = true;
                      stream.Close(absl::OkStatus());
                    },
                .on_writable = [over] { PHALANX_CHECK(!*over, "no callback follows the end"); },
                .on_closed =
                    [&heard, over](const absl::Status& why) {
                      PHALANX_CHECK(!std::exchange(*over, true), "one end");
                      heard.end = why.ToString();
                    }});
  send();
}

Heard Play(absl::string_view bytes, const Plan& plan) {
  sim::SimScheduler scheduler{{}};
  const auto process = scheduler.NewProcess("reader");
  sim::SimExecutor& loop = process->NewExecutor("control");
  Heard heard;
  TapeNetwork network(std::make_unique<Tape>(loop, bytes, plan));
  std::unique_ptr<NodeStream> node;
  loop.Post([&] {
    node = NewByteShardConnector(network, "tape:1")->Connect(loop);
    Listen(*node, plan, heard);
  });
  scheduler.RunFor(absl::Seconds(1));
  const bool closed = plan.close_after.has_value() && heard.frames.size() >= *plan.close_after;
  PHALANX_CHECK(heard.end.has_value() != closed, "a stream ends, and says so unless it was closed");
  loop.Post([&] { node.reset(); });
  scheduler.RunFor(absl::Minutes(1));
  return heard;
}

}  // namespace
}  // namespace phalanx::directory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using phalanx::directory::Play;
  if (size == 0) return 0;
  phalanx::directory::Plan plan;
  if ((data[0] & 1) != 0) plan.close_after = 1 + (data[0] >> 2);
  plan.deaf = (data[0] & 2) != 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = Play(bytes, plan);
  plan.pieces = true;
  PHALANX_CHECK(whole == Play(bytes, plan), "pieces are heard as the whole");
  return 0;
}
