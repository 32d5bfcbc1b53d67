#include "src/object_store/memory/memory_queue.h"

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/memory/heap_memory.h"
#include "src/object_store/testing/copies.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::StatusIs;

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

// A node with 100 bytes. What is granted becomes a primary copy of object 1, generation 1, 2, ...
class MemoryQueueTest : public ::testing::Test, public MemoryUser {
 protected:
  MemoryQueueTest() : process_(scheduler_.NewProcess("node")), loop_(process_->NewExecutor("c")) {}

  // ---- MemoryUser
  bool StillWants(const MemoryOwner&) const override { return wanted_; }
  void OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock>) override {
    copies_.push_back(table_.Add(testing::CompleteCopy(1, copies_.size() + 1, owner.size_bytes)));
    table_.MakePrimary(copies_.back());
  }
  void OnNoMemory(const MemoryOwner&, const absl::Status& why) override { refused_ = why; }
  void RequestEviction(Copy* copy) override { table_.Detach(copy); }

  // On the loop, with everything that follows at this instant.
  void Run(std::function<void()> f) {
    loop_.Post([&f] { f(); });
    scheduler_.RunFor(absl::ZeroDuration());
    PHALANX_EXPECT_OK(queue_.CheckInvariants());
  }
  void HandOut() {
    Run([&] {
      while (queue_.HandOut()) {
      }
    });
  }
  Request& AskForPut(uint64_t bytes) {
    Request& request = requests_.New(client_, Id(1), Instant::Infinite(), PutPart());
    Run([&] { queue_.Ask(bytes, 0, MemoryOwner{request.id, Id(1), 0, {}}); });
    return request;
  }
  std::shared_ptr<Reservation> Reserve(uint64_t bytes) {
    std::shared_ptr<Reservation> reservation;
    Run([&] {
      queue_.Reserve(client_, Id(9), bytes, Instant::Infinite(),
                     [&](auto result) { reservation = *std::move(result); });
      for (const RequestId id : requests_.TakeAnswers()) requests_.Find(id)->answer();
    });
    return reservation;
  }

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  HeapMemory memory_{loop_};
  StoreOptions options_;
  Turns turns_{[] {}};
  RequestTable requests_{"node-a", 100, [] {}};
  const ClientId client_ = requests_.OpenClient();
  ObjectTable table_{100};
  PullManager pulls_;
  MemoryQueue queue_{options_, loop_, memory_, turns_, requests_, table_, pulls_, *this};

  bool wanted_ = true;
  std::vector<Copy*> copies_;
  absl::Status refused_;
};

TEST_F(MemoryQueueTest, MemoryThatIsFreeIsGrantedAtOnce) {
  AskForPut(60);
  EXPECT_TRUE(copies_.empty()) << "the caller is still in its call";
  HandOut();
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_EQ(table_.used_bytes(), 60u);
  EXPECT_EQ(table_.reserved_bytes(), 0u);
}

TEST_F(MemoryQueueTest, ARequestWaitsUntilACopyGoes) {
  AskForPut(60);
  HandOut();
  const Request& waiting = AskForPut(50);
  EXPECT_NE(waiting.ticket, 0u);
  EXPECT_EQ(queue_.waiting(), 1u);
  Run([&] { table_.Detach(copies_[0]); });
  HandOut();
  EXPECT_EQ(copies_.size(), 2u);
  EXPECT_EQ(waiting.ticket, 0u);
}

TEST_F(MemoryQueueTest, ARequestThatEndsLeavesTheQueue) {
  AskForPut(60);
  Request& waiting = AskForPut(50);
  Run([&] { queue_.Forget(waiting); });
  EXPECT_EQ(queue_.waiting(), 0u);
}

TEST_F(MemoryQueueTest, AnAnsweredRequestIsForgottenBeforeItsTurn) {
  AskForPut(60);
  Request& answered = AskForPut(50);
  AskForPut(40);
  EXPECT_EQ(queue_.waiting(), 2u);
  requests_.Fail(answered, absl::DeadlineExceededError("late"));
  EXPECT_FALSE(queue_.CheckInvariants().ok()) << "its ticket is in the queue";
  Run([&] { queue_.Forget(answered); });
  EXPECT_EQ(queue_.waiting(), 1u);
  HandOut();
  EXPECT_EQ(queue_.waiting(), 0u);
  EXPECT_EQ(table_.used_bytes(), 100u);
}

TEST_F(MemoryQueueTest, MemoryThatIsNoLongerWantedIsGivenBack) {
  wanted_ = false;
  AskForPut(60);
  HandOut();
  EXPECT_EQ(table_.used_bytes(), 0u);
}

TEST_F(MemoryQueueTest, MoreThanTheNodeHasIsRefused) {
  AskForPut(101);
  EXPECT_THAT(refused_, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(MemoryQueueTest, AFailedAllocationGivesTheBytesBack) {
  memory_.FailNext(1);
  AskForPut(60);
  EXPECT_FALSE(refused_.ok());
  EXPECT_EQ(table_.used_bytes(), 0u);
}

TEST_F(MemoryQueueTest, AReservationCountsUntilItGoes) {
  std::shared_ptr<Reservation> reservation = Reserve(70);
  ASSERT_NE(reservation, nullptr);
  EXPECT_EQ(table_.used_bytes(), 70u);
  Request& request = requests_.New(client_, Id(1), Instant::Infinite(), CreatePart());
  Run([&] { queue_.AskFrom(*reservation, 30, MemoryOwner{request.id, Id(1), 0, {}, 30}); });
  EXPECT_EQ(reservation->bytes(), 40u);
  EXPECT_EQ(table_.used_bytes(), 70u) << "30 of them are a copy's now";
  Run([&] { reservation.reset(); });
  EXPECT_EQ(table_.used_bytes(), 30u);
}

TEST_F(MemoryQueueTest, AScratchBlockCountsUntilItGoes) {
  std::shared_ptr<Reservation> reservation = Reserve(70);
  absl::StatusOr<ScratchBlock> scratch = absl::UnknownError("not called");
  Run([&] {
    queue_.AllocateScratch(*reservation, 50, [&](auto block) { scratch = std::move(block); });
  });
  PHALANX_ASSERT_OK(scratch);
  Run([&] { reservation.reset(); });
  EXPECT_EQ(table_.used_bytes(), 50u);
  Run([&] { scratch->counted.reset(); });
  EXPECT_EQ(table_.used_bytes(), 0u);
}

}  // namespace
}  // namespace phalanx::object_store
