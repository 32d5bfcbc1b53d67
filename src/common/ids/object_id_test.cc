#include "phalanx/object_id.h"

#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/ids/random_id.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ObjectIdTest, RandomIdsDiffer) {
  std::set<ObjectId> ids;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ids.insert(ObjectId::Random()).second);
  EXPECT_FALSE(ids.contains(ObjectId()));
}

// Nodes and shards of any version must agree on the mark.
TEST(ObjectIdTest, OnlyDrawnIdsHaveTheMark) {
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(IsRandomId(ObjectId::Random()));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(IsRandomId(ObjectId::FromName("test", absl::StrCat(i))));
  }
  EXPECT_FALSE(IsRandomId(ObjectId()));
  EXPECT_EQ(RandomIdOf({1, 2, 3}).hex(), "010203000000000000000000000000001926d91f");
}

// Every process and every later version must derive these bytes.
TEST(ObjectIdTest, ANameAlwaysGivesTheSameId) {
  EXPECT_EQ(ObjectId::FromName("", "").hex(), "2c0a8a99dc147d5445c3b49d035665b29ab2d962");
  EXPECT_EQ(ObjectId::FromName("training", "weights/7").hex(),
            "f711fdc340bde4f1819b691b15fffbf59a1b7f2b");
  EXPECT_EQ(ObjectId::FromName("training", std::string(1000, 'x')).hex(),
            "d4bd805ac49537e82ed920b5119313984105c6f5");
}

TEST(ObjectIdTest, NamespaceAndNameDoNotRunTogether) {
  EXPECT_NE(ObjectId::FromName("a", "bc"), ObjectId::FromName("ab", "c"));
  EXPECT_NE(ObjectId::FromName("abc", ""), ObjectId::FromName("", "abc"));
}

TEST(ObjectIdTest, ReadsBackItsBinaryAndHexForms) {
  const ObjectId id = ObjectId::FromName("n", "1");
  EXPECT_THAT(ObjectId::FromBinary(id.binary()), IsOkAndHolds(id));
  EXPECT_THAT(ObjectId::FromHex(id.hex()), IsOkAndHolds(id));
  EXPECT_THAT(ObjectId::FromHex("ABCDEF0123456789abcdef0123456789ABCDEF01"),
              IsOkAndHolds(*ObjectId::FromHex("abcdef0123456789abcdef0123456789abcdef01")));
  EXPECT_EQ(id.hex().substr(0, 8), id.ShortHex());
  std::ostringstream out;
  out << id;
  EXPECT_EQ(out.str(), id.hex());
}

TEST(ObjectIdTest, RefusesOtherLengthsAndDigits) {
  EXPECT_THAT(ObjectId::FromBinary("short"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("20 bytes, not 5")));
  EXPECT_THAT(ObjectId::FromHex(std::string(39, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not 39")));
  EXPECT_THAT(ObjectId::FromHex(std::string(39, 'a') + "g"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("digits only")));
  EXPECT_THAT(ObjectId::FromHex(std::string(39, 'a') + '\0'),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\\x00")));
}

TEST(ObjectIdTest, NilIsAllZero) {
  EXPECT_TRUE(ObjectId().nil());
  EXPECT_FALSE(ObjectId::FromName("", "").nil());
  EXPECT_EQ(ObjectId().hex(), std::string(40, '0'));
}

// Ids that count upwards in one byte still spread over the shards.
TEST(ObjectIdTest, ShardHashSpreadsIdsThatLookAlike) {
  constexpr int kShards = 4;
  int count[kShards] = {};
  for (int i = 0; i < 4000; ++i) {
    std::string bytes(ObjectId::kSize, '\0');
    bytes[19] = static_cast<char>(i & 0xff);
    bytes[3] = static_cast<char>(i >> 8);
    ++count[ObjectId::FromBinary(bytes)->ShardHash() % kShards];
  }
  for (const int n : count) EXPECT_NEAR(n, 1000, 150);
}

}  // namespace
}  // namespace phalanx
