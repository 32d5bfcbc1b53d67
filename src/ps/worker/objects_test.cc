// Pushes and pulls by object of a WorkerCore, against servers that the test plays.
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/worker/testing/worker_play.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ticket = WorkerCore::Ticket;

constexpr uint64_t kPartBytes = 64;
// The values of one key.
const int64_t kOne[] = {1};

// Tables of 100 keys of 8 bytes are object tables then, with up to 12 servers.
class Play : public WorkerPlay {
 public:
  explicit Play(int servers, std::vector<TableSpec> specs, uint64_t life = 0, int workers = 1)
      : WorkerPlay(servers, std::move(specs), life, kPartBytes, workers) {}

  // A push of all rows, whose parts are put. The names of its parts are `pushed`.
  Ticket PushDense(uint32_t table = 0) {
    auto push = core.BeginPushDense(table);
    EXPECT_THAT(push, IsOk());
    pushed.clear();
    for (const WorkerCore::DensePush::Part& part : push->parts) pushed.push_back(part.name);
    const auto ticket = core.EndPushDense(table, *std::move(push), absl::OkStatus());
    EXPECT_THAT(ticket, IsOk());
    return *ticket;
  }
  std::vector<std::string> Frees() { return core.TakeObjects().frees; }
  // The only fetch since the last call of TakeObjects.
  WorkerCore::Objects::Fetch Fetch() {
    const WorkerCore::Objects objects = core.TakeObjects();
    EXPECT_EQ(objects.fetches.size(), 1u);
    return objects.fetches.empty() ? WorkerCore::Objects::Fetch{} : objects.fetches.front();
  }
  void Fetched(uint64_t number, const std::vector<int64_t>& values) {
    core.OnFetched(number, absl::string_view(reinterpret_cast<const char*>(values.data()),
                                             values.size() * sizeof(int64_t)));
  }

  std::vector<std::string> pushed;
};

std::vector<int64_t> From(int64_t first, size_t count) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TableSpec SspSpec() {
  TableSpec spec = SpecOf("a");
  spec.sync = Sync::kSsp;
  return spec;
}

TEST(WorkerObjects, WhichTablesTravelAsObjects) {
  TableSpec sparse = SpecOf("sparse");
  sparse.keys = 0;
  TableSpec small = SpecOf("small");
  small.keys = 15;
  TableSpec assigns = SpecOf("assigns");
  assigns.update = Update::kAssign;
  Play play(2, {SpecOf("bsp"), SspSpec(), sparse, small, assigns});
  play.Begin(2);
  EXPECT_TRUE(play.core.table(0).pulls_objects && play.core.table(0).pushes_objects);
  EXPECT_TRUE(play.core.table(1).pulls_objects);
  EXPECT_FALSE(play.core.table(1).pushes_objects);
  EXPECT_FALSE(play.core.table(2).pulls_objects || play.core.table(2).pushes_objects);
  EXPECT_FALSE(play.core.table(3).pulls_objects || play.core.table(3).pushes_objects);
  EXPECT_TRUE(play.core.table(4).pulls_objects);
  EXPECT_FALSE(play.core.table(4).pushes_objects);
  // More than a reduction has sources.
  Play many(2, {SpecOf("bsp")}, 0, 16'385);
  many.Begin(2);
  EXPECT_TRUE(many.core.table(0).pulls_objects);
  EXPECT_FALSE(many.core.table(0).pushes_objects);
}

TEST(WorkerObjects, AClockHasSoManyPushesOfAllRowsThatTheyCanBeSummed) {
  Play play(1, {SpecOf("a")}, 0, /*workers=*/8'000);
  play.Begin(1);
  play.PushDense();
  auto push = play.core.BeginPushDense(0);
  ASSERT_THAT(push, IsOk());
  // One that is not put does not count.
  EXPECT_THAT(play.core.EndPushDense(0, *std::move(push), absl::ResourceExhaustedError("full")),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kResourceExhausted));
  play.PushDense();
  EXPECT_THAT(play.core.BeginPushDense(0),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("at clock 0: 2 pushes of all rows in one clock; no more with 8000 "
                                 "workers")));
  EXPECT_FALSE(play.core.must_wait(0));
  ASSERT_THAT(play.Push(0, {0}, kOne), IsOk());
  EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(play.core.Clock(0), IsOk());
  play.PushDense();
}

