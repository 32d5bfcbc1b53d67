// Rows with lengths of their own, in a Part. What updates do to elements is that of part_test: the
// model is a table whose rows are the elements.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/io/wire.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/part.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Key kMaxKey = ~Key{0};
constexpr uint64_t kAny = ~uint64_t{0};

template <typename T>
constexpr DType DTypeOf() {
  if (std::is_same_v<T, float>) return DType::kF32;
  if (std::is_same_v<T, double>) return DType::kF64;
  return std::is_same_v<T, int32_t> ? DType::kI32 : DType::kI64;
}

template <typename T>
TableSpec Spec(uint32_t width, Update update) {
  TableSpec spec;
  spec.name = "t";
  spec.width = width;
  spec.lengths = true;
  spec.dtype = spec.wire = DTypeOf<T>();
  spec.update = update;
  return spec;
}

std::unique_ptr<Part> Make(const TableSpec& spec, int part = 0, int parts = 1,
                           OwnUpdate own = nullptr) {
  EXPECT_THAT(Check(spec), IsOk());
  return std::make_unique<Part>(spec, Splitter(spec, parts), part, std::move(own));
}

template <typename T>
using Lists = std::map<Key, std::vector<T>>;

// Rows as a push has them. The values lie as those of a message: at any address.
template <typename T>
struct Batch {
  explicit Batch(const Lists<T>& rows, size_t shift = 1) : bytes(shift), shift(shift) {
    for (const auto& [key, row] : rows) {
      keys.push_back(key);
      lengths.push_back(static_cast<uint32_t>(row.size()));
      const auto* const from = reinterpret_cast<const char*>(row.data());
      bytes.insert(bytes.end(), from, from + row.size() * sizeof(T));
    }
  }
  const char* values() const { return bytes.data() + shift; }

  std::vector<Key> keys;
  std::vector<uint32_t> lengths;
  std::vector<char> bytes;
  const size_t shift;
};

template <typename T>
absl::Status PushTo(Part& part, const Lists<T>& rows) {
  const Batch<T> batch(rows);
  return part.Push(From{.worker = 0, .clock = 0, .life = 1}, batch.keys, batch.values(),
                   batch.lengths);
}

template <typename T>
void AddTo(Part& part, const Lists<T>& rows) {
  const Batch<T> batch(rows);
  part.Add(batch.keys, batch.values(), batch.lengths);
}

template <typename T>
Lists<T> Pulled(const Part& part, const std::vector<Key>& keys) {
  std::vector<uint32_t> lengths = {7};
  std::vector<char> values = {7, 7};
  EXPECT_EQ(part.PullLengths(keys, kAny, lengths, values), keys.size());
  EXPECT_EQ(lengths.size(), keys.size());
  Lists<T> rows;
  const char* from = values.data();
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<T>& row = rows[keys[i]];
    row.resize(lengths[i]);
    if (lengths[i] > 0) std::memcpy(row.data(), from, lengths[i] * sizeof(T));
    from += lengths[i] * sizeof(T);
  }
  EXPECT_EQ(from, values.data() + values.size());
  return rows;
}

template <typename T>
std::vector<T> PulledRow(const Part& part, Key key) {
  return Pulled<T>(part, {key})[key];
}

// ---- every update, type and length

// Each element is a row of an ordinary sparse table, and is pushed there with its row.
template <typename T>
class Model {
 public:
  explicit Model(const TableSpec& spec)
      : spec_(spec), elements_(ElementSpec(spec), Split(), 0, {}) {}

  void Push(const Lists<T>& rows) {
    const auto [keys, values] = ElementsOf(rows);
    PHALANX_EXPECT_OK(elements_.Push(From{}, keys, values.data()));
    for (const auto& [key, row] : rows) Lengthen(lengths_[key], row.size());
  }
  void Add(const Lists<T>& rows) {
    const auto [keys, values] = ElementsOf(rows);
    elements_.Add(keys, values.data());
    for (const auto& [key, row] : rows) Lengthen(added_[key], row.size());
  }
  void Turn(uint64_t clock) {
    PHALANX_EXPECT_OK(elements_.Turn(clock));
    for (const auto& [key, length] : added_) Lengthen(lengths_[key], length);
    added_.clear();
  }
  std::vector<T> Row(Key key) const {
    const auto found = lengths_.find(key);
    std::vector<T> row(found == lengths_.end() ? 0 : found->second);
    for (size_t i = 0; i < row.size(); ++i) elements_.Pull({key * spec_.width + i}, &row[i]);
    return row;
  }
  uint64_t rows() const { return lengths_.size(); }

