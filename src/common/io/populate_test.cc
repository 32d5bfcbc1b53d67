#include "src/common/io/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/no_threads.h"

namespace phalanx {
namespace {

// Larger than a huge page.
constexpr uint64_t kGuard = uint64_t{8} << 20;

// Shared memory. The test populates a part in the middle.
class PopulateTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    memory_ = static_cast<char*>(
        mmap(nullptr, All(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override { munmap(memory_, All()); }

  uint64_t All() const { return kGuard + GetParam() + kGuard; }
  // Returns for each page of [begin, begin + bytes) whether it is resident.
  std::vector<unsigned char> Resident(uint64_t begin, uint64_t bytes) const {
    const uint64_t page = static_cast<uint64_t>(getpagesize());
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    EXPECT_EQ(mincore(memory_ + begin, bytes, resident.data()), 0);
    for (unsigned char& each : resident) each &= 1;
    return resident;
  }

  void ExpectMade() const {
    const uint64_t page = static_cast<uint64_t>(getpagesize());
    const std::vector<unsigned char> made = Resident(kGuard, GetParam());
    EXPECT_EQ(made, std::vector<unsigned char>(made.size(), 1));
    const uint64_t behind = kGuard + (GetParam() + page - 1) / page * page;
    // With huge pages, the populated range can extend beyond the requested one.
    for (const uint64_t guard : {uint64_t{0}, behind + kGuard / 2}) {
      const std::vector<unsigned char> left = Resident(guard, kGuard / 4);
      EXPECT_EQ(left, std::vector<unsigned char>(left.size(), 0));
    }
  }

  char* memory_ = nullptr;
};

TEST_P(PopulateTest, PopulatesEveryPageAndNoOther) {
  if (!CanPopulate()) GTEST_SKIP() << "before Linux 5.14";
  Populate(memory_ + kGuard, GetParam());
  ExpectMade();
}

TEST_P(PopulateTest, PopulatesWithoutThreads) {
  if (!CanPopulate()) GTEST_SKIP() << "before Linux 5.14";
  {
    const testing::NoThreads none;
    Populate(memory_ + kGuard, GetParam());
  }
  ExpectMade();
}

INSTANTIATE_TEST_SUITE_P(Sizes, PopulateTest,
                         ::testing::Values(1, 4096, 100'000, uint64_t{16} << 20,
                                           (uint64_t{33} << 20) + 5, (uint64_t{70} << 20) + 4097));

}  // namespace
}  // namespace phalanx
