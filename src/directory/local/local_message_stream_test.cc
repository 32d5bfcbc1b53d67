#include "src/directory/local/local_message_stream.h"

#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "src/directory/session/message_stream_conformance.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;

class LocalHarness final : public MessageStreamHarness {
 public:
  LocalHarness() { EXPECT_THAT(loop_.Start("conformance"), IsOk()); }
  ~LocalHarness() override { loop_.Stop(); }

  Executor& executor() override { return loop_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    std::promise<void> finished;
    loop_.Post([&body, &finished] { body([&finished] { finished.set_value(); }); });
    finished.get_future().wait();
  }
  void OnAccept(Accept accept) override { door_ = std::make_unique<LocalDoor>(std::move(accept)); }
  std::unique_ptr<NodeStream> Connect() override {
    return door_->NewConnector("here")->Connect(loop_);
  }
  std::unique_ptr<NodeStream> ConnectToClosedAddress() override {
    return LocalDoor(nullptr).NewConnector("nowhere")->Connect(loop_);
  }
  void CloseDoor() { door_.reset(); }

 private:
  net::EventLoop loop_;
  std::unique_ptr<LocalDoor> door_;
};

std::unique_ptr<MessageStreamHarness> MakeLocal() { return std::make_unique<LocalHarness>(); }
INSTANTIATE_TEST_SUITE_P(Local, MessageStreamConformance, ::testing::Values(&MakeLocal));

TEST(LocalDoor, AConnectionUnderWayWhenItClosesIsUnavailable) {
  LocalHarness harness;
  std::unique_ptr<NodeStream> node;
  absl::Status why;
  harness.Run([&](const std::function<void()>& done) {
    harness.OnAccept([](const std::unique_ptr<ShardStream>&) { ADD_FAILURE() << "it is closed"; });
    node = harness.Connect();
    node->Start({.on_message = [](const v1::ShardFrame&) { ADD_FAILURE() << "from nobody"; },
                 .on_writable = [] {},
                 .on_closed =
                     [&why, done](absl::Status status) {
                       why = std::move(status);
                       done();
                     }});
    harness.CloseDoor();
  });
  EXPECT_THAT(why, StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("here")));
  harness.Run([&](const std::function<void()>& done) {
    node.reset();
    done();
  });
}

}  // namespace
}  // namespace phalanx::directory
