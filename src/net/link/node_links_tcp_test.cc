// Links over real sockets and threads: a connection moves from the I/O loop that accepted it to the
// control loop, and both sides send at once.
#include <atomic>
#include <future>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/link/node_links.h"
#include "src/net/testing/tcp_links.h"

namespace phalanx::net {
namespace {

using testing::TcpLinkNode;

// Expects messages 0, 1, ... with the payload of SizeOf(i) bytes of value i.
class Counting final : public LinkReceiver {
 public:
  static size_t SizeOf(uint64_t i) { return i % 10 == 9 ? 300'000 + i : i % 200; }

  explicit Counting(uint64_t expected) : expected_(expected) {}

  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey&, absl::string_view,
                                            size_t payload_bytes) override {
    if (payload_bytes < 1000) return absl::Span<char>();
    place_.resize(payload_bytes);
    return absl::MakeSpan(place_.data(), place_.size());
  }
  void OnMessage(const NodeKey&, absl::string_view header, absl::Span<char> payload) override {
    uint64_t number = 0;
    const bool right =
        absl::SimpleAtoi(header, &number) && number == arrived_ &&
        payload.size() == SizeOf(number) &&
        absl::string_view(payload.data(), payload.size())
                .find_first_not_of(static_cast<char>(number)) == absl::string_view::npos;
    if (!right) ++wrong;
    if (++arrived_ == expected_) done.set_value();
  }
  void OnLost(const NodeKey&, const absl::Status&) override { ++lost; }

  std::promise<void> done;
  std::atomic<int> wrong = 0;
  std::atomic<int> lost = 0;

 private:
  const uint64_t expected_;
  uint64_t arrived_ = 0;
  std::string place_;
};

void SendAll(TcpLinkNode& from, const LinkPeer& to, uint64_t messages) {
  from.OnControl([&] {
    for (uint64_t i = 0; i < messages; ++i) {
      auto payload = std::make_shared<std::string>(Counting::SizeOf(i), static_cast<char>(i));
      PHALANX_EXPECT_OK(
          from.links().Send(to, LinkService::kMessages, absl::StrCat(i), *payload, payload));
    }
  });
}

TEST(NodeLinksTcp, BothSidesSendAtOnce) {
  constexpr uint64_t kMessages = 500;
  Counting at_a(kMessages), at_b(kMessages);
  TcpLinkNode a(1, at_a), b(2, at_b);
  SendAll(a, b.peer(), kMessages);
  SendAll(b, a.peer(), kMessages);
  at_a.done.get_future().wait();
  at_b.done.get_future().wait();
  EXPECT_EQ(at_a.wrong + at_b.wrong + at_a.lost + at_b.lost, 0);
  LinkStats stats;
  a.OnControl([&] { stats = a.links().stats(); });
  EXPECT_EQ(stats.connections, 1);
  EXPECT_EQ(stats.messages_received, kMessages);
}

// Sends each message back, and says when a number of rounds is over.
class Echo final : public LinkReceiver {
 public:
  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey&, absl::string_view, size_t) override {
    return absl::Span<char>();
  }
  void OnMessage(const NodeKey&, absl::string_view header, absl::Span<char> payload) override {
    if (rounds-- <= 0) return done.set_value();
    PHALANX_EXPECT_OK(self->links().Send(peer, LinkService::kMessages, std::string(header),
                                         absl::string_view(payload.data(), payload.size()),
                                         nullptr));
  }
  void OnLost(const NodeKey&, const absl::Status&) override {}

  TcpLinkNode* self = nullptr;
  LinkPeer peer;
  int rounds = 0;
  std::promise<void> done;
};

TEST(NodeLinksTcp, AMessageIsAnsweredWithinItsCallback) {
  Echo at_a, at_b;
  TcpLinkNode a(1, at_a), b(2, at_b);
  at_a.self = &a;
  at_a.peer = b.peer();
  at_a.rounds = 1000;
  at_b.self = &b;
  at_b.peer = a.peer();
  at_b.rounds = 1'000'000;
  a.OnControl([&] {
    PHALANX_EXPECT_OK(a.links().Send(b.peer(), LinkService::kMessages, "h", "payload", nullptr));
  });
  at_a.done.get_future().wait();
}

}  // namespace
}  // namespace phalanx::net
