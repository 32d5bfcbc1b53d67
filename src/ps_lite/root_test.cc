#include "src/ps_lite/root.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kLoopback[] = "127.0.0.1";

// A port that is free, and that no other process gets before this ends: while the socket is bound,
// the kernel gives the port to none that asks for any. A root can listen there nevertheless, as
// both allow that an address is used again.
class FreePort {
 public:
  FreePort() {
    Bind(fd_, 0);
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    number_ = ntohs(address.sin_port);
  }
  ~FreePort() { close(fd_); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;

  operator int() const { return number_; }  // NOLINT(google-explicit-constructor)
  int fd() const { return fd_; }
  // Returns another socket, that listens at the port.
  int Listen() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Bind(fd, number_);
    EXPECT_EQ(listen(fd, SOMAXCONN), 0);
    return fd;
  }

 private:
  static void Bind(int fd, int port) {
    const int on = 1;
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int number_ = 0;
};

Settings SettingsOf(Role role, int port) {
  Settings settings;
  settings.role = role;
  settings.workers = 2;
  settings.servers = 1;
  settings.root_host = kLoopback;
  settings.root_port = port;
  return settings;
}

Place ServedPlace() { return {0, "a-job", "unix:/a path/node.sock", true}; }

void Unexpected(const std::string& why) { ADD_FAILURE() << why; }

// The place that a process gets which then joins.
std::string AskAndJoin(const Settings& settings, Place* place) {
  Hold hold;
  const std::string wrong = AskRoot(settings, place, &hold);
  hold.Confirm(0);
  return wrong;
}

std::unique_ptr<Root> Serve(int port) {
  std::string wrong;
  std::unique_ptr<Root> root = Root::Listen(kLoopback, port, &wrong);
  EXPECT_EQ(wrong, "");
  root->Serve(SettingsOf(Role::kScheduler, port), ServedPlace(), Unexpected);
  return root;
}

TEST(RankBook, FreesARankWhenTheLifeThatHasItDies) {
  const Peer server{Role::kServer, 0};
  const std::string full = "the job has all its 1 processes of role server";
  RankBook book(1, 1);
  int rank = -1;
  const auto ask = [&] { return book.Assign(Role::kServer, -1, &rank); };
  EXPECT_EQ(ask(), "");
  book.Joined(server, 4);
  EXPECT_EQ(ask(), full);
  book.Died(server, 4);
  EXPECT_EQ(ask(), "");
  // That the life before has died is known late: its successor has asked, or joined.
  book.Died(server, 4);
  EXPECT_EQ(ask(), full);
  book.Joined(server, 5);
  book.Died(server, 4);
  EXPECT_EQ(ask(), full);
  // It dies before the root knows that it has joined.
  book.Died(server, 5);
  EXPECT_EQ(ask(), "");
  book.Died(server, 6);
  book.Joined(server, 6);
  EXPECT_EQ(ask(), "");
  book.GiveBack(server);
  EXPECT_EQ(ask(), "");
}

TEST(RankBook, GivesEachRankOnce) {
  RankBook book(3, 1);
  int rank = -1;
  EXPECT_EQ(book.Assign(Role::kWorker, 1, &rank), "");
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(book.Assign(Role::kWorker, -1, &rank), "");
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(book.Assign(Role::kWorker, -1, &rank), "");
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(book.Assign(Role::kWorker, -1, &rank),
            "the job has all its 3 processes of role worker");
  EXPECT_EQ(book.Assign(Role::kWorker, 1, &rank), "another worker has the rank 1");
  EXPECT_EQ(book.Assign(Role::kServer, 1, &rank),
            "DMLC_RANK=1: the job has 1 processes of role server");
}

TEST(Root, AnswersWithAPlace) {
  const FreePort port;
  const auto root = Serve(port);
  std::vector<int> ranks;
  for (int i = 0; i < 2; ++i) {
    Place place;
    ASSERT_EQ(AskAndJoin(SettingsOf(Role::kWorker, port), &place), "");
    EXPECT_EQ(place.job, "a-job");
    EXPECT_EQ(place.address, "unix:/a path/node.sock");
    EXPECT_TRUE(place.private_cluster);
    ranks.push_back(place.rank);
  }
  EXPECT_THAT(ranks, UnorderedElementsAre(0, 1));
  Place place;
  EXPECT_THAT(AskAndJoin(SettingsOf(Role::kWorker, port), &place),
              HasSubstr("all its 2 processes of role worker"));
}

TEST(Root, IsWaitedFor) {
  const FreePort port;
  Place place;
  std::string wrong = "not asked";
  std::thread worker([&] { wrong = AskAndJoin(SettingsOf(Role::kWorker, port), &place); });
  std::string failed;
  // Between its listening and its answers a private cluster is started.
  const auto root = Root::Listen(kLoopback, port, &failed);
  ASSERT_EQ(failed, "");
  root->Serve(SettingsOf(Role::kScheduler, port), ServedPlace(), Unexpected);
  worker.join();
  EXPECT_EQ(wrong, "");
}

TEST(Root, IsWaitedForInVainUntilTheTimeout) {
  const FreePort port;
  Settings settings = SettingsOf(Role::kServer, port);
  settings.timeout_seconds = 1;
  Place place;
  EXPECT_THAT(AskAndJoin(settings, &place), StartsWith("no scheduler at 127.0.0.1:"));
}

// Answers one question.
void AnswerOnce(int listening, const std::string& answer) {
  const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(fd, 0);
  char byte = 0;
  while (byte != '\n') ASSERT_EQ(recv(fd, &byte, 1, 0), 1);
  EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(answer.size()));
  close(fd);
}

