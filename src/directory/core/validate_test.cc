#include "src/directory/core/validate.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

v1::ObjectInfo Info(uint64_t size, uint32_t slices) {
  v1::ObjectInfo info;
  info.set_size_bytes(size);
  info.set_slices(slices);
  return info;
}

TEST(ValidateTest, AnObjectIdHas20BytesAndNamesSomething) {
  const std::string bytes(20, 'a');
  EXPECT_THAT(ParseObjectId(bytes), IsOkAndHolds(*ObjectId::FromBinary(bytes)));
  EXPECT_THAT(ParseObjectId(""), StatusIs(kInvalid, HasSubstr("object_id")));
  EXPECT_THAT(ParseObjectId(std::string(19, 'a')), StatusIs(kInvalid));
  EXPECT_THAT(ParseObjectId(std::string(21, 'a')), StatusIs(kInvalid));
  EXPECT_THAT(ParseObjectId(std::string(20, '\0')), StatusIs(kInvalid, HasSubstr("nil")));
}

TEST(ValidateTest, AGenerationHasACreatorAndASequence) {
  v1::Generation generation;
  EXPECT_THAT(ParseGeneration(generation), StatusIs(kInvalid, HasSubstr("creator")));
  generation.mutable_creator()->set_node(7);
  EXPECT_THAT(ParseGeneration(generation), StatusIs(kInvalid, HasSubstr("sequence")));
  generation.set_sequence(3);
  EXPECT_THAT(ParseGeneration(generation), IsOkAndHolds(Generation{{7, 0}, 3}));
}

TEST(ValidateTest, AnObjectIsAtMostAsLargeAsTheProtocolAllows) {
  EXPECT_THAT(ParseObjectInfo(Info(kMaxObjectBytes, 1)), IsOk());
  EXPECT_THAT(ParseObjectInfo(Info(kMaxObjectBytes + 1, 1)),
              StatusIs(kInvalid, HasSubstr("size_bytes")));
  EXPECT_THAT(ParseObjectInfo(Info(0, 1)), IsOk());
}

TEST(ValidateTest, AnObjectHasOneTo64Slices) {
  EXPECT_THAT(ParseObjectInfo(Info(100, 0)), StatusIs(kInvalid, HasSubstr("slices")));
  EXPECT_THAT(ParseObjectInfo(Info(100, 64)), IsOk());
  EXPECT_THAT(ParseObjectInfo(Info(100, 65)), StatusIs(kInvalid));
}

