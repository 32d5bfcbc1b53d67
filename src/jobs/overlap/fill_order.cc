#include "src/jobs/overlap/fill_order.h"

#include <algorithm>

namespace phalanx::jobs {

FillOrder::FillOrder(CallKind kind, uint64_t bytes, int nodes, int node) {
  const bool ring = kind == CallKind::kAllReduce || kind == CallKind::kReduceScatter;
  const bool in_parts = ring || kind == CallKind::kAllToAll;
  const int parts = in_parts ? std::clamp(nodes, 1, kMaxFillParts) : 1;
  // The part with the bytes of this node.
  int first = in_parts && nodes > 0 ? static_cast<int>(int64_t{node} * parts / nodes) : 0;
  // A ReduceScatter ends with the part of this node, so it begins with the one before.
  if (kind == CallKind::kReduceScatter) first = (first + parts - 1) % parts;
  const auto at = [&](int part) {
    return bytes / static_cast<uint64_t>(parts) * static_cast<uint64_t>(part);
  };
  for (int i = parts - 1; i >= 0; --i) {
    const int part = (ring ? first + parts - i : first + i) % parts;
    const uint64_t end = part + 1 == parts ? bytes : at(part + 1);
    if (end > at(part)) parts_.push_back({at(part), end - at(part)});
  }
}

std::vector<ByteRange> FillOrder::Next() {
  std::vector<ByteRange> slice;
  uint64_t left = slice_;
  slice_ *= 2;
  while (left > 0 && !parts_.empty()) {
    ByteRange& part = parts_.back();
    const ByteRange taken{part.from, std::min(left, part.bytes)};
    left -= taken.bytes;
    part.from += taken.bytes;
    part.bytes -= taken.bytes;
    if (part.bytes == 0) parts_.pop_back();
    // Parts that go down touch the slice's last range from below.
    if (!slice.empty() && taken.end() == slice.back().from) {
      slice.back() = {taken.from, taken.bytes + slice.back().bytes};
    } else if (!slice.empty() && taken.from == slice.back().end()) {
      slice.back().bytes += taken.bytes;
    } else {
      slice.push_back(taken);
    }
  }
  return slice;
}

}  // namespace phalanx::jobs
