#include "src/common/io/wire.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(WireTest, IsLittleEndian) {
  std::string out;
  ByteWriter writer(out);
  writer.U16(0x0102);
  writer.U32(0x03040506);
  writer.Bytes("ab");
  EXPECT_EQ(out, std::string("\x02\x01\x06\x05\x04\x03\x02\x00\x00\x00"
                             "ab",
                             12));
}

TEST(WireTest, ReadsBackWrittenValues) {
  std::string out;
  ByteWriter writer(out);
  writer.U8(0xff);
  writer.U16(0xfffe);
  writer.U32(0xfffffffd);
  writer.U64(0xfffffffffffffffc);
  writer.Bytes("");
  writer.Bytes("phalanx");
  writer.Raw("!");
  ByteReader reader(out);
  EXPECT_EQ(reader.U8(), 0xff);
  EXPECT_EQ(reader.U16(), 0xfffe);
  EXPECT_EQ(reader.U32(), 0xfffffffd);
  EXPECT_EQ(reader.U64(), 0xfffffffffffffffc);
  EXPECT_EQ(reader.Bytes(0), "");
  EXPECT_EQ(reader.Bytes(7), "phalanx");
  EXPECT_EQ(reader.Raw(1), "!");
  EXPECT_THAT(reader.Finish(), IsOk());
}

TEST(WireTest, AfterTheFirstErrorEverythingIsZero) {
  ByteReader reader(absl::string_view("\x01\x02\x03", 3));
  EXPECT_EQ(reader.U8(), 1);
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_EQ(reader.U8(), 0) << "the two bytes left are not read";
  EXPECT_THAT(reader.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("at byte 1: needs 4 bytes, has 2")));
  reader.Fail("a later error");
  EXPECT_THAT(reader.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at byte 1")));
}

TEST(WireTest, RefusesALengthOverTheLimitAndBytesLeftOver) {
  std::string out;
  ByteWriter(out).Bytes("12345");
  ByteReader limited(out);
  EXPECT_EQ(limited.Bytes(4), "");
  EXPECT_THAT(limited.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("length 5 is over the limit of 4")));
  ByteReader partial(out);
  partial.U32();
  EXPECT_THAT(partial.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5 bytes too many")));
}

// For any input, a reader reads only inside the input and returns at most its size.
TEST(WireTest, SurvivesRandomBytes) {
  const uint64_t seed = testing::TestSeed();
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random.Below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Below(random.Chance(0.5) ? 4 : 256));
    ByteReader reader(bytes);
    size_t left = bytes.size();
    while (reader.ok()) {
      EXPECT_EQ(reader.remaining(), left);
      const size_t want = random.Below(8);
      const absl::string_view got = random.Chance(0.5) ? reader.Bytes(want) : reader.Raw(want);
      EXPECT_LE(got.size(), want);
      EXPECT_LE(reader.remaining(), left);
      left = reader.remaining();
      if (left == 0) break;
    }
  }
}

}  // namespace
}  // namespace phalanx
