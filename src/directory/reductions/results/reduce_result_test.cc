#include "src/directory/reductions/results/reduce_result.h"

#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace phalanx::directory {
namespace {

ReduceSpec SpecOf(ElementTypes elements) {
  ReduceSpec spec;
  spec.elements = std::move(elements);
  spec.sources = {ObjectId::FromName("source", "1"), ObjectId::FromName("source", "2")};
  return spec;
}

std::string Ids(const ReduceSpec& spec) {
  std::string ids;
  for (const ObjectId& id : spec.sources) ids.append(id.binary().data(), ObjectId::kSize);
  return ids;
}

// Returns DifferenceOf for the request `asked` and a result of `made`, with an encoded and decoded
// record.
std::string Difference(const ReduceSpec& asked, const ReduceSpec& made) {
  const std::string bytes = ReduceRecord(made).Encode();
  const std::optional<ReduceRecord> record = ReduceRecord::Decode(bytes);
  if (!record.has_value()) return "no record";
  EXPECT_EQ(record->Encode(), bytes);
  return DifferenceOf(asked, &*record, Ids(made), 136);
}

TEST(ReduceRecord, RecordsTheElementTypes) {
  const ElementTypes mixed(DType::kF32, {{64, DType::kF32}, {136, DType::kI64}});
  const ElementTypes others[] = {
      DType::kF32,
      DType::kI64,
      ElementTypes(DType::kF32, {{128, DType::kF32}, {136, DType::kI64}}),
      ElementTypes(DType::kF32, {{64, DType::kF32}, {136, DType::kF64}}),
      ElementTypes(DType::kF32, {{136, DType::kF32}}),
  };
  EXPECT_EQ(Difference(SpecOf(mixed), SpecOf(mixed)), "");
  for (const ElementTypes& other : others) {
    SCOPED_TRACE(other.Name());
    EXPECT_EQ(Difference(SpecOf(other), SpecOf(other)), "");
    EXPECT_EQ(Difference(SpecOf(other), SpecOf(mixed)), "dtype");
    EXPECT_EQ(Difference(SpecOf(mixed), SpecOf(other)), "dtype");
  }
}

TEST(ReduceRecord, IsReadOfNothingElse) {
  const std::string plain = ReduceRecord(SpecOf(DType::kF32)).Encode();
  const std::string mixed =
      ReduceRecord(SpecOf(ElementTypes(DType::kF32, {{64, DType::kF32}, {72, DType::kI64}})))
          .Encode();
  EXPECT_TRUE(ReduceRecord::Decode(plain).has_value());
  EXPECT_TRUE(ReduceRecord::Decode(mixed).has_value());
  for (const std::string& bytes : {plain, mixed}) {
    EXPECT_FALSE(ReduceRecord::Decode(bytes.substr(1)).has_value());
    EXPECT_FALSE(ReduceRecord::Decode(bytes + "x").has_value());
  }
  EXPECT_FALSE(ReduceRecord::Decode(mixed.substr(0, plain.size())).has_value());
  EXPECT_FALSE(ReduceRecord::Decode("").has_value());
}

}  // namespace
}  // namespace phalanx::directory
