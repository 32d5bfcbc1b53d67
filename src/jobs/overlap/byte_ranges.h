// ByteRanges: which bytes of an input or of a result are there already.
//
//   0         from   from + bytes                     size
//   |..........|#########|.......|####################|
//
// Owned by one thread at a time. Pure.
#ifndef PHALANX_JOBS_OVERLAP_BYTE_RANGES_H_
#define PHALANX_JOBS_OVERLAP_BYTE_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace phalanx::jobs {

// Adjacent ranges are one. An order of copies leaves two or three.
inline constexpr size_t kMaxByteRanges = 16;

struct ByteRange {
  uint64_t from = 0;
  uint64_t bytes = 0;
  uint64_t end() const { return from + bytes; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

class ByteRanges {
 public:
  explicit ByteRanges(uint64_t size) : size_(size) {}

  // The range is there. InvalidArgument, and nothing is changed, if it does not end within the size
  // or if there would be more than kMaxByteRanges.
  absl::Status Add(ByteRange range);
  bool Has(ByteRange range) const;
  // The bytes that are not there, ascending.
  std::vector<ByteRange> Rest() const;
  bool complete() const { return Has({0, size_}); }
  // Ascending and not adjacent.
  const std::vector<ByteRange>& ranges() const { return ranges_; }
  uint64_t size() const { return size_; }

 private:
  uint64_t size_;
  std::vector<ByteRange> ranges_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_OVERLAP_BYTE_RANGES_H_
