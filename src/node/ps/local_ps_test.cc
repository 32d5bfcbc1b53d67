// Servers and workers on real nodes: the consistencies, kinds of tables, requests, and errors.
#include <atomic>
#include <numeric>
#include <thread>

#include "absl/synchronization/notification.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Key;
using ps::Sync;
using ps::Table;
using ps::TableSpec;
using ps::Update;
using ps::Worker;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalPsTest : public PsFixture {};

TEST_F(LocalPsTest, BspGivesTheBitsOfASerialReplay) {
  Make(/*nodes=*/3, /*servers=*/2, /*workers=*/3);
  constexpr size_t kSize = 1000;
  constexpr uint64_t kClocks = 20;
  Run({{.name = "w", .keys = kSize}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(kSize);
    while (table.clock() < kClocks) {
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      ASSERT_TRUE(SameBits(values, SerialSum(workers_, table.clock(), kSize)))
          << "clock " << table.clock();
      table.PushDense(PushOf(worker.rank(), table.clock(), kSize));
      ASSERT_THAT(table.Clock(), IsOk());
    }
    ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
    EXPECT_TRUE(SameBits(values, SerialSum(workers_, kClocks, kSize)));
  });
}

TEST_F(LocalPsTest, BspHidesPushesUntilTheClockTurns) {
  Make(1, 1, 2);
  Run({{.name = "w", .keys = 1}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    const std::vector<float> pushed = {100.0f};
    std::vector<float> pulled(1, -1.0f);
    ASSERT_THAT(table.PushDense(pushed).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.PullDense(absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
    EXPECT_EQ(pulled[0], 0.0f);
    ASSERT_THAT(worker.Barrier(), IsOk());
    ASSERT_THAT(table.Clock(), IsOk());
    ASSERT_THAT(table.PullDense(absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
    EXPECT_EQ(pulled[0], 200.0f);
    EXPECT_EQ(table.min_clock(), 1u);
  });
}

TEST_F(LocalPsTest, SspLetsAWorkerGoSoManyClocksAhead) {
  Make(2, 2, 3);
  constexpr uint32_t kStaleness = 3;
  absl::Notification others_are_blocked;
  std::atomic<int> blocked = 0;
  Run({{.name = "w", .keys = 100, .sync = Sync::kSsp, .staleness = kStaleness}},
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
        const std::vector<float> ones(100, 1.0f);
        std::vector<float> values(100);
        if (worker.rank() == 0) {
          // Frozen at clock 0.
          others_are_blocked.WaitForNotification();
          for (int i = 0; i < 10; ++i) {
            table.PushDense(ones);
            ASSERT_THAT(table.Clock(), IsOk());
          }
          return;
        }
        for (uint64_t clock = 0; clock <= kStaleness; ++clock) {
          ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
          EXPECT_GE(values[0], static_cast<float>(clock));  // its own pushes at least
          table.PushDense(ones);
          ASSERT_THAT(table.Clock(), IsOk());
        }
        const Future<Done> waits = table.PullDense(absl::MakeSpan(values));
        EXPECT_THAT(waits.Wait(absl::Milliseconds(100)),
                    StatusIs(absl::StatusCode::kDeadlineExceeded));
        if (++blocked == 2) others_are_blocked.Notify();
        ASSERT_THAT(waits.Wait(kDeadline), IsOk());
        // All pushes of clock 0 of worker 0, and its own.
        EXPECT_GE(values[0], 1.0f + kStaleness + 1);
      });
}

TEST_F(LocalPsTest, AspWaitsForNobody) {
  Make(2, 2, 2);
  absl::Notification done;
  Run({{.name = "w", .keys = 100, .sync = Sync::kAsp}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    if (worker.rank() == 0) return done.WaitForNotification();
    const std::vector<float> ones(100, 1.0f);
    std::vector<float> values(100);
    for (int i = 0; i < 300; ++i) {
      table.PushDense(ones);
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      ASSERT_EQ(values[99], static_cast<float>(i + 1));
    }
    done.Notify();
  });
}

TEST_F(LocalPsTest, SparseTablesMakeRowsAtFirstTouch) {
  Make(2, 3, 2);
  const std::vector<Key> keys = {0, 7, uint64_t{1} << 40, UINT64_MAX - 1, UINT64_MAX};
  std::vector<TableSpec> tables;
  for (const ps::Split split : {ps::Split::kRange, ps::Split::kHash, ps::Split::kBlocks}) {
    TableSpec spec;
    spec.name = std::string(ps::SplitName(split));
    spec.width = 3;
    spec.dtype = spec.wire = DType::kI64;
    spec.split = split;
    spec.block = split == ps::Split::kBlocks ? 8 : 0;
    spec.sync = Sync::kAsp;
    tables.push_back(spec);
  }
  Run(tables, [&](Worker& worker) {
    for (const TableSpec& spec : tables) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<int64_t> table, worker.Open<int64_t>(spec.name));
      std::vector<int64_t> values(keys.size() * 3);
      std::iota(values.begin(), values.end(), worker.rank() * 100);
      ASSERT_THAT(table.Push(keys, values).Wait(kDeadline), IsOk());
      ASSERT_THAT(worker.Barrier(), IsOk());
      std::vector<int64_t> sums(keys.size() * 3);
      ASSERT_THAT(table.Pull(keys, absl::MakeSpan(sums)).Wait(kDeadline), IsOk());
      for (size_t i = 0; i < sums.size(); ++i) {
        EXPECT_EQ(sums[i], static_cast<int64_t>(2 * i + 100)) << spec.name;
      }
      const std::vector<Key> other = {1, 2};
      std::vector<int64_t> none(6, -1);
      ASSERT_THAT(table.Pull(other, absl::MakeSpan(none)).Wait(kDeadline), IsOk());
      EXPECT_EQ(none, std::vector<int64_t>(6, 0));
    }
  });
}

TEST_F(LocalPsTest, LargeTablesTravelInPieces) {
  Make(3, 2, 2);
  constexpr size_t kSize = size_t{3} << 20;  // 12 MiB
  Run({{.name = "w", .keys = kSize / 1024, .width = 1024}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(kSize);
    for (uint64_t clock = 0; clock < 3; ++clock) {
      const std::vector<float> pushed = PushOf(worker.rank(), clock, kSize);
      ASSERT_THAT(table.PushDense(pushed).Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      ASSERT_TRUE(SameBits(values, Replayed(clock + 1, kSize)));
    }
  });
}

TEST_F(LocalPsTest, OwnUpdatesGetTheSumOfAClock) {
  Make(2, 2, 3);
  RunServers(
      [](ps::Server& server) {
        const auto largest = [](const ps::Pusher& from, absl::Span<const Key> keys,
                                absl::Span<const float> values, ps::Rows<float> rows) {
          EXPECT_EQ(from.worker, -1);
          // Each server has a range, and gets all of its keys.
          const absl::Span<float> run = rows.Run(keys);
          EXPECT_EQ(run.size(), keys.size());
          EXPECT_EQ(rows[keys[1]].data(), &run[1]);
          EXPECT_EQ(rows.Run(keys.subspan(3, 2)).data(), &run[3]);
          EXPECT_TRUE(rows.Run({keys[0], keys[2]}).empty()) << "one is missing between them";
          EXPECT_TRUE(rows.Run({keys.back(), keys.back() + 1}).empty())
              << "the last one is foreign";
          EXPECT_TRUE(rows.Run({}).empty());
          for (size_t i = 0; i < keys.size(); ++i) {
            rows[keys[i]][0] = std::max(rows[keys[i]][0], values[i]);
          }
          return absl::OkStatus();
        };
        ASSERT_THAT(server.AddTable<float>({.name = "w", .keys = 50}, largest), IsOk());
      },
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
        std::vector<float> values(50);
        for (const float pushed : {1.0f, 5.0f, 2.0f}) {
          table.PushDense(std::vector<float>(50, pushed));
          ASSERT_THAT(table.Clock(), IsOk());
        }
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        EXPECT_EQ(values, std::vector<float>(50, 15.0f));
      });
}

TEST_F(LocalPsTest, OwnUpdatesHaveTheRowsOfTheirServerAndTheWireThatIsGiven) {
  Make(1, 2, 1);
  RunServers(
      [](ps::Server& server) {
        const auto add = [](const ps::Pusher&, absl::Span<const Key> keys,
                            absl::Span<const float> values, ps::Rows<float> rows) {
          // With two servers each has half of the keys.
          EXPECT_NE(rows[0].empty(), rows[3].empty());
          for (size_t i = 0; i < keys.size(); ++i) rows[keys[i]][0] += values[i];
          return absl::OkStatus();
        };
        ASSERT_THAT(server.AddTable<float>({.name = "w", .keys = 4, .wire = DType::kBf16}, add),
                    IsOk());
        const auto none = [](const ps::Pusher&, absl::Span<const Key>, absl::Span<const double>,
                             ps::Rows<double>) { return absl::OkStatus(); };
        EXPECT_THAT(server.AddTable<double>({.name = "x", .wire = DType::kBf16}, none),
                    StatusIs(absl::StatusCode::kInvalidArgument));
        EXPECT_THAT(server.AddTable<double>({.name = "x"}, none), IsOk());
        // The function has lengths exactly if the table has.
        const auto of_lengths = [](const ps::Pusher&, absl::Span<const Key>,
                                   absl::Span<const double>, absl::Span<const uint32_t>,
                                   ps::Rows<double>) { return absl::OkStatus(); };
        EXPECT_THAT(server.AddTable<double>({.name = "y", .lengths = true}, none),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             AllOf(HasSubstr("y: a table with lengths"), HasSubstr("parameter"))));
        EXPECT_THAT(server.AddTable<double>({.name = "y"}, of_lengths),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             AllOf(HasSubstr("y: "), HasSubstr("the table has none"))));
        EXPECT_THAT(server.AddTable<double>({.name = "y", .lengths = true}, of_lengths), IsOk());
        // One that takes both is given what the table has.
        const auto any = [](auto&&...) { return absl::OkStatus(); };
        EXPECT_THAT(server.AddTable<double>({.name = "z", .lengths = true}, any), IsOk());
        EXPECT_THAT(server.AddTable<double>({.name = "fixed"}, any), IsOk());
      },
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
        EXPECT_EQ(table.spec().wire, DType::kBf16);
        table.PushDense(std::vector<float>(4, 2.0f));
        ASSERT_THAT(table.Clock(), IsOk());
        std::vector<float> values(4);
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        EXPECT_EQ(values, std::vector<float>(4, 2.0f));
      });
}

