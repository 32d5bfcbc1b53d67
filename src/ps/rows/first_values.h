// What a row has before its first push: the same bits in every life of a server, on every machine.
//
// Pure function; any thread.
#ifndef PHALANX_PS_ROWS_FIRST_VALUES_H_
#define PHALANX_PS_ROWS_FIRST_VALUES_H_

#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

// Writes spec.width elements to `out`, of any alignment. Element i is draw i of
// Random(MixKey(MixKey(seed) ^ key)) (xoshiro256**): uniform numbers with as many bits as the type
// holds, or normal ones by Marsaglia's polar method, two of each accepted point.
// REQUIRES: Check(spec) is OK.
void FirstValues(const TableSpec& spec, Key key, void* out);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_FIRST_VALUES_H_
