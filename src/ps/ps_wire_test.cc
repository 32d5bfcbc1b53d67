#include "src/ps/ps_wire.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr Key kMaxKey = std::numeric_limits<Key>::max();

WireKeys List(std::vector<Key> keys) { return {.keys = std::move(keys)}; }
WireKeys RunOf(Key begin, uint64_t count) {
  return {.form = WireKeys::Form::kRun, .begin = begin, .count = count};
}
WireKeys Hash(KeyHash hash) { return {.form = WireKeys::Form::kHash, .hash = hash}; }

WorkerBatch AllWorkerEntries() {
  return {.channel = 7,
          .number = 5,
          .entries = {Push{.ticket = 1,
                           .table = 2,
                           .at = {.clock = 3, .push = 4, .piece = 5},
                           .keys = List({1, 5, kMaxKey}),
                           .values = "abcdefghijkl"},
                      Push{.keys = RunOf(kMaxKey, 1), .values = ""},
                      Push{.keys = Hash({.high = 8, .low = 9}), .values = "x"},
                      Push{.ticket = 13,
                           .table = 3,
                           .at = {.clock = 1, .push = 2, .piece = 0},
                           .object = "job/worker/1/0/3/0/1.2"},
                      Pull{.ticket = 14, .piece = 1, .table = 3, .clock = 9, .object = true},
                      Read{.table = 3, .ticket = 14, .piece = 1},
                      Read{.table = 3, .ticket = 15, .piece = 2, .lost = true},
                      ClockEnd{.table = 3, .clock = 9}, AskSnapshot{.table = 11},
                      Pull{.ticket = 6, .piece = 2, .table = 1, .clock = 4, .keys = RunOf(10, 20)},
                      Request{.ticket = 12, .head = -5, .body = "body"}}};
}

ServerBatch AllServerEntries() {
  return {.channel = 9,
          .entries = {
              Done{.count = 77},
              Values{.ticket = 3, .piece = 1, .min_clock = 5, .values = "values"},
              Values{.ticket = 4, .piece = 2, .min_clock = 6, .object = "job/server/0/0/3/8"},
              Refused{.ticket = 4, .why = absl::NotFoundError("no such table")},
              Response{.ticket = 5, .head = -1, .body = "answer"},
              Durable{.table = 2, .upto = {.clock = 1, .push = 2, .piece = 3}, .keep = 7},
              MinClock{.table = 6, .clock = 8},
              TableFailed{.table = 1, .why = absl::InternalError("own update threw")},
          }};
}

Welcome AWelcome() {
  TableSpec sparse{.name = "embeddings", .width = 16, .sync = Sync::kSsp, .staleness = 3};
  sparse.wire = DType::kBf16;
  sparse.update = Update::kAdagrad;
  sparse.init = Init::kUniform;
  sparse.scale = 0.25;
  sparse.seed = 42;
  sparse.on_loss = OnLoss::kDrop;
  sparse.copies = 2;
  TableSpec dense{.name = "w", .keys = 100, .split = Split::kBlocks, .block = 8};
  TableSpec ragged{.name = "lists", .width = 9, .lengths = true};
  return {.channel = 3,
          .tables = {{.spec = sparse,
                      .at = {.clock = 5, .push = 2, .piece = 1},
                      .durable = {.clock = 4},
                      .min_clock = 4,
                      .clock = 5,
                      .repeats = true},
                     {.spec = dense},
                     {.spec = ragged}}};
}

std::vector<WorkerMessage> WorkerMessages() {
  return {Hello{.channel = 3}, Hello{.channel = 4, .had = {{}, {5, 6, 7}}},
          WorkerBatch{.channel = 1}, AllWorkerEntries()};
}
std::vector<ServerMessage> ServerMessages() {
  return {AWelcome(), Welcome{.channel = 1}, Reset{}, ServerBatch{.channel = 1},
          AllServerEntries()};
}

TEST(PsWire, MessagesOfWorkersComeBackAsTheyWere) {
  for (const WorkerMessage& message : WorkerMessages()) {
    const std::string bytes = Encode(message);
    PHALANX_ASSERT_OK_AND_ASSIGN(const WorkerMessage decoded, DecodeWorkerMessage(bytes));
    EXPECT_EQ(decoded, message);
  }
}

