#include "src/cli/tools/name_pattern.h"

#include <string>

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

TEST(NamePatternTest, AStarStandsForAnyCharacters) {
  for (const char* name : {"job/1", "job/", "job/a/b", "job/größe"}) {
    EXPECT_TRUE(MatchesPattern(name, "job/*")) << name;
  }
  for (const char* name : {"job", "jobs/1", "a/job/1", ""}) {
    EXPECT_FALSE(MatchesPattern(name, "job/*")) << name;
  }
  EXPECT_TRUE(MatchesPattern("", "*"));
  EXPECT_TRUE(MatchesPattern("x", "**"));
  EXPECT_TRUE(MatchesPattern("a/step/7/grad", "*/step/*/grad"));
  EXPECT_FALSE(MatchesPattern("a/step/7/grads", "*/step/*/grad"));
  EXPECT_TRUE(MatchesPattern("aab", "*ab")) << "the first a is not the one";
  EXPECT_TRUE(MatchesPattern("ababac", "*abac"));
}

TEST(NamePatternTest, AQuestionMarkStandsForOneCharacter) {
  EXPECT_TRUE(MatchesPattern("job/1", "job/?"));
  EXPECT_TRUE(MatchesPattern("job/ö", "job/?")) << "of two bytes";
  EXPECT_FALSE(MatchesPattern("job/12", "job/?"));
  EXPECT_FALSE(MatchesPattern("job/", "job/?"));
}

TEST(NamePatternTest, EveryOtherCharacterStandsForItself) {
  EXPECT_TRUE(MatchesPattern("grad[3]\\n", "grad[3]\\n"));
  EXPECT_FALSE(MatchesPattern("grad3", "grad[3]"));
  EXPECT_FALSE(MatchesPattern("JOB", "job"));
  EXPECT_FALSE(IsPattern("grad[3]"));
  EXPECT_TRUE(IsPattern("grad*"));
  EXPECT_TRUE(IsPattern("grad?"));
}

TEST(NamePatternTest, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPattern(std::string(255, 'a'), pattern + "b"));
}

}  // namespace
}  // namespace phalanx::runtime
