// Gets of a node that is out of touch with the directory: names wait, drawn ids are served.
#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/ids/random_id.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Gone;
using ::testing::HasSubstr;
using testing::Id;
using testing::StoreWorld;

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId kName = Id(1);
const ObjectId kDrawn = RandomIdOf(std::array<uint8_t, 16>{5});

// A node with a session, and a copy of an object under a name and of one under a drawn id.
class StoreLeaseTest : public ::testing::Test {
 protected:
  StoreLeaseTest() {
    NewSession();
    name_ = w_.PullCopy(kName, "named");
    w_.PullCopy(kDrawn, "drawn");
    w_.ForgetSent();
  }
  void NewSession() {
    w_.Run([&] { w_.channel().OnSession(0); });
    Heard();
  }
  // The shard answers what this node has just sent.
  void Heard() {
    w_.Run([&] { w_.store().OnHeard(0, now_ + passed_, kLease); });
  }
  void Registered() {
    v1::ShardMessage message;
    message.mutable_registered();
    w_.Shard(message);
  }
  void Pass(absl::Duration time) {
    passed_ += time;
    w_.Pass(time);
  }
  Instant In(absl::Duration time) { return w_.now() + time; }

  StoreWorld w_;
  const Instant now_ = w_.now();
  absl::Duration passed_;
  Generation name_;
};

TEST_F(StoreLeaseTest, ANameIsServedWhileTheLeaseLasts) {
  Pass(absl::Seconds(1));
  EXPECT_THAT(w_.Get(kName)->status(), IsOk());
  Heard();
  Pass(absl::Seconds(1.5));
  EXPECT_THAT(w_.Get(kName)->status(), IsOk());
}

TEST_F(StoreLeaseTest, ADrawnIdIsServedWithoutALease) {
  Pass(absl::Seconds(100));
  EXPECT_THAT(w_.Get(kDrawn)->status(), IsOk());
}

TEST_F(StoreLeaseTest, ANameWaitsForTheEndOfTheNextRegistration) {
  Pass(absl::Seconds(3));
  const auto reading = w_.Get(kName);
  EXPECT_FALSE(reading->answered());
  EXPECT_EQ(w_.store().stats().waiting_gets, 1u);
  NewSession();
  EXPECT_FALSE(reading->answered()) << "the shard may not have read that the copy is here";
  Registered();
  ASSERT_TRUE(reading->answered());
  EXPECT_EQ(reading->bytes(), "named");
  EXPECT_EQ(w_.store().stats().waiting_gets, 0u);
}

TEST_F(StoreLeaseTest, TheSameSessionCanBeHeardOfAgain) {
  Pass(absl::Seconds(3));
  const auto reading = w_.Get(kName);
  Heard();
  EXPECT_TRUE(reading->answered());
}

TEST_F(StoreLeaseTest, WhatWasDeletedMeanwhileIsNotReturned) {
  Pass(absl::Seconds(3));
  const auto reading = w_.Get(kName);
  NewSession();
  w_.Shard(Gone(kName, name_, v1::Gone::DELETED));
  Registered();
  EXPECT_FALSE(reading->answered());
  EXPECT_EQ(w_.Sent<v1::Want>().size(), 1u) << "the shard knows what is under the name now";
  w_.Shard(testing::Deliver(kName, Generation{testing::kPeer, 99}, "other"));
  ASSERT_TRUE(reading->answered());
  EXPECT_EQ(reading->bytes(), "other");
}

TEST_F(StoreLeaseTest, AStreamingGetWaitsLikeAnyOther) {
  Pass(absl::Seconds(3));
  const auto reading = w_.Stream(kName);
  EXPECT_FALSE(reading->answered());
  w_.Cancel(reading->request);
  EXPECT_EQ(w_.store().stats().waiting_gets, 0u);
}

TEST_F(StoreLeaseTest, TheErrorSaysWhyAGetWaited) {
  Pass(absl::Seconds(3));
  const auto at_once = w_.Get(kName, In(absl::ZeroDuration()));
  EXPECT_THAT(at_once->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("out of touch")));
  const auto later = w_.Get(kName, In(absl::Seconds(1)));
  EXPECT_FALSE(later->answered());
  Pass(absl::Seconds(1));
  EXPECT_THAT(later->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("out of touch")));
  EXPECT_EQ(w_.store().stats().waiting_gets, 0u);
}

TEST_F(StoreLeaseTest, AClientThatClosesLeavesNothingBehind) {
  Pass(absl::Seconds(3));
  const ClientId client = w_.OpenClient();
  w_.Get(GetOptions{kName, Instant::Infinite(), false}, client);
  w_.CloseClient(client, /*clean=*/true);
  EXPECT_EQ(w_.store().stats().waiting_gets, 0u);
}

TEST_F(StoreLeaseTest, TheRegistrationSaysWhetherTheLeaseHadEnded) {
  Pass(absl::Seconds(1));
  NewSession();
  Pass(absl::Seconds(3));
  NewSession();
  const auto begins = w_.Sent<v1::RegisterBegin>();
  ASSERT_EQ(begins.size(), 2u);
  EXPECT_FALSE(begins[0].lease_ended());
  EXPECT_TRUE(begins[1].lease_ended());
}

TEST_F(StoreLeaseTest, TheErrorOfADeleteSaysWhatItWaitedFor) {
  absl::Status status;
  w_.Run([&] {
    w_.store().Delete(w_.client(), kName, now_ + absl::Seconds(1),
                      [&](const absl::Status& answer) { status = answer; });
  });
  v1::ShardMessage message;
  message.mutable_delete_waiting()->set_request_id(w_.Sent<v1::DeleteRequest>().at(0).request_id());
  message.mutable_delete_waiting()->set_reason("the confirmation of node b");
  w_.Shard(message);
  Pass(absl::Seconds(1));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                               HasSubstr("waits for the confirmation of node b")));
}

}  // namespace
}  // namespace phalanx::object_store
