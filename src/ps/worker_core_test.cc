// A WorkerCore against servers that the test plays message by message. What travels as objects is
// in worker/objects_test.cc, large calls are in worker/cutting_test.cc.
#include "src/ps/worker_core.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/worker/testing/worker_play.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Play = WorkerPlay;
using Ticket = WorkerCore::Ticket;

std::string Bytes(const std::vector<int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)};
}

const int64_t kOne[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

TEST(WorkerCore, IsReadyWhenAllServersHaveWelcomedIt) {
  Play play(2, {SpecOf("a"), SpecOf("b")});
  EXPECT_THAT(play.core.missing(), ElementsAre(0, 1));
  play.core.OnServer(1, true, 4);
  EXPECT_THAT(play.Got(1), ElementsAre("hello to 4"));
  play.Welcome(1, 4);
  EXPECT_THAT(play.core.missing(), ElementsAre(0));
  play.core.OnServer(0, true, 0);
  play.Welcome(0, 0);
  ASSERT_TRUE(play.core.ready());
  EXPECT_EQ(*play.core.Open("b"), 1u);
  EXPECT_THAT(play.core.Open("c"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"a\", \"b\"")));
}

TEST(WorkerCore, WhatAServerSaysBeforeTheOthersHaveWelcomedTheWorkerIsNotForgotten) {
  Play play(2, {SpecOf("a"), SpecOf("b")}, /*life=*/2);
  play.core.OnServer(0, true, 0);
  play.core.OnServer(1, true, 0);
  play.Welcome(1, 0, {{.clock = 3}, {}}, {{.clock = 2}, {}});
  play.Answer(1, 0, Durable{.table = 0, .upto = {.clock = 3}});
  play.Answer(1, 0, MinClock{.table = 0, .clock = 2});
  play.Answer(1, 0, TableFailed{.table = 1, .why = absl::AbortedError("gone")});
  play.Answer(1, 0, Durable{.table = 7});
  play.Welcome(0, 0, {{.clock = 2}, {}});
  ASSERT_TRUE(play.core.ready());
  EXPECT_EQ(play.core.table(0).clock, 2u);
  EXPECT_THAT(play.core.Clock(1), StatusIs(absl::StatusCode::kAborted));
  play.core.BeginLeave();
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_EQ(play.core.Pending(), "server 0 (has not answered) for table \"a\"");
}

TEST(WorkerCore, KeysGoWhereTheProgramsSlicerSays) {
  TableSpec spec = SpecOf("a");
  spec.keys = 0;
  spec.split = Split::kOwn;
  spec.snapshot_every = 0;
  Play play(2, {spec});
  play.Begin(2);
  PHALANX_ASSERT_OK(play.Push(0, {4, 5, 6}, kOne, {1, 0, 1}).status());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 5+1"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 0.1.0 list of 2"));
  int64_t out[2];
  PHALANX_ASSERT_OK(play.Pull(0, {4, 6}, out, {1, 1}).status());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_THAT(play.Got(1), ElementsAre("pull 0 at 0 list of 2"));
}

TEST(WorkerCore, ASlicerThatIsWrongRefusesTheCallAndNothingIsSent) {
  TableSpec spec = SpecOf("a");
  spec.keys = 0;
  spec.split = Split::kOwn;
  Play play(2, {spec});
  play.Begin(2);
  const auto wrong = [](const char* why) {
    return StatusIs(
        absl::StatusCode::kInvalidArgument,
        HasSubstr(absl::StrCat("table \"a\" of worker 0 at clock 0: its slicer ", why)));
  };
  int64_t out[3];
  EXPECT_THAT(play.Push(0, {4, 5, 6}, kOne, {1, kNoServer, 1}).status(), wrong("drops key 5"));
  EXPECT_THAT(play.Pull(0, {4, 5, 6}, out, {1, 0, 2}).status(),
              wrong("names server 2 for key 6; there are 2"));
  EXPECT_THAT(play.PushPull(0, {4, 5, 6}, kOne, out, {-2, 0, 1}).status(),
              wrong("names server -2 for key 4"));
  EXPECT_THAT(play.Pull(0, {4, 5}, out, {1}).status(), wrong("names 1 servers for 2 keys"));
  EXPECT_THAT(play.Pull(0, {4, 4}, out, {1, 7}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("key 4 after key 4")));
  play.core.Flush();
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_THAT(play.Got(1), IsEmpty());
  // As for each push that is refused.
  EXPECT_THAT(play.core.Clock(0), wrong("drops key 5"));
  PHALANX_EXPECT_OK(play.Push(0, {4, 5, 6}, kOne, {1, 0, 1}).status());
  PHALANX_EXPECT_OK(play.core.Clock(0));
}

