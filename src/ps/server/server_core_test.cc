#include "src/ps/server/server_core.h"

#include <stdexcept>
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

using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Inbox;
using ::testing::IsEmpty;
using testing::KeysOf;
using testing::OneServer;
using ::testing::SizeIs;
using testing::Spec;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// ---- pushes, clocks, pulls

TEST(ServerCore, WelcomesAWorkerWithItsTables) {
  TableSpec other = Spec(Sync::kAsp);
  other.name = "embeddings";
  OneServer server(1, {Spec(), other});
  server.SayHello(0);
  EXPECT_THAT(server.inbox[0].welcomes, IsEmpty());
  server.core.Begin();
  server.Run();
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(1));
  EXPECT_EQ(server.inbox[0].welcomes[0],
            (Welcome{.channel = 1, .tables = {{.spec = Spec()}, {.spec = other}}}));
}

TEST(ServerCore, BspShowsPushesWhenTheClockHasTurned) {
  OneServer server(2, {Spec()});
  server.Begin();
  server.Push(0, 0, 1, 3, 100);
  server.Pull(0, 1, 0, {3, 4});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(0, 0));
  server.Clock(0, 0);
  server.Take(0);
  server.Pull(0, 2, 1, {3, 4});
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.Push(1, 0, 1, 4, 7);
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("values 2.0"));
  EXPECT_THAT(server.Got(0, 2), ElementsAre(100, 7));
  EXPECT_EQ(server.core.waiting(), 0);
}

TEST(ServerCore, BspAddsInTheOrderOfWorkersWhateverTheArrival) {
  for (const std::vector<int>& order :
       std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    OneServer server(3, {Spec()});
    server.Begin();
    const std::vector<float> pushed = {1e8F, 1, -1e8F};
    for (const int worker : order) server.Push(worker, 0, 1, 0, pushed[worker]);
    for (const int worker : order) server.Clock(worker, 0);
    server.Pull(0, 1, 1, {0});
    EXPECT_THAT(server.Got(0, 1), ElementsAre(1e8F + 1 - 1e8F));
  }
}

TEST(ServerCore, SspWaitsForTheSlowestWorker) {
  TableSpec spec = Spec(Sync::kSsp);
  spec.staleness = 2;
  OneServer server(2, {spec});
  server.Begin();
  for (uint64_t clock = 0; clock < 3; ++clock) {
    server.Push(0, clock, 1, 0, 1);
    server.Clock(0, clock);
  }
  server.Take(0);
  server.Pull(0, 1, 3, {0});
  EXPECT_THAT(server.Take(0), IsEmpty());
  EXPECT_THAT(server.core.Describe(),
              AllOf(HasSubstr("table \"w\": ssp, clock 0"),
                    HasSubstr("worker 0: clock 3, 1 pulls of clock 3 on wait for worker 1")));
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("values 1.0"));
  EXPECT_THAT(server.Got(0, 1), ElementsAre(3));
}

TEST(ServerCore, AspAnswersAtOnce) {
  OneServer server(2, {Spec(Sync::kAsp)});
  server.Begin();
  server.Push(0, 0, 1, 0, 5);
  server.Pull(1, 1, 0, {0});
  EXPECT_THAT(server.Got(1, 1), ElementsAre(5));
}

TEST(ServerCore, ABatchIsAcknowledgedOnce) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  const int before = server.inbox[0].messages;
  const std::string value = Bytes({1});
  std::vector<WorkerEntry> entries;
  for (uint32_t i = 1; i <= 100; ++i) entries.push_back(OneServer::PushOf(0, i, 0, value, i));
  entries.push_back(ClockEnd{.table = 0, .clock = 0});
  server.Batch(0, entries);
  EXPECT_EQ(server.inbox[0].messages, before + 1);
  EXPECT_THAT(server.Take(0), ElementsAre("done 101", "min 1"));
  // Sent again, they are taken, and do not count.
  server.Batch(0, entries);
  EXPECT_THAT(server.Take(0), ElementsAre("done 202"));
  server.Pull(0, 1, 1, {0});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(100));
}

