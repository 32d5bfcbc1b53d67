#include "src/ps/part.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/io/wire.h"
#include "src/ps/rows/half_floats.h"

namespace phalanx::ps::internal {
namespace {

// Of what Save writes; MixKey, FirstValues and the order of fields are part of it.
// A change of any of them needs another number here.
constexpr absl::string_view kFormat = "phalanx part 1";
// Headers are short: a name, and some numbers.
constexpr size_t kMaxHeaderSize = 4096;

// A table that says how many keys it has is dense: an array, which a key's place is an index of.
std::unique_ptr<Rows> MakeRows(const TableSpec& spec, const Splitter& splitter, int part) {
  if (spec.lengths) return MakeLengthRows(spec, splitter, part);
  return spec.keys > 0 ? MakeDenseRows(spec, splitter, part) : MakeSparseRows(spec, splitter, part);
}

}  // namespace

Part::Part(const TableSpec& spec, const Splitter& splitter, int part, OwnUpdate own)
    : spec_(spec),
      splitter_(splitter),
      part_(part),
      own_(std::move(own)),
      rows_(MakeRows(spec, splitter, part)) {
  PHALANX_CHECK((own_ != nullptr) == (spec.update == Update::kOwn),
                "a function is there exactly for updates of the program");
}

// A dense table has no keys behind its last one, though the split would place them.
bool Part::Has(Key key) const {
  return (spec_.keys == 0 || key < spec_.keys) && splitter_.CanHave(part_, key);
}

// Order first: the shortcut for ranges below relies on it.
absl::Status Part::CheckKeys(absl::Span<const Key> keys) const {
  const auto wrong = [&](size_t at, auto... why) {
    return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("key ", keys[at], why...));
  };
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i] <= keys[i - 1]) {
      return wrong(i, " comes after key ", keys[i - 1], "; keys have to be strictly increasing");
    }
  }
  // Ranges have what is between two of their keys.
  const bool is_range = spec_.split == Split::kRange;
  if (is_range && (keys.empty() || (Has(keys.front()) && Has(keys.back())))) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (Has(keys[i])) continue;
    if (spec_.keys > 0 && keys[i] >= spec_.keys) {
      return wrong(i, "; the table has the keys from 0 to ", spec_.keys - 1);
    }
    return wrong(i, " is in part ", splitter_.PartOf(keys[i]), "; this is part ", part_, " of ",
                 splitter_.parts());
  }
  return absl::OkStatus();
}

// Own updates get keys and values as they came; the others are loops over the rows' memory.
absl::Status Part::Push(const From& from, absl::Span<const Key> keys, const void* values,
                        absl::Span<const uint32_t> lengths) {
  const PushedRows push = {keys, static_cast<const char*>(values), lengths};
  if (spec_.update == Update::kOwn) return CallOwn(from, push);
  rows_->Update(push);
  return absl::OkStatus();
}

void Part::Pull(absl::Span<const Key> keys, void* values) const {
  rows_->Read(keys, static_cast<char*>(values));
}

size_t Part::PullLengths(absl::Span<const Key> keys, uint64_t most, std::vector<uint32_t>& lengths,
                         std::vector<char>& values) const {
  return rows_->ReadLengths(keys, most, lengths, values);
}

// Under BSP, where a clock's pushes are summed and one update follows in Turn.
void Part::Add(absl::Span<const Key> keys, const void* values, absl::Span<const uint32_t> lengths) {
  rows_->Add({keys, static_cast<const char*>(values), lengths});
}

absl::Status Part::Turn(uint64_t clock) {
  if (!rows_->added()) return absl::OkStatus();
  if (spec_.update != Update::kOwn) {
    rows_->Turn();
    return absl::OkStatus();
  }
  const AddedRows sums = rows_->TakeAdded();
  // The sum is of all workers, and of no life.
  return CallOwn(From{.worker = -1, .clock = clock, .life = 0},
                 {sums.keys, sums.values.data(), sums.lengths});
}

void Part::AddAll(const void* values) { rows_->AddAll(static_cast<const char*>(values)); }

// What the store has summed has the old rows in it.
void Part::SetAll(const void* values) {
  PHALANX_CHECK(!rows_->added(), "a turn has all pushes, or none");
  rows_->SetAll(static_cast<const char*>(values));
}

absl::Status Part::TurnAll(uint64_t clock, const void* values) {
  PHALANX_CHECK(!rows_->added(), "all rows are added once");
  const auto* pushed = static_cast<const char*>(values);
  if (spec_.update != Update::kOwn) {
    rows_->UpdateAll(pushed);
    return absl::OkStatus();
  }
  // Kept: to make the pages of such a list in each clock takes longer than many an update.
  if (all_keys_.empty()) {
    all_keys_.resize(splitter_.KeysOf(part_));
    for (uint64_t place = 0; place < all_keys_.size(); ++place) {
      all_keys_[place] = splitter_.KeyAt(part_, place);
    }
  }
  if (all_keys_.empty()) return absl::OkStatus();
  return CallOwn(From{.worker = -1, .clock = clock, .life = 0}, {all_keys_, pushed});
}

