// Shards behind their one loopback port, with nodes over plain TCP and over gRPC, and with tools.
#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/v1/directory.grpc.pb.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/grpc/port_multiplexer.h"
#include "src/directory/grpc/shard_connector.h"
#include "src/directory/grpc/tools_client.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/directory/session/directory_client.h"
#include "src/net/loop/event_loop.h"
#include "src/net/stream/address.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

SessionConfig Config() {
  SessionConfig config;
  config.secret = "a secret";
  return config;
}

// Runs `task` on the loop and waits for it.
void On(net::EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// Waits until `done` is true; checks it on the loop every millisecond. False after kPatience.
bool Until(net::EventLoop& loop, const std::function<bool()>& done) {
  std::promise<bool> result;
  std::function<void(Instant)> ask = [&](Instant deadline) {
    if (done()) return result.set_value(true);
    if (loop.Now() > deadline) return result.set_value(false);
    loop.RunAt(loop.Now() + absl::Milliseconds(1), [&ask, deadline] { ask(deadline); });
  };
  loop.Post([&] { ask(loop.Now() + kPatience); });
  return result.get_future().get();
}

// A shard and its server.
struct Directory {
  explicit Directory(const SessionConfig& config = Config(),
                     const net::Address& address = "127.0.0.1:0") {
    PHALANX_EXPECT_OK(loop.Start("shard"));
    On(loop, [&] {
      shard = std::make_unique<Shard>(loop, config, DirectoryOptions{}, Random(SystemRandom64()));
    });
    Listen(address);
  }
  ~Directory() {
    StopListening();
    On(loop, [this] { shard.reset(); });
    loop.Stop();
  }
  void Listen(const net::Address& address) {
    On(loop, [&] {
      auto listening = PortMultiplexer::Listen(address, loop, network, *shard);
      PHALANX_ASSERT_OK(listening);
      server = *std::move(listening);
    });
  }
  absl::Status WhyNotAlsoOn(const net::Address& address) {
    absl::Status status;
    On(loop, [&] { status = PortMultiplexer::Listen(address, loop, network, *shard).status(); });
    return status;
  }
  void StopListening() {
    On(loop, [this] { server.reset(); });
  }
  size_t UnclassifiedConnections() {
    size_t count = 0;
    On(loop, [&] { count = server->unclassified_connections(); });
    return count;
  }
  v1::GetStatusResponse Status() {
    v1::GetStatusResponse status;
    On(loop, [&] { shard->FillStatus(&status); });
    return status;
  }
  uint64_t Counter(const std::string& name) { return Status().counters().at(name); }

  net::EventLoop loop;
  net::TcpNetwork network;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<PortMultiplexer> server;
};

// A node on a loop of its own: registers without state, sends queries and records the shard's
// messages.
struct Node {
  explicit Node(const net::Address& address, const SessionConfig& config = Config(),
                uint64_t number = 1)
      : Node([&](Node& node) { return NewByteShardConnector(node.network, address); }, config,
             number) {}
  using MakeConnector = std::function<std::unique_ptr<ShardConnector>(Node&)>;
  explicit Node(const MakeConnector& connector, const SessionConfig& config = Config(),
                uint64_t number = 1)
      : number(number) {
    PHALANX_EXPECT_OK(loop.Start("node"));
    v1::NodeInfo info;
    info.mutable_key()->set_node(number);
    info.mutable_key()->set_incarnation(1);
    info.set_name(absl::StrCat("n", number));
    On(loop, [&] {
      client = std::make_unique<DirectoryClient>(
          loop, connector(*this), config, info, Random(number),
          DirectoryClient::Handlers{
              .on_register =
                  [this] {
                    ++registered;
                    v1::NodeMessage message;
                    message.mutable_register_begin();
                    client->Send(v1::NodeMessage(message));
                    message.mutable_register_end();
                    client->Send(v1::NodeMessage(message));
                  },
              .on_message =
                  [this](const v1::ShardMessage& message) {
                    if (message.has_verdict()) ++verdicts;
                  },
              .on_connection = [this](bool, const absl::Status& why) { states.push_back(why); }});
    });
  }
  ~Node() {
    On(loop, [this] { client.reset(); });
    loop.Stop();
  }

  bool WaitConnected() {
    return Until(loop, [this] { return client->connected(); });
  }
  absl::Status WaitRefused() {
    EXPECT_TRUE(Until(loop, [this] { return !states.empty(); }));
    return states.empty() ? absl::OkStatus() : states[0];
  }
  // Announces a small object; the shard replies with a verdict.
  void Put(uint64_t object) {
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    std::string id(20, 'i');
    id.replace(0, sizeof(object), reinterpret_cast<const char*>(&object), sizeof(object));
    create.set_object_id(id);
    create.mutable_generation()->mutable_creator()->set_node(number);
    create.mutable_generation()->mutable_creator()->set_incarnation(1);
    create.mutable_generation()->set_sequence(object);
    create.mutable_info()->set_size_bytes(4);
    create.mutable_info()->set_slices(1);
    create.set_complete(true);
    create.set_inline_bytes("four");
    create.set_has_inline(true);
    client->Send(std::move(message));
  }
  bool WaitVerdicts(int count) {
    return Until(loop, [this, count] { return verdicts == count; });
  }

  const uint64_t number;
  net::EventLoop loop;
  net::TcpNetwork network;
  std::unique_ptr<DirectoryClient> client;
  // Used only on the loop.
  int registered = 0;
  int verdicts = 0;
  std::vector<absl::Status> states;
};

Node::MakeConnector OverGrpc(const net::Address& address) {
  return [address](Node&) { return NewGrpcShardConnector(address); };
}

uint16_t PortOf(const net::Address& address) { return net::ParseHostPort(address)->port; }

// A plain TCP connection to the address.
int DialRaw(const net::Address& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(PortOf(address));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

std::unique_ptr<v1::Directory::Stub> RawStub(const net::Address& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  return v1::Directory::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

TEST(DirectoryServerTest, ANodeRegistersAndIsAnswered) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  On(node.loop, [&] { node.Put(1); });
  EXPECT_TRUE(node.WaitVerdicts(1));
  EXPECT_EQ(directory.Status().nodes_size(), 1);
}

TEST(DirectoryServerTest, ServesNodesOnPlainTcpAndOnGrpcAtOnePort) {
  Directory directory;
  Node plain(directory.server->address(), Config(), 1);
  Node grpc(OverGrpc(directory.server->address()), Config(), 2);
  ASSERT_TRUE(plain.WaitConnected());
  ASSERT_TRUE(grpc.WaitConnected());
  On(plain.loop, [&] { plain.Put(1); });
  On(grpc.loop, [&] { grpc.Put(2); });
  EXPECT_TRUE(plain.WaitVerdicts(1));
  EXPECT_TRUE(grpc.WaitVerdicts(1));
  EXPECT_EQ(directory.Status().nodes_size(), 2);
}

// A directory that is older than plain TCP streams, or another program.
TEST(DirectoryServerTest, AServerThatSpeaksOnlyHttp2IsNoDirectory) {
  Directory directory;
  auto other = GrpcDirectoryServer::ListenForStreams(
      directory.loop, [](const std::unique_ptr<ShardStream>&) { ADD_FAILURE() << "no stream"; });
  PHALANX_ASSERT_OK(other);
  Node node((*other)->address());
  EXPECT_THAT(node.WaitRefused(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr((*other)->address()), HasSubstr("an older version"))));
}

TEST(DirectoryServerTest, SilentConnectionsDoNotBlockOthers) {
  Directory directory;
  std::vector<int> silent;
  // One letter of the preamble admits no connection.
  for (size_t i = 0; i < kMaxUnclassifiedConnections / 2; ++i) {
    silent.push_back(DialRaw(directory.server->address()));
    EXPECT_EQ(send(silent.back(), "P", 1, MSG_NOSIGNAL), 1);
  }
  EXPECT_TRUE(Until(directory.loop, [&] {
    return directory.server->unclassified_connections() == kMaxUnclassifiedConnections / 2;
  }));
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  EXPECT_EQ(directory.UnclassifiedConnections(), kMaxUnclassifiedConnections / 2);
  for (const int fd : silent) close(fd);
  EXPECT_TRUE(
      Until(directory.loop, [&] { return directory.server->unclassified_connections() == 0; }));
}

TEST(DirectoryServerTest, StrangersOnHttp2AreCountedAndKeepNoNodeOnPlainTcpOut) {
  Directory directory;
  On(directory.loop, [&] {
    directory.server = *PortMultiplexer::Listen("127.0.0.1:0", directory.loop, directory.network,
                                                *directory.shard, /*max_grpc_connections=*/2);
  });
  const net::Address& address = directory.server->address();
  const std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  char answer[1024];
  std::vector<int> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(DialRaw(address));
    ASSERT_EQ(send(strangers[i], hello.data(), hello.size(), MSG_NOSIGNAL), ssize_t(hello.size()));
    // The settings frame with which HTTP/2 begins, or the end.
    EXPECT_EQ(recv(strangers[i], answer, sizeof(answer), 0) > 0, i < 2) << i;
  }
  Node plain(address, Config(), 1);
  EXPECT_TRUE(plain.WaitConnected());
  for (const int fd : strangers) close(fd);
  Node grpc(OverGrpc(address), Config(), 2);
  EXPECT_TRUE(grpc.WaitConnected()) << "who has gone does not count";
}

