// A ServerCore and simple workers under deaths, lost messages and lost snapshots: every push counts
// once, and with BSP every pull has the same bits as in a run without faults.

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {
namespace {

constexpr int kWorkers = 3;
constexpr uint64_t kKeys = 4;
constexpr uint64_t kClocks = 12;
constexpr uint32_t kPushes = 3;  // of a worker in a clock

// The same in every life of a worker.
Key KeyOf(int worker, uint64_t clock, uint32_t push) { return (worker + clock + push) % kKeys; }
float ValueOf(Sync sync, int worker, uint64_t clock, uint32_t push) {
  const auto number = static_cast<float>(1 + worker + 7 * clock + push);
  // With BSP a sum whose bits depend on the order; else one that is exact in any order.
  return sync == Sync::kBsp ? number * 0.1F * (push == 2 ? 1e6F : 1) : number;
}

class World {
 public:
  World(Sync sync, uint64_t seed, double faults) : random_(seed), faults_(faults) {
    spec_ = {.name = "w", .keys = kKeys, .sync = sync, .snapshot_every = 3};
    spec_.staleness = sync == Sync::kSsp ? 2 : 0;
    workers_.resize(kWorkers);
    StartServer();
  }

  // Until all workers have ended all clocks, and have pulled behind them.
  void Run() {
    // Far more steps than a run needs.
    for (int step = 0; step < 100000 && !ended(); ++step) {
      if (random_.Chance(faults_)) Fault();
      if (!stores_.empty() && random_.Chance(0.1)) StoreEnds();
      StepOf(static_cast<int>(random_.Below(kWorkers)));
      core_->Retry();
      Deliver();
    }
    ASSERT_TRUE(ended()) << core_->Describe();
  }

  // What was pulled at each clock; with BSP the same for all workers.
  std::map<uint64_t, std::string> pulled;
  int deaths = 0;
  std::vector<std::string> violations;

 private:
  struct Entry {
    Position at;  // of a clock's end: the beginning of the next one
    bool is_clock;
    float value;
    Key key;
  };
  struct Worker {
    uint64_t life = 0;
    uint64_t channel = 0;
    uint64_t batches = 0;  // of the channel, sent
    bool open = false;
    bool begun = false;
    uint64_t clock = 0;
    uint32_t pushed = 0;
    bool pulled = false;  // the one of its clock was answered
    bool asked = false;
    Position freed;
    std::deque<Entry> kept;
  };

  bool ended() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
      return worker.clock == kClocks && worker.pulled;
    });
  }

  void StartServer() {
    core_ = std::make_unique<ServerCore>(
        ServerCore::Options{.rank = 0, .servers = 1, .workers = kWorkers});
    EXPECT_TRUE(core_->AddTable(spec_).ok());
    if (!stored_.empty()) {
      const auto& [number, bytes] = *stored_.rbegin();
      const absl::Status restored = core_->Restore(0, number, bytes);
      EXPECT_TRUE(restored.ok()) << restored;
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
      core_->OnMember(worker, MemberState::kLive, workers_[worker].life);
    }
    core_->Begin();
    for (int worker = 0; worker < kWorkers; ++worker) SayHello(worker);
    Deliver();
  }

  void SayHello(int number) {
    Worker& worker = workers_[number];
    worker.open = false;
    worker.asked = false;
    worker.batches = 0;
    core_->OnMessage(number, worker.life, Encode(Hello{.channel = ++worker.channel}));
  }

  void Fault() {
    const auto number = static_cast<int>(random_.Below(kWorkers));
    switch (random_.Below(4)) {
      case 0:
        ++deaths;
        // A snapshot that nobody has heard of can be there, or not.
        for (const ServerCore::Store& store : stores_) {
          if (random_.Chance(0.5)) stored_[store.number] = store.bytes;
        }
        stores_.clear();
        StartServer();
        return;
      case 1: {
        ++deaths;
        const uint64_t life = workers_[number].life;
        workers_[number] = Worker();
        workers_[number].life = life + 1;
        if (random_.Chance(0.5)) core_->OnMember(number, MemberState::kDied, life);
        SayHello(number);
        return;
      }
      case 2:  // a message of the worker was lost
        SayHello(number);
        return;
      default:  // one of the server was lost
        core_->OnLost(number, workers_[number].life);
        return;
    }
  }

  void StoreEnds() {
    const ServerCore::Store store = std::move(stores_.front());
    stores_.pop_front();
    if (random_.Chance(0.2)) {
      core_->OnStoreFailed(0, store.number);
      return;
    }
    stored_[store.number] = store.bytes;
    core_->OnStored(0, store.number);
  }

  // Sends one entry.
  void StepOf(int number) {
    Worker& worker = workers_[number];
    if (!worker.open || (worker.clock == kClocks && worker.pulled)) return;
    if (!worker.pulled) {
      if (worker.asked) return;
      worker.asked = true;
      Send(number, Pull{.ticket = worker.clock + 1,
                        .clock = worker.clock,
                        .keys = {.form = WireKeys::Form::kRun, .begin = 0, .count = kKeys}});
      return;
    }
    Entry entry;
    entry.is_clock = worker.pushed == kPushes;
    if (entry.is_clock) {
      ++worker.clock;
      worker.pushed = 0;
      worker.pulled = false;
      worker.asked = false;
      entry.at = {.clock = worker.clock};
    } else {
      ++worker.pushed;
      entry.at = {.clock = worker.clock, .push = worker.pushed, .piece = 0};
      entry.key = KeyOf(number, worker.clock, worker.pushed);
      entry.value = ValueOf(spec_.sync, number, worker.clock, worker.pushed);
    }
    worker.kept.push_back(entry);
    SendKept(number, entry);
  }

  void SendKept(int number, const Entry& entry) {
    if (entry.is_clock) {
      Send(number, ClockEnd{.table = 0, .clock = entry.at.clock - 1});
      return;
    }
    const absl::string_view bytes(reinterpret_cast<const char*>(&entry.value), sizeof(float));
    Send(number, Push{.at = entry.at, .keys = {.keys = {entry.key}}, .values = bytes});
  }

  void Send(int number, WorkerEntry entry) {
    Worker& worker = workers_[number];
    core_->OnMessage(
        number, worker.life,
        Encode(WorkerBatch{
            .channel = worker.channel, .number = worker.batches++, .entries = {std::move(entry)}}));
  }

  // Until nothing is under way. A Welcome leads to messages of the worker.
  void Deliver() {
    for (;;) {
      ServerCore::Effects effects = core_->TakeEffects();
      for (ServerCore::Store& store : effects.stores) stores_.push_back(std::move(store));
      for (const ServerCore::Free& free : effects.frees) stored_.erase(free.number);
      if (effects.sends.empty()) return;
      for (const ServerCore::Send& send : effects.sends) {
        if (send.life == workers_[send.worker].life) Receive(send.worker, send.bytes);
      }
    }
  }

  void Receive(int number, const std::string& bytes) {
    Worker& worker = workers_[number];
    const auto message = DecodeServerMessage(bytes);
    ASSERT_TRUE(message.ok()) << message.status();
    if (std::holds_alternative<Reset>(*message)) {
      SayHello(number);
    } else if (const auto* welcome = std::get_if<Welcome>(&*message)) {
      if (welcome->channel == worker.channel) OnWelcome(number, welcome->tables[0]);
    } else if (std::get<ServerBatch>(*message).channel == worker.channel) {
      for (const ServerEntry& entry : std::get<ServerBatch>(*message).entries) {
        OnEntry(number, entry);
      }
    }
  }

  void OnWelcome(int number, const Welcome::Table& table) {
    Worker& worker = workers_[number];
    worker.open = true;
    if (!worker.begun) {
      worker.begun = true;
      worker.clock = table.clock;
      worker.freed = {.clock = table.clock};
    }
    if (table.at < worker.freed) {
      violations.push_back(absl::StrCat("worker ", number, " in life ", worker.life,
                                        " cannot send again what the server has lost"));
    }
    Free(worker, table.durable);
    for (const Entry& entry : worker.kept) {
      if (entry.at > table.at) SendKept(number, entry);
    }
  }

  void Free(Worker& worker, const Position& upto) {
    worker.freed = std::max(worker.freed, upto);
    while (!worker.kept.empty() && worker.kept.front().at <= upto) worker.kept.pop_front();
  }

  void OnEntry(int number, const ServerEntry& entry) {
    Worker& worker = workers_[number];
    if (const auto* durable = std::get_if<Durable>(&entry)) Free(worker, durable->upto);
    if (const auto* refused = std::get_if<Refused>(&entry)) {
      violations.push_back(refused->why.ToString());
    }
    if (const auto* failed = std::get_if<TableFailed>(&entry)) {
      violations.push_back(failed->why.ToString());
    }
    const auto* values = std::get_if<Values>(&entry);
    if (values == nullptr || values->ticket != worker.clock + 1) return;
    worker.pulled = true;
    const auto [at, added] = pulled.emplace(worker.clock, std::string(values->values));
    if (spec_.sync == Sync::kBsp && at->second != values->values) {
      violations.push_back(absl::StrCat("two pulls of clock ", worker.clock, " differ"));
    }
    if (worker.clock == kClocks) pulled[kClocks] = std::string(values->values);
  }

  Random random_;
  const double faults_;
  TableSpec spec_;
  std::unique_ptr<ServerCore> core_;
  std::vector<Worker> workers_;
  std::deque<ServerCore::Store> stores_;    // under way
  std::map<uint64_t, std::string> stored_;  // by number
};

