// Tables whose rows have lengths of their own, on real nodes.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Key;
using ps::PulledRows;
using ps::Pusher;
using ps::Rows;
using ps::Split;
using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Update;
using ps::Worker;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TableSpec Ragged(Sync sync) {
  return {.name = "w",
          .width = 50'000,
          .lengths = true,
          .dtype = DType::kI64,
          .wire = DType::kI64,
          .sync = sync,
          .split = Split::kHash,
          .snapshot_every = 3};
}

// A row of key k that is pushed at a clock, and what a row is when so many clocks have ended.
uint32_t LengthOf(Key key, uint64_t clock) {
  // Some are larger than a batch.
  return key == 78 ? 40'000 + static_cast<uint32_t>(clock)
                   : static_cast<uint32_t>((key * 7 + clock) % 13);
}

struct Pushed {
  std::vector<int64_t> values;
  std::vector<uint32_t> lengths;
};

Pushed RowsAt(const std::vector<Key>& keys, uint64_t clock) {
  Pushed pushed;
  for (const Key key : keys) {
    pushed.lengths.push_back(LengthOf(key, clock));
    pushed.values.insert(pushed.values.end(), pushed.lengths.back(),
                         static_cast<int64_t>(clock) + 1);
  }
  return pushed;
}

void ExpectRows(const PulledRows& rows, const std::vector<Key>& keys, uint64_t clocks,
                int64_t workers) {
  ASSERT_EQ(rows.lengths().size(), keys.size());
  absl::Span<const int64_t> left = rows.values<int64_t>();
  for (size_t i = 0; i < keys.size(); ++i) {
    std::vector<int64_t> expected;
    for (uint64_t clock = 0; clock < clocks; ++clock) {
      const size_t length = LengthOf(keys[i], clock);
      expected.resize(std::max(expected.size(), length));
      for (size_t j = 0; j < length; ++j) expected[j] += workers * static_cast<int64_t>(clock + 1);
    }
    ASSERT_EQ(rows.lengths()[i], expected.size()) << keys[i] << " after " << clocks;
    ASSERT_EQ(left.first(expected.size()), absl::MakeConstSpan(expected)) << keys[i];
    left.remove_prefix(expected.size());
  }
  EXPECT_TRUE(left.empty());
}

class LocalPsLengthsTest : public PsFixture {};

