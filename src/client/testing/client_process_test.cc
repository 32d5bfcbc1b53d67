// Clients while processes are started, stopped and killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/client/connection/embedded.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::object_store::testing::SocketFolder;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kTestNode[] = "src/client/testing/test_node";

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }

std::shared_ptr<Client> ConnectTo(const std::string& address) {
  ClientOptions options;
  options.address = address;
  auto client = Client::Connect(options);
  EXPECT_THAT(client, IsOk());
  return *client;
}

// Returns the exit status of a child that runs `body`; -1 if a signal ended it.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

pid_t DaemonOf(const Client& client) {
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  client.address().substr(5).copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ucred peer{};
  socklen_t length = sizeof(peer);
  EXPECT_EQ(getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &peer, &length), 0);
  close(probe);
  return peer.pid;
}

// Returns when the process has ended.
bool AwaitEnd(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd ended{fd, POLLIN, 0};
  const bool in_time = poll(&ended, 1, 60000) == 1;
  close(fd);
  return in_time;
}

// ---------------------------------------------------------------------------- a private cluster

// The folders of all daemons of this process are in one, since those that a test kills leave
// theirs.
class DaemonFolders : public ::testing::Environment {
 public:
  void SetUp() override {
    folder_.emplace("/tmp");
    setenv("TEST_TMPDIR", folder_->path().c_str(), 1);
  }
  void TearDown() override { folder_.reset(); }

 private:
  std::optional<SocketFolder> folder_;
};
const ::testing::Environment* const kFolders =
    ::testing::AddGlobalTestEnvironment(new DaemonFolders);

class EmbeddedTest : public ::testing::Test {
 protected:
  EmbeddedTest() {
    setenv("PHALANX_BINARY", kTestNode, 1);
    unsetenv("PHALANX_ADDRESS");
    unsetenv("PHALANX_TEST_NODE");
  }
};

TEST_F(EmbeddedTest, ClientsOfAProcessShareOnePrivateCluster) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto first, Client::Connect());
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto second, Client::Connect());
  EXPECT_EQ(first->address(), second->address());
  PHALANX_ASSERT_OK(first->Put(Id(1), "bytes").Wait());
  EXPECT_EQ(second->Get(Id(1)).Wait()->view(), "bytes");
}

TEST_F(EmbeddedTest, TheClusterEndsWithTheProcess) {
  for (const bool killed : {false, true}) {
    int result[2];
    ASSERT_EQ(pipe(result), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto client = Client::Connect();
      const pid_t daemon = client.ok() ? DaemonOf(**client) : -1;
      if (write(result[1], &daemon, sizeof(daemon)) < 0 || killed) kill(getpid(), SIGKILL);
      _exit(0);
    }
    pid_t daemon = -1;
    ASSERT_EQ(read(result[0], &daemon, sizeof(daemon)), static_cast<ssize_t>(sizeof(daemon)));
    ASSERT_GT(daemon, 0);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(AwaitEnd(daemon));
    close(result[0]);
    close(result[1]);
  }
}

TEST_F(EmbeddedTest, TheClusterEndsAlthoughAChildProcessLives) {
  int result[2];
  int hold[2];
  ASSERT_EQ(pipe(result), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto client = Client::Connect();
    const pid_t daemon = client.ok() ? DaemonOf(**client) : -1;
    if (fork() == 0) {
      // Lives until the test ends it.
      char byte = 0;
      close(hold[1]);
      _exit(static_cast<int>(read(hold[0], &byte, 1)));
    }
    if (write(result[1], &daemon, sizeof(daemon)) < 0) _exit(1);
    _exit(0);
  }
  pid_t daemon = -1;
  ASSERT_EQ(read(result[0], &daemon, sizeof(daemon)), static_cast<ssize_t>(sizeof(daemon)));
  ASSERT_GT(daemon, 0);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(AwaitEnd(daemon)) << "the grandchild holds no copy of the lifeline";
  for (const int fd : {result[0], result[1], hold[0], hold[1]}) close(fd);
}

