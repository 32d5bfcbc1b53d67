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
#include "absl/status/status.h"
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
  // at most `most` bytes together (and 4 with lengths), or are one row. `owners`, with Split::kOwn:
  // the server of each key, there as long; REQUIRES: there are these servers. `lengths`, of what is
  // pushed with TableSpec::lengths: as keys, and there as long. A pull knows of no lengths.
  Cutter(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
         uint64_t most = kBatchBytes, absl::Span<const int32_t> owners = {},
         absl::Span<const uint32_t> lengths = {});
  // Nothing: there are no more keys. A list that a channel has is shared, not copied.
  std::optional<Piece> Next(uint32_t table, ListsOf lists);

 private:
  // What is left for a server: kRange, or one server: `keys`, from the row `first` of the call on.
  // Else keys are gathered until they are a piece.
  struct OfServer {
    absl::Span<const Key> keys = {};
    uint64_t first = 0;
    uint64_t most = 0;  // keys of a piece, unless rows have lengths
    std::vector<Key> gathered = {};
    uint64_t bytes = 0;  // of what is gathered, if rows have lengths
    std::vector<uint32_t> rows = {};
    uint32_t pieces = 0;
  };

  // Of a row with its key.
  uint64_t BytesOf(uint64_t row) const;
  // It has what was gathered, and not this row.
  bool IsFull(const OfServer& server, uint64_t row) const;
  // Keys of the next piece of a range.
  uint64_t CountFrom(const OfServer& server) const;
  Piece FromRange(int server, uint32_t table, const KeyLists& lists);
  Piece FromGathered(int server, uint32_t table, const KeyLists& lists);

  const TableSpec& spec_;
  Splitter splitter_;
  absl::Span<const Key> keys_;
  uint64_t most_;
  absl::Span<const int32_t> owners_;
  absl::Span<const uint32_t> lengths_;
  bool ranges_;
  std::vector<OfServer> servers_;
  size_t next_ = 0;  // ranges: the server of the next piece; else the next key
};

// As ToWire of ps_wire.h. If the channel has the list already, `keys` shares it from now on.
WireKeys ToWire(uint32_t table, PieceKeys& keys, KeyLists& lists);

// The piece's rows of `values`, which are all rows of the call, as they travel.
std::string GatherRows(const TableSpec& spec, const Piece& piece, const void* values);
// The reverse. REQUIRES: `wire` has piece.keys.count rows.
void ScatterRows(const TableSpec& spec, const Piece& piece, absl::string_view wire, void* out);

// ---- tables with TableSpec::lengths

// Where each row begins, in elements, and where the last one ends.
std::vector<uint64_t> StartsOf(absl::Span<const uint32_t> lengths);
// As GatherRows; `starts` are those of `lengths`, of all rows of the call.
std::string GatherLengthRows(const TableSpec& spec, const Piece& piece,
                             absl::Span<const uint32_t> lengths, absl::Span<const uint64_t> starts,
                             const void* values);
// What has come of a piece of a pull.
struct LengthAnswer {
  uint64_t count = 0;       // rows: the first ones
  std::string values = {};  // their elements, of the table's dtype
};
// An answer with the next rows of the piece, as they travel: their lengths go to `out`. The answer
// of one piece can be several. InvalidArgument: it has no rows, more than are left, or others.
absl::Status TakeLengthRows(const TableSpec& spec, const Piece& piece, absl::string_view wire,
                            LengthAnswer& answer, RowData& out);
// The rows of a piece, whose `values` are all there. REQUIRES: `out` has the lengths and starts of
// all rows of the call, and room for their bytes.
void ScatterLengthRows(const TableSpec& spec, const Piece& piece, absl::string_view values,
                       RowData& out);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_PIECES_H_
