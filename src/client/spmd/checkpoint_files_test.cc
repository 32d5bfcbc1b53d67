#include "src/client/spmd/checkpoint_files.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr bool kGlobal = false;
constexpr bool kLocal = true;

class CheckpointFilesTest : public ::testing::Test {
 protected:
  CheckpointFilesTest() {
    std::string name = absl::StrCat(::testing::TempDir(), "/checkpoints-XXXXXX");
    directory_ = mkdtemp(name.data());
  }
  CheckpointFiles Of(int rank, absl::string_view job = "train") const {
    return CheckpointFiles(directory_, job, "worker", rank);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::string Contents(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(absl::StrCat(directory_, "/", name)).rdbuf();
    return text.str();
  }
  void SetContents(const std::string& name, const std::string& bytes) const {
    std::ofstream(absl::StrCat(directory_, "/", name), std::ios::trunc) << bytes;
  }
  static std::optional<CheckpointFile> Whole(absl::StatusOr<std::optional<CheckpointFile>> file) {
    EXPECT_THAT(file, IsOk());
    return file.ok() ? *std::move(file) : std::nullopt;
  }
  static uint64_t VersionOf(absl::StatusOr<std::optional<CheckpointFile>> file) {
    const std::optional<CheckpointFile> whole = Whole(std::move(file));
    return whole.has_value() ? whole->version : 0;
  }

  std::string directory_;
};

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xe3069283u);
}

TEST_F(CheckpointFilesTest, TheNewestFileOfAnyRankIsRead) {
  EXPECT_EQ(VersionOf(Of(0).Newest(kGlobal)), 0u);
  EXPECT_THAT(Of(0).Write(9, "nine", std::nullopt), IsOk());
  EXPECT_THAT(Of(3).Write(10, "ten", std::nullopt), IsOk());
  const std::optional<CheckpointFile> newest = Whole(Of(1).Newest(kGlobal));
  ASSERT_EQ(newest.has_value() ? newest->version : 0, 10u);
  EXPECT_EQ(newest->global, "ten");
  EXPECT_EQ(newest->local, "");
  // Those of the other kind, of other jobs, and of other roles are not.
  EXPECT_EQ(VersionOf(Of(3).Newest(kLocal)), 0u);
  EXPECT_EQ(VersionOf(Of(3, "train_worker").Newest(kGlobal)), 0u);
  EXPECT_EQ(VersionOf(CheckpointFiles(directory_, "train", "server", 3).Newest(kGlobal)), 0u);
}

TEST_F(CheckpointFilesTest, ALocalModelIsReadByItsRankAlone) {
  EXPECT_THAT(Of(0).Write(4, "global", "of 0"), IsOk());
  EXPECT_THAT(Of(1).Write(5, "later", "of 1"), IsOk());
  EXPECT_THAT(Of(1).Write(4, "global", std::string("\0\n", 2)), IsOk());
  EXPECT_EQ(VersionOf(Of(0).Newest(kLocal)), 4u);
  EXPECT_EQ(Whole(Of(0).Newest(kLocal))->local, "of 0");
  EXPECT_EQ(VersionOf(Of(1).Newest(kLocal)), 5u);
  ASSERT_EQ(VersionOf(Of(1).Read(4)), 4u);
  EXPECT_EQ(Whole(Of(1).Read(4))->local, std::string("\0\n", 2));
  EXPECT_EQ(VersionOf(Of(1).Read(3)), 0u);
  EXPECT_EQ(VersionOf(Of(2).Newest(kLocal)), 0u);
  EXPECT_EQ(VersionOf(Of(2).Newest(kGlobal)), 0u);
}

TEST_F(CheckpointFilesTest, AFileThatIsNotWholeIsSkipped) {
  EXPECT_THAT(Of(0).Write(1, "old", "local"), IsOk());
  const std::string old_name = Names().front();
  EXPECT_THAT(Of(0).Write(2, "global", "local"), IsOk());
  std::string name;
  for (const std::string& each : Names()) {
    if (each != old_name) name = each;
  }
  const std::string whole = Contents(name);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    SetContents(name, changed);
    EXPECT_EQ(VersionOf(Of(0).Newest(kLocal)), 1u) << at;
    SetContents(name, whole.substr(0, at));
    EXPECT_EQ(VersionOf(Of(0).Newest(kLocal)), 1u) << at;
  }
  SetContents(name, whole + "x");
  EXPECT_EQ(VersionOf(Of(0).Newest(kLocal)), 1u);
  SetContents(name, whole);
  EXPECT_EQ(VersionOf(Of(0).Newest(kLocal)), 2u);
}

TEST_F(CheckpointFilesTest, FilesOfItsRankAreRemoved) {
  for (uint64_t version = 8; version <= 12; ++version) {
    EXPECT_THAT(Of(0).Write(version, "global", std::nullopt), IsOk());
  }
  EXPECT_THAT(Of(1).Write(8, "global", std::nullopt), IsOk());
  Of(0).RemoveUntil(9);
  EXPECT_THAT(Names(), SizeIs(4));
  EXPECT_THAT(Of(0).RemoveAfter(10), IsOk());
  EXPECT_EQ(VersionOf(Of(0).Newest(kGlobal)), 10u);
  Of(0).RemoveUntil(10);
  EXPECT_EQ(VersionOf(Of(0).Newest(kGlobal)), 8u);
  Of(1).RemoveUntil(100);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointFilesTest, ADirectoryOrAFileThatCannotBeReadIsAnError) {
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string path = absl::StrCat(directory_, "/", Names().front());
  std::filesystem::remove(path);
  // A link to itself.
  std::filesystem::create_symlink(path, path);
  EXPECT_FALSE(Of(0).Newest(kGlobal).ok());
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(Of(0).Newest(kGlobal), StatusIs(absl::StatusCode::kNotFound, HasSubstr(directory_)));
}

TEST_F(CheckpointFilesTest, NamesOfJobsCanBeOfAnyKind) {
  const std::vector<std::string> jobs = {"a/b", "a b", "../x", std::string(255, 'j'), "\xc3\xa4"};
  for (const std::string& job : jobs) {
    EXPECT_THAT(Of(0, job).Write(1, job, std::nullopt), IsOk());
  }
  EXPECT_THAT(Names(), SizeIs(jobs.size()));
  for (const std::string& job : jobs) {
    ASSERT_EQ(VersionOf(Of(0, job).Newest(kGlobal)), 1u);
    EXPECT_EQ(Whole(Of(0, job).Newest(kGlobal))->global, job);
  }
}

TEST_F(CheckpointFilesTest, AnErrorNamesTheFileAndLeavesNothing) {
  EXPECT_THAT(CheckpointFiles::Check(directory_), IsOk());
  const std::string absent = absl::StrCat(directory_, "/absent");
  EXPECT_THAT(CheckpointFiles::Check(absent),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  const CheckpointFiles files(absent, "train", "worker", 0);
  EXPECT_THAT(files.Write(1, "global", std::nullopt),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  EXPECT_THAT(files.Newest(kGlobal), StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  // The name of the file is taken by a directory.
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string path = absl::StrCat(directory_, "/", Names().front());
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_TRUE(std::filesystem::create_directory(path));
  const absl::Status failed = Of(0).Write(1, "global", std::nullopt);
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr(path));
  EXPECT_THAT(Names(), SizeIs(1));
  EXPECT_EQ(VersionOf(Of(0).Newest(kGlobal)), 0u);
}

}  // namespace
}  // namespace phalanx::spmd::internal