TEST_F(LocalPsTest, AnUpdateThatFailsEndsAllCallsOfTheTable) {
  Make(2, 1, 2);
  RunServers(
      [](ps::Server& server) {
        const auto fails = [](const ps::Pusher&, absl::Span<const Key>, absl::Span<const float>,
                              ps::Rows<float>) -> absl::Status {
          return absl::OutOfRangeError("the loss is not finite");
        };
        TableSpec spec{.name = "w", .keys = 50};
        ASSERT_THAT(server.AddTable<float>(spec, fails), IsOk());
        ASSERT_THAT(server.AddTable({.name = "other", .keys = 1, .sync = Sync::kAsp}), IsOk());
      },
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
        std::vector<float> values(50);
        table.PushDense(values);
        ASSERT_THAT(table.Clock(), IsOk());
        const absl::Status status =
            table.PullDense(absl::MakeSpan(values)).Wait(kDeadline).status();
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
        EXPECT_THAT(std::string(status.message()),
                    ::testing::AllOf(::testing::HasSubstr("w"),
                                     ::testing::HasSubstr("the loss is not finite")));
        // Another table goes on.
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> other, worker.Open<float>("other"));
        EXPECT_THAT(other.PullDense(absl::MakeSpan(values.data(), 1)).Wait(kDeadline), IsOk());
      });
}

