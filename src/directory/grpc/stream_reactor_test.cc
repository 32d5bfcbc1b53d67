// The operations that a reactor starts, and when; the test plays gRPC's part.
#include "src/directory/grpc/stream_reactor.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

class QueueExecutor final : public Executor {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  Instant Now() const override { return Instant(); }
  TimerId RunAt(Instant, Task) override { return 1; }
  void Cancel(TimerId) override {}
  bool InLoop() const override { return true; }
  void RunAll() {
    for (; !tasks_.empty(); tasks_.pop_front()) tasks_.front()();
  }

 private:
  std::deque<Task> tasks_;
};

class FakeCall {
 public:
  virtual ~FakeCall() = default;
  virtual void OnReadDone(bool ok) = 0;
  virtual void OnWriteDone(bool ok) = 0;
  void StartRead(std::string*) { ++reads; }
  void StartWrite(std::string*) {}

  int reads = 0;
  int ends = 0;
};

// Reacts to a cancellation as a server's stream does.
class FakeReactor final : public StreamReactor<std::string, std::string, FakeCall> {
 public:
  explicit FakeReactor(Executor& executor) : StreamReactor(executor, /*drains=*/false) {}

  void OnCancel() {
    MutexLock lock(mu_);
    PostClosed(absl::UnavailableError("broke"));
    BeginClose(absl::UnavailableError("broke"));
  }

 private:
  void End(const absl::Status&) override { ++ends; }
  void Cancel() override {}
  void PeerEnded() override {}
};

struct Seen {
  int closed = 0;
  absl::Status why;
};

MessageStream<std::string, std::string>::Handlers Record(Seen& seen) {
  return {.on_message = [](std::string) {},
          .on_writable = [] {},
          .on_closed =
              [&seen](const absl::Status& why) {
                ++seen.closed;
                seen.why = why;
              }};
}

TEST(StreamReactor, ReadsWhenStarted) {
  QueueExecutor executor;
  Seen seen;
  auto reactor = std::make_shared<FakeReactor>(executor);
  reactor->Start(Record(seen));
  EXPECT_EQ(reactor->reads, 1);
  reactor->OnCancel();
  executor.RunAll();
  EXPECT_EQ(reactor->ends, 1);
  EXPECT_EQ(seen.closed, 1);
}

// If an operation starts after the last one has ended, gRPC ends the call once more and frees it
// twice.
TEST(StreamReactor, ReadsNothingWhenItWasCancelledBeforeItsOwnerStartedIt) {
  QueueExecutor executor;
  Seen seen;
  auto reactor = std::make_shared<FakeReactor>(executor);
  executor.Post([&] { reactor->Start(Record(seen)); });
  reactor->OnCancel();
  executor.RunAll();
  EXPECT_EQ(reactor->ends, 1);
  EXPECT_EQ(reactor->reads, 0);
  EXPECT_EQ(seen.closed, 1);
  EXPECT_EQ(seen.why, absl::UnavailableError("broke"));
}

}  // namespace
}  // namespace phalanx::directory
