// Turns of a ServerCore that are ring sums: what workers are answered with before it is there.

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

using ::testing::ElementsAre;
using testing::Floats;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OneServer;
using testing::Spec;

constexpr size_t kRows = 48;  // three slices of 64 bytes

OneServer Server(const TableSpec& changed = Spec()) {
  TableSpec spec = changed;
  spec.keys = kRows;
  return {2, {spec}, nullptr, {.object_bytes = 8, .ring_bytes = 64}};
}

std::vector<float> Rows(float value) { return std::vector<float>(kRows, value); }

// Both workers push, and end the clock.
void EndClock(OneServer& server, uint64_t clock) {
  for (const int worker : {0, 1}) {
    server.PushObject(worker, clock, 1, absl::StrCat(worker == 0 ? "a" : "b", clock));
    server.Clock(worker, clock);
  }
}

// The first clock, in a ring: the next one is answered ahead.
void MakeFirst(OneServer& server) {
  server.Begin();
  EndClock(server, 0);
  server.TakeReduces();
  EXPECT_TRUE(server.Ringed(1, "s/0/2", Rows(1)));
  for (const int worker : {0, 1}) server.Take(worker);
}

TEST(ServerRings, TheResultIsTheNextVersionAndTheRows) {
  OneServer server = Server();
  server.Begin();
  EndClock(server, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a0 b0, on s/0/1 to s/0/2"));
  EXPECT_EQ(Floats(server.objects.at("s/0/1")), Rows(0)) << "the rows are a source";
  server.Take(0);
  server.PullObject(0, 7, 1);
  EXPECT_THAT(server.Take(0), IsEmpty()) << "it is not known yet that there is a ring";
  EXPECT_TRUE(server.Ringed(1, "s/0/2", Rows(3)));
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/2", "min 1"));
  server.Pull(1, 8, 1, {0, kRows - 1});
  EXPECT_THAT(server.Got(1, 8), ElementsAre(3, 3)) << "the rows are in the sum";
  // Neither is published again: the result is the next base.
  EndClock(server, 1);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: a1 b1, on s/0/2 to s/0/3"));
  EXPECT_TRUE(server.Ringed(2, "s/0/3", Rows(5)));
  EXPECT_TRUE(server.objects.contains("s/0/2")) << "the previous one, which is not read either";
  EXPECT_FALSE(server.objects.contains("s/0/1"));
  EXPECT_THAT(server.voids, IsEmpty());
}

TEST(ServerRings, PullsAreAnsweredBeforeTheResultIsThere) {
  OneServer server = Server();
  MakeFirst(server);
  server.PullObject(0, 6, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("object 6.0 s/0/2"));
  EndClock(server, 1);
  server.Take(0);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/3"));
  EXPECT_EQ(server.inbox[0].mins.at(7), 1) << "pushes of the clock are still needed";
  server.Pull(1, 8, 2, {0});
  EXPECT_FALSE(server.inbox[1].values.contains(8)) << "the rows are those before";
  // A worker can have read it before the server sees that it is there.
  server.Read(0, 7);
  EXPECT_TRUE(server.Ringed(2, "s/0/3", Rows(5)));
  EXPECT_THAT(server.Got(1, 8), ElementsAre(5));
  server.PullObject(1, 9, 2);
  EXPECT_EQ(Floats(server.objects.at("s/0/3")), Rows(5));
}

TEST(ServerRings, WhatABrokenRingWasToMakeIsNeverThere) {
  OneServer server = Server();
  MakeFirst(server);
  EndClock(server, 1);
  server.PullObject(0, 7, 2);
  server.Take(0);
  // Its slices were summed each by itself.
  server.Reduced(2, Rows(5));
  EXPECT_THAT(server.voids, ElementsAre("s/0/3"));
  server.Take(0);
  server.Read(0, 7, /*lost=*/true);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/4"));
  EXPECT_EQ(Floats(server.objects.at("s/0/4")), Rows(5)) << "the rows are in the sum";
  // The next ring may break as well: it is not waited for.
  server.Read(0, 7);
  EndClock(server, 2);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: a1 b1, on s/0/2 to s/0/3",
                                                "3! of clock 2: a2 b2, on s/0/4 to s/0/5"));
  server.Take(0);
  server.PullObject(0, 8, 3);
  EXPECT_THAT(server.Take(0), IsEmpty());
  EXPECT_TRUE(server.Ringed(3, "s/0/5", Rows(6)));
  EXPECT_THAT(server.Take(0), ElementsAre("object 8.0 s/0/5", "min 3"));
}

