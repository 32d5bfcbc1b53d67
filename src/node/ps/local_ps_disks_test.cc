// Parameter servers that go on from disks when all processes and nodes have ended.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Key;
using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Worker;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalPsDisksTest : public PsFixture {
 protected:
  static constexpr size_t kSize = 500;
  static constexpr uint64_t kClocks = 30;
  static constexpr uint64_t kNever = ~uint64_t{0};

  LocalPsDisksTest() : root_(absl::StrCat(::testing::TempDir(), "/ps-disks-", getpid())) {}
  ~LocalPsDisksTest() override { std::filesystem::remove_all(root_); }

  // Each server has a disk of its own.
  void MakeDisks(int nodes, int servers, int workers, int shards = 1) {
    Make(nodes, servers, workers, shards);
    checkpoint_dirs_.clear();
    for (int server = 0; server < servers; ++server) {
      checkpoint_dirs_.push_back(absl::StrCat(root_, "/", server));
      std::filesystem::create_directories(checkpoint_dirs_.back());
    }
  }
  std::vector<std::string> FilesOf(int server) const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint_dirs_[server])) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  static uint64_t StateOf(const std::string& path) {
    return std::stoull(path.substr(path.rfind('_') + 1));
  }
  // Unless it is the only one.
  void RemoveNewest(int server) const {
    std::vector<std::string> files = FilesOf(server);
    std::sort(files.begin(), files.end(),
              [](const std::string& a, const std::string& b) { return StateOf(a) < StateOf(b); });
    if (files.size() > 1) std::filesystem::remove(files.back());
  }

  // New nodes; also new shards, unless they or all of them live on.
  void BeginRun() {
    if (nodes_live_ && cluster_ != nullptr) return;
    if (!shards_live_) return Make(2, servers_, workers_);
    for (int node = 0; node < cluster_->nodes(); ++node) {
      if (!cluster_->node_runs(node)) {
        ASSERT_THAT(cluster_->RestartNode(node), IsOk());
      }
    }
  }
  void EndRun() {
    if (nodes_live_) return;
    if (!shards_live_) return cluster_.reset();
    for (int node = 0; node < cluster_->nodes(); ++node) cluster_->KillNode(node);
  }

  // One run on new nodes: until the job has ended, or until worker 0 comes to the clock in which
  // everything ends. Returns what Run has returned, by server.
  std::vector<absl::Status> RunUntil(
      uint64_t fatal, const std::function<void(ps::Server&)>& prepare,
      const std::function<bool(Worker&, const std::atomic<bool>&,
                               const std::function<bool(uint64_t)>&)>& work) {
    BeginRun();
    std::vector<std::unique_ptr<ps::Server>> servers;
    for (int rank = 0; rank < servers_; ++rank) {
      servers.push_back(std::make_unique<ps::Server>(JoinServer(rank).value()));
      prepare(*servers.back());
    }
    std::atomic<bool> dead = false;
    std::vector<absl::Status> ended(servers_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < servers_; ++rank) {
      threads.emplace_back([&, rank] { ended[rank] = servers[rank]->Run(); });
    }
    const auto die = [&](uint64_t clock) {
      if (clock != fatal) return dead.load();
      if (dead.exchange(true)) return true;
      for (const auto& server : servers) server->Stop();
      return true;
    };
    for (int rank = 0; rank < workers_; ++rank) {
      threads.emplace_back([&, rank] {
        absl::StatusOr<Worker> worker = JoinWorker(rank);
        if (!worker.ok()) return;
        if (work(*worker, dead, die)) {
          EXPECT_THAT(worker->Leave(), IsOk());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    servers.clear();
    EndRun();
    return ended;
  }

  // With kBsp: each pull has the bits of a serial replay. Notes the first clock.
  std::vector<absl::Status> Replay(uint64_t fatal, const TableSpec& spec, uint64_t* first) {
    std::atomic<uint64_t> least = kNever;
    const std::vector<absl::Status> ended = RunUntil(
        fatal, [&](ps::Server& server) { ASSERT_THAT(server.AddTable(spec), IsOk()); },
        [&](Worker& worker, const std::atomic<bool>& dead, const auto& die) {
          const Table<float> table = worker.Open<float>("w").value();
          uint64_t before = least;
          while (table.clock() < before && !least.compare_exchange_weak(before, table.clock())) {
          }
          std::vector<float> values(kSize);
          while (true) {
            const uint64_t clock = table.clock();
            const Future<Done> pull = table.PullDense(absl::MakeSpan(values));
            while (!pull.Wait(absl::Milliseconds(100)).ok()) {
              if (dead || !worker.status().ok()) return false;
            }
            EXPECT_TRUE(SameBits(values, SerialSum(workers_, clock, kSize)))
                << "worker " << worker.rank() << ", clock " << clock;
            if (clock == kClocks) return true;
            table.PushDense(PushOf(worker.rank(), clock, kSize));
            if (worker.rank() == 0 ? die(clock) : dead.load()) return false;
            EXPECT_THAT(table.Clock(), IsOk());
          }
        });
    if (first != nullptr) *first = least;
    return ended;
  }

  // Servers on new nodes that begin, with workers that do nothing. `all`: until each has ended;
  // else until one has. Returns what Run has returned, by server.
  std::vector<absl::Status> Refused(const TableSpec& spec, bool all) {
    Make(2, servers_, workers_);
    std::vector<Membership> workers;
    for (int rank = 0; rank < workers_; ++rank) {
      workers.push_back(
          Connect(0)->Join(job_, absl::StrCat("worker", rank), {.world = workers_}).value());
    }
    std::vector<std::unique_ptr<ps::Server>> servers;
    for (int rank = 0; rank < servers_; ++rank) {
      servers.push_back(std::make_unique<ps::Server>(JoinServer(rank).value()));
      EXPECT_THAT(servers.back()->AddTable(spec), IsOk());
    }
    std::vector<absl::Status> ended(servers_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < servers_; ++rank) {
      threads.emplace_back([&, rank] {
        ended[rank] = servers[rank]->Run();
        if (all) return;
        for (const auto& server : servers) server->Stop();
      });
    }
    for (std::thread& thread : threads) thread.join();
    servers.clear();
    workers.clear();
    cluster_.reset();
    return ended;
  }

  const std::string root_;
  bool shards_live_ = false;
  bool nodes_live_ = false;
};

TEST_F(LocalPsDisksTest, AJobOfWhichAllHasEndedGoesOnWithTheSameBits) {
  MakeDisks(2, 2, 3);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  uint64_t before = 0;
  for (const uint64_t fatal :
       {uint64_t{0}, uint64_t{2}, uint64_t{3}, uint64_t{8}, uint64_t{15}, uint64_t{16}, kNever}) {
    uint64_t first = 0;
    const std::vector<absl::Status> ended = Replay(fatal, spec, &first);
    EXPECT_EQ(first % 3, 0u);
    // A server can be a clock behind, and has lost its newest state.
    EXPECT_GE(first + 7, before);
    for (const absl::Status& status : ended) {
      EXPECT_THAT(status,
                  StatusIs(fatal == kNever ? absl::StatusCode::kOk : absl::StatusCode::kCancelled));
    }
    before = fatal;
    // As if it had died before it wrote that.
    if (fatal != kNever) RemoveNewest(static_cast<int>(fatal % 2));
  }
  // The job has ended.
  for (int server = 0; server < servers_; ++server) EXPECT_TRUE(FilesOf(server).empty());
}

TEST_F(LocalPsDisksTest, RowsWithLengthsGoOnFromDisks) {
  MakeDisks(2, 2, 2);
  const TableSpec spec{
      .name = "w", .width = 5, .lengths = true, .split = ps::Split::kHash, .snapshot_every = 3};
  const std::vector<Key> keys = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  const auto length_of = [](Key key, uint64_t clock) {
    return static_cast<uint32_t>((key + clock * clock) % 6);
  };
  const auto row_of = [&](Key key, uint64_t clocks) {
    std::vector<float> row;
    for (uint64_t clock = 0; clock < clocks; ++clock) {
      const uint32_t length = length_of(key, clock);
      if (length > row.size()) row.resize(length);
      for (uint32_t i = 0; i < length; ++i) row[i] += static_cast<float>(workers_);
    }
    return row;
  };
  std::atomic<uint64_t> first = 0;
  const auto work = [&](Worker& worker, const std::atomic<bool>& dead, const auto& die) {
    const Table<float> table = worker.Open<float>("w").value();
    first = table.clock();
    while (true) {
      const uint64_t clock = table.clock();
      const Future<ps::PulledRows> pull = table.Pull(keys);
      absl::StatusOr<ps::PulledRows> rows = absl::UnavailableError("");
      while (!(rows = pull.Wait(absl::Milliseconds(100))).ok()) {
        if (dead || !worker.status().ok()) return false;
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_EQ(rows->row<float>(i), absl::MakeConstSpan(row_of(keys[i], clock))) << clock;
      }
      if (clock == kClocks) return true;
      std::vector<uint32_t> lengths;
      for (const Key key : keys) lengths.push_back(length_of(key, clock));
      const size_t elements = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
      table.Push(keys, std::vector<float>(elements, 1.0f), lengths);
      if (worker.rank() == 0 ? die(clock) : dead.load()) return false;
      EXPECT_THAT(table.Clock(), IsOk());
    }
  };
  for (const uint64_t fatal : {uint64_t{7}, uint64_t{16}, kNever}) {
    const std::vector<absl::Status> ended = RunUntil(
        fatal, [&](ps::Server& server) { ASSERT_THAT(server.AddTable(spec), IsOk()); }, work);
    for (const absl::Status& status : ended) {
      EXPECT_THAT(status,
                  StatusIs(fatal == kNever ? absl::StatusCode::kOk : absl::StatusCode::kCancelled));
    }
  }
  EXPECT_GE(first, 9u) << "the last run has gone on from files";
}

TEST_F(LocalPsDisksTest, ADirectoryCanBeThatOfAllServers) {
  MakeDisks(2, 3, 2);
  checkpoint_dirs_ = std::vector<std::string>(3, checkpoint_dirs_[0]);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 1};
  Replay(10, spec, nullptr);
  uint64_t first = 0;
  Replay(kNever, spec, &first);
  EXPECT_GE(first, 8u);
}

// Shards remember which scopes of the run before have ended.
TEST_F(LocalPsDisksTest, AJobGoesOnFromDisksWhileTheShardsLive) {
  for (const int shards : {1, 3}) {
    MakeDisks(2, 2, 3, shards);
    shards_live_ = true;
    const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
    uint64_t before = 0;
    for (const uint64_t fatal : {uint64_t{8}, uint64_t{13}, uint64_t{20}, kNever}) {
      uint64_t first = 0;
      for (const absl::Status& status : Replay(fatal, spec, &first)) {
        EXPECT_THAT(status, StatusIs(fatal == kNever ? absl::StatusCode::kOk
                                                     : absl::StatusCode::kCancelled));
      }
      EXPECT_GE(first + 4, before);
      before = fatal;
    }
    for (int server = 0; server < servers_; ++server) EXPECT_TRUE(FilesOf(server).empty());
    cluster_.reset();
    shards_live_ = false;
  }
}

// The servers go on from snapshots in the store, which can be of different clocks, while one has a
// file that is further ahead.
TEST_F(LocalPsDisksTest, AJobThatHasGoneOnFromTheStoreGoesOnFromDisks) {
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  for (const uint64_t again : {uint64_t{10}, uint64_t{13}, uint64_t{17}}) {
    MakeDisks(2, 3, 2);
    nodes_live_ = true;
    Replay(8, spec, nullptr);
    Replay(again, spec, nullptr);
    nodes_live_ = false;
    cluster_.reset();
    uint64_t first = 0;
    for (const absl::Status& status : Replay(kNever, spec, &first)) EXPECT_THAT(status, IsOk());
    EXPECT_GE(first + 7, again);
    EXPECT_EQ(first % 3, 0u);
  }
}

// No file says what the shards remember.
TEST_F(LocalPsDisksTest, AJobBeginsAnewWhileTheShardsLive) {
  MakeDisks(2, 2, 3);
  shards_live_ = true;
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 1};
  Replay(8, spec, nullptr);
  for (int server = 0; server < servers_; ++server) {
    for (const std::string& path : FilesOf(server)) std::filesystem::remove(path);
  }
  uint64_t first = 1;
  for (const absl::Status& status : Replay(kNever, spec, &first)) EXPECT_THAT(status, IsOk());
  EXPECT_EQ(first, 0u);
}

TEST_F(LocalPsDisksTest, ExactTablesGoOnFromOneClock) {
  MakeDisks(2, 1, 1);
  const std::vector<std::string> names = {"v", "w"};
  const auto serve = [&](ps::Server& server) {
    for (const std::string& name : names) {
      ASSERT_THAT(server.AddTable({.name = name, .keys = kSize, .snapshot_every = 1}), IsOk());
    }
  };
  std::vector<uint64_t> first(2);
  const auto work = [&](Worker& worker, const std::atomic<bool>&, const auto& die) {
    std::vector<Table<float>> tables;
    for (size_t i = 0; i < names.size(); ++i) {
      tables.push_back(worker.Open<float>(names[i]).value());
      first[i] = tables[i].clock();
    }
    while (tables[0].clock() < kClocks) {
      const uint64_t clock = tables[0].clock();
      for (const Table<float>& table : tables) {
        EXPECT_THAT(table.PushDense(PushOf(0, clock, kSize)).Wait(kDeadline), IsOk());
        EXPECT_THAT(table.Clock(), IsOk());
      }
      std::vector<float> values(kSize);
      EXPECT_THAT(tables[1].PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      if (die(clock)) return false;
    }
    return true;
  };
  RunUntil(8, serve, work);
  // As if it had died between its files of the last clock.
  std::string newest;
  for (const std::string& path : FilesOf(0)) {
    const bool of_w = path.find("train_w_") != path.npos;
    if (of_w && (newest.empty() || StateOf(path) > StateOf(newest))) newest = path;
  }
  ASSERT_NE(newest, "");
  const uint64_t clock = StateOf(newest);
  std::filesystem::remove(newest);
  RunUntil(clock, serve, work);
  EXPECT_EQ(first, std::vector<uint64_t>(2, clock - 1));
}

TEST_F(LocalPsDisksTest, AServerWhoseSnapshotIsLostRemovesNoFile) {
  MakeDisks(2, 2, 1);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 1};
  std::vector<std::optional<ps::Server>> servers(2);
  std::vector<std::thread> threads(2);
  std::vector<absl::Status> ended(2);
  const auto start = [&](int rank) {
    servers[rank].emplace(JoinServer(rank).value());
    ASSERT_THAT(servers[rank]->AddTable(spec), IsOk());
    threads[rank] = std::thread([&, rank] { ended[rank] = servers[rank]->Run(); });
  };
  for (const int rank : {0, 1}) start(rank);
  {
    Worker worker = JoinWorker(0).value();
    const Table<float> table = worker.Open<float>("w").value();
    std::vector<float> values(kSize);
    for (uint64_t clock = 0; clock < 8; ++clock) {
      table.PushDense(PushOf(0, clock, kSize));
      EXPECT_THAT(table.Clock(), IsOk());
      EXPECT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
    }
    servers[1]->Stop();
    threads[1].join();
    servers[1].reset();
    const std::vector<std::string> files = FilesOf(1);
    EXPECT_EQ(files.size(), 4u);
    // Nothing leads to its snapshots any more, as when the hosts of all copies are gone.
    const std::shared_ptr<Client> client = Connect(0);
    for (int number = 1; number < 64; ++number) {
      const ObjectId mark =
          ObjectId::FromName("phalanx.ps", absl::StrCat("train/server/w/1/mark/0/", number));
      client->Delete(mark).Wait(kDeadline).status().IgnoreError();
    }
    start(1);
    threads[1].join();
    EXPECT_THAT(ended[1], StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("server 1 has no snapshot in the store any more")));
    EXPECT_EQ(FilesOf(1), files);
  }
  servers[0]->Stop();
  threads[0].join();
}

