// Snapshots of ServerCore: when they are made, what they show, and what comes back from them.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/server/testing/one_server.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::OneServer;
using testing::Saved;
using ::testing::SizeIs;
using testing::Spec;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// ---- snapshots

TEST(ServerCore, ASnapshotIsMadeEverySoManyClocks) {
  OneServer server(1, {Saved()});
  server.Begin();
  for (uint64_t clock = 0; clock < 4; ++clock) {
    server.Push(0, clock, 1, 0, 1);
    server.Clock(0, clock);
    EXPECT_EQ(server.stores.size(), clock == 0 ? 0 : 1);
  }
  server.Take(0);
  server.Store(1);
  // The one that became due meanwhile follows.
  EXPECT_THAT(server.Take(0), ElementsAre("durable 2.0"));
  ASSERT_THAT(server.stores, SizeIs(2));
  EXPECT_EQ(server.stores[1].number, 2);
  EXPECT_THAT(server.frees, IsEmpty());
  server.Store(2);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 4.0"));
  EXPECT_THAT(server.frees, ElementsAre(1));
  server.Store(2);
  EXPECT_THAT(server.frees, ElementsAre(1));
}

TEST(ServerCore, AWorkerCanAskForASnapshot) {
  OneServer server(2, {Saved()});
  server.Begin();
  server.Push(0, 0, 1, 0, 1);
  server.Batch(0, {AskSnapshot{.table = 0}, AskSnapshot{.table = 9}});
  ASSERT_THAT(server.stores, SizeIs(1));
  // The one under way shows this worker already; not the other one's push.
  server.Batch(0, {AskSnapshot{.table = 0}});
  server.Store(1);
  EXPECT_THAT(server.Take(0), ElementsAre("done 1", "durable 0.1"));
  EXPECT_THAT(server.stores, SizeIs(1));
  server.Push(1, 0, 1, 0, 1);
  server.Batch(1, {AskSnapshot{.table = 0}});
  EXPECT_THAT(server.stores, SizeIs(2));
  server.Push(1, 0, 2, 0, 1);
  server.Batch(1, {AskSnapshot{.table = 0}});
  server.Store(2);
  EXPECT_THAT(server.stores, SizeIs(3));
}

TEST(ServerCore, AspWithoutClocksIsSavedBySize) {
  TableSpec spec = Saved(Sync::kAsp);
  spec.snapshot_bytes = 40;
  OneServer server(1, {spec});
  server.Begin();
  for (uint32_t i = 1; i < 10; ++i) server.Push(0, 0, i, 0, 1);
  EXPECT_THAT(server.stores, IsEmpty());
  server.Push(0, 0, 10, 0, 1);
  EXPECT_THAT(server.stores, SizeIs(1));
}

TEST(ServerCore, InProportionALargePartIsSavedLessOften) {
  TableSpec spec = Saved(Sync::kAsp);
  spec.snapshot_bytes = 0;
  SnapshotSchedule schedule(spec, 1);
  schedule.OnPushed(kLeastSnapshotBytes - 1, 100);
  EXPECT_FALSE(schedule.due());
  schedule.OnPushed(1, 100);
  EXPECT_TRUE(schedule.due());
  schedule.Begin(0, {{}});
  schedule.Stored(1);
  schedule.OnPushed(2 * kLeastSnapshotBytes, 2 * kLeastSnapshotBytes + 1);
  EXPECT_FALSE(schedule.due());
  schedule.OnPushed(1, 2 * kLeastSnapshotBytes + 1);
  EXPECT_TRUE(schedule.due());
}

TEST(ServerCore, ATableGoesOnWithoutSnapshots) {
  OneServer server(2, {Saved(Sync::kAsp)});
  server.Begin();
  server.Push(0, 0, 1, 0, 1);
  server.Batch(0, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(1));
  // A next life waits for the snapshot.
  server.NextLife(1);
  server.Push(0, 0, 2, 0, 1);
  server.core.OnStoreFailed(0, 1);
  server.Run();
  server.Take(0);
  server.core.GiveUpSnapshots(0);
  server.Run();
  EXPECT_THAT(server.Take(0), ElementsAre("durable 0.2"));
  EXPECT_THAT(server.inbox[1].welcomes, SizeIs(1));
  server.Push(0, 0, 3, 0, 1);
  server.Batch(0, {AskSnapshot{.table = 0}});
  EXPECT_THAT(server.Take(0), ElementsAre("done 3", "durable 0.3"));
  EXPECT_THAT(server.stores, SizeIs(1));
  EXPECT_THAT(server.core.Describe(), HasSubstr("and no further ones"));
}