TEST(WorkerCore, ServersWithOtherTablesAreNamedByOpen) {
  Play play(2, {SpecOf("a")});
  play.core.OnServer(0, true, 0);
  play.core.OnServer(1, true, 0);
  play.Welcome(0, 0);
  const TableSpec other = SpecOf("a", 11);
  play.core.OnMessage(1, 0, Encode(Welcome{.channel = play.Hello(1), .tables = {{.spec = other}}}));
  ASSERT_TRUE(play.core.ready());
  EXPECT_THAT(play.core.Open("a"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("of server 0, \"a\", is not that of server 1")));
}

TEST(WorkerCore, ANextLifeBeginsAtTheLeastClockAndSendsNothingThatAServerHas) {
  TableSpec spec = SpecOf("a");
  spec.sync = Sync::kSsp;
  Play play(2, {spec}, /*life=*/3);
  play.core.OnServer(0, true, 0);
  play.core.OnServer(1, true, 0);
  play.Welcome(0, 0, {{.clock = 5, .push = 1, .piece = 0}});
  play.Welcome(1, 0, {{.clock = 4}});
  play.Got(0), play.Got(1);
  EXPECT_EQ(play.core.table(0).clock, 4u);
  // Keys 0 and 99 are on different servers.
  const std::vector<Key> keys = {0, 99};
  const Ticket first = *play.Push(0, keys, kOne);
  ASSERT_THAT(play.core.Clock(0), IsOk());
  const Ticket second = *play.Push(0, keys, kOne);
  const Ticket third = *play.Push(0, keys, kOne);
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 5.2.0 0+1"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 4.1.0 99+1",
                                       "clock 0 4; push 0 at 5.1.0 99+1; push 0 at 5.2.0 99+1"));
  play.Answer(1, 0, Done{.count = 3});
  EXPECT_THAT(play.core.TakeEnded(), ElementsAre(first, second));
  play.Answer(0, 0, Done{.count = 1});
  EXPECT_EQ(play.core.Take(third), std::nullopt);
  play.Answer(1, 0, Done{.count = 4});
  EXPECT_THAT(play.core.TakeEnded(), ElementsAre(third));
  // What server 0 had is sent to a next life of it that has lost it again.
  play.core.OnServer(0, true, 1);
  play.Welcome(0, 1, {{.clock = 4}});
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 1",
                                       "push 0 at 4.1.0 0+1; clock 0 4; push 0 at 5.1.0 0+1; "
                                       "push 0 at 5.2.0 0+1"));
}

// Rule 1: with kBsp and several servers.
TEST(WorkerCore, AClockEndsAtNoServerBeforeAllHaveItsPushes) {
  TableSpec ssp = SpecOf("b");
  ssp.sync = Sync::kSsp;
  Play play(2, {SpecOf("a"), ssp});
  play.Begin(2);
  const Ticket pushed = *play.Push(0, {0, 99}, kOne);
  ASSERT_THAT(play.core.Clock(0), IsOk());
  int64_t out = 0;
  const Ticket pulled = *play.Pull(0, {0}, &out);
  ASSERT_THAT(play.core.Clock(0), IsOk());
  // What another table calls does not wait.
  ASSERT_THAT(play.Push(1, {0}, kOne), IsOk());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 0+1", "mark 0 0; push 1 at 0.1.0 0+1"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 0.1.0 99+1", "mark 0 0"));
  play.Answer(0, 1, Done{.count = 3});
  play.core.TakeEnded();
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_EQ(play.core.WaitsFor(pulled), "server 1 (has not answered)");
  EXPECT_FALSE(play.core.idle());
  play.Answer(1, 1, Done{.count = 1});
  EXPECT_THAT(play.core.TakeEnded(), ElementsAre(pushed));
  EXPECT_THAT(play.Got(0), IsEmpty());
  play.Answer(1, 1, Done{.count = 2});
  EXPECT_THAT(play.Got(0), ElementsAre("clock 0 0; pull 0 at 1 0+1; mark 0 1"));
  EXPECT_THAT(play.Got(1), ElementsAre("clock 0 0; mark 0 1"));
  // The next one likewise; a mark that is lost with its server is sent again.
  play.Answer(0, 1, Done{.count = 5});
  play.core.OnServer(1, true, 2);
  play.Welcome(1, 2, {{.clock = 0, .push = 1, .piece = 0}});
  EXPECT_THAT(play.Got(1), ElementsAre("hello to 2", "mark 0 0; clock 0 0; mark 0 1"));
  play.Answer(1, 2, Done{.count = 2});
  EXPECT_THAT(play.Got(0), IsEmpty());
  // That it has the mark can also be seen when it welcomes the worker again.
  play.core.OnServer(1, true, 3);
  play.Welcome(1, 3, {{.clock = 1, .push = kAllPushes, .piece = 0}});
  EXPECT_THAT(play.Got(0), ElementsAre("clock 0 1"));
  EXPECT_THAT(play.Got(1), ElementsAre("hello to 3", "clock 0 1"));
}

