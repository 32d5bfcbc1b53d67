// Files of ServerCore: states of which all servers make one.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/server/testing/one_server.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::OneServer;
using testing::Saved;
using testing::Spec;

std::vector<uint64_t> Clocks(const OneServer& server) {
  std::vector<uint64_t> clocks;
  for (const ServerCore::File& file : server.files) clocks.push_back(file.min);
  return clocks;
}

TEST(ServerCore, AFileIsMadeAtEachMultipleWhateverIsUnderWay) {
  OneServer server(2, {Saved()});
  server.Begin();
  for (uint64_t clock = 0; clock < 7; ++clock) {
    server.Clock(0, clock);
    server.Batch(1, {AskSnapshot{.table = 0}});
    server.Clock(1, clock);
  }
  // The first snapshot has not been stored.
  EXPECT_EQ(server.stores.size(), 1u);
  EXPECT_THAT(Clocks(server), ElementsAre(2, 4, 6));
}

TEST(ServerCore, AFileIsOfTheMomentAtWhichTheClockTurns) {
  OneServer server(2, {Saved()});
  server.Begin();
  // Worker 1 is ahead, and ends of three clocks of worker 0 come in one batch.
  for (uint64_t clock = 0; clock < 3; ++clock) {
    server.Push(1, clock, 1, 5, 1);
    server.Clock(1, clock);
  }
  server.Batch(0, {ClockEnd{.table = 0, .clock = 0}, ClockEnd{.table = 0, .clock = 1},
                   ClockEnd{.table = 0, .clock = 2}});
  ASSERT_THAT(Clocks(server), ElementsAre(2));
  OneServer next(2, {Saved()});
  ASSERT_THAT(next.core.Restore(0, server.files[0].number, server.files[0].bytes), IsOk());
  EXPECT_EQ(next.core.sync(0).min(), 2u);
  EXPECT_EQ(next.core.sync(0).clocks().of(1), 3u);
}

// The end of one worker turns all clocks in which the other one is ahead.
TEST(ServerCore, AFileHasThePushesOfAllClocksThatTurnAtOnce) {
  OneServer server(2, {Saved()});
  server.Begin();
  for (uint64_t clock = 0; clock < 3; ++clock) {
    server.Push(1, clock, 1, 5, 1);
    server.Clock(1, clock);
  }
  server.Member(0, MemberState::kLeft);
  ASSERT_THAT(Clocks(server), ElementsAre(3));
  OneServer next(2, {Saved()});
  ASSERT_THAT(next.core.Restore(0, server.files[0].number, server.files[0].bytes), IsOk());
  EXPECT_EQ(next.core.sync(0).min(), 3u);
  next.Begin();
  next.Pull(1, 7, 3, {5});
  EXPECT_THAT(testing::Floats(next.inbox[1].values.at(7)), ElementsAre(3.0f));
}

TEST(ServerCore, ARestoredServerGoesOnWithTheNextMultiple) {
  OneServer server(1, {Saved()});
  const std::string bytes = server.core.Save(0, 1);
  server.Begin();
  for (uint64_t clock = 0; clock < 3; ++clock) server.Clock(0, clock);
  ASSERT_THAT(Clocks(server), ElementsAre(2));
  OneServer next(1, {Saved()});
  ASSERT_THAT(next.core.Restore(0, server.files[0].number, server.files[0].bytes), IsOk());
  next.Begin();
  for (uint64_t clock = 2; clock < 4; ++clock) next.Clock(0, clock);
  EXPECT_THAT(Clocks(next), ElementsAre(4));
  OneServer first(1, {Saved()});
  EXPECT_THAT(first.core.Restore(0, 1, bytes), IsOk());
}

TEST(ServerCore, OtherTablesMakeNone) {
  for (const TableSpec& spec : {Saved(Sync::kSsp), Saved(Sync::kAsp), Spec()}) {
    OneServer server(1, {spec});
    server.Begin();
    for (uint64_t clock = 0; clock < 7; ++clock) server.Clock(0, clock);
    EXPECT_THAT(server.files, IsEmpty());
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