// All servers refuse the push, and the caller has taken the ticket between the two.
TEST(WorkerObjects, APushThatSeveralServersRefuseIsKeptForNone) {
  Play play(2, {SpecOf("a"), SpecOf("b")});
  play.Begin(2);
  play.PushDense(1);
  const Ticket ticket = play.PushDense();
  play.core.Flush();
  play.Got(0);
  play.Got(1);
  const Refused refused{.ticket = ticket, .why = absl::ResourceExhaustedError("most")};
  play.Answer(0, 1, refused);
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kResourceExhausted));
  play.Answer(1, 1, refused);
  EXPECT_EQ(play.Frees(), play.pushed);
  play.Answer(1, 1, Done{.count = 2});
  // A push without a call is none of the server's to refuse.
  play.core.OnLost(1, 1);
  play.Welcome(1, 1);
  play.core.Flush();
  play.Answer(1, 1, Refused{.ticket = 0, .why = absl::ResourceExhaustedError("most")});
  EXPECT_THAT(play.Frees(), IsEmpty());
  EXPECT_THAT(play.Got(1), ElementsAre("hello to 1", "push 1 at 0.1.0 job/1/1/0.1/1"));
}

// What fills the node can be of any table. Nothing else asks, since the other workers wait for this
// push.
TEST(WorkerObjects, WithoutMemoryItAsksForSnapshotsOfAllThatIsKeptInTheNode) {
  TableSpec small = SpecOf("small");
  small.keys = 1;
  Play play(1, {SpecOf("a"), SpecOf("b"), small, SpecOf("c", 0), SpecOf("d")});
  play.Begin(1);
  play.PushDense(1);
  ASSERT_THAT(play.Push(2, {0}, kOne), IsOk());
  play.PushDense(3);
  // No snapshot has the push of a clock that has not ended.
  play.PushDense(4);
  for (uint32_t table = 1; table <= 3; ++table) ASSERT_THAT(play.core.Clock(table), IsOk());
  play.core.Flush();
  play.Got(0);
  play.Answer(0, 1, Done{.count = 7});
  ASSERT_TRUE(play.core.idle());
  auto push = play.core.BeginPushDense(0);
  ASSERT_THAT(push, IsOk());
  EXPECT_THAT(play.Got(0), IsEmpty());
  // Again, in case it was lost.
  for (int i = 0; i < 2; ++i) {
    play.core.Probe(/*no_memory=*/true);
    const std::vector<std::string> got = play.Got(0);
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.back(), "snapshot 1");
  }
  play.Answer(0, 1, Durable{.table = 1, .upto = {.clock = 1}});
  EXPECT_THAT(play.Frees(), ElementsAre("job/1/0/0.1/1"));
  play.core.Probe(/*no_memory=*/true);
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_THAT(play.core.EndPushDense(0, *std::move(push), absl::ResourceExhaustedError("full"),
                                     /*refuses=*/false),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(play.core.must_wait(0));
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/4"));
  // Nothing was refused.
  EXPECT_THAT(play.core.Clock(0), IsOk());
}

// The server would take new pushes for those that it has.
TEST(WorkerObjects, PushesAreNotSkippedWhereObjectsAreToComeAgain) {
  for (const bool repeats : {true, false}) {
    Play play(1, {SpecOf("a")}, /*life=*/1);
    play.core.OnServer(0, true, 1);
    Welcome welcome{.channel = play.Hello(0), .tables = {{.spec = SpecOf("a")}}};
    welcome.tables[0].at = {.clock = 3, .push = 2, .piece = 0};
    welcome.tables[0].clock = 3;
    welcome.tables[0].repeats = repeats;
    play.core.OnMessage(0, 1, Encode(welcome));
    EXPECT_EQ(play.core.SkipPushed(0), repeats ? 0u : 2u);
    if (repeats) {
      EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kFailedPrecondition,
                                               HasSubstr("at clock 3: an earlier life")));
    }
    EXPECT_THAT(play.core.Clock(0), IsOk());
    EXPECT_EQ(play.core.SkipPushed(0), 0u);
    EXPECT_THAT(play.core.Clock(0), IsOk());
  }
}

