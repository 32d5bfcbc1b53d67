#include "src/object_store/pulls/serve_waitlist.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

class ServeWaitlistTest : public ::testing::Test {
 protected:
  void Add(uint64_t serial, int object, uint64_t sequence) {
    net::ServeRequest request;
    request.object = Id(object);
    request.generation = Generation{NodeKey{1, 1}, sequence};
    list_.Add(serial, request, [](absl::StatusOr<net::ServeGrant>) {});
    PHALANX_EXPECT_OK(list_.CheckInvariants());
  }
  // Serial numbers of those taken: the generation with this sequence is ready.
  std::vector<uint64_t> Take(int object, uint64_t expired, uint64_t ready) {
    std::vector<uint64_t> serials;
    const auto is_ready = [ready](const net::ServeRequest& request) {
      return request.generation.sequence == ready;
    };
    for (const auto& waiting : list_.Take(Id(object), expired, is_ready)) {
      serials.push_back(waiting.serial);
    }
    PHALANX_EXPECT_OK(list_.CheckInvariants());
    return serials;
  }

  ServeWaitlist list_{3};
};

TEST_F(ServeWaitlistTest, ReadyRequestsLeaveInTheOrderOfArrival) {
  Add(1, 7, 5);
  Add(2, 7, 6);
  Add(3, 7, 5);
  EXPECT_EQ(Take(7, 0, 5), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(list_.size(), 1u);
  EXPECT_EQ(Take(7, 0, 6), std::vector<uint64_t>{2});
}

TEST_F(ServeWaitlistTest, AnExpiredRequestLeavesAlone) {
  Add(1, 7, 5);
  Add(2, 7, 5);
  EXPECT_EQ(Take(7, 2, 0), std::vector<uint64_t>{2});
  EXPECT_EQ(Take(7, 2, 0), std::vector<uint64_t>{}) << "its timer can fire after its answer";
  EXPECT_EQ(list_.size(), 1u);
}

TEST_F(ServeWaitlistTest, OtherObjectsKeepWaiting) {
  Add(1, 7, 5);
  Add(2, 8, 5);
  EXPECT_EQ(Take(7, 0, 5), std::vector<uint64_t>{1});
  EXPECT_EQ(list_.size(), 1u);
}

TEST_F(ServeWaitlistTest, TheListIsBounded) {
  Add(1, 1, 1);
  Add(2, 2, 1);
  EXPECT_FALSE(list_.full());
  Add(3, 3, 1);
  EXPECT_TRUE(list_.full());
  EXPECT_EQ(Take(2, 0, 1), std::vector<uint64_t>{2});
  EXPECT_FALSE(list_.full());
}

}  // namespace
}  // namespace phalanx::object_store
