#include "src/cli/near_word.h"

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

const std::set<std::string> kWords = {"describe", "get", "put", "rm", "top"};

TEST(NearWordTest, FindsAWordWithOneLetterMoreLessOtherOrSwapped) {
  for (const char* text : {"gett", "ge", "gat", "gte"}) {
    EXPECT_EQ(DidYouMean(text, kWords), ", did you mean \"get\"?") << text;
  }
  EXPECT_EQ(DidYouMean("descrbie", kWords), ", did you mean \"describe\"?");
  EXPECT_EQ(DidYouMean("desribbe", kWords), ", did you mean \"describe\"?");
}

TEST(NearWordTest, FindsNothingForOtherWords) {
  for (const std::string& text :
       {std::string(), std::string("fetch"), std::string("getting"), std::string(1 << 20, 'g')}) {
    EXPECT_EQ(DidYouMean(text, kWords), "");
  }
}

}  // namespace
}  // namespace phalanx::runtime
