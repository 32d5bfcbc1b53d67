// Barriers of servers and workers on real nodes.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::BarrierGroup;
using ps::OnLoss;
using ps::TableSpec;
using ps::Worker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalPsBarriersTest : public PsFixture {
 protected:
  const TableSpec table_ = {.name = "w", .keys = 10};
};

TEST_F(LocalPsBarriersTest, GroupsHaveBarriersOfTheirOwn) {
  Make(/*nodes=*/3, /*servers=*/3, /*workers=*/4);
  std::atomic<int> servers = 0, workers = 0, both = 0;
  RunServers(
      [&](ps::Server& server) {
        ASSERT_THAT(server.AddTable(table_), IsOk());
        ++servers;
        ASSERT_THAT(server.Barrier(BarrierGroup::kServers), IsOk());
        EXPECT_EQ(servers, servers_);
        EXPECT_THAT(server.Barrier(BarrierGroup::kWorkers),
                    StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of group")));
      },
      [&](Worker& worker) {
        EXPECT_EQ(servers, servers_);  // Join waits for Run
        for (int round = 1; round <= 20; ++round) {
          ++workers;
          ASSERT_THAT(worker.Barrier(), IsOk());
          EXPECT_GE(workers, round * workers_);
          ASSERT_THAT(worker.Barrier(), IsOk());
        }
        EXPECT_THAT(worker.Barrier(BarrierGroup::kServers),
                    StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of group")));
        ++both;
      });
  EXPECT_EQ(both, workers_);
}

// Each server has a thread for it, as its own is in Run.
TEST_F(LocalPsBarriersTest, ServersThatRunAndWorkersWaitForEachOther) {
  Make(2, 2, 2);
  constexpr int kRounds = 10;
  std::atomic<int> come = 0;
  std::vector<std::thread> threads;
  const auto rounds = [&](auto& task) {
    for (int round = 0; round < kRounds; ++round) {
      ++come;
      ASSERT_THAT(task.Barrier(BarrierGroup::kAll, {.epoch = round}), IsOk());
      EXPECT_GE(come, (round + 1) * (servers_ + workers_));
    }
  };
  RunServers(
      [&](ps::Server& server) {
        ASSERT_THAT(server.AddTable(table_), IsOk());
        threads.emplace_back([&] { rounds(server); });
        // The other server's thread is made by then.
        ASSERT_THAT(server.Barrier(BarrierGroup::kServers), IsOk());
      },
      [&](Worker& worker) { rounds(worker); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LocalPsBarriersTest, ANextLifePassesWhatHasEndedAndIsWaitedForWhereItHasDied) {
  Make(2, 1, 2);
  std::thread server([&] {
    absl::StatusOr<ps::Server> server = JoinServer(0);
    ASSERT_THAT(server, IsOk());
    ASSERT_THAT(server->AddTable(table_), IsOk());
    EXPECT_THAT(server->Run(), IsOk());
  });
  std::atomic<bool> again = false;
  absl::Notification rejoined;
  std::thread dies([&] {
    {
      absl::StatusOr<Worker> worker = JoinWorker(1);
      ASSERT_THAT(worker, IsOk());
      ASSERT_THAT(worker->Barrier(), IsOk());
      // It has come to the next one when it dies.
      EXPECT_THAT(worker->Barrier(BarrierGroup::kWorkers, {.timeout = absl::Seconds(1)}),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           HasSubstr("worker 1 of job train: barrier 1 of workers waits for worker "
                                     "0")));
    }
    absl::StatusOr<Worker> worker = JoinWorker(1);
    ASSERT_THAT(worker, IsOk());
    EXPECT_EQ(worker->life(), 1u);
    rejoined.Notify();
    ASSERT_THAT(worker->Barrier(BarrierGroup::kWorkers, {.timeout = absl::Seconds(20)}), IsOk());
    again = true;
    ASSERT_THAT(worker->Barrier(), IsOk());
    EXPECT_THAT(worker->Leave(), IsOk());
  });
  absl::StatusOr<Worker> worker = JoinWorker(0);
  ASSERT_THAT(worker, IsOk());
  ASSERT_THAT(worker->Barrier(), IsOk());
  rejoined.WaitForNotification();
  ASSERT_THAT(worker->Barrier(), IsOk());
  EXPECT_TRUE(again);
  EXPECT_THAT(worker->Leave(), IsOk());
  dies.join();
  server.join();
}

TEST_F(LocalPsBarriersTest, WaitForTheNextLifeOfServer0) {
  Make(2, 2, 2);
  absl::Notification waits, ended;
  std::thread server0([&] {
    for (int life = 0; life < 2; ++life) {
      absl::StatusOr<ps::Server> server = JoinServer(0);
      ASSERT_THAT(server, IsOk());
      ASSERT_THAT(server->AddTable(table_), IsOk());
      if (life == 0) {
        std::thread stops([&] {
          waits.WaitForNotification();
          server->Stop();
        });
        EXPECT_THAT(server->Run(), StatusIs(absl::StatusCode::kCancelled));
        stops.join();
      } else {
        ended.Notify();
        EXPECT_THAT(server->Run(), IsOk());
      }
    }
  });
  std::thread server1([&] {
    absl::StatusOr<ps::Server> server = JoinServer(1);
    ASSERT_THAT(server, IsOk());
    ASSERT_THAT(server->AddTable(table_), IsOk());
    EXPECT_THAT(server->Run(), IsOk());
  });
  std::thread worker1([&] {
    absl::StatusOr<Worker> worker = JoinWorker(1);
    ASSERT_THAT(worker, IsOk());
    ASSERT_THAT(worker->Barrier(), IsOk());
    ended.WaitForNotification();
    ASSERT_THAT(worker->Barrier(), IsOk());
    EXPECT_THAT(worker->Leave(), IsOk());
  });
  absl::StatusOr<Worker> worker = JoinWorker(0);
  ASSERT_THAT(worker, IsOk());
  ASSERT_THAT(worker->Barrier(), IsOk());
  const Future<Done> barrier = worker->BarrierAsync();
  EXPECT_THAT(barrier.Wait(absl::Milliseconds(700)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("barrier 1 of workers waits for worker 1")));
  waits.Notify();
  EXPECT_THAT(barrier.Wait(kDeadline), IsOk());
  // Also this is known to the new life.
  EXPECT_THAT(worker->Barrier(BarrierGroup::kWorkers, {.epoch = 0}), IsOk());
  EXPECT_THAT(worker->Leave(), IsOk());
  worker1.join();
  server0.join();
  server1.join();
}

TEST_F(LocalPsBarriersTest, AWorkerThatHasDiedIsDroppedOrFailsAsTheTablesSay) {
  for (const OnLoss on_loss : {OnLoss::kDrop, OnLoss::kFail}) {
    Make(1, 1, 2);
    job_ = on_loss == OnLoss::kDrop ? "drop" : "fail";
    TableSpec spec = table_;
    spec.on_loss = on_loss;
    std::thread server([&] {
      absl::StatusOr<ps::Server> server = JoinServer(0);
      ASSERT_THAT(server, IsOk());
      ASSERT_THAT(server->AddTable(spec), IsOk());
      EXPECT_THAT(server->Run(), IsOk());
    });
    std::optional<absl::StatusOr<Worker>> dies = JoinWorker(1);
    ASSERT_THAT(*dies, IsOk());
    absl::StatusOr<Worker> worker = JoinWorker(0);
    ASSERT_THAT(worker, IsOk());
    const Future<Done> barrier = worker->BarrierAsync();
    EXPECT_THAT(barrier.Wait(absl::Milliseconds(10)),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    dies.reset();
    if (on_loss == OnLoss::kDrop) {
      EXPECT_THAT(barrier.Wait(kDeadline), IsOk());
    } else {
      EXPECT_THAT(barrier.Wait(kDeadline),
                  StatusIs(absl::StatusCode::kUnavailable,
                           HasSubstr("barrier 0 of workers: worker 1 has died in life 0")));
    }
    // The server waits for it.
    absl::StatusOr<Worker> again = JoinWorker(1);
    ASSERT_THAT(again, IsOk());
    EXPECT_THAT(again->Leave(), IsOk());
    EXPECT_THAT(worker->Leave(), IsOk());
    server.join();
  }
}

// For a minute its tasks are known as those that have left.
TEST_F(LocalPsBarriersTest, AJobThatRunsAgainHasNewBarriers) {
  Make(1, 1, 2);
  for (int run = 0; run < 2; ++run) {
    std::thread server([&] {
      absl::StatusOr<ps::Server> server = JoinServer(0);
      ASSERT_THAT(server, IsOk());
      ASSERT_THAT(server->AddTable(table_), IsOk());
      // In the second run it has to know that the workers have not left that one.
      const Future<Done> all = server->BarrierAsync(BarrierGroup::kAll);
      EXPECT_THAT(server->Run(), IsOk());
      EXPECT_THAT(all.Wait(kDeadline), IsOk());
    });
    absl::Notification tried;
    std::thread other([&] {
      tried.WaitForNotification();
      absl::StatusOr<Worker> worker = JoinWorker(1);
      ASSERT_THAT(worker, IsOk());
      ASSERT_THAT(worker->Barrier(BarrierGroup::kAll), IsOk());
      EXPECT_THAT(worker->Leave(), IsOk());
    });
    absl::StatusOr<Worker> worker = JoinWorker(0);
    ASSERT_THAT(worker, IsOk());
    EXPECT_THAT(worker->Barrier(BarrierGroup::kAll, {.timeout = absl::Seconds(1)}),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("waits for worker 1 (has not joined)")));
    tried.Notify();
    // The same barrier again.
    EXPECT_THAT(worker->Barrier(BarrierGroup::kAll), IsOk());
    EXPECT_THAT(worker->Leave(), IsOk());
    other.join();
    server.join();
  }
}

// In its own thread a server would wait for workers, which join only when all servers run.
TEST_F(LocalPsBarriersTest, ABarrierOfAllThatIsBegunBeforeRunEndsWhileItRuns) {
  Make(1, 2, 2);
  std::atomic<int> servers = 0;
  RunServers(
      [&](ps::Server& server) {
        ASSERT_THAT(server.AddTable(table_), IsOk());
        ++servers;
        const Future<Done> all = server.BarrierAsync(BarrierGroup::kAll);
        EXPECT_THAT(all.Wait(absl::Milliseconds(100)),
                    StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("barrier 0 of all")));
        EXPECT_THAT(server.Barrier(BarrierGroup::kServers), IsOk());
      },
      [&](Worker& worker) {
        EXPECT_THAT(worker.Barrier(BarrierGroup::kAll), IsOk());
        EXPECT_EQ(servers, servers_);
      });
}

TEST_F(LocalPsBarriersTest, EndWithTheirWorker) {
  Make(1, 1, 1);
  std::thread server([&] {
    absl::StatusOr<ps::Server> server = JoinServer(0);
    ASSERT_THAT(server, IsOk());
    ASSERT_THAT(server->AddTable(table_), IsOk());
    EXPECT_THAT(server->Run(), IsOk());
  });
  absl::StatusOr<Worker> worker = JoinWorker(0);
  ASSERT_THAT(worker, IsOk());
  // The server does not come.
  const Future<Done> cancelled = worker->BarrierAsync(BarrierGroup::kAll);
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(kDeadline), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(worker->Barrier(BarrierGroup::kAll, {.epoch = UINT64_MAX}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("epoch")));
  const Future<Done> waits = worker->BarrierAsync(BarrierGroup::kAll);
  EXPECT_THAT(worker->Leave(), IsOk());
  EXPECT_FALSE(waits.Wait(kDeadline).ok());
  EXPECT_FALSE(worker->Barrier().ok());
  server.join();
}

}  // namespace
}  // namespace phalanx::runtime
