// Shard and DirectoryClient against each other over the simulated network.
#include "src/directory/session/shard.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/session/directory_client.h"
#include "src/sim/seams/sim_executor.h"
#include "src/sim/seams/sim_message_stream.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kShardAddress[] = "shard:7400";

SessionConfig Config() {
  SessionConfig config;
  config.secret = "a secret";
  return config;
}

// A world with one shard, which can be stopped, killed and started again.
class ShardTest : public ::testing::Test {
 protected:
  // A process on the simulated network.
  struct Machine {
    Machine(sim::SimScheduler& scheduler, sim::SimFabric& fabric, const std::string& host)
        : process(scheduler.NewProcess(host)),
          loop(process->NewExecutor("control")),
          network(fabric.Join(*process, host)) {}

    std::unique_ptr<sim::SimProcess> process;
    sim::SimExecutor& loop;
    std::unique_ptr<sim::SimNetwork> network;
  };

  struct ShardMachine : Machine {
    using Machine::Machine;
    ~ShardMachine() { process->Kill(); }

    std::unique_ptr<Shard> shard;
    std::unique_ptr<net::Listener> listener;
  };

  // A node: registers without state, sends queries and records the shard's messages.
  struct NodeMachine : Machine {
    using Machine::Machine;
    ~NodeMachine() { process->Kill(); }

    void Connect(const SessionConfig& config, v1::NodeInfo self) {
      loop.Post([this, config, self] {
        client = std::make_unique<DirectoryClient>(
            loop, sim::NewSimShardConnector(*network, kShardAddress), config, self, Random(1),
            DirectoryClient::Handlers{
                .on_register =
                    [this] {
                      ++registered;
                      Say([](v1::NodeMessage& m) { m.mutable_register_begin(); });
                      Say([](v1::NodeMessage& m) { m.mutable_register_end(); });
                    },
                .on_message =
                    [this](const v1::ShardMessage& message) {
                      if (message.has_query_reply()) {
                        replies.push_back(message.query_reply().request_id());
                      }
                    },
                .on_connection = [this](bool, const absl::Status& why) { states.push_back(why); }});
      });
    }
    void Say(const std::function<void(v1::NodeMessage&)>& fill) {
      v1::NodeMessage message;
      fill(message);
      client->Send(std::move(message));
    }
    void Ask(uint64_t number) {
      loop.Post([this, number] {
        Say([number](v1::NodeMessage& m) {
          m.mutable_query_request()->set_request_id(number);
          m.mutable_query_request()->set_object_id(std::string(20, 'i'));
        });
      });
    }
    bool connected() const { return client != nullptr && client->connected(); }

    std::unique_ptr<DirectoryClient> client;
    int registered = 0;
    std::vector<uint64_t> replies;
    std::vector<absl::Status> states;
  };

  ShardTest() { StartShard(Config()); }
  ~ShardTest() override {
    nodes_.clear();
    shard_.reset();
  }

  void StartShard(const SessionConfig& config) {
    shard_ = std::make_unique<ShardMachine>(scheduler_, fabric_, "shard");
    shard_->loop.Post([this, config, &machine = *shard_] {
      machine.shard =
          std::make_unique<Shard>(machine.loop, config, DirectoryOptions{}, Random(++shard_lives_));
      machine.shard->Observe(
          [this](absl::string_view event, absl::string_view node, const absl::Status&) {
            events_.push_back(absl::StrCat(event, " ", node));
          });
      auto listener =
          sim::ListenForSimShardStreams(*machine.network, machine.loop, kShardAddress,
                                        [&machine](std::unique_ptr<ShardStream> stream) {
                                          machine.shard->Accept(std::move(stream));
                                        });
      PHALANX_ASSERT_OK(listener);
      machine.listener = *std::move(listener);
    });
  }

  static v1::NodeInfo Info(const std::string& host, uint64_t incarnation = 1) {
    v1::NodeInfo info;
    info.mutable_key()->set_node(host.back());
    info.mutable_key()->set_incarnation(incarnation);
    info.set_name(host);
    info.set_address(host + ":7411");
    return info;
  }

  NodeMachine& StartNode(const std::string& host, const SessionConfig& config = Config(),
                         uint64_t incarnation = 1) {
    nodes_.push_back(std::make_unique<NodeMachine>(scheduler_, fabric_, host));
    nodes_.back()->Connect(config, Info(host, incarnation));
    return *nodes_.back();
  }

