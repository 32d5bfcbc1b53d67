// Barriers message by message: which tasks are waited for, what a death makes void, and what
// outlives server 0.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/client/ps/barriers/barrier_keeper.h"
#include "src/client/ps/barriers/barrier_member.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Optional;
using Ticket = BarrierMember::Ticket;

constexpr BarrierTask kServer0 = {.worker = false, .rank = 0};
constexpr BarrierGroup kWorkers = BarrierGroup::kWorkers;
constexpr BarrierGroup kServers = BarrierGroup::kServers;
constexpr BarrierGroup kAll = BarrierGroup::kAll;

// Tasks whose messages and lives are passed on at once, unless a test holds them back.
class World {
 public:
  World(int servers, int workers) : servers_(servers), workers_(workers) { StartKeeper(); }

  BarrierMember& Join(bool worker, int rank) {
    const BarrierTask task = {worker, rank};
    Process& process = processes_[task];
    process.life = process.joined ? process.life + 1 : 0;
    process.joined = true;
    process.ended.clear();
    process.state = MemberState::kLive;
    process.member = std::make_unique<BarrierMember>(worker ? workers_ : servers_);
    if (task == kServer0) StartKeeper();
    keeper_->OnMember(task, MemberState::kLive, process.life);
    ShowKeeper();
    Pass();
    return *process.member;
  }
  BarrierMember& Worker(int rank) { return Join(true, rank); }
  BarrierMember& Server(int rank) { return Join(false, rank); }
  void End(bool worker, int rank, MemberState state) {
    Process& process = processes_[{worker, rank}];
    process.state = state;
    process.member.reset();
    if (BarrierTask{worker, rank} == kServer0) {
      keeper_lives_ = false;
      for (auto& [task, other] : processes_) {
        if (other.member != nullptr) other.member->OnKeeper(state, process.life);
      }
    } else {
      keeper_->OnMember({worker, rank}, state, process.life);
    }
    Pass();
  }
  void Die(bool worker, int rank) { End(worker, rank, MemberState::kDied); }
  BarrierKeeper& keeper() { return *keeper_; }
  void Tick() {
    for (auto& [task, process] : processes_) {
      if (process.member != nullptr) process.member->Tick();
    }
    Pass();
  }
  // Until nothing is under way.
  void Pass() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [task, process] : processes_) {
        if (process.member == nullptr) continue;
        for (const BarrierMember::Send& send : process.member->TakeSends()) {
          moved = true;
          if (!keeper_lives_ || loses) continue;
          keeper_->OnMessage(task, process.life, send.bytes);
        }
        for (const BarrierMember::Ended& ended : process.member->TakeEnded()) {
          process.ended[ended.ticket] = ended.status;
        }
      }
      for (const BarrierKeeper::Send& send : keeper_->TakeSends()) {
        moved = true;
        const auto to = processes_.find(send.to);
        if (loses || to == processes_.end() || to->second.member == nullptr) continue;
        if (to->second.life == send.life) to->second.member->OnMessage(KeeperLife(), send.bytes);
      }
    }
  }
  // How the call has ended; nothing: it waits.
  std::optional<absl::Status> Ended(bool worker, int rank, Ticket ticket) {
    Pass();
    const std::map<Ticket, absl::Status>& ended = processes_[{worker, rank}].ended;
    const auto found = ended.find(ticket);
    return found == ended.end() ? std::nullopt : std::optional(found->second);
  }
  bool loses = false;  // all messages

 private:
  struct Process {
    bool joined = false;
    uint64_t life = 0;
    MemberState state = MemberState::kAbsent;
    std::unique_ptr<BarrierMember> member;
    std::map<Ticket, absl::Status> ended;
  };

  uint64_t KeeperLife() { return processes_[kServer0].life; }
  // As the next life of server 0 sees the job.
  void StartKeeper() {
    keeper_.emplace(servers_, KeeperLife());
    keeper_lives_ = true;
    for (const auto& [task, process] : processes_) {
      if (task != kServer0 && process.joined) {
        keeper_->OnMember(task, process.state, process.life);
      }
    }
  }
  void ShowKeeper() {
    for (auto& [task, process] : processes_) {
      if (process.member != nullptr && keeper_lives_) {
        process.member->OnKeeper(MemberState::kLive, KeeperLife());
      }
    }
  }

  const int servers_;
  const int workers_;
  std::map<BarrierTask, Process> processes_;
  std::optional<BarrierKeeper> keeper_;
  bool keeper_lives_ = false;
};

