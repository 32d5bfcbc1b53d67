// The tests that every Executor passes. Testonly.
//
// An implementation includes this header in one test and adds
//   INSTANTIATE_TEST_SUITE_P(EventLoop, ExecutorConformance, ::testing::Values(&MakeHarness));
#ifndef PHALANX_COMMON_TIME_EXECUTOR_CONFORMANCE_H_
#define PHALANX_COMMON_TIME_EXECUTOR_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/time/executor.h"

namespace phalanx {

// An executor and a way to run it. The test's thread calls everything.
class ExecutorHarness {
 public:
  virtual ~ExecutorHarness() = default;
  virtual Executor& executor() = 0;
  // Runs `body` as a task of the executor, and runs the executor until the body calls `done`.
  virtual void Run(std::function<void(std::function<void()> done)> body) = 0;
  // Shuts the executor down: after this, no task runs.
  virtual void Shutdown() = 0;
  // True if other threads may post to this executor.
  virtual bool threads() const = 0;
};

using MakeExecutorHarness = std::unique_ptr<ExecutorHarness> (*)();

class ExecutorConformance : public ::testing::TestWithParam<MakeExecutorHarness> {
 protected:
  using Done = std::function<void()>;
  // Returns an object for a task to own. Its destruction increments `destroyed`.
  static std::shared_ptr<int> Counted(int& destroyed) {
    return std::shared_ptr<int>(new int(0), [&destroyed](int* p) {
      delete p;
      ++destroyed;
    });
  }

  const std::unique_ptr<ExecutorHarness> harness_ = GetParam()();
  Executor& executor_ = harness_->executor();
};

TEST_P(ExecutorConformance, RunsTasksInTheOrderTheyWerePosted) {
  std::vector<int> order;
  harness_->Run([&](Done done) {
    for (int i = 0; i < 100; ++i) executor_.Post([&order, i] { order.push_back(i); });
    executor_.Post(done);
  });
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(ExecutorConformance, NeverRunsATaskInsidePost) {
  bool inside = false;
  harness_->Run([&](Done done) {
    inside = true;
    executor_.Post([&inside, done] {
      EXPECT_FALSE(inside);
      done();
    });
    inside = false;
  });
}

TEST_P(ExecutorConformance, KnowsItsOwnTasks) {
  EXPECT_FALSE(executor_.InLoop());
  harness_->Run([&](Done done) {
    EXPECT_TRUE(executor_.InLoop());
    executor_.RunAt(executor_.Now(), [this, done] {
      EXPECT_TRUE(executor_.InLoop());
      done();
    });
  });
  EXPECT_FALSE(executor_.InLoop());
}

TEST_P(ExecutorConformance, NowStandsStillInATaskAndNeverGoesBack) {
  Instant last;
  harness_->Run([&](Done done) {
    last = executor_.Now();
    for (int i = 0; i < 20; ++i) {
      executor_.Post([this, &last] {
        const Instant now = executor_.Now();
        EXPECT_GE(now, last);
        last = now;
        volatile int work = 0;
        for (int j = 0; j < 1000; ++j) work = work + j;
        EXPECT_EQ(executor_.Now(), now);
      });
    }
    executor_.Post(done);
  });
}

TEST_P(ExecutorConformance, RunsATimerOnceAndNotBeforeItsTime) {
  int runs = 0;
  harness_->Run([&](Done done) {
    const Instant when = executor_.Now() + absl::Milliseconds(5);
    executor_.RunAt(when, [this, &runs, when] {
      EXPECT_GE(executor_.Now(), when);
      ++runs;
    });
    executor_.RunAt(when + absl::Milliseconds(5), done);
  });
  EXPECT_EQ(runs, 1);
}

TEST_P(ExecutorConformance, RunsTimersInOrderOfTimeThenId) {
  std::vector<int> order;
  harness_->Run([&](Done done) {
    const Instant start = executor_.Now();
    const int delays_ms[] = {3, 1, 2, 1, 3};
    for (int i = 0; i < 5; ++i) {
      executor_.RunAt(start + absl::Milliseconds(delays_ms[i]),
                      [&order, i] { order.push_back(i); });
    }
    executor_.RunAt(start + absl::Milliseconds(4), done);
  });
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 2, 0, 4));
}

TEST_P(ExecutorConformance, RunsATimerOfThePastSoonButNotInsideRunAt) {
  bool inside = false;
  harness_->Run([&](Done done) {
    inside = true;
    executor_.RunAt(executor_.Now() - absl::Seconds(1), [&inside, done] {
      EXPECT_FALSE(inside);
      done();
    });
    inside = false;
  });
}

