#include "src/client/ps/disks/part_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

class PartFilesTest : public ::testing::Test {
 protected:
  PartFilesTest() : folder_(absl::StrCat(::testing::TempDir(), "/parts-", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~PartFilesTest() override { std::filesystem::remove_all(folder_); }

  static constexpr uint64_t kLine = uint64_t{7} << kLineBits;
  static constexpr uint64_t kOther = uint64_t{8} << kLineBits;

  PartFiles Of(int part, int parts = 2, const std::string& table = "w", uint64_t life = 0) const {
    return PartFiles(folder_, {.job = "train",
                               .role = "server",
                               .table = table,
                               .part = part,
                               .parts = parts,
                               .life = life});
  }
  const std::string folder_;
};

TEST_F(PartFilesTest, EachPartOfEachTableHasItsOwnFiles) {
  EXPECT_THAT(Of(0).Write({7, 10}, {3, 70}, "ten"), IsOk());
  EXPECT_THAT(Of(0).Write({7, 9}, {2, 70}, "nine"), IsOk());
  EXPECT_THAT(Of(1).Write({7, 9}, {5, 70}, "other part"), IsOk());
  EXPECT_THAT(Of(0, 2, "v").Write({7, 4}, {1, 70}, "other table"), IsOk());
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{7, 9}, PartState{7, 10}));
  const PartFiles::Content content = Of(0).Read({7, 10}).value();
  EXPECT_EQ(content.numbers, (PartFiles::Numbers{3, 70}));
  EXPECT_EQ(content.snapshot, "ten");
  EXPECT_EQ(Of(1).Read({7, 9})->snapshot, "other part");
  EXPECT_THAT(Of(1).Read({7, 10}), StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_)));
}

TEST_F(PartFilesTest, TheNewestOfALineStay) {
  for (const uint64_t state : {10, 20, 30, 40}) {
    EXPECT_THAT(Of(0).Write({kLine, state}, {state, 1}, "x"), IsOk());
  }
  EXPECT_THAT(Of(0).Write({kOther, 10}, {1, 1}, "x"), IsOk());
  EXPECT_THAT(Of(1).Write({kLine, 10}, {1, 1}, "x"), IsOk());
  Of(0).KeepNewest(kLine, 2);
  EXPECT_THAT(Of(0).List().value(),
              ElementsAre(PartState{kLine, 30}, PartState{kLine, 40}, PartState{kOther, 10}));
  EXPECT_THAT(Of(1).List().value(), ElementsAre(PartState{kLine, 10}));
  EXPECT_THAT(Of(0).RemoveAll(), IsOk());
  EXPECT_THAT(Of(0).List().value(), IsEmpty());
  EXPECT_THAT(Of(1).List().value(), ElementsAre(PartState{kLine, 10}));
}

TEST_F(PartFilesTest, AnEarlierLineStaysUntilTheNextOneHasAllItsStates) {
  for (const uint64_t state : {10, 20}) {
    EXPECT_THAT(Of(0).Write({kLine, state}, {state, 1}, "x"), IsOk());
  }
  EXPECT_THAT(Of(0).Write({kLine + 1, 20}, {2, 1}, "x"), IsOk());
  Of(0).KeepNewest(kLine + 1, 2);
  EXPECT_EQ(Of(0).List()->size(), 3u);
  EXPECT_THAT(Of(0).Write({kLine + 1, 30}, {3, 1}, "x"), IsOk());
  Of(0).KeepNewest(kLine + 1, 2);
  EXPECT_THAT(Of(0).List().value(),
              ElementsAre(PartState{kLine + 1, 20}, PartState{kLine + 1, 30}));
}

TEST_F(PartFilesTest, WhatIsAheadOrOfOtherLinesGoesWhenAllBegin) {
  for (const uint64_t state : {10, 20, 30}) {
    EXPECT_THAT(Of(0).Write({kLine, state}, {state, 1}, "x"), IsOk());
  }
  EXPECT_THAT(Of(0).Write({kLine + 1, 10}, {1, 1}, "x"), IsOk());
  EXPECT_THAT(Of(0).Write({kOther, 0}, {1, 1}, "x"), IsOk());
  Of(0).RemoveOthers({kLine, 20});
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{kLine, 10}, PartState{kLine, 20}));
}