  // Ends with the process's goodbye, unlike a crash.
  void Leave(NodeMachine& node) {
    node.loop.Post([&node] { node.client.reset(); });
  }

  bool Until(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(60)) {
    return scheduler_.RunUntil(done, limit);
  }
  NodeMachine& ConnectedNode(const std::string& host = "n1") {
    NodeMachine& node = StartNode(host);
    EXPECT_TRUE(Until([&node] { return node.connected(); }));
    return node;
  }

  v1::GetStatusResponse Status() {
    v1::GetStatusResponse status;
    std::optional<bool> filled;
    shard_->loop.Post([&] {
      shard_->shard->FillStatus(&status);
      filled = true;
    });
    EXPECT_TRUE(Until([&filled] { return filled.has_value(); }));
    return status;
  }
  // True if the core, which chooses senders by this state, considers the only node connected.
  bool ConnectedInCore() {
    v1::GetStatusResponse status;
    std::optional<bool> filled;
    shard_->loop.Post([&] {
      shard_->shard->core().FillStatus(shard_->loop.Now(), &status);
      filled = true;
    });
    EXPECT_TRUE(Until([&filled] { return filled.has_value(); }));
    return status.nodes_size() == 1 && status.nodes(0).connected();
  }
  uint64_t Counter(const std::string& name) { return Status().counters().at(name); }

  // A stream of the test's own, from a machine of its own.
  struct RawStream {
    std::unique_ptr<NodeStream> stream;
    std::vector<v1::ShardFrame> frames;
    std::optional<absl::Status> closed;
  };
  void OpenRaw(NodeMachine& machine, RawStream& raw, std::optional<v1::NodeFrame> first) {
    machine.loop.Post([&machine, &raw, first] {
      raw.stream =
          sim::NewSimShardConnector(*machine.network, kShardAddress)->Connect(machine.loop);
      raw.stream->Start(
          {.on_message = [&raw](v1::ShardFrame frame) { raw.frames.push_back(std::move(frame)); },
           .on_writable = [] {},
           .on_closed = [&raw](absl::Status why) { raw.closed = std::move(why); }});
      if (first.has_value()) raw.stream->Send(*first);
    });
  }
  NodeMachine& Stranger() {
    nodes_.push_back(std::make_unique<NodeMachine>(scheduler_, fabric_, "stranger"));
    return *nodes_.back();
  }

  sim::SimScheduler scheduler_{{.seed = 5}};
  sim::SimFabric fabric_{scheduler_, sim::SimFabric::Options{}};
  uint64_t shard_lives_ = 0;
  std::vector<std::string> events_;  // the shard's reports to its observer
  std::unique_ptr<ShardMachine> shard_;
  std::vector<std::unique_ptr<NodeMachine>> nodes_;
};

TEST_F(ShardTest, ANodeRegistersAndIsAnswered) {
  NodeMachine& node = ConnectedNode();
  EXPECT_EQ(node.registered, 1);
  node.Ask(7);
  EXPECT_TRUE(Until([&node] { return node.replies == std::vector<uint64_t>{7}; }));
  const v1::GetStatusResponse status = Status();
  ASSERT_EQ(status.nodes_size(), 1);
  EXPECT_TRUE(status.nodes(0).connected());
  EXPECT_EQ(status.nodes(0).info().name(), "n1");
}

TEST_F(ShardTest, ThousandsOfMessagesTravelInFewFrames) {
  NodeMachine& node = ConnectedNode();
  for (uint64_t i = 0; i < 5000; ++i) node.Ask(i);
  EXPECT_TRUE(Until([&node] { return node.replies.size() == 5000; }));
  for (uint64_t i = 0; i < 5000; ++i) ASSERT_EQ(node.replies[i], i);
}

// A pull that ends makes a report for the shard, and an answer for a client.
TEST_F(ShardTest, MessagesLeaveAfterTheAnswersOfTheirTurn) {
  NodeMachine& node = ConnectedNode();
  scheduler_.RunFor(absl::Milliseconds(10));
  const auto sent = [this] { return fabric_.BytesCarried("n1", "shard"); };
  const uint64_t before = sent();
  std::optional<uint64_t> at_answer;
  node.Ask(1);
  node.loop.Post([&] {
    // The store hands the answer out, and the session sends it.
    node.loop.Post([&] { node.loop.Post([&] { at_answer = sent(); }); });
  });
  EXPECT_TRUE(Until([&node] { return !node.replies.empty(); }));
  EXPECT_EQ(at_answer, before);
  EXPECT_GT(sent(), before);
}

