#include "src/directory/reductions/results/ended_reductions.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/ids/version.h"

namespace phalanx::directory {
namespace {

ObjectId Target(int i) { return ObjectId::FromName("target", std::to_string(i)); }

ReductionId NumberOf(uint64_t count) { return MakeReductionId(7, 7, count); }

EndedReduction OfSources(int count) {
  EndedReduction ended;
  for (int i = 0; i < count; ++i) {
    ended.sources.push_back(ObjectId::FromName("source", std::to_string(i)));
  }
  return ended;
}

TEST(EndedReductions, AreFoundByTargetAndNumber) {
  EndedReductions known(10, 10);
  EndedReduction failed;
  failed.status = absl::DataLossError("gone");
  known.Remember(Target(1), NumberOf(1), failed);
  known.Remember(Target(1), NumberOf(2), EndedReduction());
  known.Remember(Target(2), NumberOf(3), EndedReduction());
  EXPECT_EQ(known.Find(Target(1), NumberOf(1))->status, failed.status);
  EXPECT_TRUE(known.Find(Target(1), NumberOf(2))->status.ok());
  EXPECT_EQ(known.Find(Target(1), NumberOf(3)), nullptr);
  const auto of_first = known.Of(Target(1));
  ASSERT_EQ(of_first.size(), 2u);
  EXPECT_EQ(of_first[0].first, NumberOf(1));
  EXPECT_EQ(of_first[1].first, NumberOf(2));
  EXPECT_TRUE(known.Of(Target(3)).empty());
}

TEST(EndedReductions, ForgetTheOldestWhenThereAreTooMany) {
  EndedReductions known(3, 100);
  for (uint64_t i = 1; i <= 5; ++i)
    known.Remember(Target(static_cast<int>(9 - i)), NumberOf(i), {});
  for (uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(known.Find(Target(static_cast<int>(9 - i)), NumberOf(i)) != nullptr, i > 2) << i;
  }
  EXPECT_TRUE(known.CheckInvariants().ok());
}

TEST(EndedReductions, ForgetTheOldestWhenTheyHaveTooManySources) {
  EndedReductions known(100, 10);
  for (uint64_t i = 1; i <= 4; ++i) known.Remember(Target(1), NumberOf(i), OfSources(4));
  EXPECT_EQ(known.Of(Target(1)).size(), 2u);
  known.Remember(Target(2), NumberOf(5), OfSources(11));
  EXPECT_TRUE(known.Of(Target(1)).empty());
  EXPECT_TRUE(known.Of(Target(2)).empty()) << "one alone may be too large";
  EXPECT_TRUE(known.CheckInvariants().ok());
}

TEST(EndedReductions, CountTheirRequesters) {
  EndedReductions known(100, 10);
  for (uint64_t i = 1; i <= 3; ++i) {
    EndedReduction ended = OfSources(1);
    for (uint64_t request = 1; request <= 3; ++request)
      ended.asked.insert({NodeKey{1, 1}, request});
    known.Remember(Target(1), NumberOf(i), ended);
  }
  EXPECT_EQ(known.Of(Target(1)).size(), 2u);
  EXPECT_TRUE(known.CheckInvariants().ok());
}

TEST(EndedReductions, RememberTheLastOutcomeOfOne) {
  EndedReductions known(2, 10);
  known.Remember(Target(1), NumberOf(1), OfSources(4));
  known.Remember(Target(1), NumberOf(1), OfSources(2));
  EXPECT_EQ(known.Find(Target(1), NumberOf(1))->sources.size(), 2u);
  EXPECT_TRUE(known.CheckInvariants().ok());
}

}  // namespace
}  // namespace phalanx::directory
