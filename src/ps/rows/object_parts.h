// Object tables: dense tables whose parts are so large that all rows of a part travel as one
// object of the store, and not in messages.
//
// A table is one by its size alone, so servers and workers agree, and the bits of its values never
// depend on timing. AnyTable::PullDense uses objects; AnyTable::PushDense as well if PushesObjects.
// Pushes and pulls with keys are messages in any case.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_ROWS_OBJECT_PARTS_H_
#define PHALANX_PS_ROWS_OBJECT_PARTS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "phalanx/ps_table.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {

// The least part of an object table. A smaller one is in a message before an object of its size has
// been announced.
inline constexpr uint64_t kObjectPartBytes = uint64_t{64} << 10;

// The table is dense and travels in its own dtype, its keys are split by range or in blocks, and
// the part of each server has at least `least` bytes. `splitter` is that of the spec and the number
// of servers.
bool IsObjectTable(const TableSpec& spec, const Splitter& splitter,
                   uint64_t least = kObjectPartBytes);
// Its pushes of all rows are objects, too, which a reduction of the store sums for each clock: it
// is a kBsp table, its update is of sums (kAssign is not), and there are at most kMaxReduceSources
// workers.
bool PushesObjects(const TableSpec& spec, const Splitter& splitter, int workers,
                   uint64_t least = kObjectPartBytes);
// How many such pushes a worker can make in a clock, so that those of all are summed by one
// reduction. REQUIRES: 1 <= workers <= kMaxReduceSources.
uint64_t MaxClockObjects(int workers);

// Of the part of a server, as an object: its rows, in the order of their places.
// REQUIRES: the table is dense.
uint64_t ObjectPartBytes(const TableSpec& spec, const Splitter& splitter, int server);
// Copies the rows of a part from those of all keys, or to them.
// REQUIRES: IsObjectTable with some `least`; `part` has ObjectPartBytes.
void GatherPart(const TableSpec& spec, const Splitter& splitter, int server, const void* rows,
                void* part);
void ScatterPart(const TableSpec& spec, const Splitter& splitter, int server, const void* part,
                 void* rows);
// The same of these bytes of the part, which begin at any place of it.
void ScatterBytes(const TableSpec& spec, const Splitter& splitter, int server, uint64_t place,
                  absl::string_view bytes, void* rows);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_OBJECT_PARTS_H_
