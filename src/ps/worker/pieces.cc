#include "src/ps/worker/pieces.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "phalanx/elements.h"
#include "src/ps/part.h"

namespace phalanx::ps::internal {
namespace {

// Strictly increasing keys are consecutive exactly if their ends are as far apart as that.
bool IsRun(absl::Span<const Key> keys) { return keys.back() - keys.front() == keys.size() - 1; }

// Appends pieces of these keys of one server, which are the given rows of the call, or those from
// `first` on.
void CutForServer(int server, uint64_t row_bytes, absl::Span<const Key> keys, uint64_t first,
                  absl::Span<const uint32_t> rows, std::vector<Piece>& out) {
  // Values go one way and keys the other, or both in one entry: in any case they fit together.
  const uint64_t cost = row_bytes + (IsRun(keys) ? 0 : sizeof(Key));
  // A row that is larger than a batch goes alone: kMaxWidth keeps it within a message.
  const uint64_t most = std::max<uint64_t>(1, kBatchBytes / cost);
  for (uint64_t at = 0; at < keys.size(); at += most) {
    // A part of a list can be a run, though the list is none.
    const absl::Span<const Key> part = keys.subspan(at, most);
    Piece piece;
    piece.server = server;
    piece.keys.count = part.size();
    piece.keys.begin = part.front();
    if (!IsRun(part)) {
      piece.keys.list = std::make_shared<const std::vector<Key>>(part.begin(), part.end());
    }
    piece.first = first + at;
    const absl::Span<const uint32_t> part_rows = rows.empty() ? rows : rows.subspan(at, most);
    piece.rows.assign(part_rows.begin(), part_rows.end());
    out.push_back(std::move(piece));
  }
}

}  // namespace

uint64_t WireRowBytes(const TableSpec& spec) { return spec.width * ElementSize(spec.wire); }

std::vector<Piece> Cut(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
                       absl::Span<const int32_t> servers) {
  std::vector<Piece> pieces;
  if (keys.empty()) return pieces;
  const uint64_t row_bytes = WireRowBytes(spec);
  if (splitter.parts() == 1) {
    CutForServer(0, row_bytes, keys, 0, {}, pieces);
    return pieces;
  }
  const std::vector<std::vector<uint32_t>> parts =
      spec.split == Split::kOwn ? splitter.SplitBy(servers) : splitter.Split(keys);
  for (size_t server = 0; server < parts.size(); ++server) {
    const std::vector<uint32_t>& rows = parts[server];
    if (rows.empty()) continue;
    // Ranges always come here: rows need no list, and values are one copy.
    if (rows.back() - rows.front() == rows.size() - 1) {
      CutForServer(static_cast<int>(server), row_bytes, keys.subspan(rows.front(), rows.size()),
                   rows.front(), {}, pieces);
      continue;
    }
    std::vector<Key> of_server;
    of_server.reserve(rows.size());
    for (const uint32_t row : rows) of_server.push_back(keys[row]);
    CutForServer(static_cast<int>(server), row_bytes, of_server, 0, rows, pieces);
  }
  return pieces;
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
  std::string wire(piece.keys.count * WireRowBytes(spec), '\0');
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

}  // namespace phalanx::ps::internal
