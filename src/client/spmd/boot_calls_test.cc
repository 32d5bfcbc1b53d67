#include "src/client/spmd/boot_calls.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A group that has these records, and what a life does with it.
class Life {
 public:
  using Records = std::map<uint64_t, NameRecord>;

  explicit Life(Records& records, uint64_t ended = 0, uint64_t boot = 0)
      : records_(records), ended_(ended), calls_(ended, boot, !records.empty()) {
    // As Join does.
    Make();
    for (const auto& [number, record] : records) {
      if (number <= calls_.last_record()) calls_.AddRecord(number, record);
    }
  }
  // The numbers of the calls of the group, without the record.
  std::vector<uint64_t> Call(const std::string& name, int parts = 1) {
    return Parts(calls_.Begin(name), parts);
  }
  // The last call before Load.
  uint64_t Load() {
    EXPECT_THAT(Parts(calls_.BeginLoad(), 0), IsEmpty());
    return calls_.last();
  }
  BootCalls& calls() { return calls_; }
  // Those that the others have to make as well.
  const std::vector<uint64_t>& made() const { return made_; }

 private:
  std::vector<uint64_t> Parts(const absl::StatusOr<std::optional<NameRecord>>& record, int parts) {
    EXPECT_THAT(record, IsOk());
    if (record.ok() && record->has_value()) {
      records_[calls_.next()] = **record;
      Make();
    }
    std::vector<uint64_t> numbers;
    for (int i = 0; i < parts; ++i) {
      EXPECT_THAT(calls_.CheckNext(), IsOk());
      numbers.push_back(calls_.next());
      Make();
    }
    return numbers;
  }
  void Make() {
    if (calls_.next() > ended_) made_.push_back(calls_.next());
    calls_.OnMade();
  }

  Records& records_;
  const uint64_t ended_;
  BootCalls calls_;
  std::vector<uint64_t> made_;
};

// As the header draws it.
Life::Records FirstLife() {
  Life::Records records;
  Life life(records);
  EXPECT_THAT(life.Call(""), ElementsAre(2));
  EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
  EXPECT_THAT(life.Call(""), ElementsAre(7));
  EXPECT_THAT(life.Call("l"), ElementsAre(9));
  EXPECT_EQ(life.Load(), 10u);
  EXPECT_THAT(life.made(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(records.size(), 4u);
  return records;
}

TEST(BootCalls, CallsWithoutNamesHaveTheNumbersInTheirOrder) {
  Life::Records records;
  Life life(records, 3);
  EXPECT_THAT(life.Call("", 2), ElementsAre(2, 3));
  EXPECT_THAT(life.Call("", 2), ElementsAre(4, 5));
  EXPECT_EQ(life.Load(), 5u);
  EXPECT_THAT(records, IsEmpty());
  EXPECT_EQ(life.calls().mark(), 0u);
  EXPECT_EQ(life.calls().last_record(), 0u);
}

TEST(BootCalls, ANextLifeFindsNamedCallsInAnyOrder) {
  Life::Records records = FirstLife();
  Life life(records, 10);
  EXPECT_THAT(life.Call("l"), ElementsAre(9));
  EXPECT_THAT(life.Call(""), ElementsAre(2));
  EXPECT_THAT(life.Call(""), ElementsAre(7));
  EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
  EXPECT_EQ(life.Load(), 10u);
  EXPECT_THAT(life.made(), IsEmpty());
}

TEST(BootCalls, ANextLifeCanLeaveNamedCallsOut) {
  Life::Records records = FirstLife();
  Life life(records, 20, 10);
  EXPECT_EQ(life.calls().last_record(), 10u);
  EXPECT_THAT(life.Call(""), ElementsAre(2));
  EXPECT_EQ(life.Load(), 10u);
}

TEST(BootCalls, ANextLifeGoesOnWithinTheCallInWhichTheOthersWait) {
  const Life::Records all = FirstLife();
  for (uint64_t ended = 1; ended < 10; ++ended) {
    Life::Records records;
    for (const auto& [number, record] : all) {
      if (number <= ended) records[number] = record;
    }
    Life life(records, ended);
    // Where all calls before it have ended, it can begin with the others.
    if (ended >= 6) {
      EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
      EXPECT_THAT(life.Call(""), ElementsAre(2));
    } else {
      EXPECT_THAT(life.Call(""), ElementsAre(2));
      EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
    }
    EXPECT_THAT(life.Call(""), ElementsAre(7)) << ended;
    EXPECT_THAT(life.Call("l"), ElementsAre(9)) << ended;
    EXPECT_EQ(life.Load(), 10u);
    EXPECT_EQ(life.made().size(), 10 - ended);
    EXPECT_EQ(records, all);
  }
}

TEST(BootCalls, ANewCallIsMadeAfterAllThatHaveEnded) {
  Life::Records records = FirstLife();
  records.erase(10);
  Life life(records, 9);
  EXPECT_THAT(life.Call("new", 2), ElementsAre(11, 12));
  EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
  EXPECT_THAT(life.Call(""), ElementsAre(2));
  EXPECT_THAT(life.Call(""), ElementsAre(7));
  // Three unnamed ones.
  EXPECT_THAT(life.Call(""), ElementsAre(14));
  EXPECT_EQ(life.Load(), 15u);
  EXPECT_THAT(life.made(), ElementsAre(10, 11, 12, 13, 14, 15));
}

TEST(BootCalls, ALifeThatGivesNamesForTheFirstTimeTakesTheUnnamedCallsBeforeThem) {
  Life::Records records;
  Life life(records, 3);
  EXPECT_THAT(life.Call("first"), ElementsAre(5));
  EXPECT_THAT(life.Call("", 2), ElementsAre(2, 3));
  EXPECT_THAT(life.Call(""), ElementsAre(7));
}

TEST(BootCalls, ANameIsUsedOnceInALife) {
  Life::Records records;
  Life life(records);
  EXPECT_THAT(life.calls().Begin("twice"), IsOk());
  // Idempotent until it is made.
  EXPECT_THAT(life.Call("twice"), ElementsAre(3));
  EXPECT_THAT(life.calls().Begin("twice"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"twice\" is used twice")));
  EXPECT_THAT(life.Call("once"), ElementsAre(5));
}

TEST(BootCalls, ANewCallIsRefusedIfTheOthersHavePassedLoad) {
  for (const uint64_t boot : {uint64_t{0}, uint64_t{10}}) {
    Life::Records records = FirstLife();
    Life life(records, 10, boot);
    EXPECT_THAT(life.calls().Begin("new"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    HasSubstr("no life has made \"new\"")));
    EXPECT_THAT(life.Call("l"), ElementsAre(9));
    EXPECT_THAT(life.Call(""), ElementsAre(2));
    EXPECT_THAT(life.Call(""), ElementsAre(7));
    EXPECT_THAT(life.calls().Begin(""),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("fewer unnamed calls")));
  }
}