TEST(ServerCore, AStoreThatFailsIsTriedAgain) {
  OneServer server(1, {Saved()});
  server.Begin();
  server.Clock(0, 0);
  server.Clock(0, 1);
  server.core.OnStoreFailed(0, 1);
  server.Run();
  EXPECT_THAT(server.stores, SizeIs(1));
  EXPECT_THAT(server.core.Describe(), HasSubstr("could not be stored"));
  server.core.Retry();
  server.Run();
  ASSERT_THAT(server.stores, SizeIs(2));
  EXPECT_EQ(server.stores[1].number, 2);
  server.core.OnStoreFailed(0, 2);
  server.Clock(0, 2);
  EXPECT_THAT(server.stores, SizeIs(2));
  server.Clock(0, 3);
  EXPECT_THAT(server.stores, SizeIs(3));
  server.Take(0);
  // Late news of an attempt that has failed changes nothing.
  server.Store(1);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.Store(3);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 4.0"));
}

TEST(ServerCore, ARestoredServerGoesOnWithTheSameBits) {
  TableSpec spec = Saved();
  spec.update = Update::kMomentum;
  OneServer whole(2, {spec});
  whole.Begin();
  OneServer first(2, {spec});
  first.Begin();
  const auto clock = [](OneServer& server, uint64_t number) {
    for (const int worker : {1, 0}) {
      for (uint32_t i = 1; i <= 3; ++i) {
        server.Push(worker, number, i, i, 0.1F * static_cast<float>(i + number));
      }
    }
  };
  for (OneServer* server : {&whole, &first}) {
    for (uint64_t number = 0; number < 2; ++number) {
      clock(*server, number);
      server->Clock(0, number);
      server->Clock(1, number);
    }
  }
  // In clock 2, worker 1 has pushed and ended its clock when the snapshot is made.
  first.Store(1);
  for (uint32_t i = 1; i <= 3; ++i) {
    first.Push(1, 2, i, i, 0.1F * static_cast<float>(i + 2));
  }
  first.Clock(1, 2);
  first.Batch(1, {AskSnapshot{.table = 0}});
  ASSERT_THAT(first.stores, SizeIs(2));

  OneServer second(2, {spec});
  PHALANX_ASSERT_OK(second.core.Restore(0, 2, first.stores[1].bytes));
  EXPECT_EQ(second.core.waiting(), 3);
  second.Begin();
  const Welcome::Table& at0 = second.inbox[0].welcomes[0].tables[0];
  EXPECT_EQ(at0.at, (Position{.clock = 2}));
  EXPECT_EQ(at0.durable, at0.at);
  const Welcome::Table& at1 = second.inbox[1].welcomes[0].tables[0];
  EXPECT_EQ(at1.at, (Position{.clock = 3}));
  EXPECT_EQ(at1.durable, at1.at);
  EXPECT_EQ(at1.clock, 3);
  for (OneServer* server : {&whole, &second}) {
    clock(*server, 2);
    server->Clock(0, 2);
    server->Clock(1, 2);
    server->Pull(0, 1, 3, {0, 1, 2, 3, 4});
  }
  EXPECT_EQ(second.inbox[0].values.at(1), whole.inbox[0].values.at(1));
  EXPECT_NE(second.Got(0, 1)[1], 0);
  // The next snapshot has the next number, and frees the one that was restored.
  second.Clock(0, 3);
  second.Clock(1, 3);
  ASSERT_THAT(second.stores, SizeIs(1));
  EXPECT_EQ(second.stores[0].number, 3);
  second.Store(3);
  EXPECT_THAT(second.frees, ElementsAre(2));
}

TEST(ServerCore, DeathsBeforeBeginCountInTheRestoredState) {
  TableSpec spec = Saved();
  spec.on_loss = OnLoss::kDrop;
  OneServer first(2, {spec});
  first.Begin();
  first.Push(1, 0, 1, 1, 5);
  first.Batch(1, {AskSnapshot{.table = 0}});
  ASSERT_THAT(first.stores, SizeIs(1));
  OneServer second(2, {spec});
  second.core.OnMember(1, MemberState::kDied, 0);
  PHALANX_ASSERT_OK(second.core.Restore(0, 1, first.stores[0].bytes));
  second.core.Begin();
  second.SayHello(0);
  second.Clock(0, 0);
  second.Pull(0, 1, 1, {1});
  EXPECT_THAT(second.Got(0, 1), ElementsAre(0));
}

