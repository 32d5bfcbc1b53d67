#include "src/common/io/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(PrivateFolderTest, CreatesAFolderOnceThatIsClosedToOthers) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/private");
  PHALANX_ASSERT_OK(MakePrivateFolder(folder));
  PHALANX_ASSERT_OK(MakePrivateFolder(folder));
  struct stat info;
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  EXPECT_THAT(MakePrivateFolder(folder),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("chmod 700")));
}

TEST(PrivateFolderTest, ALinkIsNotAPrivateFolder) {
  const std::string link = absl::StrCat(::testing::TempDir(), "/link");
  ASSERT_EQ(symlink("/tmp", link.c_str()), 0);
  EXPECT_THAT(MakePrivateFolder(link), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace phalanx
