#include "src/ps/rows/object_parts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace phalanx::ps::internal {
namespace {

TableSpec SpecOf(uint64_t keys, uint32_t width = 1) {
  return {.name = "w", .keys = keys, .width = width};
}

bool IsOne(const TableSpec& spec, int servers, uint64_t least = kObjectPartBytes) {
  return IsObjectTable(spec, Splitter(spec, servers), least);
}

TEST(ObjectParts, ATableIsOneIfThePartOfEachServerIsLargeEnough) {
  // 64 KiB of f32 are 16,384 elements.
  EXPECT_TRUE(IsOne(SpecOf(16'384), 1));
  EXPECT_FALSE(IsOne(SpecOf(16'383), 1));
  EXPECT_TRUE(IsOne(SpecOf(4'096, 4), 1));
  EXPECT_TRUE(IsOne(SpecOf(3 * 16'384), 3));
  // The other two would have one key more than this part.
  EXPECT_FALSE(IsOne(SpecOf(3 * 16'384 - 1), 3));
  EXPECT_TRUE(IsOne(SpecOf(3), 3, 4));
  EXPECT_FALSE(IsOne(SpecOf(2), 3, 0));
}

TEST(ObjectParts, SparseHashedAndConvertedTablesAreNone) {
  EXPECT_FALSE(IsOne(SpecOf(0, 65'536), 1));
  TableSpec hashed = SpecOf(1 << 20);
  hashed.split = Split::kHash;
  EXPECT_FALSE(IsOne(hashed, 1));
  TableSpec half = SpecOf(1 << 20);
  half.wire = DType::kBf16;
  EXPECT_FALSE(IsOne(half, 1));
}

TEST(ObjectParts, OfBlocksTheShortestPartCounts) {
  TableSpec spec = SpecOf(4 * 16'384);
  spec.split = Split::kBlocks;
  spec.block = 16'384;
  EXPECT_TRUE(IsOne(spec, 4));
  EXPECT_FALSE(IsOne(spec, 5));
  spec.block = 16'385;
  EXPECT_FALSE(IsOne(spec, 4));
}

// Servers and workers ask the same function: one that pushed what the other refuses would stand
// still.
TEST(ObjectParts, PushesOfAllRowsAreOnesIfTheyAreSummed) {
  const auto pushes = [](const TableSpec& spec, int workers, uint64_t least = kObjectPartBytes) {
    return PushesObjects(spec, Splitter(spec, 1), workers, least);
  };
  TableSpec spec = SpecOf(16'384);
  EXPECT_TRUE(pushes(spec, 1));
  EXPECT_TRUE(pushes(spec, 16'384));
  EXPECT_FALSE(pushes(spec, 16'385));
  EXPECT_FALSE(pushes(spec, 1, kObjectPartBytes + 1));
  spec.update = Update::kAssign;
  EXPECT_FALSE(pushes(spec, 1));
  spec.update = Update::kAdagrad;
  EXPECT_TRUE(pushes(spec, 1));
  for (const Sync sync : {Sync::kSsp, Sync::kAsp}) {
    spec.sync = sync;
    EXPECT_FALSE(pushes(spec, 1));
  }
}

TEST(ObjectParts, AllPushesOfAClockAreSourcesOfOneReduction) {
  EXPECT_EQ(MaxClockObjects(1), 16'384u);
  EXPECT_EQ(MaxClockObjects(3), 5'461u);
  EXPECT_EQ(MaxClockObjects(16'384), 1u);
}

// Rows are numbered by their keys, so a part must have the keys of its places.
TEST(ObjectParts, PartsHaveTheRowsOfTheirKeysInOrder) {
  for (const Split split : {Split::kRange, Split::kBlocks}) {
    for (const uint64_t block : {1, 3, 7, 200}) {
      for (const int servers : {1, 2, 5}) {
        TableSpec spec = SpecOf(101, 2);
        spec.dtype = spec.wire = DType::kI64;
        spec.split = split;
        spec.block = split == Split::kBlocks ? block : 0;
        const Splitter splitter(spec, servers);
        std::vector<int64_t> rows(spec.keys * spec.width);
        std::iota(rows.begin(), rows.end(), 0);
        std::vector<int64_t> out(rows.size(), -1);
        uint64_t bytes = 0;
        for (int server = 0; server < servers; ++server) {
          bytes += ObjectPartBytes(spec, splitter, server);
          std::vector<int64_t> part(ObjectPartBytes(spec, splitter, server) / sizeof(int64_t));
          GatherPart(spec, splitter, server, rows.data(), part.data());
          for (size_t i = 0; i < part.size(); ++i) {
            const Key key = splitter.KeyAt(server, i / spec.width);
            ASSERT_EQ(part[i], static_cast<int64_t>(key * spec.width + i % spec.width));
          }
          ScatterPart(spec, splitter, server, part.data(), out.data());
        }
        EXPECT_EQ(bytes, rows.size() * sizeof(int64_t));
        EXPECT_EQ(out, rows);
      }
    }
  }
}

// In pieces of any size that begin anywhere it is the same as at once.
TEST(ObjectParts, BytesAreScatteredPieceByPiece) {
  TableSpec spec = SpecOf(50, 3);
  spec.split = Split::kBlocks;
  spec.block = 7;
  for (const int servers : {1, 3}) {
    const Splitter splitter(spec, servers);
    for (int server = 0; server < servers; ++server) {
      std::string part(ObjectPartBytes(spec, splitter, server), '\0');
      for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<char>(i * 7 + 1);
      std::string expected(50 * 3 * sizeof(float), '\0'), got = expected;
      ScatterPart(spec, splitter, server, part.data(), expected.data());
      for (size_t at = 0, size = 1; at < part.size(); at += size, size = size * 3 % 101 + 1) {
        ScatterBytes(spec, splitter, server, at, absl::string_view(part).substr(at, size),
                     got.data());
      }
      EXPECT_EQ(got, expected) << server << " of " << servers;
    }
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