TEST(ServerRings, ReadersAskAgainWhileTheSlicesAreSummed) {
  OneServer server = Server();
  MakeFirst(server);
  EndClock(server, 1);
  for (const int worker : {0, 1}) server.Take(worker);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/3"));
  EXPECT_THAT(server.core.Describe(), HasSubstr("attempt 2, in a ring of the tasks' nodes\n"));
  server.InSlices(2);
  EXPECT_THAT(server.voids, ElementsAre("s/0/3"));
  EXPECT_THAT(server.core.Describe(),
              HasSubstr("attempt 2, slice by slice, since there is no ring\n"));
  server.Read(0, 7, /*lost=*/true);
  server.PullObject(0, 7, 2);
  server.PullObject(1, 8, 2);
  EXPECT_THAT(server.Take(0), IsEmpty()) << "there is nothing to wait for elsewhere";
  server.Reduced(2, Rows(5));
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/4", "min 2"));
  EXPECT_THAT(server.Take(1), ElementsAre("object 8.0 s/0/4", "min 2"));
  EXPECT_EQ(Floats(server.objects.at("s/0/4")), Rows(5)) << "the rows are in the sum";
  EXPECT_THAT(server.voids, ElementsAre("s/0/3"));
  server.InSlices(2);
  server.InSlices(9);
  EXPECT_THAT(server.voids, ElementsAre("s/0/3"));
}

// A worker was away for long: nothing of the size of the part is made for each attempt.
TEST(ServerRings, AttemptsThatAPushFailsLeaveTheRowsAsTheyArePublished) {
  OneServer server = Server();
  MakeFirst(server);
  EndClock(server, 1);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: a1 b1, on s/0/2 to s/0/3"));
  server.Take(0);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/3"));
  server.Member(1, MemberState::kDied);
  for (uint64_t attempt = 2; attempt < 30; ++attempt) {
    server.ReduceFailed(attempt, absl::NotFoundError("no such object"), "b1");
    EXPECT_TRUE(server.core.wants_retry());
    EXPECT_THAT(server.voids, ElementsAre("s/0/3")) << "its readers are to ask again";
    server.Retry();
    EXPECT_THAT(server.TakeReduces(),
                ElementsAre(absl::StrCat(attempt + 1, " of clock 1: a1 b1, on s/0/2 to s/0/",
                                         attempt + 2)));
  }
  EXPECT_EQ(server.objects.size(), 2u) << "the rows, and those of the clock before";
  // The rows' own object can be to blame.
  server.ReduceFailed(30, absl::NotFoundError("no such object"), "s/0/2");
  server.Retry();
  EXPECT_THAT(server.TakeReduces(), ElementsAre("31 of clock 1: a1 b1, on s/0/32 to s/0/33"));
  EXPECT_EQ(Floats(server.objects.at("s/0/32")), Rows(1));
}

// Its copies were lost, so nothing else is to wait for it.
TEST(ServerRings, AResultThatAReaderHasLostIsNoVersion) {
  OneServer server = Server();
  MakeFirst(server);
  EndClock(server, 1);
  for (const int worker : {0, 1}) server.Take(worker);
  server.PullObject(0, 7, 2);
  server.Take(0);
  server.Read(0, 7, /*lost=*/true);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.Take(0), IsEmpty());
  EXPECT_FALSE(server.Ringed(2, "s/0/3", Rows(5)));
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/4", "min 2"));
  EXPECT_EQ(Floats(server.objects.at("s/0/4")), Rows(5));
}