TEST(ServerCore, HalfFloatsTravelBothWays) {
  for (const DType wire : {DType::kF16, DType::kBf16}) {
    TableSpec spec = Spec();
    spec.wire = wire;
    spec.width = 3;
    OneServer server(1, {spec});
    server.Begin();
    const std::vector<float> row = {1.5F, -2, 0.25F};
    std::string pushed(6, '\0');
    Convert(DType::kF32, wire, row.data(), pushed.data(), 3);
    server.Batch(0, {OneServer::PushOf(0, 1, 2, pushed), ClockEnd{.table = 0, .clock = 0},
                     Pull{.ticket = 1, .clock = 1, .keys = KeysOf({2})}});
    EXPECT_EQ(server.inbox[0].values.at(1), pushed);
  }
}

TEST(ServerCore, ListsOfKeysComeAgainAsHashes) {
  TableSpec spec = Spec(Sync::kAsp);
  spec.keys = 1000;
  OneServer server(1, {spec});
  server.Begin();
  std::vector<Key> keys;
  for (Key key = 0; key < 100; ++key) keys.push_back(key * 3);
  const std::string values = Bytes(std::vector<float>(100, 2));
  KeyLists lists;
  for (uint32_t i = 1; i <= 3; ++i) {
    server.Batch(0, {Push{.at = {.clock = 0, .push = i, .piece = 0},
                          .keys = ToWire(0, keys, lists),
                          .values = values}});
  }
  server.Batch(0, {Pull{.ticket = 1, .clock = 0, .keys = ToWire(0, keys, lists)}});
  EXPECT_EQ(server.Got(0, 1), std::vector<float>(100, 6));
  // The next channel begins without lists.
  server.SayHello(0);
  server.Batch(0, {Pull{.ticket = 2, .clock = 0, .keys = ToWire(0, keys, lists)}});
  EXPECT_THAT(server.inbox[0].errors, ElementsAre(StatusIs(kInvalid, HasSubstr("not there"))));
}

TEST(ServerCore, AnswersAreCutIntoMessages) {
  TableSpec spec = Spec(Sync::kAsp);
  spec.keys = 1 << 20;
  OneServer server(1, {spec});
  server.Begin();
  const int before = server.inbox[0].messages;
  const uint64_t keys = kBatchBytes / sizeof(float);
  std::vector<WorkerEntry> pulls;
  for (uint32_t piece = 0; piece < 5; ++piece) {
    pulls.push_back(
        Pull{.ticket = 1,
             .piece = piece,
             .keys = {.form = WireKeys::Form::kRun, .begin = piece * keys, .count = keys}});
  }
  server.Batch(0, pulls);
  EXPECT_EQ(server.inbox[0].messages, before + 5);
  EXPECT_THAT(server.Take(0),
              ElementsAre("values 1.0", "values 1.1", "values 1.2", "values 1.3", "values 1.4"));
}

