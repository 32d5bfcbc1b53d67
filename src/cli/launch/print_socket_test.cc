#include "src/cli/launch/print_socket.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/client/socket/launch_print.h"
#include "src/common/testing/status_matchers.h"
#include "src/common/time/clock.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::runtime {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(1);

class PrintSocketTest : public ::testing::Test {
 protected:
  PrintSocketTest() {
    auto socket = PrintSocket::Open();
    PHALANX_EXPECT_OK(socket.status());
    socket_ = *std::move(socket);
  }

  absl::Status Print(absl::string_view text, absl::Duration timeout = kPatience) {
    return internal::PrintAtLaunch(socket_->path(), text, timeout);
  }
  // The datagrams that wait.
  std::vector<std::string> TakeAll() {
    std::vector<std::string> texts;
    while (const auto text = socket_->Take()) texts.emplace_back(*text);
    return texts;
  }

  std::unique_ptr<PrintSocket> socket_;
};

TEST_F(PrintSocketTest, TextsArriveAsTheyAreInTheirOrder) {
  const std::string bytes("\0\xff\n", 3);
  PHALANX_EXPECT_OK(Print("one\n"));
  PHALANX_EXPECT_OK(Print(bytes));
  PHALANX_EXPECT_OK(Print("two"));
  EXPECT_THAT(TakeAll(), ElementsAre("one\n", bytes, "two"));
  EXPECT_EQ(socket_->Take(), std::nullopt);
  EXPECT_EQ(socket_->stranger(), std::nullopt);
}

