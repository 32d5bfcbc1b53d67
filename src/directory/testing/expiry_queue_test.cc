#include "src/directory/objects/expiry_queue.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

class ExpiryQueueTest : public ::testing::Test {
 protected:
  ~ExpiryQueueTest() override { EXPECT_THAT(queue_.CheckInvariants(), IsOk()); }

  static ObjectId Id(int number) { return ObjectId::FromName("test", absl::StrCat(number)); }
  static Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

  ExpiryQueue queue_;
};

TEST_F(ExpiryQueueTest, IsNeverDueWhileItIsEmpty) {
  EXPECT_EQ(queue_.FirstDue(At(1000)), nullptr);
  EXPECT_TRUE(queue_.NextDeadline().infinite());
  EXPECT_TRUE(queue_.Find(Id(1)).infinite());
}

TEST_F(ExpiryQueueTest, TheEarliestObjectIsDueFirst) {
  queue_.Set(Id(1), At(3));
  queue_.Set(Id(2), At(2));
  EXPECT_EQ(queue_.NextDeadline(), At(2));
  EXPECT_EQ(queue_.FirstDue(At(1)), nullptr);
  ASSERT_NE(queue_.FirstDue(At(2)), nullptr);
  EXPECT_EQ(*queue_.FirstDue(At(9)), Id(2));
  queue_.Set(Id(2), Instant::Infinite());
  EXPECT_EQ(*queue_.FirstDue(At(9)), Id(1));
}

TEST_F(ExpiryQueueTest, ALaterCallReplacesTheTime) {
  queue_.Set(Id(1), At(3));
  queue_.Set(Id(1), At(5));
  EXPECT_EQ(queue_.Find(Id(1)), At(5));
  EXPECT_EQ(queue_.FirstDue(At(4)), nullptr);
  EXPECT_EQ(queue_.size(), 1u);
}

TEST_F(ExpiryQueueTest, AnInfiniteTimeTakesNoEntry) {
  queue_.Set(Id(1), Instant::Infinite());
  EXPECT_TRUE(queue_.empty());
}

// Beside a map by id, which the due objects are searched in.
TEST_F(ExpiryQueueTest, AgreesWithAMap) {
  Random random(7);
  std::map<ObjectId, Instant> model;
  for (int step = 0; step < 3000; ++step) {
    const ObjectId id = Id(static_cast<int>(random.Below(30)));
    const Instant when =
        random.Chance(0.3) ? Instant::Infinite() : At(static_cast<int>(random.Below(100)));
    queue_.Set(id, when);
    model[id] = when;
    const Instant now = At(static_cast<int>(random.Below(100)));
    Instant earliest = Instant::Infinite();
    for (const auto& [known, at] : model) earliest = std::min(earliest, at);
    EXPECT_EQ(queue_.NextDeadline(), earliest);
    const ObjectId* due = queue_.FirstDue(now);
    ASSERT_EQ(due != nullptr, earliest <= now);
    if (due != nullptr) {
      EXPECT_EQ(model[*due], earliest);
    }
    ASSERT_THAT(queue_.CheckInvariants(), IsOk());
  }
}

}  // namespace
}  // namespace phalanx::directory
