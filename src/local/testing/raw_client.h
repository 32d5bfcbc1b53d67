// RawClient: a blocking socket that speaks frames, for tests of what a client can send. It can
// break every rule. It drops the descriptors that it gets. Testonly; one thread.
#ifndef PHALANX_LOCAL_TESTING_RAW_CLIENT_H_
#define PHALANX_LOCAL_TESTING_RAW_CLIENT_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "src/local/local_protocol.h"
#include "src/local/testing/local_node.h"

namespace phalanx::object_store::testing {

class RawClient {
 public:
  explicit RawClient(const LocalNode& node, bool greet = true) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    node.socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (!greet) return;
    Send(local::ClientHello{});
    greeting_ = Receive();
  }
  ~RawClient() { close(fd_); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  // Returns false if the node closes before it has read everything.
  bool SendBytes(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool Send(const local::Request& request) {
    std::string frame;
    local::Encode(request, frame);
    return SendBytes(frame);
  }
  // Returns the next answer, or nothing at the end of the stream. The answer is valid until the
  // next call.
  std::optional<local::Answer> Receive() {
    while (true) {
      const auto payload = in_.Next();
      EXPECT_TRUE(payload.ok()) << payload.status();
      if (!payload.ok()) return std::nullopt;
      if (payload->has_value()) {
        last_ = std::string(**payload);
        auto answer = local::DecodeAnswer(last_);
        EXPECT_TRUE(answer.ok()) << answer.status();
        return *answer;
      }
      const absl::Span<char> space = in_.Space();
      const ssize_t got = recv(fd_, space.data(), space.size(), 0);
      if (got <= 0) return std::nullopt;
      in_.Filled(static_cast<size_t>(got));
    }
  }
  // Reads to the end of the stream. Returns the reason that the node sent.
  absl::Status Reason() {
    absl::Status reason = absl::UnknownError("the node sent no reason");
    while (const std::optional<local::Answer> answer = Receive()) {
      if (const auto* goodbye = std::get_if<local::Goodbye>(&*answer)) {
        reason = absl::Status(goodbye->code, goodbye->message);
      } else if (const auto* hello = std::get_if<local::NodeHello>(&*answer)) {
        reason = absl::Status(hello->code, hello->message);
      }
    }
    return reason;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
  local::FrameBuffer in_;
  std::string last_;
  std::optional<local::Answer> greeting_;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_LOCAL_TESTING_RAW_CLIENT_H_