TEST_F(LocalPsTest, RequestsAreAnswered) {
  Make(2, 2, 2);
  RunServers(
      [](ps::Server& server) {
        if (server.rank() == 1) return;
        server.OnRequest([](const ps::RequestInfo& request) -> absl::StatusOr<ps::Reply> {
          if (request.head < 0) return absl::OutOfRangeError("negative");
          return ps::Reply{request.head + request.worker, absl::StrCat(request.body, "!")};
        });
      },
      [&](Worker& worker) {
        for (int i = 0; i < 100; ++i) {
          PHALANX_ASSERT_OK_AND_ASSIGN(
              const ps::Reply reply,
              worker.Request(0, i, std::string(static_cast<size_t>(i) * 100, 'x')).Wait(kDeadline));
          EXPECT_EQ(reply.head, i + worker.rank());
          EXPECT_EQ(reply.body.size(), static_cast<size_t>(i) * 100 + 1);
        }
        EXPECT_THAT(worker.Request(0, -1, "").Wait(kDeadline),
                    StatusIs(absl::StatusCode::kOutOfRange));
        EXPECT_THAT(worker.Request(1, 0, "").Wait(kDeadline),
                    StatusIs(absl::StatusCode::kUnimplemented));
        EXPECT_THAT(worker.Request(2, 0, "").Wait(kDeadline),
                    StatusIs(absl::StatusCode::kInvalidArgument));
      });
}

