// Workers push to KVServerDefaultHandle of several apps and pull, and check the sums at the end:
// each push counts once, also if servers die meanwhile and are started again.
//
//   tables [ROUNDS] [before] [two] [death] [leaves] [large] [function] [asks] [gone]
//
// `before`: the servers make their KVServers before Start; `two`: worker processes have two
// customers, in a thread each; `death`: worker 0 pulls the sums when a server has died; `leaves`:
// worker 1 waits for no push, and does not wait in Finalize; `large`: there are many keys;
// `function`: one of the apps has a function of the program; `asks`: workers also send a request of
// a SimpleApp; `gone`: servers make nothing, and do not wait in Finalize. Worker 0 prints "round N"
// before each round, "pushed" before it pulls the sums, with `death` "dead" then, and "end" before
// Finalize; worker 1 prints "leaves" there; servers print "server PID", and "started" behind Start.
//
// Worker 0 goes on behind "end" when the file TABLES_END is there, if that is set. All wait in two
// barriers, which next lives of servers make again.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ps/ps.h"

using namespace ps;  // NOLINT

namespace {

constexpr int kOutstanding = 10;
enum App { kInts = 0, kFloats = 1, kLate = 2 };

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

template <typename V>
void MakeServer(int app) {
  auto* const server = new KVServer<V>(app);
  server->set_request_handle(KVServerDefaultHandle<V>());
  RegisterExitCallback([server] { delete server; });
}

// Of all servers, and the greatest one; the same for all workers.
std::vector<Key> KeysOf(int count) {
  std::vector<Key> keys(count);
  for (int i = 0; i < count; ++i) keys[i] = kMaxKey / count * i + 7;
  keys.push_back(kMaxKey);
  return keys;
}

// One app of a worker. Each value gets 1 + its place in each round.
template <typename V>
class Load {
 public:
  // `waits`: for pushes, while it makes rounds.
  Load(int app, int customer, int keys, bool waits)
      : kv_(app, customer), keys_(KeysOf(keys)), waits_(waits) {
    for (size_t i = 0; i < keys_.size(); ++i) values_.push_back(static_cast<V>(1 + i % 5));
  }

  void Round(int round) {
    if (!waits_) {
      kv_.Push(keys_, values_);
      return;
    }
    if (round % 7 == 3) {
      std::vector<V> pulled;
      kv_.Wait(kv_.PushPull(keys_, values_, &pulled));
      CheckLeast(pulled, round + 1);
    } else {
      timestamps_.push_back(kv_.Push(keys_, values_));
      if (timestamps_.size() > kOutstanding)
        kv_.Wait(timestamps_[timestamps_.size() - kOutstanding]);
    }
    if (round % 5 != 0) return;
    std::vector<V> pulled;
    bool called = false;
    kv_.Wait(kv_.Pull(keys_, &pulled, nullptr, 0, [&called] { called = true; }));
    CHECK(called);
    CheckLeast(pulled, round + 1);
  }

  void WaitForAll() {
    for (const int timestamp : timestamps_) kv_.Wait(timestamp);
  }

  // Waits for what worker 1 pushes without waiting.
  void Await(int rounds) {
    const V most = static_cast<V>(NumWorkers() * rounds);
    std::vector<V> pulled;
    for (size_t there = 0; there < keys_.size();) {
      kv_.Wait(kv_.Pull(keys_, &pulled));
      for (there = 0; there < keys_.size() && pulled[there] == most * values_[there];) ++there;
      if (there < keys_.size()) CHECK_LT(pulled[there], most * values_[there]);
    }
  }

  void Request() { kv_.Wait(kv_.Request(1, "", kServerGroup)); }

  void Check(int rounds) {
    std::vector<V> pulled;
    std::vector<int> lens;
    kv_.Wait(kv_.Pull(keys_, &pulled, &lens));
    CHECK_EQ(pulled.size(), keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i) {
      CHECK_EQ(pulled[i], static_cast<V>(NumWorkers() * rounds) * values_[i])
          << "of key " << i << ": " << pulled[i] << ", value " << values_[i];
      CHECK_EQ(lens[i], 1);
    }
    // Nothing was pushed there.
    kv_.Wait(kv_.Pull({1, kMaxKey - 1}, &pulled_));
    CHECK_EQ(pulled_[0], V(0));
    CHECK_EQ(pulled_[1], V(0));
  }

