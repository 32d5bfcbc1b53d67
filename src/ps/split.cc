#include "src/ps/split.h"

#include <algorithm>

#include "src/common/check.h"

namespace phalanx::ps::internal {
namespace {

using Wide = unsigned __int128;

// Of the keys of a sparse table there are 2^64, which is one more than a Key can say.
Wide Count(uint64_t keys) { return keys == 0 ? Wide{1} << 64 : Wide{keys}; }

}  // namespace

// The end of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014), with Stafford's thirteenth set of constants: one to one, and each bit of the key
// changes each bit of the result with a chance near 1/2. It is part of what is saved (part.cc).
uint64_t MixKey(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

Splitter::Splitter(const TableSpec& spec, int parts)
    : split_(spec.split), keys_(spec.keys), block_(spec.block), parts_(parts) {
  PHALANX_CHECK(parts >= 1 && parts <= kMaxServers, "the parts of a table are 1 to kMaxServers");
  PHALANX_CHECK(split_ != Split::kBlocks || block_ > 0, "blocks have keys");
}

// The part of the first key of a group of a dense table.
uint64_t Splitter::FirstOf(uint64_t group) const { return MixKey(group) % parts_; }

int Splitter::PartOf(Key key) const {
  const auto parts = static_cast<uint64_t>(parts_);
  switch (split_) {
    case Split::kRange: {
      // The last part that begins at or before the key: p * keys / parts < key + 1.
      const Wide bound = (Wide{key} + 1) * parts - 1;
      // All 64-bit numbers: a division by 2^64.
      if (keys_ == 0) return static_cast<int>(bound >> 64);
      // A key beyond the last one is none of the table. It is given to the last part, which refuses
      // it.
      return static_cast<int>(std::min<Wide>(bound / keys_, parts - 1));
    }
    // A sparse table: the high bits of the hash, as a fraction of the parts. A dense one: a group
    // of `parts` consecutive keys has one key in each part, and the hash of the group says where
    // the first one is. So the parts differ by one key at most, and a key's place is its group.
    case Split::kHash:
      // A multiplication instead of a remainder: no division, and no part is favoured.
      if (keys_ == 0) return static_cast<int>((Wide{MixKey(key)} * parts) >> 64);
      return static_cast<int>((FirstOf(key / parts) + key % parts) % parts);
    case Split::kBlocks:
      return static_cast<int>(key / block_ % parts);
    case Split::kOwn:
      break;
  }
  PHALANX_CHECK(false, "only the program knows where a key of its own split is");
  return 0;
}

// Rounded down, as in PartOf: parts differ by one key at most, and the product needs 128 bits.
Key Splitter::Begin(int part) const {
  PHALANX_CHECK(split_ == Split::kRange, "only ranges have a first key");
  return static_cast<Key>(Count(keys_) * static_cast<uint64_t>(part) / parts_);
}

uint64_t Splitter::KeysOf(int part) const {
  PHALANX_CHECK(keys_ > 0, "only the keys of a part of a dense table can be counted");
  const auto parts = static_cast<uint64_t>(parts_);
  const auto number = static_cast<uint64_t>(part);
  switch (split_) {
    case Split::kRange:
      return (number + 1 == parts ? keys_ : Begin(part + 1)) - Begin(part);
    case Split::kHash: {
      // Whole groups have a key here each. The last one can be short: it has one if this part is
      // among the first of its keys.
      const uint64_t groups = keys_ / parts;
      const uint64_t offset = (number + parts - FirstOf(groups)) % parts;
      return groups + (offset < keys_ % parts ? 1 : 0);
    }
    case Split::kBlocks: {
      // The same with blocks, which go round the parts in turn; the last block can be short.
      const uint64_t blocks = keys_ / block_;
      const uint64_t whole = blocks / parts + (number < blocks % parts ? 1 : 0);
      return whole * block_ + (number == blocks % parts ? keys_ % block_ : 0);
    }
    case Split::kOwn:
      break;
  }
  return 0;
}

// Places of a part are dense, and grow with its keys: a run of keys in one part is mostly a run of
// places, which the loops over rows rely on.
uint64_t Splitter::PlaceOf(Key key) const {
  const auto parts = static_cast<uint64_t>(parts_);
  switch (split_) {
    case Split::kRange:
      return key - Begin(PartOf(key));
    case Split::kHash:
      return key / parts;
    case Split::kBlocks:
      return key / block_ / parts * block_ + key % block_;
    case Split::kOwn:
      break;
  }
  return 0;
}

Key Splitter::KeyAt(int part, uint64_t place) const {
  const auto parts = static_cast<uint64_t>(parts_);
  const auto number = static_cast<uint64_t>(part);
  switch (split_) {
    case Split::kRange:
      return Begin(part) + place;
    case Split::kHash:
      return place * parts + (number + parts - FirstOf(place)) % parts;
    case Split::kBlocks:
      return (place / block_ * parts + number) * block_ + place % block_;
    case Split::kOwn:
      break;
  }
  return 0;
}

std::vector<size_t> Splitter::Ends(absl::Span<const Key> keys) const {
  // One search for each part, and not one division for each key. The greatest key belongs to the
  // last part, which ends with the keys and not at a bound, as there is none behind it.
  std::vector<size_t> ends(parts_, keys.size());
  const Key* at = keys.begin();
  for (int part = 0; part + 1 < parts_; ++part) {
    at = std::lower_bound(at, keys.end(), Begin(part + 1));
    ends[part] = at - keys.begin();
  }
  return ends;
}

}  // namespace phalanx::ps::internal
