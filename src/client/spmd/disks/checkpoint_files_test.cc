#include "src/client/spmd/disks/checkpoint_files.h"

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
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr bool kGlobal = false;
constexpr bool kLocal = true;
constexpr DiskRun kRun = {2, 0xab, 5};
constexpr DiskRun kLater = {3, 0xab, 4};

class CheckpointFilesTest : public ::testing::Test {
 protected:
  CheckpointFilesTest() {
    std::string name = absl::StrCat(::testing::TempDir(), "/checkpoints-XXXXXX");
    directory_ = mkdtemp(name.data());
  }
  CheckpointFiles Of(int rank, absl::string_view job = "train", DiskRun run = kRun) const {
    CheckpointFiles files(directory_, job, "worker", rank);
    files.Begin(run);
    return files;
  }
  CheckpointFiles In(DiskRun run, int rank) const { return Of(rank, "train", run); }
  static absl::StatusOr<std::optional<CheckpointFile>> Newest(const CheckpointFiles& files,
                                                              bool local) {
    return files.Newest(local, kLater, {});
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

TEST_F(CheckpointFilesTest, TheNewestFileOfAnyRankIsRead) {
  EXPECT_EQ(VersionOf(Newest(Of(0), kGlobal)), 0u);
  EXPECT_THAT(Of(0).Write(9, "nine", std::nullopt), IsOk());
  EXPECT_THAT(Of(3).Write(10, "ten", std::nullopt), IsOk());
  const std::optional<CheckpointFile> newest = Whole(Newest(Of(1), kGlobal));
  ASSERT_EQ(newest.has_value() ? newest->version : 0, 10u);
  EXPECT_EQ(newest->global, "ten");
  EXPECT_EQ(newest->local, "");
  // Those of the other kind, of other jobs, and of other roles are not.
  EXPECT_EQ(VersionOf(Newest(Of(3), kLocal)), 0u);
  EXPECT_EQ(VersionOf(Newest(Of(3, "train_worker"), kGlobal)), 0u);
  EXPECT_EQ(VersionOf(Newest(CheckpointFiles(directory_, "train", "server", 3), kGlobal)), 0u);
}

TEST_F(CheckpointFilesTest, ALocalModelIsReadByItsRankAlone) {
  EXPECT_THAT(Of(0).Write(4, "global", "of 0"), IsOk());
  EXPECT_THAT(Of(1).Write(5, "later", "of 1"), IsOk());
  EXPECT_THAT(Of(1).Write(4, "global", std::string("\0\n", 2)), IsOk());
  EXPECT_EQ(VersionOf(Newest(Of(0), kLocal)), 4u);
  EXPECT_EQ(Whole(Newest(Of(0), kLocal))->local, "of 0");
  EXPECT_EQ(VersionOf(Newest(Of(1), kLocal)), 5u);
  ASSERT_EQ(VersionOf(Of(1).Read(kRun, 4)), 4u);
  EXPECT_EQ(Whole(Of(1).Read(kRun, 4))->local, std::string("\0\n", 2));
  EXPECT_EQ(VersionOf(Of(1).Read(kRun, 3)), 0u);
  EXPECT_EQ(VersionOf(Newest(Of(2), kLocal)), 0u);
  EXPECT_EQ(VersionOf(Newest(Of(2), kGlobal)), 0u);
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
    EXPECT_EQ(VersionOf(Newest(Of(0), kLocal)), 1u) << at;
    SetContents(name, whole.substr(0, at));
    EXPECT_EQ(VersionOf(Newest(Of(0), kLocal)), 1u) << at;
  }
  SetContents(name, whole + "x");
  EXPECT_EQ(VersionOf(Newest(Of(0), kLocal)), 1u);
  SetContents(name, whole);
  EXPECT_EQ(VersionOf(Newest(Of(0), kLocal)), 2u);
}

TEST_F(CheckpointFilesTest, FilesOfItsRankAreRemoved) {
  for (uint64_t version = 8; version <= 12; ++version) {
    EXPECT_THAT(Of(0).Write(version, "global", std::nullopt), IsOk());
  }
  EXPECT_THAT(Of(1).Write(9, "of a rank that has been here", std::nullopt), IsOk());
  EXPECT_THAT(Of(1).Write(10, "global", std::nullopt), IsOk());
  CheckpointFiles files = Of(0);
  files.RemoveUntil(9);
  EXPECT_THAT(Names(), SizeIs(4));
  EXPECT_EQ(VersionOf(Newest(Of(0), kGlobal)), 12u);
  // Later only its own.
  files.RemoveUntil(10);
  EXPECT_THAT(Names(), SizeIs(3));
  files.RemoveUntil(9);
  EXPECT_THAT(Names(), SizeIs(3));
  files.RemoveAll(/*mark=*/false);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointFilesTest, WhatAnEarlierLifeHasNotEndedIsRemoved) {
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string name = Names().front();
  // Rank 0 ends within a write of version 2, of this run and of the one before; so does rank 10.
  for (const char* const run : {"2_000000ab_0000000000000005", "1_000000ab_0000000000000005"}) {
    for (const char* const rank : {"0", "10"}) {
      const std::string prefix = name.substr(0, name.find("2_000000ab"));
      SetContents(absl::StrCat(prefix, run, "_", rank, "_2.checkpoint.", rank, ".writing"), "half");
    }
  }
  SetContents("other.writing", "");
  EXPECT_THAT(Names(), SizeIs(6));
  Of(0).RemoveUnfinished();
  EXPECT_THAT(Names(), SizeIs(4));
  for (const std::string& each : Names()) EXPECT_THAT(each, Not(HasSubstr(".0.writing")));
  // It is no file of a version, nor removed as one.
  EXPECT_EQ(VersionOf(Newest(Of(0), kGlobal)), 1u);
  Of(0).RemoveUntil(5);
  EXPECT_THAT(Names(), SizeIs(3));
}

TEST_F(CheckpointFilesTest, FilesOfRunsAreDistinguished) {
  const DiskRun before = {1, 0xab, 9};
  EXPECT_THAT(In(before, 0).Write(8, "eight of the run before", "local"), IsOk());
  EXPECT_THAT(In(before, 0).Write(9, "nine of the run before", "local"), IsOk());
  EXPECT_THAT(Of(0).WriteFirst(8, "eight", "local"), IsOk());
  EXPECT_EQ(Whole(Newest(Of(0), kLocal))->global, "eight");
  EXPECT_TRUE(Whole(Newest(Of(0), kLocal))->first);
  EXPECT_EQ(Whole(Newest(Of(0), kLocal))->run, kRun);
  EXPECT_EQ(Whole(Of(0).Newest(kLocal, kRun, {}))->version, 9u);
  EXPECT_FALSE(Whole(Of(0).Newest(kLocal, kRun, {}))->first);
  EXPECT_EQ(Whole(Of(0).Read(before, 8))->global, "eight of the run before");
  // The run that begins is the next one.
  EXPECT_THAT(Of(0).ProposePlace(7), IsOkAndHolds(uint64_t{2} << 32 | 0xab));
  EXPECT_EQ(RunAt(uint64_t{2} << 32 | 0xab, 6), (DiskRun{3, 0xab, 6}));
  // It passes over this one.
  In(kLater, 0).RemovePassedOver(before);
  EXPECT_EQ(Whole(Newest(Of(0), kLocal))->version, 9u);
  // What is older than a run that frees something goes.
  EXPECT_THAT(Of(0).Write(10, "ten", "local"), IsOk());
  EXPECT_THAT(In(kLater, 1).Write(1, "later", "local"), IsOk());
  Of(0).RemoveUntil(9);
  EXPECT_THAT(Names(), SizeIs(2));
  EXPECT_THAT(Of(2).ProposePlace(7), IsOkAndHolds(uint64_t{3} << 32 | 0xab));
}

TEST_F(CheckpointFilesTest, AMarkEndsItsRunAndThoseBefore) {
  const DiskRun before = {1, 0xab, 9};
  const DiskRun other = {1, 0xcd, 9};
  EXPECT_THAT(Of(3).Marks(), IsOkAndHolds(DiskMarks{}));
  EXPECT_THAT(In(before, 0).Write(8, "global", std::nullopt), IsOk());
  EXPECT_THAT(Of(1).Write(8, "of another rank", std::nullopt), IsOk());
  Of(3).RemoveAll(/*mark=*/true);
  EXPECT_THAT(Names(), SizeIs(2));
  // Again by another rank.
  Of(4).RemoveAll(/*mark=*/true);
  // Others come from another host.
  EXPECT_THAT(In(before, 0).Write(8, "global", std::nullopt), IsOk());
  EXPECT_THAT(In(other, 2).Write(5, "of another line", std::nullopt), IsOk());
  const absl::StatusOr<DiskMarks> marks = Of(3).Marks();
  EXPECT_THAT(marks, IsOkAndHolds(DiskMarks{kRun}));
  EXPECT_THAT(Names(), SizeIs(4));
  // Not in the line of the one that has ended.
  EXPECT_THAT(Of(3).ProposePlace(7), IsOkAndHolds(uint64_t{2} << 32 | 7));
  ASSERT_EQ(VersionOf(Of(3).Newest(kGlobal, kLater, *marks)), 5u);
  EXPECT_EQ(Whole(Of(3).Newest(kGlobal, kLater, *marks))->global, "of another line");
  Of(3).RemoveEnded(*marks);
  EXPECT_THAT(Names(), SizeIs(2));
  // The newest ones stay.
  for (uint32_t number = 3; number < 9; ++number) {
    In({number, 0xab, 1}, 0).RemoveAll(/*mark=*/true);
  }
  EXPECT_EQ(Of(3).Marks()->front(), (DiskRun{8, 0xab, 1}));
  EXPECT_EQ(Of(3).Marks()->back(), (DiskRun{5, 0xab, 1}));
  EXPECT_THAT(Names(), SizeIs(kMaxMarks));
}

TEST_F(CheckpointFilesTest, AFileOfAnEarlierVersionOfPhalanxIsRefused) {
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string name = Names().front();
  const std::string old = absl::StrCat(name.substr(0, name.find("2_000000ab")), "0_7.checkpoint");
  SetContents(old, "phxckpt1");
  EXPECT_THAT(Of(0).ProposePlace(7),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(old)));
  EXPECT_THAT(Newest(Of(0), kGlobal),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("of an earlier version of Phalanx: remove it to begin anew")));
}

