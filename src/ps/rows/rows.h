// Rows: the rows of one part of a table with the state of its update, and what is added to them in
// a clock until Turn.
//
//   DenseRows    values  | k0 | k1 | k2 | ...    one array for each field, in the order of keys
//                state   | k0 | k1 | k2 | ...
//                added   | k0 | k1 | k2 | ...    with a flag for each row
//   SparseRows   key -> | values | state |       in chunks that never move
//                key -> | added |
//   LengthRows   key -> | values | state |       each with memory of its own (TableSpec::lengths)
//                key -> | added |
//
// Keys of all calls are those of the part, and increase. Pushed values have any alignment.
// Pure. Belongs to a Part. One thread at a time.
#ifndef PHALANX_PS_ROWS_ROWS_H_
#define PHALANX_PS_ROWS_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/common/io/wire.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {

// Zeros, which cost no memory before they are touched. Throws std::bad_alloc.
class ZeroedBytes {
 public:
  ZeroedBytes() = default;
  explicit ZeroedBytes(uint64_t size);

  char* data() const { return data_.get(); }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* data) const;
  };
  std::unique_ptr<char, Free> data_;
  uint64_t size_ = 0;
};

// The rows of a push, one behind the other. Does not own them.
struct PushedRows {
  absl::Span<const Key> keys;
  const char* values = nullptr;
  // Of LengthRows: elements of each row. Others do not look at them: a row has `width`.
  absl::Span<const uint32_t> lengths = {};
};

// The same, which owns them.
struct AddedRows {
  std::vector<Key> keys;
  std::vector<char> values;
  std::vector<uint32_t> lengths;  // empty, but of LengthRows
};

// The values of a row; null: there is none.
struct RowRef {
  void* values = nullptr;
  uint32_t length = 0;  // elements
};

class Rows {
 public:
  explicit Rows(const TableSpec& spec);
  virtual ~Rows() = default;

  // One push, with the table's update. REQUIRES: not kOwn.
  virtual void Update(const PushedRows& push) = 0;
  // REQUIRES for Read: not LengthRows; for ReadLengths: LengthRows. ReadLengths is
  // Part::PullLengths.
  virtual void Read(absl::Span<const Key> keys, char* out) const;
  virtual size_t ReadLengths(absl::Span<const Key> keys, uint64_t most,
                             std::vector<uint32_t>& lengths, std::vector<char>& values) const;
  // A row's values; makes the row.
  virtual RowRef Row(Key key) = 0;
  // The same, after the row got this length. REQUIRES: LengthRows; length <= width.
  virtual RowRef Resize(Key key, uint32_t length);

  // Adds to what was added to these rows before; with kAssign, replaces it.
  virtual void Add(const PushedRows& push) = 0;
  virtual bool added() const = 0;

  // ---- of all rows of a dense part, in the order of places. REQUIRES for all but AllValues: it is
  // one.

  // Empty: the part is not dense. Valid as long as the rows.
  virtual absl::string_view AllValues() const { return {}; }
  virtual void AddAll(const char* pushed);
  // AddAll and Turn, without a copy of `pushed`. REQUIRES: not kOwn, and nothing is added.
  virtual void UpdateAll(const char* pushed);
  // The values are these now.
  virtual void SetAll(const char* values);

  // ---- the end of a clock

  // The update with what was added, once for each such row, in the order of keys. Nothing is added
  // afterwards. REQUIRES: not kOwn.
  virtual void Turn() = 0;
  // What was added, as one push, in the order of keys. Nothing is added afterwards.
  virtual AddedRows TakeAdded() = 0;
  // Nothing is added any more.
  virtual void Drop() = 0;

  virtual uint64_t rows() const = 0;
  virtual uint64_t bytes() const = 0;

  virtual void Save(std::string& out) const = 0;
  // Reads what Save has written, to the end. If `in` fails, the rows are as before.
  virtual void Load(ByteReader& in) = 0;

 protected:
  const TableSpec spec_;
  const uint64_t row_bytes_;  // of one field
  const uint64_t fields_;     // values, and the arrays of state
};

std::unique_ptr<Rows> MakeDenseRows(const TableSpec& spec, const Splitter& splitter, int part);
std::unique_ptr<Rows> MakeSparseRows(const TableSpec& spec, const Splitter& splitter, int part);
// REQUIRES: TableSpec::lengths.
std::unique_ptr<Rows> MakeLengthRows(const TableSpec& spec, const Splitter& splitter, int part);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_ROWS_ROWS_H_