 private:
  static TableSpec ElementSpec(TableSpec spec) {
    spec.lengths = false;
    spec.width = 1;
    spec.split = Split::kRange;
    return spec;
  }
  Splitter Split() const { return Splitter(ElementSpec(spec_), 1); }

  std::pair<std::vector<Key>, std::vector<T>> ElementsOf(const Lists<T>& rows) const {
    std::pair<std::vector<Key>, std::vector<T>> elements;
    for (const auto& [key, row] : rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        elements.first.push_back(key * spec_.width + i);
        elements.second.push_back(row[i]);
      }
    }
    return elements;
  }
  void Lengthen(size_t& length, size_t pushed) const {
    length = spec_.update == Update::kAssign ? pushed : std::max(length, pushed);
  }

  const TableSpec spec_;
  Part elements_;
  std::map<Key, size_t> lengths_, added_;
};

template <typename T>
T Element(Random& random) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(random.Next());
  if (random.Chance(0.1)) return random.Chance(0.5) ? T{0} : -T{0};
  return static_cast<T>(4 * random.Unit() - 2);
}

// Of some of the keys. Some rows have no elements, and some all that they can have.
template <typename T>
Lists<T> SomeRows(const std::vector<Key>& keys, uint32_t width, Random& random) {
  Lists<T> rows;
  for (const Key key : keys) {
    if (random.Chance(0.6)) continue;
    const uint64_t kind = random.Below(6);
    const uint64_t length = kind == 0 ? 0 : kind == 1 ? width : random.Below(width + 1);
    std::vector<T>& row = rows[key];
    for (uint64_t i = 0; i < length; ++i) row.push_back(Element<T>(random));
  }
  return rows;
}

template <typename T>
void ExpectSame(const Part& part, const Model<T>& model, const std::vector<Key>& keys) {
  for (const auto& [key, row] : Pulled<T>(part, keys)) {
    const std::vector<T> expected = model.Row(key);
    ASSERT_EQ(row.size(), expected.size()) << "key " << key;
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_EQ(std::memcmp(&row[i], &expected[i], sizeof(T)), 0)
          << "key " << key << " element " << i << ": " << row[i] << " for " << expected[i];
    }
  }
  EXPECT_EQ(part.rows(), model.rows());
}

// The second of three parts, with pushes as they come or by clocks. Now and then it goes on in
// another part that has loaded it.
template <typename T>
void RunAgainstModel(const TableSpec& spec, bool bsp, Random& random) {
  SCOPED_TRACE(absl::StrCat(UpdateName(spec.update), " ", DTypeName(spec.dtype), " width ",
                            spec.width, bsp ? " by clocks" : ""));
  const Splitter splitter(spec, 3);
  std::vector<Key> keys;
  for (Key key = 0; key < 60; ++key) {
    if (splitter.CanHave(1, key)) keys.push_back(key);
  }
  std::unique_ptr<Part> part = Make(spec, 1, 3);
  Model<T> model(spec);
  for (int round = 0; round < 30 && !::testing::Test::HasFailure(); ++round) {
    const Lists<T> rows = SomeRows<T>(keys, spec.width, random);
    if (bsp) {
      AddTo(*part, rows);
      model.Add(rows);
      if (random.Chance(0.6)) continue;
      PHALANX_ASSERT_OK(part->Turn(round));
      model.Turn(round);
    } else {
      PHALANX_ASSERT_OK(PushTo(*part, rows));
      model.Push(rows);
    }
    ExpectSame(*part, model, keys);
    if (random.Chance(0.7)) continue;
    std::unique_ptr<Part> next = Make(spec, 1, 3);
    PHALANX_ASSERT_OK(PushTo(*next, SomeRows<T>(keys, spec.width, random)));
    AddTo(*next, SomeRows<T>(keys, spec.width, random));
    PHALANX_ASSERT_OK(next->Load(part->Save()));
    EXPECT_EQ(next->Save(), part->Save());
    part = std::move(next);
    ExpectSame(*part, model, keys);
  }
}

