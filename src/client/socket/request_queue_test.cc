// A node that reads late, or not at all.
#include "src/client/socket/request_queue.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::internal {
namespace {

class RequestQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Not in TEST_TMPDIR: the path of a socket must be short.
    char folder[] = "/tmp/phalanx.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string path = std::string(folder) + "/socket";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ASSERT_LT(path.size(), sizeof(address.sun_path));
    path.copy(address.sun_path, path.size());
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    auto connected = LocalSocket::Connect(path, absl::Seconds(10));
    PHALANX_ASSERT_OK(connected);
    socket_ = *std::move(connected);
    node_ = accept(listener, nullptr, nullptr);
    close(listener);
    unlink(path.c_str());
    rmdir(folder);
  }
  void TearDown() override {
    if (node_ >= 0) close(node_);
  }

  // What the node has received.
  std::string Read() {
    std::string got(size_t{4} << 20, '\0');
    const ssize_t count = recv(node_, got.data(), got.size(), MSG_DONTWAIT);
    got.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return got;
  }

  LocalSocket socket_;
  int node_ = -1;
  RequestQueue queue_;
};

TEST_F(RequestQueueTest, ABatchHoldsBackABoundedNumberOfBytes) {
  queue_.EndBatch();
  queue_.BeginBatch();
  queue_.BeginBatch();
  queue_.Add(local::Cancel{7});
  queue_.EndBatch();
  EXPECT_TRUE(queue_.batching());
  while (queue_.size() < RequestQueue::kMaxBatchBytes) queue_.Add(local::Cancel{7});
  EXPECT_FALSE(queue_.batching());
  queue_.Flush(socket_);
  EXPECT_TRUE(queue_.batching());
  queue_.EndBatch();
  EXPECT_FALSE(queue_.batching());
}

TEST_F(RequestQueueTest, BytesFollowTheQueueInOrder) {
  const local::Request request = local::Cancel{7};
  std::string expected;
  local::Encode(request, expected);
  queue_.Add(request);
  EXPECT_EQ(queue_.size(), expected.size());
  queue_.Flush(socket_, "bytes");
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_EQ(Read(), expected + "bytes");
}

TEST_F(RequestQueueTest, BytesThatTheSocketDoesNotAcceptAreSentLater) {
  std::string bytes(size_t{3} << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  queue_.Flush(socket_, bytes);
  EXPECT_GT(queue_.size(), 0u);
  std::string got = Read();
  while (got.size() < bytes.size()) {
    queue_.Flush(socket_);
    got += Read();
  }
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_TRUE(got == bytes);
}

TEST_F(RequestQueueTest, NoCallWaitsForANodeThatHasStalled) {
  EXPECT_FALSE(queue_.WorthWaiting());
  queue_.Add(local::Cancel{7});
  EXPECT_TRUE(queue_.WorthWaiting());
  queue_.set_stalled(true);
  EXPECT_FALSE(queue_.WorthWaiting());
  queue_.Flush(socket_);
  EXPECT_FALSE(queue_.WorthWaiting());
  queue_.Add(local::Cancel{8});
  EXPECT_TRUE(queue_.WorthWaiting());
}

TEST_F(RequestQueueTest, ABrokenQueueDropsItsBytes) {
  close(std::exchange(node_, -1));
  queue_.Add(local::Cancel{7});
  queue_.Flush(socket_);
  EXPECT_TRUE(queue_.broken());
  EXPECT_EQ(queue_.size(), 0u);
  queue_.Add(local::Cancel{8});
  EXPECT_FALSE(queue_.WorthWaiting());
}

}  // namespace
}  // namespace phalanx::internal
