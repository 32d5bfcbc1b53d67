// The numbers and deadlines of calls, without a connection.
#include "src/client/connection/call_table.h"

#include "gtest/gtest.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {
namespace {

class TestCall final : public Call {
 public:
  TestCall() : Call(nullptr, "Get", ObjectId()) {}
  void OnAnswer(uint64_t, const local::Answer&) override {}
  void OnFailure(const absl::Status&) override {}
};

Instant At(int64_t nanos) { return Instant::FromNanos(nanos); }

TEST(CallTableTest, ANumberIsOpenUntilItIsAnswered) {
  CallTable table;
  CallTable::Trash trash;
  const auto call = std::make_shared<TestCall>();
  table.Begin(call, {7, 3});
  EXPECT_EQ(table.Find(7), call);
  EXPECT_FALSE(table.IsOpen(8));
  table.AddPart(8, call);
  table.EndPart(7, trash);
  EXPECT_EQ(table.Find(7), nullptr);
  EXPECT_TRUE(table.IsOpen(8));
  EXPECT_EQ(table.size(), 1u);
}

TEST(CallTableTest, NumbersAreInTheOrderOfTheirRequests) {
  CallTable table;
  CallTable::Trash trash;
  const auto call = std::make_shared<TestCall>();
  std::vector<uint64_t> even;
  for (uint64_t number = 1; number <= 100; ++number) {
    // Not in this order, nor in that of their hashes.
    table.Begin(call, {number * 37 % 101, 1});
    if (number % 2 == 0) even.push_back(number);
  }
  for (uint64_t number = 1; number <= 100; number += 2) table.EndPart(number, trash);
  EXPECT_EQ(table.Numbers(), even);
}

TEST(CallTableTest, ACallWithoutRequestsHasADeadlineOnly) {
  CallTable table;
  CallTable::Trash trash;
  const auto timer = std::make_shared<TestCall>();
  const CallRequests requests{7, 0, At(100)};
  table.Begin(timer, requests);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.Expired(At(99)), nullptr);
  EXPECT_EQ(table.Expired(At(100)), timer);
  EXPECT_EQ(table.WithDeadline(), timer);
  table.End(requests, trash);
  EXPECT_EQ(table.Expired(At(100)), nullptr);
  EXPECT_EQ(table.WithDeadline(), nullptr);
}

TEST(CallTableTest, EndClosesAllNumbersAndTheDeadlineOfACall) {
  CallTable table;
  CallTable::Trash trash;
  const auto ended = std::make_shared<TestCall>();
  const auto other = std::make_shared<TestCall>();
  const CallRequests requests{1, 2, At(100)};
  table.Begin(ended, requests);
  table.AddPart(2, ended);
  table.Begin(other, {3, 1, At(200)});
  table.End(requests, trash);
  table.End(requests, trash);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_TRUE(table.IsOpen(3));
  EXPECT_EQ(table.next_deadline(), At(200));
}

TEST(CallTableTest, DroppedReferencesGoToTheTrash) {
  CallTable table;
  CallTable::Trash trash;
  auto call = std::make_shared<TestCall>();
  const std::weak_ptr<TestCall> observed = call;
  const CallRequests requests{1, 1, At(100)};
  table.Begin(call, requests);
  call.reset();
  table.End(requests, trash);
  EXPECT_FALSE(observed.expired());
  trash.clear();
  EXPECT_TRUE(observed.expired());
}

TEST(CallTableTest, TheEarliestDeadlineExpiresFirst) {
  CallTable table;
  CallTable::Trash trash;
  const auto late = std::make_shared<TestCall>();
  const auto early = std::make_shared<TestCall>();
  const auto patient = std::make_shared<TestCall>();
  table.Begin(late, {1, 1, At(200)});
  table.Begin(early, {2, 1, At(100)});
  table.Begin(patient, {3, 1});
  EXPECT_EQ(table.Expired(At(99)), nullptr);
  EXPECT_EQ(table.Expired(At(200)), early);
  table.End({2, 1, At(100)}, trash);
  EXPECT_EQ(table.Expired(At(200)), late);
  table.End({1, 1, At(200)}, trash);
  EXPECT_TRUE(table.next_deadline().infinite());
  EXPECT_EQ(table.Expired(At(1000)), nullptr);
}

}  // namespace
}  // namespace phalanx::internal
