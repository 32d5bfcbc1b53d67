#include "src/node/host/machine.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::IsOkAndHolds;
using testing::StatusIs;

constexpr uint64_t kMiB = 1 << 20;

// Fakes /proc and /sys in a folder.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = absl::StrCat(::testing::TempDir(), "/machine_", info->name());
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteAvailable(uint64_t mib) {
    Write("/proc/meminfo",
          absl::StrCat("MemTotal:  9999999 kB\nMemAvailable:   ", mib * 1024, " kB\n"));
  }

  std::string root_;
};

TEST_F(MachineTest, UsesTheKernelsEstimateWithoutCgroups) {
  WriteAvailable(1000);
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(1000 * kMiB));
  EXPECT_THAT(DefaultCapacity(root_), IsOkAndHolds(300 * kMiB));
}

TEST_F(MachineTest, SubtractsUseFromTheLimitOfAVersion2Cgroup) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", absl::StrCat(600 * kMiB, "\n"));
  Write("/sys/fs/cgroup/a/b/memory.current", absl::StrCat(250 * kMiB, "\n"));
  Write("/sys/fs/cgroup/a/b/memory.stat",
        absl::StrCat("anon 1\ninactive_file ", 50 * kMiB, "\nactive_file 3\n"));
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(400 * kMiB));
}

TEST_F(MachineTest, AnAncestorCgroupCanHaveALowerLimit) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/memory.max", absl::StrCat(500 * kMiB, "\n"));
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(500 * kMiB));
}

TEST_F(MachineTest, UsesTheMountsFolderInAContainer) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "0::/../not/mounted/here\n");
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(200 * kMiB, "\n"));
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(200 * kMiB));
}

TEST_F(MachineTest, UsesTheLimitOfAVersion1Cgroup) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "5:devices:/x\n4:memory:/box/7\n");
  Write("/sys/fs/cgroup/memory/box/7/memory.limit_in_bytes", absl::StrCat(300 * kMiB, "\n"));
  Write("/sys/fs/cgroup/memory/box/7/memory.usage_in_bytes", absl::StrCat(100 * kMiB, "\n"));
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(200 * kMiB));
}

TEST_F(MachineTest, IgnoresInvalidCgroupFiles) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "garbage\n::\n0::/\n7:memory\n");
  Write("/sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_THAT(AvailableMemory(root_), IsOkAndHolds(1000 * kMiB));
}

TEST_F(MachineTest, AFullCgroupGivesTheMinimumCapacity) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(100 * kMiB, "\n"));
  Write("/sys/fs/cgroup/memory.current", absl::StrCat(200 * kMiB, "\n"));
  EXPECT_THAT(DefaultCapacity(root_), IsOkAndHolds(64 * kMiB));
}

TEST_F(MachineTest, WarnsIfTheCapacityExceedsTheContainer) {
  WriteAvailable(1000);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(400 * kMiB, "\n"));
  EXPECT_EQ(CapacityWarning(400 * kMiB, root_), "");
  const std::string warning = CapacityWarning(401 * kMiB, root_);
  EXPECT_THAT(warning, ::testing::HasSubstr("401 MiB is more than the 400 MiB"));
  EXPECT_THAT(warning, ::testing::HasSubstr("--capacity"));
}

TEST_F(MachineTest, RefusesACapacityBelowTheMinimum) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{12}, kMiB - 1}) {
    EXPECT_THAT(CheckCapacity(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                               ::testing::HasSubstr("the minimum of 1MiB")));
  }
  uint64_t bytes = 12;
  EXPECT_THAT(SettleCapacity(&bytes), StatusIs(absl::StatusCode::kInvalidArgument));
  PHALANX_EXPECT_OK(CheckCapacity(kMiB));
}

TEST_F(MachineTest, FailsWithoutMeminfo) {
  EXPECT_THAT(DefaultCapacity(root_),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("--capacity")));
}

TEST(HostNameTest, IsNeverEmptyAndHasNoDomain) {
  EXPECT_NE(ShortHostName(), "");
  EXPECT_EQ(ShortHostName().find('.'), std::string::npos);
}

}  // namespace
}  // namespace phalanx::runtime
