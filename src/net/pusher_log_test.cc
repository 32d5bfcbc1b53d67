// What the log says of peers that are turned away. A test of its own, because the line is limited
// to one a second in a process.
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/log.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/testing/sim_plane.h"

namespace phalanx::net {
namespace {

using testing::EmptyBuffer;
using ::testing::HasSubstr;
using testing::Id;
using testing::SimPlane;
using testing::SimPlanes;

TEST(PusherLogTest, APeerThatIsTurnedAwayIsNamedWithTheCauseOnceASecond) {
  const std::string path = ::testing::TempDir() + "/turned_away.log";
  PHALANX_ASSERT_OK(SetLogFile(path));
  SimPlanes world;
  DataPlaneOptions elsewhere;
  elsewhere.handshake.cluster_id = "elsewhere";
  SimPlane& a = world.Add("a");
  SimPlane& b = world.Add("b", elsewhere);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(world.RunUntilDone(b.Pull(a, Id(1), EmptyBuffer(10))));
    world.RunFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(a.plane().stats().handshakes_refused, 3u);
  PHALANX_ASSERT_OK(SetLogFile(""));
  std::ostringstream log;
  log << std::ifstream(path).rdbuf();
  const std::string line = "turned a peer away";
  ASSERT_THAT(log.str(), HasSubstr(line));
  EXPECT_THAT(log.str(), HasSubstr("peer="));
  EXPECT_THAT(log.str(), HasSubstr("elsewhere"));
  EXPECT_EQ(log.str().find(line), log.str().rfind(line)) << log.str();
}

}  // namespace
}  // namespace phalanx::net
