#include "src/client/ps/spares/spare.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::ps::internal {
namespace {

std::vector<Member> Spares(const std::vector<MemberState>& states) {
  std::vector<Member> spares;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    Member& spare = spares.emplace_back();
    spare.rank = static_cast<int>(rank);
    spare.state = states[rank];
  }
  return spares;
}

constexpr MemberState kLive = MemberState::kLive;

TEST(Spare, EachTakesAnotherPart) {
  const std::vector<Member> spares = Spares({kLive, kLive, kLive});
  EXPECT_EQ(PartOf(0, spares, 0), std::nullopt);
  EXPECT_EQ(PartOf(0, spares, 1), 0u);
  EXPECT_EQ(PartOf(1, spares, 1), std::nullopt);
  EXPECT_EQ(PartOf(1, spares, 2), 1u);
  EXPECT_EQ(PartOf(2, spares, 3), 2u);
}

TEST(Spare, OnesThatHaveLeftOrDiedOrAreAbsentDoNotCount) {
  const std::vector<Member> spares =
      Spares({MemberState::kLeft, MemberState::kDied, MemberState::kAbsent, kLive, kLive});
  EXPECT_EQ(PartOf(3, spares, 2), 0u);
  EXPECT_EQ(PartOf(4, spares, 2), 1u);
}

// A server that dies later moves the place of none that has died before.
TEST(Spare, ServersAreTakenInTheOrderInWhichTheyHaveDied) {
  std::vector<Member> servers = Spares({MemberState::kDied, MemberState::kLive, MemberState::kDied,
                                        MemberState::kLeft, MemberState::kAbsent});
  servers[0].change = 9;
  servers[1].change = 3;
  servers[2].change = 7;
  servers[3].change = 8;
  const std::vector<Member> dead = DeadServers(servers);
  ASSERT_EQ(dead.size(), 3u);
  EXPECT_EQ(dead[0].rank, 2);
  EXPECT_EQ(dead[1].rank, 0);
  EXPECT_EQ(dead[2].rank, 4);
}

}  // namespace
}  // namespace phalanx::ps::internal
