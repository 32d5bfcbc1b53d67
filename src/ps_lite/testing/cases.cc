// Programs for process tests, one for each name in the argument.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ps/ps.h"

using namespace ps;  // NOLINT

namespace {

// ---------------------------------------------------------------------------- servers

// What was pushed to each key, as it came; pulls get it back. `lens` are kept.
struct KeepLast {
  void operator()(const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* server) {
    KVPairs<float> response;
    size_t at = 0;
    for (size_t i = 0; i < data.keys.size(); ++i) {
      std::vector<float>& kept = store[data.keys[i]];
      if (meta.push) {
        const size_t n = data.lens.empty() ? data.vals.size() / data.keys.size() : data.lens[i];
        kept.assign(data.vals.begin() + at, data.vals.begin() + at + n);
        at += n;
      }
      if (!meta.pull) continue;
      for (const float value : kept) response.vals.push_back(value);
      response.lens.push_back(static_cast<int>(kept.size()));
    }
    if (meta.pull) response.keys = data.keys;
    server->Response(meta, response);
  }
  std::map<Key, std::vector<float>> store;
};

void Serve(const KVServer<float>::ReqHandle& handle) {
  auto* const server = new KVServer<float>(0);
  server->set_request_handle(handle);
  RegisterExitCallback([server] { delete server; });
}

// Runs a program of a worker, between Start and Finalize of all.
void Run(const std::function<void(KVWorker<float>&)>& worker,
         const KVServer<float>::ReqHandle& handle = KeepLast()) {
  Start(0);
  if (IsServer()) Serve(handle);
  if (IsWorker()) {
    KVWorker<float> kv(0, 0);
    worker(kv);
  }
  Finalize(0, true);
}

std::vector<Key> KeysOf(size_t n) {
  std::vector<Key> keys(n);
  for (size_t i = 0; i < n; ++i) keys[i] = kMaxKey / n * i + MyRank();
  return keys;
}

// ---------------------------------------------------------------------------- what works

// The last key, lengths, arrays of many pieces, and the views of ZPull.
void Values(KVWorker<float>& kv) {
  const Key rank = MyRank();
  std::vector<Key> keys = {rank, kMaxKey / 2 + rank, kMaxKey - 10 + rank};
  if (rank == 0) keys.push_back(kMaxKey);
  const std::vector<int> lens =
      rank == 0 ? std::vector<int>{2, 1000000, 0, 3} : std::vector<int>{2, 1000000, 0};
  std::vector<float> values(std::accumulate(lens.begin(), lens.end(), size_t{0}));
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  kv.Wait(kv.Push(keys, values, lens));
  std::vector<float> pulled;
  std::vector<int> lengths;
  kv.Wait(kv.Pull(keys, &pulled, &lengths));
  CHECK(pulled == values);
  CHECK(lengths == lens);
  // The array is filled, although the SArray that was given is gone.
  std::vector<float> memory(values.size());
  int timestamp = 0;
  {
    SArray<float> view(memory.data(), memory.size());
    timestamp = kv.ZPull(SArray<Key>(keys), &view);
  }
  kv.Wait(timestamp);
  CHECK(memory == values);
  SArray<float> fresh;
  kv.Wait(kv.ZPull(SArray<Key>(keys), &fresh));
  CHECK(std::vector<float>(fresh.begin(), fresh.end()) == values);
  SArray<float> outs;
  kv.Wait(kv.ZPushPull(SArray<Key>({keys[0]}), SArray<float>({5, 6, 7}), &outs));
  CHECK(std::vector<float>(outs.begin(), outs.end()) == (std::vector<float>{5, 6, 7}));
  // No keys: nothing is sent.
  int called = 0;
  kv.Wait(kv.Push({}, {}, {}, 0, [&] { ++called; }));
  CHECK_EQ(called, 1);
}

// A callback waits for requests of its own, and for the one whose callback it is.
void Callbacks(KVWorker<float>& kv) {
  const std::vector<Key> keys = KeysOf(100);
  const std::vector<float> values(keys.size(), 3);
  int steps = 0, outer = -1;
  std::vector<float> pulled;
  outer = kv.Push(keys, values, {}, 0, [&] {
    ++steps;
    kv.Wait(kv.Pull(keys, &pulled, nullptr, 0, [&] { ++steps; }));
    ++steps;
  });
  kv.Wait(outer);
  CHECK_EQ(steps, 3);
  CHECK(pulled == values);
  int own = kv.Push(keys, values);
  kv.Wait(own);
  kv.Wait(own);
}

// Barriers of groups, many in a row.
void Barriers() {
  Start(0);
  for (int i = 0; i < 50; ++i) {
    Postoffice::Get()->Barrier(0, kScheduler + kServerGroup + kWorkerGroup);
    if (IsWorker()) Postoffice::Get()->Barrier(0, kWorkerGroup);
    if (IsServer()) Postoffice::Get()->Barrier(0, kServerGroup);
    if (!IsScheduler()) Postoffice::Get()->Barrier(0, kServerGroup + kWorkerGroup);
  }
  CHECK_EQ(Postoffice::Get()->GetNodeIDs(kWorkerGroup).size(), static_cast<size_t>(NumWorkers()));
  CHECK_EQ(Postoffice::Get()->GetNodeIDs(kServerGroup).size(), static_cast<size_t>(NumServers()));
  const int id = Postoffice::Get()->van()->my_node().id;
  CHECK_EQ(id, IsScheduler() ? 1 : IsServer() ? 8 + 2 * MyRank() : 9 + 2 * MyRank());
  // A worker that goes without the barrier of all holds no other up.
  Finalize(0, !(IsWorker() && MyRank() == 0));
}

// A job after another one in the same processes, and the exit callback in each.
void Twice() {
  int exits = 0;
  for (int i = 0; i < 2; ++i) {
    Start();
    if (IsServer()) Serve(KeepLast());
    if (!IsServer()) RegisterExitCallback([&exits] { ++exits; });
    if (IsWorker()) {
      KVWorker<float> kv(0);
      const std::vector<Key> keys = KeysOf(10);
      kv.Wait(kv.Push(keys, std::vector<float>(10, 1)));
    }
    Finalize();
  }
  CHECK_EQ(exits, IsServer() ? 0 : 2);
}

// Bytes that this process has from malloc.
size_t Allocated() { return mallinfo2().uordblks; }

// Many small requests: what they have taken is given back.
void Many(KVWorker<float>& kv) {
  constexpr int kWarm = 20000, kAll = 100000, kOutstanding = 64;
  const std::vector<Key> keys = KeysOf(4);
  const std::vector<float> values(4, 1);
  std::vector<int> timestamps(kOutstanding, -1);
  size_t before = 0;
  for (int i = 0; i < kAll; ++i) {
    int& timestamp = timestamps[i % kOutstanding];
    if (timestamp >= 0) kv.Wait(timestamp);
    timestamp = kv.Push(keys, values);
    if (i != kWarm) continue;
    for (const int each : timestamps) kv.Wait(each);
    before = Allocated();
  }
  for (const int timestamp : timestamps) kv.Wait(timestamp);
  const size_t after = Allocated();
  std::printf("%zu bytes, then %zu\n", before, after);
  // A byte for each request would be more.
  CHECK_LT(after, before + (kAll - kWarm)) << "after " << kAll - kWarm << " requests";
}

// Whether the call throws dmlc::Error with this text.
bool Throws(const std::function<void()>& call, const std::string& text) {
  try {
    call();
  } catch (const dmlc::Error& error) {
    return std::string(error.what()).find(text) != std::string::npos;
  }
  return false;
}

// Gives others so much time to do what they must not do.
void WaitInVain(int milliseconds) {
  std::promise<void> never;
  never.get_future().wait_for(std::chrono::milliseconds(milliseconds));
}

// A server that is in a handler when Finalize comes, and that answers a request after it.
void Late() {
  Start(0);
  if (!IsServer()) {
    if (IsWorker()) {
      KVWorker<float> kv(0, 0);
      kv.Push({1}, {1});
      kv.Push({2}, {1});
    }
    return Finalize(0, true);
  }
  std::promise<void> entered;
  std::atomic<int> handled(0);
  KVMeta kept;
  KVServer<float> server(0);
  server.set_request_handle([&](const KVMeta& meta, const KVPairs<float>&, KVServer<float>* own) {
    if (handled == 0) {
      kept = meta;
    } else {
      entered.set_value();
      // Longer than the barrier of Finalize takes.
      WaitInVain(500);
      own->Response(meta);
    }
    ++handled;
  });
  entered.get_future().wait();
  Finalize(0, true);
  CHECK_EQ(handled.load(), 2);
  server.Response(kept);
  CHECK(Throws([&server] { server.Request(1, "", kScheduler); }, "Send after Finalize"));
}

// Answers a push with cmd 1 just before the next request, and a pull with the value 7.
struct AnswersLate {
  void operator()(const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* server) {
    if (meta.cmd == 1) {
      kept.push_back(meta);
      return;
    }
    for (const KVMeta& each : kept) server->Response(each);
    kept.clear();
    KVPairs<float> response;
    response.keys = data.keys;
    response.vals.resize(1, 7);
    server->Response(meta, response);
  }
  std::vector<KVMeta> kept;
};

// Responses to customers that are gone are for no other one: not for customer 0, nor for the next
// one with the same ids.
void Again(KVWorker<float>& kv) {
  for (const int id : {1, 2}) {
    {
      KVWorker<float> gone(0, id);
      gone.Push({1}, {1}, {}, 1);
    }
    std::vector<float> pulled;
    if (id == 1) {
      kv.Wait(kv.Pull({1}, &pulled));
    } else {
      KVWorker<float> next(0, id);
      next.Wait(next.Pull({1}, &pulled));
    }
    CHECK(pulled == std::vector<float>({7}));
  }
}

// Many pushes that are not waited for, to a server that stops at the first one.
struct Stops {
  void operator()(const KVMeta& meta, const KVPairs<float>&, KVServer<float>* server) {
    if (!stopped) {
      stopped = true;
      std::printf("stops\n");
      std::fflush(stdout);
      kill(getpid(), SIGSTOP);
    }
    server->Response(meta);
  }
  bool stopped = false;
};
void Flood(KVWorker<float>& kv) {
  constexpr int kPushes = 200000;
  int last = 0;
  for (int i = 0; i < kPushes; ++i) last = kv.Push({1}, {1});
  for (int i = 0; i <= last; ++i) kv.Wait(i);
}

// Customers and messages of the program, without KVServer: they go at once.
void Messages() {
  Start(0);
  std::promise<void> answered;
  Customer customer(5, 5, [&](const Message& received) {
    Message answer = received;
    if (!received.meta.request) return answered.set_value();
    answer.meta.request = false;
    answer.meta.recver = received.meta.sender;
    Postoffice::Get()->van()->Send(answer);
  });
  if (IsWorker()) {
    const auto begin = std::chrono::steady_clock::now();
    Message message;
    message.meta.app_id = message.meta.customer_id = 5;
    message.meta.recver = Postoffice::Get()->ServerRankToID(0);
    message.meta.timestamp = customer.NewRequest(message.meta.recver);
    message.meta.request = true;
    message.AddData(SArray<float>(3, 1.5f));
    Postoffice::Get()->van()->Send(message);
    customer.WaitRequest(message.meta.timestamp);
    answered.get_future().wait();
    // Less than what a request waits for reports of KVServers.
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(25));
    std::printf("answered\n");
    std::fflush(stdout);
    // A server that has been asked, and dies, cannot be replaced.
    Postoffice::Get()->Barrier(0, kWorkerGroup);
  }
  Finalize(0, true);
}