TEST(ServerCore, PullsOfANextLifeWaitForWhatEachWorkerSendsAgain) {
  TableSpec spec = Saved();
  spec.sync = Sync::kAsp;
  OneServer server(3, {spec}, nullptr, {.awaits_workers = true});
  for (const int worker : {0, 1, 2}) server.Member(worker, MemberState::kLive);
  server.core.Begin();
  server.SayHello(0);
  server.Pull(0, 1, 0, {1});
  server.SayHello(1, {{.clock = 0, .push = 2, .piece = 0}});
  server.Push(1, 0, 1, 1, 5);
  server.Push(1, 0, 2, 1, 6);
  // Worker 2 can have pushed as well.
  EXPECT_THAT(server.inbox[0].values, IsEmpty());
  // Of worker 2 the channel closes: its pull is not asked any more.
  server.SayHello(2, {{.clock = 0, .push = 1, .piece = 0}});
  server.Pull(2, 7, 0, {1});
  server.SayHello(2, {{.clock = 0, .push = 1, .piece = 0}});
  EXPECT_THAT(server.inbox[0].values, IsEmpty());
  server.Push(2, 0, 1, 1, 7);
  EXPECT_THAT(server.Got(0, 1), ElementsAre(18));
  EXPECT_THAT(server.inbox[2].values, IsEmpty());
  server.Pull(2, 8, 0, {1});
  EXPECT_THAT(server.Got(2, 8), ElementsAre(18));
}

TEST(ServerCore, PullsOfANextLifeWaitForNothingThatIsNotSentAgain) {
  TableSpec spec = Saved();
  spec.sync = Sync::kAsp;
  OneServer server(2, {spec}, nullptr, {.awaits_workers = true});
  for (const int worker : {0, 1}) server.Member(worker, MemberState::kLive);
  server.core.Begin();
  server.SayHello(0);
  server.Pull(0, 1, 0, {1});
  const char* const waits = "  1 pulls wait until what the life before has had was sent again by ";
  EXPECT_THAT(server.core.Describe(), HasSubstr(absl::StrCat(waits, "worker 1\n")));
  server.SayHello(1, {{.clock = 0, .push = 2, .piece = 0}});
  server.Push(1, 0, 1, 1, 5);
  EXPECT_THAT(server.core.Describe(), HasSubstr(absl::StrCat(waits, "worker 1\n")));
  EXPECT_THAT(server.inbox[0].values, IsEmpty());
  // Its table has failed.
  server.SayHello(1, {{}});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(5));
  EXPECT_THAT(server.core.Describe(), Not(HasSubstr("sent again")));
}

// A worker sends all again that the life before has not answered, in the order of its calls.
TEST(ServerCore, PullsOfANextLifeAreWithoutLaterPushesOfTheirWorkerIfItIsTheLastOne) {
  TableSpec spec = Saved();
  spec.sync = Sync::kAsp;
  OneServer server(1, {spec}, nullptr, {.awaits_workers = true});
  server.Member(0, MemberState::kLive);
  server.core.Begin();
  server.SayHello(0, {{.clock = 0, .push = 1, .piece = 0}});
  const std::vector<Key> key = {1};
  const std::string first = testing::Bytes({5});
  const std::string second = testing::Bytes({7});
  server.Batch(0, {OneServer::PushOf(0, 1, 1, first),
                   internal::Pull{.ticket = 1, .clock = 0, .keys = testing::KeysOf(key)},
                   OneServer::PushOf(0, 2, 1, second)});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(5));
  server.Pull(0, 2, 0, {1});
  EXPECT_THAT(server.Got(0, 2), ElementsAre(12));
}

TEST(ServerCore, PullsOfANextLifeDoNotWaitForAWorkerWhoseMessageIsNone) {
  TableSpec spec = Saved();
  spec.sync = Sync::kAsp;
  OneServer server(2, {spec}, nullptr, {.awaits_workers = true});
  for (const int worker : {0, 1}) server.Member(worker, MemberState::kLive);
  server.core.Begin();
  server.SayHello(0);
  server.SayHello(1, {{.clock = 0, .push = 2, .piece = 0}});
  server.Pull(0, 1, 0, {1});
  EXPECT_THAT(server.inbox[0].values, IsEmpty());
  server.Pass(1, "no message");
  EXPECT_THAT(server.Got(0, 1), ElementsAre(0));
}

