// What an object costs beside its bytes, and that nothing in the small-object path grows with their
// number.
#include <malloc.h>

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
