// Part: the rows of a table that one server has, and the updates.
//
// A row is `width` elements of the table's dtype. Updates with state (momentum, adagrad, ftrl) keep
// further arrays of `width` elements beside it. A dense part has its rows in one array in the order
// of keys; a sparse one makes a row at the first push of its key, with what the table's Init says
// for that key, and answers a pull of another key with the same, without a row.
//
// With TableSpec::lengths a row, and each array of its state, has as many elements as the row is
// long: none at first. A push that is longer makes it as long, by elements that are 0, and the
// update is made for those that are pushed. With kAssign the row is what was pushed. The sum of a
// clock's pushes is as long as the longest of them. A push of no elements makes the row.
//
// All arithmetic is that of the dtype, in the order that is given: the same pushes in the same
// order give the same bits, also after Save and Load. Integers wrap.
//
// Pure: no thread, clock or socket. Belongs to one ServerCore, or a test. One thread at a time.
#ifndef PHALANX_PS_PART_H_
#define PHALANX_PS_PART_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/ps/rows/rows.h"
#include "src/ps/split.h"

namespace phalanx::ps::internal {

class Part;

// Who has pushed. With kBsp a push is the sum of a clock's: worker is -1.
struct From {
  int worker = -1;
  uint64_t clock = 0;
  uint64_t life = 0;
};

// kOwn: changes rows of the part (Part::Row, Part::Resize) for the keys of a batch, whose values
// are keys.size() rows of the dtype, aligned for it; `lengths` has their elements, and is empty
// unless the table has lengths. An error, or an exception, ends the table: all calls for it fail
// with Internal, and the code and the text of the error.
using OwnUpdate =
    std::function<absl::Status(const From& from, absl::Span<const Key> keys, const void* values,
                               absl::Span<const uint32_t> lengths, Part& part)>;

class Part {
 public:
  // REQUIRES: Check(spec) is OK; `own` is there exactly with kOwn; 0 <= part < splitter.parts().
  // Throws std::bad_alloc if there is no memory for the rows of a dense part.
  Part(const TableSpec& spec, const Splitter& splitter, int part, OwnUpdate own);

  // OK if the keys are strictly increasing and the part has all of them; else InvalidArgument names
  // the table and the first that is wrong.
  absl::Status CheckKeys(absl::Span<const Key> keys) const;

  // All of these, and Add, REQUIRE: CheckKeys(keys) is OK. `values` is keys.size() rows of the
  // dtype, of any alignment: lengths[i] elements for keys[i] if the table has lengths, each of at
  // most `width`; other tables have none. One push, as it comes. Internal: OwnUpdate has failed.
  // The text has the table's name, and the code and the text of its error.
  absl::Status Push(const From& from, absl::Span<const Key> keys, const void* values,
                    absl::Span<const uint32_t> lengths = {});
  // REQUIRES: the table has no lengths.
  void Pull(absl::Span<const Key> keys, void* values) const;
  // The rows of the first keys: as many as cost at most `most` bytes, where one costs 4 +
  // its length * ElementSize(spec.wire), and at least one. Overwrites `lengths`, and `values` with
  // their elements, of the dtype. Returns how many rows; 0 only without keys. A key without a row
  // has length 0. REQUIRES: the table has lengths.
  size_t PullLengths(absl::Span<const Key> keys, uint64_t most, std::vector<uint32_t>& lengths,
                     std::vector<char>& values) const;

  // The pushes of one clock with kBsp: Add for each in the order of (worker, number), then Turn,
  // which makes the update once for each key that was pushed, in the order of keys. Turn without
  // any Add does nothing, and calls no OwnUpdate.
  void Add(absl::Span<const Key> keys, const void* values, absl::Span<const uint32_t> lengths = {});
  absl::Status Turn(uint64_t clock);

  // The same of all keys of a dense part: `values` has its rows in the order of their places, of
  // any alignment. TurnAll is AddAll and Turn, without a copy of them. REQUIRES for TurnAll: no Add
  // since the last Turn.
  void AddAll(const void* values);
  absl::Status TurnAll(uint64_t clock, const void* values);
  // The rows of a dense part are these now. REQUIRES: no Add since the last Turn.
  void SetAll(const void* values);
  // The values of all rows of a dense part, in the order of their places; empty if the part is
  // sparse. Valid as long as the part, until its rows change.
  absl::string_view AllValues() const { return rows_->AllValues(); }

  // For OwnUpdate. The elements of a key's row; makes the row. Null values: the key is not one of
  // the part's. Valid as long as the part, until Load, or until the row gets another length.
  RowRef Row(Key key);
  // The same, after the row got this length: the elements that it keeps stay, new ones are 0. Null
  // values, and nothing has changed: the key is not one of the part's, `length` is greater than
  // `width`, or the table has no lengths.
  RowRef Resize(Key key, uint32_t length);

  // Rows that lie one behind the other, those of the keys from `first` on; none, unless the part is
  // a dense range of keys. Valid as Row's.
  struct Run {
    Key first = 0;
    uint64_t keys = 0;
    void* values = nullptr;
  };
  Run AllRows();

  uint64_t rows() const { return rows_->rows(); }
  // Of memory, about.
  uint64_t bytes() const { return rows_->bytes() + all_keys_.size() * sizeof(Key); }

  // All rows with their state, and nothing between Add and Turn. REQUIRES for Save: no Add since
  // the last Turn. Load returns InvalidArgument, and leaves the part as it was, if the bytes are
  // not those of a part of the same spec, number and parts.
  std::string Save() const;
  absl::Status Load(absl::string_view bytes);

 private:
  bool Has(Key key) const;
  absl::Status CallOwn(const From& from, const PushedRows& push);
  absl::Status Error(absl::StatusCode code, absl::string_view why) const;
  std::string Header() const;

  const TableSpec spec_;
  const Splitter splitter_;
  const int part_;
  OwnUpdate own_;
  std::vector<Key> all_keys_;   // of a dense part, once its function was called for them
  std::unique_ptr<Rows> rows_;  // not null, but in a part that was moved from
};

// Elements of `from` as elements of `to`, for the wire: f32 to f16 or bf16 and back, rounded to
// nearest even (src/ps/rows/half_floats.h); or the same type, copied. Any alignment. REQUIRES:
// TableSpec allows the pair, as dtype and wire or the other way.
void Convert(DType from, DType to, const void* in, void* out, uint64_t elements);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_PART_H_
