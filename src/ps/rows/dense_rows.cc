#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "src/common/check.h"
#include "src/ps/rows/first_values.h"
#include "src/ps/rows/rows.h"
#include "src/ps/rows/updates.h"

namespace phalanx::ps::internal {

ZeroedBytes::ZeroedBytes(uint64_t size) : size_(size) {
  if (size == 0) return;
  // calloc takes large blocks from the system, which have zeros already: pages of rows that are not
  // pushed to cost no memory and no time.
  data_.reset(static_cast<char*>(std::calloc(size, 1)));
  if (data_ == nullptr) throw std::bad_alloc();
}

void ZeroedBytes::Free::operator()(char* data) const { std::free(data); }

Rows::Rows(const TableSpec& spec)
    : spec_(spec),
      row_bytes_(spec.width * ElementSize(spec.dtype)),
      fields_(1 + StateArrays(spec.update)) {}

void Rows::Read(absl::Span<const Key>, char*) const {
  PHALANX_CHECK(false, "rows with lengths are read with these");
}
size_t Rows::ReadLengths(absl::Span<const Key>, uint64_t, std::vector<uint32_t>&,
                         std::vector<char>&) const {
  PHALANX_CHECK(false, "all rows have the same length");
}
RowRef Rows::Resize(Key, uint32_t) { PHALANX_CHECK(false, "all rows have the same length"); }
void Rows::AddAll(const char*) { PHALANX_CHECK(false, "a sparse part has no last row"); }
void Rows::UpdateAll(const char*) { PHALANX_CHECK(false, "a sparse part has no last row"); }
void Rows::SetAll(const char*) { PHALANX_CHECK(false, "a sparse part has no last row"); }

namespace {

// One array for the values and one for each field of state, by place: a pull of all keys is one
// copy.
class DenseRows : public Rows {
 public:
  DenseRows(const TableSpec& spec, const Splitter& splitter, int part)
      : Rows(spec),
        splitter_(splitter),
        part_(part),
        is_range_(spec.split == Split::kRange),
        first_key_(is_range_ ? splitter.Begin(part) : 0),
        count_(splitter.KeysOf(part)),
        data_(fields_ * count_ * row_bytes_) {
    if (spec.init == Init::kZeros) return;
    for (uint64_t place = 0; place < count_; ++place) {
      FirstValues(spec_, splitter_.KeyAt(part_, place), At(0, place));
    }
  }

  // One call of the loop for a run of rows: a push of all keys is one pass over the memory.
  void Update(const PushedRows& push) override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    ForRuns(push.keys, [&](size_t first, uint64_t place, uint64_t count) {
      UpdateRun(update, push.values + first * row_bytes_, place, count);
    });
  }

  void Read(absl::Span<const Key> keys, char* out) const override {
    ForRuns(keys, [&](size_t first, uint64_t place, uint64_t count) {
      std::memcpy(out + first * row_bytes_, At(0, place), count * row_bytes_);
    });
  }

  RowRef Row(Key key) override { return {At(0, PlaceOf(key)), spec_.width}; }
  absl::string_view AllValues() const override { return {data_.data(), count_ * row_bytes_}; }

  void Add(const PushedRows& push) override {
    ForRuns(push.keys, [&](size_t first, uint64_t place, uint64_t count) {
      AddRun(push.values + first * row_bytes_, place, count);
    });
  }

  bool added() const override { return end_ > 0; }

  void AddAll(const char* pushed) override {
    if (count_ > 0) AddRun(pushed, 0, count_);
  }

  void UpdateAll(const char* pushed) override { UpdateRun(UpdateLoopOf(spec_), pushed, 0, count_); }

  void SetAll(const char* values) override {
    if (count_ > 0) std::memcpy(data_.data(), values, count_ * row_bytes_);
  }

  // The update is made once with the sum of a clock, not once for each push: with momentum, adagrad
  // and ftrl that is another result, and it is the one that phalanx/ps_table.h promises.
  void Turn() override {
    const UpdateLoop update = UpdateLoopOf(spec_);
    ForAdded([&](uint64_t place, uint64_t count) {
      UpdateRun(update, sums_.data() + place * row_bytes_, place, count);
    });
    Drop();
  }

  AddedRows TakeAdded() override {
    AddedRows taken;
    ForAdded([&](uint64_t place, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) taken.keys.push_back(splitter_.KeyAt(part_, place + i));
      const char* sums = sums_.data() + place * row_bytes_;
      taken.values.insert(taken.values.end(), sums, sums + count * row_bytes_);
    });
    Drop();
    return taken;
  }

  // Sums need no zeros: the first push of the next clock is copied over them.
  void Drop() override {
    if (added()) std::memset(is_added_.data() + begin_, 0, end_ - begin_);
    begin_ = end_ = 0;
  }

  uint64_t rows() const override { return count_; }
  uint64_t bytes() const override { return data_.size() + sums_.size() + is_added_.size(); }

  // The arrays one behind the other, as they lie in memory: a snapshot costs one copy.
  void Save(std::string& out) const override { out.append(data_.data(), data_.size()); }

