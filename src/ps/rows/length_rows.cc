#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/common/check.h"
#include "src/ps/rows/rows.h"
#include "src/ps/rows/updates.h"

namespace phalanx::ps::internal {
namespace {

// Rows found by their keys, each with memory of its own, so that one grows while the others stay
// where they are:
//
//   | values, room | state, room |       `capacity` elements for each field
//
// A row that does not fit into its memory, or leaves more than half of it empty, gets other memory.
//
// A Cursor is that of RowMap (sparse_rows.cc): keys mostly come in the order in which their rows
// were made.
class LengthMap {
 public:
  struct Row {
    std::unique_ptr<char[]> data = nullptr;
    uint32_t length = 0, capacity = 0;  // elements of a field
  };
  struct Cursor {
    uint64_t next = 0;
  };

  // `width` is the greatest capacity. REQUIRES: no row gets a length that is greater.
  LengthMap(uint64_t fields, size_t element_bytes, uint32_t width)
      : fields_(fields), element_bytes_(element_bytes), width_(width) {}

  // Null: there is none.
  const Row* Find(Key key, Cursor& cursor) const {
    if (IsNext(key, cursor)) return &rows_[cursor.next++];
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return nullptr;
    cursor.next = found->second + 1;
    return &rows_[found->second];
  }

  // Makes the row. Valid until another one is made; its memory stays where it is.
  Row& At(Key key, Cursor& cursor) {
    if (IsNext(key, cursor)) return rows_[cursor.next++];
    const auto [at, made] = numbers_.try_emplace(key, keys_.size());
    const uint64_t number = at->second;
    cursor.next = number + 1;
    if (!made) return rows_[number];
    keys_.push_back(key);
    if (number == rows_.size()) rows_.emplace_back();
    rows_[number].length = 0;
    return rows_[number];
  }

  // REQUIRES: the row has memory, or nothing is read or written.
  char* Field(const Row& row, uint64_t field) const {
    return row.data.get() + field * row.capacity * element_bytes_;
  }

  // Elements that the row keeps stay, with their state; new ones are 0.
  void Resize(Row& row, uint32_t length) {
    if (length > row.capacity) {
      // A row that grows by and by is copied a few times, and one that is pushed once takes no more
      // than it needs.
      const uint64_t more = std::min<uint64_t>(width_, uint64_t{row.capacity} * 3 / 2);
      Move(row, std::max(length, static_cast<uint32_t>(more)), row.length);
    } else if (length < row.capacity / 2) {
      Move(row, length, std::min(length, row.length));
    } else if (length > row.length) {
      for (uint64_t field = 0; field < fields_; ++field) {
        std::memset(Field(row, field) + row.length * element_bytes_, 0,
                    (length - row.length) * element_bytes_);
      }
    }
    row.length = length;
  }

  // In the order of keys. Valid until a row is made.
  std::vector<std::pair<Key, const Row*>> Sorted() const {
    std::vector<std::pair<Key, const Row*>> sorted;
    sorted.reserve(keys_.size());
    for (uint64_t number = 0; number < keys_.size(); ++number) {
      sorted.emplace_back(keys_[number], &rows_[number]);
    }
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  // Keeps the memory for the next rows: most clocks push the same keys.
  void Clear() {
    numbers_.clear();
    keys_.clear();
  }

  uint64_t size() const { return keys_.size(); }
  // The index has a byte of its own for each place.
  uint64_t bytes() const {
    return data_bytes_ + rows_.capacity() * sizeof(Row) + keys_.capacity() * sizeof(Key) +
           numbers_.capacity() * (sizeof(std::pair<Key, uint64_t>) + 1);
  }

 private:
  // What the allocator takes for itself with each row, about.
  static constexpr uint64_t kAllocation = 16;

  bool IsNext(Key key, const Cursor& cursor) const {
    return cursor.next < keys_.size() && keys_[cursor.next] == key;
  }

  uint64_t BytesOf(uint32_t capacity) const {
    return capacity == 0 ? 0 : fields_ * capacity * element_bytes_ + kAllocation;
  }

  // Into other memory, with the first `kept` elements; the others are 0.
  void Move(Row& row, uint32_t capacity, uint32_t kept) {
    Row to;
    if (capacity > 0) to.data = std::make_unique<char[]>(fields_ * capacity * element_bytes_);
    to.capacity = capacity;
    for (uint64_t field = 0; field < fields_ && kept > 0; ++field) {
      std::memcpy(Field(to, field), Field(row, field), kept * element_bytes_);
    }
    data_bytes_ += BytesOf(capacity);
    data_bytes_ -= BytesOf(row.capacity);
    row = std::move(to);
  }

  const uint64_t fields_;
  const size_t element_bytes_;
  const uint32_t width_;
  absl::flat_hash_map<Key, uint64_t> numbers_;
  std::vector<Key> keys_;  // by number
  std::vector<Row> rows_;  // by number; behind those of keys_, memory of rows before Clear
  uint64_t data_bytes_ = 0;
};

class LengthRows : public Rows {
 public:
  LengthRows(const TableSpec& spec, const Splitter& splitter, int part)
      : Rows(spec),
        splitter_(splitter),
        part_(part),
        element_bytes_(ElementSize(spec.dtype)),
        rows_(std::make_unique<LengthMap>(fields_, element_bytes_, spec.width)),
        sums_(1, element_bytes_, spec.width) {}