TEST(Barriers, EndWhenAllTasksOfTheGroupHaveCome) {
  World world(1, 3);
  BarrierMember& server = world.Server(0);
  std::vector<Ticket> tickets;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank > 0) {
      EXPECT_EQ(world.Ended(true, 0, tickets[0]), std::nullopt);
    }
    tickets.push_back(world.Worker(rank).Begin(kWorkers, std::nullopt));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(world.Ended(true, rank, tickets[rank]), Optional(IsOk())) << rank;
  }
  // Other groups have barriers of their own.
  const Ticket alone = server.Begin(kServers, std::nullopt);
  EXPECT_THAT(world.Ended(false, 0, alone), Optional(IsOk()));
  const Ticket all = server.Begin(kAll, std::nullopt);
  EXPECT_EQ(world.Ended(false, 0, all), std::nullopt);
}

TEST(Barriers, WithoutWorkersNoBarrierOfThemEnds) {
  World world(1, 2);
  BarrierMember& server = world.Server(0);
  const Ticket all = server.Begin(kAll, std::nullopt);
  EXPECT_EQ(world.Ended(false, 0, all), std::nullopt);
  EXPECT_EQ(server.WaitsFor(all), "barrier 0 of all waits for workers, none of which has come");
  const Ticket first = world.Worker(0).Begin(kAll, std::nullopt);
  EXPECT_EQ(world.Ended(true, 0, first), std::nullopt);
  world.Tick();
  EXPECT_EQ(server.WaitsFor(all), "barrier 0 of all waits for worker 1 (has not joined)");
  const Ticket second = world.Worker(1).Begin(kAll, std::nullopt);
  EXPECT_THAT(world.Ended(true, 1, second), Optional(IsOk()));
  EXPECT_THAT(world.Ended(false, 0, all), Optional(IsOk()));
}

TEST(Barriers, ATaskOfALaterOneHasComeToThoseBefore) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  const Ticket late = first.Begin(kWorkers, 7);
  EXPECT_THAT(world.Ended(true, 1, second.Begin(kWorkers, 5)), Optional(IsOk()));
  EXPECT_EQ(world.Ended(true, 0, late), std::nullopt);
  // The next one without a number is 6, then 7.
  EXPECT_THAT(world.Ended(true, 1, second.Begin(kWorkers, std::nullopt)), Optional(IsOk()));
  EXPECT_EQ(world.Ended(true, 0, late), std::nullopt);
  EXPECT_THAT(world.Ended(true, 1, second.Begin(kWorkers, std::nullopt)), Optional(IsOk()));
  EXPECT_THAT(world.Ended(true, 0, late), Optional(IsOk()));
  EXPECT_THAT(world.Ended(true, 0, first.Begin(kWorkers, 2)), Optional(IsOk()));
}

TEST(Barriers, ANextLifePassesWhatHasEnded) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  for (int i = 0; i < 3; ++i) {
    const Ticket ticket = first.Begin(kWorkers, std::nullopt);
    EXPECT_THAT(world.Ended(true, 1, second.Begin(kWorkers, std::nullopt)), Optional(IsOk()));
    EXPECT_THAT(world.Ended(true, 0, ticket), Optional(IsOk()));
  }
  world.Die(true, 1);
  BarrierMember& again = world.Worker(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(world.Ended(true, 1, again.Begin(kWorkers, std::nullopt)), Optional(IsOk())) << i;
  }
  const Ticket next = again.Begin(kWorkers, std::nullopt);
  EXPECT_EQ(world.Ended(true, 1, next), std::nullopt);
  first.Begin(kWorkers, std::nullopt);
  EXPECT_THAT(world.Ended(true, 1, next), Optional(IsOk()));
}