TEST(ServerCore, RequestsAreAskedAndAnswered) {
  OneServer server(1, {Spec()});
  server.Begin();
  server.Batch(0, {Request{.ticket = 4, .head = 7, .body = "question"},
                   Request{.ticket = 5, .head = 8, .body = ""}});
  ASSERT_THAT(server.asked, SizeIs(2));
  EXPECT_EQ(server.asked[0].body, "question");
  EXPECT_EQ(server.asked[0].head, 7);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.core.Respond(server.asked[0], 9, "answer");
  server.core.Refuse(server.asked[1], absl::NotFoundError("no"));
  server.Run();
  EXPECT_THAT(server.Take(0), ElementsAre("response 4 9 answer", "refused 5"));
  server.core.Respond(server.asked[0], 9, std::string(kMaxBodyBytes + 1, 'x'));
  server.Run();
  EXPECT_THAT(server.inbox[0].errors.back(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the greatest has")));
  // The life that has asked is gone.
  server.NextLife(0);
  server.core.Respond(server.asked[0], 9, "answer");
  server.Run();
  EXPECT_THAT(server.Take(0), IsEmpty());
}

// ---- bad input

TEST(ServerCore, RefusalsNameTheTableTheKeyTheClockAndTheWorker) {
  OneServer server(2, {Spec()});
  server.Begin();
  const std::string one = Bytes({1});
  const std::string two = Bytes({1, 2});
  struct Case {
    WorkerEntry entry;
    absl::StatusCode code;
    std::vector<std::string> texts;
  };
  const Position at{.clock = 0, .push = 1, .piece = 0};
  const std::vector<Case> cases = {
      {Push{.ticket = 1, .at = at, .keys = KeysOf({5, 3}), .values = two},
       kInvalid,
       {"table \"w\"", "key 3 stands behind key 5", "clock 0", "worker 1"}},
      {Push{.ticket = 1, .at = at, .keys = KeysOf({5, 5}), .values = two},
       kInvalid,
       {"table \"w\"", "key 5 is there twice", "clock 0", "worker 1"}},
      {Push{.ticket = 1, .at = at, .keys = KeysOf({8}), .values = one},
       kInvalid,
       {"table \"w\"", "8", "clock 0", "worker 1"}},
      {Push{.ticket = 1, .at = at, .keys = KeysOf({2}), .values = two},
       kInvalid,
       {"table \"w\"", "values of 8 bytes; 1 keys of 4 bytes need 4", "worker 1"}},
      {Push{.ticket = 1, .at = at, .keys = KeysOf({2, 3}), .values = one},
       kInvalid,
       {"table \"w\"", "2 keys, at most 1 expected", "worker 1"}},
      {Push{.ticket = 1,
            .at = {.clock = 3, .push = 1, .piece = 0},
            .keys = KeysOf({2}),
            .values = one},
       kInvalid,
       {"table \"w\"", "clock 3", "worker 1", "clock 0"}},
      {Push{.ticket = 1, .table = 9, .at = at, .keys = KeysOf({2}), .values = one},
       absl::StatusCode::kNotFound,
       {"no table 9", "it has 1"}},
      {Pull{.ticket = 1, .clock = 0, .keys = KeysOf({7, 8})},
       kInvalid,
       {"table \"w\"", "8", "clock 0", "worker 1"}},
      {Pull{.ticket = 1, .clock = 2, .keys = KeysOf({7})},
       kInvalid,
       {"table \"w\"", "clock 2", "worker 1", "clock 0"}},
      {Pull{.ticket = 1, .table = 9, .keys = KeysOf({7})},
       absl::StatusCode::kNotFound,
       {"no table 9"}},
  };
  for (const Case& one_case : cases) {
    server.inbox[1].errors.clear();
    server.Batch(1, {one_case.entry});
    ASSERT_THAT(server.inbox[1].errors, SizeIs(1));
    const absl::Status& error = server.inbox[1].errors[0];
    EXPECT_EQ(error.code(), one_case.code) << error;
    for (const std::string& text : one_case.texts) {
      EXPECT_THAT(std::string(error.message()), HasSubstr(text));
    }
    EXPECT_EQ(server.Take(1)[0], "refused 1");
  }
  // The channel goes on, and nothing of these counts.
  server.Batch(1, {Push{.ticket = 1, .at = at, .keys = KeysOf({2}), .values = one},
                   ClockEnd{.table = 0, .clock = 0}});
  server.Clock(0, 0);
  server.Pull(0, 1, 1, {2, 3, 5});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(1, 0, 0));
}

TEST(ServerCore, ARefusalWithoutATicketFailsTheTableForThisWorker) {
  OneServer server(2, {Spec()});
  server.Begin();
  server.Clock(0, 4);
  EXPECT_THAT(server.Take(0), ElementsAre("failed 0", "done 1"));
  server.Push(0, 0, 1, 100, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("failed 0", "done 2"));
  EXPECT_THAT(server.Take(1), IsEmpty());
}

TEST(ServerCore, AMessageThatCannotBeDecodedClosesTheChannel) {
  TableSpec other = Spec();
  other.name = "v";
  OneServer server(2, {Spec(), other});
  server.Begin();
  server.Pass(0, "nonsense");
  EXPECT_THAT(server.Take(0), ElementsAre("failed 0", "failed 1"));
  EXPECT_THAT(server.inbox[0].errors[0], StatusIs(kInvalid, HasSubstr("worker 0")));
  server.Push(0, 0, 1, 0, 1);
  EXPECT_THAT(server.Take(0), IsEmpty());
  EXPECT_THAT(server.Take(1), IsEmpty());
  server.SayHello(0);
  server.Push(0, 0, 1, 0, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("done 1"));
}

TEST(ServerCore, AClockOfAnUnknownTableClosesTheChannel) {
  OneServer server(1, {Spec()});
  server.Begin();
  server.Batch(0, {ClockEnd{.table = 3, .clock = 0}, ClockEnd{.table = 0, .clock = 0}});
  EXPECT_THAT(server.Take(0), ElementsAre("failed 0"));
  EXPECT_EQ(server.core.sync(0).min(), 0);
}

TEST(ServerCore, RandomBytesHarmNobody) {
  OneServer server(2, {Spec(Sync::kAsp)});
  server.Begin();
  Random random(7);
  const std::string value = Bytes({1});
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = Encode(WorkerBatch{
        .channel = server.channel[0],
        .number = server.batches[0]++,
        .entries = {OneServer::PushOf(0, 1 + round, 2, value), ClockEnd{.table = 0, .clock = 0},
                    Pull{.ticket = 1, .clock = 0, .keys = KeysOf({1})},
                    Request{.ticket = 2, .body = "x"}, AskSnapshot{.table = 0}}});
    for (uint64_t i = 0; i <= random.Below(3); ++i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    server.Pass(0, bytes);
    if (random.Chance(0.2)) server.SayHello(0);
  }
  server.Push(1, 0, 1, 7, 3);
  server.Pull(1, 1, 0, {7});
  EXPECT_THAT(server.Got(1, 1), SizeIs(1));
}

TEST(ServerCore, TablesAreChecked) {
  ServerCore core({.rank = 0, .servers = 1, .workers = 1});
  PHALANX_EXPECT_OK(core.AddTable(Spec()));
  EXPECT_THAT(core.AddTable(Spec()), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("w")));
  EXPECT_THAT(core.AddTable(TableSpec{}), StatusIs(kInvalid));
  TableSpec own = Spec();
  own.name = "own";
  own.update = Update::kOwn;
  EXPECT_THAT(core.AddTable(own), StatusIs(kInvalid, HasSubstr("there is no function")));
  TableSpec sum = Spec();
  sum.name = "sum";
  EXPECT_THAT(
      core.AddTable(sum, [](const From&, absl::Span<const Key>, const void*,
                            absl::Span<const uint32_t>, Part&) { return absl::OkStatus(); }),
      StatusIs(kInvalid, HasSubstr("there is a function")));
  for (uint32_t i = 1; i < kMaxTables; ++i) {
    TableSpec spec = Spec();
    spec.name = absl::StrCat("t", i);
    PHALANX_ASSERT_OK(core.AddTable(spec));
  }
  sum.name = "one too many";
  EXPECT_THAT(core.AddTable(sum), StatusIs(absl::StatusCode::kResourceExhausted));
  // The welcome with all of them is one message.
  core.OnMessage(0, 0, Encode(Hello{.channel = 1}));
  core.Begin();
  const ServerCore::Effects effects = core.TakeEffects();
  ASSERT_THAT(effects.sends, SizeIs(1));
  EXPECT_LE(effects.sends[0].bytes.size(), size_t{1} << 20);
}

