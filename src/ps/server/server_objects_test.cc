// Pushes and pulls of ServerCore that are objects of the store.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/server/testing/one_server.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using testing::Bytes;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Floats;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ObjectServer;
using testing::OneServer;
using testing::Saved;
using ::testing::SizeIs;
using testing::Small;
using testing::Spec;
using ::testing::UnorderedElementsAre;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// ---- pushes

TEST(ServerObjects, AClockTurnsWithTheSumOfItsObjects) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  // Worker 1 is the first, and the objects are in the order of workers all the same.
  server.PushObject(1, 0, 1, "b");
  server.PushObject(1, 0, 2, "c");
  server.Clock(1, 0);
  server.Push(0, 0, 1, 1, 10);
  server.PushObject(0, 0, 2, "a");
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.Clock(0, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a b c"));
  server.Take(0);
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Take(0), IsEmpty());
  EXPECT_THAT(server.core.Describe(), HasSubstr("sums 3 pushes of clock 0, attempt 1"));
  server.Reduced(1, {1, 2});
  EXPECT_THAT(server.Take(0), ElementsAre("values 7.0", "min 1"));
  EXPECT_THAT(server.Got(0, 7), ElementsAre(1, 12));
  // Late, or twice.
  server.Reduced(1, {1, 2});
  server.Pull(0, 8, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 8), ElementsAre(1, 12));
  EXPECT_EQ(server.core.waiting(), 0);
}

// 1e8 + 1 - 1e8 has other bits in another order: objects first, then keys.
TEST(ServerObjects, ObjectsAreOnePushBeforeThoseWithKeys) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.Push(0, 0, 1, 0, 1);
  server.PushObject(0, 0, 2, "a");
  server.Push(0, 0, 3, 0, -1e8F);
  server.Clock(0, 0);
  server.Reduced(1, {1e8F, 0});
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(1e8F + 1.0F - 1e8F, 0));
}

TEST(ServerObjects, ATableIsServedWhileItsObjectsAreSummed) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  for (const int worker : {0, 1}) {
    server.PushObject(worker, 0, 1, absl::StrCat("a", worker));
    server.Clock(worker, 0);
  }
  server.TakeReduces();
  server.Take(0);
  // The next clock begins, and ends, and its turn waits for this one.
  server.Push(0, 1, 1, 0, 5);
  server.PushObject(0, 1, 2, "b");
  server.Clock(0, 1);
  server.Push(1, 1, 1, 0, 7);
  server.Clock(1, 1);
  server.Clock(0, 2);
  server.Clock(1, 2);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.PullObject(1, 1, 0);
  server.PullObject(1, 2, 1);
  server.PullObject(1, 3, 2);
  server.PullObject(1, 4, 3);
  // That of the rows' clock is answered.
  EXPECT_EQ(Floats(server.objects.at("s/0/1")), (std::vector<float>{0, 0}));
  EXPECT_THAT(server.objects, SizeIs(1));
  EXPECT_EQ(server.inbox[1].mins.at(1), 0);
  EXPECT_THAT(server.Take(0), ElementsAre("done 3", "done 4", "done 5", "done 6"));
  server.Reduced(1, {1, 1});
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: b"));
  EXPECT_EQ(server.inbox[1].mins.at(2), 1);
  EXPECT_EQ(Floats(server.objects.at("s/0/2")), (std::vector<float>{1, 1}));
  server.Reduced(2, {1, 1});
  EXPECT_EQ(Floats(server.objects.at("s/0/3")), (std::vector<float>{14, 2}));
  EXPECT_EQ(server.inbox[1].mins.at(3), 3);
  EXPECT_THAT(server.Take(1), Contains("object 4.0 s/0/3"));
}

TEST(ServerObjects, ASumThatFailsIsMadeAgain) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.TakeReduces();
  server.core.OnReduceFailed(0, 1, absl::ResourceExhaustedError("full"));
  server.Run();
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  EXPECT_THAT(server.core.Describe(), HasSubstr("has failed: RESOURCE_EXHAUSTED: full"));
  server.core.Retry();
  server.Run();
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2 of clock 0: a"));
  server.core.Retry();
  server.Run();
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  // The first one fails again, which is known.
  server.core.OnReduceFailed(0, 1, absl::ResourceExhaustedError("full"));
  server.core.Retry();
  server.Run();
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.Reduced(2, {3, 4});
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(3, 4));
}