// A restarted task must not count twice, and one that is dead not at all.
TEST(Barriers, ADeathReleasesNobodyAndItsNextLifeComesAgain) {
  World world(1, 3);
  world.Server(0);
  const Ticket waits = world.Worker(0).Begin(kWorkers, std::nullopt);
  world.Worker(1).Begin(kWorkers, std::nullopt);
  world.Die(true, 1);
  world.Worker(2).Begin(kWorkers, std::nullopt);
  EXPECT_EQ(world.Ended(true, 0, waits), std::nullopt);
  BarrierMember& again = world.Worker(1);
  EXPECT_EQ(world.Ended(true, 0, waits), std::nullopt);
  const Ticket mine = again.Begin(kWorkers, std::nullopt);
  EXPECT_THAT(world.Ended(true, 1, mine), Optional(IsOk()));
  EXPECT_THAT(world.Ended(true, 0, waits), Optional(IsOk()));
}

TEST(Barriers, MessagesOfAnOlderLifeCountNoMore) {
  BarrierKeeper keeper(1, 0);
  keeper.SetWorkers(2);
  const auto come = [&](int rank, uint64_t life) {
    keeper.OnMessage({true, rank}, life, Encode(Arrival{.arrived = 1, .world = 2}));
    std::vector<BarrierKeeper::Send> sends = keeper.TakeSends();
    return sends.empty() ? uint64_t{99} : DecodeVerdict(sends.back().bytes)->ended;
  };
  EXPECT_EQ(come(0, 0), 0u);
  keeper.OnMember({true, 1}, MemberState::kLive, 3);
  EXPECT_EQ(come(1, 2), 99u);
  keeper.OnMember({true, 1}, MemberState::kDied, 3);
  EXPECT_EQ(come(1, 3), 99u);
  keeper.OnMember({true, 1}, MemberState::kLive, 2);
  EXPECT_EQ(come(1, 4), 1u);
}

TEST(Barriers, ATaskThatHasLeftIsNotWaitedFor) {
  World world(1, 3);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  world.Worker(1);
  BarrierMember& third = world.Worker(2);
  const Ticket waits = first.Begin(kWorkers, std::nullopt);
  third.Begin(kWorkers, std::nullopt);
  world.Pass();
  world.Tick();
  EXPECT_EQ(first.WaitsFor(waits), "barrier 0 of workers waits for worker 1");
  world.End(true, 1, MemberState::kLeft);
  EXPECT_THAT(world.Ended(true, 0, waits), Optional(IsOk()));
}

TEST(Barriers, ADeadWorkerIsDroppedOrFailsAsTheTablesSay) {
  for (const OnLoss on_loss : {OnLoss::kWait, OnLoss::kDrop, OnLoss::kFail}) {
    World world(2, 2);
    world.Server(0);
    BarrierMember& server = world.Server(1);
    world.keeper().SetOnLoss(on_loss);
    BarrierMember& first = world.Worker(0);
    world.Worker(1).Begin(kWorkers, std::nullopt);
    world.Die(true, 1);
    const Ticket waits = first.Begin(kWorkers, std::nullopt);
    world.Pass();
    const Ticket servers = server.Begin(kServers, std::nullopt);
    if (on_loss == OnLoss::kWait) {
      EXPECT_EQ(world.Ended(true, 0, waits), std::nullopt);
      EXPECT_EQ(first.WaitsFor(waits), "barrier 0 of workers waits for worker 1 (died in life 0)");
    } else if (on_loss == OnLoss::kDrop) {
      EXPECT_THAT(world.Ended(true, 0, waits), Optional(IsOk()));
    } else {
      EXPECT_THAT(world.Ended(true, 0, waits),
                  Optional(StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("of workers: worker 1 has died in life 0"))));
      // With its next life the same barrier can end.
      BarrierMember& again = world.Worker(1);
      const Ticket second = first.Begin(kWorkers, std::nullopt);
      EXPECT_EQ(world.Ended(true, 0, second), std::nullopt);
      again.Begin(kWorkers, std::nullopt);
      EXPECT_THAT(world.Ended(true, 0, second), Optional(IsOk()));
    }
    // Barriers of servers have nothing to do with it.
    EXPECT_EQ(world.Ended(false, 1, servers), std::nullopt);
  }
}

