// When a ServerCore makes the answers of pulls, of workers that take them slowly.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/ps/server/testing/one_server.h"

namespace phalanx::ps::internal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Of a table of floats, whose answers have some 60 bytes: room for one.
constexpr uint64_t kOneAnswer = 30;

OneServer Server(int workers, Sync sync, uint64_t unsent_bytes = kOneAnswer) {
  return {workers, {Spec(sync)}, nullptr, {.unsent_bytes = unsent_bytes}};
}

// The bytes of the messages that are held.
uint64_t Held(const OneServer& server, int worker) {
  uint64_t bytes = 0;
  for (const std::string& message : *server.held[worker]) bytes += message.size();
  return bytes;
}

TEST(ServerAnswers, AreMadeAsTheWorkerTakesThem) {
  OneServer server = Server(1, Sync::kAsp);
  server.Begin();
  server.Hold(0);
  for (uint64_t ticket = 1; ticket <= 5; ++ticket) server.Pull(0, ticket, 0, {ticket});
  EXPECT_THAT(*server.held[0], SizeIs(1));
  EXPECT_EQ(server.core.waiting(), 4);
  EXPECT_TRUE(server.core.waits_for_room());
  for (uint64_t ticket = 1; ticket <= 5; ++ticket) {
    server.Sent(0);
    EXPECT_THAT(server.Take(0), ElementsAre(absl::StrCat("values ", ticket, ".0")));
  }
  EXPECT_THAT(*server.held[0], IsEmpty());
  EXPECT_EQ(server.core.waiting(), 0);
  EXPECT_FALSE(server.core.waits_for_room());
}

// Workers that wait for a clock pull the same rows, and all may have them when it turns.
TEST(ServerAnswers, OfAllParkedPullsTakeOnlyTheMemoryOfTheLimit) {
  constexpr int kWorkers = 8;
  constexpr uint64_t kRows = 1000;
  constexpr uint64_t kPulls = 50;
  constexpr uint64_t kLimit = 20'000;
  TableSpec spec = Spec(Sync::kBsp);
  spec.keys = kRows;
  OneServer server(kWorkers, {spec}, nullptr, {.unsent_bytes = kLimit});
  server.Begin();
  for (int worker = 0; worker < kWorkers; ++worker) server.Hold(worker);
  for (int worker = 0; worker + 1 < kWorkers; ++worker) {
    server.Clock(worker, 0);
    for (uint64_t ticket = 1; ticket <= kPulls; ++ticket) {
      const WireKeys all = {.form = WireKeys::Form::kRun, .begin = 0, .count = kRows};
      server.Batch(worker, {Pull{.ticket = ticket, .clock = 1, .keys = all}});
    }
    server.Sent(worker, server.held[worker]->size());
    EXPECT_THAT(*server.held[worker], IsEmpty());
  }
  server.Clock(kWorkers - 1, 0);
  for (int worker = 0; worker + 1 < kWorkers; ++worker) {
    const uint64_t one = kRows * sizeof(float);
    EXPECT_LT(Held(server, worker), kLimit + one + 200) << worker;
    EXPECT_GE(Held(server, worker), kLimit) << worker;
  }
  // One after the other they get all.
  for (int worker = 0; worker + 1 < kWorkers; ++worker) {
    while (!server.held[worker]->empty()) {
      EXPECT_LT(Held(server, worker), kLimit + kRows * sizeof(float) + 200);
      server.Sent(worker);
    }
    EXPECT_THAT(server.Take(worker), SizeIs(Ge(kPulls)));
    EXPECT_EQ(server.Got(worker, kPulls), std::vector<float>(kRows, 0));
  }
  EXPECT_EQ(server.core.waiting(), 0);
}

// With kBsp a pull has the rows of its clock, also if its worker does not wait for it.
TEST(ServerAnswers, AreMadeBeforeTheNextTurnChangesTheRows) {
  OneServer server = Server(1, Sync::kBsp);
  server.Begin();
  server.Push(0, 0, 1, 3, 7);
  server.Clock(0, 0);
  server.Hold(0);
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) server.Pull(0, ticket, 1, {3});
  EXPECT_EQ(server.core.waiting(), 3);
  server.Push(0, 1, 1, 3, 100);
  EXPECT_EQ(server.core.waiting(), 4) << "a push that waits changes nothing";
  server.Clock(0, 1);
  EXPECT_EQ(server.core.waiting(), 0);
  server.Pull(0, 5, 2, {3});
  while (!server.held[0]->empty()) server.Sent(0);
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) {
    EXPECT_THAT(server.Got(0, ticket), ElementsAre(7)) << ticket;
  }
  EXPECT_THAT(server.Got(0, 5), ElementsAre(107));
}

