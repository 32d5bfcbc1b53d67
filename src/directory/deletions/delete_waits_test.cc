// When a shard acknowledges a Delete, by the messages of its core.
#include "src/directory/deletions/delete_waits.h"

#include <array>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/ids/random_id.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);
const ObjectId x = ObjectId::FromName("test", "x");
const ObjectId drawn = RandomIdOf(std::array<uint8_t, 16>{1, 2, 3});

// A shard with a, which has put the object, b, which has fetched it, and c.
class DeleteWaitsTest : public ::testing::Test {
 protected:
  explicit DeleteWaitsTest(bool learning = false) : h_(learning) {}

  Generation PutAndFetch(const ObjectId& id) {
    const Generation generation = h_.Create(a_, id, {.complete = true});
    h_.Want(b_, id);
    h_.Finish(b_, id);
    return generation;
  }
  void Delete(const ObjectId& id, uint64_t request = 1) { h_.Delete(c_, id, request); }
  bool Acknowledged() { return Replies() > 0; }
  // REQUIRES: b is gone, and its lease begins now.
  void ExpectDeleteToWaitForTheLeaseOfB(const Generation& g) {
    Delete(x);
    h_.Confirm(a_, x, g);
    h_.Advance(kLease - absl::Milliseconds(1));
    EXPECT_FALSE(Acknowledged());
    h_.Advance(absl::Milliseconds(1));
    EXPECT_TRUE(Acknowledged());
  }
  int Replies() { return h_.Count(c_, v1::ShardMessage::kDeleteReply); }

  Harness h_;
  const NodeKey a_ = h_.Up("a");
  const NodeKey b_ = h_.Up("b");
  const NodeKey c_ = h_.Up("c");
};

TEST_F(DeleteWaitsTest, ADeleteWaitsForTheConfirmationOfEveryHolder) {
  const Generation g = PutAndFetch(x);
  Delete(x);
  EXPECT_FALSE(Acknowledged());
  h_.Confirm(b_, x, g);
  EXPECT_FALSE(Acknowledged());
  h_.Confirm(a_, x, g);
  ASSERT_TRUE(Acknowledged());
  const v1::DeleteReply reply = h_.Last(c_, v1::ShardMessage::kDeleteReply)->delete_reply();
  EXPECT_EQ(reply.code(), 0);
  ASSERT_EQ(reply.generations_size(), 1);
  EXPECT_EQ(FromProto(reply.generations(0)), g);
}

TEST_F(DeleteWaitsTest, TheCopyOfTheRequesterIsNotWaitedFor) {
  const Generation g = PutAndFetch(x);
  h_.Delete(b_, x);
  h_.Confirm(a_, x, g);
  EXPECT_EQ(h_.Count(b_, v1::ShardMessage::kDeleteReply), 1)
      << "b reads that the object was deleted before it reads this";
}

TEST_F(DeleteWaitsTest, EachRequesterWaitsForTheOthers) {
  const Generation g = PutAndFetch(x);
  h_.Delete(a_, x);
  Delete(x, 2);
  EXPECT_EQ(h_.Count(a_, v1::ShardMessage::kDeleteReply), 0);
  h_.Confirm(b_, x, g);
  EXPECT_EQ(h_.Count(a_, v1::ShardMessage::kDeleteReply), 1);
  EXPECT_FALSE(Acknowledged());
  h_.Confirm(a_, x, g);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, ASecondDeleteWaitsLikeTheFirst) {
  const Generation g = PutAndFetch(x);
  Delete(x, 1);
  h_.Confirm(a_, x, g);
  Delete(x, 2);
  EXPECT_EQ(Replies(), 0);
  h_.Confirm(b_, x, g);
  EXPECT_EQ(Replies(), 2);
}

TEST_F(DeleteWaitsTest, AHolderThatIsGoneIsWaitedForUntilItsLeaseEnds) {
  const Generation g = PutAndFetch(x);
  h_.Down(b_, kLease);
  ExpectDeleteToWaitForTheLeaseOfB(g);
}

