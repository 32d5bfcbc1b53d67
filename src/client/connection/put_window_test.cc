// The limit of unanswered bytes of Puts.
#include "src/client/connection/put_window.h"

#include "gtest/gtest.h"

namespace phalanx::internal {
namespace {

constexpr size_t kLimit = object_store::local::kMaxPutBytesInFlight;

TEST(PutWindowTest, BytesCountUntilTheAnswer) {
  PutWindow window;
  window.Reserve(kLimit);
  window.Sent(1, kLimit);
  EXPECT_FALSE(window.HasRoom(1));
  window.Answered(2);
  EXPECT_FALSE(window.HasRoom(1));
  window.Answered(1);
  window.Answered(1);
  EXPECT_EQ(window.bytes(), 0u);
  EXPECT_TRUE(window.HasRoom(kLimit));
}

TEST(PutWindowTest, OnePutAlwaysFits) {
  PutWindow window;
  EXPECT_TRUE(window.HasRoom(2 * kLimit));
  window.Reserve(1);
  EXPECT_FALSE(window.HasRoom(kLimit));
}

TEST(PutWindowTest, AReservedPutThatIsNotSentReturnsItsBytes) {
  PutWindow window;
  window.Reserve(10);
  window.Return(10);
  EXPECT_EQ(window.bytes(), 0u);
}

// The connection can end between Reserve and Start.
TEST(PutWindowTest, ReturnAfterClearLeavesNothing) {
  PutWindow window;
  window.Reserve(10);
  window.Clear();
  window.Return(10);
  EXPECT_EQ(window.bytes(), 0u);
}

}  // namespace
}  // namespace phalanx::internal
