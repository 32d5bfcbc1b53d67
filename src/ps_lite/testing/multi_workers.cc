// test_kv_app_multi_workers of ps-lite: two workers in a process, each a customer that starts and
// finalizes. DMLC_NUM_WORKER counts both.
#include <atomic>
#include <thread>

#include "src/ps_lite/testing/kv_app.h"

static std::atomic<int> arrived(0);

// A barrier of the workers is one of their customers, also if one process has all of these.
static void RunBarriers(int customer_id) {
  constexpr int kRounds = 50;
  for (int i = 1; i <= kRounds; ++i) {
    ++arrived;
    ps::Postoffice::Get()->Barrier(customer_id, ps::kWorkerGroup);
    CHECK_GE(arrived.load(), 2 * i);
  }
}

static void RunCustomer(int customer_id) {
  ps::Start(customer_id);
  RunBarriers(customer_id);
  RunWorker(customer_id, 2 * ps::MyRank() + customer_id);
  ps::Finalize(customer_id, true);
}

int main() {
  StartServer();
  if (!ps::IsWorker()) {
    ps::Start(0);
    ps::Finalize(0, true);
    return 0;
  }
  std::thread first(RunCustomer, 0);
  std::thread second(RunCustomer, 1);
  first.join();
  second.join();
  return 0;
}
