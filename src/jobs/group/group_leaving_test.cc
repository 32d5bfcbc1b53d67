#include "src/jobs/group/group_leaving.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/time/instant.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {
namespace {

using Answers = std::vector<std::pair<int, uint64_t>>;
using Questions = std::pair<std::vector<int>, uint64_t>;

// This node is 0 of three.
GroupList ThreeNodes() {
  GroupView view;
  view.world = 3;
  for (int rank = 0; rank < 3; ++rank) {
    Member& member = view.members.emplace_back();
    member.rank = rank;
    member.state = MemberState::kLive;
    member.node = {static_cast<uint64_t>(rank + 1), 1};
  }
  return MakeGroupList(view, {1, 1});
}

const NodeKey kSecond = {2, 1};
const NodeKey kThird = {3, 1};

TEST(GroupLeavingTest, AsksEachNodeOnceAndWaitsForAll) {
  const GroupList list = ThreeNodes();
  GroupLeaving leaving;
  leaving.Begin(5, /*waits=*/false, Instant());
  EXPECT_EQ(leaving.TakeQuestions(list), Questions({1, 2}, 5));
  EXPECT_EQ(leaving.TakeQuestions(list), Questions({}, 5));
  leaving.OnEnded(kSecond, 5);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 0u);
  leaving.OnEnded(kThird, 4);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 0u) << "an answer about an earlier call";
  leaving.OnEnded(kThird, 6);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 1u);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 0u);
}

TEST(GroupLeavingTest, ASettledCallNeedsNoAnswer) {
  GroupLeaving leaving;
  leaving.Begin(5, /*waits=*/true, Instant());
  EXPECT_EQ(leaving.TakeOver(ThreeNodes(), 5, 5), 1u);
}

TEST(GroupLeavingTest, AsksAgainWhenALinkIsLost) {
  const GroupList list = ThreeNodes();
  GroupLeaving leaving;
  leaving.Begin(5, /*waits=*/false, Instant());
  leaving.TakeQuestions(list);
  leaving.Forget(kThird);
  EXPECT_EQ(leaving.TakeQuestions(list), Questions({2}, 5));
}

TEST(GroupLeavingTest, EachMemberHasItsOwnPatience) {
  const GroupList list = ThreeNodes();
  GroupLeaving leaving;
  leaving.Begin(5, /*waits=*/false, Instant());
  const Instant later = Instant() + kLeavePatience / 2;
  leaving.Begin(5, /*waits=*/false, later);
  EXPECT_EQ(leaving.until(), Instant() + kLeavePatience);
  EXPECT_EQ(leaving.TakeLate(Instant() + kLeavePatience), 1u);
  EXPECT_EQ(leaving.until(), later + kLeavePatience);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 0u);
  EXPECT_EQ(leaving.TakeLate(later + kLeavePatience), 1u);
  EXPECT_TRUE(leaving.idle());
}

TEST(GroupLeavingTest, AnAnswerThatComesLateServesTheNextMemberThatLeaves) {
  const GroupList list = ThreeNodes();
  GroupLeaving leaving;
  leaving.Begin(5, /*waits=*/false, Instant());
  leaving.TakeQuestions(list);
  leaving.OnEnded(kSecond, 5);
  EXPECT_EQ(leaving.TakeLate(Instant() + kLeavePatience), 1u);
  leaving.OnEnded(kThird, 5);
  leaving.Begin(5, /*waits=*/false, Instant() + kLeavePatience);
  EXPECT_EQ(leaving.TakeOver(list, 5, 4), 1u);
}

TEST(GroupLeavingTest, AnswersWhenTheCallHasEnded) {
  const GroupList list = ThreeNodes();
  GroupLeaving leaving;
  leaving.OnAsked(kSecond, 5);
  leaving.OnAsked(kThird, 4);
  EXPECT_EQ(leaving.TakeAnswers(list, 4), Answers({{2, 4}}));
  EXPECT_FALSE(leaving.idle());
  EXPECT_EQ(leaving.TakeAnswers(list, 5), Answers({{1, 5}}));
  EXPECT_TRUE(leaving.idle());
}

}  // namespace
}  // namespace phalanx::jobs
