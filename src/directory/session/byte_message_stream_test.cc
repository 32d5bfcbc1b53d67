// Control streams over real loopback sockets, and their errors if a peer sends bytes that are no
// stream.
#include "src/directory/session/byte_message_stream.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/session/message_stream_conformance.h"
#include "src/directory/session/session_handshake.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;

class TcpHarness final : public MessageStreamHarness {
 public:
  TcpHarness() {
    auto listener = network_.Listen(
        loop_, "127.0.0.1:0", [this]() -> Executor& { return loop_; },
        [this](Executor& owner, std::unique_ptr<net::ByteStream> bytes) {
          accept_(NewByteShardStream(owner, std::move(bytes), ""));
        });
    EXPECT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
    EXPECT_THAT(loop_.Start("conformance"), IsOk());
  }
  ~TcpHarness() override {
    Run([this](const std::function<void()>& done) {
      listener_.reset();
      done();
    });
    loop_.Stop();
  }

  Executor& executor() override { return loop_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    std::promise<void> finished;
    loop_.Post([&body, &finished] { body([&finished] { finished.set_value(); }); });
    finished.get_future().wait();
  }
  void OnAccept(Accept accept) override { accept_ = std::move(accept); }
  std::unique_ptr<NodeStream> Connect() override {
    return NewByteShardConnector(network_, listener_->address())->Connect(loop_);
  }
  std::unique_ptr<NodeStream> ConnectToClosedAddress() override {
    return NewByteShardConnector(network_, "127.0.0.1:1")->Connect(loop_);
  }

  // Dials like a foreign program, sends `bytes`, and returns the status with which the shard's end
  // of the stream closed.
  absl::Status ClosedBy(std::string bytes) {
    absl::Status closed;
    std::unique_ptr<net::ByteStream> stranger;
    std::unique_ptr<ShardStream> shard;
    Run([&](const std::function<void()>& done) {
      OnAccept([&, done](std::unique_ptr<ShardStream> stream) {
        shard = std::move(stream);
        shard->Start({.on_message = [](const v1::NodeFrame&) { ADD_FAILURE() << "no frame"; },
                      .on_writable = [] {},
                      .on_closed =
                          [&closed, done](absl::Status why) {
                            closed = std::move(why);
                            done();
                          }});
      });
      network_.Dial(loop_, listener_->address(), Instant::Infinite(),
                    [&](absl::StatusOr<std::unique_ptr<net::ByteStream>> dialled) {
                      stranger = *std::move(dialled);
                      const iovec piece = {bytes.data(), bytes.size()};
                      EXPECT_EQ(*stranger->Write({&piece, 1}), bytes.size());
                    });
    });
    Run([&](const std::function<void()>& done) {
      stranger.reset();
      shard.reset();
      done();
    });
    return closed;
  }

 private:
  net::EventLoop loop_;
  net::TcpNetwork network_;
  Accept accept_;
  std::unique_ptr<net::Listener> listener_;
};

std::unique_ptr<MessageStreamHarness> MakeHarness() { return std::make_unique<TcpHarness>(); }

INSTANTIATE_TEST_SUITE_P(Tcp, MessageStreamConformance, ::testing::Values(&MakeHarness));

std::string Header(uint32_t size, uint8_t kind) {
  std::string header;
  for (int shift = 0; shift < 32; shift += 8) header.push_back(static_cast<char>(size >> shift));
  header.push_back(static_cast<char>(kind));
  return header;
}

TEST(ByteMessageStreamTest, BytesThatAreNoStreamEndIt) {
  TcpHarness harness;
  const std::string preamble(kStreamPreamble);
  const std::vector<std::string> strangers = {
      "GET / HTTP/1.1\r\n\r\n",
      "PHXT",  // a preamble with a wrong last letter
      // The peer has not proved the secret yet, so the shard does not wait for such a frame.
      preamble + Header(kMaxGreetingBytes + 1, 0),
      preamble + Header(kMaxGreetingBytes + 1, 1),
      preamble + Header(1, 2) + "x",
      preamble + Header(4, 0) + "\xff\xff\xff\xff",
      preamble + Header(4, 1) + "\xff\xff\xff\xff",
  };
  for (const std::string& bytes : strangers) {
    EXPECT_THAT(harness.ClosedBy(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << bytes;
  }
}

// Accepts all bytes at once, like a kernel with a peer that reads as fast.
class Sink final : public net::ByteStream {
 public:
  explicit Sink(bool& urgent) : urgent_(urgent) {}
  absl::StatusOr<size_t> Read(absl::Span<const iovec>) override { return 0; }
  absl::StatusOr<size_t> Write(absl::Span<const iovec> from) override { return from[0].iov_len; }
  void OnReadable(Task) override {}
  void OnWritable(Task) override { ADD_FAILURE() << "it was writable"; }
  void SetUnsentLimit(size_t) override {}
  void SetUrgent() override { urgent_ = true; }
  absl::Duration RoundTrip() const override { return absl::ZeroDuration(); }
  std::string peer() const override { return "a sink"; }
  void Close() override {}

 private:
  bool& urgent_;
};

TEST(ByteMessageStreamTest, OneLongFrameATurnIsSentToAPeerThatTakesThemAll) {
  TcpHarness harness;
  int sent = 0, turns = 0;
  bool urgent = false;
  std::unique_ptr<ShardStream> shard;
  harness.Run([&](const std::function<void()>& done) {
    shard = NewByteShardStream(harness.executor(), std::make_unique<Sink>(urgent), "");
    const auto send = [&, done] {
      ++turns;
      while (shard->writable()) {
        if (sent == 10) return done();
        v1::ShardFrame frame;
        frame.mutable_refused()->set_message(
            std::string(sent++ < kGreetingFrames ? 1 : 1 << 20, 'x'));
        shard->Send(std::move(frame));
      }
    };
    shard->Start({.on_message = [](const v1::NodeFrame&) {},
                  .on_writable = send,
                  .on_closed = [](const absl::Status&) {}});
    send();
  });
  harness.Run([&](const std::function<void()>& done) {
    shard.reset();
    done();
  });
  EXPECT_EQ(turns, 1 + 10 - kGreetingFrames);
  EXPECT_TRUE(urgent) << "what is said here is waited for by many";
}

class DeadlineNetwork final : public net::Network {
 public:
  void Dial(Executor&, const net::Address&, Instant deadline, DialDone) override {
    dial_deadline = deadline;
  }
  absl::StatusOr<std::unique_ptr<net::Listener>> Listen(Executor&, const net::Address&,
                                                        absl::AnyInvocable<Executor&()>,
                                                        Accepted) override {
    return absl::UnimplementedError("it only dials");
  }
  Instant dial_deadline;
};

// The network divides the available time equally among the addresses.
TEST(ByteMessageStreamTest, TheLastAddressOfANameIsTriedBeforeTheSessionGivesTheStreamUp) {
  TcpHarness harness;
  DeadlineNetwork network;
  absl::Duration patience;
  harness.Run([&](const std::function<void()>& done) {
    NewByteShardConnector(network, "two.addresses:7400")->Connect(harness.executor());
    patience = network.dial_deadline - harness.executor().Now();
    done();
  });
  EXPECT_LE(patience, SessionConfig().lease);
}

}  // namespace
}  // namespace phalanx::directory