TEST(ServerObjects, ATableWhoseObjectsHaveNoSumFails) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.core.OnReduceFailed(0, 1, absl::InvalidArgumentError("another size"));
  server.Run();
  ASSERT_THAT(server.inbox[1].errors, SizeIs(1));
  EXPECT_THAT(
      server.inbox[1].errors[0],
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("table \"w\""), HasSubstr("clock 0"), HasSubstr("another size"))));
  server.Reduced(1, {1, 2});
  EXPECT_EQ(server.core.waiting(), 0);
}

TEST(ServerObjects, AnObjectOfAnotherSizeFailsTheTable) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Reduced(1, {1, 2, 3});
  ASSERT_THAT(server.inbox[0].errors, SizeIs(1));
  EXPECT_THAT(
      server.inbox[0].errors[0],
      StatusIs(absl::StatusCode::kInternal,
               HasSubstr("server 0: push 1 of clock 0 by worker 0 has 12 bytes; the part has 8")));
}

TEST(ServerObjects, AnOwnUpdateGetsTheSumOfAllKeys) {
  TableSpec spec = Small();
  spec.update = Update::kOwn;
  std::vector<float> got;
  OneServer server = ObjectServer(1, spec,
                                  [&got](const From& from, absl::Span<const Key> keys,
                                         const void* values, absl::Span<const uint32_t>, Part&) {
                                    EXPECT_EQ(from.worker, -1);
                                    EXPECT_EQ(from.clock, 0);
                                    EXPECT_THAT(keys, ElementsAre(0, 1));
                                    got.assign(static_cast<const float*>(values),
                                               static_cast<const float*>(values) + keys.size());
                                    return absl::OkStatus();
                                  });
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Reduced(1, {3, 4});
  EXPECT_THAT(got, ElementsAre(3, 4));
}

TEST(ServerObjects, WhatIsNoObjectIsRefused) {
  const auto refused = [](TableSpec spec, const Push& push) {
    OneServer server = ObjectServer(1, spec);
    server.Begin();
    server.Batch(0, {push});
    EXPECT_THAT(server.inbox[0].errors, SizeIs(1));
    return server.inbox[0].errors.empty() ? absl::OkStatus() : server.inbox[0].errors[0];
  };
  const Push push = OneServer::ObjectOf(0, 1, "a", 5);
  TableSpec spec = Small(Spec(Sync::kAsp));
  EXPECT_THAT(refused(spec, push),
              StatusIs(kInvalid, AllOf(HasSubstr("table \"w\""), HasSubstr("clock 0 by worker 0"),
                                       HasSubstr("are messages"))));
  spec = Small();
  spec.update = Update::kAssign;
  EXPECT_THAT(refused(spec, push), StatusIs(kInvalid, HasSubstr("are messages")));
  spec = Small();
  spec.keys = 1;
  EXPECT_THAT(refused(spec, push), StatusIs(kInvalid, HasSubstr("parts of 8 bytes")));
  EXPECT_THAT(refused(Small(), OneServer::ObjectOf(0, kAllPushes, "a", 5)),
              StatusIs(kInvalid, HasSubstr("no keys")));
  EXPECT_THAT(refused(Small(), OneServer::ObjectOf(3, 1, "a", 5)),
              StatusIs(kInvalid, HasSubstr("which is at clock 0")));

  OneServer server = ObjectServer(1, spec);
  server.Begin();
  server.PullObject(0, 5, 0);
  ASSERT_THAT(server.inbox[0].errors, SizeIs(1));
  EXPECT_THAT(server.inbox[0].errors[0], StatusIs(kInvalid, HasSubstr("are messages")));
}

TEST(ServerObjects, AClockHasNoMoreObjectsThanASumHas) {
  const int workers = 4096;
  OneServer server = ObjectServer(workers, Small());
  server.Begin();
  for (uint32_t push = 1; push <= 5; ++push) {
    server.Batch(7, {OneServer::ObjectOf(0, push, absl::StrCat("a", push), push)});
  }
  ASSERT_THAT(server.inbox[7].errors, SizeIs(1));
  EXPECT_THAT(server.inbox[7].errors[0],
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 4 pushes")));
  // In the next clock there is room, and for what comes again.
  server.Clock(7, 0);
  server.Batch(7, {OneServer::ObjectOf(1, 1, "b", 6), OneServer::ObjectOf(0, 4, "a4", 7)});
  EXPECT_THAT(server.inbox[7].errors, SizeIs(1));
}

TEST(ServerObjects, WithoutSnapshotsAllWorkersSeeThatTheirObjectsCount) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.Take(0);
  server.Reduced(1, {1, 2});
  EXPECT_THAT(server.Take(0), ElementsAre("min 1"));
}