// It keeps what waits here, and its limit is the one that counts: no push is refused, and it is
// shown when the clock has turned.
TEST(ServerCore, AWorkerAheadIsShownTheLeastClockWithoutSnapshots) {
  TableSpec spec = Spec();
  spec.snapshot_bytes = 1;
  OneServer server(2, {spec});
  server.Begin();
  for (uint64_t clock = 0; clock < 3; ++clock) {
    for (uint32_t i = 1; i <= 20; ++i) server.Push(0, clock, i, 0, 1);
    if (clock < 2) server.Clock(0, clock);
  }
  EXPECT_THAT(server.inbox[0].errors, IsEmpty());
  server.Take(0);
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), ElementsAre("min 1"));
  EXPECT_EQ(server.core.waiting(), 40);
  // Not ahead any more: it keeps nothing that it could wait for.
  server.Clock(1, 1);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.Pull(0, 1, 2, {0});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(40));
}

TEST(ServerCore, PullsThatWaitAreBounded) {
  OneServer server(2, {Spec()});
  server.Begin();
  server.Clock(0, 0);
  std::vector<WorkerEntry> pulls;
  for (uint64_t ticket = 1; ticket <= 1024; ++ticket) {
    pulls.push_back(Pull{.ticket = ticket, .clock = 1, .keys = KeysOf({1})});
  }
  for (uint32_t i = 0; i < kMaxParkedPulls / 1024; ++i) server.Batch(0, pulls);
  EXPECT_THAT(server.inbox[0].errors, IsEmpty());
  server.Pull(0, 1, 1, {1});
  EXPECT_THAT(server.inbox[0].errors, ElementsAre(StatusIs(absl::StatusCode::kResourceExhausted,
                                                           HasSubstr("65536 pulls"))));
  EXPECT_EQ(server.core.waiting(), kMaxParkedPulls);
  server.Clock(1, 0);
  EXPECT_EQ(server.core.waiting(), 0);
}