// Rule 4.
TEST(WorkerCore, ANextLifeDoesNotRepeatAClockWhosePushesAllServersHave) {
  const Position mark = {.clock = 4, .push = kAllPushes};
  for (const int last : {0, 1, 2}) {
    Play play(3, {SpecOf("a")}, /*life=*/1);
    for (const int server : {0, 1, 2}) play.core.OnServer(server, true, 0);
    for (const int server : {0, 1, 2}) play.Got(server);
    for (const int next : {1, 2, 3}) {
      const int server = (last + next) % 3;
      play.Welcome(server, 0, {server == 1 ? Position{.clock = 5} : mark});
    }
    EXPECT_EQ(play.core.table(0).clock, 5u);
    EXPECT_THAT(play.Got(0), ElementsAre("clock 0 4"));
    EXPECT_THAT(play.Got(1), IsEmpty());
    EXPECT_THAT(play.Got(2), ElementsAre("clock 0 4"));
    play.Answer(0, 0, Done{.count = 1});
    EXPECT_FALSE(play.core.idle());
    // Its end is kept as any other.
    play.core.OnServer(2, true, 1);
    play.Welcome(2, 1, {mark});
    EXPECT_THAT(play.Got(2), ElementsAre("hello to 1", "clock 0 4"));
    play.Answer(2, 1, Done{.count = 1});
    EXPECT_TRUE(play.core.idle());
    ASSERT_THAT(play.Push(0, {0}, kOne), IsOk());
    EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 5.1.0 0+1"));
  }
  // One of them lacks a push, or no server has the end of the clock: it is repeated.
  for (const Position& other : {Position{.clock = 4, .push = 7}, Position{.clock = 4}, mark}) {
    Play play(2, {SpecOf("a")}, /*life=*/1);
    for (const int server : {0, 1}) play.core.OnServer(server, true, 0);
    play.Welcome(0, 0, {other == mark ? mark : Position{.clock = 5}});
    play.Welcome(1, 0, {other});
    EXPECT_EQ(play.core.table(0).clock, 4u);
  }
}

TEST(WorkerCore, PushesGoAtOnceOrWithWhatIsHeldBack) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  play.Push(0, {3}, kOne).IgnoreError();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 3+1"));
  play.Push(0, {4}, kOne).IgnoreError();
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_THAT(play.Got(0), IsEmpty());
  play.Answer(0, 1, Done{.count = 1});
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.2.0 4+1; clock 0 0"));
  int64_t out = 0;
  play.Pull(0, {4}, &out).IgnoreError();
  EXPECT_THAT(play.Got(0), IsEmpty());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 1 4+1"));
  // A pull can wait for long, so updates do not wait for it.
  play.Answer(0, 1, Done{.count = 3});
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_THAT(play.Got(0), ElementsAre("clock 0 1"));
  play.Push(0, {5}, kOne).IgnoreError();
  play.core.Probe();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 2.1.0 5+1", ""));
}