TEST(WorkerObjects, APushSendsItsNamesWhenItsPartsAreThere) {
  Play play(2, {SpecOf("a")});
  play.Begin(2);
  ASSERT_THAT(play.Push(0, {0}, kOne), IsOk());
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 0+1"));
  auto push = play.core.BeginPushDense(0);
  ASSERT_THAT(push, IsOk());
  ASSERT_EQ(push->parts.size(), 2u);
  EXPECT_EQ(push->parts[1].server, 1);
  EXPECT_EQ(push->parts[1].bytes, 400u);
  EXPECT_EQ(push->parts[1].name, "job/0/1/0.2/1");
  EXPECT_THAT(play.Got(1), IsEmpty());
  EXPECT_TRUE(play.core.must_wait(0));
  EXPECT_EQ(play.core.SkipPushed(0), 0u);
  const auto ticket = play.core.EndPushDense(0, *std::move(push), absl::OkStatus());
  EXPECT_FALSE(play.core.must_wait(0));
  ASSERT_THAT(ticket, IsOk());
  ASSERT_THAT(play.Push(0, {0}, kOne), IsOk());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.2.0 job/0/0/0.2/1; push 0 at 0.3.0 0+1"));
  EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 0.2.0 job/0/1/0.2/1"));
  play.Answer(0, 1, Done{.count = 2});
  EXPECT_EQ(play.core.WaitsFor(*ticket), "server 1 (has not answered)");
  play.Answer(1, 1, Done{.count = 1});
  EXPECT_THAT(play.Taken(*ticket), IsOk());
}

TEST(WorkerObjects, APushWhosePartsCannotBePutIsRefusedAndItsNumberIsThatOfTheNextOne) {
  Play play(2, {SpecOf("a")});
  play.Begin(2);
  auto push = play.core.BeginPushDense(0);
  ASSERT_THAT(push, IsOk());
  EXPECT_THAT(play.core.EndPushDense(0, *std::move(push), absl::ResourceExhaustedError("full")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("full")));
  // The first one can have been put.
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1", "job/0/1/0.1/1"));
  EXPECT_THAT(play.core.Clock(0),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("full")));
  play.PushDense();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 job/0/0/0.1/2"));
  EXPECT_THAT(play.core.Clock(0), IsOk());
  EXPECT_THAT(play.Frees(), IsEmpty());
}

TEST(WorkerObjects, WithSnapshotsAPushIsFreedWhenItIsDurable) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  play.PushDense();
  ASSERT_THAT(play.core.Clock(0), IsOk());
  play.core.Flush();
  play.Answer(0, 1, Done{.count = 2});
  play.Answer(0, 1, MinClock{.table = 0, .clock = 1});
  EXPECT_THAT(play.Frees(), IsEmpty());
  play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = 0, .push = 1, .piece = 0}});
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1"));
}

// The server reads it when the clock turns. What has no object is freed when it is done.
TEST(WorkerObjects, WithoutSnapshotsAPushIsFreedWhenItsClockHasTurned) {
  Play play(1, {SpecOf("a", /*snapshot_every=*/0)});
  play.Begin(1);
  for (int clock = 0; clock < 2; ++clock) {
    play.PushDense();
    ASSERT_THAT(play.core.Clock(0), IsOk());
  }
  play.core.Flush();
  play.Answer(0, 1, Done{.count = 4});
  EXPECT_THAT(play.Frees(), IsEmpty());
  play.Answer(0, 1, MinClock{.table = 0, .clock = 1});
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1"));
  int64_t out[100];
  const Ticket ticket = *play.core.PullDense(0, out);
  play.Answer(0, 1, Values{.ticket = ticket, .min_clock = 2, .object = "server/1"});
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/1.1/2"));
}

