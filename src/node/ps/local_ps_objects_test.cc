// Tables of a parameter server whose rows travel as objects, on real nodes. Deaths of members are
// in local_ps_deaths_test.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "src/common/time/clock.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Key;
using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Worker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// With two servers each part is 80 KB.
constexpr size_t kSize = 40'000;
// No object of a part is smaller.
constexpr uint64_t kPartBytes = uint64_t{64} << 10;

class LocalPsObjectsTest : public PsFixture {
 protected:
  // Server 0, on node 0, until all workers have left.
  std::thread Serve(const TableSpec& spec) {
    ps::Server server = JoinServer(0, 0).value();
    EXPECT_THAT(server.AddTable(spec), IsOk());
    return std::thread(
        [server = std::move(server)]() mutable { EXPECT_THAT(server.Run(), IsOk()); });
  }
  object_store::StoreStats StatsOf(int node) {
    object_store::StoreStats stats;
    cluster_->OnNode(node, [&stats](Node& each) { stats = each.store().stats(); });
    return stats;
  }
  // But for the marks of servers that have ended, which are a few bytes, and what servers that run
  // hold to be described. Nodes hear of the end of an object a while after it.
  void ExpectNothingLeft(uint64_t running = 0) {
    const Instant until = MonotonicNow() + kDeadline;
    uint64_t held = 0, bytes = 0;
    do {
      held = bytes = 0;
      for (int node = 0; node < cluster_->nodes(); ++node) {
        const object_store::StoreStats stats = StatsOf(node);
        held += stats.held + stats.pins;
        bytes += stats.used_bytes;
      }
      if (held == running && bytes < kPartBytes) return;
      std::this_thread::yield();
    } while (MonotonicNow() < until);
    FAIL() << held << " holds and pins, " << bytes << " bytes are left on all nodes";
  }
};

TEST_F(LocalPsObjectsTest, BspGivesTheBitsOfASerialReplay) {
  Make(/*nodes=*/3, /*servers=*/2, /*workers=*/3);
  constexpr uint64_t kClocks = 20;
  std::vector<TableSpec> tables;
  for (const uint32_t every : {0, 3}) {
    for (const ps::Split split : {ps::Split::kRange, ps::Split::kBlocks}) {
      TableSpec spec{.name = absl::StrCat("w", tables.size()), .keys = kSize / 4, .width = 4};
      spec.split = split;
      spec.block = split == ps::Split::kBlocks ? 999 : 0;
      // Without snapshots there is no object but the pushes and the versions.
      spec.snapshot_every = every;
      tables.push_back(spec);
    }
  }
  for (const TableSpec& spec : tables) {
    job_ = absl::StrCat("train ", spec.name);
    Run({spec}, [&](Worker& worker) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>(spec.name));
      std::vector<float> values(kSize);
      while (table.clock() < kClocks) {
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        ASSERT_TRUE(SameBits(values, SerialSum(workers_, table.clock(), kSize)))
            << spec.name << ", clock " << table.clock();
        table.PushDense(PushOf(worker.rank(), table.clock(), kSize));
        if (worker.rank() == 0) {
          // The push is with the node until the clock turns.
          EXPECT_GE(StatsOf(0).used_bytes, kSize * sizeof(float));
        }
        ASSERT_THAT(table.Clock(), IsOk());
      }
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      EXPECT_TRUE(SameBits(values, SerialSum(workers_, kClocks, kSize)));
    });
    if (spec.snapshot_every == 0) ExpectNothingLeft();
  }
}

// The sum of the dense pushes is the first push of the clock, in its order.
TEST_F(LocalPsObjectsTest, PushesWithKeysAreInTheSameClocks) {
  Make(2, 2, 2);
  TableSpec spec{.name = "w", .keys = kSize};
  spec.dtype = spec.wire = DType::kI64;
  Run({spec}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<int64_t> table, worker.Open<int64_t>("w"));
    std::vector<int64_t> values(kSize), all(kSize);
    std::iota(all.begin(), all.end(), 0);
    const std::vector<Key> keys = {0, 7, kSize - 1};
    const std::vector<int64_t> some = {1'000'000, 2'000'000, 3'000'000};
    for (int64_t clock = 0; clock < 10; ++clock) {
      table.Push(keys, some);
      table.PushDense(all);
      table.PushDense(all);
      table.Push(keys, some);
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      for (size_t i = 0; i < kSize; ++i) {
        int64_t of_clock = 4 * static_cast<int64_t>(i);
        for (size_t k = 0; k < keys.size(); ++k) of_clock += keys[k] == i ? 4 * some[k] : 0;
        ASSERT_EQ(values[i], (clock + 1) * of_clock) << i;
      }
      std::vector<int64_t> pulled(keys.size());
      ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
      EXPECT_EQ(pulled[1], values[7]);
    }
  });
}