// In a directory of all hosts the life before can go on, when another has its part.
TEST_F(PartFilesTest, TwoLivesWriteUnderNamesOfTheirOwn) {
  const std::string path = Of(0).PathOf({kLine, 50});
  // What life 0 writes under its name cannot be that of another.
  std::filesystem::create_directory(path + ".0.writing");
  EXPECT_THAT(Of(0).Write({kLine, 50}, {5, 1}, "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Of(0, 2, "w", 1).Write({kLine, 50}, {5, 1}, "x"), IsOk());
  std::filesystem::remove(path + ".0.writing");
  std::ofstream(path + ".0.writing") << "x";
  std::ofstream(path + ".writing") << "x";
  Of(0).KeepNewest(kLine, 1);
  Of(0).RemoveOthers({kLine, 50});
  EXPECT_TRUE(std::filesystem::exists(path + ".0.writing"));
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{kLine, 50}));
  Of(0).RemoveUnfinished();
  EXPECT_FALSE(std::filesystem::exists(path + ".0.writing"));
  EXPECT_FALSE(std::filesystem::exists(path + ".writing"));
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{kLine, 50}));
}

TEST_F(PartFilesTest, AFileThatStaysIsAnError) {
  std::filesystem::create_directories(Of(0).PathOf({kLine, 10}) + "/not-empty");
  EXPECT_THAT(Of(0).Write({kLine, 20}, {2, 1}, "x"), IsOk());
  EXPECT_FALSE(Of(0).RemoveAll().ok());
  EXPECT_THAT(std::string(Of(0).RemoveAll().message()), HasSubstr(Of(0).PathOf({kLine, 10})));
  EXPECT_FALSE(std::filesystem::exists(Of(0).PathOf({kLine, 20})));
}

TEST_F(PartFilesTest, AnyByteThatIsAnotherAndAnyEndAreNoticed) {
  const std::string path = Of(0).PathOf({7, 10});
  EXPECT_THAT(Of(0).Write({7, 10}, {3, 70}, "a snapshot"), IsOk());
  const auto size = static_cast<size_t>(std::filesystem::file_size(path));
  for (size_t at = 0; at < size; ++at) {
    std::fstream file(path);
    file.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(before ^ 1));
    file.close();
    EXPECT_THAT(Of(0).Read({7, 10}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path))) << at;
    std::fstream again(path);
    again.seekp(static_cast<std::streamoff>(at));
    again.put(before);
  }
  EXPECT_THAT(Of(0).Read({7, 10}), IsOk());
  while (std::filesystem::file_size(path) > 0) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    EXPECT_THAT(Of(0).Read({7, 10}), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST_F(PartFilesTest, AFileUnderTheNameOfAnotherIsDamaged) {
  EXPECT_THAT(Of(0).Write({7, 10}, {3, 70}, "ten"), IsOk());
  std::filesystem::rename(Of(0).PathOf({7, 10}), Of(0).PathOf({7, 20}));
  EXPECT_THAT(Of(0).Read({7, 20}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PartFilesTest, FilesOfAJobWithOtherServersAreRefused) {
  EXPECT_THAT(Of(0, 3).Write({7, 10}, {3, 70}, "ten"), IsOk());
  EXPECT_THAT(Of(0, 2).List(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("with 3 servers, and this one has 2")));
  EXPECT_THAT(Of(1, 2).List(), IsOk());
}

TEST_F(PartFilesTest, AnErrorNamesTheFile) {
  const PartFiles files(folder_ + "/absent",
                        {.job = "train", .role = "server", .table = "w", .part = 0, .parts = 1});
  EXPECT_THAT(files.List(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(files.Write({7, 1}, {1, 70}, "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/absent/train_w_")));
}

}  // namespace
}  // namespace phalanx::ps::internal