TEST_F(LocalPsDisksTest, FilesStayWhenWorkersHaveDiedAndNotLeft) {
  MakeDisks(2, 1, 1);
  peer_timeout_ = absl::Seconds(2);
  const TableSpec spec{
      .name = "w", .keys = kSize, .on_loss = ps::OnLoss::kDrop, .snapshot_every = 1};
  RunUntil(
      kNever, [&](ps::Server& server) { ASSERT_THAT(server.AddTable(spec), IsOk()); },
      [&](Worker& worker, const std::atomic<bool>&, const auto&) {
        const Table<float> table = worker.Open<float>("w").value();
        table.PushDense(PushOf(0, 0, kSize));
        EXPECT_THAT(table.Clock(), IsOk());
        std::vector<float> values(kSize);
        EXPECT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        return false;
      });
  EXPECT_FALSE(FilesOf(0).empty());
}

TEST_F(LocalPsDisksTest, AFileThatCannotBeRemovedAtTheEndIsAnError) {
  MakeDisks(2, 1, 1);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 1};
  std::string stays;
  const std::vector<absl::Status> ended = RunUntil(
      kNever, [&](ps::Server& server) { ASSERT_THAT(server.AddTable(spec), IsOk()); },
      [&](Worker& worker, const std::atomic<bool>&, const auto&) {
        EXPECT_THAT(worker.Open<float>("w").status(), IsOk());
        // A name of its part that is no file.
        stays = FilesOf(0).front();
        stays.replace(stays.rfind('_'), stays.npos, "_7.part");
        std::filesystem::create_directories(stays + "/entry");
        return true;
      });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_THAT(std::string(ended[0].message()), HasSubstr(stays));
}

