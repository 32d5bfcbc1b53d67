#include "src/client/ps/disks/disk_agreement.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/client/ps/disks/disk_start.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Kind = DiskStart::Kind;

constexpr uint64_t kLine = uint64_t{7} << kLineBits;
constexpr uint64_t kOtherFamily = uint64_t{8} << kLineBits;
constexpr uint64_t kNewLine = uint64_t{99} << kLineBits;

DiskOffer Files(const std::vector<uint64_t>& states, uint64_t line = kLine) {
  DiskOffer offer;
  for (const uint64_t state : states) offer.states.push_back({line, state});
  return offer;
}
DiskOffer At(uint64_t clock, const std::vector<uint64_t>& states = {}, uint64_t line = 0) {
  DiskOffer offer = Files(states);
  offer.at = clock;
  offer.line = line;
  return offer;
}
DiskOffer Moved(DiskOffer offer) {
  offer.moved = true;
  return offer;
}
// Of several lines.
DiskOffer Both(const DiskOffer& first, const DiskOffer& second) {
  DiskOffer both = first;
  both.states.insert(both.states.end(), second.states.begin(), second.states.end());
  std::sort(both.states.begin(), both.states.end());
  return both;
}
absl::StatusOr<DiskStart> Choose(bool exact, const std::vector<DiskOffer>& offers) {
  const absl::StatusOr<std::vector<DiskStart>> starts =
      ChooseStarts({{"w", exact, 10}}, {offers}, kNewLine);
  if (!starts.ok()) return starts.status();
  return starts->front();
}
absl::StatusOr<DiskStart> Exact(const std::vector<DiskOffer>& offers) {
  return Choose(/*exact=*/true, offers);
}
absl::StatusOr<DiskStart> Newest(const std::vector<DiskOffer>& offers) {
  return Choose(/*exact=*/false, offers);
}
// All servers begin so.
DiskStart All(Kind kind, uint64_t line, uint64_t state = 0) {
  return {.kind = kind, .line = line, .from = line, .state = state, .all = true};
}
// A server begins so beside others that go on.
DiskStart Beside(Kind kind, uint64_t line, uint64_t state = 0) {
  return {.kind = kind, .line = line, .from = line, .state = state};
}

// ---- which state

TEST(DiskStart, AJobWithoutFilesBeginsANewLine) {
  EXPECT_EQ(Exact({{}, {}}).value(), All(Kind::kEmpty, kNewLine));
  EXPECT_EQ(Newest({{}, {}}).value(), All(Kind::kEmpty, kNewLine));
  EXPECT_EQ(FirstLine(0), uint64_t{1} << kLineBits);
  EXPECT_EQ(FamilyOf(FirstLine(~uint64_t{0})), FamilyOf(~uint64_t{0}));
}

TEST(DiskStart, AJobThatHasNotGoneOnBeginsAgain) {
  EXPECT_EQ(Exact({{}, Files({0})}).value(), All(Kind::kEmpty, kLine));
}

TEST(DiskStart, AnExactTableGoesOnFromTheGreatestStateOfAll) {
  EXPECT_EQ(Exact({Files({10, 20, 30}), Files({0, 10, 20})}).value(), All(Kind::kState, kLine, 20));
  EXPECT_EQ(Exact({Files({0}), Files({0, 10})}).value(), All(Kind::kState, kLine, 0));
}

TEST(DiskStart, OtherTablesGoOnFromTheNewestOfEach) {
  EXPECT_EQ(Newest({Files({3, 4}), Files({9})}).value(), All(Kind::kNewest, kLine));
}