// A dead server is always waited for: it has a part of each table.
TEST(Barriers, WaitForTheNextLifeOfAServer) {
  World world(2, 1);
  BarrierMember& first = world.Server(0);
  world.keeper().SetOnLoss(OnLoss::kDrop);
  world.Server(1).Begin(kServers, std::nullopt);
  world.Die(false, 1);
  const Ticket waits = first.Begin(kServers, std::nullopt);
  EXPECT_EQ(world.Ended(false, 0, waits), std::nullopt);
  world.Server(1).Begin(kServers, std::nullopt);
  EXPECT_THAT(world.Ended(false, 0, waits), Optional(IsOk()));
}

TEST(Barriers, WhatHasEndedOutlivesServer0) {
  World world(1, 3);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  BarrierMember& third = world.Worker(2);
  first.Begin(kWorkers, 4);
  second.Begin(kWorkers, 4);
  world.Pass();
  // The verdict for this one is lost, with server 0: the others have theirs.
  const Ticket waits = third.Begin(kWorkers, 4);
  for (const BarrierMember::Send& send : third.TakeSends()) {
    world.keeper().OnMessage({true, 2}, 0, send.bytes);
  }
  for (const BarrierKeeper::Send& send : world.keeper().TakeSends()) {
    if (send.to.rank < 2) (send.to.rank == 0 ? first : second).OnMessage(0, send.bytes);
  }
  world.Die(false, 0);
  world.Tick();
  EXPECT_EQ(world.Ended(true, 2, waits), std::nullopt);
  EXPECT_EQ(third.WaitsFor(waits),
            "barrier 4 of workers waits for server 0, which counts those that come");
  world.Server(0);
  EXPECT_THAT(world.Ended(true, 2, waits), Optional(IsOk()));
}

// What a task has seen end it says until it is heard, also if it waits for nothing itself.
TEST(Barriers, TheNextLifeOfServer0HearsOfWhatHasEndedThoughAMessageIsLost) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  first.Begin(kWorkers, std::nullopt);
  second.Begin(kWorkers, std::nullopt);
  world.Pass();
  EXPECT_FALSE(first.waiting());
  world.Die(false, 0);
  EXPECT_FALSE(first.waiting());
  world.Die(true, 1);
  world.loses = true;
  world.Server(0);
  world.loses = false;
  EXPECT_TRUE(first.waiting());
  const Ticket again = world.Worker(1).Begin(kWorkers, std::nullopt);
  EXPECT_EQ(world.Ended(true, 1, again), std::nullopt);
  world.Tick();
  EXPECT_FALSE(first.waiting());
  EXPECT_THAT(world.Ended(true, 1, again), Optional(IsOk()));
}

TEST(Barriers, WhoWaitsComesAgainToTheNextLifeOfServer0) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& second = world.Worker(1);
  const Ticket waits = world.Worker(0).Begin(kWorkers, std::nullopt);
  world.Pass();
  world.Die(false, 0);
  second.Begin(kWorkers, std::nullopt);
  world.Server(0);
  EXPECT_THAT(world.Ended(true, 0, waits), Optional(IsOk()));
}

TEST(Barriers, LostMessagesAreSentAgain) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  world.loses = true;
  const Ticket waits = first.Begin(kWorkers, std::nullopt);
  second.Begin(kWorkers, std::nullopt);
  world.Pass();
  world.loses = false;
  EXPECT_EQ(world.Ended(true, 0, waits), std::nullopt);
  world.Tick();
  EXPECT_THAT(world.Ended(true, 0, waits), Optional(IsOk()));
}