// ---- lives and channels

TEST(ServerCore, MessagesOfOlderLivesAndChannelsAreIgnored) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  const std::string value = Bytes({1});
  const std::string old_channel =
      Encode(WorkerBatch{.channel = 1, .entries = {OneServer::PushOf(0, 1, 0, value)}});
  server.SayHello(0);
  server.Pass(0, old_channel);
  // An older Hello does not close the newer channel.
  server.Pass(0, Encode(Hello{.channel = 1}));
  EXPECT_THAT(server.inbox[0].welcomes, SizeIs(2));
  server.NextLife(0);
  server.core.OnMessage(0, 0, old_channel);
  server.core.OnMessage(0, 0, Encode(Hello{.channel = 9}));
  server.Run();
  server.core.OnMessage(-1, 0, old_channel);
  server.core.OnMessage(1, 0, old_channel);
  server.Pull(0, 1, 0, {0});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(0));
}

TEST(ServerCore, MessagesOfALifeThatHasEndedAreIgnored) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  server.Member(0, MemberState::kDied);
  server.Push(0, 0, 1, 0, 1);
  server.SayHello(0);
  EXPECT_THAT(server.inbox[0].welcomes, SizeIs(1));
  server.NextLife(0);
  server.Pull(0, 1, 0, {0});
  EXPECT_THAT(server.Got(0, 1), ElementsAre(0));
}

TEST(ServerCore, TheNextLifeOfAWorkerGoesOnFromItsPosition) {
  OneServer server(2, {Spec()});
  server.Begin();
  server.Push(0, 0, 1, 0, 5);
  server.Clock(0, 0);
  server.Push(0, 1, 1, 0, 6);
  server.Push(0, 1, 2, 0, 7);
  server.Pull(0, 1, 1, {0});
  EXPECT_EQ(server.core.waiting(), 4);
  server.Member(0, MemberState::kDied);
  // The pull is forgotten; pushes count.
  EXPECT_EQ(server.core.waiting(), 3);
  server.NextLife(0);
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(1));
  const Welcome::Table& table = server.inbox[0].welcomes[0].tables[0];
  EXPECT_EQ(table.at, (Position{.clock = 1, .push = 2, .piece = 0}));
  EXPECT_EQ(table.clock, 1);
  EXPECT_EQ(table.min_clock, 0);
  // It makes its clock again: what was there is ignored.
  for (uint32_t i = 1; i <= 3; ++i) server.Push(0, 1, i, 0, 8);
  server.Clock(0, 1);
  server.Clock(1, 0);
  server.Clock(1, 1);
  server.Pull(1, 1, 2, {0});
  EXPECT_THAT(server.Got(1, 1), ElementsAre(5 + 6 + 7 + 8));
}

TEST(ServerCore, AMessageOfANewLifeBeginsItBeforeItIsReported) {
  TableSpec spec = Spec();
  spec.on_loss = OnLoss::kFail;
  spec.name = "fails";
  OneServer server(2, {Spec(Sync::kAsp), spec});
  server.Begin();
  ++server.life[0];
  server.channel[0] = 0;
  server.inbox[0] = Inbox();
  server.SayHello(0);
  EXPECT_THAT(server.inbox[0].welcomes, SizeIs(1));
  // Nobody has reported the death of life 0, but it is one.
  EXPECT_THAT(server.Take(1), ElementsAre("failed 1"));
  server.core.OnMember(0, MemberState::kDied, 0);
  server.Run();
  server.Push(0, 0, 1, 0, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("failed 1", "done 1"));
}