  // Another length than that of the arrays is an error before anything is written.
  void Load(ByteReader& in) override {
    const absl::string_view bytes = in.Raw(data_.size());
    if (!in.Finish().ok()) return;
    if (!bytes.empty()) std::memcpy(data_.data(), bytes.data(), bytes.size());
    Drop();
  }

 private:
  // Fields are arrays of their own (values, then the update's state), so that a pull of a run is
  // one copy, and the loops read and write streams.
  char* At(uint64_t field, uint64_t place) const {
    return data_.data() + (field * count_ + place) * row_bytes_;
  }

  // Of a key of this part: a range needs no division.
  uint64_t PlaceOf(Key key) const { return is_range_ ? key - first_key_ : splitter_.PlaceOf(key); }

  // Calls run(first, place, count) for runs of keys that have consecutive places. Places grow with
  // the keys, so a run is one if its two ends are as far from each other as their places: all keys
  // of a part take two looks.
  template <typename Run>
  void ForRuns(absl::Span<const Key> keys, const Run& run) const {
    for (size_t first = 0; first < keys.size();) {
      const uint64_t place = PlaceOf(keys[first]);
      const auto is_run = [&](size_t count) {
        return PlaceOf(keys[first + count - 1]) - place == count - 1;
      };
      const size_t rest = keys.size() - first;
      size_t count = 1;
      if (rest > 1 && is_run(2)) {
        count = is_run(rest) ? rest : LastTrue(2, rest, is_run);
      }
      run(first, place, count);
      first += count;
    }
  }

  // The greatest number in [low, high) for which `holds`, which holds for `low` and not for `high`,
  // and not again once it has not: by doubling, then by halving.
  template <typename Holds>
  static size_t LastTrue(size_t low, size_t high, const Holds& holds) {
    for (size_t step = low; low + step < high; step *= 2) {
      if (!holds(low + step)) {
        high = low + step;
        break;
      }
      low += step;
    }
    while (high - low > 1) {
      const size_t middle = low + (high - low) / 2;
      (holds(middle) ? low : high) = middle;
    }
    return low;
  }

  // One call for all elements of the run.
  void UpdateRun(UpdateLoop update, const char* pushed, uint64_t place, uint64_t count) {
    update(spec_, pushed, At(0, place), fields_ > 1 ? At(1, place) : nullptr,
           fields_ > 2 ? At(2, place) : nullptr, count * spec_.width);
  }

  // The first push of a row is copied: -0 stays -0.
  void AddRun(const char* pushed, uint64_t place, uint64_t count) {
    // Tables without kBsp never come here, and need no memory for sums.
    if (is_added_.empty()) {
      sums_ = ZeroedBytes(count_ * row_bytes_);
      // A byte for each row, so that memchr finds runs.
      is_added_.resize(count_, 0);
    }
    // Turn looks at the rows between the first and the last one that were pushed, not at all.
    begin_ = added() ? std::min(begin_, place) : place;
    end_ = std::max(end_, place + count);
    char* flags = is_added_.data() + place;
    char* sums = sums_.data() + place * row_bytes_;
    const AddLoop add = AddLoopOf(spec_.dtype);
    for (uint64_t at = 0; at < count;) {
      const bool is_first = flags[at] == 0 || spec_.update == Update::kAssign;
      // Rows with the same flag go through one loop: with kAssign all of them count as the first.
      const void* other = spec_.update == Update::kAssign
                              ? nullptr
                              : std::memchr(flags + at, !flags[at], count - at);
      const uint64_t end =
          other == nullptr ? count : static_cast<uint64_t>(static_cast<const char*>(other) - flags);
      if (is_first) {
        std::memcpy(sums + at * row_bytes_, pushed + at * row_bytes_, (end - at) * row_bytes_);
      } else {
        add(pushed + at * row_bytes_, sums + at * row_bytes_, (end - at) * spec_.width);
      }
      at = end;
    }
    std::memset(flags, 1, count);
  }

  // Calls run(place, count) for the runs of rows that something was added to.
  template <typename Run>
  void ForAdded(const Run& run) const {
    const char* flags = is_added_.data();
    for (uint64_t at = begin_; at < end_;) {
      const void* begin = std::memchr(flags + at, 1, end_ - at);
      if (begin == nullptr) return;
      at = static_cast<const char*>(begin) - flags;
      const void* end = std::memchr(flags + at, 0, end_ - at);
      const uint64_t count =
          end == nullptr ? end_ - at : static_cast<const char*>(end) - (flags + at);
      run(at, count);
      at += count;
    }
  }

  const Splitter splitter_;
  const int part_;
  const bool is_range_;
  const Key first_key_;  // of a range
  const uint64_t count_;
  const ZeroedBytes data_;
  // From the first Add on.
  ZeroedBytes sums_;
  std::vector<char> is_added_;
  // Flags outside of [begin_, end_) are 0.
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace

std::unique_ptr<Rows> MakeDenseRows(const TableSpec& spec, const Splitter& splitter, int part) {
  return std::make_unique<DenseRows>(spec, splitter, part);
}

}  // namespace phalanx::ps::internal