TEST(PsWire, MessagesOfServersComeBackAsTheyWere) {
  for (const ServerMessage& message : ServerMessages()) {
    const std::string bytes = Encode(message);
    PHALANX_ASSERT_OK_AND_ASSIGN(const ServerMessage decoded, DecodeServerMessage(bytes));
    EXPECT_EQ(decoded, message);
  }
}

TEST(PsWire, ABatchIsTheSameWhenItIsWrittenEntryByEntry) {
  BatchWriter writer;
  EXPECT_TRUE(writer.empty());
  const WorkerBatch worker = AllWorkerEntries();
  for (const WorkerEntry& entry : worker.entries) writer.Add(entry);
  EXPECT_EQ(writer.size(), Encode(worker).size());
  EXPECT_EQ(writer.TakeWorkerBatch(7, 5), Encode(worker));
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.size(), 0);
  const ServerBatch server = AllServerEntries();
  for (const ServerEntry& entry : server.entries) writer.Add(entry);
  EXPECT_EQ(writer.TakeServerBatch(9), Encode(server));
}

TEST(PsWire, ALongErrorIsCut) {
  const std::string bytes =
      Encode(ServerBatch{.entries = {Refused{.why = absl::InternalError(std::string(5000, 'x'))}}});
  PHALANX_ASSERT_OK_AND_ASSIGN(const ServerMessage decoded, DecodeServerMessage(bytes));
  EXPECT_EQ(std::get<Refused>(std::get<ServerBatch>(decoded).entries[0]).why,
            absl::InternalError(std::string(kMaxErrorBytes, 'x')));
}

// An entry would have two forms if an object could have no name.
TEST(PsWire, NamesOfObjectsHaveAtLeastOneByteAndAtMost255) {
  const std::string longest(kMaxHandleBytes, 'h');
  for (const bool pushed : {true, false}) {
    const std::string bytes =
        pushed ? Encode(WorkerMessage(WorkerBatch{.entries = {Push{.object = longest}}}))
               : Encode(ServerMessage(ServerBatch{.entries = {Values{.object = longest}}}));
    const auto decoded = [pushed](const std::string& changed) {
      return pushed ? DecodeWorkerMessage(changed).status() : DecodeServerMessage(changed).status();
    };
    EXPECT_THAT(decoded(bytes), IsOk());
    const size_t length = bytes.size() - kMaxHandleBytes - sizeof(uint32_t);
    std::string none = bytes.substr(0, length + sizeof(uint32_t));
    none[length] = 0;
    EXPECT_THAT(decoded(none), StatusIs(kInvalid, HasSubstr("an object without a name")));
    std::string longer = bytes + "h";
    longer[length] = 0;
    longer[length + 1] = 1;
    EXPECT_THAT(decoded(longer), StatusIs(kInvalid, HasSubstr("256")));
  }
}

TEST(PsWire, AnEntryWithOneRowFitsBehindABatchThatIsNotFull) {
  const std::string row(size_t{kMaxWidth} * 8, 'x');
  for (const bool pushed : {true, false}) {
    BatchWriter writer;
    if (pushed) writer.Add(Push{.keys = RunOf(1, 1), .values = row});
    if (!pushed) writer.Add(Values{.values = row});
    EXPECT_LE(writer.size(), kMaxEntryBytes);
  }
  EXPECT_LE(kBatchBytes - 1 + kMaxEntryBytes, size_t{1} << 20);
}

// Decodes at both ends. Whatever is decoded encodes to the same bytes.
void DecodeAnything(const std::string& bytes) {
  const auto worker = DecodeWorkerMessage(bytes);
  if (worker.ok()) {
    EXPECT_EQ(Encode(*worker), bytes);
  } else {
    EXPECT_THAT(worker, StatusIs(kInvalid));
  }
  const auto server = DecodeServerMessage(bytes);
  if (server.ok()) {
    EXPECT_EQ(Encode(*server), bytes);
  } else {
    EXPECT_THAT(server, StatusIs(kInvalid));
  }
}

