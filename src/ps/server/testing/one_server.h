// OneServer: a ServerCore with its workers, for tests. Testonly.
//
// Each worker has one channel. What it sends arrives at once, and what it receives is written down
// as words, so that a test compares lists of words. One thread at a time.
#ifndef PHALANX_PS_SERVER_TESTING_ONE_SERVER_H_
#define PHALANX_PS_SERVER_TESTING_ONE_SERVER_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/member_state.h"
#include "phalanx/ps_table.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/ps_wire.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal::testing {

inline TableSpec Spec(Sync sync = Sync::kBsp) {
  return {.name = "w", .keys = 8, .sync = sync, .snapshot_every = 0};
}
inline TableSpec Saved(Sync sync = Sync::kBsp) {
  TableSpec spec = Spec(sync);
  spec.snapshot_every = 2;
  return spec;
}

inline WireKeys KeysOf(std::vector<Key> keys) { return {.keys = std::move(keys)}; }

inline std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
inline std::vector<float> Floats(absl::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// What a worker has received, in text, one word for each entry, so that a test reads as a list.
class Inbox {
 public:
  void Take(const std::string& bytes) {
    auto message = DecodeServerMessage(bytes);
    ASSERT_THAT(message, ::phalanx::testing::IsOk());
    ++messages;
    if (const auto* got = std::get_if<Welcome>(&*message)) {
      welcomes.push_back(*got);
    } else if (std::holds_alternative<Reset>(*message)) {
      entries.push_back("reset");
    } else {
      for (const ServerEntry& entry : std::get<ServerBatch>(*message).entries) {
        std::visit([this](const auto& one) { Note(one); }, entry);
      }
    }
  }
  void Note(const Done& done) { entries.push_back(absl::StrCat("done ", done.count)); }
  void Note(const Values& got) {
    entries.push_back(absl::StrCat(got.object.empty() ? "values " : "object ", got.ticket, ".",
                                   got.piece, got.object.empty() ? "" : " ", got.object));
    values[got.ticket] = std::string(got.values);
    mins[got.ticket] = got.min_clock;
  }
  void Note(const Refused& refused) {
    entries.push_back(absl::StrCat("refused ", refused.ticket));
    errors.push_back(refused.why);
  }
  void Note(const Response& response) {
    entries.push_back(
        absl::StrCat("response ", response.ticket, " ", response.head, " ", response.body));
  }
  void Note(const Durable& durable) {
    entries.push_back(absl::StrCat("durable ", durable.upto.clock, ".", durable.upto.push));
  }
  void Note(const MinClock& min) { entries.push_back(absl::StrCat("min ", min.clock)); }
  void Note(const TableFailed& failed) {
    entries.push_back(absl::StrCat("failed ", failed.table));
    errors.push_back(failed.why);
  }

  int messages = 0;
  std::vector<std::string> entries;
  std::vector<Welcome> welcomes;
  std::map<uint64_t, std::string> values;
  std::map<uint64_t, uint64_t> mins;  // the least clock, as the answers of pulls say
  std::vector<absl::Status> errors;
};

inline ServerCore::Options Complete(int workers, ServerCore::Options options) {
  options.rank = 0;
  options.servers = 1;
  options.workers = workers;
  options.objects = "s";
  options.files = true;
  return options;
}

// One server and its workers, each with one channel that carries what it sends at once.
class OneServer {
 public:
  // Of the options its rank, the numbers of tasks, the prefix of names and `files` are set here.
  OneServer(int workers, const std::vector<TableSpec>& specs, OwnUpdate own = nullptr,
            const ServerCore::Options& options = {})
      : workers(workers), core(Complete(workers, options)) {
    for (const TableSpec& spec : specs) {
      EXPECT_THAT(core.AddTable(spec, spec.update == Update::kOwn ? own : nullptr),
                  ::phalanx::testing::IsOk());
    }
    inbox.resize(workers);
    held.resize(workers);
    channel.resize(workers);
    batches.resize(workers);
    life.resize(workers);
  }
  // All workers of the first lives say Hello.
  OneServer& Begin() {
    core.Begin();
    for (int worker = 0; worker < workers; ++worker) SayHello(worker);
    return *this;
  }
  void SayHello(int worker, std::vector<Position> had = {}) {
    batches[worker] = 0;
    Pass(worker, Encode(Hello{.channel = ++channel[worker], .had = std::move(had)}));
  }
  void Pass(int worker, const std::string& bytes) {
    core.OnMessage(worker, life[worker], bytes);
    Run();
  }
  void Batch(int worker, std::vector<WorkerEntry> entries) {
    Pass(worker, Encode(WorkerBatch{.channel = channel[worker],
                                    .number = batches[worker]++,
                                    .entries = std::move(entries)}));
  }
  // What worker `worker` is sent stays at the server's node from now on, until Sent.
  void Hold(int worker) { held[worker].emplace(); }
  // The first messages that are held have left the node. Returns their bytes.
  uint64_t Sent(int worker, size_t messages = 1) {
    uint64_t bytes = 0;
    for (; messages > 0; --messages) {
      bytes += held[worker]->front().size();
      inbox[worker].Take(held[worker]->front());
      held[worker]->pop_front();
    }
    core.OnSent(worker, bytes);
    Run();
    return bytes;
  }
  // Takes effects to where they belong.
  void Run() {
    ServerCore::Effects effects = core.TakeEffects();
    std::vector<uint64_t> sent(workers, 0);
    for (ServerCore::Send& send : effects.sends) {
      EXPECT_EQ(send.life, life[send.worker]);
      EXPECT_LE(send.bytes.size(), size_t{1} << 20);
      if (held[send.worker].has_value()) {
        held[send.worker]->push_back(std::move(send.bytes));
        continue;
      }
      sent[send.worker] += send.bytes.size();
      inbox[send.worker].Take(send.bytes);
    }
    for (ServerCore::Store& store : effects.stores) stores.push_back(std::move(store));
    for (ServerCore::File& file : effects.files) files.push_back(std::move(file));
    for (const ServerCore::Free& free : effects.frees) frees.push_back(free.number);
    for (ServerCore::Asked& one : effects.asked) asked.push_back(std::move(one));
    for (const ServerCore::Publish& publish : effects.publishes) {
      const bool added = objects.emplace(publish.handle, std::string(publish.bytes())).second;
      EXPECT_TRUE(added) << publish.handle;
    }
    for (const std::string& handle : effects.unpublishes) EXPECT_EQ(objects.erase(handle), 1);
    for (std::string& handle : effects.voids) voids.push_back(std::move(handle));
    for (const uint32_t table : effects.cancels) cancels.push_back(table);
    for (ServerCore::Reduce& reduce : effects.reduces) reduces.push_back(std::move(reduce));
    for (int worker = 0; worker < workers; ++worker) {
      if (sent[worker] > 0) core.OnSent(worker, sent[worker]);
    }
    if (core.effect_bytes() > 0) Run();
  }
  void Store(uint64_t number) {
    core.OnStored(0, number);
    Run();
  }
  void Member(int worker, MemberState state) {
    core.OnMember(worker, state, life[worker]);
    Run();
  }
  // The next life of a worker, as it first says Hello.
  void NextLife(int worker) {
    ++life[worker];
    channel[worker] = 0;
    inbox[worker] = Inbox();
    Member(worker, MemberState::kLive);
    SayHello(worker);
  }
  // What a worker has received since the last call.
  std::vector<std::string> Take(int worker) { return std::exchange(inbox[worker].entries, {}); }

  // Shorthands for table 0. Pushes of key k by `value`, numbered within the clock.
  static internal::Push PushOf(uint64_t clock, uint32_t number, Key key, const std::string& value,
                               uint64_t ticket = 0) {
    return {.ticket = ticket,
            .table = 0,
            .at = {.clock = clock, .push = number, .piece = 0},
            .keys = KeysOf({key}),
            .values = value};
  }
  void Push(int worker, uint64_t clock, uint32_t number, Key key, float value) {
    const std::string bytes = Bytes({value});
    Batch(worker, {PushOf(clock, number, key, bytes)});
  }
  void Clock(int worker, uint64_t clock) { Batch(worker, {ClockEnd{.table = 0, .clock = clock}}); }
  void Pull(int worker, uint64_t ticket, uint64_t clock, std::vector<Key> keys) {
    Batch(worker, {internal::Pull{.ticket = ticket, .clock = clock, .keys = KeysOf(keys)}});
  }
  // The same of all rows, by object.
  static internal::Push ObjectOf(uint64_t clock, uint32_t number, absl::string_view handle,
                                 uint64_t ticket = 0) {
    return {.ticket = ticket,
            .table = 0,
            .at = {.clock = clock, .push = number, .piece = 0},
            .object = handle};
  }
  void PushObject(int worker, uint64_t clock, uint32_t number, absl::string_view handle) {
    Batch(worker, {ObjectOf(clock, number, handle)});
  }
  void PullObject(int worker, uint64_t ticket, uint64_t clock) {
    Batch(worker, {internal::Pull{.ticket = ticket, .clock = clock, .object = true}});
  }
  void Read(int worker, uint64_t ticket, bool lost = false) {
    Batch(worker, {internal::Read{.table = 0, .ticket = ticket, .lost = lost}});
  }
  void ReduceFailed(uint64_t attempt, const absl::Status& why, absl::string_view handle = "") {
    core.OnReduceFailed(0, attempt, why, handle);
    Run();
  }
  void Retry() {
    core.Retry();
    Run();
  }
  void Reduced(uint64_t attempt, const std::vector<float>& sum) {
    core.OnReduced(0, attempt, Bytes(sum));
    Run();
  }
  // There is no ring for it.
  void InSlices(uint64_t attempt) {
    core.OnSlices(0, attempt);
    Run();
  }
  // A ring has made the object. False: it is no version.
  bool Ringed(uint64_t attempt, const std::string& target, const std::vector<float>& sum) {
    const bool version = core.OnReduced(0, attempt, Bytes(sum), true);
    if (version) objects.emplace(target, Bytes(sum));
    Run();
    return version;
  }
  // What is to be summed since the last call: "1 of clock 0: a b", with a "!" if earlier attempts
  // are void, and "1 of clock 0: a b, on s/0/1 to s/0/2" if it is a ring sum.
  std::vector<std::string> TakeReduces() {
    std::vector<std::string> words;
    for (const ServerCore::Reduce& reduce : std::exchange(reduces, {})) {
      words.push_back(absl::StrCat(reduce.attempt, reduce.only ? "!" : "", " of clock ",
                                   reduce.clock, ": ", absl::StrJoin(reduce.handles, " ")));
      if (reduce.ring()) {
        absl::StrAppend(&words.back(), ", on ", reduce.base, " to ", reduce.target);
      }
    }
    return words;
  }
  // REQUIRES: the pull was answered.
  std::vector<float> Got(int worker, uint64_t ticket) {
    return Floats(inbox[worker].values.at(ticket));
  }

  const int workers;
  ServerCore core;
  std::vector<Inbox> inbox;
  std::vector<std::optional<std::deque<std::string>>> held;  // messages that have not left
  std::vector<uint64_t> channel;
  std::vector<uint64_t> batches;  // of the channel, sent
  std::vector<uint64_t> life;
  std::vector<ServerCore::Store> stores;
  std::vector<ServerCore::File> files;
  std::vector<uint64_t> frees;
  std::vector<ServerCore::Asked> asked;
  std::map<std::string, std::string> objects;  // that are published
  std::vector<ServerCore::Reduce> reduces;
  std::vector<std::string> voids;
  std::vector<uint32_t> cancels;
};

// Two rows, so that all of a part can be an object of 8 bytes.
inline TableSpec Small(TableSpec spec = Spec()) {
  spec.keys = 2;
  return spec;
}

inline OneServer ObjectServer(int workers, const TableSpec& spec, OwnUpdate own = nullptr) {
  return {workers, {spec}, std::move(own), {.object_bytes = 8}};
}

}  // namespace phalanx::ps::internal::testing

#endif  // PHALANX_PS_SERVER_TESTING_ONE_SERVER_H_
