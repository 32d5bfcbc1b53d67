// What simulated writers write: the byte at each offset of each attempt is a closed form, so that
// whoever sees bytes can tell whether they are right without anybody keeping them. Testonly.
//
// An attempt is one Put or one writer, numbered by the history. Attempts at the same object differ
// nearly everywhere, and so does an attempt from itself when it is shifted by a byte.
#ifndef PHALANX_SIM_CONTENT_H_
#define PHALANX_SIM_CONTENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace phalanx::sim {

// Writes the bytes [offset, offset + out.size()) of the attempt.
void FillContent(uint64_t attempt, uint64_t offset, absl::Span<char> out);
std::string ContentOf(uint64_t attempt, uint64_t size_bytes);

// The offset within the object of the first byte that is not the attempt's; none if all are.
std::optional<uint64_t> FirstWrongByte(uint64_t attempt, uint64_t offset,
                                       absl::Span<const char> bytes);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CONTENT_H_
