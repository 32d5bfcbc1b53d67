#include "src/object_store/store/request_table.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::StatusIs;

Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

class RequestTableTest : public ::testing::Test {
 protected:
  Request& Delete(int deadline) {
    return table_.New(client_, Id(1), At(deadline), DeletePart{[this](absl::Status status) {
                        outcomes_.push_back(std::move(status));
                      }});
  }
  static ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }
  // Hands out the answers, as the store does.
  void HandOut() {
    for (const RequestId id : table_.TakeAnswers()) {
      Request* request = table_.Find(id);
      if (request == nullptr) continue;
      const auto answer = std::make_shared<absl::AnyInvocable<void()>>(std::move(request->answer));
      table_.Erase(*request);
      (*answer)();
    }
    PHALANX_EXPECT_OK(table_.CheckInvariants());
  }

  int posted_ = 0;
  RequestTable table_{"node-a", /*max_requests_per_client=*/2, [this] { ++posted_; }};
  const ClientId client_ = table_.OpenClient();
  std::vector<absl::Status> outcomes_;
};

TEST_F(RequestTableTest, AnAnswerIsHandedOutOnce) {
  Request& request = Delete(9);
  table_.Answer<DeletePart>(request, absl::OkStatus());
  table_.Queue(request);
  EXPECT_EQ(posted_, 1);
  PHALANX_EXPECT_OK(table_.CheckInvariants());
  HandOut();
  EXPECT_EQ(outcomes_.size(), 1u);
  EXPECT_FALSE(table_.has_answers());
}

TEST_F(RequestTableTest, DeadlinesPassInTheirOrder) {
  const RequestId late = Delete(7).id;
  const RequestId soon = Delete(3).id;
  for (const RequestId id : {late, soon}) table_.WatchDeadline(*table_.Find(id));
  EXPECT_EQ(table_.NextDeadline(), At(3));
  EXPECT_EQ(table_.TakeOverdue(At(2)), nullptr);
  EXPECT_EQ(table_.TakeOverdue(At(9))->id, soon);
  EXPECT_EQ(table_.TakeOverdue(At(9))->id, late);
  EXPECT_EQ(table_.TakeOverdue(At(9)), nullptr);
  EXPECT_TRUE(table_.NextDeadline().infinite());
}

TEST_F(RequestTableTest, AnAnsweredRequestHasNoDeadline) {
  Request& request = Delete(3);
  table_.WatchDeadline(request);
  table_.Fail(request, absl::AbortedError("why"));
  EXPECT_EQ(table_.TakeOverdue(At(9)), nullptr);
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(RequestTableTest, OnlyWaitingRequestsOfTheKindAreFound) {
  const RequestId id = Delete(3).id;
  EXPECT_NE(table_.FindWaiting<DeletePart>(id), nullptr);
  EXPECT_EQ(table_.FindWaiting<KeepPart>(id), nullptr);
  EXPECT_EQ(table_.Waiting([](const Request&) { return true; }), std::vector<RequestId>{id});
  table_.Fail(*table_.Find(id), absl::AbortedError("why"));
  EXPECT_EQ(table_.FindWaiting<DeletePart>(id), nullptr);
  EXPECT_TRUE(table_.Waiting([](const Request&) { return true; }).empty());
}

TEST_F(RequestTableTest, AClientHasALimitedNumberOfRequests) {
  PHALANX_EXPECT_OK(table_.Admit(client_, Id(1)));
  for (int i = 0; i < 3; ++i) Delete(9);
  EXPECT_THAT(table_.Admit(client_, Id(1)), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(table_.Admit(client_ + 100, Id(1)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table_.Admit(table_.OpenClient(), ObjectId()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace phalanx::object_store
