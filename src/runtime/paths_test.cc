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

TEST(PathsTest, TheSocketIsInTheUsersRuntimeFolder) {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultSocketPath(), "/run/user/7/phalanx/node.sock");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultSocketPath(), absl::StrCat("/tmp/phalanx-", geteuid(), "/node.sock"));
}

TEST(PathsTest, RemovesTheTemporaryFolderAndItsFiles) {
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

TEST(PathsTest, SkipsARuntimeFolderThatIsNotWritable) {
  setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder folder, TemporaryFolder::Make());
  EXPECT_TRUE(absl::StartsWith(folder.path(), "/tmp/"));
  unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace phalanx::runtime
