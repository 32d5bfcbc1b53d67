#include "src/node/host/paths.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

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

// The folder of a process that wrote a secret into its folder and was killed.
std::string KilledProcessFolder() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryFolder folder = *TemporaryFolder::Make();
    std::ofstream(folder.path() + "/secret") << "x";
    if (write(ends[1], folder.path().data(), folder.path().size()) < 0) _exit(1);
    raise(SIGKILL);
  }
  close(ends[1]);
  std::string path(200, '\0');
  path.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], path.data(), path.size()), 0)));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return path;
}

TEST(PathsTest, TheFolderOfAKilledProcessIsRemovedByTheNextAndALiveOnesIsKept) {
  const std::string root = ::testing::TempDir() + "/abandoned";
  std::filesystem::create_directories(root + "/phalanx-up-older/inner");
  std::filesystem::create_directories(root + "/other");
  std::filesystem::create_directory_symlink("other", root + "/phalanx-up-link");
  std::ofstream(root + "/other/owner") << "";
  setenv("XDG_RUNTIME_DIR", root.c_str(), 1);
  PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder live, TemporaryFolder::Make());
  const std::string killed = KilledProcessFolder();
  ASSERT_TRUE(std::filesystem::exists(killed + "/secret"));
  PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder next, TemporaryFolder::Make());
  EXPECT_FALSE(std::filesystem::exists(killed));
  EXPECT_TRUE(std::filesystem::exists(live.path()));
  EXPECT_TRUE(std::filesystem::exists(next.path()));
  EXPECT_TRUE(std::filesystem::exists(root + "/phalanx-up-older/inner"))
      << "it has no owner's file";
  EXPECT_TRUE(std::filesystem::exists(root + "/other/owner")) << "a link is not followed";
  unsetenv("XDG_RUNTIME_DIR");
  std::filesystem::remove_all(root);
}

TEST(PathsTest, ARuntimeFolderThatCannotBeWrittenIsPassedOver) {
  setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
  PHALANX_ASSERT_OK_AND_ASSIGN(const TemporaryFolder folder, TemporaryFolder::Make());
  EXPECT_TRUE(absl::StartsWith(folder.path(), "/tmp/"));
  unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace phalanx::runtime
