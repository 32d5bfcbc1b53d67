#include "src/net/loop/event_loop.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/no_threads.h"
#include "src/common/testing/status_matchers.h"
#include "src/common/time/executor_conformance.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;

class EventLoopHarness final : public ExecutorHarness {
 public:
  EventLoopHarness() { PHALANX_EXPECT_OK(loop_.Start("conformance")); }
  Executor& executor() override { return loop_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    std::promise<void> finished;
    loop_.Post([&body, &finished] { body([&finished] { finished.set_value(); }); });
    finished.get_future().wait();
  }
  void Shutdown() override { loop_.Stop(); }
  bool threads() const override { return true; }

 private:
  EventLoop loop_;
};

std::unique_ptr<ExecutorHarness> MakeHarness() { return std::make_unique<EventLoopHarness>(); }

}  // namespace
}  // namespace phalanx::net

namespace phalanx {
INSTANTIATE_TEST_SUITE_P(EventLoop, ExecutorConformance, ::testing::Values(&net::MakeHarness));
}  // namespace phalanx

namespace phalanx::net {
namespace {

// Two connected descriptors. The destructor closes them.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0); }
  ~Pair() {
    for (const int one : fd) {
      if (one >= 0) close(one);
    }
  }
  void CloseOther() { close(std::exchange(fd[1], -1)); }
  int fd[2] = {-1, -1};
};

TEST(EventLoopTest, RunsOnTheCallingThreadUntilStopped) {
  EventLoop loop;
  const std::thread::id here = std::this_thread::get_id();
  loop.Post([&loop, here] {
    EXPECT_EQ(std::this_thread::get_id(), here);
    loop.Stop();
  });
  loop.Run();
}

TEST(EventLoopTest, DestroysTasksThatItNeverRan) {
  auto owned = std::make_shared<int>(7);
  {
    EventLoop loop;
    loop.Post([owned] { FAIL() << "never started"; });
    loop.RunAt(loop.Now(), [owned] { FAIL() << "never started"; });
    EXPECT_EQ(owned.use_count(), 3);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(EventLoopTest, ABatchOfPostsWakesASleepingLoopAtMostOnce) {
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("wakes"));
  for (int round = 0; round < 50; ++round) {
    const uint64_t before = loop.stats().wakes;
    std::promise<void> hold, done;
    loop.Post([&hold] { hold.get_future().wait(); });
    for (int i = 0; i < 100; ++i) loop.Post([] {});
    loop.Post([&done] { done.set_value(); });
    hold.set_value();
    done.get_future().wait();
    EXPECT_LE(loop.stats().wakes - before, 1u);
  }
}

// A thread that wakes a loop holds no lock. With a lock, a loop that runs at once, on the same CPU,
// would block on it: two switches more for each task.
TEST(EventLoopTest, LoopsOnOneCpuSleepAtMostOncePerTaskOfTheOther) {
  constexpr int kTasks = 20'000;
  EventLoop loops[2];
  std::promise<bool> pinned[2];
  int left = kTasks;
  std::promise<void> finished;
  std::function<void(int)> next = [&](int to) {
    loops[to].Post([&, to] { --left > 0 ? next(1 - to) : finished.set_value(); });
  };
  const int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= CPU_SETSIZE) GTEST_SKIP() << "a CPU set does not hold CPU " << cpu;
  for (int i : {0, 1}) {
    PHALANX_ASSERT_OK(loops[i].Start("one of two"));
    loops[i].Post([&pinned, i, cpu] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpu, &set);
      pinned[i].set_value(sched_setaffinity(0, sizeof(set), &set) == 0);
    });
    EXPECT_TRUE(pinned[i].get_future().get());
  }
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  next(0);
  finished.get_future().wait();
  getrusage(RUSAGE_SELF, &after);
  // Before the objects that their tasks use are destroyed.
  for (EventLoop& loop : loops) loop.Stop();
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 1.1 * kTasks);
}

TEST(EventLoopTest, TakesNoTurnWhileItIsIdle) {
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("idle"));
  Pair pair;
  std::unique_ptr<FdWatcher> watcher;
  uint64_t before = 0;
  std::promise<void> armed;
  loop.Post([&] {
    watcher = *loop.Watch(pair.fd[0]);
    watcher->OnReadable([] { FAIL() << "nothing was written"; });
    loop.RunAt(loop.Now() + absl::Hours(1), [] {});
    armed.set_value();
  });
  armed.get_future().wait();
  std::promise<uint64_t> turns;
  loop.Post([&] {
    before = loop.stats().turns;
    // One alarm in a hundred milliseconds; nothing else happens before it.
    loop.RunAt(loop.Now() + absl::Milliseconds(100), [&] {
      turns.set_value(loop.stats().turns - before);
      watcher.reset();
    });
  });
  EXPECT_LE(turns.get_future().get(), 2u);
  loop.Stop();
}

TEST(EventLoopTest, AnEarlierTimerOvertakesTheOneTheLoopSleepsFor) {
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("timers"));
  std::promise<void> fired;
  loop.Post([&] { loop.RunAt(loop.Now() + absl::Hours(1), [] { FAIL(); }); });
  loop.Post([&] { loop.RunAt(loop.Now() + absl::Milliseconds(2), [&] { fired.set_value(); }); });
  fired.get_future().wait();
}

TEST(EventLoopTest, StopCanBeCalledByATaskAndTwice) {
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("stop"));
  std::promise<void> stopped;
  loop.Post([&] {
    loop.Stop();
    stopped.set_value();
  });
  stopped.get_future().wait();
  loop.Stop();
  loop.Stop();
}