TEST(ServerObjects, TheLeastClockIsNotShownByAnswersAlone) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Pull(0, 7, 1, {0});
  server.Clock(1, 0);
  server.Take(0);
  server.Reduced(1, {1, 2});
  EXPECT_THAT(server.Take(0), ElementsAre("values 7.0", "min 1"));
}

// ---- deaths

TEST(ServerObjects, TheNextLifeBeginsAtTheFirstObjectThatIsNotInTheRows) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Push(1, 0, 1, 0, 5);
  server.PushObject(1, 0, 2, "b");
  server.Push(1, 0, 3, 0, 6);
  server.Clock(1, 0);
  server.PushObject(1, 1, 1, "c");
  server.Clock(1, 1);
  server.Clock(0, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a b"));
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  ASSERT_THAT(server.inbox[1].welcomes, SizeIs(1));
  const Welcome::Table table = server.inbox[1].welcomes[0].tables[0];
  EXPECT_EQ(table.at, (Position{.clock = 0, .push = 1, .piece = 0}));
  EXPECT_EQ(table.clock, 0);
  EXPECT_EQ(table.min_clock, 0);
  EXPECT_TRUE(table.repeats);
  // It pulls what the life before has had.
  server.PullObject(1, 1, 0);
  EXPECT_EQ(Floats(server.objects.at("s/0/1")), (std::vector<float>{0, 0}));
  // The same object counts for nothing, another one replaces what is lost.
  server.PushObject(1, 0, 2, "b");
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.PushObject(1, 0, 2, "b2");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2 of clock 0: a b2"));
  server.Push(1, 0, 3, 0, 6);
  server.Clock(1, 0);
  server.PushObject(1, 1, 1, "c2");
  server.Clock(1, 1);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.Clock(0, 1);
  server.Reduced(2, {1, 2});
  EXPECT_THAT(server.TakeReduces(), ElementsAre("3! of clock 1: c2"));
  server.Reduced(3, {10, 20});
  server.Pull(1, 7, 2, {0, 1});
  EXPECT_THAT(server.Got(1, 7), ElementsAre(22, 22));
}

TEST(ServerObjects, TheSumWithTheFirstObjectCountsIfItIsThere) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Member(0, MemberState::kDied);
  server.NextLife(0);
  server.PushObject(0, 0, 1, "a2");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a", "2 of clock 0: a2"));
  server.Reduced(1, {1, 2});
  server.Reduced(2, {1, 2});
  server.Clock(0, 0);
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(1, 2));
  // What comes again now is there.
  server.PushObject(0, 0, 1, "a3");
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
}

// The same life on its next channel, as after a lost link.
TEST(ServerObjects, ALifeSendsItsObjectsAgain) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.TakeReduces();
  server.SayHello(0);
  EXPECT_EQ(server.inbox[0].welcomes[1].tables[0].at, (Position{.clock = 0}));
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  server.Reduced(1, {1, 2});
  EXPECT_EQ(server.core.sync(0).min(), 1);
}

TEST(ServerObjects, WhatTheNextLifeDoesNotPushAgainDoesNotCount) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.PushObject(1, 0, 1, "b");
  server.PushObject(1, 0, 2, "c");
  server.Clock(0, 0);
  server.Clock(1, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a b c"));
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  server.PushObject(1, 0, 2, "c2");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 0: a c2"));
  server.Clock(1, 0);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  // With a push that has been taken out.
  server.Reduced(1, {9, 9});
  server.Reduced(2, {1, 2});
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(1, 2));
}

TEST(ServerObjects, ADroppedWorkersObjectsAreTakenOut) {
  TableSpec spec = Small();
  spec.on_loss = OnLoss::kDrop;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.PushObject(1, 0, 1, "b");
  server.Push(1, 0, 2, 0, 5);
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.PushObject(1, 1, 1, "c");
  server.Clock(1, 1);
  server.PushObject(1, 2, 1, "d");
  server.TakeReduces();
  server.Member(1, MemberState::kDied);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 0: a"));
  server.Reduced(1, {9, 9});
  server.Reduced(2, {1, 2});
  server.Pull(0, 7, 1, {0, 1});
  // Its push with a key is of a clock that it has ended.
  EXPECT_THAT(server.Got(0, 7), ElementsAre(6, 2));
  server.Clock(0, 1);
  server.Clock(0, 2);
  EXPECT_THAT(server.TakeReduces(), IsEmpty());
  EXPECT_EQ(server.core.waiting(), 0);
}