// A second handle before the first request counts.
void TwoHandles() {
  Start(0);
  if (IsServer()) {
    auto* const server = new KVServer<float>(0);
    server->set_request_handle(KVServerDefaultHandle<float>());
    server->set_request_handle(KeepLast());
    RegisterExitCallback([server] { delete server; });
  }
  Postoffice::Get()->Barrier(0, kScheduler + kServerGroup + kWorkerGroup);
  if (IsWorker()) {
    KVWorker<float> kv(0, 0);
    std::vector<float> pulled;
    kv.Wait(kv.Push({1}, {3}));
    kv.Wait(kv.Push({1}, {4}));
    kv.Wait(kv.Pull({1}, &pulled));
    CHECK(pulled == std::vector<float>({4}));
  }
  Finalize(0, true);
}

// One after it is refused.
void LateHandle() {
  Start(0);
  KVServer<float> server(0);
  if (IsServer()) server.set_request_handle(KVServerDefaultHandle<float>());
  if (IsWorker()) {
    KVWorker<float> kv(0, 1);
    kv.Wait(kv.Push({1}, {3}));
  }
  Postoffice::Get()->Barrier(0, kScheduler + kServerGroup + kWorkerGroup);
  if (IsServer()) {
    CHECK(
        Throws([&server] { server.set_request_handle(KeepLast()); }, "it can get no other handle"));
  }
  Finalize(0, true);
}