TEST_F(LocalPsDisksTest, WithOtherConsistenciesNothingIsLostOrCountsTwice) {
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    MakeDisks(2, 2, 2);
    const TableSpec spec{.name = "w",
                         .dtype = DType::kI64,
                         .wire = DType::kI64,
                         .sync = sync,
                         .staleness = sync == Sync::kSsp ? 2u : 0u,
                         .split = ps::Split::kHash,
                         .snapshot_every = 3};
    const auto serve = [&](ps::Server& server) { ASSERT_THAT(server.AddTable(spec), IsOk()); };
    const std::vector<ps::Key> keys = {1, 2, 3, 4, 5, 6, 7, 8};
    std::atomic<uint64_t> first = 0;
    const auto work = [&](Worker& worker, const std::atomic<bool>& dead, const auto& die) {
      const Table<int64_t> table = worker.Open<int64_t>("w").value();
      if (worker.rank() == 0) first = table.clock();
      std::vector<int64_t> values(keys.size(), worker.rank() + 1);
      while (table.clock() < kClocks) {
        table.Push(keys, values);
        if (worker.rank() == 0 ? die(table.clock()) : dead.load()) return false;
        EXPECT_THAT(table.Clock(), IsOk());
        std::vector<int64_t> out(keys.size());
        const Future<Done> pull = table.Pull(keys, absl::MakeSpan(out));
        while (!pull.Wait(absl::Milliseconds(100)).ok()) {
          if (dead || !worker.status().ok()) return false;
        }
      }
      EXPECT_THAT(worker.Barrier(), IsOk());
      std::vector<int64_t> sums(keys.size());
      EXPECT_THAT(table.Pull(keys, absl::MakeSpan(sums)).Wait(kDeadline), IsOk());
      EXPECT_EQ(sums, std::vector<int64_t>(keys.size(), 3 * kClocks));
      return true;
    };
    uint64_t before = 0;
    for (const uint64_t fatal : {uint64_t{9}, uint64_t{17}, kNever}) {
      RunUntil(fatal, serve, work);
      // It has gone on from disks.
      if (before > 0) {
        EXPECT_GT(first, 0u);
      }
      before = fatal;
    }
  }
}