TEST(WorkerCore, WhatIsPulledLiesInTheOrderOfTheKeys) {
  TableSpec spec = SpecOf("a");
  spec.split = Split::kBlocks;
  spec.block = 1;
  Play play(2, {spec});
  play.Begin(2);
  const std::vector<Key> keys = {2, 3, 4, 5};
  std::vector<int64_t> out(4, -1);
  const Ticket ticket = *play.PushPull(0, keys, kOne, out.data());
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 list of 2; pull 0 at 0 list of 2"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 0.1.0 list of 2; pull 0 at 0 list of 2"));
  const Pull at_0 = play.last_pull[0];
  const Pull at_1 = play.last_pull[1];
  EXPECT_EQ(play.core.WaitsFor(ticket), "server 0 (has not answered), server 1 (has not answered)");
  play.Answer(0, 1, Values{ticket, at_1.piece, 0, Bytes({7, 7})});  // of the other server
  play.Answer(0, 1, Values{ticket, at_0.piece, 0, Bytes({20, 40})});
  play.Answer(0, 1, Values{ticket, at_0.piece, 0, Bytes({1, 1})});  // twice
  play.Answer(1, 1, Values{ticket, at_1.piece, 2, Bytes({30, 50})});
  EXPECT_THAT(out, ElementsAre(20, 30, 40, 50));
  EXPECT_THAT(play.core.TakeEnded(), IsEmpty());
  play.Answer(0, 1, Done{.count = 1});
  EXPECT_EQ(play.core.WaitsFor(ticket), "server 1 (has not answered)");
  play.Answer(1, 1, Done{.count = 1});
  EXPECT_THAT(play.core.TakeEnded(), ElementsAre(ticket));
  EXPECT_THAT(play.Taken(ticket), IsOk());
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kNotFound));
}

TEST(WorkerCore, AnswersOfAnotherLengthAreErrorsAndWriteNothing) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  int64_t out[2] = {5, 5};
  const Ticket ticket = *play.Pull(0, {1, 2}, out);
  play.Got(0);
  play.Answer(0, 1, Values{ticket, 0, 0, Bytes({1, 2, 3})});
  EXPECT_THAT(play.Taken(ticket),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("with 24 bytes, expected 16")));
  EXPECT_THAT(out, ElementsAre(5, 5));
}

TEST(WorkerCore, ACancelledPullIsNotWrittenToAndNotAskedAgain) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  int64_t out = 5;
  const Ticket ticket = *play.Pull(0, {1}, &out);
  play.core.Cancel(ticket);
  play.Answer(0, 1, Values{ticket, 0, 0, Bytes({1})});
  EXPECT_EQ(out, 5);
  EXPECT_THAT(play.core.TakeEnded(), ElementsAre(ticket));
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kCancelled));
  play.Got(0);
  play.core.OnLost(0, 1);
  play.Welcome(0, 1);
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 1"));
}

TEST(WorkerCore, AllThatAServerHasLostIsSentAgainInTheOrderOfTheCalls) {
  Play play(1, {SpecOf("a"), SpecOf("b", 0)});
  play.Begin(1);
  std::vector<Key> list(20);
  for (size_t i = 0; i < list.size(); ++i) list[i] = 2 * i;
  const std::vector<int64_t> values(20, 1);
  int64_t out = 0;
  const Ticket pull = *play.Pull(0, {1}, &out);
  play.core.Request(0, 5, "what").IgnoreError();
  play.Push(0, list, values.data()).IgnoreError();
  play.Push(1, {1}, kOne).IgnoreError();
  play.Push(0, list, values.data()).IgnoreError();
  play.core.Clock(0).IgnoreError();
  play.core.Clock(0).IgnoreError();
  play.core.Flush();
  EXPECT_THAT(play.Got(0),
              ElementsAre("pull 0 at 0 1+1", "request 5 what; push 0 at 0.1.0 list of 20",
                          "push 1 at 0.1.0 1+1; push 0 at 0.2.0 hash; clock 0 0; clock 0 1"));
  play.Answer(0, 1, Done{.count = 5});
  EXPECT_FALSE(play.core.idle());
  play.core.OnServer(0, false, 1);
  EXPECT_EQ(play.core.WaitsFor(pull), "server 0 (died in life 1)");
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2, {{.clock = 0, .push = 1}, {.clock = 0, .push = 1}});
  // The first list is not known to this life.
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 2",
                                       "pull 0 at 0 1+1; request 5 what; "
                                       "push 0 at 0.2.0 list of 20; clock 0 0; clock 0 1"));
}

TEST(WorkerCore, WhatIsSentToANextLifeIsAwaitedAgain) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const Ticket ticket = *play.Push(0, {1}, kOne);
  play.Answer(0, 1, Done{.count = 1});
  EXPECT_THAT(play.Taken(ticket), IsOk());
  EXPECT_TRUE(play.core.idle());
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2);
  EXPECT_FALSE(play.core.idle());
  play.Got(0);
  // It may be lost again.
  play.core.Probe();
  EXPECT_THAT(play.Got(0), ElementsAre(""));
  play.Answer(0, 2, Done{.count = 1});
  EXPECT_TRUE(play.core.idle());
}