TEST(Root, IsFullThoughTheLastQuestionHasNoAnswerInTime) {
  const FreePort port;
  const int listening = port.Listen();
  Settings settings = SettingsOf(Role::kWorker, port);
  settings.timeout_seconds = 2;
  Place place;
  std::string wrong;
  std::thread worker([&] { wrong = AskAndJoin(settings, &place); });
  AnswerOnce(listening, "full all ranks are given\n");
  // The questions that follow are not read.
  worker.join();
  EXPECT_EQ(wrong, "the scheduler at 127.0.0.1:" + std::to_string(port) + ": all ranks are given");
  close(listening);
}

// A process of the next job can come so early that the scheduler of the last one answers.
TEST(Root, IsWaitedForBehindOneThatIsFull) {
  const FreePort port;
  const int listening = port.Listen();
  Place place;
  std::string wrong = "not asked";
  std::thread worker([&] { wrong = AskAndJoin(SettingsOf(Role::kWorker, port), &place); });
  AnswerOnce(listening, "full all ranks are given\n");
  close(listening);
  Settings impatient = SettingsOf(Role::kWorker, port);
  // Longer than a root is asked that goes on being full.
  impatient.timeout_seconds = 6;
  Place none;
  EXPECT_THAT(AskAndJoin(impatient, &none), StartsWith("no scheduler at 127.0.0.1:"));
  const auto root = Serve(port);
  worker.join();
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(place.job, "a-job");
}

TEST(Root, RefusesProcessesOfAnotherJob) {
  const FreePort port;
  const auto root = Serve(port);
  Settings settings = SettingsOf(Role::kServer, port);
  settings.servers = 5;
  Place place;
  EXPECT_THAT(
      AskAndJoin(settings, &place),
      HasSubstr(
          "the scheduler has DMLC_NUM_WORKER=2 and DMLC_NUM_SERVER=1, but this process 2 and 5"));
}

TEST(Root, NamesAPortThatIsInUse) {
  const FreePort port;
  const auto root = Serve(port);
  std::string wrong;
  EXPECT_EQ(Root::Listen(kLoopback, port, &wrong), nullptr);
  EXPECT_THAT(wrong, HasSubstr("the port is in use"));
}