std::vector<std::string> AllBytes() {
  std::vector<std::string> all;
  for (const WorkerMessage& message : WorkerMessages()) all.push_back(Encode(message));
  for (const ServerMessage& message : ServerMessages()) all.push_back(Encode(message));
  return all;
}

TEST(PsWire, EveryTruncationDecodesOrIsRefused) {
  for (const std::string& bytes : AllBytes()) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      // A copy of exactly this size, so that ASan sees a read beyond it.
      const std::string cut(bytes.data(), size);
      DecodeAnything(cut);
    }
  }
  EXPECT_THAT(DecodeWorkerMessage(""), StatusIs(kInvalid));
  EXPECT_THAT(DecodeServerMessage(""), StatusIs(kInvalid));
}

TEST(PsWire, RandomMutationsDecodeOrAreRefused) {
  Random random(25);
  for (const std::string& bytes : AllBytes()) {
    for (int round = 0; round < 3000; ++round) {
      std::string changed = bytes;
      const uint64_t changes = 1 + random.Below(4);
      for (uint64_t i = 0; i < changes; ++i) {
        changed[random.Below(changed.size())] = static_cast<char>(random.Next());
      }
      if (random.Chance(0.3)) changed.resize(random.Below(changed.size() + 1));
      if (random.Chance(0.2)) changed += bytes.substr(random.Below(bytes.size()));
      DecodeAnything(changed);
    }
  }
}

TEST(PsWire, ClaimedSizesDoNotAllocate) {
  // A list of 2^32 - 1 keys, values of as many bytes, and as many tables, in a few bytes: each of
  // them would be more memory than a test has.
  std::string list = Encode(WorkerBatch{.entries = {Pull{.keys = List({1})}}});
  for (size_t i = 0; i < 4; ++i) list[list.size() - sizeof(Key) - 1 - i] = '\xff';
  EXPECT_THAT(DecodeWorkerMessage(list), StatusIs(kInvalid, HasSubstr("needs 34359738360 bytes")));
  std::string values = Encode(ServerBatch{.entries = {Values{}}});
  for (size_t i = 0; i < 4; ++i) values[values.size() - 1 - i] = '\xff';
  EXPECT_THAT(DecodeServerMessage(values), StatusIs(kInvalid, HasSubstr("needs 4294967295 bytes")));
  std::string welcome = Encode(Welcome{});
  for (size_t i = 0; i < 4; ++i) welcome[welcome.size() - 1 - i] = '\xff';
  EXPECT_THAT(DecodeServerMessage(welcome), StatusIs(kInvalid, HasSubstr("more than 1024")));
}

TEST(PsWire, OtherVersionsKindsAndSpecsAreRefused) {
  std::string repeats = Encode(Welcome{.tables = {{.spec = {.name = "w"}}}});
  repeats.back() = 2;
  EXPECT_THAT(DecodeServerMessage(repeats), StatusIs(kInvalid, HasSubstr("repeats 2")));
  std::string bytes = Encode(Hello{});
  bytes[0] = 3;
  EXPECT_THAT(DecodeWorkerMessage(bytes), StatusIs(kInvalid, HasSubstr("version 3, expected 2")));
  EXPECT_THAT(DecodeServerMessage(Encode(Hello{})), StatusIs(kInvalid, HasSubstr("kind 1")));
  EXPECT_THAT(DecodeWorkerMessage(Encode(Reset{})), StatusIs(kInvalid, HasSubstr("kind 5")));
  std::string entry = Encode(WorkerBatch{.entries = {AskSnapshot{}}});
  entry[18] = static_cast<char>(200);
  EXPECT_THAT(DecodeWorkerMessage(entry), StatusIs(kInvalid, HasSubstr("kind 200 of an entry")));
  EXPECT_THAT(DecodeServerMessage(Encode(Welcome{.tables = {{.spec = {.name = ""}}}})),
              StatusIs(kInvalid));
}

// ---- keys

std::vector<Key> Strided(Key begin, size_t count, Key stride) {
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = begin + i * stride;
  return keys;
}

