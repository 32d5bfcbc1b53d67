// Objects of ServerCore that are pushed again, refused, or lost.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/server/testing/one_server.h"
#include "src/ps/server/turn_sums.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::StatusIs;
using testing::Bytes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ObjectServer;
using testing::OneServer;
using testing::Saved;
using ::testing::SizeIs;
using testing::Small;
using testing::Spec;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// A reduction has at most 16,384 sources.
TEST(ServerObjects, WithMoreWorkersThanAReductionHasSourcesPushesStayMessages) {
  OneServer server = ObjectServer(16'385, Small());
  server.Begin();
  server.Batch(0, {OneServer::ObjectOf(0, 1, "a", /*ticket=*/3)});
  EXPECT_THAT(server.Take(0), ElementsAre("refused 3", "done 1"));
  EXPECT_THAT(server.inbox[0].errors[0], StatusIs(kInvalid, HasSubstr("16384 workers at most")));
  EXPECT_THAT(ObjectServer(16'384, Small()).core.Describe(), HasSubstr("16384 workers"));
}

TEST(ServerObjects, TheLastPushOfAnAssignTableIsAMessage) {
  TableSpec spec = Small();
  spec.update = Update::kAssign;
  OneServer server = ObjectServer(1, spec);
  server.Begin();
  server.Batch(0, {OneServer::ObjectOf(0, 1, "a", /*ticket=*/3)});
  EXPECT_THAT(server.inbox[0].errors[0], StatusIs(kInvalid, HasSubstr("not of assign")));
  server.PullObject(0, 4, 0);
  EXPECT_THAT(server.Take(0), Contains("object 4.0 s/0/1"));
}

// Its next push is a new one, though the place of its life is that before the object.
TEST(ServerObjects, WhatALaterLifePushesWithKeysReplacesWhatTheLifeBeforeHasPushedThere) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Push(0, 0, 2, 0, 5);
  server.NextLife(0);
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(1));
  EXPECT_EQ(server.inbox[0].welcomes[0].tables[0].at, (Position{0, 0, 0}));
  server.Push(0, 0, 1, 0, 70);
  server.Push(0, 0, 2, 0, 700);
  server.Clock(0, 0);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(770, 0));
  EXPECT_EQ(server.core.waiting(), 0);
}

TEST(ServerObjects, WithKeysOrByObjectAlsoInATurnThatWaits) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Push(0, 0, 2, 0, 5);
  server.Clock(0, 0);
  server.Clock(1, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a"));
  server.NextLife(0);
  server.PushObject(0, 0, 1, "b");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2 of clock 0: b"));
  server.PushObject(0, 0, 2, "c");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("3! of clock 0: b c"));
  server.NextLife(0);
  EXPECT_EQ(server.inbox[0].welcomes[0].tables[0].at, (Position{0, 0, 0}));
  server.Push(0, 0, 1, 0, 70);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("4! of clock 0: c"));
  server.Push(0, 0, 2, 0, 700);
  EXPECT_THAT(server.cancels, ElementsAre(0));
  // Late.
  server.Reduced(4, {1, 1});
  server.Pull(1, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(1, 7), ElementsAre(770, 0));
}

TEST(ServerObjects, ARefusedPushTakesOutNothing) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.NextLife(0);
  // Of a clock that it has not reached, and of none at all.
  const uint64_t last = ~uint64_t{0};
  const std::string bytes = Bytes({70});
  server.Batch(0, {OneServer::PushOf(9, 1, 0, bytes, /*ticket=*/3),
                   OneServer::ObjectOf(last, 1, "c", /*ticket=*/4),
                   OneServer::PushOf(0, 2, 0, "short", /*ticket=*/5)});
  EXPECT_THAT(server.Take(0), Contains("refused 3"));
  EXPECT_THAT(server.inbox[0].errors, SizeIs(3));
  server.Batch(0, {ClockEnd{.table = 0, .clock = last}});
  server.PushObject(0, 0, 1, "b");
  server.Clock(0, 0);
  server.Clock(1, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: b"));
}

TEST(ServerObjects, ManyWorkersThatComeAgainMakeFewAttempts) {
  constexpr int kWorkers = 50;
  OneServer server = ObjectServer(kWorkers, Small());
  server.Begin();
  for (int worker = 0; worker < kWorkers; ++worker) {
    server.PushObject(worker, 0, 1, absl::StrCat("a", worker));
    server.Clock(worker, 0);
  }
  for (int worker = 0; worker < kWorkers; ++worker) server.NextLife(worker);
  for (int worker = 0; worker < kWorkers; ++worker) {
    server.PushObject(worker, 0, 1, absl::StrCat("b", worker));
  }
  EXPECT_THAT(server.reduces, SizeIs(2));
  EXPECT_TRUE(server.core.wants_retry());
  server.Retry();
  ASSERT_THAT(server.reduces, SizeIs(3));
  EXPECT_TRUE(server.reduces[2].only);
  EXPECT_THAT(server.reduces[2].handles, ::testing::Each(::testing::StartsWith("b")));
  EXPECT_FALSE(server.core.wants_retry());
  server.Retry();
  EXPECT_THAT(server.reduces, SizeIs(3));
}