TEST(ServerCore, PullsOfANextLifeWaitForNoWorkerThatIsGone) {
  TableSpec spec = Saved();
  spec.sync = Sync::kAsp;
  OneServer server(3, {spec}, nullptr, {.awaits_workers = true});
  server.Member(1, MemberState::kLeft);
  for (const int worker : {0, 2}) server.Member(worker, MemberState::kLive);
  server.core.Begin();
  server.SayHello(0);
  server.Pull(0, 1, 0, {1});
  EXPECT_THAT(server.inbox[0].values, IsEmpty());
  server.Member(2, MemberState::kDied);
  EXPECT_THAT(server.Got(0, 1), ElementsAre(0));
}

TEST(ServerCore, WorkersThatHaveNotJoinedAreNotWaitedForBehindDropGone) {
  OneServer server(3, {Saved()});
  server.core.Begin();
  server.SayHello(0);
  server.SayHello(1);
  server.Member(0, MemberState::kLeft);
  server.core.DropGone();
  EXPECT_FALSE(server.core.done());
  server.Member(1, MemberState::kDied);
  EXPECT_FALSE(server.core.done());
  server.core.DropGone();
  EXPECT_TRUE(server.core.done());
}

TEST(ServerCore, SnapshotsOfOthersAreRefused) {
  OneServer first(2, {Saved()});
  first.Begin();
  first.Push(0, 0, 1, 3, 1);
  first.Batch(0, {AskSnapshot{.table = 0}});
  const std::string bytes = first.stores[0].bytes;
  const auto restore = [&bytes](TableSpec spec, int rank, int servers, int workers,
                                uint64_t number) {
    ServerCore core({.rank = rank, .servers = servers, .workers = workers});
    EXPECT_THAT(core.AddTable(spec), IsOk());
    return core.Restore(0, number, bytes);
  };
  PHALANX_EXPECT_OK(restore(Saved(), 0, 1, 2, 1));
  EXPECT_THAT(restore(Saved(), 0, 1, 2, 7), StatusIs(kInvalid, HasSubstr("its number is 1")));
  EXPECT_THAT(restore(Saved(), 1, 2, 2, 1), StatusIs(kInvalid, HasSubstr("server 0 of 1")));
  EXPECT_THAT(restore(Saved(), 0, 1, 3, 1), StatusIs(kInvalid, HasSubstr("2 workers")));
  EXPECT_THAT(restore(Saved(Sync::kAsp), 0, 1, 2, 1), StatusIs(kInvalid, HasSubstr("spec")));
  EXPECT_THAT(restore(Spec(), 0, 1, 2, 1), StatusIs(kInvalid, HasSubstr("no snapshots")));
}

TEST(ServerCore, AnyBytesRestoreOrAreRefused) {
  TableSpec spec = Saved();
  spec.keys = 0;
  OneServer first(2, {spec});
  first.Begin();
  for (uint64_t clock = 0; clock < 1; ++clock) {
    first.Push(0, clock, 1, 77, 3);
    first.Push(1, clock, 1, 78, 3);
    first.Clock(0, clock);
    first.Clock(1, clock);
  }
  first.Push(1, 1, 1, 79, 3);
  first.Batch(1, {AskSnapshot{.table = 0}});
  const std::string bytes = first.stores[0].bytes;
  const auto restore = [&spec](const std::string& changed) {
    OneServer second(2, {spec});
    const absl::Status restored = second.core.Restore(0, 1, changed);
    if (!restored.ok()) {
      EXPECT_THAT(restored, StatusIs(kInvalid, HasSubstr("table \"w\"")));
    }
    // Either way the server can go on.
    second.Begin();
    second.Pull(0, 1, second.core.sync(0).min(), {77, 78});
    return restored;
  };
  PHALANX_EXPECT_OK(restore(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(restore(bytes.substr(0, size)), StatusIs(kInvalid));
  }
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = bytes;
    changed[random.Below(changed.size())] = static_cast<char>(random.Next());
    restore(changed).IgnoreError();
  }
}

