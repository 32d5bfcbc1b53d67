#include "src/sim/seams/sim_message_stream.h"

#include <functional>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "src/directory/session/message_stream_conformance.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::sim {
namespace {

class SimStreamHarness final : public directory::MessageStreamHarness {
 public:
  explicit SimStreamHarness(const SimFabric::Options& options)
      : scheduler_({.seed = options.seed}), fabric_(scheduler_, options) {
    auto listener = ListenForSimShardStreams(
        *network_, loop_, "host:7400",
        [this](std::unique_ptr<directory::ShardStream> stream) { accept_(std::move(stream)); });
    EXPECT_THAT(listener, testing::IsOk());
    listener_ = *std::move(listener);
  }

  Executor& executor() override { return loop_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    bool finished = false;
    loop_.Post([&body, &finished] { body([&finished] { finished = true; }); });
    EXPECT_TRUE(scheduler_.RunUntil([&finished] { return finished; }, absl::Hours(1)));
  }
  void OnAccept(Accept accept) override { accept_ = std::move(accept); }
  std::unique_ptr<directory::NodeStream> Connect() override {
    return NewSimShardConnector(*network_, "host:7400")->Connect(loop_);
  }
  std::unique_ptr<directory::NodeStream> ConnectToClosedAddress() override {
    return NewSimShardConnector(*network_, "host:1")->Connect(loop_);
  }

 private:
  SimScheduler scheduler_;
  SimFabric fabric_;
  const std::unique_ptr<SimProcess> process_ = scheduler_.NewProcess("process");
  SimExecutor& loop_ = process_->NewExecutor("loop");
  const std::unique_ptr<SimNetwork> network_ = fabric_.Join(*process_, "host");
  Accept accept_;
  std::unique_ptr<net::Listener> listener_;
};

std::unique_ptr<directory::MessageStreamHarness> MakePlain() {
  return std::make_unique<SimStreamHarness>(SimFabric::Options{});
}

std::unique_ptr<directory::MessageStreamHarness> MakeRough() {
  SimFabric::Options options;
  options.seed = 11;
  options.loopback = {.latency = absl::Milliseconds(1), .jitter = absl::Milliseconds(1)};
  options.short_io = 0.5;
  return std::make_unique<SimStreamHarness>(options);
}

}  // namespace
}  // namespace phalanx::sim

namespace phalanx::directory {
INSTANTIATE_TEST_SUITE_P(Sim, MessageStreamConformance,
                         ::testing::Values(&sim::MakePlain, &sim::MakeRough));
}  // namespace phalanx::directory
