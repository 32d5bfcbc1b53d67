#include "src/directory/reduce_result.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "src/common/version.h"
#include "xxhash.h"

namespace phalanx::directory {
namespace {

Generation HashOf(const std::vector<ObjectId>& ids) {
  std::string text;
  text.reserve(ids.size() * ObjectId::kSize);
  for (const ObjectId& id : ids) text.append(id.binary().data(), ObjectId::kSize);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return VersionOfHash(hash.low64, hash.high64);
}

std::vector<ObjectId> IdsIn(absl::string_view bytes) {
  std::vector<ObjectId> ids;
  for (; bytes.size() >= ObjectId::kSize; bytes.remove_prefix(ObjectId::kSize)) {
    ids.push_back(*ObjectId::FromBinary(bytes.substr(0, ObjectId::kSize)));
  }
  return ids;
}

bool SameSources(const ReduceSpec& asked, const std::vector<ObjectId>& from) {
  if (asked.num_objects != 0 && from.size() != asked.num_objects) return false;
  const bool all = asked.num_objects == 0;
  // To an open one more may have been added than who asks knows of.
  if (asked.open) {
    if (!all) return true;
    const absl::flat_hash_set<ObjectId> went_in(from.begin(), from.end());
    return std::all_of(asked.sources.begin(), asked.sources.end(),
                       [&went_in](const ObjectId& id) { return went_in.contains(id); });
  }
  if (all && from.size() != asked.sources.size()) return false;
  const absl::flat_hash_set<ObjectId> listed(asked.sources.begin(), asked.sources.end());
  return std::all_of(from.begin(), from.end(),
                     [&listed](const ObjectId& id) { return listed.contains(id); });
}

// They went in as they stand in the list.
bool InOrder(const std::vector<ObjectId>& list, const std::vector<ObjectId>& from) {
  auto at = list.begin();
  for (const ObjectId& id : from) {
    at = std::find(at, list.end(), id);
    if (at == list.end()) return false;
    ++at;
  }
  return true;
}

}  // namespace

ReduceRecord::ReduceRecord(const ReduceSpec& spec)
    : arguments(spec), sources(HashOf(spec.sources)) {
  arguments.sources.clear();
  arguments.sources.shrink_to_fit();
}

std::string DifferenceOf(const ReduceSpec& asked, const ReduceRecord* made,
                         absl::string_view reduced_from, uint64_t size_bytes) {
  std::vector<absl::string_view> differ;
  const std::vector<ObjectId> from = IdsIn(reduced_from);
  if (made != nullptr) {
    const ReduceSpec& was = made->arguments;
    if (was.dtype != asked.dtype) differ.push_back("dtype");
    if (was.op != asked.op) differ.push_back("op");
    if (was.order != asked.order) differ.push_back("order");
    if (was.num_objects != asked.num_objects) differ.push_back("number of objects");
    if (was.range_offset != asked.range_offset || was.range_bytes != asked.range_bytes) {
      differ.push_back("range");
    }
    const bool listed = asked.open || made->sources == HashOf(asked.sources);
    if (!listed || was.open != asked.open || !SameSources(asked, from)) {
      differ.push_back("sources");
    }
    return absl::StrJoin(differ, ", ");
  }
  if (size_bytes % ElementSize(asked.dtype) != 0) differ.push_back("dtype");
  if (asked.range_bytes != 0 && asked.range_bytes != size_bytes) differ.push_back("range");
  const bool same = SameSources(asked, from);
  if (!same) differ.push_back("sources");
  const bool fixed = asked.order == ReduceSpec::Order::kFixed && !asked.open;
  if (same && fixed && !InOrder(asked.sources, from)) differ.push_back("order");
  return absl::StrJoin(differ, ", ");
}

}  // namespace phalanx::directory
