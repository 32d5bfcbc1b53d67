// The streams over real gRPC on a loopback port.
#include <future>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "src/directory/grpc/directory_server.h"
#include "src/directory/grpc/shard_connector.h"
#include "src/directory/session/message_stream_conformance.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

class GrpcHarness final : public MessageStreamHarness {
 public:
  GrpcHarness() {
    auto server = GrpcDirectoryServer::ListenForStreams(
        loop_, [this](std::unique_ptr<ShardStream> stream) { accept_(std::move(stream)); });
    EXPECT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
    connector_ = NewGrpcShardConnector(server_->address());
    EXPECT_THAT(loop_.Start("conformance"), testing::IsOk());
  }
  ~GrpcHarness() override {
    server_.reset();
    loop_.Stop();
  }

  Executor& executor() override { return loop_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    std::promise<void> finished;
    loop_.Post([&body, &finished] { body([&finished] { finished.set_value(); }); });
    finished.get_future().wait();
  }
  void OnAccept(Accept accept) override { accept_ = std::move(accept); }
  std::unique_ptr<NodeStream> Connect() override { return connector_->Connect(loop_); }
  std::unique_ptr<NodeStream> ConnectToClosedAddress() override {
    return NewGrpcShardConnector("127.0.0.1:1")->Connect(loop_);
  }

 private:
  net::EventLoop loop_;
  Accept accept_;
  std::unique_ptr<GrpcDirectoryServer> server_;
  std::unique_ptr<ShardConnector> connector_;
};

std::unique_ptr<MessageStreamHarness> MakeHarness() { return std::make_unique<GrpcHarness>(); }

INSTANTIATE_TEST_SUITE_P(Grpc, MessageStreamConformance, ::testing::Values(&MakeHarness));

}  // namespace
}  // namespace phalanx::directory
