// The rules of kernels.h for floats, wrapping integers and means, in numbers that can be checked by
// hand.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/collectives/kernels/kernel_reference.h"
#include "src/collectives/kernels/kernels.h"

namespace phalanx::collectives {

void PrintTo(const KernelTarget& target, std::ostream* out) { *out << target.name; }

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One fold of two values that the type can represent.
double FoldValues(DType dtype, ReduceOp op, double a, double b, const KernelTarget& target) {
  const Bits x = NearestTo(dtype, a);
  const Bits y = NearestTo(dtype, b);
  Bits folded = 0;
  Fold(dtype, op, &folded, &x, &y, 1, target);
  return ValueOf(dtype, folded);
}

template <typename T>
std::vector<T> Fold(DType dtype, ReduceOp op, const std::vector<T>& a, const std::vector<T>& b,
                    const KernelTarget& target) {
  std::vector<T> folded(a.size());
  Fold(dtype, op, folded.data(), a.data(), b.data(), a.size(), target);
  return folded;
}

class KernelsFloatTest : public ::testing::TestWithParam<KernelTarget> {
 protected:
  const KernelTarget& target() const { return GetParam(); }

  double Value(DType dtype, ReduceOp op, double a, double b) const {
    return FoldValues(dtype, op, a, b, target());
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, KernelsFloatTest, ::testing::ValuesIn(SupportedKernelTargets()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(KernelsFloatTest, IntegersWrap) {
  using Signed = std::vector<int64_t>;
  EXPECT_EQ(Fold<int64_t>(DType::kI64, ReduceOp::kSum, {INT64_MAX, INT64_MIN}, {1, -1}, target()),
            (Signed{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(Fold<int64_t>(DType::kI64, ReduceOp::kProd, {INT64_MAX, -3}, {2, 5}, target()),
            (Signed{-2, -15}));
  EXPECT_EQ(Fold<uint8_t>(DType::kU8, ReduceOp::kSum, {200, 255}, {100, 1}, target()),
            (std::vector<uint8_t>{44, 0}));
  EXPECT_EQ(Fold<uint8_t>(DType::kU8, ReduceOp::kProd, {16, 17, 255}, {16, 17, 255}, target()),
            (std::vector<uint8_t>{0, 33, 1}));
  EXPECT_EQ(Fold<int8_t>(DType::kI8, ReduceOp::kProd, {-128, -7}, {-1, 9}, target()),
            (std::vector<int8_t>{-128, -63}));
  EXPECT_EQ(Fold<int16_t>(DType::kI16, ReduceOp::kProd, {256, -300}, {256, 2}, target()),
            (std::vector<int16_t>{0, -600}));
}

TEST_P(KernelsFloatTest, SignDecidesBetweenMinimumAndMaximum) {
  const std::vector<int32_t> a = {-1, 5, INT32_MIN};
  const std::vector<int32_t> b = {1, -5, INT32_MAX};
  EXPECT_EQ(Fold(DType::kI32, ReduceOp::kMin, a, b, target()),
            (std::vector<int32_t>{-1, -5, INT32_MIN}));
  EXPECT_EQ(Fold<uint32_t>(DType::kU32, ReduceOp::kMax, {0xffffffff, 1}, {1, 2}, target()),
            (std::vector<uint32_t>{0xffffffff, 2}));
  EXPECT_EQ(Fold<uint64_t>(DType::kU64, ReduceOp::kMin, {~uint64_t{0}}, {1}, target()),
            (std::vector<uint64_t>{1}));
}

TEST_P(KernelsFloatTest, NaNPropagatesWhicheverSideItComesFrom) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProd}) {
      for (const double other : {0.0, 1.0, -1.0, kInfinity, -kInfinity, kNaN}) {
        EXPECT_TRUE(std::isnan(Value(dtype, op, kNaN, other))) << DTypeName(dtype);
        EXPECT_TRUE(std::isnan(Value(dtype, op, other, kNaN))) << DTypeName(dtype);
      }
    }
    EXPECT_TRUE(std::isnan(Value(dtype, ReduceOp::kSum, kInfinity, -kInfinity)));
    EXPECT_EQ(Value(dtype, ReduceOp::kMin, 1, -kInfinity), -kInfinity);
  }
}

TEST_P(KernelsFloatTest, MinusZeroIsLessThanPlusZero) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    EXPECT_TRUE(std::signbit(Value(dtype, ReduceOp::kMin, -0.0, 0.0)));
    EXPECT_TRUE(std::signbit(Value(dtype, ReduceOp::kMin, 0.0, -0.0)));
    EXPECT_FALSE(std::signbit(Value(dtype, ReduceOp::kMax, -0.0, 0.0)));
    EXPECT_FALSE(std::signbit(Value(dtype, ReduceOp::kMax, 0.0, -0.0)));
    EXPECT_TRUE(std::signbit(Value(dtype, ReduceOp::kSum, -0.0, -0.0)));
  }
}

TEST_P(KernelsFloatTest, OneSourceAfterTheOtherIsTheScalarLeftFold) {
  const std::vector<float> big(5, 1e8f);
  const std::vector<float> one(5, 1.0f);
  const std::vector<float> minus(5, -1e8f);
  const auto sum = [&](const std::vector<float>& a, const std::vector<float>& b) {
    return Fold(DType::kF32, ReduceOp::kSum, a, b, target());
  };
  EXPECT_EQ(sum(sum(big, one), minus), std::vector<float>(5, 0.0f));
  EXPECT_EQ(sum(sum(big, minus), one), one);

  std::vector<double> folded(33, 1.0);
  std::vector<double> expected = folded;
  for (int rank = 1; rank <= 20; ++rank) {
    std::vector<double> source(33);
    for (size_t i = 0; i < source.size(); ++i) {
      source[i] = 1.0 / static_cast<double>(i * 21 + static_cast<size_t>(rank));
      expected[i] = rank % 2 == 0 ? expected[i] * source[i] : expected[i] + source[i];
    }
    const ReduceOp op = rank % 2 == 0 ? ReduceOp::kProd : ReduceOp::kSum;
    folded = Fold(DType::kF64, op, folded, source, target());
  }
  EXPECT_EQ(folded, expected);
}

TEST_P(KernelsFloatTest, EachFoldOf16BitsRoundsToNearestEven) {
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kSum, 2048, 1), 2048);
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kSum, 2050, 1), 2052);
  EXPECT_EQ(Value(DType::kBf16, ReduceOp::kSum, 256, 1), 256);
  EXPECT_EQ(Value(DType::kBf16, ReduceOp::kSum, 258, 1), 260);
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kProd, std::ldexp(3, -14), std::ldexp(1, -11)),
            std::ldexp(2, -24));
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kProd, std::ldexp(1, -14), std::ldexp(1, -11)), 0);
}

