#include "src/directory/objects/hold_sets.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr NodeKey kA{1, 1};
constexpr NodeKey kB{2, 1};

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }
Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

class HoldSetsTest : public ::testing::Test {
 protected:
  HoldSetsTest() {
    sets_.SessionBegins(kA);
    sets_.SessionBegins(kB);
  }
  ~HoldSetsTest() override { EXPECT_THAT(sets_.CheckInvariants(), IsOk()); }

  HoldSets sets_{3};
};

TEST_F(HoldSetsTest, AnObjectThatTheLastNodeReleasesIsUnheld) {
  sets_.Hold(kA, Id(1));
  sets_.Hold(kA, Id(1));
  sets_.Hold(kB, Id(1));
  EXPECT_EQ(sets_.Holders(Id(1)), 2u);
  sets_.Unhold(kA, Id(1));
  EXPECT_TRUE(sets_.Held(Id(1)));
  EXPECT_FALSE(sets_.HeldBy(kA, Id(1)));
  EXPECT_THAT(sets_.TakeUnheld(), IsEmpty());
  sets_.Unhold(kA, Id(1));
  sets_.Unhold(kB, Id(1));
  EXPECT_THAT(sets_.TakeUnheld(), ElementsAre(Id(1)));
  EXPECT_EQ(sets_.holds(), 0u);
}

TEST_F(HoldSetsTest, ANodeThatIsGoneHoldsForAWhile) {
  sets_.Hold(kA, Id(1));
  sets_.SessionEnds(kA, At(2));
  EXPECT_EQ(sets_.NextDeadline(), At(2));
  sets_.Expire(At(1));
  EXPECT_TRUE(sets_.HeldBy(kA, Id(1)));
  sets_.Expire(At(2));
  EXPECT_THAT(sets_.TakeUnheld(), ElementsAre(Id(1)));
  EXPECT_TRUE(sets_.NextDeadline().infinite());
}

TEST_F(HoldSetsTest, AReturningNodeHoldsTheObjectsThatItRegisters) {
  sets_.Hold(kA, Id(1));
  sets_.Hold(kA, Id(2));
  sets_.SessionEnds(kA, At(2));
  sets_.SessionBegins(kA);
  sets_.Expire(At(10));
  sets_.Hold(kA, Id(2));
  sets_.Hold(kA, Id(3));
  EXPECT_TRUE(sets_.Held(Id(1))) << "it has not told everything";
  sets_.Registered(kA);
  EXPECT_THAT(sets_.TakeUnheld(), ElementsAre(Id(1)));
  EXPECT_TRUE(sets_.HeldBy(kA, Id(2)));
  EXPECT_TRUE(sets_.HeldBy(kA, Id(3)));
}

TEST_F(HoldSetsTest, ASessionThatEndsBeforeItRegisteredLosesNoHoldAtOnce) {
  sets_.Hold(kA, Id(1));
  sets_.SessionBegins(kA);
  sets_.Hold(kA, Id(2));
  sets_.SessionBegins(kA);
  sets_.SessionEnds(kA, At(2));
  EXPECT_TRUE(sets_.Held(Id(1)));
  EXPECT_TRUE(sets_.Held(Id(2)));
  sets_.Postpone(At(5));
  sets_.Expire(At(4));
  EXPECT_TRUE(sets_.Held(Id(1))) << "the shard was stopped meanwhile";
  sets_.Expire(At(5));
  EXPECT_EQ(sets_.TakeUnheld().size(), 2u);
}

TEST_F(HoldSetsTest, ANodeOfWhichNotAllIsRecordedHoldsEverything) {
  for (int i = 1; i <= 3; ++i) sets_.Hold(kA, Id(i));
  EXPECT_TRUE(sets_.complete());
  sets_.Hold(kB, Id(4));
  EXPECT_FALSE(sets_.complete());
  sets_.Unhold(kA, Id(1));
  EXPECT_FALSE(sets_.complete()) << "nobody knows what else B holds";
  sets_.SessionBegins(kB);
  EXPECT_FALSE(sets_.complete());
  sets_.Hold(kB, Id(4));
  sets_.Registered(kB);
  EXPECT_TRUE(sets_.complete());
  EXPECT_TRUE(sets_.HeldBy(kB, Id(4)));
}

}  // namespace
}  // namespace phalanx::directory
