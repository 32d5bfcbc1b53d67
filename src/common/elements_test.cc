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

TEST(ElementsTest, AnUnknownNameIsRefusedWithWhatThereIs) {
  EXPECT_THAT(ParseDType("float"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"float\""), HasSubstr("f16, bf16, f32, f64"))));
  EXPECT_THAT(ParseDType(""), StatusIs(kInvalid));
  EXPECT_THAT(ParseDType("F32"), StatusIs(kInvalid));
  EXPECT_THAT(ParseReduceOp("average"),
              StatusIs(kInvalid, AllOf(HasSubstr("\"average\""), HasSubstr("bit-xor, mean"))));
  EXPECT_THAT(ParseReduceOp("unknown"), StatusIs(kInvalid));
}

TEST(ElementsTest, BitsAreForIntegersAndMeansForFloats) {
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
              StatusIs(kInvalid, "no bit-xor of f16: bits are for integers"));
  EXPECT_THAT(CheckReducible(DType::kI32, ReduceOp::kMean),
              StatusIs(kInvalid, "no mean of i32: a mean is for floats"));
}

TEST(ElementsTest, ANumberThatIsNoDTypeOrOpIsRefused) {
  EXPECT_THAT(CheckReducible(static_cast<DType>(11), ReduceOp::kSum),
              StatusIs(kInvalid, HasSubstr("sum of unknown")));
  EXPECT_THAT(CheckReducible(static_cast<DType>(-1), ReduceOp::kSum), StatusIs(kInvalid));
  EXPECT_THAT(CheckReducible(DType::kF32, static_cast<ReduceOp>(8)),
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
              StatusIs(kInvalid, "12 bytes are no whole number of f64, which have 8 bytes each"));
}

}  // namespace
}  // namespace phalanx