TEST(ServerCore, TheNextLifeIsWelcomedWhenItsPositionCannotBeLost) {
  OneServer server(2, {Saved()});
  server.Begin();
  server.Push(0, 0, 1, 0, 5);
  server.Clock(0, 0);
  server.Batch(1, {AskSnapshot{.table = 0}});
  EXPECT_THAT(server.stores, SizeIs(0));  // it has nothing to lose
  server.Push(1, 0, 1, 0, 5);
  server.Batch(1, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(1));
  server.Push(0, 1, 1, 0, 6);
  server.Member(0, MemberState::kDied);
  server.NextLife(0);
  // The one under way does not show its last push: another one has to.
  EXPECT_THAT(server.inbox[0].welcomes, IsEmpty());
  server.Store(1);
  EXPECT_THAT(server.inbox[0].welcomes, IsEmpty());
  ASSERT_THAT(server.stores, SizeIs(2));
  // The same life says Hello again, as after a lost link, and waits as well.
  server.SayHello(0);
  EXPECT_THAT(server.inbox[0].welcomes, IsEmpty());
  server.Store(2);
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(1));
  EXPECT_EQ(server.inbox[0].welcomes[0].tables[0].durable,
            (Position{.clock = 1, .push = 1, .piece = 0}));
  // In the same life it is welcomed at once.
  server.Push(0, 1, 2, 0, 6);
  server.SayHello(0);
  EXPECT_THAT(server.inbox[0].welcomes, SizeIs(2));
  EXPECT_THAT(server.stores, SizeIs(2));
}

TEST(ServerCore, ADroppedWorkerComesBackWhenItsClockCannotBeLost) {
  TableSpec spec = Saved();
  spec.on_loss = OnLoss::kDrop;
  OneServer server(2, {spec});
  server.Begin();
  server.Push(1, 0, 1, 0, 5);
  server.Batch(1, {AskSnapshot{.table = 0}});
  server.Store(1);
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  // Its push was dropped, and the snapshot has it still.
  EXPECT_THAT(server.inbox[1].welcomes, IsEmpty());
  ASSERT_THAT(server.stores, SizeIs(2));
  server.Store(2);
  ASSERT_THAT(server.inbox[1].welcomes, SizeIs(1));
  EXPECT_EQ(server.inbox[1].welcomes[0].tables[0].at, (Position{.clock = 0}));
  OneServer restored(2, {spec});
  PHALANX_ASSERT_OK(restored.core.Restore(0, 2, server.stores[1].bytes));
  EXPECT_EQ(restored.core.waiting(), 0);
}

TEST(ServerCore, ASnapshotFromBeforeADropShowsNothingOfTheNextLife) {
  TableSpec spec = Saved();
  spec.on_loss = OnLoss::kDrop;
  OneServer server(2, {spec});
  server.Begin();
  server.Push(1, 0, 1, 0, 5);
  server.Batch(1, {AskSnapshot{.table = 0}});
  server.Member(1, MemberState::kDied);
  server.NextLife(1);
  ASSERT_THAT(server.inbox[1].welcomes, SizeIs(1));
  server.Push(1, 0, 1, 0, 5);
  server.Take(1);
  server.Store(1);
  EXPECT_THAT(server.Take(1), IsEmpty());
  server.Batch(1, {AskSnapshot{.table = 0}});
  ASSERT_THAT(server.stores, SizeIs(2));
  server.Store(2);
  EXPECT_THAT(server.Take(1), ElementsAre("durable 0.1"));
}

TEST(ServerCore, BspWorkersKeepPushesThatAreFarAhead) {
  OneServer server(2, {Saved()});
  server.Begin();
  for (uint64_t clock = 0; clock < 5; ++clock) {
    server.Push(0, clock, 1, 0, 1);
    server.Clock(0, clock);
  }
  server.Batch(0, {AskSnapshot{.table = 0}});
  server.Take(0);
  server.Store(1);
  // The snapshot has all of them.
  EXPECT_THAT(server.Take(0), ElementsAre("durable 2.0"));
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 3.0", "min 1"));
  server.Clock(1, 1);
  server.Clock(1, 2);
  server.Clock(1, 3);
  EXPECT_THAT(server.Take(0), ElementsAre("durable 4.0", "min 2", "durable 5.0", "min 3"));
}

}  // namespace
}  // namespace phalanx::ps::internal
