#include "src/node/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/common/time/executor.h"
#include "src/net/loop/event_loop.h"
#include "src/net/stream/address.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A server on its own loop, and blocking sockets that send requests.
class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    absl::StatusOr<std::unique_ptr<MetricsServer>> server = MetricsServer::Start(
        loop_, network_, "127.0.0.1:0", [this] { return absl::StrCat("asked ", ++asked_, "\n"); });
    EXPECT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
    PHALANX_EXPECT_OK(loop_.Start("metrics"));
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
  // Reads everything until the end of the stream.
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

TEST_F(MetricsServerTest, EachRequestGetsFreshNumbers) {
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_THAT(Ask(request), ::testing::AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                                             HasSubstr("Content-Length: 8\r\n"),
                                             ::testing::EndsWith("\r\n\r\nasked 1\n")));
  EXPECT_THAT(Ask(request), HasSubstr("asked 2"));
}

TEST_F(MetricsServerTest, OtherRequestsGetAnErrorCode) {
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 405"));
}

TEST_F(MetricsServerTest, ClosesARequestWithoutEnd) {
  const int fd = Connect();
  const std::string flood(MetricsServer::kMaxRequestBytes + 4096, 'x');
  send(fd, flood.data(), flood.size(), MSG_NOSIGNAL);
  EXPECT_EQ(ReadAll(fd), "");
}

TEST_F(MetricsServerTest, ClosesConnectionsBeyondTheLimit) {
  std::vector<int> silent;
  for (size_t i = 0; i < MetricsServer::kMaxConnections; ++i) silent.push_back(Connect());
  EXPECT_EQ(ReadAll(Connect()), "");
  for (const int fd : silent) close(fd);
}

// Runs posted tasks and the one timer when the test says so.
class ManualLoop final : public Executor {
 public:
  void Post(Task task) override { posted.push_back(std::move(task)); }
  Instant Now() const override { return Instant(); }
  TimerId RunAt(Instant, Task task) override {
    timer = std::move(task);
    return 1;
  }
  void Cancel(TimerId) override {}
  bool InLoop() const override { return true; }

  std::vector<Task> posted;
  Task timer;
};

// The callbacks with which a test makes a stream ready.
struct Readiness {
  Task readable;
  Task writable;
};

// A peer that has sent `request` and reads nothing of the answer.
class StuckStream final : public net::ByteStream {
 public:
  StuckStream(Readiness& readiness, std::string request)
      : readiness_(readiness), request_(std::move(request)) {}
  absl::StatusOr<size_t> Read(absl::Span<const iovec> into) override {
    const size_t size = request_.copy(static_cast<char*>(into[0].iov_base), into[0].iov_len);
    request_.clear();
    return size;
  }
  absl::StatusOr<size_t> Write(absl::Span<const iovec>) override { return 0; }
  void OnReadable(Task ready) override { readiness_.readable = std::move(ready); }
  void OnWritable(Task ready) override { readiness_.writable = std::move(ready); }
  void SetUnsentLimit(size_t) override {}
  absl::Duration RoundTrip() const override { return absl::ZeroDuration(); }
  std::string peer() const override { return "peer"; }
  void Close() override { readiness_ = Readiness(); }

 private:
  Readiness& readiness_;
  std::string request_;
};

class OneStreamNetwork final : public net::Network {
 public:
  void Dial(Executor&, const net::Address&, Instant, DialDone) override {}
  absl::StatusOr<std::unique_ptr<net::Listener>> Listen(Executor&, const net::Address&,
                                                        absl::AnyInvocable<Executor&()>,
                                                        Accepted accepted) override {
    accept = std::move(accepted);
    return nullptr;
  }
  Accepted accept;
};

// In the turn of the deadline the peer can become ready before the stream is closed.
void ExpectSilenceAfterTheDeadline(const std::string& request) {
  ManualLoop loop;
  OneStreamNetwork network;
  const auto server =
      MetricsServer::Start(loop, network, "127.0.0.1:0", [] { return std::string("numbers"); });
  ASSERT_THAT(server, testing::IsOk());
  Readiness readiness;
  network.accept(loop, std::make_unique<StuckStream>(readiness, request));
  if (!request.empty()) std::exchange(readiness.readable, nullptr)();
  loop.timer();
  EXPECT_FALSE(readiness.readable);
  EXPECT_FALSE(readiness.writable);
  if (readiness.readable) readiness.readable();
  if (readiness.writable) readiness.writable();
  for (Task& task : loop.posted) task();
}

TEST(MetricsServerDeadline, DoesNotReadAByteThatArrivesAtTheDeadline) {
  ExpectSilenceAfterTheDeadline("");
}

TEST(MetricsServerDeadline, DoesNotWriteIfRoomArisesAtTheDeadline) {
  ExpectSilenceAfterTheDeadline("GET /metrics HTTP/1.1\r\n\r\n");
}

TEST(CheckMetricsAddress, AllowsLoopbackAndOpenAddresses) {
  EXPECT_TRUE(CheckMetricsAddress("127.0.0.1:9100", false).ok());
  EXPECT_TRUE(CheckMetricsAddress("0.0.0.0:9100", true).ok());
  const absl::Status refused = CheckMetricsAddress("0.0.0.0:9100", false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.message(), "--metrics-open")) << refused;
  EXPECT_EQ(CheckMetricsAddress("nonsense", true).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phalanx::runtime