TEST(EventLoopTest, EveryStopReturnsAfterTheThreadHasEnded) {
  EventLoop loop;
  PHALANX_ASSERT_OK(loop.Start("stop"));
  std::promise<void> inside;
  std::promise<void> go_on;
  loop.Post([&] {
    inside.set_value();
    go_on.get_future().wait();
  });
  inside.get_future().wait();  // a loop that is stopped first never runs it
  auto first = std::async(std::launch::async, [&] { loop.Stop(); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  auto second = std::async(std::launch::async, [&] { loop.Stop(); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  go_on.set_value();
  first.wait();
  second.wait();
}

TEST(EventLoopTest, WithoutAThreadItDoesNotStart) {
  EventLoop loop;
  {
    const ::phalanx::testing::NoThreads no_threads;
    EXPECT_THAT(loop.Start("in vain"),
                StatusIs(absl::StatusCode::kResourceExhausted, ::testing::HasSubstr("in vain")));
  }
  PHALANX_EXPECT_OK(loop.Start("at last"));
}

// Runs a loop on the test's thread, with a watcher on one end of a pair.
class FdWatcherTest : public ::testing::Test {
 protected:
  FdWatcherTest() {
    auto watcher = loop_.Watch(pair_.fd[0]);
    PHALANX_EXPECT_OK(watcher);
    watcher_ = *std::move(watcher);
  }
  // Runs `task` after this number of turns, when every ready descriptor has been reported.
  void AfterTurns(int turns, std::function<void()> task) {
    if (turns == 0) return task();
    // A due timer runs once per turn.
    loop_.RunAt(loop_.Now(), [this, turns, task] { AfterTurns(turns - 1, task); });
  }
  void RunTurns(int turns) {
    AfterTurns(turns, [this] { loop_.Stop(); });
    loop_.Run();
  }
  void Feed() { EXPECT_EQ(write(pair_.fd[1], "x", 1), 1); }

  Pair pair_;
  EventLoop loop_;
  std::unique_ptr<FdWatcher> watcher_;
};

TEST_F(FdWatcherTest, ReportsADescriptorThatIsReadyAlready) {
  Feed();
  int reads = 0, writes = 0;
  watcher_->OnReadable([&] { ++reads; });
  watcher_->OnWritable([&] { ++writes; });
  RunTurns(20);
  EXPECT_EQ(reads, 1) << "one-shot";
  EXPECT_EQ(writes, 1);
}

TEST_F(FdWatcherTest, IsLevelTriggeredWhenArmedAgain) {
  Feed();
  int reads = 0;
  std::function<void()> again = [&] {
    if (++reads < 5) watcher_->OnReadable(again);
  };
  watcher_->OnReadable(again);
  RunTurns(20);
  EXPECT_EQ(reads, 5);
}

TEST_F(FdWatcherTest, TasksPostedByTasksRunInTheSameTurn) {
  uint64_t turns = 1;
  watcher_->OnReadable([&] {
    const uint64_t begun = loop_.stats().turns;
    loop_.Post([&, begun] {
      loop_.Post([&, begun] {
        turns = loop_.stats().turns - begun;
        loop_.Stop();
      });
    });
  });
  Feed();
  loop_.Run();
  EXPECT_EQ(turns, 0);
}

TEST_F(FdWatcherTest, EndlesslyPostedTasksDoNotDelayIt) {
  std::function<void()> endless = [&] { loop_.Post(endless); };
  endless();
  watcher_->OnReadable([this] { loop_.Stop(); });
  Feed();
  loop_.Run();
}

TEST_F(FdWatcherTest, ArmingAgainReplacesAndAnEmptyCallbackDisarms) {
  int first = 0, second = 0;
  watcher_->OnReadable([&] { ++first; });
  watcher_->OnReadable([&] { ++second; });
  watcher_->OnWritable([] { FAIL() << "disarmed"; });
  watcher_->OnWritable(nullptr);
  loop_.Post([this] { Feed(); });
  RunTurns(20);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST_F(FdWatcherTest, CanBeArmedAgainAfterItWasDisarmedAndFired) {
  int reads = 0;
  watcher_->OnReadable([] { FAIL() << "disarmed"; });
  watcher_->OnReadable(nullptr);
  Feed();
  AfterTurns(5, [&] { watcher_->OnReadable([&reads] { ++reads; }); });
  RunTurns(20);
  EXPECT_EQ(reads, 1);
}

TEST_F(FdWatcherTest, ReportsEndOfFile) {
  int reads = 0;
  watcher_->OnReadable([&] { ++reads; });
  pair_.CloseOther();
  RunTurns(20);
  EXPECT_EQ(reads, 1);
}

// Both callbacks are due in one turn. The first to run destroys the other.
TEST_F(FdWatcherTest, CallsNothingAfterItsDestruction) {
  Feed();
  int calls = 0;
  const auto destroy = [&] {
    ++calls;
    watcher_.reset();
  };
  watcher_->OnReadable(destroy);
  watcher_->OnWritable(destroy);
  RunTurns(20);
  EXPECT_EQ(calls, 1);
}

TEST_F(FdWatcherTest, TheDescriptorCanBeWatchedAgain) {
  watcher_->OnReadable([] { FAIL() << "destroyed"; });
  watcher_.reset();
  Feed();
  int reads = 0;
  watcher_ = *loop_.Watch(pair_.fd[0]);
  watcher_->OnReadable([&] { ++reads; });
  RunTurns(20);
  EXPECT_EQ(reads, 1);
}

TEST_F(FdWatcherTest, RefusesAnInvalidDescriptor) {
  EXPECT_THAT(loop_.Watch(-1).status(), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace phalanx::net