TEST_F(CheckpointFilesTest, ADirectoryOrAFileThatCannotBeReadIsAnError) {
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string path = absl::StrCat(directory_, "/", Names().front());
  std::filesystem::remove(path);
  // A link to itself.
  std::filesystem::create_symlink(path, path);
  EXPECT_FALSE(Newest(Of(0), kGlobal).ok());
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(Newest(Of(0), kGlobal), StatusIs(absl::StatusCode::kNotFound, HasSubstr(directory_)));
}

TEST_F(CheckpointFilesTest, NamesOfJobsCanBeOfAnyKind) {
  const std::vector<std::string> jobs = {"a/b", "a b", "../x", std::string(255, 'j'), "\xc3\xa4"};
  for (const std::string& job : jobs) {
    EXPECT_THAT(Of(0, job).Write(1, job, std::nullopt), IsOk());
  }
  EXPECT_THAT(Names(), SizeIs(jobs.size()));
  for (const std::string& job : jobs) {
    ASSERT_EQ(VersionOf(Newest(Of(0, job), kGlobal)), 1u);
    EXPECT_EQ(Whole(Newest(Of(0, job), kGlobal))->global, job);
  }
}

TEST_F(CheckpointFilesTest, AnErrorNamesTheFileAndLeavesNothing) {
  const std::string absent = absl::StrCat(directory_, "/absent");
  CheckpointFiles files(absent, "train", "worker", 0);
  EXPECT_THAT(files.Write(1, "global", std::nullopt),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  EXPECT_THAT(Newest(files, kGlobal), StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  // The name of the file is taken by a directory.
  EXPECT_THAT(Of(0).Write(1, "global", std::nullopt), IsOk());
  const std::string path = absl::StrCat(directory_, "/", Names().front());
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_TRUE(std::filesystem::create_directory(path));
  const absl::Status failed = Of(0).Write(1, "global", std::nullopt);
  EXPECT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.message()), HasSubstr(path));
  EXPECT_THAT(Names(), SizeIs(1));
  EXPECT_EQ(VersionOf(Newest(Of(0), kGlobal)), 0u);
}

}  // namespace
}  // namespace phalanx::spmd::internal