  // Any push makes its rows, also one without elements.
  void Update(const PushedRows& push) override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    LengthMap::Cursor cursor;
    ForEach(push, [&](Key key, const char* pushed, uint32_t length) {
      UpdateRow(update, pushed, length, rows_->At(key, cursor));
    });
  }

  // A pull makes no row, as in SparseRows.
  size_t ReadLengths(absl::Span<const Key> keys, uint64_t most, std::vector<uint32_t>& lengths,
                     std::vector<char>& values) const override {
    const size_t wire_bytes = ElementSize(spec_.wire);
    lengths.clear();
    values.clear();
    uint64_t cost = 0;
    LengthMap::Cursor cursor;
    for (const Key key : keys) {
      const LengthMap::Row* const row = rows_->Find(key, cursor);
      const uint32_t length = row == nullptr ? 0 : row->length;
      cost += sizeof(uint32_t) + length * wire_bytes;
      if (cost > most && !lengths.empty()) break;
      lengths.push_back(length);
      if (length > 0) {
        const char* const from = rows_->Field(*row, 0);
        values.insert(values.end(), from, from + length * element_bytes_);
      }
    }
    return lengths.size();
  }

  RowRef Row(Key key) override {
    LengthMap::Cursor cursor;
    return RefOf(rows_->At(key, cursor));
  }

  RowRef Resize(Key key, uint32_t length) override {
    LengthMap::Cursor cursor;
    LengthMap::Row& row = rows_->At(key, cursor);
    rows_->Resize(row, length);
    return RefOf(row);
  }

  void Add(const PushedRows& push) override {
    const AddLoop add = AddLoopOf(spec_.dtype);
    LengthMap::Cursor cursor;
    ForEach(push, [&](Key key, const char* pushed, uint32_t length) {
      LengthMap::Row& sums = sums_.At(key, cursor);
      // What no push had before is copied: -0 stays -0.
      const uint32_t summed = spec_.update == Update::kAssign ? 0 : std::min(length, sums.length);
      if (length > sums.length || spec_.update == Update::kAssign) sums_.Resize(sums, length);
      char* const to = sums_.Field(sums, 0);
      if (summed > 0) add(pushed, to, summed);
      const uint64_t done = summed * element_bytes_;
      if (length > summed) std::memcpy(to + done, pushed + done, length * element_bytes_ - done);
    });
  }

  bool added() const override { return sums_.size() > 0; }

  // In the order of keys, as that of other rows.
  void Turn() override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    LengthMap::Cursor cursor;
    for (const auto& [key, sums] : sums_.Sorted()) {
      UpdateRow(update, sums_.Field(*sums, 0), sums->length, rows_->At(key, cursor));
    }
    Drop();
  }

  AddedRows TakeAdded() override {
    AddedRows taken;
    for (const auto& [key, sums] : sums_.Sorted()) {
      taken.keys.push_back(key);
      taken.lengths.push_back(sums->length);
      const char* const values = sums_.Field(*sums, 0);
      taken.values.insert(taken.values.end(), values, values + sums->length * element_bytes_);
    }
    Drop();
    return taken;
  }

