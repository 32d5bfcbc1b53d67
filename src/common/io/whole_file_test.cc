#include "src/common/io/whole_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xe3069283u);
}

TEST(FilePrefix, NamesThatDifferHaveOthers) {
  EXPECT_THAT(FilePrefix("train", "server", "a"), ::testing::StartsWith("train_server_"));
  EXPECT_NE(FilePrefix("train", "server", "a"), FilePrefix("train", "server", "b"));
  EXPECT_THAT(FilePrefix("a/b", "c d", ""), ::testing::StartsWith("a_b_c_d_"));
}

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() : folder_(absl::StrCat(::testing::TempDir(), "/whole-", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~WholeFileTest() override { std::filesystem::remove_all(folder_); }

  absl::Status Write(const std::string& name, absl::string_view a, absl::string_view b = "") const {
    return WriteWholeFile(folder_, absl::StrCat(folder_, "/", name),
                          absl::StrCat(folder_, "/", name, ".writing"), {a, b});
  }
  const std::string folder_;
};

TEST_F(WholeFileTest, AFileIsReplacedByAllParts) {
  EXPECT_THAT(Write("x", "one, ", "two"), IsOk());
  EXPECT_THAT(Write("x", "three, ", "four"), IsOk());
  EXPECT_EQ(ReadWholeFile(folder_ + "/x").value(), "three, four");
  EXPECT_THAT(ListDirectory(folder_).value(), UnorderedElementsAre("x", ".", ".."));
}

TEST_F(WholeFileTest, WhatIsNotThereIsNamed) {
  EXPECT_EQ(ReadWholeFile(folder_ + "/x").value(), std::nullopt);
  EXPECT_EQ(ReadWholeFile(folder_).value(), std::nullopt);
  EXPECT_THAT(CheckDirectory(folder_), IsOk());
  const std::string absent = folder_ + "/absent";
  EXPECT_THAT(CheckDirectory(absent), StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  EXPECT_THAT(ListDirectory(absent), StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent)));
  EXPECT_THAT(WriteWholeFile(absent, absent + "/x", absent + "/y", {"a"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(absent + "/y")));
}

// A limit of the process stands for a disk that is full.
TEST_F(WholeFileTest, AFileThatCannotBeWrittenWholeLeavesTheOldOne) {
  EXPECT_THAT(Write("x", "old"), IsOk());
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const absl::Cleanup restore = [&before] { setrlimit(RLIMIT_FSIZE, &before); };
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = Write("x", std::string(2000, 'y'));
  EXPECT_FALSE(full.ok());
  EXPECT_THAT(std::string(full.message()), HasSubstr(folder_ + "/x"));
  EXPECT_EQ(ReadWholeFile(folder_ + "/x").value(), "old");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/x.writing"));
}

}  // namespace
}  // namespace phalanx