TEST_F(EmbeddedTest, ADeadClusterIsReplaced) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto first, Client::Connect());
  const pid_t daemon = DaemonOf(*first);
  kill(daemon, SIGKILL);
  ASSERT_TRUE(AwaitEnd(daemon));
  EXPECT_THAT(first->Put(Id(1), "x").Wait(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(first->address())));
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto second, Client::Connect());
  EXPECT_NE(DaemonOf(*second), daemon);
  PHALANX_EXPECT_OK(second->Put(Id(1), "x").Wait());
}

TEST_F(EmbeddedTest, AChildProcessStartsItsOwnCluster) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect());
  EXPECT_EQ(InChild([&] {
              auto own = Client::Connect();
              if (!own.ok() || (*own)->address() == client->address()) return 1;
              return (*own)->Put(Id(1), "x").Wait().ok() ? 0 : 2;
            }),
            0);
  PHALANX_EXPECT_OK(client->Put(Id(2), "x").Wait());
}

TEST_F(EmbeddedTest, ErrorsNameTheirCause) {
  // Each case in a child, which has no cluster yet.
  const auto code_with = [](const char* variable, const char* value, const char* text,
                            absl::Duration patience = absl::Minutes(1)) {
    return InChild([&] {
      setenv(variable, value, 1);
      ClientOptions options;
      options.connect_timeout = patience;
      const absl::Status status = Client::Connect(options).status();
      const bool said = status.message().find(text) != absl::string_view::npos;
      return said ? static_cast<int>(status.code()) : 100;
    });
  };
  EXPECT_EQ(code_with("PHALANX_BINARY", "/nowhere/phalanx", "/nowhere/phalanx"),
            static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(code_with("PHALANX_BINARY", "/bin/false", "ended before it was ready"),
            static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(code_with("PHALANX_TEST_NODE", "fail", "no room on this machine"),
            static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(code_with("PHALANX_TEST_NODE", "silent", "not ready in time", absl::Milliseconds(200)),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(EmbeddedTest, TheDaemonInheritsNoSettingOfTheHostsCluster) {
  EXPECT_EQ(InChild([] {
              setenv("PHALANX_CONFIG", "/nowhere/phalanx.toml", 1);
              setenv("PHALANX_LISTEN", "127.0.0.1:1", 1);
              setenv("PHALANX_TEST_KEPT", "1", 1);
              const auto client = Client::Connect();
              if (!client.ok()) return 1;
              std::ifstream file(absl::StrCat("/proc/", DaemonOf(**client), "/environ"));
              const std::string text{std::istreambuf_iterator<char>(file), {}};
              if (text.find("PHALANX_CONFIG=") != text.npos) return 2;
              if (text.find("PHALANX_LISTEN=") != text.npos) return 3;
              return text.find("PHALANX_TEST_KEPT=1") != text.npos ? 0 : 4;
            }),
            0);
}

TEST_F(EmbeddedTest, ADaemonThatWasNotReadyInTimeLeavesOneZombieAtMost) {
  EXPECT_EQ(InChild([] {
              ClientOptions options;
              options.connect_timeout = absl::Milliseconds(50);
              setenv("PHALANX_TEST_NODE", "silent", 1);
              for (int i = 0; i < 3; ++i) {
                if (Client::Connect(options).ok()) return 1;
                // Ended, but not reaped by this call.
                siginfo_t info;
                waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
              }
              int children = 0;
              unsetenv("PHALANX_TEST_NODE");
              const auto client = Client::Connect();
              if (!client.ok()) return 3;
              while (waitpid(-1, nullptr, WNOHANG) > 0) ++children;
              return children == 0 ? 0 : 10 + children;
            }),
            0);
}

TEST_F(EmbeddedTest, FindsTheExecutableBesideTheProgramAndOnPath) {
  unsetenv("PHALANX_BINARY");
  setenv("PATH", "/first:/second", 1);
  const std::vector<std::string> candidates = internal::ExecutableCandidates();
  ASSERT_GE(candidates.size(), 3u);
  EXPECT_THAT(candidates.front(), HasSubstr("src/client/testing/phalanx"));
  EXPECT_EQ(candidates[candidates.size() - 2], "/first/phalanx");
  EXPECT_EQ(candidates.back(), "/second/phalanx");
}

// ---------------------------------------------------------------------------- daemon death

TEST_F(EmbeddedTest, ADaemonsDeathEndsCallsAndKeepsViews) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect());
  const std::string bytes(3 << 20, 'v');
  PHALANX_ASSERT_OK(client->Put(Id(101), bytes).Wait());
  PHALANX_ASSERT_OK(client->Put(Id(102), std::string(100000, 'm')).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer large, client->Get(Id(101)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer medium, client->Get(Id(102)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer writer, client->Create(Id(103), 2 << 20));
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer streamed, client->Create(Id(104), 2 << 20));
  PHALANX_ASSERT_OK_AND_ASSIGN(ObjectStream stream, client->GetStream(Id(104)));
  const Future<Buffer> waiting = client->Get(Id(105));
  const auto many = client->GetMany(std::vector<ObjectId>{Id(101), Id(106)});
  std::thread waiter(
      [&] { EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kUnavailable)); });

  const pid_t daemon = DaemonOf(*client);
  kill(daemon, SIGKILL);
  const auto unavailable = StatusIs(absl::StatusCode::kUnavailable, HasSubstr(client->address()));
  waiter.join();
  EXPECT_THAT(waiting.Wait(), unavailable);
  EXPECT_THAT(many.Wait(), unavailable);
  EXPECT_THAT(stream.Next(), unavailable);
  EXPECT_THAT(writer.Publish(1), unavailable);
  EXPECT_THAT(writer.Seal().Wait(), unavailable);
  EXPECT_THAT(client->Put(Id(107), "x").Wait(), unavailable);
  EXPECT_THAT(client->Create(Id(107), 10).status(), unavailable);
  EXPECT_THAT(client->Stat(Id(101)).Wait(), unavailable);
  streamed.span()[0] = 'x';
  EXPECT_TRUE(large.view() == bytes);
  EXPECT_TRUE(medium.view() == std::string(100000, 'm'));
  // A dead connection does not keep the program's loop busy.
  pollfd idle{client->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&idle, 1, 0), 0);
}

TEST_F(EmbeddedTest, ADaemonKilledAtAnyMomentIsNoticed) {
  for (int round = 0; round < 10; ++round) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect());
    const pid_t daemon = DaemonOf(*client);
    const std::string bytes(round % 2 == 0 ? 500000 : 2000000, 'x');
    std::thread killer([daemon] { kill(daemon, SIGKILL); });
    absl::Status status;
    for (int i = 0; status.ok(); ++i) {
      status = client->Put(Id(i), bytes).Wait().status();
      if (status.ok()) status = client->Get(Id(i)).Wait().status();
      if (status.ok()) status = client->Delete(Id(i)).Wait().status();
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
    killer.join();
    ASSERT_TRUE(AwaitEnd(daemon));
  }
}