// The next life of a server that has values in a table of floats, and sets another handle before
// Start.
void OtherHandle() {
  KVServer<float> server(1);
  server.set_request_handle(KeepLast());
  Start(0);
}

// The same handle again is refused in a first life: it would not begin at zero.
void SameHandle() {
  Start(0);
  KVServer<float> server(0);
  if (IsServer()) server.set_request_handle(KVServerDefaultHandle<float>());
  if (IsWorker()) {
    KVWorker<float> kv(0, 1);
    kv.Wait(kv.Push({1}, {3}));
  }
  Postoffice::Get()->Barrier(0, kScheduler + kServerGroup + kWorkerGroup);
  const auto again = [&server] { server.set_request_handle(KVServerDefaultHandle<float>()); };
  if (IsServer()) CHECK(Throws(again, "and not begin at zero"));
  Finalize(0, true);
}

// Pushes whose callbacks push, while the process is in Finalize.
void Chained() {
  int called = 0;
  Run(
      [&called](KVWorker<float>& kv) {
        auto* const own = new KVWorker<float>(0, 1);
        RegisterExitCallback([own] { delete own; });
        auto* const push = new std::function<void()>;
        *push = [&called, own, push] {
          if (++called < 20) own->Push({1}, {1}, {}, 0, *push);
        };
        own->Push({1}, {1}, {}, 0, *push);
        static_cast<void>(kv);
      },
      KVServerDefaultHandle<float>());
  if (IsWorker()) CHECK_EQ(called, 20);
}

