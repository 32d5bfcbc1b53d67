#include "src/sim/seams/sim_executor.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/time/executor_conformance.h"

namespace phalanx::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SimHarness final : public ExecutorHarness {
 public:
  explicit SimHarness(const SimScheduler::Options& options)
      : scheduler_(options),
        process_(scheduler_.NewProcess("conformance")),
        executor_(process_->NewExecutor("loop")) {}
  Executor& executor() override { return executor_; }
  void Run(std::function<void(std::function<void()> done)> body) override {
    bool finished = false;
    executor_.Post([&body, &finished] { body([&finished] { finished = true; }); });
    EXPECT_TRUE(scheduler_.RunUntil([&finished] { return finished; }, absl::Minutes(1)));
  }
  void Shutdown() override { process_->Kill(); }
  bool threads() const override { return false; }

 private:
  SimScheduler scheduler_;
  const std::unique_ptr<SimProcess> process_;
  SimExecutor& executor_;
};

std::unique_ptr<ExecutorHarness> MakePlain() {
  return std::make_unique<SimHarness>(SimScheduler::Options{});
}
std::unique_ptr<ExecutorHarness> MakeShuffled() {
  return std::make_unique<SimHarness>(SimScheduler::Options{
      .seed = 7, .shuffle_ties = true, .max_turn_delay = absl::Microseconds(50)});
}

}  // namespace
}  // namespace phalanx::sim

namespace phalanx {
INSTANTIATE_TEST_SUITE_P(Sim, ExecutorConformance,
                         ::testing::Values(&sim::MakePlain, &sim::MakeShuffled));
}  // namespace phalanx

namespace phalanx::sim {
namespace {

TEST(SimSchedulerTest, MovesTheClockFromEventToEvent) {
  SimScheduler scheduler({});
  std::vector<int64_t> times;
  const auto note = [&] { times.push_back(scheduler.now().nanos()); };
  scheduler.At(Instant::FromNanos(20), note);
  scheduler.At(Instant::FromNanos(10), [&] {
    note();
    scheduler.At(Instant::FromNanos(5), note);  // past: now
  });
  while (scheduler.Step()) {
  }
  EXPECT_THAT(times, ElementsAre(10, 10, 20));
  EXPECT_EQ(scheduler.steps(), 3u);
}

TEST(SimSchedulerTest, RunForMovesTheClockEvenWhenNothingHappens) {
  SimScheduler scheduler({});
  bool ran = false;
  scheduler.After(absl::Seconds(2), [&ran] { ran = true; });
  scheduler.RunFor(absl::Seconds(1));
  EXPECT_EQ(scheduler.now(), Instant() + absl::Seconds(1));
  EXPECT_FALSE(ran);
  scheduler.RunFor(absl::Seconds(1));
  EXPECT_TRUE(ran);
}

TEST(SimSchedulerTest, RunUntilReturnsFalseAtItsLimitAndWithoutEvents) {
  SimScheduler scheduler({});
  EXPECT_FALSE(scheduler.RunUntil([] { return false; }, absl::Hours(1)));
  scheduler.After(absl::Seconds(2), [] {});
  EXPECT_FALSE(scheduler.RunUntil([] { return false; }, absl::Seconds(1)));
  EXPECT_TRUE(scheduler.RunUntil([&] { return scheduler.steps() == 1; }, absl::Hours(1)));
}

// The order in which ten executors run one task each, all posted at one instant.
std::string OrderOfTen(const SimScheduler::Options& options) {
  SimScheduler scheduler(options);
  std::string order;
  std::vector<std::unique_ptr<SimProcess>> processes;
  for (int i = 0; i < 10; ++i) {
    processes.push_back(scheduler.NewProcess(absl::StrCat("p", i)));
    processes.back()->NewExecutor("loop").Post([&order, i] { absl::StrAppend(&order, i); });
  }
  while (scheduler.Step()) {
  }
  return order;
}

TEST(SimSchedulerTest, KeepsTheOrderOfInsertionWithoutShuffling) {
  EXPECT_EQ(OrderOfTen({}), "0123456789");
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const SimScheduler::Options options = {.seed = seed, .shuffle_ties = true};
    orders.insert(OrderOfTen(options));
    EXPECT_EQ(OrderOfTen(options), OrderOfTen(options)) << "seed " << seed;
  }
  EXPECT_EQ(orders.size(), 20u);
}

TEST(SimProcessTest, HasAClockOfItsOwn) {
  SimScheduler scheduler({.seed = 3});
  const auto a = scheduler.NewProcess("a");
  const auto b = scheduler.NewProcess("b");
  EXPECT_NE(a->NewExecutor("loop").Now(), b->NewExecutor("loop").Now());
  EXPECT_EQ(a->NewExecutor("x").Now(), a->NewExecutor("y").Now());
}

TEST(SimProcessTest, RunsEverythingThatWaitedWhenItResumes) {
  SimScheduler scheduler({});
  const auto process = scheduler.NewProcess("p");
  SimExecutor& loop = process->NewExecutor("loop");
  std::vector<std::string> ran;
  process->Stall();
  loop.Post([&ran] { ran.push_back("task"); });
  loop.RunAt(loop.Now() + absl::Seconds(1), [&ran] { ran.push_back("timer"); });
  scheduler.RunFor(absl::Seconds(5));
  EXPECT_THAT(ran, IsEmpty());
  process->Resume();
  scheduler.RunFor(absl::ZeroDuration());
  EXPECT_THAT(ran, ElementsAre("timer", "task"));
}

TEST(SimProcessTest, AStallLeavesTheTurnInTheQueueUnused) {
  SimScheduler scheduler({});
  const auto process = scheduler.NewProcess("p");
  SimExecutor& loop = process->NewExecutor("loop");
  int ran = 0;
  loop.Post([&ran] { ++ran; });
  process->Stall();
  scheduler.RunFor(absl::Seconds(1));
  EXPECT_EQ(ran, 0);
  process->Resume();
  scheduler.RunFor(absl::Seconds(1));
  EXPECT_EQ(ran, 1);
}

TEST(SimProcessTest, KillCallsTheDeathHandlersThenDropsAllTasks) {
  SimScheduler scheduler({});
  auto process = scheduler.NewProcess("p");
  SimExecutor& loop = process->NewExecutor("loop");
  auto owned = std::make_shared<int>();
  std::vector<long> uses;
  loop.Post([owned] { FAIL() << "dead"; });
  loop.RunAt(loop.Now(), [owned] { FAIL() << "dead"; });
  process->OnDeath([&] { uses.push_back(owned.use_count()); });
  process->Kill();
  process->Kill();
  EXPECT_THAT(uses, ElementsAre(3));
  EXPECT_EQ(owned.use_count(), 1);
  loop.Post([owned] { FAIL() << "dead"; });
  loop.RunAt(loop.Now(), [owned] { FAIL() << "dead"; });
  EXPECT_EQ(owned.use_count(), 1);
  scheduler.RunFor(absl::Seconds(1));
  process.reset();
  scheduler.RunFor(absl::Seconds(1));
}

TEST(SimProcessTest, IsNotKilledByItsOwnTask) {
  SimScheduler scheduler({});
  const auto process = scheduler.NewProcess("p");
  process->NewExecutor("loop").Post([&process] { process->Kill(); });
  EXPECT_DEATH(scheduler.Step(), "killed from outside");
}

}  // namespace
}  // namespace phalanx::sim