TEST(WorkerCore, PushesThatWereFreedAndAreLostEndTheTable) {
  Play play(2, {SpecOf("a", 0), SpecOf("b")});
  play.Begin(2);
  const Ticket done = *play.Push(0, {1, 99}, kOne);
  play.Answer(1, 1, Done{.count = 1});
  int64_t out = 0;
  const Ticket pull = *play.Pull(0, {1}, &out);
  play.core.OnServer(1, true, 2);
  play.Welcome(1, 2);
  for (const Ticket ticket : {done, pull}) {
    EXPECT_THAT(
        play.Taken(ticket),
        StatusIs(absl::StatusCode::kDataLoss,
                 HasSubstr("table \"a\": server 1 has lost pushes: it has those up to clock "
                           "0, push 0.0, and those up to clock 0, push 1.0")));
  }
  EXPECT_THAT(play.Push(0, {1}, kOne), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(play.Push(1, {1}, kOne), IsOk());
}

TEST(WorkerCore, AHelloSaysWhatALifeBeforeHasHad) {
  Play play(2, {SpecOf("a"), SpecOf("b")});
  play.Begin(2);
  EXPECT_THAT(play.Had(0), IsEmpty());
  for (int i = 0; i < 3; ++i) ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  ASSERT_THAT(play.Push(1, {1}, kOne), IsOk());
  play.Answer(0, 1, Done{.count = 2});
  // The third one is none that its call has ended for, and server 1 has had nothing.
  play.core.OnServer(0, true, 2);
  EXPECT_THAT(play.Had(0), ElementsAre(Position{.push = 2}, Position()));
  // Nor has a life that dies before it has all again made less of it.
  play.Welcome(0, 2);
  play.core.OnServer(0, true, 3);
  EXPECT_THAT(play.Had(0), ElementsAre(Position{.push = 2}, Position()));
  play.core.OnServer(1, true, 2);
  EXPECT_THAT(play.Had(1), ElementsAre(Position(), Position()));
  // What is durable is there.
  play.Welcome(0, 3, {{.push = 2}}, {{.push = 2}});
  play.core.OnServer(0, true, 4);
  EXPECT_THAT(play.Had(0), ElementsAre(Position(), Position()));
}

// Others wait at the next life for what it has said.
TEST(WorkerCore, AWorkerWhoseTableFailsTakesBackWhatServersHaveHad) {
  Play play(2, {SpecOf("a"), SpecOf("b")});
  play.Begin(2);
  for (int i = 0; i < 2; ++i) ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  ASSERT_THAT(play.Push(1, {1}, kOne), IsOk());
  play.core.Flush();
  play.Answer(0, 1, Done{.count = 1});
  play.Answer(0, 1, Done{.count = 3});
  play.Answer(0, 1, Durable{.table = 0, .upto = {.push = 1}});
  play.core.OnServer(0, true, 2);
  EXPECT_THAT(play.Had(0), ElementsAre(Position{.push = 2}, Position{.push = 1}));
  play.Got(0);
  play.Welcome(0, 2);
  EXPECT_THAT(play.Push(0, {1}, kOne), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(play.Had(0), ElementsAre(Position(), Position{.push = 1}));
  // The other table goes on.
  play.Got(0);
  play.Welcome(0, 2);
  EXPECT_THAT(play.Got(0), ElementsAre("push 1 at 0.1.0 1+1"));
  EXPECT_THAT(play.Got(1), IsEmpty());
  // A failure that another server has caused.
  play.core.OnServer(0, true, 3);
  play.Welcome(0, 3);
  play.Got(0);
  play.Answer(1, 1, TableFailed{1, absl::AbortedError("gone")});
  EXPECT_THAT(play.Had(0), ElementsAre(Position(), Position()));
  EXPECT_THAT(play.Got(1), IsEmpty());
}

TEST(WorkerCore, AServerThatRefusesAPushEndsItAlone) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const Ticket first = *play.Push(0, {1}, kOne);
  const Ticket second = *play.Push(0, {2}, kOne);
  play.core.Flush();
  play.Answer(0, 1, Refused{first, absl::InvalidArgumentError("no")});
  play.Answer(0, 1, Done{.count = 2});
  EXPECT_THAT(play.Taken(first), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(play.Taken(second), IsOk());
  play.Answer(0, 1, TableFailed{0, absl::AbortedError("gone")});
  EXPECT_THAT(play.Push(0, {2}, kOne), StatusIs(absl::StatusCode::kAborted));
}

TEST(WorkerCore, APushWaitsForASnapshotWhenTooMuchIsKept) {
  TableSpec spec = SpecOf("a");
  spec.snapshot_bytes = 300;
  Play play(1, {spec});
  play.Begin(1);
  for (int i = 0; i < 3; ++i) ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  EXPECT_TRUE(play.core.must_wait(0));
  EXPECT_THAT(play.Push(0, {1}, kOne), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 1+1",
                                       "push 0 at 0.2.0 1+1; push 0 at 0.3.0 1+1; snapshot 0"));
  play.core.Probe();
  EXPECT_THAT(play.Got(0), ElementsAre("", "snapshot 0"));
  play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = 0, .push = 3}});
  EXPECT_FALSE(play.core.must_wait(0));
  EXPECT_TRUE(play.core.idle());
}