TEST_F(LocalPsObjectsTest, SspAndAspPullObjects) {
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    Make(2, 2, 2);
    const TableSpec spec{.name = "w",
                         .keys = kSize,
                         .sync = sync,
                         .staleness = sync == Sync::kSsp ? 2u : 0u,
                         .snapshot_every = 0};
    Run({spec}, [&](Worker& worker) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
      const std::vector<float> ones(kSize, 1.0f);
      std::vector<float> values(kSize), same(kSize);
      for (uint64_t clock = 0; clock < 20; ++clock) {
        table.PushDense(ones);
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        EXPECT_GE(values[0], static_cast<float>(clock + 1));  // its own pushes at least
        EXPECT_LE(values[kSize - 1], 40.0f);
        ASSERT_THAT(table.Clock(), IsOk());
      }
      ASSERT_THAT(worker.Barrier(), IsOk());
      for (std::vector<float>* out : {&values, &same}) {
        ASSERT_THAT(table.PullDense(absl::MakeSpan(*out)).Wait(kDeadline), IsOk());
        EXPECT_EQ(*out, std::vector<float>(kSize, 40.0f));
      }
    });
    ExpectNothingLeft();
  }
}

TEST_F(LocalPsObjectsTest, AFullStoreRefusesAPushAndTheNextOneWorks) {
  MakeWithASmallNode(/*small=*/1, uint64_t{2} << 20, /*workers=*/2);
  const TableSpec spec{.name = "w", .keys = 100'000, .snapshot_every = 0};  // 400 KB
  std::thread serves = Serve(spec);
  const std::shared_ptr<Client> other = Connect(1);
  const ObjectId filler = ObjectId::Random();
  ASSERT_THAT(other->Put(filler, std::string(1'800'000, 'x')).Wait(kDeadline), IsOk());
  Worker at_0 = JoinWorker(0, 0).value();
  peer_timeout_ = absl::Seconds(2);
  Worker at_1 = JoinWorker(1, 1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> of_0, at_0.Open<float>("w"));
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> of_1, at_1.Open<float>("w"));
  const std::vector<float> ones(spec.keys, 1.0f);
  for (int clock = 0; clock < 3; ++clock) {
    if (clock == 0) {
      const absl::Status full = of_1.PushDense(ones).Wait(kDeadline).status();
      EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted));
      EXPECT_THAT(std::string(full.message()), HasSubstr("table \"w\" of worker 1 at clock 0"));
      EXPECT_THAT(of_1.Clock(), StatusIs(absl::StatusCode::kResourceExhausted));
      EXPECT_EQ(of_1.clock(), 0u);
      ASSERT_THAT(other->Delete(filler).Wait(kDeadline), IsOk());
    }
    for (Table<float>* table : {&of_0, &of_1}) {
      ASSERT_THAT(table->PushDense(ones).Wait(kDeadline), IsOk());
      ASSERT_THAT(table->Clock(), IsOk());
    }
    std::vector<float> values(spec.keys);
    ASSERT_THAT(of_1.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
    EXPECT_EQ(values, std::vector<float>(spec.keys, 2.0f * static_cast<float>(clock + 1)));
  }
  std::thread leaves([&] { EXPECT_THAT(at_0.Leave(), IsOk()); });
  EXPECT_THAT(at_1.Leave(), IsOk());
  leaves.join();
  serves.join();
  ExpectNothingLeft();
}

