// ResultParts: when a member is shown the part of a large result that is final already. It copies
// that while the nodes pass the rest.
//
//   |###### shown ######|## final ##|............ not final ............|
//                       |<------ a third of this, at most 2 MiB -------->|
//
// So little is left to be copied after the end of the call, and no copy is so long that the node of
// a busy host waits for the core. There are not many parts, since each one wakes the member.
//
// A value; one thread at a time. Pure.
#ifndef PHALANX_JOBS_OVERLAP_RESULT_PARTS_H_
#define PHALANX_JOBS_OVERLAP_RESULT_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/jobs/overlap/byte_ranges.h"

namespace phalanx::jobs {

// Results of fewer bytes are shown as a whole.
inline constexpr uint64_t kShownEarlyBytes = 512 << 10;
inline constexpr uint64_t kLeastPartBytes = 256 << 10;
inline constexpr uint64_t kFullPartBytes = uint64_t{2} << 20;

class ResultParts {
 public:
  // Of a result, or of several in one memory.
  explicit ResultParts(uint64_t bytes = 0) : hidden_(bytes >= kShownEarlyBytes ? bytes : 0) {}

  // The ranges are final. REQUIRES: they were not before.
  void Add(const std::vector<ByteRange>& ranges) {
    if (hidden_ == 0) return;
    for (const ByteRange& range : ranges) {
      final_bytes_ += range.bytes;
      if (!final_.empty() && final_.back().end() == range.from) {
        final_.back().bytes += range.bytes;
      } else {
        final_.push_back(range);
      }
    }
  }
  // Returns what is to be shown now; nothing if there is too little of it, or if the call ends.
  std::vector<ByteRange> Take() {
    const uint64_t wanted = std::clamp(hidden_ / 3, kLeastPartBytes, kFullPartBytes);
    if (final_bytes_ < wanted || final_bytes_ >= hidden_) return {};
    hidden_ -= std::exchange(final_bytes_, 0);
    return std::exchange(final_, {});
  }

 private:
  uint64_t hidden_;
  uint64_t final_bytes_ = 0;
  std::vector<ByteRange> final_;  // not shown yet; no more than the plan has steps
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_OVERLAP_RESULT_PARTS_H_
