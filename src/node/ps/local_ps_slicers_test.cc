// Tables whose split is a function of the workers' program, on real nodes.
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Key;
using ps::Pusher;
using ps::Rows;
using ps::Slicer;
using ps::Split;
using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Worker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TableSpec Sliced(Sync sync) {
  return {.name = "w",
          .width = 2,
          .dtype = DType::kI64,
          .wire = DType::kI64,
          .sync = sync,
          .split = Split::kOwn,
          .snapshot_every = 3};
}

// The greatest keys are on server 0.
int32_t ServerOf(Key key, int servers) { return static_cast<int32_t>(~key % 7) % servers; }

Slicer SlicerFor(const Worker& worker) {
  return [servers = worker.servers()](absl::Span<const Key> keys, absl::Span<int32_t> of) {
    for (size_t i = 0; i < keys.size(); ++i) of[i] = ServerOf(keys[i], servers);
    return absl::OkStatus();
  };
}

class LocalPsSlicersTest : public PsFixture {};

TEST_F(LocalPsSlicersTest, KeysAreWhereTheProgramSays) {
  Make(/*nodes=*/2, /*servers=*/3, /*workers=*/2);
  std::mutex mu;
  std::map<Key, std::set<int>> seen;
  const std::vector<Key> keys = {0, 1, 2, 3, 4, 5, 6, 7, 1000, UINT64_MAX - 1, UINT64_MAX};
  RunServers(
      [&](ps::Server& server) {
        const auto update = [&, rank = server.rank()](const Pusher&, absl::Span<const Key> pushed,
                                                      absl::Span<const int64_t> values,
                                                      Rows<int64_t> rows) {
          const std::lock_guard<std::mutex> lock(mu);
          for (size_t i = 0; i < pushed.size(); ++i) {
            seen[pushed[i]].insert(rank);
            for (int e = 0; e < 2; ++e) rows[pushed[i]][e] += values[2 * i + e];
          }
          return absl::OkStatus();
        };
        ASSERT_THAT(server.AddTable<int64_t>(Sliced(Sync::kAsp), update), IsOk());
      },
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table,
                                     worker.Open<int64_t>("w", SlicerFor(worker)));
        EXPECT_EQ(table.spec().split, Split::kOwn);
        std::vector<int64_t> values;
        for (size_t i = 0; i < 2 * keys.size(); ++i) values.push_back(static_cast<int64_t>(i));
        ASSERT_THAT(table.Push(keys, values).Wait(kDeadline), IsOk());
        ASSERT_THAT(worker.Barrier(), IsOk());
        std::vector<int64_t> pulled(values.size());
        ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
        for (size_t i = 0; i < pulled.size(); ++i) EXPECT_EQ(pulled[i], 2 * values[i]);
        ASSERT_THAT(worker.Barrier(), IsOk());
        ASSERT_THAT(table.PushPull(keys, values, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
        for (size_t i = 0; i < pulled.size(); ++i) EXPECT_GE(pulled[i], 3 * values[i]);
      });
  EXPECT_EQ(seen.size(), keys.size());
  for (const auto& [key, servers] : seen) {
    EXPECT_THAT(servers, ::testing::ElementsAre(ServerOf(key, servers_))) << key;
  }
}