TEST_P(KernelsFloatTest, AResultThatRoundsBeyondTheLargestNumberIsInfinity) {
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kSum, 65504, 15), 65504);
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kSum, 65504, 16), kInfinity);
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kProd, -60000, 2), -kInfinity);
  EXPECT_EQ(Value(DType::kF16, ReduceOp::kProd, 60000, 60000), kInfinity);
  const double largest = std::ldexp(255, 120);
  EXPECT_EQ(Value(DType::kBf16, ReduceOp::kSum, largest, largest), kInfinity);
  EXPECT_EQ(Value(DType::kBf16, ReduceOp::kSum, largest, std::ldexp(1, 118)), largest);
}

// Sources of one f16 each, folded in one after the other or as a balanced tree.
class MeanOfF16 {
 public:
  MeanOfF16(const std::vector<double>& sources, uint64_t planned, const KernelTarget& target)
      : planned_(planned), target_(target) {
    for (const double source : sources) {
      Bits bits = NearestTo(DType::kF16, source);
      Prepare(DType::kF16, ReduceOp::kMean, &bits, &bits, 1, planned, target);
      prepared_.push_back(bits);
    }
  }

  double ByChain() const {
    Bits sum = prepared_[0];
    for (size_t i = 1; i < prepared_.size(); ++i) sum = Sum(sum, prepared_[i]);
    return Finished(sum);
  }

  double ByTree() const { return Finished(SumOf(0, prepared_.size())); }

