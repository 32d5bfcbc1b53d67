// test_kv_app_benchmark of ps-lite: milliseconds of a push, then a pull, of many keys with one
// float each. The servers keep nothing. The argument: how many keys, 10 million unless given.
#include <chrono>
#include <cstdlib>
#include <vector>

#include "ps/ps.h"

using namespace ps;  // NOLINT

static void EmptyHandler(const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* server) {
  KVPairs<float> response;
  if (meta.pull) {
    response.keys = data.keys;
    response.vals.resize(data.keys.size(), 1);
  }
  server->Response(meta, response);
}

static double Millis(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since)
      .count();
}

static void RunWorker(int count) {
  KVWorker<float> kv(0, 0);
  std::vector<Key> keys(count);
  std::vector<float> values(count, 1);
  for (int i = 0; i < count; ++i) keys[i] = kMaxKey / count * i + MyRank();
  auto begin = std::chrono::steady_clock::now();
  kv.Wait(kv.Push(keys, values));
  LL << "push " << count << " keys: " << Millis(begin) << " ms";
  std::vector<float> pulled;
  begin = std::chrono::steady_clock::now();
  kv.Wait(kv.Pull(keys, &pulled));
  LL << "pull " << count << " keys: " << Millis(begin) << " ms";
  CHECK_EQ(pulled.size(), values.size());
  for (const float value : pulled) CHECK_EQ(value, 1);
}

int main(int argc, char** argv) {
  Start(0);
  if (IsServer()) {
    auto* const server = new KVServer<float>(0);
    server->set_request_handle(EmptyHandler);
    RegisterExitCallback([server] { delete server; });
  }
  if (IsWorker()) RunWorker(argc > 1 ? std::atoi(argv[1]) : 10000000);
  Finalize(0, true);
  return 0;
}
