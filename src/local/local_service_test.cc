// The socket with raw bytes, from clients that can break every rule.
#include "src/local/local_service.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/check.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"
#include "src/local/testing/raw_client.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::object_store::testing::RawClient;
using ::phalanx::object_store::testing::SocketFolder;
using ::phalanx::testing::StatusIs;
using ::phalanx::testing::TestSeed;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }

local::Put SmallPut(uint64_t request, const ObjectId& id, absl::string_view bytes) {
  return {request, {id, false, 1, absl::InfiniteDuration(), ""}, bytes};
}

LocalServiceOptions Options(const std::string& path) {
  LocalServiceOptions options;
  options.socket_path = path;
  return options;
}

// Expects that the node still serves other clients.
void ExpectServes(LocalNode& node, int i = 1000) {
  RawClient client(node);
  ASSERT_TRUE(client.Send(SmallPut(1, Id(i), "bytes")));
  const auto answer = client.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(std::holds_alternative<local::PutDone>(*answer));
  EXPECT_TRUE(node.CheckInvariants().ok());
}

TEST(LocalService, AnswersAPutAndAGet) {
  LocalNode node;
  RawClient client(node);
  client.Send(SmallPut(1, Id(1), "bytes"));
  EXPECT_TRUE(std::holds_alternative<local::PutDone>(*client.Receive()));
  client.Send(local::Get{2, Id(1)});
  const auto answer = client.Receive();
  ASSERT_TRUE(answer.has_value());
  ASSERT_TRUE(std::holds_alternative<local::Object>(*answer));
  EXPECT_EQ(std::get<local::Object>(*answer).bytes, "bytes");
  EXPECT_EQ(node.store_stats().pins, 0u) << "an inline answer pins nothing";
}

TEST(LocalService, ANameThatIsNotTheObjectsClosesTheClient) {
  LocalNode node;
  local::Put put = SmallPut(1, Id(1), "bytes");
  put.object.name = ObjectName::Of("default", "somebody else's");
  local::Get get{1, Id(1)};
  get.name = put.object.name;
  local::Create create{1, put.object, 10};
  local::Reduce reduce;
  reduce.target.id = Id(1);
  reduce.target.name = put.object.name;
  for (const local::Request& request :
       {local::Request(put), local::Request(get), local::Request(create), local::Request(reduce)}) {
    RawClient client(node);
    client.Send(request);
    const auto answer = client.Receive();
    ASSERT_TRUE(answer.has_value() && std::holds_alternative<local::Goodbye>(*answer));
    EXPECT_THAT(std::string(std::get<local::Goodbye>(*answer).message),
                ::testing::HasSubstr("somebody else's"));
  }
  EXPECT_EQ(node.store_stats().objects, 0u);
  ExpectServes(node);
}