TEST_F(ShardTest, ABrokenStreamIsResumedAndNothingIsLost) {
  NodeMachine& node = ConnectedNode();
  for (uint64_t i = 0; i < 200; ++i) {
    node.Ask(i);
    scheduler_.RunFor(absl::Milliseconds(1));
    if (i % 20 == 10) fabric_.Reset("n1", "shard");
  }
  EXPECT_TRUE(Until([&node] { return node.replies.size() == 200; }));
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(node.replies[i], i);
  EXPECT_EQ(node.registered, 1);
  EXPECT_GE(Counter("sessions_resumed"), 1);
  EXPECT_EQ(Counter("sessions_opened"), 1);
}

TEST_F(ShardTest, ABreakIsTakenBackWithinAHundredMilliseconds) {
  NodeMachine& node = ConnectedNode();
  fabric_.Reset("n1", "shard");
  EXPECT_TRUE(Until([&node] { return !node.connected(); }, absl::Milliseconds(10)));
  EXPECT_FALSE(Status().nodes(0).connected());
  EXPECT_FALSE(ConnectedInCore());
  EXPECT_TRUE(Until([&node] { return node.connected(); }, absl::Milliseconds(100)));
  EXPECT_TRUE(Status().nodes(0).connected());
  EXPECT_TRUE(ConnectedInCore());
}

TEST_F(ShardTest, ASilentNodeIsFencedAndRegistersAgain) {
  NodeMachine& node = ConnectedNode();
  node.process->Stall();
  EXPECT_TRUE(Until([this] { return Counter("sessions_fenced") == 1; }, absl::Seconds(3)));
  EXPECT_EQ(Status().nodes_size(), 0);
  node.process->Resume();
  EXPECT_TRUE(Until([&node] { return node.registered == 2; }, absl::Seconds(1)));
}

TEST_F(ShardTest, AHalfOpenConnectionIsGivenUpAfterALease) {
  NodeMachine& node = ConnectedNode();
  fabric_.HalfOpen("shard", "n1");
  EXPECT_TRUE(Until([&node] { return !node.connected(); }, absl::Seconds(3)));
  EXPECT_TRUE(Until([&node] { return node.connected(); }, absl::Milliseconds(200)));
}

TEST_F(ShardTest, AShardThatRestartsIsFoundWithinAHundredMilliseconds) {
  NodeMachine& node = ConnectedNode();
  shard_.reset();
  scheduler_.RunFor(absl::Seconds(5));
  EXPECT_FALSE(node.connected());
  StartShard(Config());
  EXPECT_TRUE(Until([&node] { return node.connected(); }, absl::Milliseconds(100)));
  EXPECT_EQ(node.registered, 2);
  node.Ask(1);
  EXPECT_TRUE(Until([&node] { return node.replies.size() == 1; }));
}

TEST_F(ShardTest, AGoodbyeEndsTheSessionAtOnce) {
  NodeMachine& node = ConnectedNode();
  scheduler_.RunFor(absl::Milliseconds(10));
  Leave(node);
  scheduler_.RunFor(absl::Milliseconds(10));
  EXPECT_EQ(Status().nodes_size(), 0);
  EXPECT_EQ(Counter("sessions_goodbyes"), 1);
  EXPECT_EQ(Counter("streams"), 0);
}

TEST_F(ShardTest, ACrashedNodeStaysForTheGrace) {
  ConnectedNode();
  nodes_.clear();
  scheduler_.RunFor(absl::Milliseconds(20));
  ASSERT_EQ(Status().nodes_size(), 1);
  EXPECT_FALSE(Status().nodes(0).connected());
  scheduler_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(Status().nodes_size(), 0);
  EXPECT_EQ(Counter("sessions_fenced"), 1);
  EXPECT_EQ(events_.back(), "session fenced n1");
}

TEST_F(ShardTest, ANodeThatIsUnreachableAfterABreakRegistersAgain) {
  NodeMachine& node = ConnectedNode();
  fabric_.PartitionBothWays("n1", "shard");
  fabric_.Reset("n1", "shard");
  EXPECT_TRUE(Until([this] { return Counter("sessions_fenced") == 1; }, absl::Milliseconds(40)));
  fabric_.HealAll();
  EXPECT_TRUE(Until([&node] { return node.registered == 2; }, absl::Seconds(1)));
}