template <typename T>
void RunAllUpdates(const std::vector<Update>& updates) {
  const uint64_t first = testing::TestSeed(1);
  const uint64_t last = testing::SeedGiven() ? first : first + 9;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Random random(seed);
    for (const Update update : updates) {
      for (const uint32_t width : {1u, 5u, 40u}) {
        TableSpec spec = Spec<T>(width, update);
        spec.split = Split::kHash;
        spec.l1 = 0.5;
        spec.l2 = 0.25;
        for (const bool bsp : {false, true}) RunAgainstModel<T>(spec, bsp, random);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

const std::vector<Update> kOfFloats = {Update::kAssign,   Update::kSum,     Update::kSgd,
                                       Update::kMomentum, Update::kAdagrad, Update::kFtrl};

TEST(LengthRows, UpdatesOfF32) { RunAllUpdates<float>(kOfFloats); }
TEST(LengthRows, UpdatesOfF64) { RunAllUpdates<double>(kOfFloats); }
TEST(LengthRows, UpdatesOfI32) { RunAllUpdates<int32_t>({Update::kAssign, Update::kSum}); }
TEST(LengthRows, UpdatesOfI64) { RunAllUpdates<int64_t>({Update::kAssign, Update::kSum}); }

// ---- by hand

TEST(LengthRows, ALongerPushMakesItsRowAsLong) {
  const std::unique_ptr<Part> part = Make(Spec<double>(4, Update::kSum));
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{3, {1, 2}}, {9, {}}, {kMaxKey, {5}}}));
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{3, {10}}, {9, {7, 8, 9, 1}}}));
  EXPECT_THAT(PulledRow<double>(*part, 3), ElementsAre(11, 2));
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{3, {1, 1, 1}}, {9, {}}}));
  EXPECT_THAT(PulledRow<double>(*part, 3), ElementsAre(12, 3, 1));
  EXPECT_THAT(PulledRow<double>(*part, 9), ElementsAre(7, 8, 9, 1));
  EXPECT_THAT(PulledRow<double>(*part, kMaxKey), ElementsAre(5));
}

// docs/parameter-server.md says what a row takes.
TEST(LengthRows, TakeABoundedPlaceBesideTheirElements) {
  // The least and the most: where the index, and where the lists have just grown.
  for (const size_t rows : {7'168, 7'169, 8'192, 8'193, 10'000}) {
    const std::unique_ptr<Part> part = Make(Spec<double>(4, Update::kSum));
    std::vector<Key> keys(rows);
    std::iota(keys.begin(), keys.end(), Key{0});
    const std::vector<uint32_t> lengths(rows, 3);
    const std::vector<double> values(3 * rows, 1);
    PHALANX_ASSERT_OK(part->Push(From{}, keys, values.data(), lengths));
    const uint64_t elements = rows * (16 + 3 * sizeof(double));
    EXPECT_GE(part->bytes(), elements + 45 * rows) << rows;
    EXPECT_LE(part->bytes(), elements + 90 * rows) << rows;
  }
}

TEST(LengthRows, NewElementsHaveNewState) {
  TableSpec spec = Spec<double>(8, Update::kMomentum);
  spec.momentum = 0.5;
  spec.rate = 1;
  const std::unique_ptr<Part> part = Make(spec);
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {1}}}));        // v = 1
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {1, 1}}}));     // v = 1.5, 1
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {0, 0, 4}}}));  // v = 0.75, 0.5, 4
  EXPECT_THAT(PulledRow<double>(*part, 1), ElementsAre(-3.25, -1.5, -4));
  // Elements that are not pushed do not move, though they have a velocity.
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {0}}}));  // v = 0.375
  EXPECT_THAT(PulledRow<double>(*part, 1), ElementsAre(-3.625, -1.5, -4));
}