TEST(ServerCore, AChannelThatWasLostIsReset) {
  OneServer server(2, {Spec()});
  server.Begin();
  server.Clock(0, 0);
  server.Pull(0, 1, 1, {0});
  server.core.OnLost(0, 0);
  server.core.OnLost(0, 5);
  server.core.OnLost(7, 0);
  server.Run();
  EXPECT_THAT(server.Take(0), ElementsAre("done 1", "reset"));
  server.Pull(0, 2, 1, {0});
  server.Clock(1, 0);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.SayHello(0);
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(2));
  EXPECT_EQ(server.inbox[0].welcomes[1].channel, 2);
  EXPECT_EQ(server.inbox[0].welcomes[1].tables[0].clock, 1);
  server.Pull(0, 2, 1, {0});
  EXPECT_THAT(server.Take(0), ElementsAre("values 2.0"));
}

TEST(ServerCore, AGapInTheBatchesOfAChannelClosesIt) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  server.Push(0, 0, 1, 0, 1);
  ++server.batches[0];
  server.Push(0, 0, 3, 0, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("done 1", "reset"));
  // What follows does not count; a question shows that the worker has not had the Reset.
  server.Push(0, 0, 4, 0, 1);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.Batch(0, {});
  EXPECT_THAT(server.Take(0), ElementsAre("reset"));
  server.SayHello(0);
  EXPECT_EQ(server.inbox[0].welcomes[1].tables[0].at, (Position{.clock = 0, .push = 1}));
}

TEST(ServerCore, AQuestionIsAnsweredWithDone) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  server.Batch(0, {});
  server.Push(0, 0, 1, 0, 1);
  server.Batch(0, {});
  EXPECT_THAT(server.Take(0), ElementsAre("done 0", "done 1", "done 1"));
}

TEST(ServerCore, TheSameHelloIsWelcomedAgain) {
  OneServer server(1, {Spec(Sync::kAsp)});
  server.Begin();
  // The worker says it again if it has had no Welcome.
  server.Pass(0, Encode(Hello{.channel = 1}));
  ASSERT_THAT(server.inbox[0].welcomes, SizeIs(2));
  EXPECT_EQ(server.inbox[0].welcomes[1].channel, 1);
  server.Push(0, 0, 1, 0, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("done 1"));
}

TEST(ServerCore, WithDropOthersGoOnWithoutADeadWorker) {
  TableSpec spec = Spec();
  spec.on_loss = OnLoss::kDrop;
  OneServer server(2, {spec});
  server.Begin();
  for (uint64_t clock = 0; clock < 5; ++clock) {
    server.Push(0, clock, 1, 0, 1);
    server.Clock(0, clock);
  }
  server.Pull(0, 1, 5, {0, 1});
  server.Push(1, 0, 1, 1, 100);
  server.Take(0);
  server.Member(1, MemberState::kDied);
  EXPECT_THAT(server.Take(0), ElementsAre("values 1.0"));
  // The push of a clock that it had not ended is dropped.
  EXPECT_THAT(server.Got(0, 1), ElementsAre(5, 0));
  EXPECT_THAT(server.core.Describe(), HasSubstr("worker 1: clock 0, not counted"));
  server.NextLife(1);
  EXPECT_EQ(server.inbox[1].welcomes[0].tables[0].clock, 5);
  server.Push(1, 5, 1, 1, 7);
  server.Clock(0, 5);
  EXPECT_EQ(server.core.sync(0).min(), 5);
  server.Clock(1, 5);
  server.Pull(0, 2, 6, {0, 1});
  EXPECT_THAT(server.Got(0, 2), ElementsAre(5, 7));
}

