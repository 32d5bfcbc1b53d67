#include "src/node/host/cluster_secret.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using testing::IsOkAndHolds;
using testing::StatusIs;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ClusterSecretTest, TheFileOverridesTheEnvironment) {
  unsetenv("PHALANX_SECRET");
  EXPECT_THAT(ReadClusterSecret(""), IsOkAndHolds(""));
  setenv("PHALANX_SECRET", " from the environment\n", 1);
  EXPECT_THAT(ReadClusterSecret(""), IsOkAndHolds("from the environment"));
  EXPECT_THAT(ReadClusterSecret(WriteFile("secret", "from a file\n")), IsOkAndHolds("from a file"));
  unsetenv("PHALANX_SECRET");
}

TEST(ClusterSecretTest, RejectsFilesWithoutASecret) {
  EXPECT_THAT(ReadClusterSecret("/nonexistent/secret"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadClusterSecret(WriteFile("blank", " \n")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadClusterSecret(WriteFile("long", std::string(kMaxSecretBytes + 1, 'x'))),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadClusterSecret(WriteFile("longest", std::string(kMaxSecretBytes, 'x'))),
              IsOkAndHolds(std::string(kMaxSecretBytes, 'x')));
}

TEST(ClusterSecretTest, NamesWhatIsNoFile) {
  const std::string pipe = ::testing::TempDir() + "/secret_pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::map<std::string, std::string> kinds = {
      {pipe, "is a pipe"}, {::testing::TempDir(), "is a folder"}, {"/dev/zero", "is a device"}};
  for (const auto& [path, kind] : kinds) {
    EXPECT_THAT(ReadClusterSecret(path),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(kind)));
  }
}

TEST(ClusterSecretTest, NewSecretsDiffer) {
  EXPECT_EQ(NewClusterSecret().size(), 64u);
  EXPECT_NE(NewClusterSecret(), NewClusterSecret());
}

}  // namespace
}  // namespace phalanx::runtime
