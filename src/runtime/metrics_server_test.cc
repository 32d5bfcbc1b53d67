#include "src/runtime/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/address.h"
#include "src/net/event_loop.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A server on a loop of its own, and blocking sockets that ask it.
class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start(
        loop_, network_, "127.0.0.1:0", [this] { return absl::StrCat("asked ", ++asked_, "\n"); });
    EXPECT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
    loop_.Start("metrics");
  }
  ~MetricsServerTest() override {
    loop_.Stop();
    server_.reset();
  }

  int Connect() {
    const uint16_t port = net::ParseHostPort(server_->address())->port;
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit = {30, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
    return fd;
  }
  // Everything until the end.
  std::string ReadAll(int fd) {
    std::string text;
    char bytes[4096];
    ssize_t size = 0;
    while ((size = read(fd, bytes, sizeof(bytes))) > 0) text.append(bytes, size);
    close(fd);
    return text;
  }
  std::string Ask(const std::string& request) {
    const int fd = Connect();
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    return ReadAll(fd);
  }

  net::EventLoop loop_;
  net::TcpNetwork network_;
  int asked_ = 0;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, EachRequestIsAnsweredWithFreshNumbers) {
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_THAT(Ask(request), ::testing::AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                                             HasSubstr("Content-Length: 8\r\n"),
                                             ::testing::EndsWith("\r\n\r\nasked 1\n")));
  EXPECT_THAT(Ask(request), HasSubstr("asked 2"));
}

TEST_F(MetricsServerTest, OtherRequestsGetTheirCode) {
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 405"));
}

TEST_F(MetricsServerTest, ARequestWithoutEndIsCutOff) {
  const int fd = Connect();
  const std::string flood(MetricsServer::kMaxRequestBytes + 4096, 'x');
  send(fd, flood.data(), flood.size(), MSG_NOSIGNAL);
  EXPECT_EQ(ReadAll(fd), "");
}

TEST_F(MetricsServerTest, MoreConnectionsThanAllowedAreClosed) {
  std::vector<int> silent;
  for (size_t i = 0; i < MetricsServer::kMaxConnections; ++i) silent.push_back(Connect());
  EXPECT_EQ(ReadAll(Connect()), "");
  for (const int fd : silent) close(fd);
}

}  // namespace
}  // namespace phalanx::runtime
