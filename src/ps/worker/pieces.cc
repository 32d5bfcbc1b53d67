#include "src/ps/worker/pieces.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/elements.h"
#include "src/common/status_macros.h"
#include "src/ps/part.h"
#include "src/ps/rows/length_values.h"

namespace phalanx::ps::internal {
namespace {

// Strictly increasing keys are consecutive exactly if their ends are as far apart as that.
bool IsRun(absl::Span<const Key> keys) { return keys.back() - keys.front() == keys.size() - 1; }

// A row that is larger than a batch goes alone: kMaxWidth keeps it within a message. Values go one
// way and keys the other, or both in one entry: in any case they fit together.
uint64_t MostKeys(uint64_t most, uint64_t row_bytes, bool run) {
  return std::max<uint64_t>(1, most / (row_bytes + (run ? 0 : sizeof(Key))));
}

// The keys of a piece, from the caller's memory: a list is copied unless the channel has it.
PieceKeys KeysOf(uint32_t table, absl::Span<const Key> keys, const KeyLists& lists) {
  PieceKeys of{.count = keys.size(), .begin = keys.front(), .list = nullptr};
  if (IsRun(keys)) return of;
  // The same keys again cost a hash here, and no memory.
  if (keys.size() >= kMinListedKeys) of.list = lists.Find(HashOf(table, keys));
  if (of.list == nullptr) {
    of.list = std::make_shared<const std::vector<Key>>(keys.begin(), keys.end());
  }
  return of;
}

// A row of a piece: its index in the call.
uint64_t RowOf(const Piece& piece, uint64_t i) {
  return piece.rows.empty() ? piece.first + i : piece.rows[i];
}

}  // namespace

Cutter::Cutter(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
               uint64_t most, absl::Span<const int32_t> owners, absl::Span<const uint32_t> lengths)
    : spec_(spec),
      splitter_(splitter),
      keys_(keys),
      most_(most),
      owners_(owners),
      lengths_(lengths),
      ranges_(splitter.parts() == 1 || spec.split == Split::kRange),
      servers_(static_cast<size_t>(splitter.parts())) {
  const uint64_t row_bytes = LeastRowBytes(spec);
  if (!ranges_) {
    // That the keys of a server are a run is not known before all of them were looked at.
    for (OfServer& server : servers_) server.most = MostKeys(most, row_bytes, /*run=*/false);
    return;
  }
  const std::vector<size_t> ends =
      splitter.parts() == 1 ? std::vector<size_t>{keys.size()} : splitter.Ends(keys);
  size_t at = 0;
  for (size_t server = 0; server < servers_.size(); ++server) {
    OfServer& of = servers_[server];
    of.keys = keys.subspan(at, ends[server] - at);
    of.first = at;
    of.most = MostKeys(most, row_bytes, of.keys.empty() || IsRun(of.keys));
    at = ends[server];
  }
}

uint64_t Cutter::BytesOf(uint64_t row) const {
  return sizeof(Key) + LengthRowBytes(spec_, lengths_[row]);
}

bool Cutter::IsFull(const OfServer& server, uint64_t row) const {
  if (lengths_.empty()) return server.gathered.size() == server.most;
  return !server.gathered.empty() && server.bytes + BytesOf(row) > most_;
}

uint64_t Cutter::CountFrom(const OfServer& server) const {
  if (lengths_.empty()) return server.most;
  uint64_t count = 0;
  for (uint64_t bytes = 0; count < server.keys.size(); ++count) {
    bytes += BytesOf(server.first + count);
    if (bytes > most_) break;
  }
  return std::max<uint64_t>(1, count);
}

// Ranges go round the servers, so that all have work from the beginning. Other keys are looked at
// in their order, and what is left in the end is the last piece of each server.
std::optional<Piece> Cutter::Next(uint32_t table, ListsOf lists) {
  if (ranges_) {
    for (size_t tried = 0; tried < servers_.size(); ++tried) {
      const size_t server = next_;
      next_ = (next_ + 1) % servers_.size();
      if (servers_[server].keys.empty()) continue;
      const int rank = static_cast<int>(server);
      return FromRange(rank, table, lists(rank));
    }
    return std::nullopt;
  }
  for (; next_ < keys_.size(); ++next_) {
    const int server = owners_.empty() ? splitter_.PartOf(keys_[next_]) : owners_[next_];
    OfServer& of = servers_[server];
    // The key is looked at again in the next call.
    if (IsFull(of, next_)) return FromGathered(server, table, lists(server));
    of.gathered.push_back(keys_[next_]);
    of.rows.push_back(static_cast<uint32_t>(next_));
    if (!lengths_.empty()) of.bytes += BytesOf(next_);
  }
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (servers_[server].gathered.empty()) continue;
    const int rank = static_cast<int>(server);
    return FromGathered(rank, table, lists(rank));
  }
  return std::nullopt;
}

// A part of a list can be a run, though the list is none.
Piece Cutter::FromRange(int server, uint32_t table, const KeyLists& lists) {
  OfServer& of = servers_[server];
  const absl::Span<const Key> keys = of.keys.subspan(0, CountFrom(of));
  Piece piece;
  piece.server = server;
  piece.number = of.pieces++;
  piece.keys = KeysOf(table, keys, lists);
  piece.first = of.first;
  // The next piece of this server begins here.
  of.keys.remove_prefix(keys.size());
  of.first += keys.size();
  return piece;
}