// Parts come back from snapshots, and what was pushed since is sent where it was sent before.
TEST_F(LocalPsSlicersTest, NothingIsLostOrCountedTwiceWhenServersAndWorkersDie) {
  Make(/*nodes=*/3, /*servers=*/2, /*workers=*/2);
  constexpr uint64_t kClocks = 20;
  const std::vector<Key> keys = {3, 4, 5, 6, 7, 8, 9, UINT64_MAX};
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < servers_; ++rank) {
    threads.emplace_back([&, rank] {
      for (bool again = true; again;) {
        absl::StatusOr<ps::Server> server = JoinServer(rank);
        ASSERT_THAT(server, IsOk());
        ASSERT_THAT(server->AddTable(Sliced(Sync::kBsp)), IsOk());
        // The first lives of server 1 are ended by a worker.
        if (rank == 1)
          server->OnRequest([&](const ps::RequestInfo&) -> absl::StatusOr<ps::Reply> {
            if (ended++ < 2) server->Stop();
            return ps::Reply{};
          });
        again = !server->Run().ok();
      }
    });
  }
  for (int rank = 0; rank < workers_; ++rank) {
    threads.emplace_back([&, rank] {
      for (bool again = true; again;) {
        again = false;
        absl::StatusOr<Worker> worker = JoinWorker(rank);
        ASSERT_THAT(worker, IsOk());
        PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table,
                                     worker->Open<int64_t>("w", SlicerFor(*worker)));
        std::vector<int64_t> pulled(2 * keys.size());
        const std::vector<int64_t> pushed(2 * keys.size(), 1 + rank);
        while (table.clock() < kClocks && !again) {
          ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
          for (const int64_t value : pulled) {
            ASSERT_EQ(value, 3 * static_cast<int64_t>(table.clock()));
          }
          const Future<Done> push = table.Push(keys, pushed);
          if (rank == 0 && (table.clock() == 7 || table.clock() == 13)) {
            worker->Request(1, 0, "").Wait(kDeadline).IgnoreError();
          }
          // A life that ends here has pushed and not ended its clock.
          again = rank == 1 && table.clock() == 10 && worker->life() == 0;
          if (again) continue;
          ASSERT_THAT(table.Clock(), IsOk());
        }
        if (again) continue;
        ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
        for (const int64_t value : pulled) ASSERT_EQ(value, 3 * static_cast<int64_t>(kClocks));
        EXPECT_THAT(worker->Leave(), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(ended, 2);
}

TEST_F(LocalPsSlicersTest, AWrongSlicerIsAnErrorOfTheCallAndNothingIsSent) {
  Make(1, 2, 1);
  TableSpec ranges = Sliced(Sync::kAsp);
  ranges.name = "ranges";
  ranges.split = Split::kRange;
  Run({Sliced(Sync::kAsp), ranges}, [&](Worker& worker) {
    const auto invalid = [](const std::string& text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    EXPECT_THAT(worker.Open<int64_t>("w").status(), invalid("its split is own, and there is no"));
    EXPECT_THAT(worker.Open<int64_t>("ranges", SlicerFor(worker)).status(),
                invalid("its split is range, and there is a slicer"));
    int fault = 0;
    const Slicer slicer = [&](absl::Span<const Key> keys, absl::Span<int32_t> of) {
      for (size_t i = 0; i < keys.size(); ++i) of[i] = static_cast<int32_t>(keys[i] % 2);
      if (fault == 1) of[1] = 2;
      if (fault == 2) of[1] = -1;
      if (fault == 3) throw std::runtime_error("no server");
      if (fault == 4) throw 5;
      return fault == 5 ? absl::NotFoundError("no such key") : absl::OkStatus();
    };
    PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table, worker.Open<int64_t>("w", slicer));
    const std::vector<Key> keys = {4, 5, 9};
    const std::vector<int64_t> values(6, 1);
    std::vector<int64_t> pulled(6, -1);
    const char* const texts[] = {
        "its slicer names server 2 for key 5; there are 2", "its slicer drops key 5",
        "for 3 keys from 4 to 9 its slicer has thrown an exception: no server",
        "for 3 keys from 4 to 9 its slicer has thrown something unknown",
        "for 3 keys from 4 to 9 its slicer failed: NOT_FOUND: no such key"};
    for (const char* const text : texts) {
      ++fault;
      const std::string whole = absl::StrCat("table \"w\" of worker 0 at clock 0: ", text);
      EXPECT_THAT(table.Push(keys, values).Wait(kDeadline), invalid(whole));
      EXPECT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), invalid(whole));
      EXPECT_THAT(table.PushPull(keys, values, absl::MakeSpan(pulled)).Wait(kDeadline),
                  invalid(whole));
      // As for each push that is refused, once.
      EXPECT_THAT(table.Clock(), invalid(text));
    }
    fault = 0;
    EXPECT_THAT(table.Push({5, 4}, {1, 1, 1, 1}).Wait(kDeadline), invalid("key 4 after key 5"));
    EXPECT_THAT(table.Clock(), invalid("key 4 after key 5"));
    ASSERT_THAT(table.Push(keys, values).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
    EXPECT_EQ(pulled, values);  // once
    EXPECT_THAT(table.Clock(), IsOk());
  });
}

}  // namespace
}  // namespace phalanx::runtime