TEST(LocalService, OnlyTheOwnerCanUseTheSocket) {
  LocalNode node;
  struct stat found {};
  ASSERT_EQ(stat(node.socket().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST(LocalService, CreatesAPrivateFolder) {
  const SocketFolder parent;
  const std::string folder = parent.path() + "/private";
  LocalNode node(uint64_t{64} << 20, folder + "/node.sock");
  struct stat found {};
  ASSERT_EQ(stat(folder.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
}

TEST(LocalService, RejectsAFolderThatOtherUsersCanEnter) {
  const SocketFolder parent;
  const std::string folder = parent.path() + "/public";
  const std::string path = folder + "/node.sock";
  ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
  LocalNode node;
  absl::Status started;
  node.OnLoop([&] {
    net::EventLoop loop;
    started =
        LocalService::Start(loop, {node.store(), node.reducer(), {node.members(), node.messages()}},
                            Options(path))
            .status();
  });
  EXPECT_THAT(started, StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("755")));
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(LocalService, ReplacesADeadSocketButNotOneInUse) {
  const SocketFolder folder;
  const std::string path = folder.path() + "/node.sock";
  {
    LocalNode node(uint64_t{64} << 20, path);
    absl::Status second;
    node.OnLoop([&] {
      net::EventLoop loop;
      second = LocalService::Start(
                   loop, {node.store(), node.reducer(), {node.members(), node.messages()}},
                   Options(path))
                   .status();
    });
    EXPECT_THAT(second, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("in use")));
    ExpectServes(node);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the service removes the socket at its end";

  // A killed node leaves a socket without a listener.
  const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(dead);
  LocalNode node(uint64_t{64} << 20, path);
  ExpectServes(node);
}

TEST(LocalService, DoesNotReplaceAFileThatIsNotASocket) {
  const SocketFolder folder;
  const std::string path = folder.path() + "/node.sock";
  close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  LocalNode node;
  node.OnLoop([&] {
    net::EventLoop loop;
    EXPECT_THAT(
        LocalService::Start(loop, {node.store(), node.reducer(), {node.members(), node.messages()}},
                            Options(path))
            .status(),
        StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("not a socket")));
    EXPECT_THAT(
        LocalService::Start(loop, {node.store(), node.reducer(), {node.members(), node.messages()}},
                            Options(std::string(108, 'x')))
            .status(),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107")));
  });
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
}

TEST(LocalService, RejectsAnotherVersionAndNamesBoth) {
  LocalNode node;
  RawClient client(node, /*greet=*/false);
  client.Send(local::ClientHello{local::kMagic, 99});
  EXPECT_THAT(client.Reason(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("version 99, node node-a ", local::kVersion))));
  ExpectServes(node);
}

TEST(LocalService, ReadsTheLongerHelloOfALaterVersion) {
  LocalNode node;
  RawClient client(node, /*greet=*/false);
  std::string hello;
  local::Encode(local::Request(local::ClientHello{local::kMagic, local::kVersion + 1}), hello);
  hello[0] = static_cast<char>(hello[0] + 5);
  hello += "more!";
  client.SendBytes(hello);
  EXPECT_THAT(client.Reason(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(LocalService, GarbageEndsOnlyTheClientThatSentIt) {
  LocalNode node;
  RawClient bystander(node);
  for (const bool greet : {false, true}) {
    RawClient client(node, greet);
    client.SendBytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(client.Reason(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  bystander.Send(SmallPut(1, Id(1), "bytes"));
  EXPECT_TRUE(std::holds_alternative<local::PutDone>(*bystander.Receive()));
  EXPECT_EQ(node.service_stats().misbehaved, 2u);
}

TEST(LocalService, InvalidRequestsEndTheirClientWithAMessage) {
  LocalNode node;
  const std::vector<std::pair<local::Request, std::string>> wild = {
      {local::Release{12345, true}, "pin 12345 is not held"},
      {local::Publish{99, 10, ""}, "writer 99 is not open"},
      {local::Seal{1, 99, false, false, ""}, "writer 99 is not open"},
      {local::Abort{99}, "writer 99 is not open"},
      {local::ClientHello{}, "second hello"},
  };
  for (const auto& [request, why] : wild) {
    RawClient client(node);
    client.Send(request);
    EXPECT_THAT(client.Reason(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }
  ExpectServes(node);
}

TEST(LocalService, AWriterCannotWriteBeyondItsObject) {
  LocalNode node;
  const auto wild = [&](uint64_t upto, absl::string_view bytes) {
    RawClient client(node);
    client.Send(local::Create{1, {Id(1), false, 1, absl::InfiniteDuration(), ""}, 10});
    const auto answer = client.Receive();
    ASSERT_TRUE(answer && std::holds_alternative<local::Granted>(*answer));
    const uint64_t writer = std::get<local::Granted>(*answer).writer;
    client.Send(local::Publish{writer, upto, bytes});
    EXPECT_THAT(client.Reason(), StatusIs(absl::StatusCode::kInvalidArgument));
  };
  wild(11, "eleven byte");
  wild(5, "more than five");
  wild(UINT64_MAX, "x");
  wild(10, "");
  ExpectServes(node);
  EXPECT_EQ(node.store_stats().pins, 0u);
}

TEST(LocalService, AWriterCannotOverwriteTheNextObject) {
  LocalNode node;
  RawClient client(node);
  RawClient wild(node);
  wild.Send(local::Create{1, {Id(1), false, 1, absl::InfiniteDuration(), ""}, 1000});
  const auto granted = wild.Receive();
  ASSERT_TRUE(granted && std::holds_alternative<local::Granted>(*granted));
  const local::Granted grant = std::get<local::Granted>(*granted);
  // Small objects that are created one after the other are neighbours in the segment.
  const std::string bytes(1000, 'n');
  client.Send(SmallPut(1, Id(2), bytes));
  ASSERT_TRUE(std::holds_alternative<local::PutDone>(*client.Receive()));
  wild.Send(local::Publish{grant.writer, 4000, std::string(4000, 'w')});
  EXPECT_THAT(wild.Reason(), StatusIs(absl::StatusCode::kInvalidArgument));
  client.Send(local::Get{2, Id(2)});
  const auto answer = client.Receive();
  ASSERT_TRUE(answer && std::holds_alternative<local::Object>(*answer));
  EXPECT_EQ(std::get<local::Object>(*answer).bytes, bytes);
}

TEST(LocalService, AnIncompleteRequestHasNoEffect) {
  LocalNode node;
  {
    RawClient client(node);
    std::string frame;
    local::Encode(local::Request(SmallPut(1, Id(1), std::string(1000, 'x'))), frame);
    client.SendBytes(frame.substr(0, 500));
  }
  ExpectServes(node);
  EXPECT_EQ(node.store_stats().objects, 1u) << "the incomplete Put stores no object";
}

TEST(LocalService, SurvivesRandomBytes) {
  const uint64_t seed = TestSeed(11);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  LocalNode node;
  for (int round = 0; round < 200; ++round) {
    RawClient client(node);
    std::string bytes;
    // Frames with a valid length and kind reach more code than noise does.
    for (int frame = 0; frame < 5; ++frame) {
      const size_t length = 1 + random.Below(100);
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(i == 0 ? length : 0));
      bytes.push_back(static_cast<char>(random.Below(16)));
      for (size_t i = 1; i < length; ++i) {
        bytes.push_back(static_cast<char>(random.Chance(0.6) ? 0 : random.Below(256)));
      }
    }
    client.SendBytes(bytes);
  }
  ExpectServes(node);
}

TEST(LocalService, StopsReadingFromAClientThatDoesNotRead) {
  LocalNode node;
  RawClient writer(node);
  writer.Send(SmallPut(1, Id(1), std::string(60000, 'x')));
  ASSERT_TRUE(writer.Receive().has_value());

  RawClient client(node);
  // Each request of 60 bytes has an answer of 60 kB; sent until the node stops reading.
  fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  uint64_t sent_gets = 0;
  std::string frame;
  bool full = false;
  while (!full) {
    frame.clear();
    local::Encode(local::Request(local::Get{sent_gets + 1, Id(1)}), frame);
    const ssize_t sent = send(client.fd(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(frame.size())) {
      ++sent_gets;
      continue;
    }
    ASSERT_LT(sent, 0) << "small frames are accepted whole";
    // The node can still be about to read: it has stopped when its pins stay the same.
    const size_t before = node.store_stats().pins;
    full = before >= kMaxWaitingAnswers && node.store_stats().pins == before;
  }
  EXPECT_LT(node.store_stats().pins, kMaxWaitingAnswers + 4096);
  ExpectServes(node);
  // When the client reads again, it gets every answer.
  fcntl(client.fd(), F_SETFL, 0);
  for (uint64_t i = 1; i <= sent_gets; ++i) {
    const auto answer = client.Receive();
    ASSERT_TRUE(answer.has_value());
    ASSERT_EQ(std::get<local::Object>(*answer).request, i);
  }
  EXPECT_EQ(node.store_stats().pins, 0u);
}

TEST(LocalService, ReadsWhatAClientSentBeforeItClosedItsSocket) {
  LocalNode node;
  RawClient reader(node);
  reader.Send(SmallPut(1, Id(0), std::string(60000, 'x')));
  ASSERT_TRUE(reader.Receive().has_value());
  uint64_t sent = 0;
  {
    RawClient client(node);
    // As long as the node waits for room for its answers it reads nothing, and the answers cannot
    // be sent any more when the client has gone.
    fcntl(client.fd(), F_SETFL, O_NONBLOCK);
    uint64_t read = 0;
    for (int refused = 0; refused < 100;) {
      std::string frames;
      local::Encode(local::Request(local::Get{2 * sent + 1, Id(0)}), frames);
      local::Encode(local::Request(SmallPut(2 * sent + 2, Id(static_cast<int>(sent) + 1), "x")),
                    frames);
      const ssize_t taken = send(client.fd(), frames.data(), frames.size(), MSG_NOSIGNAL);
      if (taken == static_cast<ssize_t>(frames.size())) {
        ++sent;
        refused = 0;
        continue;
      }
      ASSERT_LT(taken, 0) << "small frames are accepted whole";
      // The node can still be about to read.
      const uint64_t now = node.store_stats().objects;
      refused = now == std::exchange(read, now) ? refused + 1 : 0;
    }
    EXPECT_LT(node.store_stats().objects, sent) << "the node has read all";
  }
  local::Get last{2, Id(static_cast<int>(sent))};
  last.timeout = absl::Seconds(60);
  reader.Send(last);
  const auto answer = reader.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(std::holds_alternative<local::Object>(*answer));
  EXPECT_EQ(node.store_stats().objects, sent + 1);
  ExpectServes(node, static_cast<int>(sent) + 1000);
}

TEST(LocalService, HoldsOfOneReadLeaveTogetherBeforeOtherRequests) {
  using Kind = v1::NodeMessage::KindCase;
  LocalNode node;
  RawClient client(node);
  const size_t before = node.sent().size();
  std::string requests;
  for (int i = 1; i <= 2; ++i) {
    local::Encode(local::Claim{Id(i), NodeKey{9, 1}, static_cast<uint64_t>(i)}, requests);
  }
  local::Encode(local::Get{1, Id(1)}, requests);
  local::Encode(local::Hold{{Id(3)}}, requests);
  local::Encode(local::Delete{2, Id(4), absl::Minutes(1)}, requests);
  local::Encode(local::Hold{{Id(5)}}, requests);
  ASSERT_TRUE(client.SendBytes(requests));
  // The answer to the Delete follows the whole read.
  ASSERT_TRUE(client.Receive().has_value());
  std::vector<v1::NodeMessage> sent = node.sent();
  sent.erase(sent.begin(), sent.begin() + static_cast<ptrdiff_t>(before));
  std::vector<Kind> kinds;
  for (const v1::NodeMessage& message : sent) kinds.push_back(message.kind_case());
  ASSERT_THAT(kinds, ElementsAre(Kind::kHold, Kind::kClaim, Kind::kWant, Kind::kDeleteRequest,
                                 Kind::kHold));
  EXPECT_EQ(sent[0].hold().object_ids().size(), 3 * ObjectId::kSize);
  EXPECT_THAT(sent[1].claim().numbers(), ElementsAre(1, 2));
}

TEST(LocalService, ThousandsOfGetsCanWait) {
  LocalNode node;
  RawClient client(node);
  constexpr int kGets = 20000;
  std::string requests;
  for (int i = 0; i < kGets; ++i) {
    local::Encode(local::Request(local::Get{static_cast<uint64_t>(i) + 1, Id(i % 100)}), requests);
  }
  ASSERT_TRUE(client.SendBytes(requests));
  RawClient writer(node);
  for (int i = 0; i < 100; ++i) writer.Send(SmallPut(static_cast<uint64_t>(i) + 1, Id(i), "bytes"));
  std::vector<bool> answered(kGets + 1);
  for (int i = 0; i < kGets; ++i) {
    const auto answer = client.Receive();
    ASSERT_TRUE(answer.has_value());
    answered[std::get<local::Object>(*answer).request] = true;
  }
  EXPECT_EQ(std::count(answered.begin(), answered.end(), true), kGets);
}

TEST(LocalService, RefusesPutsBeyondTheLimitAndKeepsReading) {
  LocalNode node(uint64_t{8} << 20);
  RawClient client(node);
  // The node is full, so these wait; beyond the window they are refused at once.
  const std::string bytes(1 << 19, 'x');
  for (uint64_t i = 1; i <= 90; ++i) client.Send(SmallPut(i, Id(static_cast<int>(i)), bytes));
  int refused = 0;
  int stored = 0;
  while (refused == 0 || stored < 15) {
    const auto answer = client.Receive();
    ASSERT_TRUE(answer.has_value());
    if (const auto* failed = std::get_if<local::Failed>(&*answer)) {
      EXPECT_EQ(failed->code, absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(failed->message), HasSubstr("earlier Puts"));
      ++refused;
    } else {
      ++stored;
    }
  }
  EXPECT_TRUE(node.CheckInvariants().ok());
}

TEST(LocalService, RefusesClientsWithoutADescriptor) {
  LocalNode node;
  RawClient before(node);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int highest = dup(before.fd());
  close(highest);
  const rlimit tight{static_cast<rlim_t>(highest + 4), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  // This process is node and client at once: a forked child makes the connections.
  const pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_NOFILE, &limit);
    int refused = 0;
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(std::make_unique<RawClient>(node, false));
    for (auto& client : clients) {
      client->Send(local::ClientHello{});
      const auto hello = client->Receive();
      if (!hello || std::get<local::NodeHello>(*hello).code != absl::StatusCode::kOk) ++refused;
    }
    _exit(refused >= 5 && refused < 10 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(status, 0);
  EXPECT_GE(node.service_stats().refused, 5u);
  ExpectServes(node);
}

TEST(LocalService, RefusesAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  // A folder that another user can reach.
  const SocketFolder folder("/tmp");
  LocalNode node(uint64_t{64} << 20, folder.path() + "/node.sock");
  // Even with a socket that is open to all.
  ASSERT_EQ(chmod(node.socket().c_str(), 0666), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (seteuid(65534) != 0) _exit(2);
    RawClient client(node, /*greet=*/false);
    if (!client.connected()) _exit(3);
    const absl::Status reason = client.Reason();
    _exit(absl::IsPermissionDenied(reason) && absl::StrContains(reason.message(), "65534") ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(node.service_stats().refused, 1u);
}

TEST(LocalService, DoesNotReuseAFileThatAVanishedClientMapped) {
  LocalNode node;
  {
    RawClient writer(node);
    for (const int i : {1, 2}) {
      writer.Send(local::Create{1, {Id(i), false, 1, absl::InfiniteDuration(), ""}, 2 << 20});
      auto answer = writer.Receive();
      while (answer && std::holds_alternative<local::File>(*answer)) answer = writer.Receive();
      ASSERT_TRUE(answer && std::holds_alternative<local::Granted>(*answer));
      writer.Send(local::Seal{2, std::get<local::Granted>(*answer).writer, false, false, ""});
      ASSERT_TRUE(std::holds_alternative<local::PutDone>(*writer.Receive()));
    }
    RawClient reader(node);
    reader.Send(local::Get{1, Id(1)});
    ASSERT_TRUE(std::holds_alternative<local::File>(*reader.Receive()));
    ASSERT_TRUE(std::holds_alternative<local::Mapped>(*reader.Receive()));
    EXPECT_EQ(node.store_stats().pins, 1u);
  }
  node.Await([&] { return node.service().stats().clients == 0; });
  EXPECT_EQ(node.store_stats().pins, 0u);
  // Both are deleted; only the file that no client had mapped is kept warm.
  RawClient client(node);
  for (const int i : {1, 2}) {
    client.Send(local::Delete{static_cast<uint64_t>(i), Id(i), absl::Seconds(10)});
    ASSERT_TRUE(std::holds_alternative<local::Counted>(*client.Receive()));
  }
  node.Await([&] { return node.memory().stats().allocated_bytes == 0; });
  EXPECT_EQ(node.memory_stats().pooled_bytes, uint64_t{2} << 20);
}

// Returns the descriptor of the next answer, and drops the answer.
int ReceiveDescriptor(int socket) {
  char bytes[256];
  iovec rest{bytes, sizeof(bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &rest;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int descriptor = -1;
  if (recvmsg(socket, &message, 0) <= 0 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return descriptor;
}

// A process that maps the segment of an object, breaks its connection without a message, and ends
// when the test asks for it.
class VanishedClient {
 public:
  VanishedClient(const LocalNode& node, const ObjectId& id) {
    PHALANX_CHECK(pipe(end_pipe_) == 0 && pipe(mapped_pipe_) == 0, "pipes");
    child_ = fork();
    if (child_ != 0) {
      close(mapped_pipe_[1]);
      char byte;
      PHALANX_CHECK(read(mapped_pipe_[0], &byte, 1) == 1, "the object is mapped");
      return;
    }
    close(end_pipe_[1]);
    {
      RawClient client(node);
      client.Send(local::Get{1, id});
      const int file = ReceiveDescriptor(client.fd());
      const bool mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED;
      close(file);
      if (!mapped) _exit(1);
    }
    char byte = 0;
    _exit(write(mapped_pipe_[1], "!", 1) == 1 && read(end_pipe_[0], &byte, 1) == 0 ? 0 : 1);
  }
  ~VanishedClient() { End(); }
  void End() {
    if (child_ == 0) return;
    close(end_pipe_[1]);
    int status = 0;
    waitpid(std::exchange(child_, 0), &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    close(end_pipe_[0]);
    close(mapped_pipe_[0]);
  }

 private:
  int end_pipe_[2];
  int mapped_pipe_[2];
  pid_t child_ = -1;
};

TEST(LocalService, ReusesASegmentThatAVanishedClientMappedWhenItsProcessHasEnded) {
  LocalNode node;
  RawClient client(node);
  for (const int i : {1, 2}) {
    client.Send(SmallPut(1, Id(i), std::string(100000, 'a')));
    ASSERT_TRUE(std::holds_alternative<local::PutDone>(*client.Receive()));
  }
  VanishedClient vanished(node, Id(1));
  node.Await([&] { return node.service().stats().clients == 1; });
  client.Send(local::Delete{2, Id(1), absl::Seconds(10)});
  ASSERT_TRUE(std::holds_alternative<local::Counted>(*client.Receive()));
  node.Await([&] { return node.store().stats().objects == 1; });
  EXPECT_GE(node.memory_stats().condemned_bytes, 100000u);
  vanished.End();
  node.Await([&] { return node.memory().stats().condemned_bytes == 0; });
}

TEST(LocalService, AClientThatLeavesKeepsThePinsItNames) {
  LocalNode node;
  RawClient client(node);
  client.Send(SmallPut(1, Id(1), std::string(100000, 'a')));
  ASSERT_TRUE(std::holds_alternative<local::PutDone>(*client.Receive()));
  std::vector<uint64_t> pins;
  for (uint64_t i = 2; i < 5; ++i) {
    client.Send(local::Get{i, Id(1)});
    auto answer = client.Receive();
    if (answer && std::holds_alternative<local::File>(*answer)) answer = client.Receive();
    ASSERT_TRUE(answer && std::holds_alternative<local::Mapped>(*answer));
    pins.push_back(std::get<local::Mapped>(*answer).pin);
  }
  client.Send(local::Get{9, Id(2)});
  client.Send(local::Leave{true, {pins[0]}});
  client.Send(local::Leave{false, {pins[1]}});
  node.Await([&] { return node.store().stats().pins == 2; });
  EXPECT_EQ(node.store_stats().waiting_gets, 0u);
  client.Send(local::Release{pins[0], true});
  node.Await([&] { return node.store().stats().pins == 1; });
  client.Send(local::Stat{10, Id(1), false, false, absl::Seconds(1)});
  EXPECT_THAT(client.Reason(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("left")));
  node.Await([&] { return node.store().stats().pins == 0; });
}

// Creates a 2 MiB object with a file of its own. Returns the number of its writer.
uint64_t BeginWriting(RawClient& client, uint64_t request, const ObjectId& id) {
  client.Send(local::Create{request, {id, false, 1, absl::InfiniteDuration(), ""}, 2 << 20});
  auto answer = client.Receive();
  while (answer && std::holds_alternative<local::File>(*answer)) answer = client.Receive();
  EXPECT_TRUE(answer && std::holds_alternative<local::Granted>(*answer));
  return std::get<local::Granted>(*answer).writer;
}

TEST(LocalService, DoesNotReuseAFileThatALeavingClientWasWriting) {
  LocalNode node;
  const auto pooled = [&] { return node.memory().stats().pooled_bytes; };
  RawClient client(node);
  client.Send(local::Abort{BeginWriting(client, 1, Id(1))});
  node.Await([&] { return pooled() > 0; });
  BeginWriting(client, 2, Id(2));
  node.Await([&] { return pooled() == 0; });
  client.Send(local::Leave{false, {}});
  node.Await([&] { return node.memory().stats().allocated_bytes == 0; });
  EXPECT_EQ(pooled(), 0u) << "the client can still write there";
}

}  // namespace
}  // namespace phalanx::object_store
