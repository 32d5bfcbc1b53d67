// A ServerCore and a table whose rows have lengths of their own.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/rows/length_values.h"
#include "src/ps/server/snapshot_format.h"
#include "src/ps/server/testing/one_server.h"

namespace phalanx::ps::internal::testing {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TableSpec Ragged(Sync sync) {
  TableSpec spec = Saved(sync);
  spec.keys = 0;
  spec.width = 4;
  spec.lengths = true;
  return spec;
}

std::string Wire(const std::vector<uint32_t>& lengths, const std::vector<float>& values) {
  return LengthsHead(lengths) + Bytes(values);
}

void Push(OneServer& server, int worker, uint64_t clock, uint32_t number, std::vector<Key> keys,
          const std::string& values, uint64_t ticket = 0) {
  server.Batch(worker, {internal::Push{.ticket = ticket,
                                       .table = 0,
                                       .at = {.clock = clock, .push = number, .piece = 0},
                                       .keys = KeysOf(std::move(keys)),
                                       .values = values}});
}

// An answer as a text: "2 0 1: 1.5 2 3".
std::string Row(const std::string& values, const TableSpec& spec) {
  const auto read = ReadLengthValues(spec, values);
  if (!read.ok()) return read.status().ToString();
  return absl::StrCat(absl::StrJoin(read->lengths, " "), ": ",
                      absl::StrJoin(Floats(read->elements), " "));
}

TEST(ServerLengths, RowsGrowWithWhatIsPushed) {
  const TableSpec spec = Ragged(Sync::kAsp);
  OneServer server(1, {spec});
  server.Begin();
  Push(server, 0, 0, 1, {3, 4, 9}, Wire({2, 0, 1}, {1, 2, 3}));
  Push(server, 0, 0, 2, {3, 9}, Wire({1, 3}, {10, 20, 30, 40}));
  server.Pull(0, 1, 0, {2, 3, 4, 9});
  EXPECT_EQ(Row(server.inbox[0].values[1], spec), "0 2 0 3: 11 2 23 30 40");
}

// The sum of a clock is as long as its longest push, in the order of workers.
TEST(ServerLengths, AClockTurnsWithAllLengths) {
  const TableSpec spec = Ragged(Sync::kBsp);
  OneServer server(2, {spec});
  server.Begin();
  Push(server, 1, 0, 1, {5}, Wire({3}, {1, 1e8, 4}));
  Push(server, 0, 0, 1, {5}, Wire({2}, {1, -1e8}));
  server.Pull(0, 1, 0, {5});
  EXPECT_EQ(Row(server.inbox[0].values[1], spec), "0: ");
  server.Clock(0, 0);
  server.Clock(1, 0);
  server.Pull(0, 2, 1, {5});
  EXPECT_EQ(Row(server.inbox[0].values[2], spec), "3: 2 0 4");
}

TEST(ServerLengths, LengthsThatDoNotAddUpAreRefused) {
  OneServer server(1, {Ragged(Sync::kAsp)});
  server.Begin();
  const auto refused = [&](const std::string& values, const char* why) {
    server.inbox[0].errors.clear();
    Push(server, 0, 0, 1, {3, 4}, values, 7);
    ASSERT_EQ(server.inbox[0].errors.size(), 1u) << why;
    EXPECT_THAT(server.inbox[0].errors[0],
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::AllOf(HasSubstr("table \"w\""), HasSubstr(why),
                                          HasSubstr("clock 0 by worker 0"))));
  };
  refused(Wire({2, 1}, {1, 2}), "do not add up: they are 3 elements of 4 bytes, and there are 8");
  refused(Wire({5, 0}, {1, 2, 3, 4, 5}), "a row of length 5, the width is 4");
  refused(Wire({2}, {1, 2}), "1 lengths for 2 keys");
  refused(Wire({1, 1, 1}, {1, 2, 3}), "3 lengths for 2 keys");
  refused("", "2 keys, at most 0");
  // Nothing of them has counted.
  Push(server, 0, 0, 1, {3, 4}, Wire({1, 1}, {1, 2}));
  server.Pull(0, 1, 0, {3, 4});
  EXPECT_EQ(Row(server.inbox[0].values[1], Ragged(Sync::kAsp)), "1 1: 1 2");
}