TEST(LengthRows, APushWithoutElementsMakesARowAndAPullDoesNot) {
  for (const bool bsp : {false, true}) {
    const std::unique_ptr<Part> part = Make(Spec<float>(4, Update::kSum));
    EXPECT_THAT(PulledRow<float>(*part, 5), IsEmpty());
    EXPECT_EQ(part->rows(), 0u);
    if (bsp) {
      AddTo<float>(*part, {{5, {}}});
      EXPECT_EQ(part->rows(), 0u) << "invisible until the clock turns";
      PHALANX_ASSERT_OK(part->Turn(0));
    } else {
      PHALANX_ASSERT_OK(PushTo<float>(*part, {{5, {}}}));
    }
    EXPECT_THAT(PulledRow<float>(*part, 5), IsEmpty());
    EXPECT_EQ(part->rows(), 1u);
    const std::unique_ptr<Part> next = Make(Spec<float>(4, Update::kSum));
    PHALANX_ASSERT_OK(next->Load(part->Save()));
    EXPECT_EQ(next->rows(), 1u);
    PHALANX_ASSERT_OK(PushTo<float>(*part, {}));
    EXPECT_EQ(part->rows(), 1u);
  }
}

TEST(LengthRows, AssignGivesTheLengthOfThePush) {
  const std::unique_ptr<Part> part = Make(Spec<int64_t>(100, Update::kAssign));
  PHALANX_ASSERT_OK(PushTo<int64_t>(*part, {{1, std::vector<int64_t>(100, 5)}, {2, {1}}}));
  const uint64_t bytes = part->bytes();
  PHALANX_ASSERT_OK(PushTo<int64_t>(*part, {{1, {3, 4}}}));
  EXPECT_THAT(PulledRow<int64_t>(*part, 1), ElementsAre(3, 4));
  EXPECT_LE(part->bytes() + 90 * 8, bytes) << "a short row has a long one's memory";
  PHALANX_ASSERT_OK(PushTo<int64_t>(*part, {{1, {}}, {2, {}}}));
  EXPECT_THAT(PulledRow<int64_t>(*part, 1), IsEmpty());
  EXPECT_EQ(part->rows(), 2u);
  PHALANX_ASSERT_OK(PushTo<int64_t>(*part, {{1, {6, 7, 8}}}));
  EXPECT_THAT(PulledRow<int64_t>(*part, 1), ElementsAre(6, 7, 8));
}

TEST(LengthRows, WithAssignTheLastPushOfAClockStays) {
  const std::unique_ptr<Part> part = Make(Spec<int32_t>(9, Update::kAssign));
  AddTo<int32_t>(*part, {{1, {1, 2, 3, 4, 5, 6, 7}}, {2, {1}}, {3, {1, 1}}});
  AddTo<int32_t>(*part, {{1, {8, 9}}, {2, {4, 5, 6}}, {3, {}}});
  PHALANX_ASSERT_OK(part->Turn(0));
  EXPECT_THAT(PulledRow<int32_t>(*part, 1), ElementsAre(8, 9));
  EXPECT_THAT(PulledRow<int32_t>(*part, 2), ElementsAre(4, 5, 6));
  EXPECT_THAT(PulledRow<int32_t>(*part, 3), IsEmpty());
}

TEST(LengthRows, AClockIsSummedInTheOrderThatIsGiven) {
  const std::unique_ptr<Part> part = Make(Spec<float>(3, Update::kSum));
  AddTo<float>(*part, {{1, {1e8f, 1}}, {2, {1}}});
  AddTo<float>(*part, {{1, {1}}, {2, {1e8f, 1e8f}}});
  AddTo<float>(*part, {{1, {-1e8f, 1, 1}}, {2, {-1e8f, 1}}});
  PHALANX_ASSERT_OK(part->Turn(0));
  EXPECT_THAT(PulledRow<float>(*part, 1), ElementsAre(0, 2, 1));
  EXPECT_THAT(PulledRow<float>(*part, 2), ElementsAre(0, 1e8f));
  // Nothing of it is left for the next clock.
  PHALANX_ASSERT_OK(part->Turn(1));
  EXPECT_THAT(PulledRow<float>(*part, 1), ElementsAre(0, 2, 1));
}

