#include "src/directory/scopes/scope_table.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;

const NodeKey kA{1, 1};
const NodeKey kB{2, 1};

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

DirectoryOptions Options() {
  DirectoryOptions options;
  options.max_ended_scopes = 2;
  options.max_broadcasts = 2;
  return options;
}

class ScopeTableTest : public ::testing::Test {
 protected:
  ~ScopeTableTest() override { PHALANX_EXPECT_OK(scopes_.CheckInvariants()); }

  std::vector<uint64_t> Answered() {
    std::vector<uint64_t> numbers;
    for (const ScopeTable::Requester& requester : scopes_.TakeAnswers()) {
      numbers.push_back(requester.request_id);
    }
    return numbers;
  }

  CoreContext context_{Options(), Instant(), Random(1)};
  ScopeTable scopes_{context_};
};

using Numbers = std::vector<uint64_t>;

TEST_F(ScopeTableTest, EndsEveryNumberUpToTheOneThatIsNamed) {
  EXPECT_FALSE(scopes_.HasEnded({"job", 1}));
  EXPECT_TRUE(scopes_.End({"job", 7}));
  EXPECT_FALSE(scopes_.End({"job", 5}));
  EXPECT_TRUE(scopes_.HasEnded({"job", 0}));
  EXPECT_TRUE(scopes_.HasEnded({"job", 7}));
  EXPECT_FALSE(scopes_.HasEnded({"job", 8}));
  EXPECT_FALSE(scopes_.HasEnded({"jobs", 1}));
  EXPECT_EQ(scopes_.ended(), 1u);
}

TEST_F(ScopeTableTest, NoScopeNeverEnds) {
  scopes_.End({"job", 7});
  EXPECT_FALSE(scopes_.HasEnded(Scope()));
  scopes_.Add(Scope(), Id(1));
  EXPECT_EQ(scopes_.objects(), 0u);
}

TEST_F(ScopeTableTest, TheObjectsOfEndedNumbersAreToBeFreedUntilTheyAreRemoved) {
  for (int i = 0; i < 10; ++i) scopes_.Add({"job", static_cast<uint64_t>(i)}, Id(i));
  scopes_.End({"job", 4});
  EXPECT_EQ(scopes_.FirstEnded(100).size(), 5u);
  EXPECT_EQ(scopes_.FirstEnded(2).size(), 2u);
  for (int i = 0; i < 5; ++i) scopes_.Remove({"job", static_cast<uint64_t>(i)}, Id(i));
  EXPECT_FALSE(scopes_.has_ended_objects());
  EXPECT_EQ(scopes_.objects(), 5u);
}

TEST_F(ScopeTableTest, AnObjectThatComesAfterTheEndIsFreed) {
  scopes_.End({"job", 4});
  scopes_.Add({"job", 4}, Id(1));
  EXPECT_EQ(scopes_.FirstEnded(100), std::vector<ObjectId>{Id(1)});
}

TEST_F(ScopeTableTest, ARecordIsForgottenWhenItsLastEndIsOld) {
  scopes_.End({"job", 4});
  context_.now = context_.now + context_.options.tombstone_age / 2;
  scopes_.End({"job", 3});
  EXPECT_EQ(scopes_.NextDeadline(), context_.now + context_.options.tombstone_age);
  context_.now = context_.now + context_.options.tombstone_age / 2;
  scopes_.Expire();
  EXPECT_TRUE(scopes_.HasEnded({"job", 4}));
  context_.now = context_.now + context_.options.tombstone_age / 2;
  scopes_.Expire();
  EXPECT_FALSE(scopes_.HasEnded({"job", 4}));
  EXPECT_EQ(scopes_.ended(), 0u);
}

TEST_F(ScopeTableTest, BeyondTheLimitTheOldestRecordIsForgotten) {
  scopes_.End({"a", 1});
  context_.now = context_.now + absl::Seconds(1);
  scopes_.End({"b", 1});
  context_.now = context_.now + absl::Seconds(1);
  scopes_.End({"a", 2});
  context_.now = context_.now + absl::Seconds(1);
  scopes_.End({"c", 1});
  EXPECT_TRUE(scopes_.HasEnded({"a", 2}));
  EXPECT_FALSE(scopes_.HasEnded({"b", 1}));
  EXPECT_TRUE(scopes_.HasEnded({"c", 1}));
}

TEST_F(ScopeTableTest, ARequestIsAnsweredWhenEveryNodeHasConfirmed) {
  scopes_.End({"job", 4});
  PHALANX_ASSERT_OK(scopes_.Await({"job", 4}, {kA, 1}, {kA, kB}));
  scopes_.Confirm(kA, {"job", 4});
  // Of a smaller number that ended before.
  scopes_.Confirm(kB, {"job", 3});
  EXPECT_EQ(Answered(), Numbers());
  EXPECT_EQ(scopes_.AwaitedFrom(kB), (std::vector<Scope>{{"job", 4}}));
  EXPECT_EQ(scopes_.AwaitedFrom(kA), std::vector<Scope>());
  scopes_.Confirm(kB, {"job", 9});
  EXPECT_EQ(Answered(), Numbers{1});
  EXPECT_EQ(scopes_.requests(), 0u);
}

TEST_F(ScopeTableTest, ANodeThatIsDownIsNotWaitedForAndASessionEndsItsOwnRequests) {
  PHALANX_ASSERT_OK(scopes_.Await({"job", 4}, {kA, 1}, {kB}));
  PHALANX_ASSERT_OK(scopes_.Await({"job", 4}, {kB, 2}, {kA, kB}));
  scopes_.SessionBegins(kB);
  EXPECT_EQ(Answered(), Numbers());
  EXPECT_EQ(scopes_.requests(), 1u);
  scopes_.NodeDown(kB);
  EXPECT_EQ(Answered(), Numbers{1});
}

TEST_F(ScopeTableTest, ARequestDuringLearningWaitsForTheNodesThatComeUntilLearningEnds) {
  PHALANX_ASSERT_OK(scopes_.Await({"job", 4}, {kA, 1}, {kA, ScopeTable::kUnregistered}));
  scopes_.Confirm(kA, {"job", 4});
  EXPECT_EQ(Answered(), Numbers());
  scopes_.NodeAdded(kB);
  EXPECT_EQ(scopes_.AwaitedFrom(kB), (std::vector<Scope>{{"job", 4}}));
  scopes_.EndLearning();
  EXPECT_EQ(Answered(), Numbers());
  PHALANX_ASSERT_OK(scopes_.Await({"job", 5}, {kA, 2}, {kB}));
  scopes_.NodeAdded(NodeKey{3, 1});
  scopes_.Confirm(kB, {"job", 5});
  EXPECT_EQ(Answered(), (Numbers{1, 2}));
}

TEST_F(ScopeTableTest, TooManyRequestsAreRefused) {
  PHALANX_ASSERT_OK(scopes_.Await({"a", 4}, {kA, 1}, {kB}));
  PHALANX_ASSERT_OK(scopes_.Await({"b", 4}, {kA, 2}, {kB}));
  EXPECT_THAT(scopes_.Await({"c", 4}, {kA, 3}, {kB}),
              HasCode(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace phalanx::directory