// The greatest limit is the least one, unless the parts have more.
TEST(WorkerCore, InProportionTheServersSayHowMuchIsKept) {
  TableSpec spec = SpecOf("a");
  spec.sync = Sync::kAsp;
  spec.snapshot_bytes = 0;
  spec.width = 1 << 14;
  std::vector<Key> keys(100);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<int64_t> values(keys.size() * spec.width, 1);
  Play play(2, {spec});
  play.Begin(2);
  const auto push = [&] { return play.Push(0, keys, values.data()).ok(); };
  int pushes = 0;
  for (; push(); ++pushes) play.Got(0);
  EXPECT_EQ(pushes, static_cast<int>(kLeastSnapshotBytes / (values.size() * sizeof(int64_t)) + 1));
  play.Answer(0, 1, Durable{.table = 0, .upto = {}, .keep = kLeastSnapshotBytes});
  EXPECT_TRUE(play.core.must_wait(0));
  play.Answer(1, 1, Durable{.table = 0, .upto = {}, .keep = uint64_t{65} << 20});
  EXPECT_FALSE(play.core.must_wait(0));
}

// Pushes that are two clocks ahead wait at the server for other workers, so they count here, though
// they are done.
TEST(WorkerCore, APushWaitsForOtherWorkersWithBspAndWithoutSnapshots) {
  for (const bool probed : {false, true}) {
    TableSpec spec = SpecOf("a", /*snapshot_every=*/0);
    spec.snapshot_bytes = 300;
    Play play(1, {spec});
    play.Begin(1);
    uint64_t taken = 0;
    const auto take = [&] {
      play.core.Flush();
      play.Answer(0, 1, Done{.count = ++taken});
    };
    const auto push = [&] {
      ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
      take();
    };
    for (int clock = 0; clock < 2; ++clock) {
      for (int i = 0; i < 10; ++i) push();
      EXPECT_FALSE(play.core.must_wait(0));
      ASSERT_THAT(play.core.Clock(0), IsOk());
      take();
    }
    for (int i = 0; i < 3; ++i) push();
    EXPECT_TRUE(play.core.must_wait(0));
    EXPECT_THAT(play.Push(0, {1}, kOne), StatusIs(absl::StatusCode::kResourceExhausted));
    // What the server says of the clock can be lost.
    EXPECT_FALSE(play.core.idle());
    play.Got(0);
    play.core.Probe();
    EXPECT_THAT(play.Got(0), ElementsAre(""));
    if (probed) {
      play.Answer(0, 1, MinClock{.table = 0, .clock = 1});
      EXPECT_FALSE(play.core.must_wait(0));
      EXPECT_THAT(play.Push(0, {1}, kOne), IsOk());
    } else {
      // The others can be waiting for it to leave.
      play.core.BeginLeave();
      EXPECT_TRUE(play.core.idle());
    }
  }
}

TEST(WorkerCore, NewsOfServersComeInAnyOrder) {
  Play play(1, {SpecOf("a")});
  // A message of a life is news of it.
  play.core.OnMessage(0, 5, Encode(Reset{}));
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 5", "hello to 5"));
  play.core.OnServer(0, true, 4);
  play.core.OnServer(0, false, 4);
  play.core.OnServer(0, true, 5);
  play.core.OnLost(0, 4);
  EXPECT_THAT(play.Got(0), IsEmpty());
  play.core.OnMessage(0, 5, Encode(Welcome{.channel = 1, .tables = {{.spec = SpecOf("a")}}}));
  EXPECT_FALSE(play.core.ready());
  play.core.OnMessage(0, 4, Encode(Welcome{.channel = 2, .tables = {{.spec = SpecOf("a")}}}));
  EXPECT_FALSE(play.core.ready());
  play.core.Probe();
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 5"));
  play.Welcome(0, 5);
  EXPECT_TRUE(play.core.ready());
  const Ticket ticket = *play.Push(0, {1}, kOne);
  // A second Welcome of the channel, and an answer of another one.
  play.Welcome(0, 5, {{.clock = 9}});
  play.core.OnMessage(0, 5, Encode(ServerBatch{1, {Done{.count = 1}}}));
  EXPECT_EQ(play.core.Take(ticket), std::nullopt);
  // It is dead for good.
  play.core.OnServer(0, false, 5);
  play.core.OnServer(0, true, 5);
  play.core.OnMessage(0, 5, Encode(ServerBatch{2, {Done{.count = 1}}}));
  EXPECT_EQ(play.core.Take(ticket), std::nullopt);
  play.core.OnMessage(0, 6, "x");
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kInternal));
}

