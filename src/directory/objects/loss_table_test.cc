#include "src/directory/objects/loss_table.h"

#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;

const Generation kFirst{NodeKey{1, 1}, 1};
const Generation kSecond{NodeKey{1, 1}, 2};

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_lost = 2;
  options.max_lost_name_bytes = 2 * sizeof(std::string) + 20;
  return options;
}

class LossTableTest : public ::testing::Test {
 protected:
  ~LossTableTest() override { EXPECT_THAT(losses_.CheckInvariants(), IsOk()); }

  static ObjectId Id(const char* name) { return ObjectId::FromName("test", name); }
  static PlacementPolicy PolicyOf(const std::string& name) { return PlacementPolicy{1, {name}}; }

  CoreContext context_{Options(), Instant(), Random(1)};
  LossTable losses_{context_};
};

TEST_F(LossTableTest, ALossNamesTheLastHolderAndItsGeneration) {
  losses_.Add(Id("x"), kFirst, "node-a");
  ASSERT_NE(losses_.Find(Id("x")), nullptr);
  EXPECT_NE(losses_.Find(Id("x"))->reason.find("node-a"), std::string::npos);
  EXPECT_TRUE(losses_.Contains(Id("x"), kFirst));
  EXPECT_FALSE(losses_.Contains(Id("x"), kSecond));
  EXPECT_EQ(context_.counters.lost, 1u);
}

TEST_F(LossTableTest, AKnownLossIsNotCountedAgain) {
  losses_.Add(Id("x"), kFirst, "node-a");
  losses_.Add(Id("x"), kSecond, "node-b");
  EXPECT_TRUE(losses_.Contains(Id("x"), kFirst));
  EXPECT_EQ(context_.counters.lost, 1u);
}

TEST_F(LossTableTest, TheOldestLossIsForgottenBeyondTheLimit) {
  for (const char* name : {"x", "y", "z"}) losses_.Add(Id(name), kFirst, "node-a");
  EXPECT_EQ(losses_.Find(Id("x")), nullptr);
  EXPECT_NE(losses_.Find(Id("y")), nullptr);
  EXPECT_NE(losses_.Find(Id("z")), nullptr);
}

TEST_F(LossTableTest, APolicyBeyondTheLimitOfNameBytesIsNotKept) {
  losses_.Add(Id("x"), kFirst, "node-a");
  losses_.Add(Id("y"), kFirst, "node-a");
  losses_.SetPolicy(Id("x"), PolicyOf(std::string(10, 'p')));
  EXPECT_TRUE(losses_.Find(Id("x"))->policy.sticky());
  losses_.SetPolicy(Id("y"), PolicyOf(std::string(30, 'q')));
  EXPECT_FALSE(losses_.Find(Id("y"))->policy.sticky());
  // The bytes of an erased loss are free again.
  losses_.Erase(Id("x"));
  losses_.SetPolicy(Id("y"), PolicyOf(std::string(30, 'q')));
  EXPECT_TRUE(losses_.Find(Id("y"))->policy.sticky());
}

TEST_F(LossTableTest, APolicyOfAnObjectThatIsNotLostIsIgnored) {
  losses_.SetPolicy(Id("x"), PolicyOf("p"));
  EXPECT_EQ(losses_.Find(Id("x")), nullptr);
}

}  // namespace
}  // namespace phalanx::directory