TEST(LengthRows, OneUpdateForEachKeyOfAClock) {
  const std::unique_ptr<Part> part = Make(Spec<double>(3, Update::kAdagrad));
  AddTo<double>(*part, {{3, {2}}});
  AddTo<double>(*part, {{3, {1, 4}}});
  PHALANX_ASSERT_OK(part->Turn(0));
  // g = 3, so s = 9; two updates would have s = 4 + 1.
  EXPECT_DOUBLE_EQ(PulledRow<double>(*part, 3)[0], -0.1 * 3 / (3 + 1e-8));
  EXPECT_DOUBLE_EQ(PulledRow<double>(*part, 3)[1], -0.1 * 4 / (4 + 1e-8));
}

// ---- pulls

TEST(LengthRows, PullsEndBeforeTheyCostMore) {
  for (const DType wire : {DType::kF32, DType::kF16}) {
    TableSpec spec = Spec<float>(10, Update::kSum);
    spec.wire = wire;
    const std::unique_ptr<Part> part = Make(spec);
    PHALANX_ASSERT_OK(PushTo<float>(*part, {{1, {1, 2, 3}}, {2, {4}}, {4, {5, 6}}}));
    const uint64_t element = ElementSize(wire);
    std::vector<uint32_t> lengths;
    std::vector<char> values;
    const std::vector<Key> keys = {1, 2, 3, 4};
    const auto pulled = [&](uint64_t most) {
      const size_t rows = part->PullLengths(keys, most, lengths, values);
      EXPECT_EQ(lengths.size(), rows);
      uint64_t elements = 0;
      for (const uint32_t length : lengths) elements += length;
      EXPECT_EQ(values.size(), elements * sizeof(float)) << "of the dtype";
      return rows;
    };
    const uint64_t one = 4 + 3 * element, two = one + 4 + element, three = two + 4,
                   all = three + 4 + 2 * element;
    EXPECT_EQ(pulled(kAny), 4u);
    EXPECT_THAT(lengths, ElementsAre(3, 1, 0, 2));
    EXPECT_EQ(pulled(all), 4u);
    EXPECT_EQ(pulled(all - 1), 3u);
    EXPECT_EQ(pulled(three), 3u);
    EXPECT_EQ(pulled(three - 1), 2u);
    EXPECT_EQ(pulled(two), 2u);
    EXPECT_EQ(pulled(two - 1), 1u);
    // One at least, whatever it costs.
    EXPECT_EQ(pulled(one - 1), 1u);
    EXPECT_EQ(pulled(0), 1u);
    EXPECT_THAT(lengths, ElementsAre(3));
    float row[3];
    std::memcpy(row, values.data(), sizeof(row));
    EXPECT_THAT(row, ElementsAre(1, 2, 3));
    EXPECT_EQ(part->PullLengths({}, kAny, lengths, values), 0u);
    EXPECT_THAT(lengths, IsEmpty());
    EXPECT_THAT(values, IsEmpty());
  }
}

// ---- updates of the program