TEST_F(DeleteWaitsTest, TheEndOfASessionIsNoConfirmationBeforeItsLeaseEnds) {
  const Generation g = PutAndFetch(x);
  Delete(x);
  h_.Confirm(a_, x, g);
  h_.Down(b_, kLease);
  EXPECT_FALSE(Acknowledged());
  h_.Advance(kLease);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, AHolderOfALostObjectIsWaitedForUntilItsLeaseEnds) {
  h_.Create(a_, x, {.complete = true});
  h_.Down(a_, kLease);
  Delete(x);
  EXPECT_FALSE(Acknowledged());
  h_.Advance(kLease);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, AHolderThatSaidGoodbyeIsNotWaitedFor) {
  const Generation g = PutAndFetch(x);
  Delete(x);
  h_.Confirm(a_, x, g);
  h_.Down(b_);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, AHolderThatReturnsIsAskedAndConfirms) {
  const Generation g = PutAndFetch(x);
  h_.Down(b_, kLease);
  Delete(x);
  h_.Confirm(a_, x, g);
  h_.NewSession(b_, /*had_session=*/true);
  h_.RegisterCopy(b_, x, g, {.primary = false});
  EXPECT_EQ(h_.LastVerdict(b_), v1::Verdict::DELETED);
  h_.RegisterEnd(b_);
  h_.Advance(kLease);
  EXPECT_FALSE(Acknowledged()) << "its lease has begun again";
  h_.Confirm(b_, x, g);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, AHolderThatReturnsWithoutItsCopyIsNotWaitedForAnyMore) {
  const Generation g = PutAndFetch(x);
  h_.Down(b_, kLease);
  Delete(x);
  h_.Confirm(a_, x, g);
  h_.NewSession(b_, /*had_session=*/true);
  h_.RegisterEnd(b_);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, AHolderThatRegistersIsWaitedFor) {
  const Generation g = PutAndFetch(x);
  h_.NewSession(b_, /*had_session=*/true);
  Delete(x);
  h_.Confirm(a_, x, g);
  EXPECT_FALSE(Acknowledged()) << "b may have its copy";
  h_.RegisterCopy(b_, x, g, {.primary = false});
  h_.RegisterEnd(b_);
  EXPECT_FALSE(Acknowledged());
  h_.Confirm(b_, x, g);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, ALaterLifeOfAHolderDoesNotEndTheLeaseOfTheEarlierOne) {
  const Generation g = PutAndFetch(x);
  v1::NodeInfo later = h_.Info(b_);
  later.mutable_key()->set_incarnation(2);
  h_.core().NodeUp(later, h_.now());
  ExpectDeleteToWaitForTheLeaseOfB(g);
}

// A tombstone lists 64 generations; b has one that was deleted before them.
TEST_F(DeleteWaitsTest, AHolderThatReturnsAfterManyDeletesHasItsCopyRefused) {
  const Generation first = PutAndFetch(x);
  h_.Down(b_, kLease);
  Delete(x);
  h_.Confirm(a_, x, first);
  for (int i = 0; i < 70; ++i) {
    const Generation next = h_.Create(a_, x, {.complete = true});
    Delete(x);
    h_.Confirm(a_, x, next);
  }
  h_.Advance(kLease);
  EXPECT_EQ(Replies(), 71);
  h_.NewSession(b_, /*had_session=*/true, /*lease_ended=*/true);
  h_.RegisterCopy(b_, x, first, {.primary = false});
  EXPECT_EQ(h_.LastVerdict(b_), v1::Verdict::DELETED);
  h_.RegisterEnd(b_);
}

// The shard does not remember these generations one by one, and a Put that it lost is none of them.
TEST_F(DeleteWaitsTest, AfterManyDeletesTheHolderOfALostPutIsNotRefused) {
  for (int i = 0; i < 70; ++i) {
    h_.Create(b_, x, {.complete = true});
    h_.Delete(b_, x);
  }
  const Generation lost = h_.Create(b_, x, {.complete = true});
  h_.Down(b_, kLease);
  h_.Clear();
  h_.NewSession(b_, /*had_session=*/true);
  h_.RegisterCopy(b_, x, lost, {});
  h_.RegisterEnd(b_);
  EXPECT_EQ(h_.Count(b_, v1::ShardMessage::kVerdict), 0);
  EXPECT_EQ(h_.Describe(x).summary().complete_copies(), 1u);
}

