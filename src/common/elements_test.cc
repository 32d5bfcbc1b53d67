#include "src/common/elements.h"

#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ElementsTest, EveryDTypeIsFoundByItsName) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_THAT(ParseDType(DTypeName(dtype)), IsOkAndHolds(dtype));
  }
}

TEST(ElementsTest, EveryOpIsFoundByItsName) {
  for (const ReduceOp op : kAllReduceOps) {
    EXPECT_THAT(ParseReduceOp(ReduceOpName(op)), IsOkAndHolds(op));
  }
}

TEST(ElementsTest, TheErrorForAnUnknownNameListsTheValidOnes) {
  EXPECT_THAT(ParseDType("float"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"float\""), HasSubstr("f16, bf16, f32, f64"))));
  EXPECT_THAT(ParseDType(""), StatusIs(kInvalid));
  EXPECT_THAT(ParseDType("F32"), StatusIs(kInvalid));
  EXPECT_THAT(ParseReduceOp("average"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"average\""), HasSubstr("bit-xor, mean"))));
  EXPECT_THAT(ParseReduceOp("unknown"), StatusIs(kInvalid));
}

TEST(ElementsTest, BitOpsNeedIntegersAndMeansNeedFloats) {
  for (const DType dtype : kAllDTypes) {
    const bool is_float = IsFloat(dtype);
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      EXPECT_EQ(CheckReducible(dtype, op).ok(), !is_float) << DTypeName(dtype);
    }
    EXPECT_EQ(CheckReducible(dtype, ReduceOp::kMean).ok(), is_float) << DTypeName(dtype);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
      EXPECT_THAT(CheckReducible(dtype, op), IsOk());
    }
  }
}

TEST(ElementsTest, ARefusalNamesOpAndDType) {
  EXPECT_THAT(CheckReducible(DType::kF16, ReduceOp::kBitXor),
              StatusIs(kInvalid, "no bit-xor of f16: bit ops need integers"));
  EXPECT_THAT(CheckReducible(DType::kI32, ReduceOp::kMean),
              StatusIs(kInvalid, "no mean of i32: a mean needs floats"));
}

TEST(ElementsTest, ANumberThatIsNoDTypeOrOpIsRefused) {
  EXPECT_THAT(CheckReducible(static_cast<DType>(kAllDTypes.size()), ReduceOp::kSum),
              StatusIs(kInvalid, HasSubstr("sum of unknown")));
  EXPECT_THAT(CheckReducible(static_cast<DType>(-1), ReduceOp::kSum), StatusIs(kInvalid));
  EXPECT_THAT(CheckReducible(DType::kF32, static_cast<ReduceOp>(kAllReduceOps.size())),
              StatusIs(kInvalid, HasSubstr("unknown of f32")));
}

TEST(ElementsTest, OnlyWholeElementsAreCounted) {
  for (const DType dtype : kAllDTypes) {
    const uint64_t size = ElementSize(dtype);
    EXPECT_THAT(CountElements(dtype, 0), IsOkAndHolds(0));
    EXPECT_THAT(CountElements(dtype, 7 * size), IsOkAndHolds(7));
    if (size == 1) continue;
    EXPECT_THAT(CountElements(dtype, 7 * size + 1), StatusIs(kInvalid, HasSubstr("whole number")));
    EXPECT_THAT(CountElements(dtype, 7 * size - 1), StatusIs(kInvalid));
  }
  EXPECT_THAT(CountElements(static_cast<DType>(200), 12), StatusIs(kInvalid));
  EXPECT_THAT(CountElements(DType::kF64, 12),
              StatusIs(kInvalid, "12 bytes are not a whole number of f64 elements of 8 bytes"));
}

TEST(ElementTypes, WithoutRunsHaveOneDType) {
  const ElementTypes f16 = DType::kF16;
  EXPECT_EQ(f16.Grain(), 2u);
  EXPECT_EQ(f16.Name(), "f16");
  EXPECT_THAT(CheckReducible(f16, ReduceOp::kMean), IsOk());
  EXPECT_THAT(CheckReducible(f16, ReduceOp::kBitOr), StatusIs(kInvalid));
  EXPECT_THAT(CheckWhole(f16, 6), IsOk());
  EXPECT_THAT(CheckWhole(f16, 7), StatusIs(kInvalid));
}

TEST(ElementTypes, EveryRunMustSupportTheOp) {
  const ElementTypes mixed(DType::kF64, {{128, DType::kF32}, {136, DType::kI64}});
  EXPECT_EQ(mixed, ElementTypes(DType::kI8, mixed.runs)) << "the dtype does not count";
  EXPECT_EQ(mixed.Grain(), kElementRunAlignment);
  EXPECT_EQ(mixed.Name(), "runs of f32, i64");
  EXPECT_THAT(CheckReducible(mixed, ReduceOp::kSum), IsOk());
  EXPECT_THAT(CheckReducible(mixed, ReduceOp::kMean), StatusIs(kInvalid, HasSubstr("mean of i64")));
  EXPECT_THAT(CheckReducible(mixed, ReduceOp::kBitOr), StatusIs(kInvalid, HasSubstr("of f32")));
}

TEST(ElementTypes, RunsEndTogetherWithTheObject) {
  const ElementTypes mixed(DType::kF32, {{128, DType::kF32}, {136, DType::kI64}});
  EXPECT_THAT(CheckWhole(mixed, 136), IsOk());
  for (const uint64_t bytes : {0, 64, 128, 144}) {
    EXPECT_THAT(CheckWhole(mixed, bytes), StatusIs(kInvalid, HasSubstr("end at byte 136")));
  }
}

TEST(ElementTypes, InvalidRunsAreRefused) {
  const auto check = [](std::vector<ElementRun> runs) {
    return CheckReducible(ElementTypes(DType::kF32, std::move(runs)), ReduceOp::kSum);
  };
  EXPECT_THAT(check({{0, DType::kF32}}), StatusIs(kInvalid, HasSubstr("from byte 0 to 0")));
  EXPECT_THAT(check({{60, DType::kF32}, {64, DType::kI8}}), StatusIs(kInvalid));
  EXPECT_THAT(check({{64, DType::kF32}, {64, DType::kI8}}), StatusIs(kInvalid));
  EXPECT_THAT(check({{128, DType::kF32}, {64, DType::kI8}}), StatusIs(kInvalid));
  EXPECT_THAT(check({{64, DType::kF32}, {67, DType::kI16}}),
              StatusIs(kInvalid, HasSubstr("whole")));
  EXPECT_THAT(check({{64, static_cast<DType>(kAllDTypes.size())}}), StatusIs(kInvalid));
  std::vector<ElementRun> many;
  for (uint64_t i = 1; i <= kMaxElementRuns; ++i) many.push_back({64 * i, DType::kI8});
  EXPECT_THAT(check(many), IsOk());
  many.push_back({1 << 20, DType::kI8});
  EXPECT_THAT(check(many), StatusIs(kInvalid, HasSubstr("65 runs")));
}

}  // namespace
}  // namespace phalanx