TEST(ServerAnswers, OfOtherWorkersAreMadeBeforeATurnAsWell) {
  OneServer server = Server(2, Sync::kBsp);
  server.Begin();
  server.Hold(0);
  server.Pull(0, 1, 0, {3});
  server.Pull(0, 2, 0, {3});
  EXPECT_EQ(server.core.waiting(), 1);
  server.Push(1, 0, 1, 3, 5);
  server.Clock(1, 0);
  EXPECT_EQ(server.core.waiting(), 2) << "one pull, and the push";
  server.Clock(0, 0);
  EXPECT_EQ(server.core.waiting(), 0);
  while (!server.held[0]->empty()) server.Sent(0);
  EXPECT_THAT(server.Got(0, 2), ElementsAre(0));
}

// Else a pull can have what others push meanwhile, and not what its own worker pushes behind it.
TEST(ServerAnswers, AreMadeBeforeAPushOfTheSameWorker) {
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    OneServer server = Server(2, sync);
    server.Begin();
    server.Hold(0);
    for (uint64_t ticket = 1; ticket <= 3; ++ticket) server.Pull(0, ticket, 0, {3});
    EXPECT_EQ(server.core.waiting(), 2);
    server.Push(1, 0, 1, 3, 5);
    EXPECT_EQ(server.core.waiting(), 2);
    server.Push(0, 0, 1, 3, 1000);
    EXPECT_EQ(server.core.waiting(), 0);
    server.Pull(0, 4, 0, {3});
    while (!server.held[0]->empty()) server.Sent(0);
    EXPECT_THAT(server.Got(0, 1), ElementsAre(0));
    EXPECT_THAT(server.Got(0, 2), ElementsAre(5));
    EXPECT_THAT(server.Got(0, 3), ElementsAre(5));
    EXPECT_THAT(server.Got(0, 4), ElementsAre(1005));
  }
}

TEST(ServerAnswers, OfAWorkerThatTakesNothingHoldUpNoOther) {
  OneServer server = Server(2, Sync::kAsp);
  server.Begin();
  server.Hold(0);
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) server.Pull(0, ticket, 0, {3});
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) server.Pull(1, ticket, 0, {3});
  EXPECT_THAT(server.Take(1), ElementsAre("values 1.0", "values 2.0", "values 3.0"));
}

// Its next channel asks again; what was given to the node before counts until it has left.
TEST(ServerAnswers, AreForgottenWithTheChannel) {
  OneServer server = Server(1, Sync::kAsp);
  server.Begin();
  server.Hold(0);
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) server.Pull(0, ticket, 0, {3});
  EXPECT_EQ(server.core.waiting(), 2);
  server.core.OnLost(0, 0);
  server.Run();
  EXPECT_EQ(server.core.waiting(), 0);
  EXPECT_FALSE(server.core.waits_for_room());
  server.SayHello(0);
  server.Pull(0, 2, 0, {3});
  EXPECT_EQ(server.core.waiting(), 1);
  server.Sent(0, server.held[0]->size());
  EXPECT_EQ(server.core.waiting(), 0);
  server.Sent(0, server.held[0]->size());
  EXPECT_THAT(server.Take(0), ElementsAre("values 1.0", "reset", "values 2.0"));
}

TEST(ServerAnswers, ThatWaitForRoomAreDescribed) {
  OneServer server = Server(1, Sync::kAsp);
  server.Begin();
  server.Hold(0);
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) server.Pull(0, ticket, 0, {3});
  EXPECT_THAT(server.core.Describe(), HasSubstr("worker 0: clock 0, 2 answers wait for room"));
  while (!server.held[0]->empty()) server.Sent(0);
  EXPECT_THAT(server.core.Describe(), Not(HasSubstr("wait for room")));
}

// A worker can ask for any number of rows; those that it does not take are bytes then, as it wants.
TEST(ServerAnswers, OfTooManyPullsAreMadeWithoutRoom) {
  OneServer server = Server(1, Sync::kAsp);
  server.Begin();
  server.Hold(0);
  std::vector<WorkerEntry> pulls;
  for (uint64_t ticket = 1; ticket <= 1024; ++ticket) {
    pulls.push_back(Pull{.ticket = ticket, .clock = 0, .keys = KeysOf({1})});
  }
  for (uint32_t i = 0; i <= kMaxParkedPulls / 1024; ++i) server.Batch(0, pulls);
  EXPECT_LT(server.core.waiting(), kMaxParkedPulls);
  while (!server.held[0]->empty()) server.Sent(0);
  EXPECT_THAT(server.inbox[0].errors, IsEmpty());
  EXPECT_EQ(server.core.waiting(), 0);
  EXPECT_THAT(server.Take(0), SizeIs(kMaxParkedPulls + 1024));
}

}  // namespace
}  // namespace phalanx::ps::internal::testing