TEST(WorkerCore, CallsWithWrongKeysAreRefusedAtOnce) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(play.Push(0, {1, 1}, kOne), StatusIs(invalid, HasSubstr("key 1 after key 1")));
  EXPECT_THAT(play.Push(0, {2, 1}, kOne), StatusIs(invalid, HasSubstr("key 1 after key 2")));
  EXPECT_THAT(play.Push(0, {100}, kOne), StatusIs(invalid, HasSubstr("the last one is 99")));
  EXPECT_THAT(play.Push(1, {1}, kOne), StatusIs(invalid, HasSubstr("there are 1 tables")));
  EXPECT_THAT(play.core.Request(0, 0, std::string(kMaxRequestBody + 1, 'x')), StatusIs(invalid));
  // The keys are not looked at.
  const absl::Span<const Key> many(reinterpret_cast<const Key*>(kOne), kMaxCallKeys + 1);
  EXPECT_THAT(play.Push(0, many, kOne), StatusIs(invalid, HasSubstr("4294967296 keys")));
  ASSERT_THAT(play.core.Clock(0), StatusIs(invalid));
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_THAT(play.Push(0, {2, 1}, kOne),
              StatusIs(invalid, HasSubstr("table \"a\" of worker 0 at clock 1: key 1 after")));
  play.Got(0);
  const Ticket none = *play.Push(0, {}, nullptr);
  EXPECT_THAT(play.Taken(none), IsOk());
  EXPECT_THAT(play.Got(0), IsEmpty());
}

TEST(WorkerCore, TheClockOfAPushThatWasRefusedDoesNotEnd) {
  TableSpec spec = SpecOf("a");
  spec.snapshot_bytes = 300;
  Play play(1, {spec, SpecOf("b")});
  play.Begin(1);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(play.Push(0, {2, 1}, kOne), StatusIs(invalid));
  EXPECT_THAT(play.Push(0, {100}, kOne), StatusIs(invalid));
  ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  // Another table's clock, and a pull that was refused.
  int64_t out[2];
  EXPECT_THAT(play.Pull(1, {2, 1}, out), StatusIs(invalid));
  EXPECT_THAT(play.core.Clock(1), IsOk());
  // The first error, once.
  EXPECT_THAT(play.core.Clock(0), StatusIs(invalid, HasSubstr("key 1 after key 2")));
  EXPECT_EQ(play.core.table(0).clock, 0u);
  const Ticket ticket = *play.Push(0, {2}, kOne);
  play.core.Flush();
  // One that the server refuses, and one that the caller does.
  play.Answer(0, 1, Refused{ticket, absl::AbortedError("no")});
  play.core.OnPushRefused(0, absl::DeadlineExceededError("no room"));
  EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kAborted, HasSubstr("refused: no")));
  // A push that has to wait is none that was refused.
  while (!play.core.must_wait(0)) ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  EXPECT_THAT(play.Push(0, {1}, kOne), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(play.core.Clock(0), IsOk());
  EXPECT_EQ(play.core.table(0).clock, 1u);
}

TEST(WorkerCore, RequestsAreAnsweredOnceAlsoBeforeTheTablesAreThere) {
  Play play(2, {SpecOf("a")});
  const Ticket ticket = *play.core.Request(1, -3, "body");
  play.core.OnServer(1, true, 1);
  play.Welcome(1, 1);
  EXPECT_THAT(play.Got(1), ElementsAre("hello to 1", "request -3 body"));
  EXPECT_FALSE(play.core.TakeAnswer(ticket).has_value());
  play.Answer(1, 1, Response{ticket, 4, "answer"});
  play.Answer(1, 1, Response{ticket, 5, "again"});
  const std::optional<WorkerCore::Answer> answer = play.core.TakeAnswer(ticket);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->body, "answer");
  EXPECT_THAT(play.Taken(ticket), IsOk());
}