// As many as the rows fill, one row at least in each: in their order, from the state of one moment.
TEST(ServerLengths, OnePullCanHaveSeveralAnswers) {
  const TableSpec spec = Ragged(Sync::kAsp);
  OneServer server(1, {spec}, nullptr, {.unsent_bytes = 1, .answer_bytes = 24});
  server.Begin();
  Push(server, 0, 0, 1, {1, 2, 3, 4}, Wire({4, 1, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  server.Hold(0);
  server.Batch(0, {internal::Pull{.ticket = 1,
                                  .clock = 0,
                                  .keys = {.form = WireKeys::Form::kRun, .begin = 1, .count = 5}}});
  EXPECT_EQ(server.core.waiting(), 1) << "some of its rows";
  // A push of the worker itself is not in what it has asked for before.
  Push(server, 0, 0, 2, {5}, Wire({2}, {11, 12}));
  EXPECT_EQ(server.core.waiting(), 0);
  std::vector<std::string> answers;
  for (; !server.held[0]->empty(); server.Sent(0)) {
    const auto message = DecodeServerMessage(server.held[0]->front());
    ASSERT_THAT(message, IsOk());
    for (const ServerEntry& entry : std::get<ServerBatch>(*message).entries) {
      const auto* const values = std::get_if<Values>(&entry);
      if (values != nullptr) answers.push_back(Row(std::string(values->values), spec));
    }
  }
  EXPECT_THAT(answers, ElementsAre("4: 1 2 3 4", "1 1: 5 6", "4 0: 7 8 9 10"));
}

// A run is answered in parts also if its rows are short.
TEST(ServerLengths, ARunOfManyKeysHasAllItsRows) {
  const TableSpec spec = Ragged(Sync::kAsp);
  OneServer server(1, {spec});
  server.Begin();
  constexpr Key kCount = 10'000;
  for (Key begin = 0; begin < kCount; begin += 100) {
    std::vector<Key> keys;
    std::vector<uint32_t> lengths;
    std::vector<float> values;
    for (Key key = begin; key < begin + 100; ++key) {
      keys.push_back(key);
      lengths.push_back(key % 3);
      values.insert(values.end(), key % 3, static_cast<float>(key));
    }
    Push(server, 0, 0, static_cast<uint32_t>(begin / 100 + 1), keys, Wire(lengths, values));
  }
  server.Hold(0);
  const WireKeys run = {.form = WireKeys::Form::kRun, .begin = 0, .count = kCount};
  server.Batch(0, {internal::Pull{.ticket = 1, .clock = 0, .keys = run}});
  Key next = 0;
  for (; !server.held[0]->empty(); server.Sent(0)) {
    const auto message = DecodeServerMessage(server.held[0]->front());
    ASSERT_THAT(message, IsOk());
    for (const ServerEntry& entry : std::get<ServerBatch>(*message).entries) {
      const auto* const values = std::get_if<Values>(&entry);
      if (values == nullptr) continue;
      const auto read = ReadLengthValues(spec, values->values);
      ASSERT_THAT(read, IsOk());
      std::vector<float> expected;
      for (const uint32_t length : read->lengths) {
        ASSERT_EQ(length, next % 3);
        expected.insert(expected.end(), length, static_cast<float>(next++));
      }
      EXPECT_EQ(Floats(read->elements), expected);
    }
  }
  EXPECT_EQ(next, kCount);
}

TEST(ServerLengths, SnapshotsHaveRowsAndPushesWithTheirLengths) {
  const TableSpec spec = Ragged(Sync::kBsp);
  OneServer server(2, {spec});
  server.Begin();
  for (uint64_t clock = 0; clock < 2; ++clock) {
    Push(server, 0, clock, 1, {5, 6}, Wire({2, 1}, {1, 2, 3}));
    server.Clock(0, clock);
    // Ahead of the other one: it waits in the snapshot.
    if (clock == 1) Push(server, 0, 2, 1, {6}, Wire({3}, {7, 7, 7}));
    server.Clock(1, clock);
  }
  ASSERT_EQ(server.stores.size(), 1u);
  OneServer next(2, {spec});
  ASSERT_THAT(next.core.Restore(0, server.stores[0].number, server.stores[0].bytes), IsOk());
  next.Begin();
  next.Pull(1, 1, 2, {5, 6});
  EXPECT_EQ(Row(next.inbox[1].values[1], spec), "2 1: 2 4 6");
  next.Clock(0, 2);
  next.Clock(1, 2);
  next.Pull(1, 2, 3, {5, 6});
  EXPECT_EQ(Row(next.inbox[1].values[2], spec), "2 3: 2 4 13 7 7");
  for (const std::string& wrong : {Wire({4}, {7, 7, 7}), Wire({3, 0}, {7, 7, 7}), std::string()}) {
    auto snapshot = DecodeSnapshot(server.stores[0].bytes);
    ASSERT_THAT(snapshot, IsOk());
    ASSERT_EQ(snapshot->kept.size(), 1u);
    snapshot->kept[0].values = wrong;
    OneServer forged(2, {spec});
    EXPECT_THAT(forged.core.Restore(0, server.stores[0].number, Encode(*snapshot)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a push of worker 0: ")));
  }
  // One of a table without lengths, or with another width, is none of this table.
  TableSpec wider = spec, plain = spec;
  wider.width = 5;
  plain.lengths = false;
  for (const TableSpec& other : {wider, plain}) {
    OneServer wrong(2, {other});
    EXPECT_THAT(wrong.core.Restore(0, server.stores[0].number, server.stores[0].bytes),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace phalanx::ps::internal::testing