TEST(ServerObjects, ASnapshotIsWithoutObjectsThatWereTakenOut) {
  TableSpec spec = Small(Saved());
  spec.on_loss = OnLoss::kDrop;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  server.PushObject(1, 0, 1, "b");
  server.Push(1, 0, 2, 0, 5);
  server.Clock(1, 0);
  server.Member(1, MemberState::kDied);
  server.Push(0, 0, 1, 1, 6);
  server.Batch(0, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(1));
  OneServer second = ObjectServer(2, spec);
  PHALANX_ASSERT_OK(second.core.Restore(0, 1, server.stores[0].bytes));
  EXPECT_EQ(second.core.waiting(), 2);
}

TEST(ServerObjects, WithoutTheDroppedWorkersObjectsAClockTurnsAtOnce) {
  TableSpec spec = Small();
  spec.on_loss = OnLoss::kDrop;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  server.PushObject(1, 0, 1, "b");
  server.Push(1, 0, 2, 0, 5);
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.Pull(0, 7, 1, {0, 1});
  server.Member(1, MemberState::kDied);
  EXPECT_THAT(server.Got(0, 7), ElementsAre(5, 0));
}

// ---- snapshots

TEST(ServerObjects, ASnapshotHasNothingOfObjectsThatAreNotInTheRows) {
  TableSpec spec = Small(Saved());
  spec.snapshot_every = 1;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  const auto clock = [](OneServer& one, int worker, absl::string_view handle) {
    one.Push(worker, 0, 1, 0, 1);
    one.PushObject(worker, 0, 2, handle);
    one.Push(worker, 0, 3, 1, 2);
    one.Clock(worker, 0);
  };
  clock(server, 0, "a");
  clock(server, 1, "b");
  // The clock turns when the sum is there.
  EXPECT_THAT(server.stores, IsEmpty());
  server.Batch(0, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(1));
  server.Take(0);
  server.Store(1);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 0.1"));

  OneServer second = ObjectServer(2, spec);
  PHALANX_ASSERT_OK(second.core.Restore(0, 1, server.stores[0].bytes));
  // The two that were before objects.
  EXPECT_EQ(second.core.waiting(), 2);
  second.Begin();
  for (const int worker : {0, 1}) {
    const Welcome::Table table = second.inbox[worker].welcomes[0].tables[0];
    EXPECT_EQ(table.at, (Position{.clock = 0, .push = 1, .piece = 0}));
    EXPECT_EQ(table.durable, table.at);
    EXPECT_EQ(table.clock, 0);
  }
  for (OneServer* one : {&server, &second}) {
    clock(*one, 1, "b");
    clock(*one, 0, "a");
    EXPECT_THAT(one->TakeReduces(), ElementsAre("1! of clock 0: a b"));
    one->Reduced(1, {10, 20});
    one->Pull(0, 7, 1, {0, 1});
    EXPECT_THAT(one->Got(0, 7), ElementsAre(12, 24));
  }
  // Now they are in the rows, and in the next one.
  ASSERT_THAT(server.stores, SizeIs(2));
  server.Take(0);
  server.Store(2);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 1.0"));
}

// Keys of a clock whose objects are summed are in no row yet.
TEST(ServerObjects, ASnapshotHasThePushesOfAClockThatWaits) {
  OneServer server = ObjectServer(2, Small(Saved()));
  server.Begin();
  server.Push(0, 0, 1, 0, 1);
  server.Clock(0, 0);
  server.PushObject(1, 0, 1, "b");
  server.Clock(1, 0);
  server.Push(0, 1, 1, 0, 3);
  server.Batch(0, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(1));
  OneServer second = ObjectServer(2, Small(Saved()));
  PHALANX_ASSERT_OK(second.core.Restore(0, 1, server.stores[0].bytes));
  EXPECT_EQ(second.core.waiting(), 2);
  second.Begin();
  EXPECT_EQ(second.inbox[0].welcomes[0].tables[0].at, (Position{1, 1, 0}));
  EXPECT_EQ(second.inbox[1].welcomes[0].tables[0].at, (Position{.clock = 0}));
  second.PushObject(1, 0, 1, "b2");
  second.Clock(1, 0);
  second.Reduced(1, {10, 20});
  second.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(second.Got(0, 7), ElementsAre(11, 20));
}

