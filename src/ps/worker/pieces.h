// Pieces: the keys of a push or pull, cut by server and by the size of an entry, and the rows that
// belong to them.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_WORKER_PIECES_H_
#define PHALANX_PS_WORKER_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/ps/key_lists.h"
#include "src/ps/ps_wire.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {

// Strictly increasing keys.
struct PieceKeys {
  uint64_t count = 0;
  Key begin = 0;  // of a run
  KeyList list;   // null: a run of consecutive keys

  // Of memory.
  size_t bytes() const { return list == nullptr ? 0 : count * sizeof(Key); }
};

// What one entry has of a call.
struct Piece {
  int server = 0;
  PieceKeys keys;
  // Which rows of the call these are: `rows`, or if it is empty, keys.count from `first` on.
  uint64_t first = 0;
  std::vector<uint32_t> rows;
};

// In the order of servers, and of keys for each. An entry with a piece is at most kMaxEntryBytes.
// `servers`, with Split::kOwn: the server of each key; REQUIRES: there are these servers.
std::vector<Piece> Cut(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
                       absl::Span<const int32_t> servers = {});

// As ToWire of ps_wire.h. If the channel has the list already, `keys` shares it from now on.
WireKeys ToWire(uint32_t table, PieceKeys& keys, KeyLists& lists);

// Of the table's wire type.
uint64_t WireRowBytes(const TableSpec& spec);
// The piece's rows of `values`, which are all rows of the call, as they travel.
std::string GatherRows(const TableSpec& spec, const Piece& piece, const void* values);
// The reverse. REQUIRES: `wire` has piece.keys.count rows.
void ScatterRows(const TableSpec& spec, const Piece& piece, absl::string_view wire, void* out);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_PIECES_H_