TEST(ValidateTest, ATimeToLiveIsAtMostAHundredYears) {
  v1::ObjectInfo info = Info(1, 1);
  EXPECT_EQ(ParseObjectInfo(info)->ttl, absl::InfiniteDuration());
  for (const absl::Duration ttl : {absl::Nanoseconds(1), absl::Seconds(5), kMaxTtl}) {
    SetTtl(ttl, &info);
    EXPECT_EQ(ParseObjectInfo(info)->ttl, ttl);
    EXPECT_EQ(TtlOf(info), ttl);
  }
  for (const uint64_t ttl_ns : {info.ttl_ns() + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    info.set_ttl_ns(ttl_ns);
    EXPECT_THAT(ParseObjectInfo(info), StatusIs(kInvalid, HasSubstr("ttl_ns")));
    EXPECT_EQ(TtlOf(info), absl::InfiniteDuration());
  }
  // 0 would be no limit.
  SetTtl(-absl::Seconds(1), &info);
  EXPECT_EQ(info.ttl_ns(), 1u);
}

TEST(ValidateTest, MetadataHasAtMost4KiB) {
  v1::ObjectInfo info = Info(1, 1);
  info.set_metadata(std::string(kMaxMetadataBytes, 'm'));
  EXPECT_THAT(ParseObjectInfo(info), IsOk());
  info.mutable_metadata()->push_back('m');
  EXPECT_THAT(ParseObjectInfo(info), StatusIs(kInvalid, HasSubstr("metadata")));
}

TEST(ValidateTest, ReducedArgumentsHaveAtMost64Bytes) {
  v1::ObjectInfo info = Info(1, 1);
  info.set_asked_for(std::string(kMaxAskedForBytes, 'a'));
  EXPECT_THAT(ParseObjectInfo(info), IsOk());
  info.mutable_asked_for()->push_back('a');
  EXPECT_THAT(ParseObjectInfo(info), StatusIs(kInvalid, HasSubstr("asked_for")));
}

TEST(ValidateTest, ANameIsBoundedPrintableUtf8) {
  v1::ObjectInfo info = Info(1, 1);
  EXPECT_TRUE(ParseObjectInfo(info)->name.empty());
  info.mutable_name()->set_name_space("default");
  info.mutable_name()->set_name(std::string(kMaxObjectNameBytes, 'n'));
  ASSERT_THAT(ParseObjectInfo(info), IsOk());
  EXPECT_EQ(ParseObjectInfo(info)->name.size(), kMaxObjectNameBytes + 7);
  v1::ObjectInfo back;
  ToProto(*ParseObjectInfo(info), &back);
  EXPECT_EQ(back.name().name(), info.name().name());
  for (const std::string& bad : {std::string(kMaxObjectNameBytes + 1, 'n'), std::string(),
                                 std::string("a\x1b[2J"), std::string("\xff")}) {
    info.mutable_name()->set_name(bad);
    EXPECT_THAT(ParseObjectInfo(info), StatusIs(kInvalid, HasSubstr("name"))) << bad.size();
  }
}

TEST(ValidateTest, ANameIsNoPartOfTheIdentityOfAGeneration) {
  ObjectInfo named{1, 1, ""};
  named.name = ObjectName::Of("default", "n");
  EXPECT_EQ(named, (ObjectInfo{1, 1, ""}));
}

TEST(ValidateTest, InlineBytesAreTheWholeOfACompleteSmallObject) {
  EXPECT_THAT(ValidateInline(3, true, true, "abc"), IsOk());
  EXPECT_THAT(ValidateInline(0, true, true, ""), IsOk());
  EXPECT_THAT(ValidateInline(3, false, false, ""), IsOk());
  EXPECT_THAT(ValidateInline(4, true, true, "abc"), StatusIs(kInvalid, HasSubstr("of 4")));
  EXPECT_THAT(ValidateInline(3, false, true, "abc"), StatusIs(kInvalid, HasSubstr("complete")));
  EXPECT_THAT(ValidateInline(3, true, false, "abc"), StatusIs(kInvalid));
  const std::string large(kMaxInlineBytes + 1, 'x');
  EXPECT_THAT(ValidateInline(large.size(), true, true, large), StatusIs(kInvalid));
}

TEST(ValidateTest, EachWatermarkLiesWithinItsSlice) {
  const ObjectInfo info{256, 2, ""};
  EXPECT_THAT(ValidateWatermarks(info, {}), IsOk());
  EXPECT_THAT(ValidateWatermarks(info, {128, 128}), IsOk());
  EXPECT_THAT(ValidateWatermarks(info, {129, 0}), StatusIs(kInvalid, HasSubstr("slice 0")));
  EXPECT_THAT(ValidateWatermarks(info, {128}), StatusIs(kInvalid));
  EXPECT_THAT(ValidateWatermarkCount(std::vector<uint64_t>(65, 0)), StatusIs(kInvalid));
  EXPECT_THAT(ValidateWatermarkCount({~uint64_t{0}}), StatusIs(kInvalid));
}

TEST(ValidateTest, AWrittenValueIsReadBack) {
  const Generation generation{{7, 8}, 9};
  v1::Generation wire;
  ToProto(generation, &wire);
  EXPECT_EQ(FromProto(wire), generation);
  const ObjectInfo info{10, 2, "shape"};
  v1::ObjectInfo wire_info;
  ToProto(info, &wire_info);
  EXPECT_THAT(ParseObjectInfo(wire_info), IsOkAndHolds(info));
}

TEST(ValidateTest, AMeasurementThatCannotBeIsNone) {
  EXPECT_EQ(UsableRate(1e9), 1e9);
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan(""), -1.0, 1e16}) {
    EXPECT_EQ(UsableRate(bad), 0) << bad;
  }
  EXPECT_EQ(UsableLatency(1000), absl::Microseconds(1));
  EXPECT_EQ(UsableLatency(~uint64_t{0}), absl::ZeroDuration());
}

}  // namespace
}  // namespace phalanx::directory