// The program's function is none of ours: whatever it throws becomes an error of the table.
absl::Status Part::CallOwn(const From& from, const PushedRows& push) {
  // Values lie in a message, at any address. A program's function may use them as an array, or as a
  // vector of the processor, so those that are not aligned for their type are copied.
  std::vector<char> aligned;
  const char* values = push.values;
  if (reinterpret_cast<uintptr_t>(values) % ElementSize(spec_.dtype) != 0) {
    const uint64_t elements =
        spec_.lengths ? std::accumulate(push.lengths.begin(), push.lengths.end(), uint64_t{0})
                      : push.keys.size() * spec_.width;
    aligned.assign(values, values + elements * ElementSize(spec_.dtype));
    values = aligned.data();
  }
  try {
    const absl::Status status = own_(from, push.keys, values, push.lengths, *this);
    if (status.ok()) return status;
    // Not its code: callers would take Unavailable for a death, or Aborted for the end of a life.
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat("its update failed: ", status.ToString()));
  } catch (const std::exception& error) {
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat("its update has thrown an exception: ", error.what()));
  } catch (...) {
    return Error(absl::StatusCode::kInternal, "its update has thrown something unknown");
  }
}

// A program's update can ask for any key; rows of other parts are not here.
RowRef Part::Row(Key key) { return Has(key) ? rows_->Row(key) : RowRef{}; }

RowRef Part::Resize(Key key, uint32_t length) {
  if (!spec_.lengths || length > spec_.width || !Has(key)) return {};
  return rows_->Resize(key, length);
}

// Blocks and hashes have other rows between two keys, or none of them.
Part::Run Part::AllRows() {
  const bool range = spec_.keys > 0 && spec_.split == Split::kRange;
  const uint64_t keys = range ? splitter_.KeysOf(part_) : 0;
  if (keys == 0) return {};
  const Key first = splitter_.KeyAt(part_, 0);
  return {first, keys, rows_->Row(first).values};
}

absl::Status Part::Error(absl::StatusCode code, absl::string_view why) const {
  return absl::Status(code, absl::StrCat("table \"", spec_.name, "\": ", why));
}

// Everything that the meaning of the bytes depends on, as a text, so that a part of another spec is
// refused with both. Numbers are written with all their digits.
std::string Part::Header() const {
  std::string header =
      absl::StrCat(kFormat, ", part ", part_, " of ", splitter_.parts(), ", table \"", spec_.name,
                   "\", ", spec_.keys, " keys, ", spec_.lengths ? "lengths to " : "width ",
                   spec_.width, ", ", DTypeName(spec_.dtype), ", split ", SplitName(spec_.split),
                   " ", spec_.block, ", ", UpdateName(spec_.update));
  absl::StrAppend(&header, ", init ", static_cast<int>(spec_.init), " seed ", spec_.seed);
  for (const double number :
       {spec_.scale, spec_.rate, spec_.momentum, spec_.epsilon, spec_.beta, spec_.l1, spec_.l2}) {
    char text[32];
    std::snprintf(text, sizeof(text), " %.17g", number);
    absl::StrAppend(&header, text);
  }
  return header;
}

// Sums between two clocks are not part of it: they are made of pushes that are saved beside it.
std::string Part::Save() const {
  PHALANX_CHECK(!rows_->added(), "a part is saved between two clocks");
  std::string out;
  ByteWriter writer(out);
  writer.Bytes(Header());
  rows_->Save(out);
  return out;
}

// The rows check what they read before they change: after an error the part is what it was.
absl::Status Part::Load(absl::string_view bytes) {
  ByteReader in(bytes);
  const absl::string_view header = in.Bytes(kMaxHeaderSize);
  if (in.ok() && header != Header()) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("what was saved is \"", absl::CHexEscape(header), "\"; this is \"",
                              absl::CHexEscape(Header()), "\""));
  }
  if (in.ok()) rows_->Load(in);
  const absl::Status status = in.Finish();
  if (status.ok()) return status;
  return Error(absl::StatusCode::kInvalidArgument,
               absl::StrCat("what was saved cannot be read: ", status.message()));
}

// The pairs that Check allows, in both directions.
void Convert(DType from, DType to, const void* in, void* out, uint64_t elements) {
  if (from == to) {
    if (elements > 0) std::memcpy(out, in, elements * ElementSize(from));
  } else if (from == DType::kF32 && to == DType::kF16) {
    F32ToF16(in, out, elements);
  } else if (from == DType::kF32 && to == DType::kBf16) {
    F32ToBf16(in, out, elements);
  } else if (from == DType::kF16 && to == DType::kF32) {
    F16ToF32(in, out, elements);
  } else {
    PHALANX_CHECK(from == DType::kBf16 && to == DType::kF32, "a table has no such types");
    Bf16ToF32(in, out, elements);
  }
}

}  // namespace phalanx::ps::internal
