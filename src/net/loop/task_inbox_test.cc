#include "src/net/loop/task_inbox.h"

#include <memory>

#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

class TaskInboxTest : public ::testing::Test {
 protected:
  bool Post() {
    return inbox_.Post([] {});
  }
  size_t Take(bool may_sleep = false) {
    std::vector<Task> batch;
    asleep_ = inbox_.Take(may_sleep, batch);
    return batch.size();
  }

  TaskInbox inbox_;
  bool asleep_ = false;
};

TEST_F(TaskInboxTest, AnAwakeLoopNeedsNoWakeUp) {
  EXPECT_FALSE(Post());
  EXPECT_FALSE(inbox_.RequestStop());
  EXPECT_EQ(Take(), 1u);
}

TEST_F(TaskInboxTest, TheFirstOfManyPostsWakesASleepingLoop) {
  EXPECT_EQ(Take(/*may_sleep=*/true), 0u);
  EXPECT_TRUE(asleep_);
  EXPECT_TRUE(Post());
  EXPECT_FALSE(Post());
  EXPECT_EQ(Take(), 2u);
}

TEST_F(TaskInboxTest, ALoopWithTasksDoesNotSleep) {
  EXPECT_FALSE(Post());
  EXPECT_EQ(Take(/*may_sleep=*/true), 1u);
  EXPECT_FALSE(asleep_);
  EXPECT_FALSE(Post());
}

TEST_F(TaskInboxTest, AtMostOneWakeUpIsInFlight) {
  Take(/*may_sleep=*/true);
  EXPECT_TRUE(Post());
  Take();
  // The loop sleeps again before the wake-up has arrived, which then wakes it.
  Take(/*may_sleep=*/true);
  EXPECT_TRUE(asleep_);
  EXPECT_FALSE(Post());
  inbox_.TakeWakeUp();
  Take();
  Take(/*may_sleep=*/true);
  EXPECT_TRUE(Post());
}

TEST_F(TaskInboxTest, AStopWakesASleepingLoopWhichDoesNotSleepAgain) {
  Take(/*may_sleep=*/true);
  EXPECT_TRUE(inbox_.RequestStop());
  EXPECT_TRUE(inbox_.stopping());
  Take(/*may_sleep=*/true);
  EXPECT_FALSE(asleep_);
}

TEST_F(TaskInboxTest, AStoppingLoopTakesNoMoreTasksInItsTurn) {
  std::vector<Task> batch;
  EXPECT_FALSE(inbox_.TakeMore(batch));
  EXPECT_FALSE(Post());
  EXPECT_TRUE(inbox_.TakeMore(batch));
  batch.clear();
  EXPECT_FALSE(Post());
  EXPECT_FALSE(inbox_.RequestStop());
  EXPECT_FALSE(inbox_.TakeMore(batch));
}

TEST_F(TaskInboxTest, ADrainedInboxIsClosedAndLeavesATaskWithItsCaller) {
  EXPECT_FALSE(Post());
  EXPECT_EQ(inbox_.Drain().size(), 1u);
  EXPECT_FALSE(Post()) << "still open: the task destroyed by Drain can have posted another";
  EXPECT_EQ(inbox_.Drain().size(), 1u);
  EXPECT_TRUE(inbox_.Drain().empty());
  Task late = [] {};
  EXPECT_FALSE(inbox_.Post(std::move(late)));
  EXPECT_TRUE(late != nullptr);
  EXPECT_TRUE(inbox_.Drain().empty());
}

}  // namespace
}  // namespace phalanx::net