  void Drop() override { sums_.Clear(); }

  uint64_t rows() const override { return rows_->size(); }
  uint64_t bytes() const override { return rows_->bytes() + sums_.bytes(); }

  // Sorted, and without the room behind the elements: the same rows have the same bytes, whatever
  // their history.
  void Save(std::string& out) const override {
    ByteWriter writer(out);
    const auto sorted = rows_->Sorted();
    uint64_t elements = 0;
    for (const auto& [key, row] : sorted) elements += row->length;
    out.reserve(out.size() + sizeof(uint64_t) + sorted.size() * kSavedHead +
                elements * fields_ * element_bytes_);
    writer.U64(sorted.size());
    for (const auto& [key, row] : sorted) {
      writer.U64(key);
      writer.U32(row->length);
      for (uint64_t field = 0; field < fields_ && row->length > 0; ++field) {
        writer.Raw({rows_->Field(*row, field), row->length * element_bytes_});
      }
    }
  }

  void Load(ByteReader& in) override {
    // The rows of before stay if this fails.
    auto rows = std::make_unique<LengthMap>(fields_, element_bytes_, spec_.width);
    LoadRows(in, *rows);
    if (!in.Finish().ok()) return;
    rows_ = std::move(rows);
    Drop();
  }

 private:
  static constexpr Key kLast = ~Key{0};
  // Of each row, before its elements.
  static constexpr size_t kSavedHead = sizeof(Key) + sizeof(uint32_t);

  // Calls each(key, values, length) for the rows of a push.
  template <typename Each>
  void ForEach(const PushedRows& push, const Each& each) const {
    PHALANX_CHECK(push.lengths.size() == push.keys.size(), "each row that is pushed has a length");
    const char* values = push.values;
    for (size_t i = 0; i < push.keys.size(); ++i) {
      each(push.keys[i], values, push.lengths[i]);
      values += push.lengths[i] * element_bytes_;
    }
  }

  void UpdateRow(UpdateLoop update, const char* pushed, uint32_t length, LengthMap::Row& row) {
    if (length > row.length || spec_.update == Update::kAssign) rows_->Resize(row, length);
    if (length == 0) return;
    update(spec_, pushed, rows_->Field(row, 0), fields_ > 1 ? rows_->Field(row, 1) : nullptr,
           fields_ > 2 ? rows_->Field(row, 2) : nullptr, length);
  }

  // Also of a row without memory the address is not null, which would say that there is no row.
  RowRef RefOf(const LengthMap::Row& row) {
    return {row.data == nullptr ? no_elements_ : rows_->Field(row, 0), row.length};
  }

  // An error leaves `rows` in part. Memory is taken for what is there to read, not for what it says
  // to be there.
  void LoadRows(ByteReader& in, LengthMap& rows) const {
    const uint64_t count = in.U64();
    LengthMap::Cursor cursor;
    Key least = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const Key key = in.U64();
      const uint32_t length = in.U32();
      if (!in.ok()) return;
      // Strictly increasing keys, as in SparseRows: behind the greatest one `least` would wrap.
      if (key < least || !splitter_.CanHave(part_, key) || (key == kLast && i + 1 < count)) {
        return in.Fail("a key that is not in order, or of another part");
      }
      if (length > spec_.width) return in.Fail("a row that is longer than rows can be");
      least = key + 1;
      const absl::string_view saved = in.Raw(fields_ * length * element_bytes_);
      if (!in.ok()) return;
      LengthMap::Row& row = rows.At(key, cursor);
      // The row is as long as its memory: its fields have no room between them.
      rows.Resize(row, length);
      if (!saved.empty()) std::memcpy(row.data.get(), saved.data(), saved.size());
    }
  }

  const Splitter splitter_;
  const int part_;
  const size_t element_bytes_;
  std::unique_ptr<LengthMap> rows_;
  LengthMap sums_;
  alignas(8) char no_elements_[8] = {};
};

}  // namespace

std::unique_ptr<Rows> MakeLengthRows(const TableSpec& spec, const Splitter& splitter, int part) {
  return std::make_unique<LengthRows>(spec, splitter, part);
}

}  // namespace phalanx::ps::internal
