// Servers, workers and nodes that end while a parameter server works, on real nodes.
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "src/common/random.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Worker;
using testing::IsOk;
using testing::StatusIs;

class LocalPsDeathsTest : public PsFixture {
 protected:
  // A server whose lives are ended by EndLife until the job is done.
  class Lives {
   public:
    Lives(const PsFixture&, std::function<absl::StatusOr<ps::Server>(int life)> join,
          std::vector<TableSpec> tables)
        : thread_([this, join = std::move(join), tables = std::move(tables)] {
            for (int life = 0;; ++life) {
              absl::StatusOr<ps::Server> server = join(life);
              ASSERT_THAT(server, IsOk());
              for (const TableSpec& spec : tables) ASSERT_THAT(server->AddTable(spec), IsOk());
              {
                const std::lock_guard<std::mutex> lock(mu_);
                running_ = &*server;
              }
              const absl::Status status = server->Run();
              const std::lock_guard<std::mutex> lock(mu_);
              running_ = nullptr;
              if (status.ok()) return;
              ++ended_;
            }
          }) {}
    ~Lives() { thread_.join(); }
    // Ends the server's life, if it runs.
    void EndLife() {
      const std::lock_guard<std::mutex> lock(mu_);
      if (running_ != nullptr) running_->Stop();
    }
    int ended() const { return ended_; }

   private:
    std::mutex mu_;
    ps::Server* running_ = nullptr;
    std::atomic<int> ended_ = 0;
    std::thread thread_;
  };

  size_t size_ = 500;
  static constexpr uint64_t kClocks = 40;

  // One life of a worker, with kBsp: pulls, compares with a serial replay, pushes.
  // `go_on` returns false where the life is to end.
  void WorkLikeASerialReplay(Worker& worker,
                             const std::function<bool(uint64_t clock, int step)>& go_on) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(size_);
    while (table.clock() < kClocks) {
      if (!go_on(table.clock(), 0)) return;
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      ASSERT_TRUE(SameBits(values, Replayed(table.clock(), size_)))
          << "worker " << worker.rank() << ", life " << worker.life() << ", clock "
          << table.clock();
      if (!go_on(table.clock(), 1)) return;
      const Future<Done> push = table.PushDense(PushOf(worker.rank(), table.clock(), size_));
      if (!go_on(table.clock(), 2)) return;
      ASSERT_THAT(push.Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
    }
    ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
    EXPECT_TRUE(SameBits(values, Replayed(kClocks, size_)));
    EXPECT_THAT(worker.Leave(), IsOk());
  }
};