TEST(WorkerObjects, PushesOfATableThatFailsAreFreed) {
  Play play(1, {SpecOf("a"), SpecOf("b")});
  play.Begin(1);
  play.PushDense(0);
  play.PushDense(1);
  auto push = play.core.BeginPushDense(0);
  ASSERT_THAT(push, IsOk());
  play.Answer(0, 1, TableFailed{.table = 0, .why = absl::InternalError("broken")});
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1"));
  EXPECT_THAT(play.core.EndPushDense(0, *std::move(push), absl::OkStatus()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("broken")));
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.2/3"));
  EXPECT_THAT(play.core.BeginPushDense(0), StatusIs(absl::StatusCode::kInternal));
}

TEST(WorkerObjects, APushThatTheServerRefusesIsFreed) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const Ticket ticket = play.PushDense();
  play.Answer(0, 1, Refused{ticket, absl::InvalidArgumentError("no")});
  EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1"));
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(play.core.Clock(0), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(WorkerObjects, APushIsSentAgainUnderItsName) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  const Ticket ticket = play.PushDense();
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2);
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 job/0/0/0.1/1", "hello to 2",
                                       "push 0 at 0.1.0 job/0/0/0.1/1"));
  play.Answer(0, 2, Done{.count = 1});
  EXPECT_THAT(play.Taken(ticket), IsOk());
  // The server dies before it has consumed the push.
  play.core.OnServer(0, true, 3);
  play.Welcome(0, 3);
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 3", "push 0 at 0.1.0 job/0/0/0.1/1"));
  EXPECT_THAT(play.Frees(), IsEmpty());
}

// Positions of a Welcome are those of pushes that were consumed.
TEST(WorkerObjects, ANextLifePutsAgainWhatAServerCouldLose) {
  for (const bool durable : {false, true}) {
    Play play(2, {SpecOf("a")}, /*life=*/1);
    play.core.OnServer(0, true, 0);
    play.core.OnServer(1, true, 0);
    const Position at = {.clock = 4, .push = 1, .piece = 0};
    play.Welcome(0, 0, {at});
    play.Welcome(1, 0, {{.clock = 4}});
    play.Got(0), play.Got(1);
    auto push = play.core.BeginPushDense(0);
    ASSERT_THAT(push, IsOk());
    ASSERT_EQ(push->parts.size(), 2u);
    // While the parts are put.
    if (durable) play.Answer(0, 0, Durable{.table = 0, .upto = at});
    const Ticket ticket = *play.core.EndPushDense(0, *std::move(push), absl::OkStatus());
    EXPECT_THAT(play.Got(0), IsEmpty());
    EXPECT_THAT(play.Got(1), ElementsAre("push 0 at 4.1.0 job/0/1/4.1/1"));
    if (durable) {
      EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/4.1/1"));
    } else {
      EXPECT_THAT(play.Frees(), IsEmpty());
    }
    play.Answer(1, 0, Done{.count = 1});
    EXPECT_THAT(play.Taken(ticket), IsOk());
  }
  // What cannot be lost needs no object.
  Play play(1, {SpecOf("a")}, /*life=*/1);
  play.core.OnServer(0, true, 0);
  const std::vector<Position> at = {{.clock = 4, .push = 1, .piece = 0}};
  play.Welcome(0, 0, at, at);
  EXPECT_THAT(play.Taken(play.PushDense()), IsOk());
  EXPECT_THAT(play.pushed, IsEmpty());
  play.PushDense();
  EXPECT_THAT(play.pushed, ElementsAre("job/0/0/4.2/2"));
}