TEST_P(ExecutorConformance, TasksRunBesideATimerThatIsAlwaysDue) {
  bool stop = false;
  std::function<void()> again = [&] {
    if (!stop) executor_.RunAt(executor_.Now(), again);
  };
  harness_->Run([&](Done done) {
    again();
    executor_.Post([&, done] {
      executor_.Post([&stop, done] {
        stop = true;
        done();
      });
    });
  });
}

TEST_P(ExecutorConformance, DestroysACancelledTimersTaskAndDoesNotRunIt) {
  int destroyed = 0;
  bool ran = false;
  harness_->Run([&](Done done) {
    const Instant when = executor_.Now() + absl::Milliseconds(1);
    const TimerId id = executor_.RunAt(when, [&ran, counted = Counted(destroyed)] { ran = true; });
    EXPECT_NE(id, 0u);
    executor_.Cancel(id);
    executor_.Post([&destroyed] { EXPECT_EQ(destroyed, 1); });
    executor_.RunAt(when + absl::Milliseconds(2), done);
  });
  EXPECT_FALSE(ran);
  EXPECT_EQ(destroyed, 1);
}

TEST_P(ExecutorConformance, ATimerCanCancelAnotherThatIsDueWithIt) {
  bool ran = false;
  harness_->Run([&](Done done) {
    const Instant when = executor_.Now() + absl::Milliseconds(1);
    auto second = std::make_shared<TimerId>(0);
    executor_.RunAt(when, [this, second] { executor_.Cancel(*second); });
    *second = executor_.RunAt(when, [&ran] { ran = true; });
    executor_.RunAt(when, done);
  });
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, IgnoresUnknownFiredAndOwnIdsInCancel) {
  int runs = 0;
  harness_->Run([&](Done done) {
    executor_.Cancel(0);
    executor_.Cancel(12345);
    auto own = std::make_shared<TimerId>(0);
    *own = executor_.RunAt(executor_.Now(), [&, own, done] {
      ++runs;
      executor_.Cancel(*own);
      const TimerId next = executor_.RunAt(executor_.Now(), [&runs, done] {
        ++runs;
        done();
      });
      EXPECT_NE(next, *own);
      executor_.Cancel(*own);
    });
  });
  EXPECT_EQ(runs, 2);
}

TEST_P(ExecutorConformance, NeverRunsATimerAtInfinite) {
  bool ran = false;
  harness_->Run([&](Done done) {
    executor_.RunAt(Instant::Infinite(), [&ran] { ran = true; });
    executor_.RunAt(executor_.Now() + absl::Milliseconds(1), done);
  });
  harness_->Shutdown();
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, DestroysTasksInsteadOfRunningThemAfterShutdown) {
  int destroyed = 0;
  bool ran = false;
  harness_->Run([&](Done done) {
    executor_.RunAt(executor_.Now() + absl::Hours(1),
                    [&ran, counted = Counted(destroyed)] { ran = true; });
    done();
  });
  harness_->Shutdown();
  EXPECT_EQ(destroyed, 1);
  executor_.Post([&ran, counted = Counted(destroyed)] { ran = true; });
  EXPECT_EQ(destroyed, 2);
  EXPECT_FALSE(ran);
}

TEST_P(ExecutorConformance, ATasksDestructorMayPostDuringShutdown) {
  int destroyed = 0;
  struct PostsWhenDestroyed {
    Executor& executor;
    Task task;
    ~PostsWhenDestroyed() { executor.Post(std::move(task)); }
  };
  harness_->Run([&](Done done) {
    std::shared_ptr<PostsWhenDestroyed> posts(
        new PostsWhenDestroyed{executor_, [counted = Counted(destroyed)] {}});
    executor_.RunAt(executor_.Now() + absl::Hours(1), [posts] {});
    done();
  });
  harness_->Shutdown();
  EXPECT_EQ(destroyed, 1);
}

TEST_P(ExecutorConformance, KeepsTheOrderOfEachThreadThatPosts) {
  if (!harness_->threads()) GTEST_SKIP() << "one thread only";
  constexpr int kThreads = 3;
  constexpr int kPosts = 2000;
  std::vector<int> next(kThreads);
  int left = kThreads * kPosts;
  std::vector<std::thread> threads;
  harness_->Run([&](Done done) {
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, done] {
        for (int i = 0; i < kPosts; ++i) {
          executor_.Post([&, t, i, done] {
            EXPECT_EQ(next[t]++, i);
            if (--left == 0) done();
          });
        }
      });
    }
  });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIME_EXECUTOR_CONFORMANCE_H_