 private:
  Bits Sum(Bits a, Bits b) const {
    Bits sum = 0;
    Fold(DType::kF16, ReduceOp::kMean, &sum, &a, &b, 1, target_);
    return sum;
  }
  Bits SumOf(size_t from, size_t to) const {
    if (to - from == 1) return prepared_[from];
    const size_t middle = (from + to) / 2;
    return Sum(SumOf(from, middle), SumOf(middle, to));
  }
  double Finished(Bits sum) const {
    Finish(DType::kF16, ReduceOp::kMean, &sum, 1, prepared_.size(), planned_, target_);
    return ValueOf(DType::kF16, sum);
  }

  const uint64_t planned_;
  const KernelTarget& target_;
  std::vector<Bits> prepared_;
};

TEST_P(KernelsFloatTest, TheMeanOfTheLargestF16DoesNotOverflow) {
  for (const size_t sources : {1, 2, 3, 5, 8, 9, 100, 1000, 1024, 1400, 2047, 2048, 4096}) {
    for (const double value : {65504.0, -65504.0, 65472.0}) {
      const MeanOfF16 mean(std::vector<double>(sources, value), sources, target());
      EXPECT_TRUE(std::isfinite(mean.ByChain())) << sources << " times " << value;
      const double folds = std::ceil(std::log2(static_cast<double>(sources)));
      EXPECT_NEAR(mean.ByTree(), value, 65504 * (folds + 1) * std::ldexp(1, -11)) << sources;
    }
  }
}

TEST_P(KernelsFloatTest, TheMeanOfF16StaysFiniteWhenEveryFoldRoundsUp) {
  constexpr int kSources = 2000;
  const double scale = std::ldexp(1, 12);  // 2000 sources are scaled by 2^-12.
  std::vector<double> sources = {65504};
  double sum = 65504 / scale;
  while (sources.size() < kSources) {
    // Just above half of the sum's last place, so that a whole one is added.
    const double place = std::ldexp(1, std::ilogb(sum) - 10);
    const double source = std::min(65504 / scale, place / 2 * (1 + std::ldexp(1, -10)));
    sources.push_back(source * scale);
    sum = ValueOf(DType::kF16, NearestTo(DType::kF16, sum + source));
  }
  const MeanOfF16 mean(sources, kSources, target());
  EXPECT_TRUE(std::isfinite(mean.ByChain()));
  EXPECT_TRUE(std::isfinite(mean.ByTree()));
}

TEST_P(KernelsFloatTest, AMeanIsDividedByTheSourcesThatCameNotByThosePlanned) {
  const std::vector<double> sources = {1, 2, 3, 4, 5, 6};
  for (const uint64_t planned : {6, 8, 100, 1000}) {
    EXPECT_EQ(MeanOfF16(sources, planned, target()).ByChain(), 3.5);
    EXPECT_EQ(MeanOfF16(sources, planned, target()).ByTree(), 3.5);
  }
  std::vector<float> sum = {21, 1, -6};
  Finish(DType::kF32, ReduceOp::kMean, sum.data(), 3, 6, 1000, target());
  EXPECT_EQ(sum, (std::vector<float>{3.5f, 1.0f / 6.0f, -1.0f}));
}

TEST_P(KernelsFloatTest, TheMeanOfF16KeepsInfinityAndNaN) {
  EXPECT_EQ(MeanOfF16({1, kInfinity, 2}, 3, target()).ByChain(), kInfinity);
  EXPECT_EQ(MeanOfF16({1, -kInfinity, 65504}, 3, target()).ByChain(), -kInfinity);
  EXPECT_TRUE(std::isnan(MeanOfF16({1, kNaN, 2}, 3, target()).ByChain()));
  EXPECT_TRUE(std::isnan(MeanOfF16({kInfinity, -kInfinity}, 2, target()).ByChain()));
}

