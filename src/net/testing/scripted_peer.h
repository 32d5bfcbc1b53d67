// ScriptedPeer: the other end of a data connection, played by a test. It runs a correct handshake
// and then sends the frames that the test chooses. Testonly.
#ifndef PHALANX_NET_TESTING_SCRIPTED_PEER_H_
#define PHALANX_NET_TESTING_SCRIPTED_PEER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/net/frame/frame.h"
#include "src/net/frame/frame_reader.h"
#include "src/net/stream/stream_handshake.h"
#include "src/net/testing/plane_objects.h"
#include "src/net/testing/sim_plane.h"

namespace phalanx::net::testing {

inline std::string FrameOf(const FrameHeader& header, absl::string_view payload) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(header);
  return absl::StrCat(absl::string_view(bytes.data(), bytes.size()), payload);
}
inline std::string ControlFrameOf(FrameType type, absl::string_view payload = "",
                                  uint32_t pull = 1) {
  return FrameOf(ControlHeader(type, pull, payload), payload);
}
// A segment with the bytes of the closed form, of an object with one slice.
inline FrameHeader SegmentHeader(uint64_t offset, size_t size, int slice = 0, uint32_t pull = 1) {
  FrameHeader header;
  header.type = FrameType::kSegment;
  header.pull = pull;
  header.slice = static_cast<uint8_t>(slice);
  header.offset = offset;
  header.payload_bytes = static_cast<uint32_t>(size);
  return header;
}
inline std::string SegmentOf(const FrameHeader& header) {
  std::string payload;
  for (size_t i = 0; i < header.payload_bytes; ++i) payload.push_back(ByteAt(header.offset + i));
  return FrameOf(header, payload);
}
inline std::string SegmentOf(uint64_t offset, size_t size) {
  return SegmentOf(SegmentHeader(offset, size));
}

class ScriptedPeer final : public FrameSink {
 public:
  ScriptedPeer(SimPlanes& world, const std::string& name)
      : world_(world),
        process_(world.scheduler().NewProcess(name)),
        loop_(process_->NewExecutor("loop")),
        network_(world.fabric().Join(*process_, name)),
        address_(name + ":7400") {}

  // Waits for a node to dial, and plays the sender.
  void Listen() {
    listener_ = network_
                    ->Listen(
                        loop_, "0.0.0.0:7400", [this]() -> Executor& { return loop_; },
                        [this](Executor&, std::unique_ptr<ByteStream> stream) {
                          StartHandshake(std::move(stream), Handshake::Role::kAcceptor);
                        })
                    .value();
  }
  // Plays the receiver.
  void Dial(const Address& to) {
    network_->Dial(loop_, to, Instant::Infinite(),
                   [this](absl::StatusOr<std::unique_ptr<ByteStream>> stream) {
                     StartHandshake(std::move(stream).value(), Handshake::Role::kDialer);
                   });
    world_.RunFor(absl::Milliseconds(2));
  }

  void Send(const std::string& bytes) {
    const iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    (void)stream_->Write(absl::MakeConstSpan(&part, 1));
    world_.RunFor(absl::Milliseconds(2));
  }
  // True if the other side has closed the connection.
  bool closed() {
    Listen(absl::Milliseconds(2));
    return closed_;
  }
  // The names of the control frames and the ranges of the segments received so far.
  const std::vector<std::string>& received() {
    Listen(absl::Milliseconds(2));
    return received_;
  }
  // The payload of the last received control frame.
  const std::string& last_payload() {
    Listen(absl::Milliseconds(2));
    return last_payload_;
  }
  bool connected() const { return stream_ != nullptr; }
  void Disconnect() { stream_.reset(); }

  const NodeKey& self() const { return self_; }
  const Address& address() const { return address_; }

 private:
  void StartHandshake(std::unique_ptr<ByteStream> stream, Handshake::Role role) {
    HandshakeConfig config;
    config.self = self_;
    handshake_ = std::make_unique<StreamHandshake>(
        loop_, std::move(stream), config, role, Instant::Infinite(),
        [this](absl::StatusOr<StreamHandshake::Authenticated> peer) {
          stream_ = std::move(peer->stream);
          reader_ = std::make_unique<FrameReader>(*this, absl::MakeSpan(scratch_));
          (void)reader_->Feed(peer->rest);
          handshake_.reset();
        });
  }
  void Listen(absl::Duration time) {
    world_.RunFor(time);
    while (stream_ != nullptr && !closed_) {
      const absl::StatusOr<size_t> size = stream_->Read(reader_->ReadBuffers());
      closed_ = !size.ok();
      if (closed_ || *size == 0) break;
      (void)reader_->Commit(*size);
    }
  }

  absl::StatusOr<absl::Span<char>> PlaceSegment(const FrameHeader& header) override {
    received_.push_back(
        absl::StrCat("SEGMENT ", header.slice, ":", header.offset, "+", header.payload_bytes));
    return absl::Span<char>();
  }
  absl::Status SegmentArrived(const FrameHeader&, size_t) override { return absl::OkStatus(); }
  absl::Status ControlFrame(const FrameHeader& header, absl::string_view payload) override {
    received_.emplace_back(FrameTypeName(header.type));
    last_payload_ = std::string(payload);
    return absl::OkStatus();
  }

  SimPlanes& world_;
  const std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  const std::unique_ptr<sim::SimNetwork> network_;
  const NodeKey self_{4711, 1};
  const Address address_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<StreamHandshake> handshake_;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> scratch_ = std::vector<char>(1024);
  std::unique_ptr<FrameReader> reader_;
  std::vector<std::string> received_;
  std::string last_payload_;
  bool closed_ = false;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_SCRIPTED_PEER_H_