TEST_F(EmbeddedTest, CallsToAStoppedDaemonEndAtTheirDeadline) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect());
  const pid_t daemon = DaemonOf(*client);
  kill(daemon, SIGSTOP);
  GetOptions options;
  options.timeout = absl::Milliseconds(10);
  EXPECT_THAT(client->Get(Id(1), options).Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(client->Contains(Id(1), absl::Milliseconds(10)).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(client->Put(Id(1), "x").Wait(absl::Milliseconds(10)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  kill(daemon, SIGCONT);
  EXPECT_EQ(client->Get(Id(1)).Wait()->view(), "x");
}

// ---------------------------------------------------------------------------- client death

TEST(ClientProcess, APinOfAKilledClientIsReleasedAndItsPagesAreNotReused) {
  LocalNode node;
  const auto client = ConnectTo(node.address());
  PHALANX_ASSERT_OK(client->Put(Id(1), std::string(2 << 20, 'x')).Wait());
  EXPECT_EQ(InChild([&] {
              const auto own = ConnectTo(node.address());
              const auto buffer = own->Get(Id(1)).Wait();
              const auto writer = own->Create(Id(2), 2 << 20);
              if (buffer.ok() && writer.ok()) kill(getpid(), SIGKILL);
              return 1;
            }),
            -1);
  node.Await([&] { return node.service().stats().clients == 1; });
  EXPECT_EQ(node.store_stats().pins, 0u);
  EXPECT_EQ(node.store_stats().objects, 1u) << "what it was writing is gone";
  PHALANX_ASSERT_OK(client->Delete(Id(1)).Wait());
  node.Await([&] { return node.memory().stats().allocated_bytes == 0; });
  EXPECT_EQ(node.memory_stats().pooled_bytes, 0u);
}

TEST(ClientProcess, SegmentsOfAKilledClientAreReusedOnceItHasEnded) {
  LocalNode node;
  const auto client = ConnectTo(node.address());
  PHALANX_ASSERT_OK(client->Put(Id(1), std::string(100000, 'x')).Wait());
  PHALANX_ASSERT_OK(client->Put(Id(2), std::string(100000, 'y')).Wait());
  EXPECT_EQ(InChild([&] {
              const auto own = ConnectTo(node.address());
              const auto buffer = own->Get(Id(1)).Wait();
              if (buffer.ok()) kill(getpid(), SIGKILL);
              return 1;
            }),
            -1);
  node.Await([&] { return node.service().stats().clients == 1; });
  PHALANX_ASSERT_OK(client->Delete(Id(1)).Wait());
  node.Await([&] { return node.store().stats().objects == 1; });
  node.Await([&] { return node.memory().stats().condemned_bytes == 0; });
}

TEST(ClientProcess, WithoutDescriptorsAGetFailsAndTheConnectionStays) {
  LocalNode node;
  const auto client = ConnectTo(node.address());
  const std::string bytes(2 << 20, 'x');
  for (int i = 0; i < 3; ++i) {
    PHALANX_ASSERT_OK(client->Put(Id(i), bytes).Wait());
    PHALANX_ASSERT_OK(ConnectTo(node.address())->Get(Id(i)).Wait());
  }
  // Node and reader are one process here, so the node opened its descriptors before the limit.
  const auto reader = ConnectTo(node.address());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = reader->Get(Id(0)).Wait();
  const auto small =
      reader->Get(Id(1), {.timeout = absl::InfiniteDuration(), .offset = 0, .length = 10}).Wait();
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("descriptor")));
  EXPECT_THAT(small, IsOk());
  for (int i = 0; i < 3; ++i) {
    const auto buffer = reader->Get(Id(i)).Wait();
    ASSERT_THAT(buffer, IsOk());
    EXPECT_TRUE(buffer->view() == bytes);
  }
}

// ---------------------------------------------------------------------------- fork

TEST(ClientFork, AChildCanOnlyReadBuffers) {
  LocalNode node;
  auto client = ConnectTo(node.address());
  const std::string bytes(2 << 20, 'x');
  PHALANX_ASSERT_OK(client->Put(Id(1), bytes).Wait());
  PHALANX_ASSERT_OK(client->Put(Id(2), "small").Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(Buffer large, client->Get(Id(1)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(Buffer small, client->Get(Id(2)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer writer, client->Create(Id(3), 2 << 20));
  Future<Buffer> waiting = client->Get(Id(4));
  const auto refused = [](const absl::Status& status) {
    return absl::IsFailedPrecondition(status);
  };
  EXPECT_EQ(InChild([&] {
              if (large.view() != bytes || small.view() != "small") return 1;
              if (!refused(client->Put(Id(5), "x").Wait().status())) return 2;
              if (!refused(client->Get(Id(1)).Wait().status())) return 3;
              if (!refused(waiting.Wait().status()) || waiting.ready()) return 4;
              if (!refused(client->Create(Id(6), 1).status())) return 5;
              if (!refused(writer.Publish(1))) return 6;
              if (!refused(writer.Seal().Wait().status())) return 7;
              if (!refused(client->GetMany(std::vector<ObjectId>{Id(1)}).Wait().status())) return 8;
              if (!refused(client->GetStream(Id(1)).status())) return 9;
              waiting.Cancel();
              waiting.OnReady([](const absl::StatusOr<Buffer>&) {});
              if (client->Poll() != 0 || client->fd() != -1) return 10;
              client->Close();
              large = Buffer();
              small = Buffer();
              { WritableBuffer drop = std::move(writer); }
              waiting = Future<Buffer>();
              client.reset();
              return 0;
            }),
            0);
  // The parent saw none of that.
  EXPECT_TRUE(large.view() == bytes);
  std::fill(writer.span().begin(), writer.span().end(), 'w');
  PHALANX_EXPECT_OK(writer.Seal().Wait());
  PHALANX_EXPECT_OK(client->Put(Id(4), "came").Wait());
  EXPECT_EQ(waiting.Wait()->view(), "came");
}

TEST(ClientFork, AChildCanHaveItsOwnClient) {
  LocalNode node;
  const auto client = ConnectTo(node.address());
  PHALANX_ASSERT_OK(client->Put(Id(1), "bytes").Wait());
  EXPECT_EQ(InChild([&] {
              const auto own = ConnectTo(node.address());
              return own->Get(Id(1)).Wait()->view() == "bytes" ? 0 : 1;
            }),
            0);
}

TEST(ClientFork, ForkingWhileThreadsWaitIsSafe) {
#ifdef PHALANX_TSAN
  GTEST_SKIP() << "ThreadSanitizer allows no new thread in the child of a process with threads";
#endif
  LocalNode node;
  const auto client = ConnectTo(node.address());
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        EXPECT_THAT(client->Put(Id(t * 100000 + i), std::string(100000, 'x')).Wait(), IsOk());
        EXPECT_THAT(client->Get(Id(t * 100000 + i)).Wait(), IsOk());
        EXPECT_THAT(client->Delete(Id(t * 100000 + i)).Wait(), IsOk());
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(InChild([&] {
                if (!absl::IsFailedPrecondition(client->Get(Id(1)).Wait().status())) return 1;
                const auto own = Client::Connect({.address = node.address(),
                                                  .name_space = "default",
                                                  .connect_timeout = absl::Seconds(10),
                                                  .callback_thread = true,
                                                  .embedded_capacity = 0,
                                                  .embedded_executable = ""});
                return own.ok() ? 0 : 2;
              }),
              0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(ClientFork, PagesThatAChildCanSeeAreNotReused) {
  for (const bool forked : {false, true}) {
    LocalNode node;
    const auto client = ConnectTo(node.address());
    PHALANX_ASSERT_OK(client->Put(Id(1), std::string(2 << 20, 'x')).Wait());
    {
      PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, client->Get(Id(1)).Wait());
      if (forked) {
        EXPECT_EQ(InChild([] { return 0; }), 0);
      }
    }
    PHALANX_ASSERT_OK(client->Delete(Id(1)).Wait());
    node.Await([&] { return node.memory().stats().allocated_bytes == 0; });
    EXPECT_EQ(node.memory_stats().pooled_bytes, forked ? 0u : uint64_t{2} << 20);
  }
}

TEST(ClientFork, AChildDoesNotKeepTheConnectionOpen) {
  LocalNode node;
  auto client = ConnectTo(node.address());
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(hold[1]);
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  client.reset();
  node.Await([&] { return node.service().stats().clients == 0; });
  close(hold[1]);
  waitpid(child, nullptr, 0);
  close(hold[0]);
}

TEST(ClientFork, AChildHasNoWritableMapping) {
  LocalNode node;
  const auto client = ConnectTo(node.address());
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer writer, client->Create(Id(1), 2 << 20));
  char* const place = writer.span().data();
  EXPECT_EQ(InChild([&] {
              signal(SIGSEGV, SIG_DFL);
              place[0] = 'x';
              return 0;
            }),
            -1);
  place[0] = 'y';
  PHALANX_EXPECT_OK(writer.Seal().Wait());
}

}  // namespace
}  // namespace phalanx