TEST(WorkerObjects, PartsAreCountedAgainstSnapshotBytes) {
  TableSpec spec = SpecOf("a");
  spec.snapshot_bytes = 1000;
  Play play(2, {spec});
  play.Begin(2);
  play.PushDense();
  play.PushDense();
  ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
  // The servers can lose these until the clock has ended: to wait would be to wait for itself.
  EXPECT_FALSE(play.core.must_wait(0));
  ASSERT_THAT(play.core.Clock(0), IsOk());
  EXPECT_TRUE(play.core.must_wait(0));
  EXPECT_THAT(play.core.BeginPushDense(0),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000 bytes")));
  // It was not refused.
  for (const int server : {0, 1}) {
    play.Answer(server, 1, Durable{.table = 0, .upto = {.clock = 0, .push = 3, .piece = 0}});
  }
  EXPECT_FALSE(play.core.must_wait(0));
  EXPECT_THAT(play.core.Clock(0), IsOk());
}

TEST(WorkerObjects, AWorkerLeavesWhenThePushesOfItsClocksAreFreed) {
  for (const bool snapshots : {true, false}) {
    Play play(1, {SpecOf("a", snapshots ? 10 : 0)});
    play.Begin(1);
    play.PushDense();
    ASSERT_THAT(play.core.Clock(0), IsOk());
    // A clock that has not ended counts no more when the worker has left.
    play.PushDense();
    ASSERT_THAT(play.Push(0, {1}, kOne), IsOk());
    play.core.Flush();
    play.Answer(0, 1, Done{.count = 4});
    EXPECT_TRUE(play.core.idle());
    play.Got(0);
    play.core.BeginLeave();
    EXPECT_FALSE(play.core.idle());
    EXPECT_EQ(play.core.Pending(), "server 0 (has not answered) for table \"a\"");
    play.core.Probe();
    if (snapshots) {
      EXPECT_THAT(play.Got(0), ElementsAre("snapshot 0", "", "snapshot 0"));
      play.Answer(0, 1, Durable{.table = 0, .upto = {.clock = 1}});
    } else {
      EXPECT_THAT(play.Got(0), ElementsAre(""));
      play.Answer(0, 1, MinClock{.table = 0, .clock = 1});
    }
    EXPECT_TRUE(play.core.idle());
    EXPECT_THAT(play.Got(0), IsEmpty());
    EXPECT_THAT(play.Frees(), ElementsAre("job/0/0/0.1/1"));
  }
}

// ---- pulls

TEST(WorkerObjects, APullReadsAnObjectOfEachServer) {
  TableSpec spec = SpecOf("a");
  spec.keys = 50;
  spec.split = Split::kBlocks;
  spec.block = 20;
  Play play(2, {spec});
  play.Begin(2);
  std::vector<int64_t> out(50, -1);
  const Ticket ticket = *play.core.PullDense(0, out.data());
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 as object"));
  EXPECT_THAT(play.Got(1), ElementsAre("pull 0 at 0 as object"));
  play.Answer(0, 1, Values{.ticket = ticket, .piece = 0, .object = "v/0"});
  const WorkerCore::Objects::Fetch first = play.Fetch();
  EXPECT_EQ(first.server, 0);
  EXPECT_EQ(first.name, "v/0");
  EXPECT_EQ(first.bytes, 240u);
  EXPECT_EQ(play.core.WaitsFor(ticket),
            "server 0 (its object is being made, or is on its way), server 1 (has not answered)");
  // The blocks of keys 0 to 19, and 40 to 49.
  play.Fetched(first.number, From(0, 30));
  EXPECT_THAT(play.Got(0), ElementsAre("read 0 1.0"));
  play.Answer(1, 1, Values{.ticket = ticket, .piece = 1, .object = "v/1"});
  EXPECT_THAT(play.core.TakeEnded(), IsEmpty());
  play.Fetched(play.Fetch().number, From(100, 20));
  EXPECT_THAT(play.Got(1), ElementsAre("read 0 1.1"));
  EXPECT_THAT(play.Taken(ticket), IsOk());
  std::vector<int64_t> expected = From(0, 20);
  for (const auto& [begin, count] : {std::pair{100, 20}, std::pair{20, 10}}) {
    const std::vector<int64_t> block = From(begin, count);
    expected.insert(expected.end(), block.begin(), block.end());
  }
  EXPECT_EQ(out, expected);
  EXPECT_TRUE(play.core.idle());
}

// What comes piece by piece is written at once, and not after the end of the call.
TEST(WorkerObjects, APullIsWrittenWhileItsObjectComes) {
  Play play(1, {SspSpec()});
  play.Begin(1);
  std::vector<int64_t> out(100, -1);
  const Ticket ticket = *play.core.PullDense(0, out.data());
  play.Answer(0, 1, Values{.ticket = ticket, .piece = 0, .object = "v/0"});
  const uint64_t number = play.Fetch().number;
  const std::vector<int64_t> values = From(0, 100);
  const absl::string_view bytes(reinterpret_cast<const char*>(values.data()), 800);
  play.core.OnFetched(number, bytes.substr(400, 80), {.more = true, .place = 400});
  EXPECT_EQ(out[49], -1);
  EXPECT_EQ(out[50], 50);
  EXPECT_EQ(out[59], 59);
  EXPECT_EQ(out[60], -1);
  play.core.OnFetched(number, bytes.substr(640, 160), {.more = true, .place = 720});
  EXPECT_EQ(out[90], -1) << "it is beyond the rows";
  EXPECT_THAT(play.core.TakeEnded(), IsEmpty());
  play.core.OnFetched(number, bytes.substr(480), {.more = true, .place = 480});
  play.core.OnFetched(number, bytes.substr(0, 400), {.more = true, .place = 0});
  play.core.OnFetched(number, bytes, {.copied = true});
  EXPECT_THAT(play.Taken(ticket), IsOk());
  EXPECT_EQ(out, values);
  out.assign(100, -1);
  play.core.OnFetched(number, bytes, {.more = true, .place = 0});
  EXPECT_EQ(out, std::vector<int64_t>(100, -1));
}

TEST(WorkerObjects, APullIsAskedAgainIfItsObjectIsGone) {
  for (const bool back : {false, true}) {
    Play play(1, {SspSpec()});
    play.Begin(1);
    std::vector<int64_t> out(100);
    const Ticket ticket = *play.core.PullDense(0, out.data());
    play.Got(0);
    play.Answer(0, 1, Values{.ticket = ticket, .object = "v/1"});
    // The server that has taken it back has another one. But only once at once.
    if (back) {
      play.core.OnFetched(play.Fetch().number, absl::NotFoundError("taken back"));
      EXPECT_THAT(play.Got(0), ElementsAre("lost 0 1.0; pull 0 at 0 as object"));
      play.Answer(0, 1, Values{.ticket = ticket, .object = "v/2"});
    }
    play.core.OnFetched(play.Fetch().number,
                        back ? absl::NotFoundError("freed") : absl::DataLossError("lost"));
    // The same one would be named again until the server knows.
    EXPECT_THAT(play.Got(0), ElementsAre("lost 0 1.0"));
    play.core.Probe();
    EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 as object", ""));
    play.core.Probe();
    EXPECT_THAT(play.Got(0), ElementsAre(""));
    play.Answer(0, 1, Values{.ticket = ticket, .object = "v/3"});
    play.Fetched(play.Fetch().number, From(7, 100));
    EXPECT_EQ(out, From(7, 100));
    EXPECT_THAT(play.Taken(ticket), IsOk());
  }
}

TEST(WorkerObjects, OtherErrorsAndOtherSizesEndThePull) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  int64_t out[100] = {5};
  const Ticket full = *play.core.PullDense(0, out);
  play.Answer(0, 1, Values{.ticket = full, .object = "v/1"});
  play.core.OnFetched(play.Fetch().number, absl::ResourceExhaustedError("no memory"));
  EXPECT_THAT(play.Taken(full), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("table \"a\" of worker 0 at clock 0: the object "
                                                   "with the rows of server 0: no memory")));
  const Ticket shorter = *play.core.PullDense(0, out);
  play.Answer(0, 1, Values{.ticket = shorter, .object = "v/1"});
  play.Got(0);
  play.Fetched(play.Fetch().number, From(1, 99));
  EXPECT_THAT(play.Got(0), ElementsAre("read 0 2.0"));
  EXPECT_THAT(play.Taken(shorter),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("792 bytes, expected 800")));
  // Values in place of a name, and the reverse.
  const Ticket values = *play.core.PullDense(0, out);
  play.Answer(0, 1, Values{.ticket = values, .values = "12345678"});
  EXPECT_THAT(play.Taken(values), StatusIs(absl::StatusCode::kInternal,
                                           HasSubstr("8 bytes, expected an object of 800")));
  const Ticket keys = *play.Pull(0, {1}, out);
  play.Answer(0, 1, Values{.ticket = keys, .object = "v/1"});
  EXPECT_THAT(play.Taken(keys), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(play.core.TakeObjects().fetches, IsEmpty());
  EXPECT_EQ(out[0], 5);
}