TEST_F(ShardTest, AShardThatWasStoppedDoesNotBlameItsNodes) {
  NodeMachine& node = ConnectedNode();
  shard_->process->Stall();
  scheduler_.RunFor(absl::Milliseconds(1900));
  shard_->process->Resume();
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_EQ(Counter("sessions_fenced"), 0);
  EXPECT_EQ(node.registered, 1);
  // Much longer than a lease: the node has closed the stream, but its session still lives.
  shard_->process->Stall();
  scheduler_.RunFor(absl::Seconds(30));
  shard_->process->Resume();
  EXPECT_TRUE(Until([&node] { return node.connected(); }, absl::Seconds(1)));
  EXPECT_EQ(Counter("sessions_fenced"), 0);
  EXPECT_EQ(node.registered, 1);
}

TEST_F(ShardTest, AMalformedMessageEndsItsStreamAndNothingElse) {
  NodeMachine& good = ConnectedNode("n1");
  NodeMachine& bad = ConnectedNode("n2");
  bad.loop.Post([&bad] {
    bad.Say([](v1::NodeMessage& m) { m.mutable_want()->set_object_id("too short"); });
  });
  bad.Ask(1);
  EXPECT_TRUE(Until([&bad] { return bad.replies.size() == 1; }));
  ASSERT_GE(bad.states.size(), 2);
  EXPECT_THAT(bad.states[1], StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(bad.registered, 1);
  EXPECT_EQ(good.states.size(), 1);
  EXPECT_EQ(Counter("messages_malformed"), 1);
}

TEST_F(ShardTest, NotifiesItsObserverOfSessionsThatBeginAndEnd) {
  NodeMachine& node = ConnectedNode();
  fabric_.Reset("n1", "shard");
  scheduler_.RunFor(absl::Milliseconds(200));
  node.process->Stall();
  scheduler_.RunFor(absl::Seconds(3));
  EXPECT_EQ(events_, std::vector<std::string>(
                         {"session opened n1", "session resumed n1", "session fenced n1"}));
}

TEST_F(ShardTest, AMismatchIsRefusedWithBothSidesNamed) {
  SessionConfig other = Config();
  other.cluster_id = "blue";
  NodeMachine& node = StartNode("n1", other);
  EXPECT_TRUE(Until([&node] { return !node.states.empty(); }));
  EXPECT_THAT(node.states[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("\"default\""), HasSubstr("\"blue\""))));
  scheduler_.RunFor(absl::Seconds(10));
  EXPECT_EQ(node.states.size(), 1) << "notified once";
  EXPECT_LE(Counter("streams_refused"), 15) << "tried again slowly";
  EXPECT_GE(Counter("streams_refused"), 5);
}

