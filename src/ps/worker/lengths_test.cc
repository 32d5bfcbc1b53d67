// A WorkerCore and tables whose rows have lengths of their own.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/rows/length_values.h"
#include "src/ps/worker/testing/worker_play.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Play = WorkerPlay;
using Ticket = WorkerCore::Ticket;

TableSpec Ragged() {
  TableSpec spec = SpecOf("a");
  spec.keys = 0;
  spec.width = 5;
  spec.lengths = true;
  return spec;
}

// Rows of these lengths, whose elements count from `first` on.
std::string Wire(const std::vector<uint32_t>& lengths, int64_t first) {
  std::string wire = LengthsHead(lengths);
  for (const uint32_t length : lengths) {
    for (uint32_t i = 0; i < length; ++i, ++first) {
      wire.append(reinterpret_cast<const char*>(&first), sizeof(first));
    }
  }
  return wire;
}

std::vector<int64_t> ValuesOf(const RowData& data) {
  const PulledRows rows(data);
  return {rows.values<int64_t>().begin(), rows.values<int64_t>().end()};
}

Ticket Pull(Play& play, const std::vector<Key>& keys) {
  const auto ticket = play.Make({.table = 0, .keys = keys, .pulls = true});
  EXPECT_THAT(ticket, IsOk());
  play.core.Flush();
  return *ticket;
}

// Of two servers the second has the upper half of all keys.
TEST(WorkerLengths, RowsOfSeveralAnswersAndServersComeInTheOrderOfKeys) {
  Play play(2, {Ragged()});
  play.Begin(2);
  const Ticket pull = Pull(play, {1, 2, 9, ~Key{0} - 3, ~Key{0}});
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 list of 3"));
  EXPECT_THAT(play.Got(1), ElementsAre("pull 0 at 0 list of 2"));
  // Pieces have the numbers in which they were cut.
  const std::string upper = Wire({1, 3}, 60), first = Wire({2}, 10), second = Wire({0, 2}, 30);
  play.Answer(1, 1, Values{.ticket = pull, .piece = 1, .values = upper});
  play.Answer(0, 1, Values{.ticket = pull, .piece = 0, .values = first});
  EXPECT_THAT(play.Taken(pull), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(play.core.TakeAnswer(pull).has_value());
  play.Answer(0, 1, Values{.ticket = pull, .piece = 0, .values = second});
  const std::optional<WorkerCore::Answer> answer = play.core.TakeAnswer(pull);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->rows.lengths, ElementsAre(2, 0, 2, 1, 3));
  EXPECT_THAT(ValuesOf(answer->rows), ElementsAre(10, 11, 30, 31, 60, 61, 62, 63));
  EXPECT_THAT(play.Taken(pull), IsOk());
}

// Rows of a server that are not together in the call find their places.
TEST(WorkerLengths, RowsOfAHashAreOrderedWhateverServerAnswersFirst) {
  TableSpec spec = Ragged();
  spec.split = Split::kHash;
  Play play(2, {spec});
  play.Begin(2);
  const std::vector<Key> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Ticket pull = Pull(play, keys);
  const Splitter splitter(spec, 2);
  std::vector<std::vector<uint32_t>> lengths(2);
  std::vector<uint32_t> all;
  for (const Key key : keys) {
    all.push_back(static_cast<uint32_t>(key % 4));
    lengths[splitter.PartOf(key)].push_back(all.back());
  }
  for (const int server : {1, 0}) {
    EXPECT_THAT(play.Got(server), ElementsAre(HasSubstr("pull 0 at 0 list of")));
    const std::string wire = Wire(lengths[server], 100 * server);
    play.Answer(server, 1,
                Values{.ticket = pull, .piece = play.last_pull[server].piece, .values = wire});
  }
  const std::optional<WorkerCore::Answer> answer = play.core.TakeAnswer(pull);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->rows.lengths, all);
  std::vector<int64_t> next = {0, 100}, expected;
  for (const Key key : keys) {
    for (uint32_t i = 0; i < key % 4; ++i) expected.push_back(next[splitter.PartOf(key)]++);
  }
  EXPECT_EQ(ValuesOf(answer->rows), expected);
}

// What has come of the answer is of another moment, or of a server that is no more.
TEST(WorkerLengths, ANextChannelBeginsTheAnswerAnew) {
  Play play(1, {Ragged()});
  play.Begin(1);
  const Ticket pull = Pull(play, {1, 2, 9});
  const std::string before = Wire({2, 1}, 10), after = Wire({1, 1, 3}, 50);
  play.Answer(0, 1, Values{.ticket = pull, .piece = 0, .values = before});
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 list of 3"));
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2);
  EXPECT_THAT(play.Got(0), ElementsAre("hello to 2", "pull 0 at 0 list of 3"));
  play.Answer(0, 2, Values{.ticket = pull, .piece = 0, .values = after});
  const std::optional<WorkerCore::Answer> answer = play.core.TakeAnswer(pull);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->rows.lengths, ElementsAre(1, 1, 3));
  EXPECT_THAT(ValuesOf(answer->rows), ElementsAre(50, 51, 52, 53, 54));
}

TEST(WorkerLengths, AnswersWithOtherRowsEndTheCall) {
  const std::string none = Wire({}, 0), more = Wire({1, 1, 1}, 0), wide = Wire({6}, 0);
  const std::string torn = Wire({1, 2}, 0).substr(0, 20);
  for (const std::string& wrong : {none, more, wide, torn, std::string()}) {
    Play play(1, {Ragged()});
    play.Begin(1);
    const Ticket pull = Pull(play, {1, 9});
    play.Answer(0, 1, Values{.ticket = pull, .piece = 0, .values = wrong});
    EXPECT_THAT(play.Taken(pull),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr("table \"a\": server 0 answered 2 keys with other rows: ")));
  }
}

TEST(WorkerLengths, APullWithoutKeysHasNoRows) {
  Play play(1, {Ragged()});
  play.Begin(1);
  const Ticket pull = Pull(play, {});
  const std::optional<WorkerCore::Answer> answer = play.core.TakeAnswer(pull);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(answer->rows.lengths, IsEmpty());
  EXPECT_THAT(play.Taken(pull), IsOk());
}

// A worker keeps them as they travel, with their lengths.
TEST(WorkerLengths, PushesAreSentAgainWithTheirLengths) {
  Play play(1, {Ragged()});
  play.Begin(1);
  const std::vector<Key> keys = {3, 4, 8};
  const std::vector<uint32_t> lengths = {2, 0, 1};
  const std::vector<int64_t> values = {7, 8, 9};
  const auto push = play.Make(
      {.table = 0, .keys = keys, .pushes = true, .values = values.data(), .lengths = lengths});
  ASSERT_THAT(push, IsOk());
  for (uint64_t life = 1; life < 3; ++life) {
    play.core.Flush();
    const std::string expected = Wire(lengths, 7);
    std::string got;
    for (const WorkerCore::Send& send : play.core.TakeSends()) {
      const auto message = DecodeWorkerMessage(send.bytes);
      ASSERT_THAT(message, IsOk());
      for (const WorkerEntry& entry : std::get<WorkerBatch>(*message).entries) {
        if (const auto* one = std::get_if<Push>(&entry)) got += std::string(one->values);
      }
    }
    EXPECT_EQ(got, expected) << life;
    play.core.OnServer(0, true, life + 1);
    play.Welcome(0, life + 1);
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