TEST(WorkerObjects, TheObjectOfACancelledPullIsReadForTheServerAlone) {
  Play play(1, {SpecOf("a")});
  play.Begin(1);
  int64_t out[100] = {5};
  const Ticket early = *play.core.PullDense(0, out);
  const Ticket late = *play.core.PullDense(0, out);
  const Ticket refused = *play.core.PullDense(0, out);
  play.core.Flush();
  play.Got(0);
  play.core.Cancel(early);
  play.core.Cancel(refused);
  play.Answer(0, 1, Values{.ticket = late, .object = "v/1"});
  const WorkerCore::Objects::Fetch fetch = play.Fetch();
  play.core.Cancel(late);
  EXPECT_THAT(play.core.TakeObjects().dropped, ElementsAre(fetch.number));
  EXPECT_THAT(play.Got(0), ElementsAre("read 0 2.0"));
  play.Fetched(fetch.number, From(1, 100));
  EXPECT_EQ(out[0], 5);
  // An answer that was on its way; once.
  for (int i = 0; i < 2; ++i) play.Answer(0, 1, Values{.ticket = early, .object = "v/1"});
  EXPECT_THAT(play.Got(0), ElementsAre("read 0 1.0"));
  play.Answer(0, 1, Refused{refused, absl::InternalError("no")});
  play.Answer(0, 1, Values{.ticket = refused, .object = "v/1"});
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_THAT(play.core.TakeObjects().fetches, IsEmpty());
  EXPECT_TRUE(play.core.idle());
}