 private:
  // All that this worker has pushed is there.
  void CheckLeast(const std::vector<V>& pulled, int rounds) {
    CHECK_EQ(pulled.size(), keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i)
      CHECK_GE(pulled[i], static_cast<V>(rounds) * values_[i])
          << "of key " << i << ": " << pulled[i] << ", value " << values_[i];
  }

  KVWorker<V> kv_;
  const std::vector<Key> keys_;
  const bool waits_;
  std::vector<V> values_;
  std::vector<V> pulled_;
  std::vector<int> timestamps_;
};

struct Words {
  bool before = false, two = false, death = false, leaves = false, large = false, function = false,
       asks = false, gone = false;
};

void Barrier(int customer) {
  Postoffice::Get()->Barrier(customer, kScheduler + kServerGroup + kWorkerGroup);
}

void Work(int customer, int rounds, const Words& words) {
  const bool prints = MyRank() == 0 && customer == 0;
  const bool leaves = words.leaves && MyRank() == 1;
  Barrier(customer);
  Load<int64_t> ints(kInts, customer, words.large ? 1000000 : 1000, !leaves);
  Load<float> floats(kFloats, customer, 10, !leaves);
  Load<double> late(kLate, customer, 3, !leaves);
  Barrier(customer);
  for (int round = 0; round < rounds; ++round) {
    if (prints) Print("round " + std::to_string(round));
    ints.Round(round);
    floats.Round(round);
    late.Round(round);
    if (words.asks && round == 0) ints.Request();
  }
  if (leaves) return Print("leaves");
  ints.WaitForAll();
  floats.WaitForAll();
  late.WaitForAll();
  if (words.leaves) {
    ints.Await(rounds);
    floats.Await(rounds);
    late.Await(rounds);
  } else {
    Postoffice::Get()->Barrier(customer, kWorkerGroup);
  }
  if (prints) Print("pushed");
  if (words.death && prints) {
    while (Postoffice::Get()->GetDeadNodes().empty())
      std::promise<void>().get_future().wait_for(std::chrono::milliseconds(2));
    Print("dead");
  }
  ints.Check(rounds);
  floats.Check(rounds);
  late.Check(rounds);
  if (!prints) return;
  Print("end");
  // So that all deaths of a test are those of servers that others wait for.
  const char* const file = std::getenv("TABLES_END");
  while (file != nullptr && access(file, F_OK) != 0)
    std::promise<void>().get_future().wait_for(std::chrono::milliseconds(2));
}

void MakeServers() {
  MakeServer<int64_t>(kInts);
  MakeServer<float>(kFloats);
}

void Serve(const Words& words) {
  Barrier(0);
  if (!words.before) MakeServers();
  Barrier(0);
  // Its first requests wait for it.
  if (!words.function) return MakeServer<double>(kLate);
  auto* const server = new KVServer<double>(kLate);
  KVServerDefaultHandle<double> sums;
  server->set_request_handle([sums](const KVMeta& meta, const KVPairs<double>& data,
                                    KVServer<double>* own) mutable { sums(meta, data, own); });
  RegisterExitCallback([server] { delete server; });
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 50;
  Words words;
  const std::map<std::string, bool*> known = {
      {"before", &words.before}, {"two", &words.two},     {"death", &words.death},
      {"leaves", &words.leaves}, {"large", &words.large}, {"function", &words.function},
      {"asks", &words.asks},     {"gone", &words.gone},
  };
  for (int i = 1; i < argc; ++i) {
    const auto word = known.find(argv[i]);
    if (word != known.end()) *word->second = true;
    if (std::atoi(argv[i]) > 0) rounds = std::atoi(argv[i]);
  }
  const char* const role = std::getenv("DMLC_ROLE");
  const bool server = role != nullptr && std::string(role) == "server";
  if (server) Print("server " + std::to_string(getpid()));
  if (server && words.before) MakeServers();
  if (IsWorker() && words.two) {
    std::vector<std::thread> threads;
    for (int customer = 0; customer < 2; ++customer) {
      threads.emplace_back([customer, rounds, &words] {
        Start(customer);
        Work(customer, rounds, words);
        Finalize(customer, true);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return 0;
  }
  Start(0);
  CHECK(!Postoffice::Get()->is_recovery());
  CHECK(!Postoffice::Get()->van()->my_node().is_recovery);
  if (server) Print("started");
  if (server && !words.gone) Serve(words);
  if (IsScheduler()) {
    Barrier(0);
    Barrier(0);
  }
  if (IsWorker()) Work(0, rounds, words);
  const bool leaves = server ? words.gone : words.leaves && IsWorker() && MyRank() == 1;
  Finalize(0, !leaves);
  return 0;
}