TEST(PsWireKeys, ConsecutiveKeysAreARun) {
  KeyLists lists;
  EXPECT_EQ(ToWire(1, Strided(5, 1000, 1), lists), RunOf(5, 1000));
  EXPECT_EQ(ToWire(1, {kMaxKey}, lists), RunOf(kMaxKey, 1));
  EXPECT_EQ(ToWire(1, {kMaxKey - 1, kMaxKey}, lists), RunOf(kMaxKey - 1, 2));
  EXPECT_EQ(lists.size(), 0);
}

TEST(PsWireKeys, ShortListsTravelAsTheyAre) {
  KeyLists lists;
  const std::vector<Key> keys = Strided(0, kMinListedKeys - 1, 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ToWire(1, keys, lists), List(keys));
  EXPECT_EQ(ToWire(1, {}, lists), List({}));
  EXPECT_EQ(lists.size(), 0);
}

TEST(PsWireKeys, ALongListTravelsOnceAndThenAsItsHash) {
  KeyLists sender;
  KeyLists receiver;
  const std::vector<Key> keys = Strided(3, 100, 7);
  const WireKeys first = ToWire(1, keys, sender);
  EXPECT_EQ(first, List(keys));
  const WireKeys second = ToWire(1, keys, sender);
  EXPECT_EQ(second, Hash(HashOf(1, keys)));
  // Of another table it is another list.
  EXPECT_EQ(ToWire(2, keys, sender).form, WireKeys::Form::kList);
  EXPECT_THAT(FromWire(1, second, 100, receiver), StatusIs(kInvalid, HasSubstr("not there")));
  for (const WireKeys& wire : {first, second}) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const KeyList got, FromWire(1, wire, 100, receiver));
    EXPECT_EQ(*got, keys);
  }
}

TEST(PsWireKeys, RunsBeyondTheGreatestKeyAreRefused) {
  KeyLists lists;
  EXPECT_THAT(FromWire(1, RunOf(kMaxKey, 2), 10, lists), StatusIs(kInvalid, HasSubstr("beyond")));
  EXPECT_THAT(FromWire(1, RunOf(2, kMaxKey), kMaxKey, lists),
              StatusIs(kInvalid, HasSubstr("beyond")));
  EXPECT_THAT(FromWire(1, RunOf(2, 0), 10, lists), StatusIs(kInvalid, HasSubstr("no keys")));
  PHALANX_ASSERT_OK_AND_ASSIGN(const KeyList last, FromWire(1, RunOf(kMaxKey - 1, 2), 2, lists));
  EXPECT_THAT(*last, ElementsAre(kMaxKey - 1, kMaxKey));
}

TEST(PsWireKeys, MoreKeysThanExpectedAreRefusedBeforeARunIsExpanded) {
  KeyLists lists;
  EXPECT_THAT(FromWire(1, RunOf(0, uint64_t{1} << 60), 10, lists),
              StatusIs(kInvalid, HasSubstr("at most 10 expected")));
  EXPECT_THAT(FromWire(1, List(Strided(0, 11, 2)), 10, lists),
              StatusIs(kInvalid, HasSubstr("11 keys, at most 10")));
}

TEST(PsWireKeys, KeysThatDoNotIncreaseAreRefusedAlsoAsAHash) {
  KeyLists lists;
  EXPECT_THAT(FromWire(1, List({1, 3, 3}), 10, lists),
              StatusIs(kInvalid, HasSubstr("key 3 is there twice")));
  EXPECT_THAT(FromWire(1, List({1, 3, 2}), 10, lists),
              StatusIs(kInvalid, HasSubstr("key 2 stands behind key 3")));
  std::vector<Key> keys = Strided(0, 100, 2);
  std::swap(keys[50], keys[51]);
  EXPECT_THAT(FromWire(1, List(keys), 100, lists), StatusIs(kInvalid));
  EXPECT_THAT(FromWire(1, Hash(HashOf(1, keys)), 100, lists), StatusIs(kInvalid));
}

TEST(PsWireKeys, AListThatIsRefusedForItsLengthIsThereForTheNextEntry) {
  KeyLists sender;
  KeyLists receiver;
  const std::vector<Key> keys = Strided(0, 100, 3);
  EXPECT_THAT(FromWire(1, ToWire(1, keys, sender), 10, receiver), StatusIs(kInvalid));
  EXPECT_THAT(FromWire(1, ToWire(1, keys, sender), 100, receiver), IsOk());
}

