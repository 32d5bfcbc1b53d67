#include "src/jobs/overlap/byte_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::jobs {

absl::Status ByteRanges::Add(ByteRange range) {
  if (range.from > size_ || range.bytes > size_ - range.from) {
    return absl::InvalidArgumentError(
        absl::StrCat(range.bytes, " bytes at ", range.from, " of ", size_));
  }
  if (range.bytes == 0) return absl::OkStatus();
  std::vector<ByteRange> ranges;
  for (const ByteRange& each : ranges_) {
    if (each.end() < range.from || range.end() < each.from) {
      ranges.push_back(each);
      continue;
    }
    const uint64_t end = std::max(each.end(), range.end());
    range.from = std::min(each.from, range.from);
    range.bytes = end - range.from;
  }
  if (ranges.size() >= kMaxByteRanges) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxByteRanges, " ranges of ", size_, " bytes"));
  }
  ranges.insert(std::find_if(ranges.begin(), ranges.end(),
                             [&](const ByteRange& each) { return each.from > range.from; }),
                range);
  ranges_ = std::move(ranges);
  return absl::OkStatus();
}

bool ByteRanges::Has(ByteRange range) const {
  if (range.bytes == 0) return true;
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const ByteRange& each) {
    return each.from <= range.from && range.end() <= each.end();
  });
}

std::vector<ByteRange> ByteRanges::Rest() const {
  std::vector<ByteRange> rest;
  uint64_t at = 0;
  for (const ByteRange& each : ranges_) {
    if (at < each.from) rest.push_back({at, each.from - at});
    at = each.end();
  }
  if (at < size_) rest.push_back({at, size_ - at});
  return rest;
}

}  // namespace phalanx::jobs