TEST(DiskStart, AServerThatHasLostItsFilesIsNamed) {
  for (const auto& choose : {Exact, Newest}) {
    EXPECT_THAT(choose({Files({10}), {}}),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 1 has no file")));
    EXPECT_THAT(choose({Files({10}), Files({10}, kOtherFamily)}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2 histories")));
  }
  EXPECT_THAT(
      Exact({Files({20, 30}), Files({0, 10})}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 0: 20, 30; server 1: 0, 10")));
}

TEST(DiskStart, WhatIsInTheStoreStays) {
  EXPECT_EQ(Exact({At(23, {10}), At(23, {10, 20})})->line, kLine);
  EXPECT_EQ(Exact({At(13), At(25, {}, kLine)})->line, kLine);
  EXPECT_EQ(Exact({At(13), At(25)})->line, kNewLine);
  // Which of them is that of the store is not known.
  EXPECT_EQ(Exact({At(13, {10}), Both(At(25), Files({10}, kOtherFamily))})->line, kNewLine);
}

TEST(DiskStart, AServerWithoutASnapshotBeginsWhereTheOthersHaveBegun) {
  EXPECT_EQ(Exact({At(0, {0}, kLine), {}}).value(), Beside(Kind::kEmpty, kLine));
  EXPECT_EQ(Exact({At(20, {20}, kLine), Files({10, 20, 30})}).value(),
            Beside(Kind::kState, kLine, 20));
  EXPECT_EQ(Newest({At(1, {0, 1}, kLine), {}}).value(), Beside(Kind::kNewest, kLine));
  EXPECT_THAT(Exact({At(20, {20, 30}, kLine), Files({10})}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 1")));
  EXPECT_THAT(Exact({At(20), {}, At(21)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("clocks 20 and 21")));
}

// The others have gone on for hours, and files of then are no state of now.
TEST(DiskStart, AServerThatHasLostItsSnapshotDoesNotBeginWhereTheOthersHaveBegunLongAgo) {
  const auto lost = StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("server 1 has no snapshot in the store any more"));
  EXPECT_THAT(Exact({Moved(At(0, {45, 48}, kLine)), Files({45, 48, 51, 54})}), lost);
  EXPECT_THAT(Exact({Moved(At(0, {0}, kLine)), Files({0})}), lost);
  EXPECT_THAT(Exact({At(0, {0}, kLine), Files({0}), Moved(At(0, {0}, kLine))}), lost);
  // What this server's newest file lacks, the workers have, or they notice it.
  EXPECT_EQ(Newest({Moved(At(2, {4}, kLine)), Files({3})}).value(), Beside(Kind::kNewest, kLine));
  EXPECT_THAT(Newest({Moved(At(2, {4}, kLine)), {}}), lost);
  // Also if these have just been started again themselves.
  EXPECT_THAT(Newest({At(50, {49, 50}), {}}), lost);
  EXPECT_THAT(Newest({At(1, {0, 1}, kLine), {}, Files({3})}), lost);
}

// ---- lines: clocks that are made again from snapshots of different clocks in the store

TEST(DiskStart, ServersThatGoOnFromDifferentClocksBeginTheNextLine) {
  // Server 1 has a file of clock 40 as it was before.
  EXPECT_EQ(Exact({At(37, {20, 30}), At(30, {20, 30, 40})})->line, kLine + 1);
  // From one clock, too: programs with chance in them come to another state 40.
  EXPECT_EQ(Exact({At(30, {20, 30}), At(30, {20, 30, 40})})->line, kLine + 1);
  EXPECT_EQ(Exact({At(40, {20, 30}), At(40, {20, 30, 40})})->line, kLine);
  // A server that lives on has the line.
  EXPECT_EQ(Exact({At(37, {30}, kLine), At(30, {30, 40})})->line, kLine);
  EXPECT_EQ(Newest({At(37, {30}), At(30, {30})})->line, kLine);
}

TEST(DiskStart, FilesOfTwoLinesAreNotMixed) {
  const DiskOffer first = Both(Files({20, 30}), Files({40}, kLine + 1));
  // Server 1 has not written its state 40 again: 30 is of one line at both.
  EXPECT_EQ(Exact({first, Files({20, 30, 40})}).value(),
            (DiskStart{
                .kind = Kind::kState, .line = kLine + 2, .from = kLine, .state = 30, .all = true}));
  EXPECT_EQ(Exact({first, Both(Files({30, 40}), Files({40}, kLine + 1))}).value(),
            All(Kind::kState, kLine + 1, 40));
  // What the line before had further ahead is of no use.
  EXPECT_EQ(Exact({Both(first, Files({50})), Both(first, Files({50}))}).value(),
            All(Kind::kState, kLine + 1, 40));
}

TEST(DiskStart, AServerWithoutASnapshotTakesTheFileOfTheLineThatTheOthersHaveTaken) {
  DiskOffer other = At(30, {30}, kLine + 2);
  other.from = kLine;
  EXPECT_EQ(Exact({other, Both(Files({30}), Files({30, 40}, kLine + 1))}).value(),
            (DiskStart{.kind = Kind::kState, .line = kLine + 2, .from = kLine, .state = 30}));
}

// ---- several tables

absl::StatusOr<std::vector<uint64_t>> Clocks(const std::vector<DiskTable>& tables,
                                             const std::vector<std::vector<DiskOffer>>& offers) {
  const absl::StatusOr<std::vector<DiskStart>> starts = ChooseStarts(tables, offers, kNewLine);
  if (!starts.ok()) return starts.status();
  std::vector<uint64_t> clocks;
  for (const DiskStart& start : *starts) clocks.push_back(start.state);
  return clocks;
}

TEST(DiskStart, ExactTablesGoOnFromOneClock) {
  const std::vector<DiskTable> tables = {{"v", true, 10}, {"w", true, 10}};
  // Server 1 has died between its files of clock 20.
  EXPECT_THAT(
      Clocks(tables, {{Files({0, 10, 20}), Files({10, 20})}, {Files({0, 10, 20}), Files({0, 10})}})
          .value(),
      ElementsAre(10, 10));
  EXPECT_THAT(Clocks(tables, {{Files({0, 10}), Files({0})}, {Files({0}), Files({0})}}).value(),
              ElementsAre(0, 0));
  EXPECT_THAT(
      Clocks(tables, {{Files({40, 50})}, {Files({20, 30})}}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("table \"v\": 40, 50; table \"w\": 20, 30")));
  // The other table stands in the store already.
  EXPECT_THAT(Clocks(tables, {{At(10, {10, 20})}, {Files({10, 20})}}).value(), ElementsAre(0, 10));
}

TEST(DiskStart, TablesWithOtherClocksGoOnByThemselves) {
  EXPECT_THAT(
      Clocks({{"v", true, 10}, {"w", true, 4}}, {{Files({10, 20})}, {Files({16, 24})}}).value(),
      ElementsAre(20, 24));
  // With the same snapshot_every, if one is far behind: the program ends its clocks less often. A
  // clock of which both have files is by chance.
  EXPECT_THAT(
      Clocks({{"v", true, 10}, {"w", true, 10}}, {{Files({60, 70})}, {Files({0, 10})}}).value(),
      ElementsAre(70, 10));
  EXPECT_THAT(
      Clocks({{"v", true, 10}, {"w", true, 10}}, {{Files({10, 20, 30, 40})}, {Files({0, 10})}})
          .value(),
      ElementsAre(40, 10));
  // The program has a new table.
  EXPECT_THAT(Clocks({{"v", true, 10}, {"w", true, 10}}, {{Files({10, 20})}, {{}}}).value(),
              ElementsAre(20, 0));
}

// ---- how all come to it

// Servers whose messages are passed on in the order in which they were sent.
class World {
 public:
  explicit World(std::vector<DiskOffer> has) : has_(std::move(has)) {
    for (size_t server = 0; server < has_.size(); ++server) {
      lives_.push_back(0);
      servers_.push_back(Server(static_cast<int>(server)));
    }
  }
  DiskAgreement& operator[](int server) { return *servers_[server]; }
  void Begin(int server) {
    servers_[server]->Begin({{"w", true, 10}}, {has_[server]},
                            kNewLine + (lives_[server] << kLineBits));
    Pass();
  }
  // The next life, which has this.
  void Restart(int server, DiskOffer has) {
    has_[server] = std::move(has);
    ++lives_[server];
    servers_[server] = Server(server);
    std::erase_if(pending_, [server](const Pending& one) { return one.to == server; });
  }
  void ShowMembers() {
    for (size_t to = 0; to < servers_.size(); ++to) {
      for (size_t of = 0; of < servers_.size(); ++of) {
        servers_[to]->OnServer(static_cast<int>(of), true, lives_[of]);
      }
    }
    Pass();
  }
  void Tick() {
    for (const auto& server : servers_) server->Tick();
    Pass();
  }
  // A message of this life that is on its way until Pass.
  struct Pending {
    int from;
    uint64_t life;
    int to;
    std::string bytes;
  };
  void Pass() {
    Collect();
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      servers_[next.to]->OnMessage(next.from, next.life, next.bytes);
      Collect();
    }
  }
  void Collect() {
    for (size_t from = 0; from < servers_.size(); ++from) {
      for (const DiskAgreement::Send& send : servers_[from]->TakeSends()) {
        if (send.life != lives_[send.server]) continue;
        pending_.push_back({static_cast<int>(from), lives_[from], send.server, send.bytes});
      }
    }
  }
  DiskStart Start(int server) {
    const auto& decided = servers_[server]->decided();
    EXPECT_TRUE(decided.has_value());
    if (!decided.has_value()) return {};
    EXPECT_THAT(*decided, IsOk());
    return decided->ok() ? (*decided)->front() : DiskStart{};
  }

 private:
  std::unique_ptr<DiskAgreement> Server(int rank) const {
    return std::make_unique<DiskAgreement>(rank, static_cast<int>(has_.size()));
  }

  std::vector<DiskOffer> has_;
  std::vector<uint64_t> lives_;
  std::vector<std::unique_ptr<DiskAgreement>> servers_;
  std::deque<Pending> pending_;
};

TEST(DiskAgreement, AllTakeTheSameState) {
  World world({Files({10, 20}), Files({10, 20, 30}), Files({20, 30})});
  world.ShowMembers();
  world.Begin(2);
  world.Begin(0);
  EXPECT_FALSE(world[0].decided().has_value());
  EXPECT_THAT(world[0].missing(), ElementsAre(1));
  EXPECT_THAT(world[2].missing(), ElementsAre(0));
  world.Begin(1);
  for (int server = 0; server < 3; ++server) {
    EXPECT_EQ(world.Start(server), All(Kind::kState, kLine, 20)) << server;
  }
}

TEST(DiskAgreement, OneServerNeedsNoOther) {
  World world({Files({10})});
  world.Begin(0);
  EXPECT_EQ(world.Start(0), All(Kind::kState, kLine, 10));
}

TEST(DiskAgreement, ServersThatBeginBeforeTheyAreKnownAskAgain) {
  World world({{}, {}});
  world.Begin(1);
  world.Begin(0);
  EXPECT_FALSE(world[1].decided().has_value());
  world.ShowMembers();
  world.Tick();
  EXPECT_EQ(world.Start(0), All(Kind::kEmpty, kNewLine));
  EXPECT_EQ(world.Start(1), All(Kind::kEmpty, kNewLine));
}

TEST(DiskAgreement, ANextLifeGetsWhereTheOthersHaveBegun) {
  World world({Files({10, 20}), Files({10, 20}), Files({20})});
  world.ShowMembers();
  for (int server = 0; server < 3; ++server) world.Begin(server);
  // It has died before its first snapshot; the others have gone on since.
  world.Restart(1, Files({10, 20}));
  world.ShowMembers();
  world.Begin(1);
  EXPECT_EQ(world.Start(1), Beside(Kind::kState, kLine, 20));
  // With one in the store it learns the line alone.
  world.Restart(2, At(33));
  world.ShowMembers();
  world.Begin(2);
  EXPECT_EQ(world.Start(2).line, kLine);
}

TEST(DiskAgreement, ASnapshotThatIsLostIsAnErrorOnceAnotherServerHasGoneOn) {
  const auto lost = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("any more"));
  for (const int lives : {0, 1}) {
    World world({Files({10, 20}), Files({10, 20})});
    world.ShowMembers();
    for (int server = 0; server < 2; ++server) world.Begin(server);
    world[lives].OnMoved(0);
    world.Restart(1 - lives, Files({10, 20, 30}));
    world.ShowMembers();
    world.Begin(1 - lives);
    ASSERT_TRUE(world[1 - lives].decided().has_value());
    EXPECT_THAT(*world[1 - lives].decided(), lost);
  }
}

TEST(DiskAgreement, TheNextLifeOfServer0TakesOverWhatWasDecided) {
  World world({{}, {}, {}});
  world.ShowMembers();
  for (int server = 0; server < 3; ++server) world.Begin(server);
  EXPECT_EQ(world.Start(2).line, kNewLine);
  world.Restart(0, {});
  world.ShowMembers();
  world.Begin(0);
  // Its own new line would be another one.
  EXPECT_EQ(world.Start(0), Beside(Kind::kEmpty, kNewLine));
}

TEST(DiskAgreement, AnErrorIsThatOfAll) {
  World world({Files({10}), {}, Files({10})});
  world.ShowMembers();
  for (int server = 0; server < 3; ++server) world.Begin(server);
  for (int server = 0; server < 3; ++server) {
    ASSERT_TRUE(world[server].decided().has_value());
    EXPECT_THAT(*world[server].decided(),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 1")));
  }
}

TEST(DiskAgreement, WhatIsNoMessageIsIgnored) {
  World world({{}, {}});
  world.ShowMembers();
  world.Begin(0);
  for (const char* bytes : {"", "\x01", "\x01zzzz", "\x02", "\x03zzzzzzzz", "\x04", "\x09"}) {
    world[0].OnMessage(1, 0, bytes);
    world[0].OnMessage(5, 0, bytes);
    world[0].OnMessage(-1, 0, bytes);
  }
  EXPECT_FALSE(world[0].decided().has_value());
  world.Begin(1);
  EXPECT_THAT(*world[1].decided(), IsOk());
}

}  // namespace
}  // namespace phalanx::ps::internal