TEST_F(LocalPsObjectsTest, APullOfMoreThanItsNodeHasRoomForNamesTheTable) {
  MakeWithASmallNode(/*small=*/1, uint64_t{1} << 20, /*workers=*/1);
  const TableSpec spec{.name = "w", .keys = 500'000, .sync = Sync::kAsp, .snapshot_every = 0};
  std::thread serves = Serve(spec);
  peer_timeout_ = absl::Seconds(2);
  Worker worker = JoinWorker(0, 1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
  std::vector<float> values(spec.keys);
  const absl::Status full = table.PullDense(absl::MakeSpan(values)).Wait(kDeadline).status();
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(full.message()), HasSubstr("table \"w\" of worker 0 at clock 0"));
  // Rows by their keys are messages.
  const std::vector<Key> key = {499'999};
  EXPECT_THAT(table.Pull(key, absl::MakeSpan(values.data(), 1)).Wait(kDeadline), IsOk());
  EXPECT_THAT(worker.Leave(), IsOk());
  serves.join();
  ExpectNothingLeft();
}

TEST_F(LocalPsObjectsTest, ACancelledPullWritesNothingAndLeavesNothing) {
  Make(2, 1, 1);
  Run({{.name = "w", .keys = kSize, .sync = Sync::kAsp, .snapshot_every = 0}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    for (int i = 0; i < 100; ++i) {
      ASSERT_THAT(table.PushDense(std::vector<float>(kSize, 1.0f)).Wait(kDeadline), IsOk());
      {
        std::vector<float> gone(kSize, -1.0f);
        const Future<Done> pull = table.PullDense(absl::MakeSpan(gone));
        // At any step of the pull.
        if (i % 4 > 0) (void)pull.Wait(absl::Microseconds(1 << (i % 14)));
        pull.Cancel();
        EXPECT_TRUE(pull.ready());
      }
      std::vector<float> values(kSize);
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      EXPECT_EQ(values[kSize - 1], static_cast<float>(i + 1));
    }
  });
  ExpectNothingLeft();
}

TEST_F(LocalPsObjectsTest, ThreadsPushAndEndClocksTogether) {
  Make(2, 2, 1);
  constexpr int kThreads = 4;
  constexpr int kPushes = 25;
  Run({{.name = "w", .keys = kSize, .snapshot_every = 1}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    // Another view of the same table.
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> other, worker.Open<float>("w"));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kPushes; ++i) {
          Table<float>& mine = thread % 2 == 0 ? table : other;
          ASSERT_THAT(mine.PushDense(std::vector<float>(kSize, 1.0f)).Wait(kDeadline), IsOk());
          if (i % 5 == thread) {
            ASSERT_THAT(mine.Clock(), IsOk());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_THAT(table.Clock(), IsOk());
    std::vector<float> sum(kSize);
    ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
    EXPECT_EQ(sum, std::vector<float>(kSize, 1.0f * kThreads * kPushes));
  });
}

TEST_F(LocalPsObjectsTest, AWorkerLeavesWithinAClock) {
  Make(2, 2, 2);
  for (const uint32_t every : {0, 1}) {
    job_ = absl::StrCat("train", every);
    Run({{.name = "w", .keys = kSize, .snapshot_every = every}}, [&](Worker& worker) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
      const std::vector<float> ones(kSize, 1.0f);
      std::vector<float> values(kSize);
      ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
      // Not a part of any clock that ends.
      if (worker.rank() == 1) {
        ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
        return;
      }
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      EXPECT_EQ(values, std::vector<float>(kSize, 2.0f));
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      EXPECT_EQ(values, std::vector<float>(kSize, 2.0f));
    });
    if (every == 0) ExpectNothingLeft();
  }
}

TEST_F(LocalPsObjectsTest, AChildOfForkCannotPush) {
  Make(1, 1, 1);
  Run({{.name = "w", .keys = kSize}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(kSize);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const auto fails = [](const absl::Status& status) {
        return absl::IsFailedPrecondition(status);
      };
      const bool all_fail = fails(table.PushDense(values).Wait().status()) &&
                            fails(table.PullDense(absl::MakeSpan(values)).Wait().status()) &&
                            fails(table.Clock());
      _exit(all_fail ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    ASSERT_THAT(table.PushDense(values).Wait(kDeadline), IsOk());
    EXPECT_THAT(table.Clock(), IsOk());
  });
}

// What its objects are for is gone with it: nothing holds them, though the client lives on.
TEST_F(LocalPsObjectsTest, AWorkerThatEndsReleasesItsPushes) {
  Make(/*nodes=*/2, /*servers=*/1, /*workers=*/2);
  const TableSpec spec{
      .name = "w", .keys = kSize, .on_loss = ps::OnLoss::kDrop, .snapshot_every = 0};
  std::thread serves = Serve(spec);
  const std::shared_ptr<Client> client = Connect(1);
  ps::Options options;
  options.job = job_;
  options.world = workers_;
  std::optional<Worker> stays;
  {
    options.task = "worker0";
    Worker ends = Worker::Join(*client, options).value();
    stays = JoinWorker(1).value();
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, ends.Open<float>("w"));
    const std::vector<float> ones(kSize, 1.0f);
    ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.Clock(), IsOk());
    ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
    EXPECT_EQ(StatsOf(1).held, 2u);
  }
  ExpectNothingLeft(/*running=*/1);
  EXPECT_THAT(stays->Leave(), IsOk());
  EXPECT_THAT(Worker::Join(*client, options).value().Leave(), IsOk());
  serves.join();
}