TEST(LengthRows, OwnUpdatesGetLengthsAndResizeRows) {
  std::vector<std::string> calls;
  // Appends what is pushed to the row.
  const OwnUpdate append = [&](const From& from, absl::Span<const Key> keys, const void* values,
                               absl::Span<const uint32_t> lengths, Part& part) -> absl::Status {
    const auto* at = static_cast<const double*>(values);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % alignof(double), 0u);
    EXPECT_EQ(lengths.size(), keys.size());
    std::string call = absl::StrCat(from.worker, " ", from.clock, ":");
    for (size_t i = 0; i < keys.size(); ++i) {
      absl::StrAppend(&call, " ", keys[i], "+", lengths[i]);
      const uint32_t before = part.Row(keys[i]).length;
      const RowRef row = part.Resize(keys[i], before + lengths[i]);
      if (row.values == nullptr) return absl::OutOfRangeError("too long");
      EXPECT_EQ(row.length, before + lengths[i]);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(row.values) % alignof(double), 0u);
      auto* to = static_cast<double*>(row.values) + before;
      for (uint32_t n = 0; n < lengths[i]; ++n) *to++ = *at++;
    }
    calls.push_back(call);
    return absl::OkStatus();
  };
  const std::unique_ptr<Part> part = Make(Spec<double>(5, Update::kOwn), 0, 1, append);
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {1, 2}}, {2, {}}, {3, {3}}}));
  PHALANX_ASSERT_OK(PushTo<double>(*part, {{1, {4, 5}}, {2, {6}}}));
  EXPECT_THAT(PulledRow<double>(*part, 1), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(PulledRow<double>(*part, 2), ElementsAre(6));
  // A clock is one call, in the order of keys, of sums as long as the longest push.
  AddTo<double>(*part, {{2, {1}}, {3, {1, -0.0}}});
  AddTo<double>(*part, {{1, {9}}, {3, {1}}, {4, {}}});
  PHALANX_ASSERT_OK(part->Turn(7));
  EXPECT_THAT(PulledRow<double>(*part, 1), ElementsAre(1, 2, 4, 5, 9));
  EXPECT_THAT(PulledRow<double>(*part, 2), ElementsAre(6, 1));
  EXPECT_THAT(PulledRow<double>(*part, 3), ElementsAre(3, 2, 0));
  EXPECT_TRUE(std::signbit(PulledRow<double>(*part, 3)[2])) << "nothing was added to it";
  EXPECT_EQ(part->rows(), 4u);
  EXPECT_THAT(calls, ElementsAre("0 0: 1+2 2+0 3+1", "0 0: 1+2 2+1", "-1 7: 1+1 2+1 3+2 4+0"));
  EXPECT_THAT(PushTo<double>(*part, {{1, {1}}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("too long")));
}

OwnUpdate Nothing() {
  return [](auto&&...) { return absl::OkStatus(); };
}

TEST(LengthRows, ResizeKeepsElementsAndMakesZeros) {
  const std::unique_ptr<Part> part = Make(Spec<float>(50, Update::kOwn), 1, 2, Nothing());
  const Key key = kMaxKey - 1;
  const RowRef made = part->Row(key);
  EXPECT_NE(made.values, nullptr);
  EXPECT_EQ(made.length, 0u);
  EXPECT_EQ(part->rows(), 1u);
  const auto values = [&](uint32_t length) {
    const RowRef row = part->Resize(key, length);
    EXPECT_EQ(row.length, length);
    EXPECT_EQ(part->Row(key).values, row.values);
    EXPECT_EQ(part->Row(key).length, length);
    return absl::MakeSpan(static_cast<float*>(row.values), row.length);
  };
  std::ranges::fill(values(4), 1.0f);
  EXPECT_THAT(values(6), ElementsAre(1, 1, 1, 1, 0, 0));
  std::ranges::fill(values(6), 2.0f);
  // What is cut off does not come back, whether the row has moved or not.
  EXPECT_THAT(values(5), ElementsAre(2, 2, 2, 2, 2));
  EXPECT_THAT(values(6), ElementsAre(2, 2, 2, 2, 2, 0));
  EXPECT_THAT(values(1), ElementsAre(2));
  EXPECT_THAT(values(3), ElementsAre(2, 0, 0));
  EXPECT_THAT(values(0), IsEmpty());
  EXPECT_THAT(values(2), ElementsAre(0, 0));
  EXPECT_THAT(values(50), ::testing::Each(0.0f));
}

TEST(LengthRows, RowsThatCannotBeResized) {
  const std::unique_ptr<Part> part = Make(Spec<float>(5, Update::kOwn), 1, 2, Nothing());
  EXPECT_NE(part->Resize(kMaxKey, 5).values, nullptr);
  EXPECT_EQ(part->Resize(kMaxKey, 6).values, nullptr);
  EXPECT_EQ(part->Row(kMaxKey).length, 5u);
  EXPECT_EQ(part->Resize(kMaxKey - 1, 6).values, nullptr);
  EXPECT_EQ(part->Resize(7, 1).values, nullptr) << "of another part";
  EXPECT_EQ(part->Row(7).values, nullptr);
  EXPECT_EQ(part->rows(), 1u);
  // A row of no elements is one.
  EXPECT_NE(part->Resize(kMaxKey - 1, 0).values, nullptr);
  EXPECT_EQ(part->rows(), 2u);
}

TEST(LengthRows, RowsStayWhereTheyAreUntilTheyAreResized) {
  const std::unique_ptr<Part> part = Make(Spec<int64_t>(70, Update::kOwn), 0, 1, Nothing());
  const RowRef row = part->Resize(0, 3);
  auto* const values = static_cast<int64_t*>(row.values);
  values[2] = 17;
  for (Key key = 1; key < 1000; ++key) ASSERT_NE(part->Resize(key, key % 71).values, nullptr);
  EXPECT_EQ(part->Row(0).values, values);
  EXPECT_EQ(values[2], 17);
}

// ---- snapshots

// The bytes of a part whose rows are `rows`, which says that there are `count` of them.
std::string Bytes(const Part& part, uint64_t count, const std::vector<std::string>& rows) {
  std::string bytes = part.Save();
  bytes.resize(bytes.size() - sizeof(uint64_t));
  ByteWriter writer(bytes);
  writer.U64(count);
  for (const std::string& row : rows) writer.Raw(row);
  return bytes;
}

std::string SavedRow(Key key, uint32_t length, uint32_t elements) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.U64(key);
  writer.U32(length);
  // Values, and the state of momentum.
  for (uint32_t i = 0; i < 2 * elements; ++i) writer.U32(0x3f800000);
  return bytes;
}