TEST(DirectoryServerTest, ThousandsOfMessagesTravelInBatches) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  On(node.loop, [&] {
    for (uint64_t i = 1; i <= 10000; ++i) node.Put(i);
  });
  EXPECT_TRUE(node.WaitVerdicts(10000));
  EXPECT_EQ(directory.Status().objects(), 10000);
}

TEST(DirectoryServerTest, ABrokenStreamIsResumed) {
  SessionConfig config = Config();
  // The session outlives a busy machine's pauses.
  config.lease = absl::Seconds(6);
  Directory directory(config);
  const net::Address address = directory.server->address();
  Node node(OverGrpc(address), config);
  ASSERT_TRUE(node.WaitConnected());
  // gRPC's streams end with their server, but the shard's sessions do not.
  directory.StopListening();
  ASSERT_TRUE(Until(node.loop, [&] { return !node.client->connected(); }));
  On(node.loop, [&] { node.Put(1); });
  directory.Listen(address);
  EXPECT_TRUE(node.WaitVerdicts(1));
  EXPECT_EQ(directory.Counter("sessions_resumed"), 1);
  On(node.loop, [&] { EXPECT_EQ(node.registered, 1); });
}

TEST(DirectoryServerTest, AShardThatRestartsOnItsPortIsFoundWithinAHundredMilliseconds) {
  auto directory = std::make_unique<Directory>();
  const net::Address address = directory->server->address();
  Node node(address);
  ASSERT_TRUE(node.WaitConnected());
  absl::Duration took = absl::InfiniteDuration();
  int restarts = 0;
  // Repeats if the time could come from other work on the machine.
  for (; restarts < 3 && took >= absl::Milliseconds(100); ++restarts) {
    directory.reset();
    ASSERT_TRUE(Until(node.loop, [&] { return !node.client->connected(); }));
    // Long enough for a transport with exponential backoff to have doubled its delay a few times.
    Instant later;
    On(node.loop, [&] { later = node.loop.Now() + absl::Milliseconds(700); });
    ASSERT_TRUE(Until(node.loop, [&] { return node.loop.Now() > later; }));
    directory = std::make_unique<Directory>(Config(), address);
    Instant listening, connected;
    On(node.loop, [&] { listening = node.loop.Now(); });
    ASSERT_TRUE(node.WaitConnected());
    On(node.loop, [&] { connected = node.loop.Now(); });
    took = connected - listening;
  }
  EXPECT_LT(took, absl::Milliseconds(100));
  On(node.loop, [&] { EXPECT_EQ(node.registered, 1 + restarts); });
}

