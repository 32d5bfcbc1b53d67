#include "src/ps/rows/length_values.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/io/wire.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TableSpec ASpec() { return {.name = "t", .width = 3, .lengths = true, .wire = DType::kBf16}; }

TEST(LengthValues, ComeBackAsTheyWere) {
  for (const std::vector<uint32_t>& lengths :
       {std::vector<uint32_t>{}, {0}, {3}, {1, 0, 3, 2}, std::vector<uint32_t>(1000, 0)}) {
    uint64_t elements = 0;
    for (const uint32_t length : lengths) elements += length;
    const std::string row(elements * 2, 'x');
    const std::string bytes = LengthsHead(lengths) + row;
    PHALANX_ASSERT_OK_AND_ASSIGN(const LengthValues values, ReadLengthValues(ASpec(), bytes));
    EXPECT_EQ(values.lengths, lengths);
    EXPECT_EQ(values.elements, row);
  }
  EXPECT_EQ(LengthRowBytes(ASpec(), 3), 10u);
}

TEST(LengthValues, ThatDoNotAddUpAreRefused) {
  const std::vector<uint32_t> lengths = {1, 0, 3};
  const std::string bytes = LengthsHead(lengths) + std::string(8, 'x');
  ASSERT_THAT(ReadLengthValues(ASpec(), bytes), ::phalanx::testing::IsOk());
  EXPECT_THAT(ReadLengthValues(ASpec(), bytes + "x"),
              StatusIs(kInvalid, HasSubstr("3 rows do not add up: they are 4 elements of 2 bytes, "
                                           "and there are 9 bytes")));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ReadLengthValues(ASpec(), bytes.substr(0, size)), StatusIs(kInvalid)) << size;
  }
  const std::vector<uint32_t> wide = {4};
  EXPECT_THAT(ReadLengthValues(ASpec(), LengthsHead(wide) + std::string(8, 'x')),
              StatusIs(kInvalid, HasSubstr("a row of length 4, the width is 3")));
}

// A count takes no memory that the bytes do not have.
TEST(LengthValues, WithAForgedCountAreRefused) {
  std::string bytes;
  ByteWriter(bytes).U32(~uint32_t{0});
  EXPECT_THAT(ReadLengthValues(ASpec(), bytes + "12345678"), StatusIs(kInvalid));
}

}  // namespace
}  // namespace phalanx::ps::internal
