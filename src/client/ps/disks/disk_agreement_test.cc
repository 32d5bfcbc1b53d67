#include "src/client/ps/disks/disk_agreement.h"

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

constexpr uint64_t kLine = 7;
constexpr uint64_t kNewLine = 99;

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
absl::StatusOr<DiskStart> Exact(const std::vector<DiskOffer>& offers) {
  return ChooseStart("w", /*exact=*/true, offers, kNewLine);
}
absl::StatusOr<DiskStart> Newest(const std::vector<DiskOffer>& offers) {
  return ChooseStart("w", /*exact=*/false, offers, kNewLine);
}

// ---- which state

TEST(DiskStart, AJobWithoutFilesBeginsANewLine) {
  EXPECT_EQ(Exact({{}, {}}).value(), (DiskStart{Kind::kEmpty, kNewLine}));
  EXPECT_EQ(Newest({{}, {}}).value(), (DiskStart{Kind::kEmpty, kNewLine}));
}

TEST(DiskStart, AJobThatHasNotGoneOnBeginsAgain) {
  EXPECT_EQ(Exact({{}, Files({0})}).value(), (DiskStart{Kind::kEmpty, kLine}));
}

TEST(DiskStart, AnExactTableGoesOnFromTheGreatestStateOfAll) {
  EXPECT_EQ(Exact({Files({10, 20, 30}), Files({0, 10, 20})}).value(),
            (DiskStart{Kind::kState, kLine, 20}));
  EXPECT_EQ(Exact({Files({0}), Files({0, 10})}).value(), (DiskStart{Kind::kState, kLine, 0}));
}

TEST(DiskStart, OtherTablesGoOnFromTheNewestOfEach) {
  EXPECT_EQ(Newest({Files({3, 4}), Files({9})}).value(), (DiskStart{Kind::kNewest, kLine}));
}

TEST(DiskStart, AServerThatHasLostItsFilesIsNamed) {
  for (const auto& choose : {Exact, Newest}) {
    EXPECT_THAT(choose({Files({10}), {}}),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 1 has no file")));
    EXPECT_THAT(choose({Files({10}), Files({10}, kLine + 1)}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2 histories")));
  }
  EXPECT_THAT(
      Exact({Files({20, 30}), Files({0, 10})}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 0: 20, 30; server 1: 0, 10")));
}

TEST(DiskStart, WhatIsInTheStoreStays) {
  EXPECT_EQ(Exact({At(13, {10}), At(25, {10, 20})})->line, kLine);
  EXPECT_EQ(Exact({At(13), At(25, {}, kLine)})->line, kLine);
  EXPECT_EQ(Exact({At(13), At(25)})->line, kNewLine);
}

TEST(DiskStart, AServerWithoutASnapshotBeginsWhereTheOthersHaveBegun) {
  EXPECT_EQ(Exact({At(0, {0, 10, 20}, kLine), {}}).value(), (DiskStart{Kind::kEmpty, kLine}));
  EXPECT_EQ(Exact({At(20, {20, 30}, kLine), Files({10, 20, 30})}).value(),
            (DiskStart{Kind::kState, kLine, 20}));
  EXPECT_EQ(Newest({At(20, {20}, kLine), {}}).value(), (DiskStart{Kind::kNewest, kLine}));
  EXPECT_THAT(Exact({At(20, {20, 30}, kLine), Files({10})}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("server 1")));
  EXPECT_THAT(Exact({At(20), {}, At(21)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("clocks 20 and 21")));
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
    servers_[server]->Begin({{"w", true}}, {has_[server]}, kNewLine + lives_[server]);
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
    EXPECT_EQ(world.Start(server), (DiskStart{Kind::kState, kLine, 20})) << server;
  }
}

TEST(DiskAgreement, OneServerNeedsNoOther) {
  World world({Files({10})});
  world.Begin(0);
  EXPECT_EQ(world.Start(0), (DiskStart{Kind::kState, kLine, 10}));
}

TEST(DiskAgreement, ServersThatBeginBeforeTheyAreKnownAskAgain) {
  World world({{}, {}});
  world.Begin(1);
  world.Begin(0);
  EXPECT_FALSE(world[1].decided().has_value());
  world.ShowMembers();
  world.Tick();
  EXPECT_EQ(world.Start(0), (DiskStart{Kind::kEmpty, kNewLine}));
  EXPECT_EQ(world.Start(1), (DiskStart{Kind::kEmpty, kNewLine}));
}

TEST(DiskAgreement, ANextLifeGetsWhereTheOthersHaveBegun) {
  World world({Files({10, 20}), Files({10, 20}), Files({20})});
  world.ShowMembers();
  for (int server = 0; server < 3; ++server) world.Begin(server);
  // It has died before its first snapshot; the others have gone on since.
  world.Restart(1, Files({10, 20}));
  world.ShowMembers();
  world.Begin(1);
  EXPECT_EQ(world.Start(1), (DiskStart{Kind::kState, kLine, 20}));
  // With one in the store it learns the line alone.
  world.Restart(2, At(33));
  world.ShowMembers();
  world.Begin(2);
  EXPECT_EQ(world.Start(2).line, kLine);
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
  EXPECT_EQ(world.Start(0), (DiskStart{Kind::kEmpty, kNewLine}));
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