TEST(Root, NamesAHostThatIsAnotherOne) {
  std::string wrong;
  EXPECT_EQ(Root::Listen("192.0.2.1", 8000, &wrong), nullptr);
  EXPECT_THAT(wrong, HasSubstr("not an address of this host"));
  EXPECT_EQ(Root::Listen("no such host", 8000, &wrong), nullptr);
  EXPECT_THAT(wrong, HasSubstr("DMLC_PS_ROOT_URI=no such host"));
}

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

TEST(Root, ARankOfAProcessThatDoesNotJoinIsFreeAgain) {
  const FreePort port;
  const auto root = Serve(port);
  Place place;
  {
    Hold first, second;
    ASSERT_EQ(AskRoot(SettingsOf(Role::kWorker, port), &place, &first), "");
    ASSERT_EQ(AskRoot(SettingsOf(Role::kWorker, port), &place, &second), "");
    EXPECT_THAT(AskAndJoin(SettingsOf(Role::kWorker, port), &place), HasSubstr("all its 2"));
  }
  ASSERT_EQ(AskAndJoin(SettingsOf(Role::kWorker, port), &place), "");
  ASSERT_EQ(AskAndJoin(SettingsOf(Role::kWorker, port), &place), "");
  EXPECT_THAT(AskAndJoin(SettingsOf(Role::kWorker, port), &place), HasSubstr("all its 2"));
}

TEST(Root, KnowsAConnectionWithItself) {
  const FreePort own;
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(own.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(connect(own.fd(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_TRUE(IsConnectedToItself(own.fd()));
  const FreePort port;
  const auto root = Serve(port);
  const int other = Connect(port);
  EXPECT_FALSE(IsConnectedToItself(other));
  close(other);
}

TEST(Root, WaitsWithoutWorkForADescriptor) {
  const FreePort port;
  const auto root = Serve(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(fd);
  close(next);
  const rlimit none = {static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string line = "GET\n";
  EXPECT_EQ(send(fd, line.data(), line.size(), MSG_NOSIGNAL), static_cast<ssize_t>(line.size()));
  const timeval second = {1, 0};
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second)), 0);
  const std::clock_t begin = std::clock();
  char byte = 0;
  EXPECT_EQ(recv(fd, &byte, 1, 0), -1);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const timeval minute = {60, 0};
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute)), 0);
  EXPECT_EQ(recv(fd, &byte, 1, 0), 1);
  close(fd);
}

// Sends bytes and returns what is answered.
std::string Talk(int port, const std::string& bytes) {
  const int fd = Connect(port);
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::string answer;
  char byte = 0;
  while (recv(fd, &byte, 1, 0) == 1) answer.push_back(byte);
  close(fd);
  return answer;
}

TEST(Root, SurvivesOtherPrograms) {
  const FreePort port;
  const auto root = Serve(port);
  EXPECT_THAT(Talk(port, "GET / HTTP/1.1\r\n\r\n"), StartsWith("error"));
  EXPECT_THAT(Talk(port, "phalanx-ps worker x 2 1\n"), StartsWith("error"));
  EXPECT_THAT(Talk(port, "phalanx-ps scheduler -1 2 1\n"),
              StartsWith("error the job has a scheduler"));
  EXPECT_EQ(Talk(port, std::string(4000, 'x')), "");
  Place place;
  EXPECT_EQ(AskAndJoin(SettingsOf(Role::kWorker, port), &place), "");
}

TEST(Root, AnswersOfOtherProgramsAreAnError) {
  Place place;
  for (const char* const line :
       {"", "HTTP/1.1 400", "ok", "ok -1 0 job path", "ok 1 0 job", "ok x 0 job path"}) {
    bool full = false;
    EXPECT_NE(ReadAnswer(line, &place, &full), "") << line;
    EXPECT_FALSE(full);
  }
}

}  // namespace
}  // namespace phalanx::ps_lite