// The servers' parts are more than a message, so each pull has many answers.
TEST_F(LocalPsLengthsTest, NothingIsLostOrCountedTwiceWhenServersAndWorkersDie) {
  Make(/*nodes=*/3, /*servers=*/2, /*workers=*/2);
  constexpr uint64_t kClocks = 20;
  std::vector<Key> keys;
  for (Key key = 0; key < 40'000; key += 1 + key % 3) keys.push_back(key);
  keys.push_back(UINT64_MAX);
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < servers_; ++rank) {
    threads.emplace_back([&, rank] {
      for (bool again = true; again;) {
        absl::StatusOr<ps::Server> server = JoinServer(rank);
        ASSERT_THAT(server, IsOk());
        ASSERT_THAT(server->AddTable(Ragged(Sync::kBsp)), IsOk());
        // The first lives of server 1 are ended by a worker.
        if (rank == 1) {
          server->OnRequest([&](const ps::RequestInfo&) -> absl::StatusOr<ps::Reply> {
            if (ended++ < 2) server->Stop();
            return ps::Reply{};
          });
        }
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
        PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table, worker->Open<int64_t>("w"));
        EXPECT_TRUE(table.spec().lengths);
        while (table.clock() < kClocks && !again) {
          const Pushed pushed = RowsAt(keys, table.clock());
          // What is pulled is as the clock began.
          const auto rows = table.PushPull(keys, pushed.values, pushed.lengths);
          if (rank == 0 && (table.clock() == 7 || table.clock() == 13)) {
            worker->Request(1, 0, "").Wait(kDeadline).IgnoreError();
          }
          const absl::StatusOr<PulledRows> got = rows.Wait(kDeadline);
          ASSERT_THAT(got, IsOk());
          ExpectRows(*got, keys, table.clock(), 2);
          // A life that ends here has pushed and not ended its clock.
          again = rank == 1 && table.clock() == 10 && worker->life() == 0;
          if (again) continue;
          ASSERT_THAT(table.Clock(), IsOk());
        }
        if (again) continue;
        const absl::StatusOr<PulledRows> got = table.Pull(keys).Wait(kDeadline);
        ASSERT_THAT(got, IsOk());
        ExpectRows(*got, keys, kClocks, 2);
        EXPECT_THAT(worker->Leave(), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(ended, 2);
}

TEST_F(LocalPsLengthsTest, OwnUpdatesGetLengthsAndResizeRows) {
  Make(2, 2, 2);
  TableSpec spec = Ragged(Sync::kAsp);
  spec.width = 8;
  // Appends what is pushed, and forgets the oldest elements.
  const auto append = [](const Pusher&, absl::Span<const Key> keys,
                         absl::Span<const int64_t> values, absl::Span<const uint32_t> lengths,
                         Rows<int64_t> rows) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const absl::Span<const int64_t> pushed = values.first(lengths[i]);
      values.remove_prefix(lengths[i]);
      std::vector<int64_t> row(rows[keys[i]].begin(), rows[keys[i]].end());
      row.insert(row.end(), pushed.begin(), pushed.end());
      if (row.size() > 8) row.erase(row.begin(), row.end() - 8);
      const absl::Span<int64_t> place = rows.Resize(keys[i], static_cast<uint32_t>(row.size()));
      std::copy(row.begin(), row.end(), place.begin());
      EXPECT_TRUE(rows.Resize(keys[i], 9).empty()) << "wider than the table";
      EXPECT_EQ(rows[keys[i]].size(), row.size());
    }
    return absl::OkStatus();
  };
  RunServers(
      [&](ps::Server& server) {
        ASSERT_THAT(server.AddTable<int64_t>(spec, append), IsOk());
        // Which of the two functions is for the table is seen when it is added.
        const auto fixed = [](const Pusher&, absl::Span<const Key>, absl::Span<const int64_t>,
                              Rows<int64_t>) { return absl::OkStatus(); };
        TableSpec other = spec;
        other.name = "other";
        EXPECT_THAT(server.AddTable<int64_t>(other, fixed),
                    StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other")));
        other.lengths = false;
        EXPECT_THAT(server.AddTable<int64_t>(other, append),
                    StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other")));
      },
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table, worker.Open<int64_t>("w"));
        const Key key = static_cast<Key>(worker.rank());
        for (int64_t i = 0; i < 4; ++i) {
          const std::vector<int64_t> pushed = {10 * i, 10 * i + 1, 10 * i + 2};
          ASSERT_THAT(table.Push({key}, pushed, {3}).Wait(kDeadline), IsOk());
        }
        const absl::StatusOr<PulledRows> rows = table.Pull({key, 5}).Wait(kDeadline);
        ASSERT_THAT(rows, IsOk());
        EXPECT_THAT(rows->lengths(), ElementsAre(8, 0));
        EXPECT_THAT(rows->values<int64_t>(), ElementsAre(11, 12, 20, 21, 22, 30, 31, 32));
      });
}

TEST_F(LocalPsLengthsTest, CallsWithOtherRowsThanTheTablesAreRefused) {
  Make(1, 1, 1);
  TableSpec ragged = Ragged(Sync::kAsp);
  ragged.width = 4;
  ragged.update = Update::kAssign;
  TableSpec plain = ragged;
  plain.name = "plain";
  plain.lengths = false;
  Run({ragged, plain}, [&](Worker& worker) {
    const auto invalid = [](const std::string& text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> table, worker.Open<int64_t>("w"));
    const std::vector<Key> keys = {4, 5};
    const std::vector<int64_t> values = {1, 2, 3};
    const std::string where = "table \"w\" of worker 0 at clock 0: ";
    EXPECT_THAT(table.Push(keys, values, {1, 1}).Wait(kDeadline),
                invalid(where + "the lengths do not add up: they are 2 elements of 8 bytes, and "
                                "there are 24 bytes"));
    EXPECT_THAT(table.Push(keys, values, {3}).Wait(kDeadline),
                invalid(where + "1 lengths for 2 keys"));
    EXPECT_THAT(table.PushPull(keys, values, std::vector<uint32_t>{0, 5}).Wait(kDeadline),
                invalid(where + "a row of length 5 for key 5; the width is 4"));
    EXPECT_THAT(table.Push({5, 4}, values, {1, 2}).Wait(kDeadline), invalid("key 4 after key 5"));
    std::vector<int64_t> out(8);
    EXPECT_THAT(table.Pull(keys, absl::MakeSpan(out)).Wait(kDeadline),
                invalid(where + "its rows have lengths"));
    EXPECT_THAT(table.Push(keys, out).Wait(kDeadline), invalid(where + "its rows have lengths"));
    EXPECT_THAT(table.PushDense(out).Wait(kDeadline), invalid("its rows have lengths"));
    // Nothing has counted; Clock says so once.
    EXPECT_THAT(table.Clock(), invalid("do not add up"));
    EXPECT_THAT(table.Clock(), IsOk());
    PHALANX_ASSERT_OK_AND_ASSIGN(const Table<int64_t> other, worker.Open<int64_t>("plain"));
    EXPECT_THAT(other.Push(keys, out, {4, 4}).Wait(kDeadline),
                invalid("its rows have no lengths: all are 4 elements"));
    EXPECT_THAT(other.Pull(keys).Wait(kDeadline), invalid("its rows have no lengths"));
    // With kAssign a row has the length of the last push.
    ASSERT_THAT(table.Push(keys, values, {2, 1}).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.Push(keys, {7}, {1, 0}).Wait(kDeadline), IsOk());
    const absl::StatusOr<PulledRows> rows = table.Pull(keys).Wait(kDeadline);
    ASSERT_THAT(rows, IsOk());
    EXPECT_THAT(rows->lengths(), ElementsAre(1, 0));
    EXPECT_THAT(rows->values<int64_t>(), ElementsAre(7));
    const absl::StatusOr<PulledRows> none = table.Pull({}).Wait(kDeadline);
    ASSERT_THAT(none, IsOk());
    EXPECT_TRUE(none->lengths().empty());
  });
}

}  // namespace
}  // namespace phalanx::runtime