TEST(ServerObjects, AQuestionMakesNoSnapshotInEachClock) {
  TableSpec spec = Small(Saved());
  spec.snapshot_every = 1000;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  // Worker 0 is a push ahead of worker 1.
  server.PushObject(0, 0, 1, "a0");
  server.Clock(0, 0);
  server.PushObject(0, 1, 1, "a1");
  server.Batch(0, {AskSnapshot{.table = 0}});
  uint64_t attempt = 0;
  size_t stored = 0;
  for (uint64_t clock = 0; clock < 20; ++clock) {
    while (stored < server.stores.size()) server.Store(server.stores[stored++].number);
    server.PushObject(1, clock, 1, absl::StrCat("b", clock));
    server.Clock(1, clock);
    server.Clock(0, clock + 1);
    server.PushObject(0, clock + 2, 1, absl::StrCat("a", clock + 2));
    server.Reduced(++attempt, {1, 1});
  }
  EXPECT_EQ(server.core.sync(0).min(), 20);
  // When the clock that it had ended was in the rows, and when its push of that time was.
  EXPECT_THAT(server.stores, SizeIs(2));
}

// Nothing of it can be pushed again.
TEST(ServerObjects, AnObjectThatIsLostWhileItsWorkerLivesEndsTheTable) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  for (const int worker : {0, 1}) {
    server.PushObject(worker, 0, 1, absl::StrCat("a", worker));
    server.Clock(worker, 0);
  }
  for (uint64_t attempt = 1; attempt < kLostAttempts; ++attempt) {
    server.ReduceFailed(attempt, absl::NotFoundError("freed"), "a1");
    server.Retry();
  }
  EXPECT_THAT(server.TakeReduces(), SizeIs(kLostAttempts));
  server.Take(0);
  server.ReduceFailed(kLostAttempts, absl::NotFoundError("freed"), "a1");
  EXPECT_THAT(server.Take(0), Contains("failed 0"));
  EXPECT_THAT(server.inbox[0].errors[0],
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("server 0: the object of push 1 of clock 0 by worker 1 is lost, "
                                 "and is in no rows yet: freed")));
  EXPECT_THAT(server.cancels, ElementsAre(0));
}

TEST(ServerObjects, ALostObjectOfADeadWorkerIsAwaited) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  for (const int worker : {0, 1}) {
    server.PushObject(worker, 0, 1, absl::StrCat("a", worker));
    server.Clock(worker, 0);
  }
  server.Member(1, MemberState::kDied);
  for (uint64_t attempt = 1; attempt < 3 * kLostAttempts; ++attempt) {
    server.ReduceFailed(attempt, absl::NotFoundError("freed"), attempt % 2 == 0 ? "a1" : "");
    server.Retry();
  }
  server.NextLife(1);
  server.PushObject(1, 0, 1, "b1");
  server.TakeReduces();
  server.Retry();
  EXPECT_THAT(server.TakeReduces(), ElementsAre(HasSubstr("of clock 0: a0 b1")));
}

TEST(ServerObjects, AVersionThatIsLostIsMadeAgain) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PullObject(0, 1, 0);
  server.PullObject(1, 1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("object 1.0 s/0/1"));
  server.Read(0, 1, /*lost=*/true);
  EXPECT_THAT(server.objects, SizeIs(1));
  server.PullObject(0, 1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("object 1.0 s/0/2"));
  // The other one reads the lost one, too, and that changes nothing.
  server.Read(1, 1, /*lost=*/true);
  EXPECT_THAT(server.objects, SizeIs(1));
  server.PullObject(1, 1, 0);
  EXPECT_THAT(server.Take(1), Contains("object 1.0 s/0/2"));
}

TEST(ServerObjects, SumsThatAreNeededNoMoreAreCancelled) {
  TableSpec spec = Small();
  spec.on_loss = OnLoss::kDrop;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Clock(1, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a"));
  server.Member(0, MemberState::kDied);
  EXPECT_THAT(server.cancels, ElementsAre(0));
  EXPECT_EQ(server.core.sync(0).min(), 1);
}

// Nothing is looked for in the turn that waits: 4,096 x 4,096 names took minutes.
TEST(ServerObjects, WhileATurnWaitsAnEntryCostsNoMoreThanElse) {
  constexpr int kWorkers = 4096;
  OneServer server = ObjectServer(kWorkers, Small());
  server.Begin();
  for (int worker = 0; worker < kWorkers; ++worker) {
    server.PushObject(worker, 0, 1, absl::StrCat("job/worker/", worker, "/0123456789abcdef/0.1"));
    server.Clock(worker, 0);
  }
  for (int worker = 0; worker < kWorkers; ++worker) server.PullObject(worker, 7, 1);
  EXPECT_EQ(server.core.waiting(), 2 * kWorkers);
  server.Reduced(1, {1, 1});
  EXPECT_EQ(server.core.waiting(), 0);
}

}  // namespace
}  // namespace phalanx::ps::internal