// Worker 1 leaves while it gets answers: those that come later are for no process, and no error.
void Leaves() {
  Start(0);
  if (IsServer()) {
    Serve([](const KVMeta& meta, const KVPairs<float>&, KVServer<float>* server) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      // More than one: the worker counts the first.
      while (std::chrono::steady_clock::now() < end) server->Response(meta);
    });
  }
  if (IsWorker() && MyRank() == 1) {
    KVWorker<float> kv(0, 0);
    kv.Push({1}, {1});
  }
  // Longer than an error of a message waits for its reason.
  if (IsWorker() && MyRank() == 0) WaitInVain(5000);
  Finalize(0, !(IsWorker() && MyRank() == 1));
}

// ---------------------------------------------------------------------------- what is refused

void Serverless(KVWorker<float>& kv) { kv.Push({1}, {1}); }
void Arrays(KVWorker<float>&) {
  Message message;
  message.meta.recver = 8;
  message.data.resize(1024);
  Postoffice::Get()->van()->Send(message);
}
void ControlMessage(KVWorker<float>&) {
  Message message;
  message.meta.recver = 8;
  message.meta.control.cmd = ps::Control::BARRIER;
  Postoffice::Get()->van()->Send(message);
}
void Unsorted(KVWorker<float>& kv) { kv.Push({2, 1}, {1, 2}); }
void Doubled(KVWorker<float>& kv) { kv.Push({1, 1}, {1, 2}); }
void Lengths(KVWorker<float>& kv) { kv.Push({1, 2}, {1, 2, 3}, {1, 1}); }
void Widths(KVWorker<float>& kv) { kv.Push({1, 2}, {1, 2, 3}); }
void Foreign(KVWorker<float>& kv) { kv.Wait(77); }
void Drops(KVWorker<float>& kv) {
  kv.set_slicer([](const KVPairs<float>&, const std::vector<Range>& ranges,
                   KVWorker<float>::SlicedKVs* sliced) { sliced->resize(ranges.size()); });
  kv.Push({1, 2}, {1, 2});
}
void Groups(KVWorker<float>&) {
  Message message;
  // That of one worker.
  message.meta.recver = kWorkerGroup;
  Postoffice::Get()->van()->Send(message);
}
void TableWidths(KVWorker<float>& kv) { kv.Wait(kv.Push({1, 2}, {1, 2, 3, 4})); }
void TableTypes(KVWorker<float>&) {
  KVWorker<double> kv(0, 1);
  kv.Wait(kv.Push({1}, {1}));
}
// A message that no KVWorker has made.
void TableArrays(KVWorker<float>& kv) {
  Message message;
  message.meta.app_id = message.meta.customer_id = 0;
  message.meta.recver = 8;
  message.meta.request = message.meta.push = true;
  message.meta.timestamp = kv.get_customer()->NewRequest(8);
  message.AddData(SArray<Key>({1, 2, 3}));
  Postoffice::Get()->van()->Send(message);
  kv.Wait(message.meta.timestamp);
}
void Customers(KVWorker<float>&) { KVWorker<float> second(0, 0); }

// ---------------------------------------------------------------------------- deaths

