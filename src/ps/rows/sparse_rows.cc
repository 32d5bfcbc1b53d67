#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/bits.h"
#include "src/ps/rows/first_values.h"
#include "src/ps/rows/rows.h"
#include "src/ps/rows/updates.h"

namespace phalanx::ps::internal {
namespace {

// Rows of one size, found by their keys. They lie in chunks, in the order in which they were made,
// so a row never moves.
//
// Batches come with their keys in order, and most of them again and again: the row behind the one
// that was found last is the next one more often than not. A Cursor tries that one first, which is
// in the cache; the index of a large table is not.
class RowMap {
 public:
  struct Cursor {
    uint64_t next = 0;
  };

  explicit RowMap(uint64_t row_bytes)
      : row_bytes_(row_bytes), chunk_bits_(ChunkBits(std::max<uint64_t>(1, row_bytes))) {}

  char* Find(Key key, Cursor& cursor) const {
    if (IsNext(key, cursor)) return At(cursor.next++);
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return nullptr;
    cursor.next = found->second + 1;
    return At(found->second);
  }

  // The row, and whether it was made: then it has zeros, if the map was never cleared.
  std::pair<char*, bool> Make(Key key, Cursor& cursor) {
    if (IsNext(key, cursor)) return {At(cursor.next++), false};
    // One look into the index for both cases: it is the cost of a sparse push.
    const auto [at, made] = numbers_.try_emplace(key, keys_.size());
    const uint64_t number = at->second;
    cursor.next = number + 1;
    if (made) {
      if (number >> chunk_bits_ == chunks_.size()) chunks_.emplace_back(row_bytes_ << chunk_bits_);
      keys_.push_back(key);
    }
    return {At(number), made};
  }

  // In the order of keys.
  std::vector<std::pair<Key, char*>> Sorted() const {
    std::vector<std::pair<Key, char*>> sorted;
    sorted.reserve(keys_.size());
    for (uint64_t number = 0; number < keys_.size(); ++number)
      sorted.emplace_back(keys_[number], At(number));
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  // Keeps the memory for the next rows.
  void Clear() {
    numbers_.clear();
    keys_.clear();
  }

  uint64_t size() const { return keys_.size(); }
  // The index has a byte of its own for each place.
  uint64_t bytes() const {
    return chunks_.size() * (row_bytes_ << chunk_bits_) + keys_.capacity() * sizeof(Key) +
           numbers_.capacity() * (sizeof(std::pair<Key, uint64_t>) + 1);
  }

 private:
  // Bytes. A table with few rows takes one chunk, and a large one few allocations.
  static constexpr uint64_t kChunkBytes = uint64_t{256} << 10;

  // A chunk has 2^bits rows.
  static int ChunkBits(uint64_t row_bytes) {
    return std::max(0, static_cast<int>(absl::bit_width(kChunkBytes / row_bytes)) - 1);
  }

  bool IsNext(Key key, const Cursor& cursor) const {
    return cursor.next < keys_.size() && keys_[cursor.next] == key;
  }
  char* At(uint64_t number) const {
    const uint64_t place = number & ((uint64_t{1} << chunk_bits_) - 1);
    return chunks_[number >> chunk_bits_].data() + place * row_bytes_;
  }

  const uint64_t row_bytes_;
  const int chunk_bits_;
  absl::flat_hash_map<Key, uint64_t> numbers_;
  std::vector<Key> keys_;  // by number
  std::vector<ZeroedBytes> chunks_;
};

class SparseRows : public Rows {
 public:
  SparseRows(const TableSpec& spec, const Splitter& splitter, int part)
      : Rows(spec),
        splitter_(splitter),
        part_(part),
        rows_(std::make_unique<RowMap>(fields_ * row_bytes_)),
        sums_(row_bytes_) {}

  // Any push makes its rows.
  void Update(const PushedRows& push) override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    RowMap::Cursor cursor;
    const char* pushed = push.values;
    for (const Key key : push.keys) {
      UpdateRow(update, pushed, RowAt(key, cursor));
      pushed += row_bytes_;
    }
  }

  // A pull makes no row: reading keys that were never pushed would fill the memory, and rows would
  // be others after a restart than without one.
  void Read(absl::Span<const Key> keys, char* out) const override {
    RowMap::Cursor cursor;
    for (const Key key : keys) {
      if (const char* row = rows_->Find(key, cursor); row != nullptr) {
        std::memcpy(out, row, row_bytes_);
      } else {
        FirstValues(spec_, key, out);
      }
      out += row_bytes_;
    }
  }

