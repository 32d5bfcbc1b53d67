#include "src/directory/objects/inline_cache.h"

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

TEST(InlineCache, CountsTheBytesOfItsEntries) {
  InlineCache cache(10);
  InlineCache::Entry a, b;
  EXPECT_TRUE(cache.Add(Id(1), a, "four"));
  EXPECT_TRUE(cache.Add(Id(2), b, "three"));
  EXPECT_EQ(cache.bytes(), 9u);
  EXPECT_EQ(a.bytes(), "four");
  cache.Remove(a);
  EXPECT_EQ(cache.bytes(), 5u);
  EXPECT_FALSE(a.cached());
  EXPECT_EQ(a.bytes(), "");
}

TEST(InlineCache, KeepsTheFirstBytesOfAnEntry) {
  InlineCache cache(10);
  InlineCache::Entry a;
  EXPECT_TRUE(cache.Add(Id(1), a, "one"));
  EXPECT_FALSE(cache.Add(Id(1), a, "two"));
  EXPECT_EQ(a.bytes(), "one");
  EXPECT_EQ(cache.bytes(), 3u);
}

TEST(InlineCache, RefusesBytesThatCanNeverFit) {
  InlineCache cache(3);
  InlineCache::Entry a;
  EXPECT_FALSE(cache.Add(Id(1), a, "four"));
  EXPECT_FALSE(a.cached());
  EXPECT_FALSE(cache.over_limit());
}

TEST(InlineCache, TheEntryUsedLeastRecentlyIsTheOldest) {
  InlineCache cache(8);
  InlineCache::Entry a, b, c;
  cache.Add(Id(1), a, "four");
  cache.Add(Id(2), b, "four");
  cache.Touch(a);
  cache.Add(Id(3), c, "four");
  ASSERT_TRUE(cache.over_limit());
  EXPECT_EQ(cache.oldest(), Id(2));
  cache.Remove(b);
  EXPECT_FALSE(cache.over_limit());
  EXPECT_EQ(cache.oldest(), Id(1));
}

}  // namespace
}  // namespace phalanx::directory