TEST(LengthRows, LoadTrustsNothing) {
  TableSpec spec = Spec<float>(3, Update::kMomentum);
  const std::unique_ptr<Part> empty = Make(spec, 1, 2), part = Make(spec, 1, 2);
  const Key first = Key{1} << 63;
  PHALANX_ASSERT_OK(PushTo<float>(*part, {{first, {1, 2}}}));
  const std::string before = part->Save();
  const auto row = [](Key key, uint32_t length) { return SavedRow(key, length, length); };
  const auto expect_refused = [&](const std::string& bytes, const char* why) {
    EXPECT_THAT(part->Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("table \"t\""), HasSubstr(why))));
    EXPECT_EQ(part->Save(), before);
  };
  const auto expect_bad_rows = [&](uint64_t count, const std::vector<std::string>& rows,
                                   const char* why) {
    expect_refused(Bytes(*empty, count, rows), why);
  };
  expect_bad_rows(3, {row(first, 1), row(first + 1, 2)}, "");
  expect_bad_rows(kAny, {row(first, 1), row(first + 1, 2)}, "");
  expect_bad_rows(1, {row(first, 1), row(first + 1, 2)}, "");
  expect_bad_rows(0, {row(first, 0)}, "");
  expect_bad_rows(1, {row(first, 4)}, "longer");
  expect_bad_rows(1, {SavedRow(first, ~uint32_t{0}, 3)}, "longer");
  expect_bad_rows(1, {SavedRow(first, 3, 2)}, "");
  expect_bad_rows(1, {SavedRow(first, 2, 3)}, "");
  expect_bad_rows(2, {row(first, 1), row(first, 1)}, "order");
  expect_bad_rows(2, {row(first + 1, 1), row(first, 1)}, "order");
  expect_bad_rows(2, {row(kMaxKey, 1), row(first, 1)}, "order");
  expect_bad_rows(2, {row(kMaxKey, 0), row(0, 0)}, "order");
  expect_bad_rows(1, {row(first - 1, 1)}, "another part");
  const std::string good =
      Bytes(*empty, 4, {row(first, 2), row(first + 1, 0), row(first + 2, 3), row(kMaxKey, 1)});
  for (size_t size = 0; size < good.size(); ++size) expect_refused(good.substr(0, size), "");
  expect_refused(good + '\0', "");
  PHALANX_EXPECT_OK(part->Load(good));
  EXPECT_EQ(part->Save(), good);
  EXPECT_EQ(part->rows(), 4u);
  EXPECT_THAT(PulledRow<float>(*part, first + 2), ElementsAre(1, 1, 1));
}

