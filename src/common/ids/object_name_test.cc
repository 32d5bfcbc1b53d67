#include "src/common/ids/object_name.h"

#include <string>

#include "gtest/gtest.h"

namespace phalanx {
namespace {

TEST(ObjectNameTest, KeepsTheNamespaceAndTheName) {
  const ObjectName name = ObjectName::Of("batch", "job/7");
  EXPECT_FALSE(name.empty());
  EXPECT_EQ(name.name_space(), "batch");
  EXPECT_EQ(name.name(), "job/7");
  EXPECT_EQ(name.size(), 10u);
  EXPECT_EQ(name.ToString(), "batch:job/7");
  EXPECT_EQ(ObjectName::Of("default", "job/7").ToString(), "job/7");
  EXPECT_EQ(ObjectName::Of("", "job/7").ToString(), "job/7");
}

TEST(ObjectNameTest, NamesTheIdThatWasDerivedFromItAndNoOther) {
  const ObjectName name = ObjectName::Of("a", "bc");
  EXPECT_TRUE(name.Names(ObjectId::FromName("a", "bc")));
  EXPECT_FALSE(name.Names(ObjectId::FromName("ab", "c")));
  EXPECT_FALSE(name.Names(ObjectId::Random()));
  EXPECT_FALSE(ObjectName().Names(ObjectId()));
}

TEST(ObjectNameTest, TakesTwoPointersInARecord) {
  EXPECT_EQ(sizeof(ObjectName), 2 * sizeof(void*));
}

TEST(ObjectNameTest, IsEqualIfBothPartsAre) {
  EXPECT_EQ(ObjectName::Of("a", "bc"), ObjectName::Of("a", "bc"));
  EXPECT_FALSE(ObjectName::Of("a", "bc") == ObjectName::Of("ab", "c"));
  EXPECT_EQ(ObjectName(), ObjectName::Of("a", ""));
}

TEST(ObjectNameTest, KeepsNoNameThatIsTooLong) {
  const std::string longest(kMaxObjectNameBytes, 'n');
  EXPECT_FALSE(ObjectName::Of(longest, longest).empty());
  EXPECT_TRUE(ObjectName::Of("default", longest + "n").empty());
  EXPECT_TRUE(ObjectName::Of(longest + "n", "n").empty());
}

TEST(ObjectNameTest, KeepsTextOfAnyLanguage) {
  EXPECT_EQ(ObjectName::Of("default", "größe/重み").name(), "größe/重み");
}

TEST(ObjectNameTest, KeepsNoControlCharactersAndOnlyUtf8) {
  for (const std::string name : {"a\nb", "\x1b[2J", "tab\t", "\x7f",
                                 "\xc2\x9b"
                                 "31m",
                                 "\xff", "\xc3", "\xed\xa0\x80"}) {
    EXPECT_TRUE(ObjectName::Of("default", name).empty()) << name;
    EXPECT_TRUE(ObjectName::Of(name, "n").empty()) << name;
  }
  EXPECT_TRUE(ObjectName::Of("default", std::string("a\0b", 3)).empty());
  EXPECT_FALSE(ObjectName::Of("default", "\xc2\xa0").empty()) << "a no-break space";
}

}  // namespace
}  // namespace phalanx