// The worker waits for room, which no snapshot gives before the clock has turned.
TEST(ServerObjects, AQuestionForASnapshotIsAnsweredAgainAfterTheTurn) {
  OneServer server = ObjectServer(2, Small(Saved()));
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Batch(0, {AskSnapshot{.table = 0}});
  EXPECT_THAT(server.stores, IsEmpty());
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.Take(0);
  server.Reduced(1, {1, 2});
  EXPECT_THAT(server.Take(0), IsEmpty());
  ASSERT_THAT(server.stores, SizeIs(1));
  server.Store(1);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 1.0", "min 1"));
  // Once.
  server.PushObject(0, 1, 1, "b");
  server.Clock(0, 1);
  server.Clock(1, 1);
  server.Reduced(2, {1, 2});
  EXPECT_THAT(server.stores, SizeIs(1));
}

TEST(ServerObjects, TheNextLifeIsWelcomedWhenItsSafePositionCannotBeLost) {
  OneServer server = ObjectServer(2, Small(Saved()));
  server.Begin();
  server.PushObject(0, 0, 1, "a");
  server.Member(0, MemberState::kDied);
  server.NextLife(0);
  // It has nothing to lose.
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(1));
  server.PushObject(0, 0, 1, "a2");
  server.Push(1, 0, 1, 0, 1);
  server.PushObject(1, 0, 2, "b");
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  EXPECT_THAT(server.inbox[1].welcomes, IsEmpty());
  ASSERT_THAT(server.stores, SizeIs(1));
  server.Store(1);
  ASSERT_THAT(server.inbox[1].welcomes, SizeIs(1));
  EXPECT_EQ(server.inbox[1].welcomes[0].tables[0].at, (Position{0, 1, 0}));
  EXPECT_EQ(server.inbox[1].welcomes[0].tables[0].durable, (Position{0, 1, 0}));
}

// ---- versions

TEST(ServerObjects, AllWhoPullAStateShareItsVersion) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PullObject(0, 1, 0);
  server.PullObject(1, 1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("object 1.0 s/0/1"));
  EXPECT_THAT(server.Take(1), ElementsAre("object 1.0 s/0/1"));
  server.Push(0, 0, 1, 0, 1);
  server.Clock(0, 0);
  server.PullObject(0, 2, 1);
  server.Take(0);
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("object 2.0 s/0/2", "min 1"));
  EXPECT_EQ(Floats(server.objects.at("s/0/2")), (std::vector<float>{1, 0}));
  // That of before the turn stays until the next one, and while it is read.
  server.Read(0, 1);
  server.Read(1, 1);
  EXPECT_THAT(server.objects, SizeIs(2));
  server.PullObject(1, 2, 1);
  server.Push(0, 1, 1, 0, 1);
  server.Clock(0, 1);
  server.Clock(1, 1);
  EXPECT_THAT(server.objects, UnorderedElementsAre(::testing::Key("s/0/2")));
  server.PullObject(0, 3, 2);
  server.Push(0, 2, 1, 0, 1);
  server.Clock(0, 2);
  server.Clock(1, 2);
  server.Read(0, 2);
  EXPECT_THAT(server.objects, SizeIs(2));
  server.Read(1, 2);
  EXPECT_THAT(server.objects, UnorderedElementsAre(::testing::Key("s/0/3")));
  // Repeated, or of nothing.
  server.Read(1, 2);
  server.Read(1, 9);
  EXPECT_THAT(server.objects, SizeIs(1));
}

TEST(ServerObjects, WithoutBspAVersionIsMadeWhenRowsHaveChanged) {
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    OneServer server = ObjectServer(1, Small(Spec(sync)));
    server.Begin();
    server.PullObject(0, 1, 0);
    server.PullObject(0, 2, 0);
    server.Push(0, 0, 1, 0, 1);
    server.PullObject(0, 3, 0);
    EXPECT_THAT(server.objects,
                UnorderedElementsAre(::testing::Key("s/0/1"), ::testing::Key("s/0/2")));
    server.Read(0, 2);
    server.Read(0, 1);
    EXPECT_THAT(server.objects, UnorderedElementsAre(::testing::Key("s/0/2")));
    server.Read(0, 3);
    server.Push(0, 0, 2, 0, 1);
    EXPECT_THAT(server.objects, IsEmpty());
  }
}

TEST(ServerObjects, AVersionIsTheStateOfItsAnswer) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  const std::string value = Bytes({5});
  // All in one message: the rows have changed when the version is published.
  server.Batch(0,
               {OneServer::PushOf(0, 1, 0, value), Pull{.ticket = 1, .object = true},
                ClockEnd{.table = 0, .clock = 0}, Pull{.ticket = 2, .clock = 1, .object = true}});
  EXPECT_EQ(Floats(server.objects.at("s/0/1")), (std::vector<float>{0, 0}));
  EXPECT_EQ(Floats(server.objects.at("s/0/2")), (std::vector<float>{5, 0}));
}

