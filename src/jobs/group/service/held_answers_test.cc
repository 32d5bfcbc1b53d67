// Answers that wait for a sign of the directory, and until when they do.
#include "src/jobs/group/service/held_answers.h"

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs {
namespace {

constexpr NodeKey kSelf{7, 1};

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

GroupDone Done(GroupCallId id) { return {.id = id, .number = id}; }

TEST(HeldAnswers, AreGivenInOrderOnceConfirmed) {
  HeldAnswers held(kSelf, "train/worker");
  for (GroupCallId id = 1; id <= 3; ++id) {
    ASSERT_THAT(held.Add(Done(id), 0, 0, At(10)), phalanx::testing::IsOk());
  }
  EXPECT_TRUE(held.Take(/*confirmed=*/false, /*vouched=*/0, At(9)).empty());
  const std::vector<GroupDone> given = held.Take(/*confirmed=*/true, /*vouched=*/0, At(9));
  ASSERT_EQ(given.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(given[i].id, i + 1);
    EXPECT_THAT(given[i].status, phalanx::testing::IsOk());
  }
  EXPECT_TRUE(held.empty());
}

TEST(HeldAnswers, OfALifeThatHasEndedAreAborted) {
  HeldAnswers held(kSelf, "train/worker");
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_THAT(held.Add(Done(1 + static_cast<GroupCallId>(rank)), rank, 0, At(10)),
                phalanx::testing::IsOk());
  }
  Member died = LiveMember(1, kSelf);
  died.state = MemberState::kDied;
  held.OnView(ViewOf(
      {LiveMember(0, kSelf), died, LiveMember(2, kSelf, /*life=*/1), LiveMember(3, {8, 1})}));
  const std::vector<GroupDone> given = held.Take(/*confirmed=*/false, /*vouched=*/0, At(1));
  ASSERT_EQ(given.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(given[i].id, i + 2);
    EXPECT_TRUE(absl::IsAborted(given[i].status)) << given[i].status;
  }
  held.EndMember(0);
  EXPECT_TRUE(absl::IsAborted(held.Take(/*confirmed=*/true, /*vouched=*/0, At(1)).at(0).status));
}

TEST(HeldAnswers, AreErrorsAtTheirDeadlines) {
  HeldAnswers held(kSelf, "train/worker");
  GroupDone failed = Done(2);
  failed.status = absl::UnavailableError("rank 3 has ended");
  ASSERT_THAT(held.Add(Done(1), 5, 0, At(10)), phalanx::testing::IsOk());
  ASSERT_THAT(held.Add(failed, 5, 0, At(10)), phalanx::testing::IsOk());
  ASSERT_THAT(held.Add(Done(3), 5, 0, At(11)), phalanx::testing::IsOk());
  EXPECT_EQ(held.NextTick(), At(10));
  const std::vector<GroupDone> given = held.Take(/*confirmed=*/false, /*vouched=*/0, At(10));
  ASSERT_EQ(given.size(), 2u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(given[0].status));
  EXPECT_NE(given[0].status.message().find("call 1 of train/worker: the node of rank 5"),
            std::string::npos)
      << given[0].status;
  EXPECT_EQ(given[1].status, failed.status);
  EXPECT_EQ(held.NextTick(), At(11));
}

TEST(HeldAnswers, AreGivenUpToTheCallThatAllNodesHaveEnded) {
  HeldAnswers held(kSelf, "train/worker");
  GroupDone failed = Done(2);
  failed.status = absl::UnavailableError("rank 3 has ended");
  ASSERT_THAT(held.Add({.id = 9}, 0, 0, At(10)), phalanx::testing::IsOk());
  ASSERT_THAT(held.Add(failed, 0, 0, At(10)), phalanx::testing::IsOk());
  ASSERT_THAT(held.Add(Done(3), 0, 0, At(10)), phalanx::testing::IsOk());
  EXPECT_EQ(held.last(), 3u);
  EXPECT_TRUE(held.Take(/*confirmed=*/false, /*vouched=*/1, At(1)).empty());
  const std::vector<GroupDone> given = held.Take(/*confirmed=*/false, /*vouched=*/2, At(1));
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0].status, failed.status);
  EXPECT_EQ(held.Take(/*confirmed=*/false, /*vouched=*/7, At(1)).at(0).id, 3u);
  EXPECT_EQ(held.last(), 0u);
  // One without a number waits for the shard.
  EXPECT_EQ(held.Take(/*confirmed=*/true, /*vouched=*/7, At(1)).at(0).id, 9u);
  EXPECT_TRUE(held.empty());
}

TEST(HeldAnswers, AreLimitedForEachMember) {
  HeldAnswers held(kSelf, "train/worker");
  for (GroupCallId id = 1; id <= kMaxHeldAnswers; ++id) {
    ASSERT_THAT(held.Add(Done(id), 0, 0, Instant::Infinite()), phalanx::testing::IsOk());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(held.Add(Done(0), 0, 0, Instant::Infinite())));
  EXPECT_THAT(held.Add(Done(0), 1, 0, Instant::Infinite()), phalanx::testing::IsOk());
}

TEST(HeldAnswers, ErrorsThatAreTrueInAnyCaseDoNotWait) {
  EXPECT_FALSE(HeldAnswers::Waits(absl::AbortedError("")));
  EXPECT_FALSE(HeldAnswers::Waits(absl::DeadlineExceededError("")));
  EXPECT_FALSE(HeldAnswers::Waits(absl::CancelledError("")));
  EXPECT_TRUE(HeldAnswers::Waits(absl::UnavailableError("")));
  EXPECT_TRUE(HeldAnswers::Waits(absl::OkStatus()));
}

}  // namespace
}  // namespace phalanx::jobs
