#include "src/cli/objects/output_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::StatusIs;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() : folder_(::testing::TempDir() + "/output_file_test") {
    std::filesystem::create_directories(folder_);
  }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }

  std::string ReadFile(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  size_t FilesInFolder() {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_),
                                             std::filesystem::directory_iterator()));
  }

  const std::string folder_;
};

TEST_F(OutputFileTest, TheFileAppearsWhenItIsCommitted) {
  const std::string path = folder_ + "/out";
  std::ofstream(path) << "before";
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::Open(path));
    PHALANX_ASSERT_OK(file.Write("half"));
    EXPECT_EQ(ReadFile(path), "before");
    PHALANX_ASSERT_OK(file.Restart());
    PHALANX_ASSERT_OK(file.Write("all of it"));
    PHALANX_ASSERT_OK(file.Commit());
  }
  EXPECT_EQ(ReadFile(path), "all of it");
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(OutputFileTest, ReplacingAFileKeepsItsModeAndLinks) {
  const std::string path = folder_ + "/out";
  const std::string link = folder_ + "/link";
  std::ofstream(path) << "before";
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  std::filesystem::create_symlink(path, link);
  PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::Open(link));
  PHALANX_ASSERT_OK(file.Write("after"));
  PHALANX_ASSERT_OK(file.Commit());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReadFile(path), "after");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
}

TEST_F(OutputFileTest, AnUncommittedFileLeavesNothingBehind) {
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::Open(folder_ + "/out"));
    PHALANX_ASSERT_OK(file.Write("half"));
    EXPECT_EQ(FilesInFolder(), 1u);
  }
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(OutputFileTest, AnInterruptedProcessLeavesNothingBehind) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    absl::StatusOr<OutputFile> file = OutputFile::Open(folder_ + "/out");
    if (file.ok()) raise(SIGINT);
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(OutputFileTest, AMissingFolderIsNotFound) {
  EXPECT_THAT(OutputFile::Open(folder_ + "/none/out").status(),
              StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("/none/out")));
}

TEST_F(OutputFileTest, ADeviceIsWrittenToDirectly) {
  PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile null, OutputFile::Open("/dev/null"));
  EXPECT_FALSE(null.restartable());
  PHALANX_EXPECT_OK(null.Write("gone"));
  PHALANX_EXPECT_OK(null.Commit());
}

TEST_F(OutputFileTest, AFullDiskIsResourceExhausted) {
  PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile full, OutputFile::Open("/dev/full"));
  EXPECT_THAT(full.Write("x"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(OutputFileTest, TheFileHasTheUsualMode) {
  const mode_t mask = umask(022);
  PHALANX_ASSERT_OK_AND_ASSIGN(OutputFile file, OutputFile::Open(folder_ + "/out"));
  PHALANX_ASSERT_OK(file.Commit());
  umask(mask);
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

}  // namespace
}  // namespace phalanx::runtime
