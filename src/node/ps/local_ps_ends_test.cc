// How servers of a parameter server end: when all workers have left, and when workers never come
// back. On real nodes.
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "src/client/access.h"
#include "src/client/connection/connection.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::TableSpec;
using ps::Worker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalPsEndsTest : public PsFixture {
 protected:
  // Short, because tests wait for it; Join has it as well.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // A member in the role of a worker, which says nothing to the servers.
  Membership JoinAsWorker(int rank) {
    JoinOptions options;
    options.role = "worker";
    options.world = workers_;
    options.timeout = kDeadline;
    clients_.push_back(Connect(0));
    return clients_.back()->Join(job_, absl::StrCat("worker", rank), options).value();
  }
  // What Run of a server returns that waits so long.
  absl::Status RunWithPatience(absl::Duration patience, const TableSpec& spec) {
    peer_timeout_ = patience;
    ps::Server server = JoinServer(0).value();
    EXPECT_THAT(server.AddTable(spec), IsOk());
    return server.Run();
  }

  std::vector<std::shared_ptr<Client>> clients_;
};

TEST_F(LocalPsEndsTest, ANextLifeThatFindsThatAllWorkersHaveLeftEndsAtOnce) {
  Make(/*nodes=*/2, /*servers=*/2, /*workers=*/2);
  // Without clocks there is a snapshot whenever a push is kept.
  const TableSpec spec{.name = "w", .keys = 2, .sync = ps::Sync::kAsp, .snapshot_bytes = 1};
  std::optional<ps::Server> first = JoinServer(0).value();
  ps::Server other = JoinServer(1).value();
  ASSERT_THAT(first->AddTable(spec), IsOk());
  ASSERT_THAT(other.AddTable(spec), IsOk());
  std::thread runs_first([&] {
    EXPECT_THAT(first->Run(), StatusIs(absl::StatusCode::kCancelled));
    first.reset();
  });
  std::thread runs_other([&] { EXPECT_THAT(other.Run(), IsOk()); });
  {
    std::vector<std::optional<Worker>> workers(2);
    std::thread joins([&] { workers[1] = JoinWorker(1).value(); });
    workers[0] = JoinWorker(0).value();
    joins.join();
    for (std::optional<Worker>& worker : workers) {
      PHALANX_ASSERT_OK_AND_ASSIGN(ps::AnyTable table, worker->Open("w"));
      const std::vector<float> ones = {1.0f, 1.0f};
      ASSERT_THAT(table.PushDense(ones.data(), 2 * sizeof(float)).Wait(kDeadline), IsOk());
      // The snapshots have the push: nothing is sent to the server again.
      ASSERT_THAT(table.AwaitRoom(kDeadline), IsOk());
    }
    first->Stop();
    runs_first.join();
    for (std::optional<Worker>& worker : workers) ASSERT_THAT(worker->Leave(), IsOk());
  }
  runs_other.join();
  ps::Server next = JoinServer(0).value();
  EXPECT_EQ(next.life(), 1);
  ASSERT_THAT(next.AddTable(spec), IsOk());
  EXPECT_THAT(next.Run(), IsOk());
}

TEST_F(LocalPsEndsTest, AServerThatDiesInTheSecondRunOfAJobGoesOnFromASnapshotOfThatRun) {
  Make(/*nodes=*/2, /*servers=*/1, /*workers=*/1);
  const TableSpec spec{.name = "w", .keys = 2, .update = ps::Update::kSum, .snapshot_every = 1};
  const std::vector<float> ones = {1.0f, 1.0f};
  const auto makes_clocks = [&](ps::AnyTable table, int clocks) {
    for (int i = 0; i < clocks; ++i) {
      ASSERT_THAT(table.PushDense(ones.data(), 2 * sizeof(float)).Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
    }
  };
  Run({spec}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(ps::AnyTable table, worker.Open("w"));
    makes_clocks(table, 5);
  });
  std::optional<ps::Server> first = JoinServer(0).value();
  ASSERT_THAT(first->AddTable(spec), IsOk());
  std::thread runs([&] {
    EXPECT_THAT(first->Run(), StatusIs(absl::StatusCode::kCancelled));
    first.reset();
  });
  Worker worker = JoinWorker(0).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(ps::AnyTable table, worker.Open("w"));
  makes_clocks(table, 3);
  first->Stop();
  runs.join();
  std::thread runs_next([&] {
    ps::Server next = JoinServer(0).value();
    ASSERT_THAT(next.AddTable(spec), IsOk());
    EXPECT_THAT(next.Run(), IsOk());
  });
  makes_clocks(table, 1);
  std::vector<float> pulled(2);
  EXPECT_THAT(table.PullDense(pulled.data(), 2 * sizeof(float)).Wait(kDeadline), IsOk());
  EXPECT_EQ(pulled, (std::vector<float>{4.0f, 4.0f}));
  EXPECT_THAT(worker.Leave(), IsOk());
  runs_next.join();
}

TEST_F(LocalPsEndsTest, AServerIsNotWithoutWorkersForEver) {
  Make(1, 1, 2);
  const TableSpec spec{.name = "w", .keys = 2};
  EXPECT_THAT(RunWithPatience(kPatience, spec),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no task of role worker")));

  EXPECT_THAT(JoinAsWorker(0).Fail(), IsOk());
  EXPECT_THAT(RunWithPatience(kPatience, spec),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("worker 0 has died in life 0, worker 1 has not joined")));
}

TEST_F(LocalPsEndsTest, AServerWhoseTablesDropWorkersEndsWithoutThoseThatHaveDied) {
  Make(1, 1, 2);
  EXPECT_THAT(JoinAsWorker(0).Fail(), IsOk());
  EXPECT_THAT(JoinAsWorker(1).Leave(), IsOk());
  EXPECT_THAT(
      RunWithPatience(kPatience, {.name = "w", .keys = 2}),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("worker 0 has died in life 0")));
  EXPECT_THAT(RunWithPatience(kPatience, {.name = "w", .keys = 2, .on_loss = ps::OnLoss::kDrop}),
              IsOk());
}

TEST_F(LocalPsEndsTest, AConnectionThatIsClosedKeepsNoTimerOfAWorker) {
  Make(1, 1, 1);
  // It has joined and does not run, so the worker probes it until the time is over.
  const ps::Server server = JoinServer(0).value();
  std::shared_ptr<Client> client = Connect(0);
  const std::weak_ptr<phalanx::internal::Connection> connection =
      phalanx::internal::Access::ConnectionOf(*client);
  ps::Options options;
  options.job = job_;
  options.task = "worker0";
  options.world = 1;
  options.peer_timeout = absl::Milliseconds(100);
  EXPECT_THAT(Worker::Join(*client, options),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("servers 0")));
  ASSERT_FALSE(connection.expired());
  client.reset();
  EXPECT_TRUE(connection.expired());
}

}  // namespace
}  // namespace phalanx::runtime
