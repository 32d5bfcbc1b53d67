#include "benchmarks/delayed_link.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::benchmarks {
namespace {

constexpr absl::Duration kDelay = absl::Milliseconds(20);

// The two ends of the link; a datagram is a frame.
class DelayedLinkTest : public ::testing::Test {
 protected:
  DelayedLinkTest() {
    for (auto& pair : pairs_) {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()), 0);
    }
  }
  ~DelayedLinkTest() override {
    for (const auto& pair : pairs_) {
      for (const int fd : pair) close(fd);
    }
  }
  DelayedLink Link(double loss = 0) { return {pairs_[0][1], pairs_[1][1], kDelay, loss}; }
  void Send(int end, const std::string& frame) {
    EXPECT_EQ(write(pairs_[end][0], frame.data(), frame.size()),
              static_cast<ssize_t>(frame.size()));
  }
  std::vector<std::string> Receive(int end) {
    std::vector<std::string> frames;
    std::array<char, 100> buffer;
    for (ssize_t size = 0; (size = read(pairs_[end][0], buffer.data(), buffer.size())) > 0;) {
      frames.emplace_back(buffer.data(), size);
    }
    return frames;
  }
  // The frames of 1000 that arrive, one every 100 us.
  std::vector<std::string> OfAThousand(DelayedLink& link) {
    std::vector<std::string> arrived;
    for (int i = 0; i < 1000; ++i) {
      Send(0, std::to_string(i));
      link.Turn(now_);
      now_ = now_ + absl::Microseconds(100);
      for (std::string& frame : Receive(1)) arrived.push_back(std::move(frame));
    }
    now_ = now_ + kDelay;
    // More frames are due than a turn hands on.
    for (int i = 0; i < 1000; ++i) link.Turn(now_);
    for (std::string& frame : Receive(1)) arrived.push_back(std::move(frame));
    return arrived;
  }

  std::array<std::array<int, 2>, 2> pairs_;  // each: the test's end, the link's end
  Instant now_ = Instant::FromNanos(1'000'000);
};

using Frames = std::vector<std::string>;

TEST_F(DelayedLinkTest, FramesAreHeldForTheDelayInEachDirection) {
  for (const int from : {0, 1}) {
    DelayedLink link = Link();
    EXPECT_TRUE(link.next().infinite());
    Send(from, "one");
    link.Turn(now_);
    Send(from, "two");
    link.Turn(now_ + absl::Milliseconds(5));
    EXPECT_EQ(link.next(), now_ + kDelay);
    link.Turn(now_ + kDelay - absl::Nanoseconds(1));
    EXPECT_EQ(Receive(1 - from), Frames());
    link.Turn(now_ + kDelay);
    EXPECT_EQ(Receive(1 - from), Frames{"one"});
    EXPECT_EQ(link.next(), now_ + kDelay + absl::Milliseconds(5));
    link.Turn(now_ + kDelay + absl::Milliseconds(7));
    EXPECT_EQ(Receive(1 - from), Frames{"two"});
    EXPECT_EQ(Receive(from), Frames()) << "nothing comes back";
    EXPECT_EQ(link.counters().frames, 2u);
    EXPECT_EQ(link.counters().bytes, 6u);
    EXPECT_EQ(link.counters().latest, absl::Milliseconds(2));
  }
}

TEST_F(DelayedLinkTest, FramesKeepTheirOrder) {
  DelayedLink link = Link();
  const Frames arrived = OfAThousand(link);
  ASSERT_EQ(arrived.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(arrived[static_cast<size_t>(i)], std::to_string(i));
}

TEST_F(DelayedLinkTest, ThePartThatIsLostIsTheSameInEachRun) {
  DelayedLink first = Link(0.1);
  const Frames arrived = OfAThousand(first);
  EXPECT_NEAR(static_cast<double>(arrived.size()), 900, 40);
  EXPECT_EQ(first.counters().lost, 1000 - arrived.size());
  DelayedLink second = Link(0.1);
  EXPECT_EQ(OfAThousand(second), arrived);
}

// A parent that is killed sends no signal itself.
TEST_F(DelayedLinkTest, EndsWithItsParent) {
  std::array<int, 2> held;  // open for writing while the link's process runs
  ASSERT_EQ(pipe2(held.data(), O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) {
      Link().Run([] {});
      _exit(0);
    }
    close(held[1]);
    pause();
    _exit(0);
  }
  close(held[1]);
  Send(0, "frame");
  pollfd carried = {pairs_[1][0], POLLIN, 0};
  ASSERT_EQ(poll(&carried, 1, 10'000), 1) << "the link does not run";
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  pollfd ended = {held[0], POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, 10'000), 1) << "the link's process still runs";
  close(held[0]);
}

}  // namespace
}  // namespace phalanx::benchmarks
