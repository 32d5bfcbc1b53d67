// A node's end of a session against a shard that sends anything: raw frames, and, so that the
// fuzzer gets past the proof, the right challenge, welcomes and batches with drawn numbers.
//
// An input is a list of (step, argument, ...).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "src/common/check.h"
#include "src/directory/session/session.h"

namespace phalanx::directory {
namespace {

SessionConfig Config() {
  SessionConfig config;
  config.secret = "a secret that no input guesses";
  config.limits = {.unacknowledged_messages = 20, .unacknowledged_bytes = 1000};
  return config;
}

v1::NodeInfo Self() {
  v1::NodeInfo self;
  self.mutable_key()->set_node(1);
  self.mutable_key()->set_incarnation(1);
  self.set_name("node");
  self.set_address("10.0.0.1:7411");
  return self;
}

class World {
 public:
  void Play(absl::string_view input) {
    while (input.size() >= 2) {
      const auto what = static_cast<uint8_t>(input[0]);
      const auto argument = static_cast<uint8_t>(input[1]);
      input.remove_prefix(2);
      input.remove_prefix(Step(what, argument, input));
      Pump();
    }
  }

 private:
  size_t Step(uint8_t what, uint8_t argument, absl::string_view rest) {
    v1::ShardFrame frame;
    switch (what & 7) {
      case 0:
        Open();
        return 0;
      case 1:
        rest = rest.substr(0, argument);
        if (frame.ParseFromArray(rest.data(), static_cast<int>(rest.size()))) SendFrame(frame);
        return rest.size();
      case 2:
        frame.mutable_challenge()->set_nonce(std::string(32, 'm'));
        frame.mutable_challenge()->set_proof(
            SessionProof(Config().secret, SessionEnd::kShard, hello_, frame.challenge().nonce()));
        SendFrame(frame);
        return 0;
      case 3:
        frame.mutable_welcome()->set_session_id(argument & 3);
        frame.mutable_welcome()->set_shard_incarnation(1);
        frame.mutable_welcome()->set_resumed((argument & 4) != 0);
        frame.mutable_welcome()->set_last_received(argument >> 3);
        frame.mutable_welcome()->set_lease_ms(2000);
        SendFrame(frame);
        return 0;
      case 4:
        frame.mutable_batch()->set_first_sequence(delivered_ + 1 + (argument & 3) - 1);
        frame.mutable_batch()->set_acknowledged(argument >> 3);
        for (int i = 0; i < (argument & 4); ++i) {
          frame.mutable_batch()->add_messages()->mutable_drain_status()->set_objects_left(1);
        }
        SendFrame(frame);
        return 0;
      case 5:
        for (int i = 0; i < argument % 8; ++i) {
          v1::NodeMessage message;
          message.mutable_query_request()->set_object_id(std::string(argument, 'q'));
          session_.Send(std::move(message));
        }
        return 0;
      case 6:
        now_ = now_ + absl::Milliseconds(20) * argument;
        return 0;
      default:
        session_.StreamClosed(now_);
        open_ = false;
        return 0;
    }
  }

  void Open() {
    session_.StreamOpened(std::string(32, 'n'), now_);
    open_ = true;
    proven_ = false;
  }

  void SendFrame(const v1::ShardFrame& frame) {
    if (!open_) return;
    const bool taken = session_.OnFrame(frame, now_).ok();
    const auto event = session_.TakeEvent();
    if (event == NodeSession::Event::kRegister) delivered_ = 0;
    PHALANX_CHECK(!event.has_value() || taken, "what is refused is no event");
    PHALANX_CHECK(!session_.established() || proven_, "without the secret there is no session");
    const auto messages = static_cast<size_t>(session_.TakeMessages().size());
    PHALANX_CHECK(messages == 0 || taken, "what is refused is not delivered");
    delivered_ += messages;
    // As the client does.
    if (!taken) session_.StreamClosed(now_), open_ = false;
  }

  void Pump() {
    while (open_) {
      const v1::NodeFrame* frame = session_.NextFrame(now_);
      if (frame == nullptr) break;
      if (frame->has_hello()) hello_ = frame->hello();
      proven_ = proven_ || frame->has_proof();
      PHALANX_CHECK(!frame->has_batch() || session_.established(), "messages come last");
    }
    (void)session_.NextDeadline();
  }

  NodeSession session_{Config(), Self()};
  Instant now_ = Instant::FromNanos(1'000'000'000);
  v1::Hello hello_;
  bool open_ = false;
  bool proven_ = false;
  uint64_t delivered_ = 0;
};

}  // namespace
}  // namespace phalanx::directory

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::directory::World world;
  world.Play(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
