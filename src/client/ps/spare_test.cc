#include "src/client/ps/spare.h"

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
  EXPECT_EQ(PartOf(0, spares, {}), std::nullopt);
  EXPECT_EQ(PartOf(0, spares, {4}), 4);
  EXPECT_EQ(PartOf(1, spares, {4}), std::nullopt);
  EXPECT_EQ(PartOf(1, spares, {2, 4}), 4);
  EXPECT_EQ(PartOf(2, spares, {1, 2, 4}), 4);
}

TEST(Spare, OnesThatHaveLeftOrDiedOrAreAbsentDoNotCount) {
  const std::vector<Member> spares =
      Spares({MemberState::kLeft, MemberState::kDied, MemberState::kAbsent, kLive, kLive});
  EXPECT_EQ(PartOf(3, spares, {1, 2}), 1);
  EXPECT_EQ(PartOf(4, spares, {1, 2}), 2);
}

}  // namespace
}  // namespace phalanx::ps::internal
