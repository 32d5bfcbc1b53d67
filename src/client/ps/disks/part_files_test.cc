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

  PartFiles Of(int part, int parts = 2, const std::string& table = "w") const {
    return PartFiles(
        folder_, {.job = "train", .role = "server", .table = table, .part = part, .parts = parts});
  }
  const std::string folder_;
};

TEST_F(PartFilesTest, EachPartOfEachTableHasItsOwnFiles) {
  EXPECT_THAT(Of(0).Write({7, 10}, 3, "ten"), IsOk());
  EXPECT_THAT(Of(0).Write({7, 9}, 2, "nine"), IsOk());
  EXPECT_THAT(Of(1).Write({7, 9}, 5, "other part"), IsOk());
  EXPECT_THAT(Of(0, 2, "v").Write({7, 4}, 1, "other table"), IsOk());
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{7, 9}, PartState{7, 10}));
  const PartFiles::Content content = Of(0).Read({7, 10}).value();
  EXPECT_EQ(content.number, 3u);
  EXPECT_EQ(content.snapshot, "ten");
  EXPECT_EQ(Of(1).Read({7, 9})->snapshot, "other part");
  EXPECT_THAT(Of(1).Read({7, 10}), StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_)));
}

TEST_F(PartFilesTest, TheNewestOfALineStay) {
  for (const uint64_t state : {10, 20, 30, 40}) {
    EXPECT_THAT(Of(0).Write({7, state}, state, "x"), IsOk());
  }
  EXPECT_THAT(Of(0).Write({8, 10}, 1, "x"), IsOk());
  EXPECT_THAT(Of(1).Write({7, 10}, 1, "x"), IsOk());
  std::ofstream(Of(0).PathOf({7, 50}) + ".writing") << "x";
  Of(0).KeepNewest(7, 2, /*last=*/30);
  EXPECT_THAT(Of(0).List().value(), ElementsAre(PartState{7, 20}, PartState{7, 30}));
  EXPECT_THAT(Of(1).List().value(), ElementsAre(PartState{7, 10}));
  EXPECT_FALSE(std::filesystem::exists(Of(0).PathOf({7, 50}) + ".writing"));
  Of(0).RemoveAll();
  EXPECT_THAT(Of(0).List().value(), IsEmpty());
  EXPECT_THAT(Of(1).List().value(), ElementsAre(PartState{7, 10}));
}

TEST_F(PartFilesTest, AnyByteThatIsAnotherAndAnyEndAreNoticed) {
  const std::string path = Of(0).PathOf({7, 10});
  EXPECT_THAT(Of(0).Write({7, 10}, 3, "a snapshot"), IsOk());
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
  EXPECT_THAT(Of(0).Write({7, 10}, 3, "ten"), IsOk());
  std::filesystem::rename(Of(0).PathOf({7, 10}), Of(0).PathOf({7, 20}));
  EXPECT_THAT(Of(0).Read({7, 20}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(PartFilesTest, FilesOfAJobWithOtherServersAreRefused) {
  EXPECT_THAT(Of(0, 3).Write({7, 10}, 3, "ten"), IsOk());
  EXPECT_THAT(Of(0, 2).List(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("with 3 servers, and this one has 2")));
  EXPECT_THAT(Of(1, 2).List(), IsOk());
}

TEST_F(PartFilesTest, AnErrorNamesTheFile) {
  const PartFiles files(folder_ + "/absent",
                        {.job = "train", .role = "server", .table = "w", .part = 0, .parts = 1});
  EXPECT_THAT(files.List(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(files.Write({7, 1}, 1, "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/absent/train_w_")));
}

}  // namespace
}  // namespace phalanx::ps::internal
