// Memory of groups out of a store, and that of kept results, which gives way.
#include "src/jobs/group/service/store_group_memory.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/memory/heap_memory.h"
#include "src/object_store/store/store.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::jobs {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A node with 8 MiB.
class StoreGroupMemoryTest : public ::testing::Test {
 protected:
  StoreGroupMemoryTest() {
    object_store::StoreOptions options;
    options.self = {1, 1};
    options.name = "node-a";
    options.capacity_bytes = 8 * kMiB;
    Run([&] {
      store_ = std::make_unique<object_store::Store>(options, loop_, memory_, channel_);
      groups_ = std::make_unique<StoreGroupMemory>(*store_, loop_);
      groups_->ShareKept(kept_);
    });
  }
  ~StoreGroupMemoryTest() override {
    Run([&] {
      memory_of_calls_.clear();
      first_.Clear();
      second_.Clear();
      inputs_.clear();
      store_.reset();
    });
  }
  template <typename F>
  void Run(F f) {
    loop_.Post([&f] { f(); });
    Pass(absl::ZeroDuration());
  }
  void Pass(absl::Duration time) { scheduler_.RunFor(time); }
  using Answer = std::shared_ptr<std::optional<absl::Status>>;
  // The memory stays until the end of the test.
  Answer Allocate(uint64_t bytes, Instant deadline = Instant::Infinite()) {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    Run([&] {
      groups_->Allocate(bytes, 0, deadline,
                        [this, answer](absl::StatusOr<std::shared_ptr<GroupMemory>> memory) {
                          *answer = memory.status();
                          if (memory.ok()) memory_of_calls_.push_back(*std::move(memory));
                        });
    });
    return answer;
  }
  // The memory of the last call is that of a result that the group keeps.
  void Keep(KeptResults& group, uint64_t number) {
    const std::shared_ptr<GroupMemory> memory = memory_of_calls_.back();
    memory_of_calls_.pop_back();
    group.Add({.number = number,
               .spec = {.kind = CallKind::kAllReduce, .retain = 100, .copies = 1},
               .holds = true,
               .result = {memory->work.data(), memory->work.size()},
               .memory = memory});
  }

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_ = scheduler_.NewProcess("node");
  sim::SimExecutor& loop_ = process_->NewExecutor("control");
  object_store::HeapMemory memory_{loop_};
  object_store::ShardChannel channel_{1, [](int, const v1::NodeMessage&) {},
                                      [this](auto task) { loop_.Post(std::move(task)); }};
  std::unique_ptr<object_store::Store> store_;
  std::unique_ptr<StoreGroupMemory> groups_;
  std::shared_ptr<KeptBytes> kept_ = std::make_shared<KeptBytes>();
  KeptResults first_{kept_};
  KeptResults second_{kept_};
  std::vector<std::shared_ptr<GroupMemory>> memory_of_calls_;
  std::vector<object_store::ScratchBlock> inputs_;
};

TEST_F(StoreGroupMemoryTest, KeptResultsGetAQuarterOfTheCapacity) {
  EXPECT_EQ(kept_->limit, 2 * kMiB);
}

TEST_F(StoreGroupMemoryTest, TheOldestResultsOfAllGroupsGiveWayToACall) {
  Allocate(kMiB);
  Keep(first_, 1);
  Allocate(kMiB);
  Keep(second_, 1);
  Allocate(5 * kMiB);
  ASSERT_EQ(first_.AnswerOf(1).kept, Kept::kHere);
  // One more fits beside them.
  const Answer third = Allocate(kMiB);
  ASSERT_TRUE(third->has_value());
  EXPECT_EQ(second_.AnswerOf(1).kept, Kept::kHere);
  const Answer fourth = Allocate(kMiB / 2);
  Pass(kEvictionPatience);
  ASSERT_TRUE(fourth->has_value());
  EXPECT_THAT(**fourth, phalanx::testing::IsOk());
  EXPECT_EQ(first_.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(second_.AnswerOf(1).kept, Kept::kHere);
}

TEST_F(StoreGroupMemoryTest, ResultsGiveWayToAnInput) {
  Allocate(2 * kMiB);
  Keep(first_, 1);
  Allocate(5 * kMiB);
  std::optional<absl::Status> answer;
  Run([&] {
    groups_->AllocateInput(2 * kMiB, Instant::Infinite(),
                           [&](absl::StatusOr<object_store::ScratchBlock> block) {
                             answer = block.status();
                             if (block.ok()) inputs_.push_back(*std::move(block));
                           });
  });
  Pass(kEvictionPatience);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(*answer, phalanx::testing::IsOk());
  EXPECT_EQ(first_.AnswerOf(1).kept, Kept::kDropped);
}

TEST_F(StoreGroupMemoryTest, NothingIsKeptWhileACallWaits) {
  Allocate(2 * kMiB);
  Keep(first_, 1);
  Allocate(kMiB);
  Allocate(5 * kMiB);
  const Answer large = Allocate(4 * kMiB);
  Pass(kEvictionPatience);
  EXPECT_FALSE(large->has_value());
  EXPECT_EQ(first_.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(kept_->awaited, 1u);
  Keep(first_, 2);
  EXPECT_EQ(first_.AnswerOf(2).kept, Kept::kDropped);
  Run([&] { memory_of_calls_.clear(); });
  ASSERT_TRUE(large->has_value());
  EXPECT_EQ(kept_->awaited, 0u);
}

TEST_F(StoreGroupMemoryTest, NothingGivesWayToWhatCannotBeHadOrMustNotWait) {
  Allocate(2 * kMiB);
  Keep(first_, 1);
  Pass(absl::Seconds(1));
  const Answer never = Allocate(9 * kMiB);
  const Answer now = Allocate(7 * kMiB, Instant());
  for (const Answer& answer : {never, now}) {
    ASSERT_TRUE(answer->has_value());
    EXPECT_FALSE((*answer)->ok());
  }
  EXPECT_EQ(first_.AnswerOf(1).kept, Kept::kHere);
}

}  // namespace
}  // namespace phalanx::jobs