std::vector<Bits> AllOf16Bits() {
  std::vector<Bits> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TEST_P(KernelsFloatTest, EveryF16IsScaledByAPowerOfTwo) {
  for (const auto& [planned, exponent] :
       {std::pair{1, 0}, {2, -2}, {3, -3}, {4, -3}, {1000, -11}}) {
    std::vector<uint8_t> bytes = BytesOf(DType::kF16, AllOf16Bits());
    Prepare(DType::kF16, ReduceOp::kMean, bytes.data(), bytes.data(), 65536,
            static_cast<uint64_t>(planned), target());
    const std::vector<Bits> scaled = ElementsOf(DType::kF16, bytes);
    for (size_t i = 0; i < scaled.size(); ++i) {
      const double value = std::ldexp(ValueOf(DType::kF16, i), exponent);
      ASSERT_EQ(scaled[i], NearestTo(DType::kF16, value)) << i << " of " << planned;
    }
  }
}

TEST_P(KernelsFloatTest, EverySumOfF16IsDividedOnce) {
  for (const uint64_t sources : {1, 3, 5, 7}) {
    std::vector<uint8_t> bytes = BytesOf(DType::kF16, AllOf16Bits());
    Finish(DType::kF16, ReduceOp::kMean, bytes.data(), 65536, sources, 5, target());
    const std::vector<Bits> means = ElementsOf(DType::kF16, bytes);
    for (size_t i = 0; i < means.size(); ++i) {
      const double sum = ValueOf(DType::kF16, i);
      float mean = static_cast<float>(16 * sum) / static_cast<float>(sources);
      if (std::isfinite(sum)) mean = std::clamp(mean, -65504.0f, 65504.0f);
      ASSERT_EQ(means[i], NearestTo(DType::kF16, mean)) << i << " by " << sources;
    }
  }
}

TEST_P(KernelsFloatTest, EverySumOfTheOtherFloatsIsDividedOnce) {
  for (const DType dtype : {DType::kBf16, DType::kF32, DType::kF64}) {
    const auto sums = dtype == DType::kBf16 ? AllOf16Bits() : SpecialBits(dtype);
    for (const uint64_t sources : {1, 3, 10, 1000}) {
      std::vector<uint8_t> bytes = BytesOf(dtype, sums);
      Finish(dtype, ReduceOp::kMean, bytes.data(), sums.size(), sources, 7, target());
      const std::vector<Bits> means = ElementsOf(dtype, bytes);
      for (size_t i = 0; i < sums.size(); ++i) {
        const double sum = ValueOf(dtype, sums[i]);
        const float narrow = static_cast<float>(sum) / static_cast<float>(sources);
        const double mean = dtype == DType::kF64 ? sum / static_cast<double>(sources) : narrow;
        ASSERT_EQ(means[i], NearestTo(dtype, mean)) << DTypeName(dtype) << " " << sums[i];
      }
    }
  }
}

TEST_P(KernelsFloatTest, OnlyMeansOfF16ArePreparedAndOnlyMeansAreFinished) {
  for (const DType dtype : kAllDTypes) {
    const std::vector<uint8_t> source = BytesOf(dtype, SpecialBits(dtype));
    const uint64_t count = source.size() / ElementSize(dtype);
    for (const ReduceOp op : kAllReduceOps) {
      if (!CheckReducible(dtype, op).ok()) continue;
      const bool prepared = dtype == DType::kF16 && op == ReduceOp::kMean;
      EXPECT_EQ(NeedsPrepare(dtype, op), prepared);
      std::vector<uint8_t> copy(source.size());
      Prepare(dtype, op, copy.data(), source.data(), count, 9, target());
      EXPECT_EQ(copy == source, !prepared);
      if (op == ReduceOp::kMean) continue;
      Finish(dtype, op, copy.data(), count, 9, 9, target());
      EXPECT_EQ(copy, source);
    }
  }
}

TEST(KernelReferenceTest, AbortsOnWhatCheckReducibleRefuses) {
  int refused = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (CheckReducible(dtype, op).ok()) continue;
      ++refused;
      EXPECT_DEATH(FoldReference(dtype, op, 1, 2), "refuses this op")
          << DTypeName(dtype) << " " << ReduceOpName(op);
    }
  }
  EXPECT_EQ(refused, 4 * 3 + 7) << "bits of floats, means of integers";
}

}  // namespace
}  // namespace phalanx::collectives
