#include "src/local/send_schedule.h"

#include "gtest/gtest.h"

namespace phalanx::object_store {
namespace {

TEST(SendScheduleTest, AnswersToRequestsAreSentAfterTheRead) {
  SendSchedule sends;
  sends.BeginRead();
  EXPECT_FALSE(sends.OnAnswer());
  EXPECT_FALSE(sends.OnAnswer());
  EXPECT_TRUE(sends.EndRead());
  sends.BeginRead();
  EXPECT_FALSE(sends.EndRead());
}

TEST(SendScheduleTest, OneTaskSendsAllOtherAnswers) {
  SendSchedule sends;
  EXPECT_TRUE(sends.OnAnswer());
  EXPECT_FALSE(sends.OnAnswer());
  // The posted task also sends answers of a read before it.
  sends.BeginRead();
  EXPECT_FALSE(sends.OnAnswer());
  EXPECT_FALSE(sends.EndRead());
  sends.Posted();
  EXPECT_TRUE(sends.OnAnswer());
}

TEST(SendScheduleTest, AFullSocketDelaysEverySend) {
  SendSchedule sends;
  sends.WaitForRoom();
  EXPECT_TRUE(sends.waiting_for_room());
  EXPECT_FALSE(sends.OnAnswer());
  sends.BeginRead();
  EXPECT_FALSE(sends.OnAnswer());
  EXPECT_FALSE(sends.EndRead());
  sends.OnRoom();
  EXPECT_TRUE(sends.OnAnswer());
}

}  // namespace
}  // namespace phalanx::object_store
