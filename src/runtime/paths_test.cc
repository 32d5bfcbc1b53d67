#include "src/runtime/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::StatusIs;

TEST(PathsTest, TheSocketIsInTheUsersRuntimeFolder) {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultSocketPath(), "/run/user/7/phalanx/node.sock");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultSocketPath(), absl::StrCat("/tmp/phalanx-", geteuid(), "/node.sock"));
}

TEST(PathsTest, APrivateFolderIsMadeOnceAndOpenToNobodyElse) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/private");
  PHALANX_ASSERT_OK(MakePrivateFolder(folder));
  PHALANX_ASSERT_OK(MakePrivateFolder(folder));
  struct stat info;
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  EXPECT_THAT(MakePrivateFolder(folder), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(PathsTest, ALinkIsNotAPrivateFolder) {
  const std::string link = absl::StrCat(::testing::TempDir(), "/link");
  ASSERT_EQ(symlink("/tmp", link.c_str()), 0);
  EXPECT_THAT(MakePrivateFolder(link), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(PathsTest, ATemporaryFolderGoesWithWhatIsInIt) {
  std::string path;
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder folder, TemporaryFolder::Make());
    path = folder.path();
    std::ofstream(path + "/node.sock") << "x";
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PathsTest, ARuntimeFolderThatCannotBeWrittenIsPassedOver) {
  setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder folder, TemporaryFolder::Make());
  EXPECT_TRUE(absl::StartsWith(folder.path(), "/tmp/"));
  unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace phalanx::runtime