TEST(ServerCore, WithFailADeathEndsTheTableForAll) {
  TableSpec spec = Spec();
  spec.on_loss = OnLoss::kFail;
  OneServer server(3, {spec});
  server.Begin();
  server.Clock(0, 0);
  server.Pull(0, 1, 1, {0});
  server.Take(0);
  server.Member(1, MemberState::kDied);
  EXPECT_THAT(server.Take(0), ElementsAre("failed 0"));
  EXPECT_THAT(server.inbox[0].errors[0],
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("table \"w\": worker 1 died in life 0 at clock 0")));
  EXPECT_THAT(server.Take(2), ElementsAre("failed 0"));
  EXPECT_EQ(server.core.waiting(), 0);
  server.NextLife(1);
  EXPECT_THAT(server.inbox[1].welcomes, SizeIs(1));
  EXPECT_THAT(server.Take(1), ElementsAre("failed 0"));
  server.Pull(1, 4, 0, {0});
  EXPECT_THAT(server.Take(1), ElementsAre("refused 4"));
}

TEST(ServerCore, WorkersThatLeaveAreNotWaitedFor) {
  OneServer server(3, {Spec()});
  server.Begin();
  server.Clock(0, 0);
  server.Pull(0, 1, 1, {0});
  server.Take(0);
  server.Member(1, MemberState::kLeft);
  EXPECT_THAT(server.Take(0), IsEmpty());
  server.Member(2, MemberState::kLeft);
  EXPECT_THAT(server.Take(0), ElementsAre("values 1.0"));
  EXPECT_FALSE(server.core.done());
  server.Member(0, MemberState::kLeft);
  EXPECT_TRUE(server.core.done());
}

TEST(ServerCore, OwnUpdatesThatFailOrThrowEndTheTable) {
  for (const Sync sync : {Sync::kBsp, Sync::kAsp}) {
    for (const bool throws : {false, true}) {
      TableSpec spec = Spec(sync);
      spec.update = Update::kOwn;
      OneServer server(2, {spec},
                       [throws](const From&, absl::Span<const Key>, const void*,
                                absl::Span<const uint32_t>, Part&) {
                         if (throws) throw std::runtime_error("its cause");
                         return absl::AbortedError("its cause");
                       });
      server.Begin();
      server.Push(0, 0, 1, 0, 1);
      server.Clock(0, 0);
      server.Clock(1, 0);
      server.Take(0);
      EXPECT_THAT(server.Take(1), ::testing::Contains("failed 0"));
      EXPECT_THAT(
          server.inbox[1].errors[0],
          StatusIs(absl::StatusCode::kInternal,
                   AllOf(HasSubstr("table \"w\""), HasSubstr("its cause"), HasSubstr("clock 0"))));
      server.SayHello(0);
      EXPECT_THAT(server.Take(0), ElementsAre("failed 0"));
      EXPECT_THAT(server.core.Describe(), HasSubstr("failed: INTERNAL"));
    }
  }
}

// ---- memory

TEST(ServerCore, FinishedCallsLeaveNothingBehind) {
  for (const Sync sync : {Sync::kBsp, Sync::kSsp, Sync::kAsp}) {
    OneServer server(2, {Spec(sync)});
    server.Begin();
    const std::string value = Bytes({1});
    const uint64_t bytes = server.core.Describe().size();
    uint64_t ticket = 0;
    for (uint64_t clock = 0; clock < 1000; ++clock) {
      for (const int worker : {0, 1}) {
        std::vector<WorkerEntry> entries;
        for (uint32_t i = 1; i <= 50; ++i) {
          entries.push_back(OneServer::PushOf(clock, i, i % 8, value, ++ticket));
          entries.push_back(Pull{.ticket = ++ticket, .clock = clock, .keys = KeysOf({i % 8})});
        }
        entries.push_back(ClockEnd{.table = 0, .clock = clock});
        server.Batch(worker, entries);
        server.inbox[worker].values.clear();
        server.Take(worker);
      }
      ASSERT_EQ(server.core.waiting(), 0);
    }
    EXPECT_LE(server.core.Describe().size(), bytes + 30);
    server.Pull(0, 1, 1000, {0});
    // Of 1 to 50, six are multiples of 8.
    EXPECT_THAT(server.Got(0, 1), ElementsAre(2 * 6 * 1000));
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