TEST(WorkerObjects, ASecondAnswerReplacesTheFirst) {
  Play play(1, {SspSpec()});
  play.Begin(1);
  std::vector<int64_t> out(100);
  const Ticket ticket = *play.core.PullDense(0, out.data());
  play.Answer(0, 1, Values{.ticket = ticket, .object = "v/1"});
  const WorkerCore::Objects::Fetch first = play.Fetch();
  play.Answer(0, 1, Values{.ticket = ticket, .object = "v/2"});
  const WorkerCore::Objects objects = play.core.TakeObjects();
  EXPECT_THAT(objects.dropped, ElementsAre(first.number));
  play.Fetched(first.number, From(1, 100));
  EXPECT_EQ(play.core.Take(ticket), std::nullopt);
  ASSERT_EQ(objects.fetches.size(), 1u);
  play.Fetched(objects.fetches[0].number, From(2, 100));
  EXPECT_THAT(play.Taken(ticket), IsOk());
  EXPECT_EQ(out, From(2, 100));
}

// The object does not change, so it is the answer until the question is sent again.
TEST(WorkerObjects, AFetchOutlivesItsChannelUntilTheQuestionIsSentAgain) {
  Play play(1, {SspSpec()});
  play.Begin(1);
  std::vector<int64_t> out(100);
  const Ticket first = *play.core.PullDense(0, out.data());
  play.Answer(0, 1, Values{.ticket = first, .object = "v/1"});
  const uint64_t number = play.Fetch().number;
  play.core.OnServer(0, false, 1);
  play.Got(0);
  play.Fetched(number, From(1, 100));
  EXPECT_THAT(play.Taken(first), IsOk());
  EXPECT_EQ(out, From(1, 100));
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2);
  // Nothing is read on the next channel that was answered on another one.
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 2"));

  const Ticket second = *play.core.PullDense(0, out.data());
  play.Answer(0, 2, Values{.ticket = second, .object = "v/2"});
  const uint64_t dropped = play.Fetch().number;
  play.Got(0);
  play.core.OnLost(0, 2);
  play.Welcome(0, 2);
  EXPECT_THAT(play.core.TakeObjects().dropped, ElementsAre(dropped));
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 2", "pull 0 at 0 as object"));
  play.core.OnFetched(dropped, absl::NotFoundError("freed"));
  EXPECT_THAT(play.Got(0), IsEmpty());
  play.Answer(0, 2, Values{.ticket = second, .object = "v/2"});
  play.Fetched(play.Fetch().number, From(2, 100));
  EXPECT_THAT(play.Taken(second), IsOk());
  EXPECT_THAT(play.Got(0), ElementsAre("read 0 2.0"));

  // A fetch that fails without a channel: the Welcome sends the question.
  const Ticket third = *play.core.PullDense(0, out.data());
  play.Answer(0, 2, Values{.ticket = third, .object = "v/3"});
  play.core.OnServer(0, false, 2);
  play.core.OnFetched(play.Fetch().number, absl::NotFoundError("its node has died"));
  play.Got(0);
  play.core.OnServer(0, true, 3);
  play.Welcome(0, 3);
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 3", "pull 0 at 0 as object"));
  // What was given up is forgotten with its channel.
  play.core.Cancel(third);
  play.core.OnLost(0, 3);
  play.Welcome(0, 3);
  play.Got(0);
  play.Answer(0, 3, Values{.ticket = third, .object = "v/4"});
  EXPECT_THAT(play.Got(0), IsEmpty());
}

