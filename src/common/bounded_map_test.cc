#include "src/common/bounded_map.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"

namespace phalanx {
namespace {

using ::testing::ElementsAre;

std::vector<int> Keys(const BoundedMap<int, std::string>& map, int from = 0) {
  std::vector<int> keys;
  map.VisitFrom(from, [&keys](int key, const std::string&) {
    keys.push_back(key);
    return true;
  });
  return keys;
}

TEST(BoundedMap, TheOldestMakesRoom) {
  BoundedMap<int, std::string> map(2);
  EXPECT_EQ(map.Put(5, "five"), std::nullopt);
  EXPECT_EQ(map.Put(3, "three"), std::nullopt);
  const auto removed = map.Put(4, "four");
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(*removed, std::make_pair(5, std::string("five")));
  EXPECT_THAT(Keys(map), ElementsAre(3, 4));
  EXPECT_EQ(map.Find(5), nullptr);
  EXPECT_EQ(*map.oldest(), 3);
}

TEST(BoundedMap, AnEntryThatWasTakenIsPutAgainAsTheYoungest) {
  BoundedMap<int, std::string> map(2);
  map.Put(1, "one");
  map.Put(2, "two");
  EXPECT_EQ(map.Take(1), "one");
  EXPECT_EQ(map.Take(1), std::nullopt);
  map.Put(1, "one again");
  map.Put(3, "three");
  EXPECT_THAT(Keys(map), ElementsAre(1, 3));
  EXPECT_EQ(*map.Find(1), "one again");
}

TEST(BoundedMap, AVisitBeginsAtAKeyAndEndsWhenItReturnsFalse) {
  BoundedMap<int, std::string> map(8);
  for (const int key : {9, 1, 5, 7}) map.Put(key, "");
  EXPECT_THAT(Keys(map, 5), ElementsAre(5, 7, 9));
  int visited = 0;
  map.VisitFrom(1, [&visited](int, const std::string&) { return ++visited < 2; });
  EXPECT_EQ(visited, 2);
}

TEST(BoundedMap, WithoutRoomAnEntryIsReturnedAtOnce) {
  BoundedMap<int, std::unique_ptr<int>> map(0);
  const auto removed = map.Put(1, std::make_unique<int>(7));
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(*removed->second, 7);
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.oldest(), nullptr);
}

TEST(BoundedMap, IsAListOfTheLastEntries) {
  Random random(testing::TestSeed(1));
  BoundedMap<int, int> map(10);
  std::vector<std::pair<int, int>> model;  // oldest first
  for (int step = 0; step < 10'000; ++step) {
    const int key = static_cast<int>(random.Below(20));
    const auto at = std::find_if(model.begin(), model.end(),
                                 [key](const auto& entry) { return entry.first == key; });
    ASSERT_EQ(map.Find(key) != nullptr, at != model.end());
    if (at != model.end()) {
      EXPECT_EQ(map.Take(key), at->second);
      model.erase(at);
    } else {
      map.Put(key, step);
      model.push_back({key, step});
      if (model.size() > 10) model.erase(model.begin());
    }
    ASSERT_EQ(map.size(), model.size());
    if (map.empty()) continue;
    ASSERT_EQ(*map.oldest(), model.front().first);
  }
}

}  // namespace
}  // namespace phalanx