// What is kept for snapshots fills the node long before one is due.
TEST_F(LocalPsObjectsTest, ANodeThatIsFullOfKeptPushesGetsSnapshots) {
  MakeWithASmallNode(/*small=*/1, uint64_t{2} << 20, /*workers=*/1);
  // Small parts are sent to the node, and those of 1 MiB or more are written to its memory.
  for (const uint64_t keys : {20'000, 100'000, 300'000}) {
    job_ = absl::StrCat("of ", keys);
    TableSpec spec{.name = "w", .keys = keys, .snapshot_every = 1'000'000, .copies = 0};
    TableSpec other = spec;
    other.name = "other";
    ps::Server server = JoinServer(0, 0).value();
    ASSERT_THAT(server.AddTable(spec), IsOk());
    ASSERT_THAT(server.AddTable(other), IsOk());
    std::thread serves([&] { EXPECT_THAT(server.Run(), IsOk()); });
    Worker worker = JoinWorker(0, 1).value();
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> first, worker.Open<float>("w"));
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> second, worker.Open<float>("other"));
    const std::vector<float> ones(keys, 1.0f);
    const int clocks = static_cast<int>(3'000'000 / (keys * sizeof(float))) + 3;
    // The memory can be that of another table.
    for (Table<float>* table : {&first, &second}) {
      for (int clock = 0; clock < clocks; ++clock) {
        ASSERT_THAT(table->PushDense(ones).Wait(kDeadline), IsOk()) << keys << ", " << clock;
        ASSERT_THAT(table->Clock(), IsOk());
      }
    }
    EXPECT_THAT(worker.Leave(), IsOk());
    serves.join();
  }
}

// Another client has all memory of the worker's node, so no snapshot frees any.
TEST_F(LocalPsObjectsTest, APushThatWaitsForMemoryCanBeGivenUpAndEndsWithItsWorker) {
  constexpr uint64_t kCapacity = uint64_t{2} << 20;
  MakeWithASmallNode(/*small=*/1, kCapacity, /*workers=*/1);
  std::thread serves = Serve({.name = "w", .keys = kSize, .snapshot_every = 0});
  std::optional<Worker> worker = JoinWorker(0, 1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
  const std::vector<float> ones(kSize, 1.0f);
  const std::shared_ptr<Client> other = Connect(1);
  const ObjectId all = ObjectId::Random();
  const std::string most(kCapacity - kSize * sizeof(float), 'x');
  ASSERT_THAT(other->Put(all, most).Wait(kDeadline), IsOk());
  for (const absl::Duration timeout : {absl::ZeroDuration(), absl::Milliseconds(150)}) {
    EXPECT_THAT(table.PushDenseWithin(ones, timeout),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("table \"w\" of worker 0 at clock 0")));
  }
  // As if there had been no such calls.
  ASSERT_THAT(other->Delete(all).Wait(kDeadline), IsOk());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Future<Done> pushed, table.PushDenseWithin(ones, kDeadline));
  EXPECT_THAT(pushed.Wait(kDeadline), IsOk());
  ASSERT_THAT(table.Clock(), IsOk());
  std::vector<float> sum(kSize);
  ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
  EXPECT_EQ(sum, ones);

  const ObjectId again = ObjectId::Random();
  ASSERT_THAT(other->Put(again, most).Wait(kDeadline), IsOk());
  std::thread pushes([&] {
    EXPECT_THAT(table.PushDense(ones).Wait(kDeadline), StatusIs(absl::StatusCode::kAborted));
  });
  PHALANX_ASSERT_OK_AND_ASSIGN(const Worker next, JoinWorker(0, 0));
  pushes.join();
  ASSERT_THAT(other->Delete(again).Wait(kDeadline), IsOk());
  worker.reset();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> goes_on, next.Open<float>("w"));
  EXPECT_EQ(goes_on.clock(), 1u);
  ASSERT_THAT(goes_on.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
  EXPECT_EQ(sum, ones);
  EXPECT_THAT(next.Leave(), IsOk());
  serves.join();
}

// What is pulled needs memory, too, and the pull is what the worker waits for.
TEST_F(LocalPsObjectsTest, APullFromANodeThatIsFullOfKeptPushesGetsSnapshots) {
  constexpr uint64_t kPart = 400'000;
  MakeWithASmallNode(/*small=*/1, 4 * kPart + (uint64_t{64} << 10), /*workers=*/1);
  const TableSpec spec{
      .name = "w", .keys = kPart / sizeof(float), .snapshot_every = 1'000'000, .copies = 0};
  std::thread serves = Serve(spec);
  Worker worker = JoinWorker(0, 1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
  const std::vector<float> ones(spec.keys, 1.0f);
  for (int clock = 0; clock < 4; ++clock) {
    ASSERT_THAT(table.PushDense(ones).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.Clock(), IsOk());
  }
  EXPECT_GE(StatsOf(1).used_bytes, 4 * kPart);
  std::vector<float> sum(spec.keys);
  ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
  EXPECT_EQ(sum, std::vector<float>(spec.keys, 4.0f));
  EXPECT_THAT(worker.Leave(), IsOk());
  serves.join();
}

}  // namespace
}  // namespace phalanx::runtime
