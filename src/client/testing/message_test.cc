// Messages between members of jobs, as clients of a real node send them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/job.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);
// So many of the longest messages leave before the receiver has taken any of them.
constexpr int kLongInWindow = 3;

// Two tasks of one job, each with a client of its own.
class MessageTest : public ::testing::Test {
 protected:
  std::shared_ptr<Client> Connect() {
    ClientOptions options;
    options.address = node_.address();
    return Client::Connect(options).value();
  }
  static Membership Join(Client& client, const std::string& task, const std::string& role,
                         int world) {
    JoinOptions options;
    options.world = world;
    options.role = role;
    return client.Join("train", task, options).value();
  }
  static absl::Status SendNow(const Membership& from, int rank, absl::string_view bytes,
                              SendOptions options = {}) {
    return from.Send(rank, bytes, std::move(options)).Wait(kLong).status();
  }
  static std::string Receive(const Membership& member) {
    const absl::StatusOr<Message> message = member.Receive(kLong);
    if (!message.ok()) return message.status().ToString();
    return absl::StrCat(message->role, message->rank, ".", message->life, " ", message->bytes);
  }

  void FillWindow() const {
    for (int i = 0; i < kLongInWindow; ++i) {
      PHALANX_EXPECT_OK(SendNow(zero_, 1, std::string(kMaxMessageSize, 'x')));
    }
  }

  LocalNode node_;
  const std::shared_ptr<Client> client_zero_ = Connect();
  const std::shared_ptr<Client> client_one_ = Connect();
  Membership zero_ = Join(*client_zero_, "worker0", "worker", 2);
  Membership one_ = Join(*client_one_, "worker1", "worker", 2);
};

TEST_F(MessageTest, MessagesArriveInOrderWithTheirSender) {
  PHALANX_ASSERT_OK(zero_.WaitForWorld(kLong));
  for (int i = 0; i < 100; ++i) {
    PHALANX_EXPECT_OK(SendNow(zero_, 1, absl::StrCat("number ", i)));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Receive(one_), absl::StrCat("worker0.0 number ", i));
  PHALANX_EXPECT_OK(SendNow(one_, 0, ""));
  EXPECT_EQ(Receive(zero_), "worker1.0 ");
  EXPECT_THAT(zero_.Receive(absl::Milliseconds(1)), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(MessageTest, AMessageGoesToATaskOfAnotherRole) {
  const Membership server = Join(*client_one_, "server0", "server", 1);
  SendOptions options;
  options.role = "server";
  // The sender's node has heard of the server: both have one node.
  PHALANX_EXPECT_OK(SendNow(zero_, 0, "push", options));
  EXPECT_EQ(Receive(server), "worker0.0 push");
}

TEST_F(MessageTest, ASenderWaitsUntilItsMessagesAreTaken) {
  PHALANX_ASSERT_OK(zero_.WaitForWorld(kLong));
  const std::string large(kMaxMessageSize, 'x');
  FillWindow();
  SendOptions hurried;
  hurried.timeout = absl::Milliseconds(10);
  EXPECT_THAT(SendNow(zero_, 1, large, hurried), StatusIs(absl::StatusCode::kDeadlineExceeded));
  const std::string waits(kMaxMessageSize, 'w');
  const Future<Done> waiting = zero_.Send(1, waits);
  for (int i = 0; i < kLongInWindow; ++i) {
    EXPECT_EQ(Receive(one_), absl::StrCat("worker0.0 ", large));
  }
  EXPECT_THAT(waiting.Wait(kLong), IsOk());
  EXPECT_EQ(Receive(one_), absl::StrCat("worker0.0 ", waits));
}

TEST_F(MessageTest, ASendToATaskThatDiesFailsAtOnce) {
  PHALANX_ASSERT_OK(zero_.WaitForWorld(kLong));
  FillWindow();
  const Future<Done> waiting = zero_.Send(1, std::string(kMaxMessageSize, 'x'));
  PHALANX_EXPECT_OK(one_.Fail());
  EXPECT_THAT(waiting.Wait(kLong), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(SendNow(zero_, 1, "more"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 has ended")));
}

TEST_F(MessageTest, AnEarlierLifeGetsNothingAndTheNextLifeOnlyWhatIsForIt) {
  PHALANX_ASSERT_OK(zero_.WaitForWorld(kLong));
  PHALANX_EXPECT_OK(one_.Fail());
  const Membership again = Join(*client_one_, "worker1", "worker", 2);
  PHALANX_ASSERT_OK(zero_.WaitForWorld(kLong));
  SendOptions options;
  options.life = 0;
  EXPECT_THAT(SendNow(zero_, 1, "old", options), StatusIs(absl::StatusCode::kUnavailable));
  options.life = 1;
  PHALANX_EXPECT_OK(SendNow(zero_, 1, "new", options));
  EXPECT_EQ(Receive(again), "worker0.0 new");
  EXPECT_THAT(one_.Receive(kLong), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(MessageTest, RefusesBadArguments) {
  EXPECT_THAT(SendNow(zero_, 2, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the world is 2")));
  EXPECT_THAT(SendNow(zero_, -1, "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SendNow(zero_, 1, std::string(kMaxMessageSize + 1, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  SendOptions options;
  options.role = "nobody";
  EXPECT_THAT(SendNow(zero_, 0, "x", options), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace phalanx