// A worker's next life asks for it.
TEST(ServerRings, RowsThatWereLostAreThePreviousVersionAllTheSame) {
  OneServer server = Server();
  MakeFirst(server);
  server.PullObject(0, 6, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("object 6.0 s/0/2"));
  EndClock(server, 1);
  server.Read(0, 6, /*lost=*/true);
  EXPECT_TRUE(server.Ringed(2, "s/0/3", Rows(5)));
  server.Take(0);
  server.PullObject(0, 7, 1);
  EXPECT_THAT(server.Take(0), ElementsAre("object 7.0 s/0/4"));
  EXPECT_EQ(Floats(server.objects.at("s/0/4")), Rows(1));
}

TEST(ServerRings, AnotherAttemptMakesAnotherVersion) {
  OneServer server = Server();
  MakeFirst(server);
  EndClock(server, 1);
  server.PullObject(0, 7, 2);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: a1 b1, on s/0/2 to s/0/3"));
  // Worker 1's host has died, and its next life pushes again.
  server.NextLife(1);
  server.PushObject(1, 1, 1, "c1");
  EXPECT_THAT(server.TakeReduces(), ElementsAre("3 of clock 1: a1 c1, on s/0/2 to s/0/4"));
  server.Take(0);
  server.PullObject(0, 8, 2);
  EXPECT_THAT(server.Take(0), ElementsAre("object 8.0 s/0/4"));
  EXPECT_TRUE(server.Ringed(3, "s/0/4", Rows(5)));
  EXPECT_THAT(server.voids, ElementsAre("s/0/3")) << "worker 0 waits for that, too";
  EXPECT_FALSE(server.Ringed(2, "s/0/3", Rows(5))) << "it comes too late";
}

TEST(ServerRings, RowsThatCannotBePublishedArePublishedAgain) {
  OneServer server = Server();
  server.Begin();
  EndClock(server, 0);
  server.TakeReduces();
  server.objects.erase("s/0/1");
  server.core.OnPublishFailed(0, "s/0/1", absl::ResourceExhaustedError("no memory"));
  server.Run();
  EXPECT_TRUE(server.core.wants_retry());
  server.Retry();
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 0: a0 b0, on s/0/3 to s/0/4"));
  EXPECT_EQ(Floats(server.objects.at("s/0/3")), Rows(0));
  // So are they when an attempt fails: it may not have found them.
  server.ReduceFailed(2, absl::NotFoundError("lost"));
  server.Retry();
  EXPECT_THAT(server.TakeReduces(), ElementsAre("3 of clock 0: a0 b0, on s/0/5 to s/0/6"));
  EXPECT_TRUE(server.Ringed(3, "s/0/6", Rows(1)));
  server.PullObject(0, 7, 1);
  EXPECT_EQ(Floats(server.objects.at("s/0/6")), Rows(1));
}

TEST(ServerRings, OtherTurnsAreNone) {
  OneServer server = Server();
  server.Begin();
  server.Push(0, 0, 1, 0, 5);
  server.PushObject(0, 0, 2, "a");
  server.PushObject(1, 0, 1, "b");
  for (const int worker : {0, 1}) server.Clock(worker, 0);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("1! of clock 0: a b")) << "it has keys";
  server.Reduced(1, Rows(1));
  server.Pull(0, 7, 1, {0, 1});
  EXPECT_THAT(server.Got(0, 7), ElementsAre(6, 1));
  server.PushObject(1, 1, 1, "c");
  for (const int worker : {0, 1}) server.Clock(worker, 1);
  EXPECT_THAT(server.TakeReduces(), ElementsAre("2! of clock 1: c")) << "it is one push";
  TableSpec drops = Spec();
  drops.on_loss = OnLoss::kDrop;
  OneServer other = Server(drops);
  other.Begin();
  EndClock(other, 0);
  EXPECT_THAT(other.TakeReduces(), ElementsAre("1! of clock 0: a0 b0"));
}

}  // namespace
}  // namespace phalanx::ps::internal