// Workers push without end, until a process is killed.
void Endless(KVWorker<float>& kv) {
  const std::vector<Key> keys = KeysOf(1000);
  const std::vector<float> values(keys.size(), 1);
  std::printf("running\n");
  std::fflush(stdout);
  while (true) kv.Wait(kv.Push(keys, values));
}

// All but this wait in the end's barrier.
void Wait(KVWorker<float>&) {
  std::printf("running\n");
  std::fflush(stdout);
  if (MyRank() == 0) Postoffice::Get()->Barrier(0, kWorkerGroup + kServerGroup);
}

// A server whose function throws.
void ThrowAt(KVWorker<float>& kv) { kv.Wait(kv.Push({1}, {1})); }
void Thrower(const KVMeta&, const KVPairs<float>&, KVServer<float>*) {
  CHECK(false) << "as it was asked";
}

// A server's handler that is in a call when a worker dies: the call fails, and the server goes on
// until a call of its own thread fails.
void Survives() {
  Start(0);
  if (!IsServer()) {
    if (IsWorker()) {
      KVWorker<float> kv(0, 0);
      kv.Wait(kv.Push({1}, {1}));
    }
    return Finalize(0, true);
  }
  std::promise<void> thrown;
  {
    KVServer<float> server(0);
    server.set_request_handle([&](const KVMeta&, const KVPairs<float>&, KVServer<float>* own) {
      std::printf("running\n");
      std::fflush(stdout);
      try {
        // The scheduler has no such app.
        own->Wait(own->Request(1, "", kScheduler));
      } catch (const dmlc::Error&) {
        thrown.set_value();
        throw;
      }
    });
    CHECK(Throws([] { Finalize(0, true); }, "has died"));
    thrown.get_future().wait();
    // Its thread ends.
  }
  Finalize(0, false);
}

// A callback that still runs when Wait fails: Wait waits for it.
void Filling(KVWorker<float>& kv) {
  std::atomic<bool> ended(false);
  std::vector<float> pulled;
  const int timestamp = kv.Pull({1}, &pulled, nullptr, 0, [&] {
    std::printf("running\n");
    std::fflush(stdout);
    const auto begins = [&kv] { kv.get_customer()->NewRequest(kServerGroup); };
    while (!Throws(begins, "has died")) WaitInVain(5);
    // Longer than a call needs to see the failure.
    WaitInVain(500);
    ended = true;
  });
  CHECK(Throws([&] { kv.Wait(timestamp); }, "has died"));
  CHECK(ended.load());
  std::printf("waited\n");
  std::fflush(stdout);
}

}  // namespace

int main(int, char** argv) {
  const std::map<std::string, std::function<void()>> programs = {
      {"values", [] { Run(Values); }},
      {"callbacks", [] { Run(Callbacks); }},
      {"barriers", Barriers},
      {"twice", Twice},
      {"many", [] { Run(Many); }},
      {"unsorted", [] { Run(Unsorted); }},
      {"doubled", [] { Run(Doubled); }},
      {"lengths", [] { Run(Lengths); }},
      {"widths", [] { Run(Widths); }},
      {"foreign", [] { Run(Foreign); }},
      {"drops", [] { Run(Drops); }},
      {"groups", [] { Run(Groups); }},
      {"customers", [] { Run(Customers); }},
      {"table_widths", [] { Run(TableWidths, KVServerDefaultHandle<float>()); }},
      {"table_types", [] { Run(TableTypes, KVServerDefaultHandle<float>()); }},
      {"table_arrays", [] { Run(TableArrays, KVServerDefaultHandle<float>()); }},
      {"table_endless", [] { Run(Endless, KVServerDefaultHandle<float>()); }},
      {"table_two_handles", TwoHandles},
      {"table_late_handle", LateHandle},
      {"table_other_handle", OtherHandle},
      {"table_same_handle", SameHandle},
      {"table_chained", Chained},
      {"messages", Messages},
      {"endless", [] { Run(Endless); }},
      {"wait", [] { Run(Wait); }},
      {"throws", [] { Run(ThrowAt, Thrower); }},
      {"late", Late},
      {"again", [] { Run(Again, AnswersLate()); }},
      {"flood", [] { Run(Flood, Stops()); }},
      {"leaves", Leaves},
      {"serverless", [] { Run(Serverless); }},
      {"arrays", [] { Run(Arrays); }},
      {"control", [] { Run(ControlMessage); }},
      {"survives", Survives},
      {"filling", [] { Run(Filling); }},
  };
  programs.at(argv[1])();
  std::printf("ok\n");
  return 0;
}
