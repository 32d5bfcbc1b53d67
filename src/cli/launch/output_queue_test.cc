#include "src/cli/launch/output_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::runtime {
namespace {

using ::testing::ElementsAre;

struct Ends {
  net::UniqueFd reader;
  net::UniqueFd writer;
};

Ends Pipe() {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  return {net::UniqueFd(fds[0]), net::UniqueFd(fds[1])};
}

Ends Terminal() {
  int reader, writer;
  termios raw = {};
  cfmakeraw(&raw);
  EXPECT_EQ(openpty(&reader, &writer, nullptr, &raw, nullptr), 0);
  return {net::UniqueFd(reader), net::UniqueFd(writer)};
}

Ends Socket() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {net::UniqueFd(fds[0]), net::UniqueFd(fds[1])};
}

// Lines of all lengths up to some hundred bytes.
std::string Lines(size_t bytes) {
  std::string lines;
  for (int i = 0; lines.size() < bytes; ++i) {
    absl::StrAppend(&lines, i, " ", std::string(static_cast<size_t>(i * 37 % 500), 'x'), "\n");
  }
  return lines;
}

class OutputQueueTest : public ::testing::TestWithParam<Ends (*)()> {
 protected:
  OutputQueueTest() {
    signal(SIGPIPE, SIG_IGN);
    OutputQueue::Events events;
    events.on_room = [this] { OnRoom(); };
    events.on_error = [this](int error) { errors_.push_back(error); };
    auto queue = OutputQueue::Open(loop_, ends_.writer.get(), std::move(events));
    PHALANX_EXPECT_OK(queue.status());
    queue_ = *std::move(queue);
  }

  void Append(const std::string& bytes) {
    queue_->Append([this, &bytes](std::string* out) {
      out->append(bytes);
      most_held_ = std::max(most_held_, out->size());
    });
  }
  void OnRoom() {
    while (!left_.empty() && !queue_->full()) {
      Append(left_.substr(0, 50'000));
      left_.erase(0, 50'000);
    }
  }
  // Reads `most` bytes whenever there are some, until there are `total`.
  void ReadSlowly(net::FdWatcher& watcher, size_t most, size_t total) {
    watcher.OnReadable([=, this, &watcher] {
      std::string bytes(most, '\0');
      const ssize_t size = read(ends_.reader.get(), bytes.data(), bytes.size());
      if (size > 0) got_.append(bytes, 0, static_cast<size_t>(size));
      if (got_.size() == total) return loop_.Stop();
      ReadSlowly(watcher, most, total);
    });
  }

  net::EventLoop loop_;
  Ends ends_ = GetParam()();
  std::unique_ptr<OutputQueue> queue_;
  std::vector<int> errors_;
  // What OnRoom appends.
  std::string left_;
  std::string got_;
  // Bytes in the buffer of the queue, written ones included.
  size_t most_held_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Output, OutputQueueTest, ::testing::Values(&Pipe, &Terminal, &Socket));

TEST_P(OutputQueueTest, AReaderThatDoesNotReadBlocksNoAppend) {
  for (const size_t bytes : {1, 4000, 70'000, 1, 2 << 20, 1}) Append(Lines(bytes));
  EXPECT_TRUE(queue_->full());
  EXPECT_FALSE(fcntl(ends_.writer.get(), F_GETFL) & O_NONBLOCK);
}

TEST_P(OutputQueueTest, AnotherWriterThatTakesTheRoomBlocksNoAppend) {
  Ends& ends = ends_;
  // All but less than the queue writes at once.
  ASSERT_EQ(fcntl(ends.writer.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string some(1000, 'x');
  while (write(ends.writer.get(), some.data(), some.size()) > 0) {
  }
  char byte[1500];
  EXPECT_GT(read(ends.reader.get(), byte, sizeof(byte)), 0);
  ASSERT_EQ(fcntl(ends.writer.get(), F_SETFL, 0), 0);
  Append(std::string(100'000, 'y'));
  EXPECT_FALSE(queue_->empty());
}

TEST_P(OutputQueueTest, ASlowReaderGetsAllBytesAndTheBufferStaysSmall) {
  const std::string all = Lines(12 << 20);
  left_ = all;
  OnRoom();
  EXPECT_TRUE(queue_->full());
  {
    const auto watcher = loop_.Watch(ends_.reader.get());
    PHALANX_ASSERT_OK(watcher.status());
    ReadSlowly(**watcher, 20'000, all.size());
    loop_.Run();
  }
  EXPECT_TRUE(got_ == all);
  EXPECT_TRUE(queue_->empty());
  EXPECT_LE(most_held_, 3 * OutputQueue::kFullBytes);
  EXPECT_THAT(errors_, ElementsAre());
}

TEST_P(OutputQueueTest, AnErrorIsReportedOnce) {
  ends_.reader.Close();
  for (int i = 0; i < 3; ++i) Append("lost\n");
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_[0], ::testing::AnyOf(EPIPE, EIO));
  EXPECT_TRUE(queue_->empty());
}

}  // namespace
}  // namespace phalanx::runtime
