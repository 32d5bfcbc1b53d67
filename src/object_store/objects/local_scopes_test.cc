#include "src/object_store/objects/local_scopes.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::HasCode;

const Generation kGeneration{{1, 1}, 1};

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

TEST(LocalScopes, EndEveryNumberUpToTheOneThatIsNamed) {
  LocalScopes scopes(10);
  scopes.End({"job", 7}, Instant());
  scopes.End({"job", 5}, Instant());
  EXPECT_TRUE(scopes.HasEnded({"job", 7}, Instant()));
  EXPECT_FALSE(scopes.HasEnded({"job", 8}, Instant()));
  EXPECT_FALSE(scopes.HasEnded(Scope(), Instant()));
  EXPECT_THAT(scopes.Check({"job", 0}, Instant()), HasCode(absl::StatusCode::kNotFound));
  PHALANX_EXPECT_OK(scopes.Check({"job", 8}, Instant()));
  EXPECT_EQ(scopes.Ended(Instant()), (std::vector<Scope>{{"job", 7}}));
}

TEST(LocalScopes, ForgetWhatEndedLongAgo) {
  LocalScopes scopes(10);
  scopes.End({"job", 7}, Instant());
  const Instant later = Instant() + kEndedScopeAge;
  EXPECT_TRUE(scopes.HasEnded({"job", 7}, later - absl::Nanoseconds(1)));
  EXPECT_FALSE(scopes.HasEnded({"job", 7}, later));
  PHALANX_EXPECT_OK(scopes.Check({"job", 7}, later));
  // A smaller number that ends later does not bring the greater one back.
  scopes.End({"job", 5}, later);
  EXPECT_EQ(scopes.Ended(later), (std::vector<Scope>{{"job", 5}}));
  EXPECT_EQ(scopes.Ended(later + kEndedScopeAge), std::vector<Scope>());
}

TEST(LocalScopes, ForgetTheOldestBeyondTheLimit) {
  LocalScopes scopes(2);
  for (int i = 0; i < 3; ++i) {
    scopes.End({std::to_string(i), 1}, Instant() + absl::Seconds(i));
  }
  const Instant now = Instant() + absl::Seconds(3);
  EXPECT_FALSE(scopes.HasEnded({"0", 1}, now));
  EXPECT_TRUE(scopes.HasEnded({"1", 1}, now));
  EXPECT_TRUE(scopes.HasEnded({"2", 1}, now));
}

TEST(LocalScopes, ListTheCopiesOfAScopeAndOfSmallerNumbers) {
  LocalScopes scopes(2);
  for (int i = 0; i < 10; ++i) scopes.Add({"job", static_cast<uint64_t>(i)}, Id(i), kGeneration);
  scopes.Add({"other", 0}, Id(11), kGeneration);
  scopes.Add(Scope(), Id(12), kGeneration);
  EXPECT_EQ(scopes.CopiesIn({"job", 4}).size(), 5u);
  EXPECT_EQ(scopes.CopiesIn({"none", 4}).size(), 0u);
  for (int i = 0; i < 10; ++i) {
    scopes.Remove({"job", static_cast<uint64_t>(i)}, Id(i), kGeneration);
  }
  scopes.Remove({"job", 0}, Id(0), kGeneration);
  EXPECT_EQ(scopes.copies(), 1u);
}

}  // namespace
}  // namespace phalanx::object_store