// Members of an earlier run of the job are known for a minute.
TEST(Barriers, ThoseOfAnEarlierRunHaveNotLeftThisOne) {
  for (const bool other_run : {false, true}) {
    BarrierKeeper keeper(1, 5);
    keeper.OnMember({true, 1}, MemberState::kLeft, 2);
    keeper.OnMember({true, 0}, MemberState::kLive, 3);
    const auto ended = [&] {
      keeper.OnMessage({true, 0}, 3, Encode(Arrival{.arrived = 1, .world = 2}));
      return DecodeVerdict(keeper.TakeSends().back().bytes)->ended;
    };
    EXPECT_EQ(ended(), 0u);
    keeper.Resolve(other_run);
    EXPECT_EQ(ended(), other_run ? 0u : 1u);
    keeper.OnMember({true, 1}, MemberState::kLive, 3);
    keeper.OnMember({true, 1}, MemberState::kLeft, 3);
    EXPECT_EQ(ended(), 1u);
  }
}

TEST(Barriers, ACallThatWasGivenUpIsMadeAgainForTheSameBarrier) {
  World world(1, 2);
  world.Server(0);
  BarrierMember& first = world.Worker(0);
  BarrierMember& second = world.Worker(1);
  first.Forget(first.Begin(kWorkers, std::nullopt));
  const Ticket again = first.Begin(kWorkers, std::nullopt);
  EXPECT_EQ(first.WaitsFor(again), "barrier 0 of workers");
  // It has come all the same.
  first.Forget(again);
  world.Pass();
  EXPECT_THAT(world.Ended(true, 1, second.Begin(kWorkers, std::nullopt)), Optional(IsOk()));
  EXPECT_THAT(world.Ended(true, 0, first.Begin(kWorkers, std::nullopt)), Optional(IsOk()));
}

TEST(Barriers, EndWithServer0WhenThatHasLeft) {
  BarrierMember server(2);
  server.OnKeeper(MemberState::kLeft, 4);  // of an earlier run
  const Ticket waits = server.Begin(kServers, std::nullopt);
  EXPECT_TRUE(server.TakeEnded().empty());
  server.OnKeeper(MemberState::kLive, 5);
  EXPECT_EQ(server.TakeSends().size(), 1u);
  server.OnKeeper(MemberState::kLeft, 5);
  const std::vector<BarrierMember::Ended> ended = server.TakeEnded();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].ticket, waits);
  EXPECT_THAT(ended[0].status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("server 0 has left")));
  // Also a call that comes later.
  const Ticket late = server.Begin(kServers, std::nullopt);
  const std::vector<BarrierMember::Ended> again = server.TakeEnded();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].ticket, late);
  EXPECT_EQ(again[0].status, ended[0].status);
  // The next run of the job has its own.
  server.OnKeeper(MemberState::kLive, 6);
  server.TakeSends();
  server.Begin(kServers, std::nullopt);
  EXPECT_TRUE(server.TakeEnded().empty());
  EXPECT_EQ(server.TakeSends().size(), 1u);
}

// Each that waits comes again twice a second, to the thread that also takes rows in.
TEST(Barriers, WhatIsKnownAlreadyCostsNoWalkOverAllTasks) {
  constexpr int kTasks = 100;
  BarrierKeeper keeper(1, 0);
  keeper.SetWorkers(kTasks);
  const auto come = [&](int rank, uint64_t stage) {
    keeper.OnMessage({true, rank}, 0, Encode(Arrival{.arrived = stage, .world = kTasks}));
    std::vector<BarrierKeeper::Send> sends = keeper.TakeSends();
    return sends.empty() ? "nothing" : DecodeVerdict(sends.back().bytes)->missing;
  };
  for (int rank = 0; rank < kTasks - 2; ++rank) come(rank, 1 + rank % 2);
  const std::string missing = come(0, 1);
  EXPECT_EQ(missing, "worker 98 (has not joined), worker 99 (has not joined)");
  EXPECT_THAT(come(1, 2), HasSubstr("worker 0, worker 2, "));
  const uint64_t walks = keeper.walks();
  for (int rank = 0; rank < kTasks - 2; ++rank) {
    const std::string same = come(rank, 1 + rank % 2);
    if (rank % 2 == 0) {
      EXPECT_EQ(same, missing);
    }
  }
  EXPECT_EQ(keeper.walks(), walks);
  // What changes is seen at once: another that comes, and one that dies.
  come(98, 1);
  EXPECT_EQ(come(0, 1), "worker 99 (has not joined)");
  keeper.OnMember({true, 5}, MemberState::kDied, 0);
  EXPECT_EQ(come(0, 1), "worker 5 (died in life 0), worker 99 (has not joined)");
  // A message is the first that is known of its life.
  keeper.OnMessage({true, 5}, 1, Encode(Arrival{.world = kTasks}));
  EXPECT_EQ(come(0, 1), "worker 5, worker 99 (has not joined)");
}

