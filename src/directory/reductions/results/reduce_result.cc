#include "src/directory/reductions/results/reduce_result.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"

namespace phalanx::directory {
namespace {

void Append(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Sets the two bits that every digest in a record has. Records were defined with them, and nodes
// keep records across restarts of shards.
Digest128 InRecord(const Digest128& digest) {
  return {digest.low | 1, digest.high | uint64_t{1} << 63};
}

Digest128 DigestOfIds(const std::vector<ObjectId>& ids) {
  std::string text;
  text.reserve(ids.size() * ObjectId::kSize);
  for (const ObjectId& id : ids) text.append(id.binary().data(), ObjectId::kSize);
  return InRecord(DigestOf(text));
}

std::optional<Digest128> DigestOfRuns(const std::vector<ElementRun>& runs) {
  if (runs.empty()) return std::nullopt;
  std::string text;
  for (const ElementRun& run : runs) {
    Append(run.end, 8, text);
    Append(static_cast<uint64_t>(run.dtype), 1, text);
  }
  return InRecord(DigestOf(text));
}

bool SameSources(const ReduceSpec& asked, const std::vector<ObjectId>& from) {
  if (asked.num_objects != 0 && from.size() != asked.num_objects) return false;
  const bool all = asked.num_objects == 0;
  // Other nodes can have added sources that this caller does not know.
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

// The record's bytes: a version of the encoding, dtype, op, a byte with order and open, then the
// integers, little-endian. Elements of several types add a hash of the runs.
constexpr size_t kEncodedBytes = 8 + 4 * 8;
constexpr size_t kHashBytes = 2 * 8;
constexpr char kEncoding = 1;
constexpr char kEncodingWithRuns = 2;

uint64_t Take(absl::string_view& bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  bytes.remove_prefix(count);
  return value;
}

// Returns true if `from` is a subsequence of the list.
bool InOrder(const std::vector<ObjectId>& list, const std::vector<ObjectId>& from) {
  // One pass over both lists: a result can have thousands of sources.
  auto at = list.begin();
  for (const ObjectId& id : from) {
    at = std::find(at, list.end(), id);
    if (at == list.end()) return false;
    ++at;
  }
  return true;
}

}  // namespace

std::vector<ObjectId> IdsIn(absl::string_view bytes) {
  std::vector<ObjectId> ids;
  for (; bytes.size() >= ObjectId::kSize; bytes.remove_prefix(ObjectId::kSize)) {
    ids.push_back(*ObjectId::FromBinary(bytes.substr(0, ObjectId::kSize)));
  }
  return ids;
}

ReduceRecord::ReduceRecord(const ReduceSpec& spec)
    : arguments(spec), sources(DigestOfIds(spec.sources)), runs(DigestOfRuns(spec.elements.runs)) {
  // The list can have thousands of ids, and the record travels with every copy of the result.
  arguments.sources = {};
  arguments.source_metadata = {};
  arguments.elements.runs = {};
}

std::string ReduceRecord::Encode() const {
  std::string out;
  out.push_back(runs.has_value() ? kEncodingWithRuns : kEncoding);
  out.push_back(static_cast<char>(arguments.elements.dtype));
  out.push_back(static_cast<char>(arguments.op));
  const bool fixed = arguments.order == ReduceSpec::Order::kFixed;
  const bool ring = arguments.order == ReduceSpec::Order::kRing;
  out.push_back(static_cast<char>((fixed ? 1 : 0) | (arguments.open ? 2 : 0) | (ring ? 4 : 0)));
  Append(arguments.num_objects, 4, out);
  for (const uint64_t value :
       {arguments.range_offset, arguments.range_bytes, sources.low, sources.high}) {
    Append(value, 8, out);
  }
  if (runs.has_value()) {
    Append(runs->low, 8, out);
    Append(runs->high, 8, out);
  }
  return out;
}

std::optional<ReduceRecord> ReduceRecord::Decode(absl::string_view bytes) {
  const bool plain = bytes.size() == kEncodedBytes && bytes[0] == kEncoding;
  const bool with_runs =
      bytes.size() == kEncodedBytes + kHashBytes && bytes[0] == kEncodingWithRuns;
  // A record of an unknown encoding is no record: the caller compares without one then.
  if (!plain && !with_runs) return std::nullopt;
  bytes.remove_prefix(1);
  const uint64_t dtype = Take(bytes, 1);
  const uint64_t op = Take(bytes, 1);
  const uint64_t flags = Take(bytes, 1);
  // The bytes come from a node and can have any values.
  if (dtype >= kAllDTypes.size() || op >= kAllReduceOps.size() || flags > 4) return std::nullopt;
  ReduceSpec arguments;
  arguments.elements = static_cast<DType>(dtype);
  arguments.op = static_cast<ReduceOp>(op);
  if ((flags & 1) != 0) arguments.order = ReduceSpec::Order::kFixed;
  if (flags == 4) arguments.order = ReduceSpec::Order::kRing;
  arguments.open = (flags & 2) != 0;
  arguments.num_objects = static_cast<uint32_t>(Take(bytes, 4));
  arguments.range_offset = Take(bytes, 8);
  arguments.range_bytes = Take(bytes, 8);
  ReduceRecord record(arguments);
  const uint64_t low = Take(bytes, 8);
  record.sources = InRecord({low, Take(bytes, 8)});
  if (with_runs) {
    const uint64_t low_of_runs = Take(bytes, 8);
    record.runs = InRecord({low_of_runs, Take(bytes, 8)});
  }
  return record;
}

std::string DifferenceOf(const ReduceSpec& asked, const ReduceRecord* made,
                         absl::string_view reduced_from, uint64_t size_bytes) {
  std::vector<absl::string_view> differ;
  const std::vector<ObjectId> from = IdsIn(reduced_from);
  if (made != nullptr) {
    const ReduceSpec& was = made->arguments;
    const bool same_types = was.elements.dtype == asked.elements.dtype &&
                            made->runs == DigestOfRuns(asked.elements.runs);
    if (!same_types) differ.push_back("dtype");
    if (was.op != asked.op) differ.push_back("op");
    if (was.order != asked.order) differ.push_back("order");
    if (was.num_objects != asked.num_objects) differ.push_back("number of objects");
    if (was.range_offset != asked.range_offset || was.range_bytes != asked.range_bytes) {
      differ.push_back("range");
    }
    // The caller of an open reduction knows only the sources that it added itself.
    const bool listed = asked.open || made->sources == DigestOfIds(asked.sources);
    if (!listed || was.open != asked.open || !SameSources(asked, from)) {
      differ.push_back("sources");
    }
    return absl::StrJoin(differ, ", ");
  }
  if (!CheckWhole(asked.elements, size_bytes).ok()) differ.push_back("dtype");
  if (asked.range_bytes != 0 && asked.range_bytes != size_bytes) differ.push_back("range");
  const bool same = SameSources(asked, from);
  if (!same) differ.push_back("sources");
  // An open list grows in the order of the Adds of all callers, which no single caller knows.
  const bool fixed = asked.order == ReduceSpec::Order::kFixed && !asked.open;
  if (same && fixed && !InOrder(asked.sources, from)) differ.push_back("order");
  return absl::StrJoin(differ, ", ");
}

}  // namespace phalanx::directory