// No program puts other bytes under a drawn id, so no copy of one is out of date.
TEST_F(DeleteWaitsTest, OnlyHoldersInTouchAreWaitedForIfTheIdWasDrawn) {
  const Generation g = PutAndFetch(drawn);
  Delete(drawn);
  h_.Confirm(a_, drawn, g);
  EXPECT_FALSE(Acknowledged());
  h_.Down(b_, kLease);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsTest, ARequesterWhoseSessionHasEndedIsNotAnswered) {
  const Generation g = PutAndFetch(x);
  Delete(x, 1);
  h_.NewSession(c_, /*had_session=*/true);
  h_.RegisterEnd(c_);
  Delete(x, 2);
  h_.Confirm(a_, x, g);
  h_.Confirm(b_, x, g);
  ASSERT_EQ(Replies(), 1);
  EXPECT_EQ(h_.Last(c_, v1::ShardMessage::kDeleteReply)->delete_reply().request_id(), 2u);
}

TEST_F(DeleteWaitsTest, TheIdCanBePutAgainBeforeTheDeleteIsAcknowledged) {
  const Generation g = PutAndFetch(x);
  Delete(x);
  const Generation again = h_.Create(c_, x, {.complete = true});
  EXPECT_FALSE(Acknowledged());
  h_.Confirm(a_, x, g);
  h_.Confirm(b_, x, g);
  EXPECT_TRUE(Acknowledged());
  EXPECT_EQ(FromProto(h_.Describe(x).summary().generation()), again);
}

TEST_F(DeleteWaitsTest, TheRequesterLearnsWhatItWaitsFor) {
  const Generation g = PutAndFetch(x);
  h_.Down(b_, kLease);
  Delete(x);
  EXPECT_THAT(h_.Describe(x).delete_waits_for(), HasSubstr("the confirmation of node a"));
  h_.Advance(kLease / 8);
  const auto waiting = h_.Last(c_, v1::ShardMessage::kDeleteWaiting);
  ASSERT_TRUE(waiting.has_value());
  EXPECT_EQ(waiting->delete_waiting().request_id(), 1u);
  EXPECT_EQ(waiting->delete_waiting().reason(),
            "the lease of node b, which is out of touch, to end in 1.75s, "
            "the confirmation of node a");
  h_.Confirm(a_, x, g);
  h_.Advance(kLease);
  EXPECT_TRUE(Acknowledged());
  EXPECT_EQ(h_.Describe(x).delete_waits_for(), "");
}

class DeleteWaitsWhileLearning : public DeleteWaitsTest {
 protected:
  DeleteWaitsWhileLearning() : DeleteWaitsTest(/*learning=*/true) {}
};

// A holder of an earlier life of the shard may have a lease from it, and has not registered yet.
TEST_F(DeleteWaitsWhileLearning, ADeleteWaitsForTheEndOfTheFirstLease) {
  const Generation g{a_, 5};
  h_.NewSession(a_, /*had_session=*/true);
  h_.RegisterCopy(a_, x, g, {});
  h_.RegisterEnd(a_);
  Delete(x);
  h_.Confirm(a_, x, g);
  EXPECT_FALSE(Acknowledged());
  EXPECT_THAT(h_.Describe(x).delete_waits_for(), HasSubstr("the end of the shard's first lease"));
  h_.Advance(kLease);
  EXPECT_TRUE(Acknowledged());
}

TEST_F(DeleteWaitsWhileLearning, ANodeWhoseLeaseHasEndedGetsAnotherWhenTheShardHasLearned) {
  EXPECT_EQ(h_.Registered(b_), 1);
  h_.NewSession(b_, /*had_session=*/true, /*lease_ended=*/false);
  h_.RegisterEnd(b_);
  EXPECT_EQ(h_.Registered(b_), 2) << "no Delete can have been acknowledged without it";
  h_.NewSession(b_, /*had_session=*/true, /*lease_ended=*/true);
  h_.RegisterEnd(b_);
  EXPECT_EQ(h_.Registered(b_), 2);
  h_.Advance(kLease);
  EXPECT_EQ(h_.Registered(b_), 3);
}

TEST_F(DeleteWaitsWhileLearning, WhatSuchANodeRegistersIsServedWhenTheShardHasLearned) {
  h_.NewSession(b_, /*had_session=*/true, /*lease_ended=*/true);
  for (const ObjectId& id : {x, drawn}) {
    h_.RegisterCopy(b_, id, Generation{a_, 5}, {.primary = false});
  }
  h_.RegisterEnd(b_);
  h_.Want(c_, x);
  h_.Want(c_, drawn);
  EXPECT_FALSE(h_.LastAssign(c_, x).has_value());
  EXPECT_EQ(h_.SenderOf(c_, drawn), b_);
  h_.Advance(kLease);
  EXPECT_EQ(h_.SenderOf(c_, x), b_);
}

}  // namespace
}  // namespace phalanx::directory
