// Workers push to KVServerDefaultHandle of several apps and pull, and check the sums at the end:
// each push counts once, also if servers die meanwhile and are started again.
//
//   tables [ROUNDS] [before] [two] [death]
//
// `before`: the servers make their KVServers before Start; `two`: worker processes have two
// customers, in a thread each; `death`: workers pull the sums when a server has died. Worker 0
// prints "round N" before each round, "pushed" before it pulls the sums, with `death` "dead" then,
// and "end" before Finalize; servers print "server PID", and "again PID" if they have taken the
// place of one that has died.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
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
  Load(int app, int customer, int keys) : kv_(app, customer), keys_(KeysOf(keys)) {
    for (size_t i = 0; i < keys_.size(); ++i) values_.push_back(static_cast<V>(1 + i % 5));
  }

  void Round(int round) {
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
  std::vector<V> values_;
  std::vector<V> pulled_;
  std::vector<int> timestamps_;
};

void Work(int customer, int rounds, bool death) {
  const bool prints = MyRank() == 0 && customer == 0;
  Load<int64_t> ints(kInts, customer, 1000);
  Load<float> floats(kFloats, customer, 10);
  Load<double> late(kLate, customer, 3);
  for (int round = 0; round < rounds; ++round) {
    if (prints) Print("round " + std::to_string(round));
    ints.Round(round);
    floats.Round(round);
    late.Round(round);
  }
  ints.WaitForAll();
  floats.WaitForAll();
  late.WaitForAll();
  Postoffice::Get()->Barrier(customer, kWorkerGroup);
  if (prints) Print("pushed");
  if (death) {
    while (Postoffice::Get()->GetDeadNodes().empty())
      std::promise<void>().get_future().wait_for(std::chrono::milliseconds(2));
    if (prints) Print("dead");
  }
  ints.Check(rounds);
  floats.Check(rounds);
  late.Check(rounds);
  if (prints) Print("end");
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 50;
  bool before = false, two = false, death = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    before = before || word == "before";
    two = two || word == "two";
    death = death || word == "death";
    if (std::atoi(argv[i]) > 0) rounds = std::atoi(argv[i]);
  }
  const char* const role = std::getenv("DMLC_ROLE");
  const bool server = role != nullptr && std::string(role) == "server";
  if (server) Print("server " + std::to_string(getpid()));
  if (server && before) {
    MakeServer<int64_t>(kInts);
    MakeServer<float>(kFloats);
  }
  if (IsWorker() && two) {
    std::vector<std::thread> threads;
    for (int customer = 0; customer < 2; ++customer) {
      threads.emplace_back([customer, rounds] {
        Start(customer);
        Work(customer, rounds, false);
        Finalize(customer, true);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return 0;
  }
  Start(0);
  if (server && !before) {
    MakeServer<int64_t>(kInts);
    MakeServer<float>(kFloats);
  }
  // Its first requests wait for it.
  if (server) MakeServer<double>(kLate);
  if (Postoffice::Get()->is_recovery()) Print("again " + std::to_string(getpid()));
  if (IsWorker()) Work(0, rounds, death);
  Finalize(0, true);
  return 0;
}