TEST(ServerDeaths, WithBspEveryPullHasTheBitsOfARunWithoutFaults) {
  World whole(Sync::kBsp, 1, 0);
  whole.Run();
  EXPECT_THAT(whole.violations, ::testing::IsEmpty());
  EXPECT_THAT(whole.pulled, ::testing::SizeIs(kClocks + 1));
  int deaths = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(Sync::kBsp, seed, 0.03);
    world.Run();
    ASSERT_THAT(world.violations, ::testing::IsEmpty());
    ASSERT_EQ(world.pulled, whole.pulled);
    deaths += world.deaths;
  }
  EXPECT_GT(deaths, 400);
}

TEST(ServerDeaths, WithSspAndAspEveryPushCountsOnce) {
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    std::vector<float> expected(kKeys);
    for (int worker = 0; worker < kWorkers; ++worker) {
      for (uint64_t clock = 0; clock < kClocks; ++clock) {
        for (uint32_t push = 1; push <= kPushes; ++push) {
          expected[KeyOf(worker, clock, push)] += ValueOf(sync, worker, clock, push);
        }
      }
    }
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      SCOPED_TRACE(absl::StrCat(SyncName(sync), ", seed ", seed));
      World world(sync, seed, 0.03);
      world.Run();
      ASSERT_THAT(world.violations, ::testing::IsEmpty());
      std::vector<float> last(kKeys);
      const std::string& bytes = world.pulled[kClocks];
      ASSERT_EQ(bytes.size(), kKeys * sizeof(float));
      std::memcpy(last.data(), bytes.data(), bytes.size());
      // The last pull of the last worker has all pushes.
      ASSERT_EQ(last, expected);
    }
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