TEST(DirectoryServerTest, ADirectoryThatIsNotThereIsUnavailableWithItsAddress) {
  Node node("127.0.0.1:1");
  EXPECT_THAT(node.WaitRefused(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
}

TEST(DirectoryServerTest, MismatchesAreRefusedWithBothSidesNamed) {
  Directory directory;
  const net::Address& address = directory.server->address();
  SessionConfig other = Config();
  other.cluster_id = "blue";
  EXPECT_THAT(Node(address, other).WaitRefused(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("default"), HasSubstr("blue"))));
  other = Config();
  other.protocol_version = 9;
  EXPECT_THAT(
      Node(address, other).WaitRefused(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(absl::StrCat("version is ", SessionConfig().protocol_version)),
                     HasSubstr("is 9"))));
  other = Config();
  other.num_shards = 2;
  EXPECT_THAT(Node(address, other).WaitRefused(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("shards is 1"), HasSubstr("is 2"))));
  other = Config();
  other.secret = "another";
  EXPECT_THAT(Node(address, other).WaitRefused(), StatusIs(absl::StatusCode::kPermissionDenied));
  other.secret = "";
  EXPECT_THAT(Node(address, other).WaitRefused(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(directory.Status().nodes_size(), 0);
}

TEST(DirectoryServerTest, AProofThatWasRecordedIsRefused) {
  Directory directory;
  const auto stub = RawStub(directory.server->address());
  v1::NodeInfo info;
  info.mutable_key()->set_node(1);
  info.mutable_key()->set_incarnation(1);
  info.set_name("n1");
  NodeSession session(Config(), info);
  session.StreamOpened(std::string(32, 'n'), Instant());
  const v1::NodeFrame hello = *session.NextFrame(Instant());
  v1::ShardFrame answer;

  grpc::ClientContext first;
  auto stream = stub->Session(&first);
  ASSERT_TRUE(stream->Write(hello) && stream->Read(&answer));
  PHALANX_ASSERT_OK(session.OnFrame(answer, Instant()));
  const v1::NodeFrame proof = *session.NextFrame(Instant());
  ASSERT_TRUE(stream->Write(proof) && stream->Read(&answer));
  EXPECT_TRUE(answer.has_welcome());

  grpc::ClientContext second;
  auto replay = stub->Session(&second);
  ASSERT_TRUE(replay->Write(hello) && replay->Read(&answer));
  EXPECT_TRUE(answer.has_challenge());
  ASSERT_TRUE(replay->Write(proof));
  // A frame reports the refusal first, unless the stream was still busy with the challenge.
  if (replay->Read(&answer)) {
    EXPECT_TRUE(answer.has_refused());
    EXPECT_FALSE(replay->Read(&answer));
  }
  EXPECT_EQ(replay->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(DirectoryServerTest, GarbageOnThePortBreaksNoSession) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  Random random(3);
  for (int i = 0; i < 20; ++i) {
    const int fd = DialRaw(directory.server->address());
    // Some of the bytes after the greeting of HTTP/2, so that its frames are garbage.
    std::string bytes = i % 2 == 0 ? "" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for (int j = 0; j < 4096; ++j) bytes.push_back(static_cast<char>(random.Next()));
    EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    shutdown(fd, SHUT_WR);
    char rest[512];
    while (recv(fd, rest, sizeof(rest), 0) > 0) {
    }
    close(fd);
  }
  On(node.loop, [&] { node.Put(1); });
  EXPECT_TRUE(node.WaitVerdicts(1));
  On(node.loop, [&] { EXPECT_EQ(node.states.size(), 1); });
}

TEST(DirectoryServerTest, AFrameThatIsTooLargeEndsItsStream) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  const auto stub = RawStub(directory.server->address());
  grpc::ClientContext context;
  auto stream = stub->Session(&context);
  v1::NodeFrame frame;
  frame.mutable_hello()->set_nonce(std::string(32 << 20, 'x'));
  stream->Write(frame);
  // A slow stream can be refused first for being late.
  v1::ShardFrame answer;
  while (stream->Read(&answer)) EXPECT_TRUE(answer.has_refused());
  EXPECT_FALSE(stream->Finish().ok());
  On(node.loop, [&] { node.Put(1); });
  EXPECT_TRUE(node.WaitVerdicts(1));
}

TEST(DirectoryServerTest, ASilentStreamIsClosed) {
  SessionConfig config = Config();
  config.lease = absl::Milliseconds(200);
  Directory directory(config);
  const auto stub = RawStub(directory.server->address());
  grpc::ClientContext context;
  auto stream = stub->Session(&context);
  v1::ShardFrame answer;
  EXPECT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_refused());
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST(DirectoryServerTest, APortInUseIsNamed) {
  Directory directory;
  const net::Address& address = directory.server->address();
  EXPECT_THAT(directory.WhyNotAlsoOn(address),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(absl::StrCat(PortOf(address)))));
}