// Sends lists over a channel, as bytes, and compares both ends.
class ListChannel {
 public:
  // Returns the form in which the list travelled.
  WireKeys::Form Pass(uint32_t table, const std::vector<Key>& keys) {
    const WireKeys wire = ToWire(table, keys, sender_);
    const std::string bytes = Encode(WorkerBatch{.entries = {Pull{.table = table, .keys = wire}}});
    const auto message = DecodeWorkerMessage(bytes);
    EXPECT_THAT(message, IsOk());
    const auto& pull = std::get<Pull>(std::get<WorkerBatch>(*message).entries[0]);
    const auto got = FromWire(table, pull.keys, keys.size(), receiver_);
    EXPECT_TRUE(got.ok() && **got == keys);
    EXPECT_EQ(sender_.size(), receiver_.size());
    EXPECT_EQ(sender_.bytes(), receiver_.bytes());
    EXPECT_LE(sender_.size(), kMaxLists);
    EXPECT_LE(sender_.bytes(), kMaxListBytes);
    return wire.form;
  }

 private:
  KeyLists sender_;
  KeyLists receiver_;
};

TEST(PsWireKeys, BothEndsKeepTheSameListsBeyondTheGreatestNumber) {
  Random random(1);
  ListChannel channel;
  int hashes = 0;
  for (int i = 0; i < 20000; ++i) {
    // Twice as many lists as are kept: about half of them are not there any more.
    const uint64_t list = random.Below(2 * kMaxLists);
    const WireKeys::Form form = channel.Pass(static_cast<uint32_t>(list % 3),
                                             Strided(list, kMinListedKeys + list % 50, 2 + list));
    hashes += form == WireKeys::Form::kHash ? 1 : 0;
  }
  EXPECT_GT(hashes, 5000);
  EXPECT_LT(hashes, 15000);
}

TEST(PsWireKeys, BothEndsKeepTheSameListsBeyondTheGreatestSize) {
  Random random(2);
  ListChannel channel;
  int hashes = 0;
  for (int i = 0; i < 300; ++i) {
    // 48 lists of 1 to 4 MiB: more than are kept.
    const uint64_t list = random.Below(48);
    const WireKeys::Form form = channel.Pass(1, Strided(list, (1 + list % 4) << 17, 3));
    hashes += form == WireKeys::Form::kHash ? 1 : 0;
  }
  EXPECT_GT(hashes, 50);
  EXPECT_LT(hashes, 250);
}

TEST(KeyLists, TheOldestListIsDroppedFirst) {
  KeyLists lists;
  const auto add = [&lists](uint64_t i) {
    lists.Add({.high = i, .low = i}, std::make_shared<const std::vector<Key>>(16));
  };
  for (uint64_t i = 0; i < kMaxLists; ++i) add(i);
  EXPECT_NE(lists.Find({.high = 0, .low = 0}), nullptr);
  add(kMaxLists);
  // That it was found has not made it newer.
  EXPECT_EQ(lists.Find({.high = 0, .low = 0}), nullptr);
  EXPECT_NE(lists.Find({.high = 1, .low = 1}), nullptr);
  EXPECT_EQ(lists.size(), kMaxLists);
  EXPECT_EQ(lists.bytes(), kMaxLists * 16 * sizeof(Key));
  lists.Clear();
  EXPECT_EQ(lists.size(), 0);
  EXPECT_EQ(lists.bytes(), 0);
  EXPECT_EQ(lists.Find({.high = 1, .low = 1}), nullptr);
}

TEST(KeyLists, AListThatIsTooGreatDropsAllAndIsNotKept) {
  KeyLists lists;
  lists.Add({.high = 1, .low = 1}, std::make_shared<const std::vector<Key>>(16));
  lists.Add({.high = 2, .low = 2},
            std::make_shared<const std::vector<Key>>(kMaxListBytes / sizeof(Key) + 1));
  EXPECT_EQ(lists.size(), 0);
  EXPECT_EQ(lists.bytes(), 0);
}

}  // namespace
}  // namespace phalanx::ps::internal
