#include "src/cli/bench/element_pattern.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace phalanx::runtime::bench {
namespace {

constexpr uint64_t kSeed = 12345;
constexpr size_t kElements = 5000;

std::string Source(const Elements& elements, int rank, uint64_t seed = kSeed) {
  std::string bytes(kElements * ElementSize(elements.dtype), '\0');
  FillElements(elements, seed, rank, absl::MakeSpan(&bytes[0], bytes.size()));
  return bytes;
}

template <typename T>
std::string SumOf(const Elements& elements, const std::vector<int>& ranks) {
  std::vector<T> sum(kElements);
  for (const int rank : ranks) {
    const std::string source = Source(elements, rank);
    for (size_t i = 0; i < kElements; ++i) {
      T value;
      std::memcpy(&value, source.data() + i * sizeof(T), sizeof value);
      sum[i] = static_cast<T>(sum[i] + value);
    }
  }
  return std::string(reinterpret_cast<const char*>(sum.data()), kElements * sizeof(T));
}

TEST(ElementPattern, OneSourceIsItsOwnReductionWhateverTheDTypeAndOp) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!CheckReducible(dtype, op).ok()) continue;
      const Elements elements{dtype, op};
      const std::string what = absl::StrCat(DTypeName(dtype), " ", ReduceOpName(op));
      const std::string bytes = Source(elements, 3);
      EXPECT_TRUE(MatchesReduction(elements, kSeed, {3}, 0, bytes)) << what;
      EXPECT_FALSE(MatchesReduction(elements, kSeed + 1, {3}, 0, bytes)) << what;
      EXPECT_FALSE(MatchesReduction(elements, kSeed, {4}, 0, bytes)) << what;
      const uint64_t size = ElementSize(dtype);
      EXPECT_TRUE(MatchesReduction(elements, kSeed, {3}, 1000, bytes.substr(1000 * size))) << what;
      EXPECT_FALSE(MatchesReduction(elements, kSeed, {3}, 1000, bytes.substr(1004 * size))) << what;
    }
  }
}

TEST(ElementPattern, MatchesCorrectSumsOnly) {
  const std::vector<int> ranks = {0, 1, 2, 5, 7};
  const Elements floats{DType::kF32, ReduceOp::kSum};
  const std::string sum = SumOf<float>(floats, ranks);
  EXPECT_TRUE(MatchesReduction(floats, kSeed, ranks, 0, sum));
  EXPECT_FALSE(MatchesReduction(floats, kSeed, {0, 1, 2, 5}, 0, sum)) << "one is missing";
  EXPECT_FALSE(MatchesReduction(floats, kSeed, {0, 1, 2, 5, 7, 7}, 0, sum)) << "one is there twice";
  std::string torn = sum;
  torn[torn.size() - 2] ^= 1;
  EXPECT_FALSE(MatchesReduction(floats, kSeed, ranks, 0, torn));
  const Elements bytes{DType::kU8, ReduceOp::kSum};
  EXPECT_TRUE(MatchesReduction(bytes, kSeed, ranks, 0, SumOf<uint8_t>(bytes, ranks)));
}

TEST(ElementPattern, SumsOfTheMostRanksAreExactInEveryFloat) {
  std::vector<int> ranks;
  for (int rank = 0; rank < kMaxExactRanks; ++rank) ranks.push_back(rank);
  // bf16 has 8 bits of precision and f16 has 11; the sums stay below these limits.
  const auto largest = [&ranks](DType dtype) {
    int64_t most = 0;
    const Elements elements{dtype, ReduceOp::kSum};
    for (size_t i = 0; i < 1021; ++i) {
      int64_t sum = 0;
      for (const int rank : ranks) {
        const std::string source = Source(elements, rank);
        uint16_t bits;
        std::memcpy(&bits, source.data() + 2 * i, 2);
        const uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        sum += static_cast<int64_t>(value);
      }
      most = std::max(most, sum);
    }
    return most;
  };
  EXPECT_LE(largest(DType::kBf16), 256);
}

TEST(ElementPattern, FewElementsAreTheFirstOfMany) {
  const Elements elements{DType::kF32, ReduceOp::kSum};
  const std::string many = Source(elements, 1);
  for (const size_t count : {1, 2, 1020, 1022}) {
    std::string few(count * sizeof(float), '\0');
    FillElements(elements, kSeed, 1, absl::MakeSpan(&few[0], few.size()));
    EXPECT_EQ(few, many.substr(0, few.size()));
    EXPECT_TRUE(MatchesReduction(elements, kSeed, {1}, 0, few));
    few.back() ^= 1;
    EXPECT_FALSE(MatchesReduction(elements, kSeed, {1}, 0, few));
  }
}

TEST(ElementPattern, AMeanCanDifferOnlyInItsLastBits) {
  const Elements elements{DType::kF32, ReduceOp::kMean};
  const std::vector<int> ranks = {0, 1, 2};
  std::string mean = SumOf<float>({DType::kF32, ReduceOp::kSum}, ranks);
  for (size_t i = 0; i < kElements; ++i) {
    float value;
    std::memcpy(&value, &mean[4 * i], 4);
    value *= 1.0f / 3;
    std::memcpy(&mean[4 * i], &value, 4);
  }
  EXPECT_TRUE(MatchesReduction(elements, kSeed, ranks, 0, mean));
  EXPECT_FALSE(MatchesReduction(elements, kSeed, {0, 1}, 0, mean));
}

}  // namespace
}  // namespace phalanx::runtime::bench