  // The first values depend on the key and the seed alone, so a row that is made again, after a
  // restart, or by another server, has the same bits.
  RowRef Row(Key key) override {
    RowMap::Cursor cursor;
    return {RowAt(key, cursor), spec_.width};
  }

  void Add(const PushedRows& push) override {
    const AddLoop add = AddLoopOf(spec_.dtype);
    RowMap::Cursor cursor;
    const char* pushed = push.values;
    for (const Key key : push.keys) {
      const auto [sums, made] = sums_.Make(key, cursor);
      // The first push is copied: -0 stays -0, and old sums are overwritten.
      if (made || spec_.update == Update::kAssign) {
        std::memcpy(sums, pushed, row_bytes_);
      } else {
        add(pushed, sums, spec_.width);
      }
      pushed += row_bytes_;
    }
  }

  bool added() const override { return sums_.size() > 0; }

  // In the order of keys, so that rows are made in the same order in every run.
  void Turn() override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    RowMap::Cursor cursor;
    for (const auto& [key, sums] : sums_.Sorted()) UpdateRow(update, sums, RowAt(key, cursor));
    Drop();
  }

  AddedRows TakeAdded() override {
    AddedRows taken;
    // In the order of keys, so that a program's function gets the same batch in every run.
    for (const auto& [key, sums] : sums_.Sorted()) {
      taken.keys.push_back(key);
      taken.values.insert(taken.values.end(), sums, sums + row_bytes_);
    }
    Drop();
    return taken;
  }

  void Drop() override { sums_.Clear(); }

  uint64_t rows() const override { return rows_->size(); }
  uint64_t bytes() const override { return rows_->bytes() + sums_.bytes(); }

  // Sorted: the same rows have the same bytes, whatever their history.
  void Save(std::string& out) const override {
    ByteWriter writer(out);
    const auto sorted = rows_->Sorted();
    writer.U64(sorted.size());
    out.reserve(out.size() + sorted.size() * SavedRow());
    for (const auto& [key, row] : sorted) {
      writer.U64(key);
      writer.Raw({row, fields_ * row_bytes_});
    }
  }

  void Load(ByteReader& in) override {
    const uint64_t count = in.U64();
    // Before any memory is taken: the count is not to be trusted.
    if (in.remaining() % SavedRow() != 0 || in.remaining() / SavedRow() != count) {
      in.Fail("not as many rows as it says");
      return;
    }
    // The rows of before stay if this fails.
    auto rows = std::make_unique<RowMap>(fields_ * row_bytes_);
    // Strictly increasing keys: none is there twice. Behind the greatest key `least` would wrap to
    // 0, so that key has to be the last one.
    Key least = 0;
    RowMap::Cursor cursor;
    for (uint64_t i = 0; i < count; ++i) {
      const Key key = in.U64();
      if (key < least || !splitter_.CanHave(part_, key) || (key == kLast && i + 1 < count)) {
        in.Fail("a key that is not in order, or of another part");
        return;
      }
      least = key + 1;
      const absl::string_view row = in.Raw(fields_ * row_bytes_);
      std::memcpy(rows->Make(key, cursor).first, row.data(), row.size());
    }
    rows_ = std::move(rows);
    Drop();
  }

 private:
  static constexpr Key kLast = ~Key{0};

  char* RowAt(Key key, RowMap::Cursor& cursor) {
    const auto [row, made] = rows_->Make(key, cursor);
    if (made && spec_.init != Init::kZeros) FirstValues(spec_, key, row);
    return row;
  }

  uint64_t SavedRow() const { return sizeof(Key) + fields_ * row_bytes_; }

  // Here the fields of a row lie together: a row is one place in memory. An update does not touch
  // the fields that it does not have, so it does not matter what these addresses are then.
  void UpdateRow(UpdateLoop update, const char* pushed, char* row) {
    update(spec_, pushed, row, row + row_bytes_, row + 2 * row_bytes_, spec_.width);
  }

  const Splitter splitter_;
  const int part_;
  std::unique_ptr<RowMap> rows_;
  RowMap sums_;
};

}  // namespace

std::unique_ptr<Rows> MakeSparseRows(const TableSpec& spec, const Splitter& splitter, int part) {
  return std::make_unique<SparseRows>(spec, splitter, part);
}

}  // namespace phalanx::ps::internal