TEST_F(LocalPsDisksTest, AServerWhoseFilesAreMissingIsNamed) {
  MakeDisks(2, 2, 2);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  Replay(8, spec, nullptr);
  for (const std::string& path : FilesOf(1)) std::filesystem::remove(path);
  for (const absl::Status& status : Refused(spec, /*all=*/true)) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                                 AllOf(HasSubstr("server 1 has no file"), HasSubstr("\"w\""))));
  }
  EXPECT_FALSE(FilesOf(0).empty());
}

TEST_F(LocalPsDisksTest, ADamagedFileIsNamedAndTheStateBeforeItIsTaken) {
  MakeDisks(2, 2, 2);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  Replay(11, spec, nullptr);
  const auto newest = [this](int server) {
    std::string path;
    for (const std::string& each : FilesOf(server)) {
      if (each.find("_9.part") != each.npos) path = each;
    }
    return path;
  };
  ASSERT_NE(newest(1), "");
  std::filesystem::resize_file(newest(1), std::filesystem::file_size(newest(1)) - 1);
  EXPECT_THAT(Refused(spec, /*all=*/false)[1],
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(newest(1)), HasSubstr("go on from the state before it"))));
  for (int server = 0; server < 2; ++server) std::filesystem::remove(newest(server));
  uint64_t first = 0;
  Replay(kNever, spec, &first);
  EXPECT_EQ(first, 6u);
}