TEST_F(LocalPsTest, BadInputIsRefusedAndNamed) {
  Make(1, 2, 1);
  Run({{.name = "dense", .keys = 10, .width = 2}, {.name = "sparse", .sync = Sync::kAsp}},
      [&](Worker& worker) {
        const auto expect = [](const Future<Done>& call, const std::string& text) {
          const absl::Status status = call.Wait(kDeadline).status();
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << text;
          EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(text));
        };
        EXPECT_THAT(worker.Open<float>("none"), StatusIs(absl::StatusCode::kNotFound));
        EXPECT_THAT(worker.Open<double>("dense"), StatusIs(absl::StatusCode::kInvalidArgument));
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> dense, worker.Open<float>("dense"));
        const std::vector<float> values(20);
        expect(dense.Push(std::vector<Key>{3, 2}, absl::MakeSpan(values.data(), 4)), "dense");
        expect(dense.Push(std::vector<Key>{3, 3}, absl::MakeSpan(values.data(), 4)), "3");
        expect(dense.Push(std::vector<Key>{10}, absl::MakeSpan(values.data(), 2)), "10");
        expect(dense.Push(std::vector<Key>{1}, absl::MakeSpan(values.data(), 3)), "12 bytes");
        expect(dense.PushDense(absl::MakeSpan(values.data(), 19)), "76 bytes");
        std::vector<float> out(4);
        const std::vector<Key> two = {1, 2};
        expect(dense.PushPull(two, absl::MakeSpan(values.data(), 3), absl::MakeSpan(out)),
               "12 bytes");
        expect(dense.PushPull(two, absl::MakeSpan(values.data(), 4), absl::MakeSpan(out.data(), 2)),
               "8 bytes");
        // The table goes on.
        EXPECT_THAT(dense.PushDense(values).Wait(kDeadline), IsOk());
        EXPECT_THAT(dense.Push({}, {}).Wait(kDeadline), IsOk());
      });
}