// Tables whose rows travel in messages, as objects, and in rings. Where two tasks are at one node
// the slices of these are summed each by itself.
class LocalPsLivesTest : public LocalPsDeathsTest, public ::testing::WithParamInterface<size_t> {
 protected:
  static constexpr size_t kRing = 600'000;
  void SetUp() override { size_ = GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, LocalPsLivesTest, ::testing::Values(500, 40'000, 600'000));

TEST_P(LocalPsLivesTest, AServerIsEndedAgainAndAgain) {
  Make(/*nodes=*/3, /*servers=*/2, /*workers=*/3);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 3};
  Lives server0(*this, [this](int) { return JoinServer(0); }, {spec});
  Lives server1(*this, [this](int) { return JoinServer(1); }, {spec});
  std::vector<std::thread> workers;
  for (int rank = 0; rank < workers_; ++rank) {
    workers.emplace_back([&, rank] {
      absl::StatusOr<Worker> worker = JoinWorker(rank);
      ASSERT_THAT(worker, IsOk());
      WorkLikeASerialReplay(*worker, [&](uint64_t clock, int step) {
        if (rank == 0 && clock % 7 == 3 && step == static_cast<int>(clock % 3)) {
          (clock % 2 == 0 ? server0 : server1).EndLife();
        }
        return true;
      });
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_GE(server0.ended() + server1.ended(), 4);
}

TEST_P(LocalPsLivesTest, AServersNodeEndsAndItsNextLifeIsElsewhere) {
  Make(3, 1, 2);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 2};
  Lives server(*this, [this](int life) { return JoinServer(0, life == 0 ? 2 : 0); }, {spec});
  std::vector<std::thread> workers;
  for (int rank = 0; rank < workers_; ++rank) {
    workers.emplace_back([&, rank] {
      absl::StatusOr<Worker> worker = JoinWorker(rank, rank);
      ASSERT_THAT(worker, IsOk());
      WorkLikeASerialReplay(*worker, [&](uint64_t clock, int step) {
        if (rank == 0 && clock == 15 && step == 1) cluster_->KillNode(2);
        return true;
      });
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(server.ended(), 1);
}

TEST_P(LocalPsLivesTest, WorkersAreEndedAtEachStep) {
  Make(3, 2, 3);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 5};
  Lives server0(*this, [this](int) { return JoinServer(0); }, {spec});
  Lives server1(*this, [this](int) { return JoinServer(1); }, {spec});
  std::vector<std::thread> workers;
  std::atomic<int> deaths = 0;
  for (int rank = 0; rank < workers_; ++rank) {
    workers.emplace_back([&, rank] {
      for (bool done = false; !done;) {
        absl::StatusOr<Worker> worker = JoinWorker(rank);
        ASSERT_THAT(worker, IsOk());
        const uint64_t life = worker->life();
        done = true;
        WorkLikeASerialReplay(*worker, [&](uint64_t clock, int step) {
          const bool dies = life < 3 && clock == 5 * (life + 1) + static_cast<uint64_t>(rank) &&
                            step == static_cast<int>(life);
          if (dies) done = false;
          return !dies;
        });
        if (!done) ++deaths;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(deaths, 9);
}

// What it has pushed ends with its node: in a clock that it has not ended, and in one that it has.
TEST_P(LocalPsLivesTest, AWorkersNodeEnds) {
  // A ring that breaks is one of tasks at nodes of their own.
  const bool ring = size_ == kRing;
  Make(ring ? 4 : 3, ring ? 1 : 2, 3);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 5};
  Lives server0(*this, [&](int) { return JoinServer(0, ring ? 3 : 0); }, {spec});
  std::optional<Lives> server1;
  if (!ring)
    server1.emplace(
        *this, [this](int) { return JoinServer(1, 1); }, std::vector{spec});
  std::vector<std::thread> workers;
  for (int rank = 0; rank < workers_; ++rank) {
    workers.emplace_back([&, rank] {
      for (bool done = false; !done;) {
        absl::StatusOr<Worker> worker = JoinWorker(rank, rank);
        ASSERT_THAT(worker, IsOk());
        const uint64_t life = worker->life();
        done = true;
        WorkLikeASerialReplay(*worker, [&](uint64_t clock, int step) {
          const bool dies =
              rank == 2 && life < 4 && clock == 5 * (life + 1) && step == (life % 2 == 0 ? 2 : 0);
          if (dies) cluster_->KillNode(2);
          if (dies) done = false;
          return !dies;
        });
        if (done) continue;
        ASSERT_THAT(cluster_->RestartNode(2), IsOk());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(LocalPsLivesTest, AWorkerAndAServerEndTogether) {
  Make(2, 1, 1);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 3};
  Lives server(*this, [this](int) { return JoinServer(0); }, {spec});
  for (bool done = false; !done;) {
    absl::StatusOr<Worker> worker = JoinWorker(0);
    ASSERT_THAT(worker, IsOk());
    done = true;
    WorkLikeASerialReplay(*worker, [&](uint64_t clock, int) {
      if (worker->life() < 2 && clock == 10 * (worker->life() + 1)) {
        server.EndLife();
        done = false;
      }
      return done;
    });
  }
  EXPECT_EQ(server.ended(), 2);
}

TEST_P(LocalPsLivesTest, AServerWithoutSnapshotsIsAnErrorOnAllWorkers) {
  Make(2, 1, 2);
  const TableSpec spec{.name = "w", .keys = size_, .snapshot_every = 0};
  Lives server(*this, [this](int) { return JoinServer(0); }, {spec});
  std::atomic<int> failed = 0;
  std::vector<std::thread> workers;
  for (int rank = 0; rank < workers_; ++rank) {
    workers.emplace_back([&, rank] {
      absl::StatusOr<Worker> worker = JoinWorker(rank);
      ASSERT_THAT(worker, IsOk());
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
      std::vector<float> values(size_);
      absl::Status status;
      for (uint64_t clock = 0; status.ok() && clock < 1000; ++clock) {
        if (rank == 0 && clock == 5) server.EndLife();
        status = table.PushDense(PushOf(rank, clock, size_)).Wait(kDeadline).status();
        if (status.ok()) status = table.Clock();
        if (status.ok()) status = table.PullDense(absl::MakeSpan(values)).Wait(kDeadline).status();
      }
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
      EXPECT_THAT(std::string(status.message()),
                  ::testing::AllOf(::testing::HasSubstr("server 0"), ::testing::HasSubstr("w")));
      EXPECT_THAT(worker->Leave(), IsOk());
      ++failed;
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(failed, 2);
}

TEST_F(LocalPsDeathsTest, ATableCanDropAWorkerThatEnds) {
  Make(2, 2, 3);
  const TableSpec spec{.name = "w", .keys = 1, .on_loss = ps::OnLoss::kDrop};
  Run({spec}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    const std::vector<float> one = {1.0f};
    std::vector<float> sum(1);
    for (int clock = 0; clock < 5; ++clock) {
      table.PushDense(one);
      ASSERT_THAT(table.Clock(), IsOk());
    }
    if (worker.rank() == 2) return;  // it leaves, as the others count on
    ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
    EXPECT_EQ(sum[0], 15.0f);
    table.PushDense(one);
    ASSERT_THAT(table.Clock(), IsOk());
    ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
    EXPECT_EQ(sum[0], 17.0f);
  });
}

TEST_F(LocalPsDeathsTest, ATableThatIsToFailNamesTheWorker) {
  Make(2, 1, 2);
  const TableSpec spec{.name = "w", .keys = 1, .on_loss = ps::OnLoss::kFail};
  Lives server(*this, [this](int) { return JoinServer(0); }, {spec});
  std::optional<Worker> first, second;
  first = JoinWorker(0).value();
  second = JoinWorker(1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, first->Open<float>("w"));
  table.PushDense(std::vector<float>{1.0f});
  ASSERT_THAT(table.Clock(), IsOk());
  std::vector<float> sum(1);
  const Future<Done> waits = table.PullDense(absl::MakeSpan(sum));
  second.reset();
  const absl::Status status = waits.Wait(kDeadline).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("worker 1"));
  // The program can see it, too.
  const std::vector<Member> workers = first->Members("");
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].state, MemberState::kLive);
  EXPECT_EQ(workers[1].state, MemberState::kDied);
  EXPECT_EQ(first->Members("server").size(), 1u);
  EXPECT_EQ(first->Members("server")[0].state, MemberState::kLive);
  second = JoinWorker(1).value();
  EXPECT_THAT(second->Leave(), IsOk());
  EXPECT_THAT(first->Leave(), IsOk());
}

TEST_F(LocalPsDeathsTest, AWorkerWithoutClocksGoesOnWithNewPushes) {
  Make(2, 2, 1);
  const TableSpec spec{.name = "w", .keys = 10, .sync = Sync::kAsp};
  Lives server0(*this, [this](int) { return JoinServer(0); }, {spec});
  Lives server1(*this, [this](int) { return JoinServer(1); }, {spec});
  const std::vector<float> ones(10, 1.0f);
  for (uint64_t life = 0; life < 3; ++life) {
    absl::StatusOr<Worker> worker = JoinWorker(0);
    ASSERT_THAT(worker, IsOk());
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
    EXPECT_EQ(table.SkipPushed(), 3 * life);
    for (int i = 0; i < 3; ++i) ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
    std::vector<float> sum(10);
    ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
    EXPECT_EQ(sum, std::vector<float>(10, 3.0f * static_cast<float>(life + 1)));
    if (life == 2) {
      EXPECT_THAT(worker->Leave(), IsOk());
    }
  }
}

TEST_F(LocalPsDeathsTest, AServerThatStaysAwayIsNamedAtTheDeadline) {
  Make(1, 1, 1);
  std::optional<ps::Server> server = JoinServer(0).value();
  ASSERT_THAT(server->AddTable({.name = "w", .keys = 1}), IsOk());
  std::thread runs([&] {
    EXPECT_THAT(server->Run(), StatusIs(absl::StatusCode::kCancelled));
    server.reset();
  });
  absl::StatusOr<Worker> worker = JoinWorker(0);
  ASSERT_THAT(worker, IsOk());
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
  server->Stop();
  runs.join();
  std::vector<float> sum(1);
  const absl::Status late = table.PullDense(absl::MakeSpan(sum)).Wait(absl::Seconds(1)).status();
  EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(late.message()),
              ::testing::HasSubstr("table \"w\" of worker 0 at clock 0: server 0 ("));
  const absl::Status asked = worker->Request(0, 0, "").Wait(absl::Milliseconds(100)).status();
  EXPECT_THAT(asked, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(asked.message()), ::testing::HasSubstr("server 0 ("));
}

}  // namespace
}  // namespace phalanx::runtime