TEST_F(ShardTest, AnotherSecretIsRefused) {
  SessionConfig other = Config();
  other.secret = "another";
  NodeMachine& node = StartNode("n1", other);
  EXPECT_TRUE(Until([&node] { return !node.states.empty(); }));
  EXPECT_THAT(node.states[0], StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(Status().nodes_size(), 0);
}

TEST_F(ShardTest, AWrongProofIsReported) {
  v1::NodeFrame hello;
  NodeSession session(Config(), Info("n1"));
  session.StreamOpened(std::string(32, 'n'), Instant());
  hello = *session.NextFrame(Instant());
  RawStream raw;
  NodeMachine& stranger = Stranger();
  OpenRaw(stranger, raw, hello);
  EXPECT_TRUE(Until([&raw] { return raw.frames.size() == 1; }));
  stranger.loop.Post([&raw] {
    v1::NodeFrame proof;
    proof.mutable_proof()->set_proof(std::string(32, 'p'));
    raw.stream->Send(proof);
  });
  EXPECT_TRUE(Until([&raw] { return raw.closed.has_value(); }));
  EXPECT_THAT(*raw.closed, StatusIs(absl::StatusCode::kPermissionDenied));
  ASSERT_EQ(raw.frames.size(), 2);
  EXPECT_TRUE(raw.frames[1].has_refused());
  EXPECT_EQ(Status().nodes_size(), 0);
  EXPECT_EQ(Counter("sessions"), 0);
}

TEST_F(ShardTest, AHelloOfAStrangerDoesNotTouchTheSession) {
  NodeMachine& node = ConnectedNode();
  NodeSession session(Config(), Info("n1", 99));
  session.StreamOpened(std::string(32, 'n'), Instant());
  RawStream raw;
  OpenRaw(Stranger(), raw, *session.NextFrame(Instant()));
  EXPECT_TRUE(Until([&raw] { return raw.frames.size() == 1; }));
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_EQ(node.states.size(), 1);
  EXPECT_TRUE(Status().nodes(0).connected());
}

TEST_F(ShardTest, ASilentStreamIsClosedAfterTheLease) {
  RawStream raw;
  OpenRaw(Stranger(), raw, std::nullopt);
  scheduler_.RunFor(absl::Milliseconds(1900));
  EXPECT_EQ(Counter("streams"), 1);
  EXPECT_FALSE(raw.closed.has_value());
  scheduler_.RunFor(absl::Milliseconds(200));
  ASSERT_TRUE(raw.closed.has_value());
  EXPECT_THAT(*raw.closed, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Counter("streams"), 0);
}

TEST_F(ShardTest, OfTooManyUnprovenStreamsTheOldestAreClosed) {
  NodeMachine& stranger = Stranger();
  std::vector<RawStream> raw(kMaxUnprovenStreams + 10);
  for (RawStream& one : raw) OpenRaw(stranger, one, std::nullopt);
  scheduler_.RunFor(absl::Milliseconds(100));
  int refused = 0;
  for (const RawStream& one : raw) {
    if (!one.closed.has_value()) continue;
    ++refused;
    EXPECT_THAT(*one.closed, StatusIs(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_EQ(refused, 10);
  EXPECT_FALSE(raw.back().closed.has_value());
}

TEST_F(ShardTest, SilentStrangersDoNotKeepANodeOut) {
  NodeMachine& stranger = Stranger();
  std::vector<RawStream> raw(kMaxUnprovenStreams);
  for (RawStream& one : raw) OpenRaw(stranger, one, std::nullopt);
  scheduler_.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(Counter("streams"), static_cast<int>(kMaxUnprovenStreams));
  StartNode("n1");
  scheduler_.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(Counter("sessions"), 1) << "long before the strangers' lease has passed";
}

TEST_F(ShardTest, ALaterLifeReplacesAnEarlierOne) {
  NodeMachine& early = ConnectedNode();
  NodeMachine& late = StartNode("n1", Config(), 2);
  EXPECT_TRUE(Until([&late] { return late.connected(); }));
  ASSERT_EQ(Status().nodes_size(), 1);
  EXPECT_EQ(Status().nodes(0).info().key().incarnation(), 2);
  EXPECT_TRUE(Until([&early] { return early.states.size() >= 3; }));
  EXPECT_THAT(early.states.back(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("later life")));
  EXPECT_TRUE(late.connected());
}

TEST_F(ShardTest, ANodeThatReadsNothingLosesItsSessionAndNotTheShardsMemory) {
  shard_.reset();
  SessionConfig config = Config();
  config.limits.unacknowledged_messages = 1000;
  StartShard(config);
  NodeMachine& node = ConnectedNode();
  scheduler_.RunFor(absl::Seconds(3));  // until it answers queries for unknown objects
  fabric_.HalfOpen("shard", "n1");
  for (uint64_t i = 0; i < 2000; ++i) node.Ask(i);
  scheduler_.RunFor(absl::Seconds(1));
  EXPECT_EQ(Counter("sessions_overflowed"), 1);
  EXPECT_TRUE(Until([&node] { return node.registered == 2; }, absl::Seconds(5)));
}

TEST_F(ShardTest, AnIdleWorldIsQuiet) {
  for (int i = 1; i <= 8; ++i) ConnectedNode("n" + std::to_string(i));
  const uint64_t before = scheduler_.steps();
  scheduler_.RunFor(absl::Seconds(60));
  // Two frames per second and direction: each a timer, a segment that leaves and arrives, a read,
  // and its acknowledgement.
  EXPECT_LT(scheduler_.steps() - before, 60u * 8 * 4 * 12);
  EXPECT_EQ(Status().nodes_size(), 8);
  EXPECT_EQ(Counter("sessions_fenced"), 0);
}

}  // namespace
}  // namespace phalanx::directory