TEST(DirectoryServerTest, AnAddressMustBeOursAndParse) {
  Directory directory;
  const auto listen = [&directory](const char* address) { return directory.WhyNotAlsoOn(address); };
  EXPECT_THAT(listen("192.0.2.1:0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("192.0.2.1")));
  EXPECT_THAT(listen("no.such.host.invalid:0"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(listen("nonsense"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DirectoryServerTest, WithoutASecretOnlyTheLoopbackMayBeServed) {
  SessionConfig config = Config();
  config.secret = "";
  Directory directory(config);
  EXPECT_THAT(directory.WhyNotAlsoOn("0.0.0.0:0"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("secret")));
}

// ----------------------------------------------------------------------------------------- tools

ToolsClientOptions ToolOptions() {
  ToolsClientOptions options;
  options.secret = Config().secret;
  return options;
}

TEST(ToolsTest, ReportObjectsAndStatusOfTheShard) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  On(node.loop, [&] {
    for (uint64_t i = 1; i <= 5; ++i) node.Put(i);
  });
  ASSERT_TRUE(node.WaitVerdicts(5));

  ToolsClient tools({directory.server->address()}, ToolOptions());
  const auto status = tools.GetStatus();
  ASSERT_EQ(status.size(), 1);
  PHALANX_ASSERT_OK(status[0]);
  EXPECT_EQ(status[0]->objects(), 5);
  EXPECT_EQ(status[0]->nodes(0).info().name(), "n1");

  PHALANX_ASSERT_OK_AND_ASSIGN(const auto first, tools.List(std::nullopt, 3));
  ASSERT_EQ(first.objects_size(), 3);
  EXPECT_TRUE(first.more());
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectId last,
                               ObjectId::FromBinary(first.objects(2).object_id()));
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto rest, tools.List(last, 3));
  EXPECT_EQ(rest.objects_size(), 2);
  EXPECT_FALSE(rest.more());

  PHALANX_ASSERT_OK_AND_ASSIGN(const auto described, tools.Describe(last));
  EXPECT_EQ(described.summary().object_id(), last.binary());
  EXPECT_THAT(tools.Describe(ObjectId::FromName("no", "such")),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(ToolsTest, ADrainNamesTheObjectsThatOneNodeHasAlone) {
  Directory directory;
  Node node(directory.server->address());
  ASSERT_TRUE(node.WaitConnected());
  On(node.loop, [&] { node.Put(1); });
  ASSERT_TRUE(node.WaitVerdicts(1));
  ToolsClient tools({directory.server->address()}, ToolOptions());
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto drain, tools.DrainNode("n1"));
  EXPECT_EQ(drain.objects_left(), 1);
  EXPECT_THAT(drain.message(), HasSubstr("no other node has room for it"));
  EXPECT_TRUE(tools.GetStatus()[0]->nodes(0).draining());
  EXPECT_THAT(tools.DrainNode("n2"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("n2")));
}

TEST(ToolsTest, AreRefusedWithoutTheSecret) {
  Directory directory;
  ToolsClientOptions options = ToolOptions();
  options.secret = "another";
  ToolsClient tools({directory.server->address()}, options);
  EXPECT_THAT(tools.GetStatus()[0],
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("PHALANX_SECRET_FILE")));
}

TEST(ToolsTest, AreRefusedByAnotherClusterOrPlace) {
  Directory directory;
  ToolsClientOptions options = ToolOptions();
  options.cluster_id = "blue";
  EXPECT_THAT(ToolsClient({directory.server->address()}, options).GetStatus()[0],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("default"), HasSubstr("blue"))));
  const net::Address& address = directory.server->address();
  EXPECT_THAT(ToolsClient({address, address}, ToolOptions()).GetStatus()[1],
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shard 0 of 1")));
}

TEST(ToolsTest, NameADirectoryThatIsNotThere) {
  EXPECT_THAT(ToolsClient({"127.0.0.1:1"}, ToolOptions()).GetStatus()[0],
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
}

TEST(ToolsTest, GiveUpAtTheirDeadline) {
  Directory directory;
  ToolsClientOptions options = ToolOptions();
  options.timeout = absl::Milliseconds(50);
  ToolsClient tools({directory.server->address()}, options);
  std::promise<void> hold;
  directory.loop.Post([held = hold.get_future().share()] { held.wait(); });
  EXPECT_THAT(tools.GetStatus()[0], StatusIs(absl::StatusCode::kDeadlineExceeded));
  hold.set_value();
}

TEST(ToolsTest, AServerCanEndWhileACallWaits) {
  auto directory = std::make_unique<Directory>();
  ToolsClient tools({directory->server->address()}, ToolOptions());
  std::promise<void> hold;
  directory->loop.Post([&directory, held = hold.get_future().share()] {
    held.wait();
    directory->server.reset();
  });
  auto status = std::async(std::launch::async, [&tools] { return tools.GetStatus()[0].status(); });
  hold.set_value();
  EXPECT_FALSE(status.get().ok());
}

v1::ListObjectsResponse ListOf(const std::vector<std::string>& ids, bool more) {
  v1::ListObjectsResponse list;
  for (const std::string& id : ids) list.add_objects()->set_object_id(id);
  list.set_more(more);
  if (more) list.set_listed_to(ids.back());
  return list;
}

std::vector<std::string> Ids(const v1::ListObjectsResponse& list) {
  std::vector<std::string> ids;
  for (const auto& object : list.objects()) ids.push_back(object.object_id());
  return ids;
}

TEST(ToolsTest, MergedListsAreInOrderAndEndWhereAShardIsUnknown) {
  using Strings = std::vector<std::string>;
  auto merged = MergeLists({ListOf({"a", "d"}, false), ListOf({"b", "c"}, false)}, 10);
  EXPECT_EQ(Ids(merged), Strings({"a", "b", "c", "d"}));
  EXPECT_FALSE(merged.more());
  merged = MergeLists({ListOf({"a", "d"}, false), ListOf({"b", "c"}, true)}, 10);
  EXPECT_EQ(Ids(merged), Strings({"a", "b", "c"}));
  EXPECT_TRUE(merged.more());
  merged = MergeLists({ListOf({"a", "d"}, false), ListOf({"b", "c"}, false)}, 3);
  EXPECT_EQ(Ids(merged), Strings({"a", "b", "c"}));
  EXPECT_TRUE(merged.more());
  EXPECT_EQ(merged.listed_to(), "c");
  merged = MergeLists({ListOf({}, false), ListOf({}, false)}, 3);
  EXPECT_TRUE(Ids(merged).empty());
  EXPECT_FALSE(merged.more());
}

TEST(ToolsTest, AShardThatHasLookedAtManyIdsOfNothingHoldsTheMergedListBack) {
  v1::ListObjectsResponse nothing;
  nothing.set_more(true);
  nothing.set_listed_to("b");
  auto merged = MergeLists({ListOf({"a", "d"}, false), nothing}, 10);
  EXPECT_EQ(Ids(merged), std::vector<std::string>({"a"}));
  EXPECT_TRUE(merged.more());
  EXPECT_EQ(merged.listed_to(), "b");
  EXPECT_EQ(MergeLists({ListOf({"a", "d"}, false)}, 0).objects_size(), 2) << "0 is the default";
}

TEST(ToolsTest, AreAnsweredByAllOthersThoughOneShardIsSilent) {
  // A stopped host: the kernel accepts the connection, and no process ever answers.
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(silent, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &length), 0);

  SessionConfig second = Config();
  second.shard_index = 1;
  second.num_shards = 2;
  Directory directory(second);
  ToolsClientOptions options = ToolOptions();
  options.timeout = absl::Milliseconds(500);
  ToolsClient tools(
      {absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), directory.server->address()}, options);
  const auto status = tools.GetStatus();
  ASSERT_EQ(status.size(), 2);
  EXPECT_FALSE(status[0].ok());
  EXPECT_THAT(status[1], IsOk());
  close(silent);
}

}  // namespace
}  // namespace phalanx::directory
