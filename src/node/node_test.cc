#include "src/node/node.h"

#include <utility>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/tcp_network.h"
#include "src/object_store/memory/heap_memory.h"

namespace phalanx::runtime {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// A shard that never answers.
class DeafStream : public directory::NodeStream {
 public:
  void Start(Handlers) override {}
  bool writable() const override { return true; }
  void Send(const v1::NodeFrame&) override {}
  void Close(absl::Status) override {}
  std::string peer() const override { return "nobody"; }
};
class DeafConnector : public directory::ShardConnector {
 public:
  std::unique_ptr<directory::NodeStream> Connect(Executor&) override {
    return std::make_unique<DeafStream>();
  }
  std::string target() const override { return "nowhere:7400"; }
};

// Nodes on a loop that does not run, so only Start itself acts.
class NodeTest : public ::testing::Test {
 protected:
  static NodeOptions Options() {
    NodeOptions options;
    options.name = "n1";
    options.capacity_bytes = 1 << 20;
    return options;
  }
  NodeSeams Seams(int shards = 1) {
    NodeSeams seams{.control = loop_,
                    .io = {&loop_},
                    .network = network_,
                    .memory = memory_,
                    .shards = {},
                    .random = Random(1),
                    .nonce_bytes = {},
                    .on_shard_state = {}};
    for (int i = 0; i < shards; ++i) seams.shards.push_back(std::make_unique<DeafConnector>());
    return seams;
  }
  absl::Status StartError(NodeOptions options) {
    return Node::Start(std::move(options), Seams()).status();
  }

  net::EventLoop loop_;
  net::TcpNetwork network_;
  object_store::HeapMemory memory_{loop_};
};

TEST_F(NodeTest, ANodeListensAndConnectsToItsShards) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Node> node, Node::Start(Options(), Seams(3)));
  EXPECT_EQ(node->name(), "n1");
  EXPECT_THAT(node->address(), ::testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  const std::vector<absl::Status> states = node->ShardStates();
  ASSERT_EQ(states.size(), 3u);
  EXPECT_THAT(states[2], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nowhere:7400")));
  PHALANX_EXPECT_OK(node->store().CheckInvariants());
}

TEST_F(NodeTest, PeersGetTheAdvertisedAddress) {
  NodeOptions options = Options();
  options.advertise = "worker-7:7411";
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Node> node, Node::Start(options, Seams()));
  EXPECT_EQ(node->address(), "worker-7:7411");
}

TEST_F(NodeTest, ALaterLifeOfTheSameNameHasAGreaterIncarnation) {
  PHALANX_ASSERT_OK_AND_ASSIGN(std::unique_ptr<Node> node, Node::Start(Options(), Seams()));
  const NodeKey first = node->key();
  node.reset();
  PHALANX_ASSERT_OK_AND_ASSIGN(node, Node::Start(Options(), Seams()));
  EXPECT_EQ(node->key().node, first.node);
  EXPECT_GT(node->key().incarnation, first.incarnation);
}

TEST_F(NodeTest, UsesTheGivenIncarnation) {
  NodeOptions options = Options();
  options.incarnation = 7;
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Node> node, Node::Start(options, Seams()));
  EXPECT_EQ(node->key(), (NodeKey{NodeNumber("n1"), 7}));
}

TEST_F(NodeTest, ANameAlwaysHasTheSameNumber) {
  EXPECT_EQ(NodeNumber("n1"), 15506916534570490772u);
  EXPECT_NE(NodeNumber("n1"), NodeNumber("n2"));
}

TEST_F(NodeTest, RejectsBadOptionsByName) {
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  NodeOptions options = Options();
  options.name = "";
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("needs a name")));
  options.name = "two words";
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("two words")));
  options.name = "bell\a";
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("bell\\x07")));
  options.name = std::string(directory::kMaxNodeNameBytes + 1, 'n');
  EXPECT_THAT(StartError(options), StatusIs(invalid));
  options = Options();
  options.capacity_bytes = 0;
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("capacity")));
  options = Options();
  options.labels = {{"", "a"}};
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("label")));
  options.labels.clear();
  for (size_t i = 0; i <= directory::kMaxNodeLabels; ++i)
    options.labels[std::string(i + 1, 'k')] = "v";
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("17 labels")));
  options = Options();
  options.listen = "nowhere";
  EXPECT_THAT(StartError(options), StatusIs(invalid, HasSubstr("nowhere")));
}

TEST_F(NodeTest, ANodeNeedsADirectoryAndALoop) {
  EXPECT_THAT(Node::Start(Options(), Seams(0)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no directory")));
  NodeSeams seams = Seams();
  seams.io.clear();
  EXPECT_THAT(Node::Start(Options(), std::move(seams)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no I/O loop")));
}

TEST_F(NodeTest, ErrorNamesThePortInUse) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Node> node, Node::Start(Options(), Seams()));
  NodeOptions second = Options();
  second.name = "n2";
  second.listen = node->address();
  EXPECT_THAT(StartError(second),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(node->address())));
}

}  // namespace
}  // namespace phalanx::runtime
