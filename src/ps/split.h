// Splitter: which of a table's parts has a key. Part p is that of the server with rank p.
//
//   kRange   part p has the keys from floor(p * keys / parts) on; a sparse table has 2^64 keys
//   kBlocks  key k is in block k / block, and block b in part b mod parts
//   kHash    a sparse table: by the upper bits of MixKey(key). A dense one: each `parts`
//   consecutive
//            keys are a group, and go to all parts, one to each, from a part on that is MixKey of
//            the group's number. So a part has at most one key more than another.
//   kOwn     as the program of the workers says, for each key of a call: it is not known here
//
// For all but the last the place of a key of a dense table, and the key of a place, are computed,
// not looked up, and places have the order of keys.
//
// Pure; constant once made, and can be copied. Any thread.
#ifndef PHALANX_PS_SPLIT_H_
#define PHALANX_PS_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

// The finalizer of SplitMix64 (Stafford's variant 13), a bijection of 64-bit numbers. It is part of
// the format of snapshots, and servers and workers of all versions share it.
uint64_t MixKey(uint64_t key);

class Splitter {
 public:
  // REQUIRES: Check(spec) is OK, and 1 <= parts <= kMaxServers.
  Splitter(const TableSpec& spec, int parts);

  int parts() const { return parts_; }
  // A key that a dense table does not have is in some part, too: Part::CheckKeys refuses it.
  // REQUIRES: not kOwn.
  int PartOf(Key key) const;
  // Whether the key can be in the part. kOwn: every key can.
  bool CanHave(int part, Key key) const { return split_ == Split::kOwn || PartOf(key) == part; }
  // kRange: the first key of a part. That of part `parts` is not one: the last part has all further
  // keys, kMaxKey too (ps-lite drops the remainder of its division). REQUIRES: kRange, and
  // 0 <= part < parts.
  Key Begin(int part) const;
  // How many keys of a dense table a part has. REQUIRES: the table is dense.
  uint64_t KeysOf(int part) const;
  // The place of a key of a dense table among those of its part, in [0, KeysOf(PartOf(key))), in
  // the order of keys. REQUIRES: the table is dense and has the key.
  uint64_t PlaceOf(Key key) const;
  // The key of a place. REQUIRES: the table is dense, and place < KeysOf(part).
  Key KeyAt(int part, uint64_t place) const;

  // kRange: where the run of keys of each part ends, found by bisection: part p gets those from
  // Ends()[p - 1] to Ends()[p]. REQUIRES: kRange, and keys that increase.
  std::vector<size_t> Ends(absl::Span<const Key> keys) const;

 private:
  uint64_t FirstOf(uint64_t group) const;

  const enum Split split_;
  const uint64_t keys_;  // 0: sparse
  const uint64_t block_;
  const int parts_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SPLIT_H_
