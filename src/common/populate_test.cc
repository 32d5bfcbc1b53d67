#include "src/common/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

constexpr uint64_t kGuard = uint64_t{1} << 20;
constexpr int kPopulateWrite =
    23;  // MADV_POPULATE_WRITE, which C libraries before 2.35 do not name

// Shared memory of which a part in the middle is populated.
class PopulateTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    memory_ = static_cast<char*>(
        mmap(nullptr, All(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override { munmap(memory_, All()); }

  uint64_t All() const { return kGuard + GetParam() + kGuard; }
  // Of each page of [begin, begin + bytes): whether it is there.
  std::vector<unsigned char> Resident(uint64_t begin, uint64_t bytes) const {
    const uint64_t page = static_cast<uint64_t>(getpagesize());
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    EXPECT_EQ(mincore(memory_ + begin, bytes, resident.data()), 0);
    for (unsigned char& each : resident) each &= 1;
    return resident;
  }

  char* memory_ = nullptr;
};

TEST_P(PopulateTest, MakesEveryPageAndNoOther) {
  if (madvise(memory_ + kGuard, 1, kPopulateWrite) != 0) GTEST_SKIP() << "before Linux 5.14";
  Populate(memory_ + kGuard, GetParam());
  const std::vector<unsigned char> made = Resident(kGuard, GetParam());
  EXPECT_EQ(made, std::vector<unsigned char>(made.size(), 1));
  for (const uint64_t guard : {uint64_t{0}, kGuard + (GetParam() + 4095) / 4096 * 4096}) {
    const uint64_t bytes = std::min(kGuard, All() - guard);
    const std::vector<unsigned char> left = Resident(guard, bytes);
    EXPECT_EQ(left, std::vector<unsigned char>(left.size(), 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PopulateTest,
                         ::testing::Values(1, 4096, 100'000, uint64_t{16} << 20,
                                           (uint64_t{33} << 20) + 5, (uint64_t{70} << 20) + 4097));

}  // namespace
}  // namespace phalanx