TEST_F(PrintSocketTest, ALongTextIsSentInPartsOfWholeLines) {
  std::string text;
  for (int i = 0; text.size() < 3 * internal::kMaxPrintBytes; ++i) absl::StrAppend(&text, i, "\n");
  std::string got;
  size_t parts = 0;
  std::thread sender([&] { PHALANX_EXPECT_OK(Print(text)); });
  while (got.size() < text.size()) {
    pollfd readable = {socket_->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 60'000), 1);
    const auto part = socket_->Take();
    ASSERT_TRUE(part.has_value());
    EXPECT_LE(part->size(), internal::kMaxPrintBytes);
    EXPECT_EQ(part->back(), '\n');
    got.append(part->data(), part->size());
    ++parts;
  }
  sender.join();
  EXPECT_TRUE(got == text);
  EXPECT_EQ(parts, 4u);
}

TEST_F(PrintSocketTest, ALineThatIsTooLongIsCut) {
  const std::string line(internal::kMaxPrintBytes + 3, 'x');
  PHALANX_EXPECT_OK(Print(line + "\nlast\n"));
  EXPECT_THAT(TakeAll(), ElementsAre(std::string(internal::kMaxPrintBytes, 'x'), "xxx\nlast\n"));
}

TEST_F(PrintSocketTest, ALineOfJustTheLimitIsNotFollowedByAnEmptyOne) {
  const std::string most(internal::kMaxPrintBytes, 'x');
  PHALANX_EXPECT_OK(Print(most));
  PHALANX_EXPECT_OK(Print(most + "\n"));
  PHALANX_EXPECT_OK(Print("first\n" + most + "\n\nlast\n"));
  EXPECT_THAT(TakeAll(), ElementsAre(most, most, "first\n", most, "\nlast\n"));
}

// The limit of the time is that of each part, of which the launch takes the next one in time.
TEST_F(PrintSocketTest, ALongTextCanTakeLongerThanTheLimit) {
  constexpr absl::Duration kLimit = absl::Seconds(4);
  while (Print("fill\n", absl::Milliseconds(10)).ok()) {
  }
  const std::string line(internal::kMaxPrintBytes, 'x');
  std::atomic<bool> ended = false;
  const Instant begin = MonotonicNow();
  std::thread sender([&] {
    PHALANX_EXPECT_OK(Print(line + line + line + line + line + line, kLimit));
    EXPECT_GT(MonotonicNow() - begin, kLimit);
    ended = true;
  });
  while (!ended) {
    poll(nullptr, 0, 1000);
    socket_->Take();
  }
  sender.join();
}

TEST_F(PrintSocketTest, SignalsDoNotProlongTheWait) {
  while (Print("fill\n", absl::Milliseconds(10)).ok()) {
  }
  struct sigaction ignores = {}, before = {};
  ignores.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &ignores, &before), 0);
  std::atomic<bool> ended = false;
  std::thread sender([&] {
    EXPECT_THAT(Print("late\n", absl::Milliseconds(20)),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    ended = true;
  });
  // More often than the least wait.
  const Instant until = MonotonicNow() + kPatience;
  while (!ended && MonotonicNow() < until) pthread_kill(sender.native_handle(), SIGUSR1);
  EXPECT_TRUE(ended);
  // It ends then.
  while (!ended) TakeAll();
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(PrintSocketTest, WhatWasTakenBeforeTheEndIsThere) {
  PHALANX_EXPECT_OK(Print("in time\n"));
  socket_->Refuse();
  EXPECT_THAT(Print("late\n"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(TakeAll(), ElementsAre("in time\n"));
}

TEST_F(PrintSocketTest, OnlyItsUserReachesTheSocketAndNothingIsLeft) {
  const std::string path = socket_->path();
  const std::string folder = path.substr(0, path.rfind('/'));
  struct stat status;
  ASSERT_EQ(stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  socket_.reset();
  EXPECT_NE(stat(folder.c_str(), &status), 0);
}

TEST_F(PrintSocketTest, WhatATaskHasSentBeforeItsDeathArrives) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (Print("last words\n").ok()) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(TakeAll(), ElementsAre("last words\n"));
}

TEST_F(PrintSocketTest, ASenderWaitsWhileTheSocketIsFull) {
  size_t sent = 0;
  absl::Status status;
  while ((status = Print(absl::StrCat(sent, "\n"), absl::Milliseconds(10))).ok()) ++sent;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("has not read")));
  EXPECT_LE(sent, static_cast<size_t>(socket_->most_waiting()));
  EXPECT_GE(sent + 1, static_cast<size_t>(socket_->most_waiting()));
  std::thread sender([&] { PHALANX_EXPECT_OK(Print("behind them\n")); });
  std::vector<std::string> texts;
  while (texts.size() <= sent) {
    pollfd readable = {socket_->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 60'000), 1);
    for (std::string& text : TakeAll()) texts.push_back(std::move(text));
  }
  sender.join();
  for (size_t i = 0; i < sent; ++i) EXPECT_EQ(texts[i], absl::StrCat(i, "\n"));
  EXPECT_EQ(texts.back(), "behind them\n");
}

TEST_F(PrintSocketTest, ALaunchThatHasEndedIsAnError) {
  const std::string name = socket_->path();
  socket_.reset();
  EXPECT_THAT(internal::PrintAtLaunch(name, "late\n", kPatience),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the launch has ended")));
}

TEST_F(PrintSocketTest, AnEndOfTheLaunchEndsTheWait) {
  const std::string name = socket_->path();
  while (Print("fill\n", absl::Milliseconds(10)).ok()) {
  }
  std::thread sender([&] {
    EXPECT_THAT(internal::PrintAtLaunch(name, "late\n", kPatience),
                StatusIs(absl::StatusCode::kUnavailable));
  });
  socket_.reset();
  sender.join();
}

TEST_F(PrintSocketTest, OtherNamesAreRefused) {
  for (const std::string& name : {std::string(), std::string("@socket"), std::string("socket"),
                                  "/" + std::string(sizeof(sockaddr_un::sun_path), 'x')}) {
    EXPECT_THAT(internal::PrintAtLaunch(name, "text\n", kPatience),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("PHALANX_PRINT")))
        << name;
  }
}

// Two sockets have two paths.
TEST_F(PrintSocketTest, EachLaunchReadsItsOwn) {
  const auto other = PrintSocket::Open();
  PHALANX_ASSERT_OK(other.status());
  PHALANX_EXPECT_OK(Print("here\n"));
  EXPECT_EQ((*other)->Take(), std::nullopt);
  EXPECT_THAT(TakeAll(), ElementsAre("here\n"));
}

// Ancillary data of the sender neither leaves descriptors here nor hides its user.
TEST_F(PrintSocketTest, DescriptorsOfASenderAreClosed) {
  const auto at = internal::PrintAddress(socket_->path());
  PHALANX_ASSERT_OK(at.status());
  const net::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  int sent[2];
  ASSERT_EQ(pipe(sent), 0);
  net::UniqueFd reader(sent[0]);
  char text[] = "with a pipe\n";
  iovec bytes = {text, sizeof(text) - 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_name = const_cast<sockaddr_un*>(&at->address);
  message.msg_namelen = at->size;
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &sent[1], sizeof(int));
  ASSERT_GE(sendmsg(fd.get(), &message, 0), 0);
  close(sent[1]);
  EXPECT_THAT(TakeAll(), ElementsAre("with a pipe\n"));
  // No writer is left.
  char byte;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);
}

}  // namespace
}  // namespace phalanx::runtime