TEST(LengthRows, LoadsOnlyItsOwn) {
  const TableSpec spec = Spec<float>(3, Update::kSum);
  const std::unique_ptr<Part> part = Make(spec);
  PHALANX_ASSERT_OK(PushTo<float>(*part, {{1, {1, 2, 3}}}));
  TableSpec fixed = spec, wider = spec;
  fixed.lengths = false;
  wider.width = 4;
  const std::unique_ptr<Part> other = Make(fixed);
  EXPECT_THAT(other->Load(part->Save()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("lengths to 3"), HasSubstr("width 3"))));
  EXPECT_THAT(part->Load(other->Save()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lengths to 3")));
  EXPECT_THAT(Make(wider)->Load(part->Save()), Not(IsOk()));
  EXPECT_THAT(PulledRow<float>(*part, 1), ElementsAre(1, 2, 3));
  // The text of other tables does not depend on whether there are lengths.
  EXPECT_THAT(other->Save(), HasSubstr("phalanx part 1, part 0 of 1, table \"t\", 0 keys, width 3, "
                                       "f32, split range 0, sum, init 0 seed 0"));
}

// Damaged bytes are refused, or are values; what was there stays when they are refused.
TEST(LengthRows, DamagedBytes) {
  const uint64_t seed = testing::TestSeed(3);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  const TableSpec spec = Spec<float>(6, Update::kFtrl);
  std::vector<Key> keys(40);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = kMaxKey - 39 + i;
  const std::unique_ptr<Part> busy = Make(spec, 2, 3), part = Make(spec, 2, 3);
  for (int i = 0; i < 3; ++i) {
    PHALANX_ASSERT_OK(PushTo(*busy, SomeRows<float>(keys, spec.width, random)));
  }
  const std::string saved = busy->Save();
  const size_t rows_begin = Make(spec, 2, 3)->Save().size() - sizeof(uint64_t);
  std::string before = part->Save();
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = saved;
    const uint64_t kind = random.Below(6);
    if (kind == 0) bytes.resize(random.Below(bytes.size()));
    if (kind == 1) bytes.append(1 + random.Below(20), static_cast<char>(random.Next()));
    if (kind == 2) bytes.erase(random.Below(bytes.size()), 1 + random.Below(9));
    // Mostly the rows; the header seldom.
    const size_t begin = random.Chance(0.1) ? 0 : rows_begin;
    for (uint64_t n = random.Below(4); n > 0 && bytes.size() > begin; --n) {
      bytes[begin + random.Below(bytes.size() - begin)] = static_cast<char>(random.Next());
    }
    if (part->Load(bytes).ok()) {
      before = part->Save();
      EXPECT_EQ(before, bytes);
    } else {
      ++refused;
      if (i % 10 == 0) {
        EXPECT_EQ(part->Save(), before);
      }
    }
  }
  EXPECT_GT(refused, 1500);
  EXPECT_LT(refused, 5000);
}

// ---- memory

TEST(LengthRows, MemoryOfRows) {
  const std::unique_ptr<Part> part = Make(Spec<double>(1000, Update::kAdagrad));
  Lists<double> rows;
  for (Key key = 0; key < 1000; ++key) rows[key] = std::vector<double>(key % 7 == 0 ? 900 : 4, 1);
  PHALANX_ASSERT_OK(PushTo(*part, rows));
  uint64_t elements = 0;
  for (const auto& [key, row] : rows) elements += row.size();
  EXPECT_GE(part->bytes(), elements * 2 * sizeof(double));
  EXPECT_LE(part->bytes(), elements * 2 * sizeof(double) + 1000 * 100);
  // Rows that grow by and by have some room.
  for (Key key = 2000; key < 2010; ++key) {
    for (size_t length = 1; length <= 1000; ++length) {
      PHALANX_ASSERT_OK(PushTo<double>(*part, {{key, std::vector<double>(length, 1)}}));
    }
  }
  elements += 10 * 1000;
  EXPECT_LE(part->bytes(), elements * 2 * sizeof(double) + 1010 * 100);
}

// A clock after clock takes no more memory.
TEST(LengthRows, MemoryOfClocks) {
  const std::unique_ptr<Part> part = Make(Spec<float>(300, Update::kSum));
  std::vector<uint64_t> bytes;
  for (uint64_t clock = 0; clock < 1000; ++clock) {
    AddTo<float>(*part, {{1, std::vector<float>(1 + clock % 300, 1)}, {9, {1, 2}}});
    AddTo<float>(*part, {{1, std::vector<float>(300, 1)}, {10, {1, 2}}});
    PHALANX_ASSERT_OK(part->Turn(clock));
    bytes.push_back(part->bytes());
  }
  EXPECT_EQ(bytes.front(), bytes.back());
}

}  // namespace
}  // namespace phalanx::ps::internal