TEST(WorkerCore, ARequestWaitsForTheNextLifeOfItsServer) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const Ticket ticket = *play.core.Request(0, 1, "asked");
  EXPECT_THAT(play.Got(0), ElementsAre("request 1 asked"));
  play.core.OnServer(0, false, 1);
  EXPECT_EQ(play.core.Take(ticket), std::nullopt);
  EXPECT_EQ(play.core.WaitsFor(ticket), "server 0 (died in life 1)");
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2);
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 2", "request 1 asked"));
  play.Answer(0, 2, Response{ticket, 2, "answer"});
  EXPECT_EQ(play.core.TakeAnswer(ticket)->head, 2);
  EXPECT_THAT(play.Taken(ticket), IsOk());
}

TEST(WorkerCore, ANextLifeCanMakeNewPushesInItsClock) {
  TableSpec spec = SpecOf("a");
  spec.sync = Sync::kAsp;
  Play play(2, {spec}, /*life=*/1);
  play.core.OnServer(0, true, 0);
  play.core.OnServer(1, true, 0);
  const std::vector<Position> at = {{.clock = 0, .push = 7}};
  play.Welcome(0, 0, at, at);
  play.Welcome(1, 0, {{.clock = 0, .push = 5}});
  play.Got(0);
  play.Got(1);
  // The first push of an earlier life.
  EXPECT_THAT(play.Taken(*play.Push(0, {1}, kOne)), IsOk());
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_EQ(play.core.SkipPushed(0), 6u);
  EXPECT_EQ(play.core.SkipPushed(0), 0u);
  ASSERT_THAT(play.Push(0, {1, 99}, kOne), IsOk());
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.8.0 1+1"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 0.8.0 99+1"));
  // Of another clock it has none.
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_EQ(play.core.SkipPushed(0), 0u);
}

TEST(WorkerCore, NewsOfServersBeyondTheLastOneAreIgnored) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  for (const int server : {1, 7, -1}) {
    play.core.OnServer(server, true, 1);
    play.core.OnMessage(server, 1, Encode(Reset{}));
    play.core.OnLost(server, 1);
  }
  EXPECT_TRUE(play.core.TakeSends().empty());
}

TEST(WorkerCore, AWorkerLeavesWhenNothingOfItCanBeLost) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  EXPECT_EQ(play.core.Pending(), "1 calls; server 0 (has not answered) for table \"a\"");
  ASSERT_THAT(play.core.Clock(0), IsOk());
  play.Answer(0, 1, Done{.count = 1});
  EXPECT_FALSE(play.core.idle());
  play.Answer(0, 1, Done{.count = 2});
  EXPECT_TRUE(play.core.idle());
  play.Got(0);
  play.core.BeginLeave();
  EXPECT_FALSE(play.core.idle());
  EXPECT_THAT(play.Got(0), ElementsAre("snapshot 0"));
  play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = 0, .push = 1}});
  EXPECT_THAT(play.Got(0), ElementsAre("snapshot 0"));
  play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = 1}});
  EXPECT_TRUE(play.core.idle());
  EXPECT_EQ(play.core.Pending(), "nothing");
}

TEST(WorkerCore, ManyCallsLeaveNothingBehind) {
  Play play(1, {SpecOf("a"), SpecOf("b", 0)});
  play.Begin(1);
  std::vector<int64_t> out(1);
  uint64_t updates = 0;
  for (uint64_t i = 1; i <= 20'000; ++i) {
    for (uint32_t table = 0; table < 2; ++table) {
      const Ticket ticket = *play.PushPull(table, {i % 100}, kOne, out.data());
      ASSERT_THAT(play.core.Clock(table), IsOk());
      play.core.Flush();
      play.Answer(0, 1, Values{ticket, 0, i, Bytes({1})});
      play.Answer(0, 1, Done{.count = updates += 2});
      ASSERT_THAT(play.Taken(ticket), IsOk());
    }
    play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = i}});
    play.Got(0);
    play.core.TakeEnded();
    ASSERT_TRUE(play.core.idle());
  }
  // Clocks alone are one entry.
  for (int i = 0; i < 20'000; ++i) ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_FALSE(play.core.must_wait(0));
  EXPECT_EQ(play.core.table(0).clock, 40'000u);
}

}  // namespace
}  // namespace phalanx::ps::internal
