// Rows with lengths of their own (TableSpec::lengths), as they travel and are kept: the values of a
// push, or of an answer.
//
//   rows (u32) | length of each (u32) | elements of all rows, of the table's wire type
//
// Numbers are little-endian. Reading trusts no input. Values and pure functions; any thread.
#ifndef PHALANX_PS_ROWS_LENGTH_VALUES_H_
#define PHALANX_PS_ROWS_LENGTH_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"

namespace phalanx::ps::internal {

struct LengthValues {
  std::vector<uint32_t> lengths = {};
  absl::string_view elements = {};  // into what was read
};

// Of a row as it travels, without its key.
uint64_t LengthRowBytes(const TableSpec& spec, uint32_t length);
// Of any table: the least that a row can have.
uint64_t LeastRowBytes(const TableSpec& spec);
// What stands before the elements.
std::string LengthsHead(absl::Span<const uint32_t> lengths);
// `elements` are those of the rows, of the table's dtype.
std::string WriteLengthValues(const TableSpec& spec, absl::Span<const uint32_t> lengths,
                              absl::string_view elements);
// InvalidArgument: rows that are longer than the table's width, or other bytes than those of the
// rows.
absl::StatusOr<LengthValues> ReadLengthValues(const TableSpec& spec, absl::string_view bytes);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_LENGTH_VALUES_H_
