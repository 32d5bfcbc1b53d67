// What the workers of kv_app.cc and multi_workers.cc do, as those of ps-lite's tests: pushes with
// at most ten outstanding, a pull, and PushPull.
#ifndef PHALANX_PS_LITE_TESTING_KV_APP_H_
#define PHALANX_PS_LITE_TESTING_KV_APP_H_

#include <cmath>
#include <vector>

#include "ps/ps.h"

constexpr int kKeys = 10000;
constexpr int kRepeats = 50;

inline void StartServer() {
  if (!ps::IsServer()) return;
  auto* const server = new ps::KVServer<float>(0);
  server->set_request_handle(ps::KVServerDefaultHandle<float>());
  ps::RegisterExitCallback([server] { delete server; });
}

// The values are `times` those that were pushed.
inline void CheckValues(const std::vector<float>& got, const std::vector<float>& pushed,
                        int times) {
  CHECK_EQ(got.size(), pushed.size());
  float error = 0;
  for (size_t i = 0; i < got.size(); ++i)
    error += std::fabs(got[i] - pushed[i] * static_cast<float>(times));
  CHECK_LT(error / kRepeats, 1e-5) << "(times " << times << ")";
}

// `place` makes the keys of this worker other ones than those of others.
inline void RunWorker(int customer_id, int place) {
  ps::KVWorker<float> kv(0, customer_id);
  std::vector<ps::Key> keys(kKeys);
  std::vector<float> values(kKeys);
  for (int i = 0; i < kKeys; ++i) {
    keys[i] = ps::kMaxKey / kKeys * i + place;
    values[i] = static_cast<float>((i * 7 + place * 31) % 1000);
  }
  std::vector<int> timestamps;
  for (int i = 0; i < kRepeats; ++i) {
    timestamps.push_back(kv.Push(keys, values));
    if (i > 10) kv.Wait(timestamps[timestamps.size() - 10]);
  }
  for (int timestamp : timestamps) kv.Wait(timestamp);
  std::vector<float> pulled;
  kv.Wait(kv.Pull(keys, &pulled));
  CheckValues(pulled, values, kRepeats);
  // The values after this push.
  std::vector<float> outs;
  for (int i = 0; i < kRepeats; ++i) {
    kv.Wait(kv.PushPull(keys, values, &outs));
    CheckValues(outs, values, kRepeats + i + 1);
  }
  LL << "worker " << place << ": ok";
}

#endif  // PHALANX_PS_LITE_TESTING_KV_APP_H_