TEST(Barriers, ADescriptionNamesThoseThatWait) {
  World world(1, 12);
  world.Server(0);
  EXPECT_EQ(world.keeper().Describe(), "");
  world.Worker(3).Begin(kWorkers, 7);
  world.Pass();
  EXPECT_EQ(world.keeper().Describe(),
            "barrier 7 of workers: in it worker 3; waits for worker 0 (has not joined), worker 1 "
            "(has not "
            "joined), worker 2 (has not joined), worker 4 (has not joined), worker 5 (has not "
            "joined), worker 6 (has not joined), worker 7 (has not joined), worker 8 (has not "
            "joined) and 3 more\n");
}

TEST(Barriers, MessagesComeBackAsTheyWere) {
  const Arrival arrival = {.group = kAll, .arrived = 5, .ended = 4, .world = 3};
  EXPECT_EQ(DecodeArrival(Encode(arrival)), arrival);
  const Verdict waits = {.group = kServers, .ended = 9, .missing = "worker 2"};
  EXPECT_EQ(DecodeVerdict(Encode(waits)), waits);
  const Verdict fails = {.ended = 1, .why = absl::UnavailableError("dead")};
  EXPECT_EQ(DecodeVerdict(Encode(fails)), fails);
  EXPECT_TRUE(IsBarrierMessage(Encode(arrival)) && IsBarrierMessage(Encode(waits)));
  EXPECT_EQ(DecodeVerdict(Encode(arrival)), std::nullopt);
  EXPECT_EQ(DecodeArrival(Encode(waits)), std::nullopt);
}

TEST(Barriers, WhatIsNoMessageIsIgnored) {
  BarrierKeeper keeper(2, 0);
  BarrierMember member(2);
  member.OnKeeper(MemberState::kLive, 0);
  const std::string whole = Encode(Arrival{.group = kServers, .arrived = 1, .world = 2});
  for (size_t size = 0; size < whole.size(); ++size) {
    keeper.OnMessage({false, 1}, 0, whole.substr(0, size));
  }
  std::string other = whole;
  other[2] = 77;
  keeper.OnMessage({false, 1}, 0, other);
  keeper.OnMessage({false, 7}, 0, whole);
  keeper.OnMessage({false, -1}, 0, whole);
  keeper.OnMessage({true, 0}, 0, whole);  // a worker is none of the servers
  EXPECT_FALSE(IsBarrierMessage("") || IsBarrierMessage("\x01"));
  EXPECT_TRUE(keeper.TakeSends().empty());
  const Ticket waits = member.Begin(kServers, std::nullopt);
  const std::string verdict = Encode(Verdict{.group = kServers, .ended = 1});
  for (size_t size = 0; size < verdict.size(); ++size) {
    member.OnMessage(0, verdict.substr(0, size));
  }
  member.OnMessage(7, verdict);  // of no life that is known
  EXPECT_TRUE(member.TakeEnded().empty());
  member.OnMessage(0, verdict);
  EXPECT_EQ(member.TakeEnded().at(0).ticket, waits);
}

}  // namespace
}  // namespace phalanx::ps::internal
