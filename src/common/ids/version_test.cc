#include "src/common/ids/version.h"

#include <concepts>
#include <type_traits>

#include "gtest/gtest.h"
#include "src/common/ids/digest.h"
#include "src/common/ids/ids.h"

namespace phalanx {
namespace {

// True if the compiler accepts a B for an A anywhere: as an argument, in an assignment, in a
// comparison.
template <typename A, typename B>
constexpr bool kMixes = std::is_convertible_v<B, A> || std::is_constructible_v<A, B> ||
                        std::is_assignable_v<A&, B> || requires(const A& a, const B& b) {
  a == b;
}
|| requires(const A& a, const B& b) { a < b; };

template <typename A, typename... Others>
constexpr bool kMixesWithAny = (kMixes<A, Others> || ...);

static_assert(kMixes<Generation, Generation> && kMixes<SlotVersion, SlotVersion> &&
              kMixes<ReductionId, ReductionId> && kMixes<Digest128, Digest128>);
static_assert(!kMixesWithAny<Generation, SlotVersion, ReductionId, Digest128>);
static_assert(!kMixesWithAny<SlotVersion, Generation, ReductionId, Digest128>);
static_assert(!kMixesWithAny<ReductionId, Generation, SlotVersion, Digest128>);
static_assert(!kMixesWithAny<Digest128, Generation, SlotVersion, ReductionId>);
// A digest has no order.
static_assert(!std::totally_ordered<Digest128>);
// Braces around the numbers of a generation make no other id.
static_assert(!std::is_constructible_v<SlotVersion, NodeKey, uint64_t>);
static_assert(!std::is_constructible_v<ReductionId, NodeKey, uint64_t>);

constexpr NodeKey kNode = {7, 3};

TEST(VersionTest, AVersionIsNoReductionIdAndNoGenerationOfANode) {
  for (const Digest128& digest : {Digest128{}, Digest128{1, 2}, DigestOf("description")}) {
    const SlotVersion version = VersionOf(digest);
    EXPECT_TRUE(version.valid());
    EXPECT_TRUE(IsVersion(version.AsGeneration()));
    EXPECT_FALSE(IsReductionId(version.AsGeneration()));
  }
  for (const uint64_t count : {1, 2, 1000}) {
    const ReductionId id = MakeReductionId(1, 2, count);
    EXPECT_TRUE(id.valid());
    EXPECT_EQ(CountOf(id), count);
    EXPECT_TRUE(IsReductionId(id.AsGeneration()));
    EXPECT_FALSE(IsVersion(id.AsGeneration()));
  }
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_FALSE(IsVersion(Generation{kNode, sequence}));
    EXPECT_FALSE(IsReductionId(Generation{kNode, sequence}));
  }
}

TEST(VersionTest, AnIdTakesTheFormOfAGenerationAndBack) {
  const ReductionId id = MakeReductionId(4, 5, 6);
  EXPECT_EQ(ReductionId::FromGeneration(id.AsGeneration()), id);
  const Generation any{kNode, 9};
  EXPECT_EQ(SlotVersion::FromGeneration(any).AsGeneration(), any);
  EXPECT_EQ(SlotVersion::FromGeneration(any).ToString(), any.ToString());
  EXPECT_FALSE(SlotVersion().valid());
}

TEST(VersionTest, OfTwoReductionsTheOneWithTheGreaterCountBeganLater) {
  const ReductionId first = MakeReductionId(9, 9, 1);
  const ReductionId second = MakeReductionId(2, 2, 2);
  EXPECT_TRUE(BeganAfter(second, first));
  EXPECT_FALSE(BeganAfter(first, second));
  EXPECT_FALSE(BeganAfter(first, first));
  EXPECT_FALSE(MintedTogether(first, second));
  EXPECT_TRUE(MintedTogether(first, MakeReductionId(9, 9, 5)));
}

TEST(DigestTest, TheSameDescriptionHasTheSameDigest) {
  EXPECT_EQ(DigestOf("a list of ids"), DigestOf("a list of ids"));
  EXPECT_NE(DigestOf("a list of ids"), DigestOf("another list"));
  DigestStream parts;
  parts.Append("a list");
  parts.Append("");
  parts.Append(" of ids");
  EXPECT_EQ(parts.digest(), DigestOf("a list of ids"));
}

}  // namespace
}  // namespace phalanx
