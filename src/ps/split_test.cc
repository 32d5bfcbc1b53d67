// Every key is in exactly one part, and places are a bijection in the order of keys.
#include "src/ps/split.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"

namespace phalanx::ps::internal {
namespace {

using ::testing::ElementsAre;

constexpr Key kMaxKey = ~Key{0};

TableSpec Spec(Split split, uint64_t keys, uint64_t block = 0) {
  TableSpec spec;
  spec.name = "t";
  spec.keys = keys;
  spec.split = split;
  spec.block = block;
  return spec;
}

// Specs of all kinds for a number of keys; 0: sparse.
std::vector<TableSpec> Specs(uint64_t keys) {
  std::vector<TableSpec> specs = {Spec(Split::kRange, keys), Spec(Split::kHash, keys)};
  for (const uint64_t block : {uint64_t{1}, uint64_t{3}, uint64_t{64}, kMaxKey}) {
    specs.push_back(Spec(Split::kBlocks, keys, block));
  }
  return specs;
}

std::string Name(const TableSpec& spec, int parts) {
  return absl::StrCat(SplitName(spec.split), " of ", spec.keys, " keys, block ", spec.block, ", ",
                      parts, " parts");
}

TEST(Split, EveryKeyOfADenseTableHasAPlaceOfItsOwnInTheOrderOfKeys) {
  for (const uint64_t keys : {1, 2, 3, 7, 64, 100, 1000}) {
    for (const int parts : {1, 2, 3, 4, 7, 16, 100, 999}) {
      for (const TableSpec& spec : Specs(keys)) {
        SCOPED_TRACE(Name(spec, parts));
        const Splitter splitter(spec, parts);
        std::vector<uint64_t> seen(parts, 0);
        for (Key key = 0; key < keys; ++key) {
          const int part = splitter.PartOf(key);
          ASSERT_GE(part, 0);
          ASSERT_LT(part, parts);
          // Dense, from 0, and growing with the keys.
          ASSERT_EQ(splitter.PlaceOf(key), seen[part]++) << key;
          ASSERT_EQ(splitter.KeyAt(part, splitter.PlaceOf(key)), key);
        }
        for (int part = 0; part < parts; ++part) ASSERT_EQ(splitter.KeysOf(part), seen[part]);
      }
    }
  }
}

TEST(Split, LargeDenseTables) {
  Random random(5);
  const uint64_t keys = (uint64_t{1} << 60) + 12345;
  for (const int parts : {1, 3, 4096}) {
    for (const TableSpec& spec : Specs(keys)) {
      SCOPED_TRACE(Name(spec, parts));
      const Splitter splitter(spec, parts);
      uint64_t sum = 0;
      for (int part = 0; part < parts; ++part) {
        const uint64_t count = splitter.KeysOf(part);
        sum += count;
        if (count == 0) continue;
        for (const uint64_t place : {uint64_t{0}, random.Below(count), count - 1}) {
          const Key key = splitter.KeyAt(part, place);
          ASSERT_LT(key, keys);
          ASSERT_EQ(splitter.PartOf(key), part);
          ASSERT_EQ(splitter.PlaceOf(key), place);
        }
      }
      EXPECT_EQ(sum, keys);
    }
  }
}

TEST(Split, OfTheProgramCanPutAnyKeyAnywhere) {
  const Splitter splitter(Spec(Split::kOwn, 0), 3);
  for (int part = 0; part < 3; ++part) EXPECT_TRUE(splitter.CanHave(part, kMaxKey));
  const Splitter ranges(Spec(Split::kRange, 0), 3);
  EXPECT_TRUE(ranges.CanHave(2, kMaxKey));
  EXPECT_FALSE(ranges.CanHave(1, kMaxKey));
}

TEST(Split, PartsOfRangesAndHashesAreEqual) {
  for (const uint64_t keys : {uint64_t{1000}, uint64_t{12345}}) {
    for (const int parts : {2, 3, 7, 64}) {
      for (const enum Split split : {Split::kRange, Split::kHash}) {
        const Splitter splitter(Spec(split, keys), parts);
        for (int part = 0; part < parts; ++part) {
          EXPECT_GE(splitter.KeysOf(part), keys / parts);
          EXPECT_LE(splitter.KeysOf(part), keys / parts + 1);
        }
      }
    }
  }
}

// ps-lite's last range drops the remainder of 2^64 / parts.
TEST(Split, RangesOfASparseTableHaveAllKeys) {
  for (int parts = 1; parts <= kMaxServers; parts = parts < 200 ? parts + 1 : parts * 2 + 1) {
    const Splitter splitter(Spec(Split::kRange, 0), parts);
    SCOPED_TRACE(parts);
    ASSERT_EQ(splitter.PartOf(kMaxKey), parts - 1);
    ASSERT_EQ(splitter.PartOf(0), 0);
    ASSERT_EQ(splitter.Begin(0), 0u);
    for (int part = 1; part < parts; ++part) {
      ASSERT_EQ(splitter.PartOf(splitter.Begin(part)), part);
      ASSERT_EQ(splitter.PartOf(splitter.Begin(part) - 1), part - 1);
    }
  }
}

TEST(Split, EmptyRangesOfFewKeys) {
  const Splitter splitter(Spec(Split::kRange, 2), 4);
  EXPECT_EQ(splitter.KeysOf(0) + splitter.KeysOf(1) + splitter.KeysOf(2) + splitter.KeysOf(3), 2u);
  EXPECT_EQ(splitter.PartOf(0), 1);
  EXPECT_EQ(splitter.PartOf(1), 3);
  EXPECT_THAT(splitter.Ends({0, 1}), ElementsAre(0, 1, 1, 2));
}

TEST(Split, AnyKeyOfASparseTableHasAPart) {
  Random random(3);
  for (const int parts : {1, 2, 3, 5, 4096}) {
    for (const TableSpec& spec : Specs(0)) {
      const Splitter splitter(spec, parts);
      for (int i = 0; i < 1000; ++i) {
        const Key key = i == 0 ? kMaxKey : random.Next() >> random.Below(64);
        const int part = splitter.PartOf(key);
        ASSERT_GE(part, 0) << Name(spec, parts);
        ASSERT_LT(part, parts) << Name(spec, parts);
      }
    }
  }
}

// A worker asks before a server refuses it.
TEST(Split, AKeyThatADenseTableDoesNotHaveHasAPartToo) {
  for (const TableSpec& spec : Specs(100)) {
    const Splitter splitter(spec, 3);
    for (const Key key : {Key{100}, Key{1} << 63, kMaxKey}) {
      EXPECT_GE(splitter.PartOf(key), 0);
      EXPECT_LT(splitter.PartOf(key), 3);
    }
  }
}

TEST(Split, HashesSpreadNeighboursAndStrides) {
  for (const uint64_t keys : {uint64_t{0}, uint64_t{1} << 40}) {
    for (const uint64_t stride : {1, 8, 64, 1000}) {
      const Splitter splitter(Spec(Split::kHash, keys), 8);
      std::vector<int> count(8, 0);
      for (Key key = 0; key < 8000; ++key) ++count[splitter.PartOf(key * stride)];
      for (const int of_part : count) {
        EXPECT_GT(of_part, 850) << stride;
        EXPECT_LT(of_part, 1150) << stride;
      }
    }
  }
}

// Snapshots of one version are read by the next one.
TEST(Split, MixKeyIsFixed) {
  EXPECT_EQ(MixKey(0), 0u);
  // The first output of SplitMix64 from state 0, and from 1.
  EXPECT_EQ(MixKey(0x9e3779b97f4a7c15), 0xe220a8397b1dcdafu);
  EXPECT_EQ(MixKey(0x9e3779b97f4a7c16), 0x910a2dec89025cc1u);
}

TEST(Split, RunsOfRangesAgreeWithParts) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const uint64_t keys = random.Chance(0.5) ? 0 : 1 + random.Below(5000);
    const int parts = 1 + static_cast<int>(random.Below(9));
    std::set<Key> chosen;
    for (uint64_t i = random.Below(300); i > 0; --i) {
      chosen.insert(keys > 0 ? random.Below(keys) : random.Next());
    }
    const std::vector<Key> list(chosen.begin(), chosen.end());
    const Splitter splitter(Spec(Split::kRange, keys), parts);
    const std::vector<size_t> ends = splitter.Ends(list);
    size_t at = 0;
    for (int part = 0; part < parts; ++part) {
      for (; at < ends[part]; ++at) EXPECT_EQ(splitter.PartOf(list[at]), part) << list[at];
    }
    EXPECT_EQ(at, list.size());
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