// Rows that stand together need no list, and their values are one copy.
Piece Cutter::FromGathered(int server, uint32_t table, const KeyLists& lists) {
  OfServer& of = servers_[server];
  Piece piece;
  piece.server = server;
  piece.number = of.pieces++;
  piece.keys = KeysOf(table, of.gathered, lists);
  if (of.rows.back() - of.rows.front() == of.rows.size() - 1) {
    piece.first = of.rows.front();
  } else {
    piece.rows = of.rows;
  }
  // Their memory serves the next piece.
  of.gathered.clear();
  of.rows.clear();
  of.bytes = 0;
  return piece;
}

WireKeys ToWire(uint32_t table, PieceKeys& keys, KeyLists& lists) {
  // A run has a first key: none is the empty list.
  if (keys.count == 0) return {};
  if (keys.list == nullptr) {
    return {.form = WireKeys::Form::kRun, .begin = keys.begin, .count = keys.count};
  }
  WireKeys wire = ToWire(table, *keys.list, lists);
  if (wire.form == WireKeys::Form::kHash) {
    // All pieces with these keys share one list from now on.
    if (const KeyList list = lists.Find(wire.hash); list != nullptr) keys.list = list;
  }
  return wire;
}

// The one copy of what a program pushes, in the type of the wire.
std::string GatherRows(const TableSpec& spec, const Piece& piece, const void* values) {
  // Gathered in the table's type first, and converted after that in one loop.
  const uint64_t row = spec.width * ElementSize(spec.dtype);
  const auto* const from = static_cast<const char*>(values);
  std::string gathered;
  const char* rows = from + piece.first * row;
  if (!piece.rows.empty()) {
    gathered.resize(piece.keys.count * row);
    char* to = gathered.data();
    for (const uint32_t index : piece.rows) {
      std::memcpy(to, from + index * row, row);
      to += row;
    }
    rows = gathered.data();
  }
  if (spec.wire == spec.dtype) {
    return piece.rows.empty() ? std::string(rows, piece.keys.count * row) : gathered;
  }
  std::string wire(piece.keys.count * LeastRowBytes(spec), '\0');
  Convert(spec.dtype, spec.wire, rows, wire.data(), piece.keys.count * spec.width);
  return wire;
}

// Into the caller's memory, which need not be aligned.
void ScatterRows(const TableSpec& spec, const Piece& piece, absl::string_view wire, void* out) {
  const uint64_t row = spec.width * ElementSize(spec.dtype);
  auto* const to = static_cast<char*>(out);
  std::string converted;
  const char* rows = wire.data();
  if (spec.wire != spec.dtype) {
    converted.resize(piece.keys.count * row);
    Convert(spec.wire, spec.dtype, wire.data(), converted.data(), piece.keys.count * spec.width);
    rows = converted.data();
  }
  if (piece.rows.empty()) {
    std::memcpy(to + piece.first * row, rows, piece.keys.count * row);
    return;
  }
  for (const uint32_t index : piece.rows) {
    std::memcpy(to + index * row, rows, row);
    rows += row;
  }
}

std::vector<uint64_t> StartsOf(absl::Span<const uint32_t> lengths) {
  std::vector<uint64_t> starts = {0};
  starts.reserve(lengths.size() + 1);
  for (const uint32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

// Rows that stand together are one copy, into the form in which they travel.
std::string GatherLengthRows(const TableSpec& spec, const Piece& piece,
                             absl::Span<const uint32_t> lengths, absl::Span<const uint64_t> starts,
                             const void* values) {
  const size_t element = ElementSize(spec.dtype);
  const auto* const from = static_cast<const char*>(values);
  const uint64_t count = piece.keys.count;
  if (piece.rows.empty()) {
    const uint64_t begin = starts[piece.first];
    const uint64_t elements = starts[piece.first + count] - begin;
    return WriteLengthValues(spec, lengths.subspan(piece.first, count),
                             {from + begin * element, elements * element});
  }
  std::vector<uint32_t> of_piece;
  of_piece.reserve(count);
  std::string gathered;
  for (const uint32_t row : piece.rows) {
    of_piece.push_back(lengths[row]);
    gathered.append(from + starts[row] * element, lengths[row] * element);
  }
  return WriteLengthValues(spec, of_piece, gathered);
}

absl::Status TakeLengthRows(const TableSpec& spec, const Piece& piece, absl::string_view wire,
                            LengthAnswer& answer, RowData& out) {
  PHALANX_ASSIGN_OR_RETURN(const LengthValues rows, ReadLengthValues(spec, wire));
  const uint64_t left = piece.keys.count - answer.count;
  if (rows.lengths.empty() || rows.lengths.size() > left) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.lengths.size(), " rows, where ", left, " are left"));
  }
  for (const uint32_t length : rows.lengths) out.lengths[RowOf(piece, answer.count++)] = length;
  const uint64_t elements = rows.elements.size() / ElementSize(spec.wire);
  const size_t before = answer.values.size();
  answer.values.resize(before + elements * ElementSize(spec.dtype));
  Convert(spec.wire, spec.dtype, rows.elements.data(), answer.values.data() + before, elements);
  return absl::OkStatus();
}

void ScatterLengthRows(const TableSpec& spec, const Piece& piece, absl::string_view values,
                       RowData& out) {
  if (values.empty()) return;
  const size_t element = ElementSize(spec.dtype);
  if (piece.rows.empty()) {
    std::memcpy(out.bytes.data() + out.starts[piece.first] * element, values.data(), values.size());
    return;
  }
  for (const uint32_t row : piece.rows) {
    const size_t bytes = out.lengths[row] * element;
    std::memcpy(out.bytes.data() + out.starts[row] * element, values.data(), bytes);
    values.remove_prefix(bytes);
  }
}

}  // namespace phalanx::ps::internal
