// Pieces: the keys of a push or pull, cut by server and by the size of an entry, and the rows that
// belong to them.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_WORKER_PIECES_H_
#define PHALANX_PS_WORKER_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
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
  uint32_t number = 0;  // of the pieces of the server
  PieceKeys keys;
  // Which rows of the call these are: `rows`, or if it is empty, keys.count from `first` on.
  uint64_t first = 0;
  std::vector<uint32_t> rows;
};

// Cuts the keys of a call, piece by piece, so that the first ones are sent before the last ones are
// cut. The pieces of each server have the order of keys, and are the same whenever the same keys
// are cut; those of several servers come in turn. An entry with a piece is at most kMaxEntryBytes.
class Cutter {
 public:
  // What a server's end of the channel has.
  using ListsOf = absl::FunctionRef<const KeyLists&(int server)>;

  // `keys` increase strictly, and are there as long as the cutter. Keys and values of a piece have
  // at most `most` bytes together, or are one row. `owners`, with Split::kOwn: the server of each
  // key, there as long; REQUIRES: there are these servers.
  Cutter(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
         uint64_t most = kBatchBytes, absl::Span<const int32_t> owners = {});
  // Nothing: there are no more keys. A list that a channel has is shared, not copied.
  std::optional<Piece> Next(uint32_t table, ListsOf lists);

 private:
  // What is left for a server: kRange, or one server: `keys`, from the row `first` of the call on.
  // Else keys are gathered until they are a piece.
  struct OfServer {
    absl::Span<const Key> keys = {};
    uint64_t first = 0;
    uint64_t most = 0;  // keys of a piece
    std::vector<Key> gathered = {};
    std::vector<uint32_t> rows = {};
    uint32_t pieces = 0;
  };

  Piece FromRange(int server, uint32_t table, const KeyLists& lists);
  Piece FromGathered(int server, uint32_t table, const KeyLists& lists);

  Splitter splitter_;
  absl::Span<const Key> keys_;
  absl::Span<const int32_t> owners_;
  bool ranges_;
  std::vector<OfServer> servers_;
  size_t next_ = 0;  // ranges: the server of the next piece; else the next key
};

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
