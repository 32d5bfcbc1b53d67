// The bytes of simulated writers: the byte at each offset of each attempt is a closed form, so a
// reader can check any bytes without a stored copy. Testonly.
//
// An attempt is one Put or one writer, numbered by the history. Two attempts at one object differ
// nearly everywhere. So do an attempt and the same attempt shifted by a byte.
#ifndef PHALANX_SIM_CLUSTER_CONTENT_H_
#define PHALANX_SIM_CLUSTER_CONTENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

namespace phalanx::sim {

// Writes the bytes [offset, offset + out.size()) of the attempt.
void FillContent(uint64_t attempt, uint64_t offset, absl::Span<char> out);
std::string ContentOf(uint64_t attempt, uint64_t size_bytes);

// Returns the offset within the object of the first byte that differs from the attempt; nullopt if
// none does.
std::optional<uint64_t> FirstWrongByte(uint64_t attempt, uint64_t offset,
                                       absl::Span<const char> bytes);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_CONTENT_H_
