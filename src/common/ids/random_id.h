// How an id that ObjectId::Random() drew is told apart from every other id.
//
//   bytes 0..15    drawn from the system's generator
//   bytes 16..19   a hash of them: the mark
//
// Programs put other bytes under a name again, never under an id that they drew: a node that is out
// of touch with the directory serves only drawn ids (docs/protocol.md, Delete). Any other id, also
// one that a program numbers itself, counts as a name. A name's id has the mark by chance once in
// 2^32.
//
// Pure functions, any thread.
#ifndef PHALANX_COMMON_IDS_RANDOM_ID_H_
#define PHALANX_COMMON_IDS_RANDOM_ID_H_

#include <array>
#include <cstdint>

#include "phalanx/object_id.h"

namespace phalanx {

// Returns the id of these drawn bytes.
ObjectId RandomIdOf(const std::array<uint8_t, 16>& drawn);

// Returns true if the id has the mark.
bool IsRandomId(const ObjectId& id);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_RANDOM_ID_H_
