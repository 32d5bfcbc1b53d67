// What an object costs beside its bytes, and that nothing in the small-object path grows with their
// number.
#include <malloc.h>
#include <time.h>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using testing::Id;
using testing::StoreWorld;

constexpr int kObjects = 50000;
constexpr uint64_t kObjectBytes = 64;

uint64_t HeapBytes() { return mallinfo2().uordblks; }

double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// CPU seconds for giving up Gets of as many objects, one after the other, as a client does that
// leaves. With `begun` the object is being written here, and every second Get streams it.
double CostOfGivingUp(int gets, int objects, bool begun) {
  StoreWorld w;
  w.keep_sent = false;
  const ClientId leaving = w.OpenClient();
  double used = 0;
  w.Run([&] {
    const double start = CpuSeconds();
    std::vector<RequestId> requests;
    for (int i = 0; i < gets; ++i) {
      GetEvents events;
      events.on_view = [](absl::StatusOr<View>) {};
      events.on_void = [](const absl::Status&) {};
      const bool streaming = begun && i % 2 == 0;
      requests.push_back(w.store().Get(
          leaving, GetOptions{Id(i % objects), Instant::Infinite(), streaming}, std::move(events)));
      if (begun && i < objects) {
        PutOptions options;
        options.id = Id(i);
        w.store().Create(w.client(), options, 1, [](absl::StatusOr<WriteGrant>) {});
      }
    }
    for (const RequestId request : requests) w.store().Cancel(leaving, request);
    used = CpuSeconds() - start;
  });
  return used;
}

TEST(StoreCostTest, GivingUpGetsOfOneObjectCostsNoMoreThanOfMany) {
  constexpr int kGets = 60000;
  for (const bool begun : {false, true}) {
    const double many = CostOfGivingUp(kGets, 1000, begun);
    const double one = CostOfGivingUp(kGets, 1, begun);
    EXPECT_LT(one, 10 * many + 0.1) << "begun: " << begun << ", many: " << many;
  }
}

TEST(StoreCostTest, AnObjectCostsLessThanOneKilobyteBesideItsBytes) {
  StoreWorld w;
  uint64_t before = 0;
  w.keep_sent = false;
  int answered = 0;
  for (const bool warm : {true, false}) {
    before = HeapBytes();
    w.Run([&] {
      for (int i = 0; i < kObjects; ++i) {
        PutOptions options;
        options.id = Id(warm ? -1 - i : i);
        w.store().Put(w.client(), options, std::string(kObjectBytes, 'x'),
                      [&](absl::StatusOr<PutResult> result) { answered += result.ok() ? 1 : 0; });
      }
    });
  }
  EXPECT_EQ(answered, 2 * kObjects);
  const uint64_t used = HeapBytes() - before;
  if (before == 0) GTEST_SKIP() << "this allocator does not tell";
  std::cout << used / kObjects << " bytes of heap per object of " << kObjectBytes << "\n";
  EXPECT_LE(used / kObjects, 1024 + kObjectBytes);
}

}  // namespace
}  // namespace phalanx::object_store