TEST(ServerObjects, AVersionThatIsNeverTakenIsNoObject) {
  OneServer server = ObjectServer(1, Small(Spec(Sync::kAsp)));
  server.Begin();
  const std::string value = Bytes({5});
  server.Batch(0, {Pull{.ticket = 1, .object = true}, Read{.table = 0, .ticket = 1},
                   OneServer::PushOf(0, 1, 0, value)});
  EXPECT_THAT(server.objects, IsEmpty());
}

TEST(ServerObjects, AClosedChannelReadsNothing) {
  OneServer server = ObjectServer(1, Small(Spec(Sync::kAsp)));
  server.Begin();
  server.PullObject(0, 1, 0);
  server.Push(0, 0, 1, 0, 1);
  EXPECT_THAT(server.objects, SizeIs(1));
  server.SayHello(0);
  EXPECT_THAT(server.objects, IsEmpty());
  server.PullObject(0, 1, 0);
  EXPECT_THAT(server.Take(0), Contains("object 1.0 s/0/2"));
  // The same pull again, without a Read.
  server.Push(0, 0, 2, 0, 1);
  server.PullObject(0, 1, 0);
  EXPECT_THAT(server.objects, UnorderedElementsAre(::testing::Key("s/0/3")));
}

TEST(ServerObjects, AVersionThatCannotBeStoredRefusesItsPulls) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  server.PullObject(0, 1, 0);
  server.PullObject(1, 2, 0);
  server.core.OnPublishFailed(0, "s/0/1", absl::ResourceExhaustedError("the node is full"));
  server.Run();
  EXPECT_THAT(server.Take(0), ElementsAre("object 1.0 s/0/1", "refused 1"));
  EXPECT_THAT(server.Take(1), ElementsAre("object 2.0 s/0/1", "refused 2"));
  EXPECT_THAT(server.inbox[0].errors[0],
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("table \"w\""), HasSubstr("the node is full"))));
  server.PullObject(0, 3, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("object 3.0 s/0/2"));
}

// This server has turned the clock that another one makes again.
TEST(ServerObjects, TheNextLifePullsWhatTheOneBeforeHasHad) {
  OneServer server = ObjectServer(2, Small());
  server.Begin();
  for (const int worker : {0, 1}) server.PullObject(worker, 1, 0);
  server.Push(1, 0, 1, 0, 5);
  server.Clock(1, 0);
  server.Clock(0, 0);
  server.PullObject(0, 2, 1);
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  EXPECT_EQ(server.inbox[1].welcomes[0].tables[0].clock, 1);
  server.PullObject(1, 7, 0);
  EXPECT_THAT(server.Take(1), ElementsAre("object 7.0 s/0/1"));
  server.PullObject(1, 8, 1);
  EXPECT_THAT(server.Take(1), ElementsAre("object 8.0 s/0/2"));
}

TEST(ServerObjects, AFailedTableHasNoObjects) {
  TableSpec spec = Small();
  spec.on_loss = OnLoss::kFail;
  OneServer server = ObjectServer(2, spec);
  server.Begin();
  server.PullObject(0, 1, 0);
  server.PushObject(0, 0, 1, "a");
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.Member(1, MemberState::kDied);
  EXPECT_THAT(server.objects, IsEmpty());
  server.Reduced(1, {1, 2});
  server.core.Retry();
  server.PullObject(0, 2, 0);
  EXPECT_THAT(server.objects, IsEmpty());
}

TEST(ServerObjects, AnswersThatAreNotReadCountAsPullsThatWait) {
  OneServer server = ObjectServer(1, Small());
  server.Begin();
  std::vector<WorkerEntry> pulls;
  for (uint32_t piece = 0; piece < kMaxParkedPulls; ++piece) {
    pulls.push_back(Pull{.ticket = 1, .piece = piece, .object = true});
    if (pulls.size() == 4096) server.Batch(0, std::exchange(pulls, {}));
  }
  EXPECT_THAT(server.inbox[0].errors, IsEmpty());
  server.PullObject(0, 2, 0);
  ASSERT_THAT(server.inbox[0].errors, SizeIs(1));
  EXPECT_THAT(server.inbox[0].errors[0], StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace phalanx::ps::internal