// Rule 1: with kBsp and several servers, what is called after Clock is held back.
TEST(WorkerObjects, PushesAndPullsByObjectWaitForTheMarks) {
  Play play(2, {SpecOf("a")});
  play.Begin(2);
  play.PushDense();
  ASSERT_THAT(play.core.Clock(0), IsOk());
  std::vector<int64_t> out(100);
  const Ticket ticket = *play.core.PullDense(0, out.data());
  play.PushDense();
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("push 0 at 0.1.0 job/0/0/0.1/1", "mark 0 0"));
  // It was not sent, so there is nothing to give up.
  play.core.Cancel(ticket);
  play.Answer(0, 1, Done{.count = 2});
  play.Answer(1, 1, Done{.count = 2});
  EXPECT_THAT(play.Got(0), ElementsAre("clock 0 0; push 0 at 1.1.0 job/0/0/1.1/2"));
  play.Answer(0, 1, Values{.ticket = ticket, .object = "v/1"});
  EXPECT_THAT(play.Got(0), IsEmpty());
}

// Nothing is to come for the pull on this channel.
TEST(WorkerObjects, APullWhoseObjectIsLostCanBeCancelled) {
  Play play(1, {SspSpec()});
  play.Begin(1);
  std::vector<int64_t> out(100);
  const Ticket ticket = *play.core.PullDense(0, out.data());
  play.Answer(0, 1, Values{.ticket = ticket, .object = "v/1"});
  play.core.OnFetched(play.Fetch().number, absl::DataLossError("lost"));
  EXPECT_EQ(play.core.WaitsFor(ticket), "server 0 (has not answered)");
  play.Got(0);
  play.core.Cancel(ticket);
  play.core.Probe();
  play.Answer(0, 1, Values{.ticket = ticket, .object = "v/1"});
  play.core.Flush();
  EXPECT_THAT(play.Got(0), IsEmpty());
}

TEST(WorkerObjects, ManyCallsLeaveNothingBehind) {
  Play play(1, {SpecOf("a", /*snapshot_every=*/0)});
  play.Begin(1);
  std::vector<int64_t> out(100);
  uint64_t updates = 0;
  for (uint64_t i = 0; i < 5'000; ++i) {
    play.PushDense();
    ASSERT_THAT(play.core.Clock(0), IsOk());
    const Ticket ticket = *play.core.PullDense(0, out.data());
    play.core.Flush();
    play.Answer(0, 1, Done{.count = updates += 2});
    play.Answer(0, 1, Values{.ticket = ticket, .min_clock = i + 1, .object = "v"});
    const WorkerCore::Objects objects = play.core.TakeObjects();
    ASSERT_EQ(objects.frees, play.pushed);
    ASSERT_EQ(objects.fetches.size(), 1u);
    play.Fetched(objects.fetches[0].number, From(static_cast<int64_t>(i), 100));
    ASSERT_THAT(play.Taken(ticket), IsOk());
    play.core.TakeEnded();
    play.Got(0);
    ASSERT_TRUE(play.core.idle());
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