TEST_F(LocalPsDisksTest, FilesOfAnotherTableOrWorldAreRefused) {
  MakeDisks(2, 2, 2);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  Replay(8, spec, nullptr);
  TableSpec other = spec;
  other.rate = 0.5;
  const std::string path = FilesOf(0).front();
  const std::string folder = path.substr(0, path.rfind('/'));
  for (const absl::Status& status : Refused(other, /*all=*/true)) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(".part"), HasSubstr("spec is another one"),
                                       HasSubstr("to begin anew"))));
  }
  servers_ = 1;
  EXPECT_THAT(Refused(spec, /*all=*/true)[0],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(folder), HasSubstr("with 2 servers, and this one has 1"))));
}

TEST_F(LocalPsDisksTest, ADirectoryThatIsNotThereOrCannotBeWrittenIsNamed) {
  MakeDisks(2, 1, 1);
  const TableSpec spec{.name = "w", .keys = kSize, .snapshot_every = 3};
  checkpoint_dirs_[0] = absl::StrCat(root_, "/absent");
  EXPECT_THAT(JoinServer(0).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(checkpoint_dirs_[0])));
  std::filesystem::create_directories(checkpoint_dirs_[0]);
  absl::StatusOr<ps::Server> server = JoinServer(0);
  ASSERT_THAT(server, IsOk());
  ASSERT_THAT(server->AddTable(spec), IsOk());
  const absl::StatusOr<Membership> worker = Connect(0)->Join(job_, "worker0", {.world = 1});
  ASSERT_THAT(worker, IsOk());
  std::filesystem::remove(checkpoint_dirs_[0]);
  EXPECT_THAT(server->Run(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(checkpoint_dirs_[0])));
}

TEST_F(LocalPsDisksTest, AServerThatCannotWriteAFileEndsAndNamesIt) {
  for (const bool vanishes : {false, true}) {
    MakeDisks(2, 1, 1);
    ps::Server server = JoinServer(0).value();
    ASSERT_THAT(server.AddTable({.name = "w", .keys = kSize, .snapshot_every = 2}), IsOk());
    absl::Status ended;
    std::thread thread([&] { ended = server.Run(); });
    const Worker worker = JoinWorker(0).value();
    const Table<float> table = worker.Open<float>("w").value();
    std::string path = FilesOf(0).front();
    path.replace(path.rfind('_'), path.npos, "_2.part");
    if (vanishes) {
      std::filesystem::remove_all(checkpoint_dirs_[0]);
    } else {
      std::filesystem::create_directories(path + "/entry");
    }
    for (int clock = 0; clock < 2; ++clock) {
      EXPECT_THAT(table.Clock(), IsOk());
    }
    thread.join();
    EXPECT_FALSE(ended.ok());
    EXPECT_THAT(std::string(ended.message()), AllOf(HasSubstr(path), HasSubstr("with room for")));
    std::filesystem::remove_all(root_);
  }
}

}  // namespace
}  // namespace phalanx::runtime