TEST_F(LocalPsTest, AClockReturnsTheErrorOfAPushThatWasDropped) {
  Make(1, 1, 1);
  Run({{.name = "w", .keys = 10, .sync = Sync::kAsp}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    const std::vector<float> values(10, 1.0f);
    table.PushDense(absl::MakeSpan(values.data(), 9));
    EXPECT_THAT(table.Clock(), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(table.clock(), 0u);
    table.PushDense(values);
    EXPECT_THAT(table.Clock(), IsOk());
    EXPECT_EQ(table.clock(), 1u);
  });
}

TEST_F(LocalPsTest, PushesOfManyThreadsWaitForRoom) {
  Make(2, 1, 1);
  constexpr int kThreads = 4;
  constexpr int kPushes = 25;
  Run({{.name = "w", .keys = 100, .sync = Sync::kAsp, .snapshot_bytes = 500}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int push = 0; push < kPushes; ++push) {
          ASSERT_THAT(table.PushDense(std::vector<float>(100, 1.0f)).Wait(kDeadline), IsOk());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_THAT(table.Clock(), IsOk());
    std::vector<float> sum(100);
    ASSERT_THAT(table.PullDense(absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
    EXPECT_EQ(sum, std::vector<float>(100, 1.0f * kThreads * kPushes));
  });
}

// Each call has many pieces, which leave while others of the same worker begin calls.
TEST_F(LocalPsTest, ThreadsMakeLongCallsTogether) {
  Make(3, 2, 2);
  constexpr int kThreads = 3;
  constexpr int kCalls = 3;
  std::vector<TableSpec> specs;
  for (const ps::Split split : {ps::Split::kRange, ps::Split::kHash}) {
    specs.push_back({.name = split == ps::Split::kRange ? "range" : "hash",
                     .keys = 200'000,
                     .dtype = DType::kI64,
                     .wire = DType::kI64,
                     .sync = Sync::kAsp,
                     .split = split,
                     .snapshot_every = 0});
  }
  std::vector<Key> keys;
  for (Key key = 0; key < 200'000; key += 2) keys.push_back(key);
  Run(specs, [&](Worker& worker) {
    for (const TableSpec& spec : specs) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<int64_t> table, worker.Open<int64_t>(spec.name));
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
          const std::vector<int64_t> ones(keys.size(), 1);
          std::vector<int64_t> pulled(keys.size());
          for (int call = 0; call < kCalls; ++call) {
            auto pushed = table.Push(keys, ones);
            ASSERT_THAT(table.Pull(keys, absl::MakeSpan(pulled)).Wait(kDeadline), IsOk());
            ASSERT_THAT(pushed.Wait(kDeadline), IsOk());
            for (const int64_t value : pulled) {
              ASSERT_GT(value, call);
              ASSERT_LE(value, 2 * kThreads * kCalls);
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_THAT(worker.Barrier(), IsOk());
      std::vector<int64_t> sum(keys.size());
      ASSERT_THAT(table.Pull(keys, absl::MakeSpan(sum)).Wait(kDeadline), IsOk());
      EXPECT_EQ(sum, std::vector<int64_t>(keys.size(), 2 * kThreads * kCalls));
    }
  });
}

// Answers of more than a server makes at once. The last ones are made because their clock ends.
TEST_F(LocalPsTest, LargePullsHaveTheRowsOfTheirClock) {
  Make(3, 1, 3);
  constexpr size_t kSize = 800'000;  // 6.4 MB
  const TableSpec spec = {
      .name = "w", .keys = kSize, .dtype = DType::kI64, .wire = DType::kI64, .snapshot_every = 0};
  std::vector<Key> keys(kSize);
  std::iota(keys.begin(), keys.end(), 0);
  Run({spec}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<int64_t> table, worker.Open<int64_t>("w"));
    const std::vector<int64_t> ones(kSize, 1);
    for (int64_t clock = 0; clock < 3; ++clock) {
      std::vector<int64_t> first(kSize, -1);
      std::vector<int64_t> second(kSize, -1);
      auto pulled = table.Pull(keys, absl::MakeSpan(first));
      auto also = table.Pull(keys, absl::MakeSpan(second));
      table.Push(keys, ones);
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(pulled.Wait(kDeadline), IsOk());
      ASSERT_THAT(also.Wait(kDeadline), IsOk());
      ASSERT_EQ(first, std::vector<int64_t>(kSize, clock * 3));
      ASSERT_EQ(second, first);
    }
  });
}

TEST_F(LocalPsTest, AJobCanRunAgainUnderItsName) {
  Make(2, 2, 2);
  for (int run = 0; run < 3; ++run) {
    Run({{.name = "w", .keys = 10, .snapshot_every = 1}}, [&](Worker& worker) {
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
      EXPECT_EQ(table.clock(), 0u);
      std::vector<float> values(10);
      for (uint64_t clock = 0; clock < 5; ++clock) {
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        EXPECT_EQ(values[0], 2.0f * static_cast<float>(clock));
        table.PushDense(std::vector<float>(10, 1.0f));
        ASSERT_THAT(table.Clock(), IsOk());
      }
    });
  }
}

TEST_F(LocalPsTest, AFastWorkerWaitsForTheOthersWithoutSnapshots) {
  Make(2, 2, 2);
  constexpr int kClocks = 10;
  constexpr int kPushes = 20;
  absl::Notification ahead;
  Run({{.name = "w", .keys = 10, .snapshot_every = 0, .snapshot_bytes = 1000}},
      [&](Worker& worker) {
        PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
        ASSERT_TRUE(worker.rank() == 0 || ahead.WaitForNotificationWithTimeout(kDeadline));
        for (int clock = 0; clock < kClocks; ++clock) {
          for (int i = 0; i < kPushes; ++i) {
            ASSERT_THAT(table.PushDense(std::vector<float>(10, 1.0f)).Wait(kDeadline), IsOk());
          }
          // A clock ahead, its pushes wait at the servers.
          if (worker.rank() == 0 && clock == 1) ahead.Notify();
          ASSERT_THAT(table.Clock(), IsOk());
        }
        std::vector<float> values(10);
        ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
        EXPECT_EQ(values, std::vector<float>(10, 2.0f * kClocks * kPushes));
      });
}

TEST_F(LocalPsTest, FuturesHaveCallbacksWhichCanWait) {
  Make(1, 1, 1);
  Run({{.name = "w", .keys = 10, .sync = Sync::kAsp}}, [&](Worker& worker) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(10);
    bool pulled = false;
    const Future<Done> push = table.PushDense(std::vector<float>(10, 1.0f));
    push.OnReady([&](const absl::StatusOr<Done>& done) {
      EXPECT_THAT(done, IsOk());
      EXPECT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
      pulled = true;
    });
    ASSERT_THAT(push.Wait(kDeadline), IsOk());
    // The callback runs within a later wait, at the latest.
    ASSERT_THAT(table.PushDense(std::vector<float>(10, 1.0f)).Wait(kDeadline), IsOk());
    EXPECT_TRUE(pulled);
    EXPECT_GE(values[0], 1.0f);
  });
}

TEST_F(LocalPsTest, ServersThatDoNotComeAreNamed) {
  Make(1, 2, 1);
  peer_timeout_ = absl::Milliseconds(500);
  EXPECT_THAT(JoinWorker(0), StatusIs(absl::StatusCode::kDeadlineExceeded));
  const absl::StatusOr<ps::Server> first = JoinServer(0);
  ASSERT_THAT(first, IsOk());
  const absl::StatusOr<Worker> worker = JoinWorker(0);
  EXPECT_THAT(worker, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(worker.status().message()), ::testing::HasSubstr("servers 0, 1"));
}

}  // namespace
}  // namespace phalanx::runtime