TEST(BootCalls, ACallThatTakesMoreThanBeforeIsRefused) {
  Life::Records records = FirstLife();
  Life life(records, 10);
  EXPECT_THAT(life.Call("v", 2), ElementsAre(4, 5));
  EXPECT_THAT(life.calls().CheckNext(), StatusIs(absl::StatusCode::kInvalidArgument));
  // It has not ended, and the next one has been made.
  records.erase(10);
  records.erase(8);
  Life other(records, 7);
  EXPECT_THAT(other.Call("new"), ElementsAre(9));
  EXPECT_THAT(other.Call(""), ElementsAre(2));
  EXPECT_THAT(other.Call(""), ElementsAre(7));
  EXPECT_THAT(other.calls().CheckNext(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(BootCalls, OtherCallsAndTheirRecordsSayOtherThings) {
  Life::Records records;
  Life life(records);
  std::vector<uint64_t> marks = {life.calls().mark()};
  for (const std::string name : {"a", "b", "", "c"}) {
    ASSERT_THAT(life.calls().Begin(name), IsOk());
    marks.push_back(life.calls().mark());
    life.calls().OnMade();
    marks.push_back(life.calls().mark());
    life.calls().OnMade();
    EXPECT_EQ(life.calls().mark(), marks.back());
  }
  EXPECT_EQ(std::set<uint64_t>(marks.begin(), marks.end()).size(), 1u + 4 * 2);
}

TEST(BootCalls, RecordsAreKnownFromOtherResults) {
  BootCalls calls(0, 0, false);
  const absl::StatusOr<std::optional<NameRecord>> record = calls.Begin("name");
  ASSERT_THAT(record, IsOk());
  ASSERT_TRUE(record->has_value());
  EXPECT_TRUE(BootCalls::IsRecord(**record));
  EXPECT_FALSE(BootCalls::IsRecord({}));
  EXPECT_FALSE(BootCalls::IsRecord({(**record)[0], 1, 1}));
}

}  // namespace
}  // namespace phalanx::spmd::internal
