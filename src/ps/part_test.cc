// Every update, type and layout against a map of rows and the formulas of textbooks.
#include "src/ps/part.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Key kMaxKey = ~Key{0};

template <typename T>
constexpr DType DTypeOf() {
  if (std::is_same_v<T, float>) return DType::kF32;
  if (std::is_same_v<T, double>) return DType::kF64;
  return std::is_same_v<T, int32_t> ? DType::kI32 : DType::kI64;
}

template <typename T>
TableSpec Spec(uint64_t keys, uint32_t width, Update update) {
  TableSpec spec;
  spec.name = "t";
  spec.keys = keys;
  spec.width = width;
  spec.dtype = spec.wire = DTypeOf<T>();
  spec.update = update;
  return spec;
}

// Part `part` of a table; with kOwn `own`.
Part Make(const TableSpec& spec, int part = 0, int parts = 1, OwnUpdate own = nullptr) {
  EXPECT_THAT(Check(spec), IsOk());
  return Part(spec, Splitter(spec, parts), part, std::move(own));
}

template <typename T>
std::vector<T> Pulled(const Part& part, const TableSpec& spec, const std::vector<Key>& keys) {
  std::vector<T> values(keys.size() * spec.width);
  part.Pull(keys, values.data());
  return values;
}

template <typename T>
void PushTo(Part& part, const std::vector<Key>& keys, const std::vector<T>& values) {
  PHALANX_EXPECT_OK(part.Push(From{.worker = 0, .clock = 0, .life = 1}, keys, values.data()));
}

template <typename T>
void AddTo(Part& part, const std::vector<Key>& keys, const std::vector<T>& values) {
  part.Add(keys, values.data());
}

// ---- the oracle

// One coordinate, with all that any update keeps.
template <typename T>
struct Coordinate {
  T w = 0, v = 0, s = 0, z = 0, n = 0;
};

template <typename T>
class Oracle {
 public:
  explicit Oracle(const TableSpec& spec) : spec_(spec) {}

  void Push(const std::vector<Key>& keys, const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      One(rows_[keys[i / spec_.width]][i % spec_.width], values[i]);
    }
  }
  void Add(const std::vector<Key>& keys, const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      auto& row = sums_[keys[i / spec_.width]];
      const uint32_t element = i % spec_.width;
      const bool replace = row.count(element) == 0 || spec_.update == Update::kAssign;
      row[element] = replace ? values[i] : Plus(row[element], values[i]);
    }
  }
  void Turn() {
    for (const auto& [key, row] : sums_) {
      for (const auto& [element, sum] : row) One(rows_[key][element], sum);
    }
    sums_.clear();
  }
  T Value(Key key, uint32_t element) const {
    const auto row = rows_.find(key);
    return row == rows_.end() ? T{0} : row->second.at(element).w;
  }

 private:
  static T Plus(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }

  void One(Coordinate<T>& c, T g) const {
    const T rate = static_cast<T>(spec_.rate);
    switch (spec_.update) {
      case Update::kAssign:
        c.w = g;
        return;
      case Update::kSum:
        c.w = Plus(c.w, g);
        return;
      case Update::kSgd:
        c.w = c.w - rate * g;
        return;
      case Update::kMomentum:
        c.v = static_cast<T>(spec_.momentum) * c.v + g;
        c.w = c.w - rate * c.v;
        return;
      case Update::kAdagrad:
        c.s = c.s + g * g;
        c.w = c.w - rate * g / (std::sqrt(static_cast<T>(c.s)) + static_cast<T>(spec_.epsilon));
        return;
      default:
        Ftrl(c, g);
    }
  }

  // McMahan et al., "Ad click prediction: a view from the trenches", algorithm 1: w is computed
  // from z and n when the coordinate is needed, before the gradient comes.
  void Ftrl(Coordinate<T>& c, T gradient) const {
    const double g = gradient, alpha = spec_.rate;
    c.w = Weight(c);
    const double sigma = 1 / alpha * (std::sqrt(c.n + g * g) - std::sqrt(double(c.n)));
    c.z = static_cast<T>(c.z + g - sigma * c.w);
    c.n = static_cast<T>(c.n + g * g);
    c.w = Weight(c);
  }
  T Weight(const Coordinate<T>& c) const {
    const double z = c.z;
    if (std::abs(z) <= spec_.l1) return 0;
    const double sign = z < 0 ? -1 : 1;
    return static_cast<T>(-1 / ((spec_.beta + std::sqrt(double(c.n))) / spec_.rate + spec_.l2) *
                          (z - sign * spec_.l1));
  }

  const TableSpec spec_;
  std::map<Key, std::map<uint32_t, Coordinate<T>>> rows_;
  std::map<Key, std::map<uint32_t, T>> sums_;
};

template <typename T>
void ExpectSame(const TableSpec& spec, T value, T expected) {
  if (spec.update == Update::kFtrl) {
    const double bound = sizeof(T) == 4 ? 1e-4 : 1e-11;
    EXPECT_NEAR(static_cast<double>(value), static_cast<double>(expected), bound);
  } else {
    EXPECT_EQ(std::memcmp(&value, &expected, sizeof(T)), 0) << value << " for " << expected;
  }
}

// The layouts: dense by all splits, and sparse.
std::vector<TableSpec> Layouts(const TableSpec& spec) {
  std::vector<TableSpec> layouts(5, spec);
  layouts[1].split = Split::kHash;
  layouts[2].split = Split::kBlocks;
  layouts[2].block = 5;
  layouts[3].keys = 0;
  layouts[3].split = Split::kHash;
  layouts[4].keys = 0;
  layouts[4].split = Split::kOwn;
  return layouts;
}

// Of the part's keys below 200: all of them, a run, or some.
std::vector<Key> SomeKeys(const Splitter& splitter, int part, Random& random) {
  std::vector<Key> mine;
  for (Key key = 0; key < 200; ++key) {
    if (splitter.CanHave(part, key)) mine.push_back(key);
  }
  const uint64_t kind = random.Below(3);
  if (kind == 0) return mine;
  if (kind == 1) {
    const size_t begin = random.Below(mine.size());
    const size_t count = random.Below(mine.size() - begin) + 1;
    return std::vector<Key>(mine.begin() + begin, mine.begin() + begin + count);
  }
  std::vector<Key> some;
  for (const Key key : mine) {
    if (random.Chance(0.4)) some.push_back(key);
  }
  return some;
}

template <typename T>
std::vector<T> Gradients(size_t count, Random& random) {
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random.Next());
    } else {
      value = static_cast<T>(random.Chance(0.1) ? 0 : 4 * random.Unit() - 2);
    }
  }
  return values;
}

// The second of three parts, in some rounds with pushes as they come or by clocks.
template <typename T>
void RunAgainstOracle(const TableSpec& spec, bool bsp, Random& random) {
  SCOPED_TRACE(absl::StrCat(UpdateName(spec.update), " ", DTypeName(spec.dtype), " ",
                            SplitName(spec.split), " keys ", spec.keys, " width ", spec.width,
                            bsp ? " by clocks" : ""));
  const Splitter splitter(spec, 3);
  Part part = Make(spec, 1, 3);
  Oracle<T> oracle(spec);
  for (int round = 0; round < 6; ++round) {
    const std::vector<Key> keys = SomeKeys(splitter, 1, random);
    PHALANX_ASSERT_OK(part.CheckKeys(keys));
    const std::vector<T> values = Gradients<T>(keys.size() * spec.width, random);
    // Messages are read where they lie.
    std::vector<char> bytes(values.size() * sizeof(T) + 1);
    if (!values.empty()) std::memcpy(bytes.data() + 1, values.data(), bytes.size() - 1);
    if (bsp) {
      part.Add(keys, bytes.data() + 1);
      oracle.Add(keys, values);
      if (random.Chance(0.4)) continue;
      PHALANX_ASSERT_OK(part.Turn(round));
      oracle.Turn();
    } else {
      PHALANX_ASSERT_OK(part.Push(From{}, keys, bytes.data() + 1));
      oracle.Push(keys, values);
    }
    const std::vector<Key> look = SomeKeys(splitter, 1, random);
    const std::vector<T> pulled = Pulled<T>(part, spec, look);
    for (size_t i = 0; i < pulled.size(); ++i) {
      ExpectSame(spec, pulled[i], oracle.Value(look[i / spec.width], i % spec.width));
    }
  }
}

template <typename T>
void RunAllUpdates(const std::vector<Update>& updates) {
  const uint64_t first = testing::TestSeed(1);
  const uint64_t last = testing::SeedGiven() ? first : first + 4;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Random random(seed);
    for (const Update update : updates) {
      for (const uint32_t width : {1u, 3u, 16u}) {
        TableSpec spec = Spec<T>(200, width, update);
        spec.l1 = 0.5;
        spec.l2 = 0.25;
        for (const TableSpec& layout : Layouts(spec)) {
          RunAgainstOracle<T>(layout, false, random);
          RunAgainstOracle<T>(layout, true, random);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

const std::vector<Update> kOfFloats = {Update::kAssign,   Update::kSum,     Update::kSgd,
                                       Update::kMomentum, Update::kAdagrad, Update::kFtrl};

TEST(Part, UpdatesOfF32) { RunAllUpdates<float>(kOfFloats); }
TEST(Part, UpdatesOfF64) { RunAllUpdates<double>(kOfFloats); }
TEST(Part, UpdatesOfI32) { RunAllUpdates<int32_t>({Update::kAssign, Update::kSum}); }
TEST(Part, UpdatesOfI64) { RunAllUpdates<int64_t>({Update::kAssign, Update::kSum}); }

// ---- by hand

TEST(Part, AClockIsSummedInTheOrderThatIsGiven) {
  for (const uint64_t keys : {8, 0}) {
    const TableSpec spec = Spec<float>(keys, 1, Update::kSum);
    Part part = Make(spec);
    AddTo<float>(part, {1, 2}, {1e8f, 1});
    AddTo<float>(part, {1, 2}, {1, 1e8f});
    AddTo<float>(part, {1, 2}, {-1e8f, -1e8f});
    // Invisible until the clock turns.
    EXPECT_THAT(Pulled<float>(part, spec, {1, 2}), ElementsAre(0, 0));
    PHALANX_ASSERT_OK(part.Turn(0));
    EXPECT_THAT(Pulled<float>(part, spec, {1, 2}), ElementsAre(0, 0));
    AddTo<float>(part, {1}, {1e8f});
    AddTo<float>(part, {1}, {-1e8f});
    AddTo<float>(part, {1}, {1});
    PHALANX_ASSERT_OK(part.Turn(1));
    EXPECT_THAT(Pulled<float>(part, spec, {1, 2}), ElementsAre(1, 0));
    // Nothing of it is left for the next clock.
    PHALANX_ASSERT_OK(part.Turn(2));
    EXPECT_THAT(Pulled<float>(part, spec, {1, 2}), ElementsAre(1, 0));
  }
}

TEST(Part, OneUpdateForEachKeyOfAClock) {
  for (const uint64_t keys : {8, 0}) {
    const TableSpec spec = Spec<double>(keys, 1, Update::kAdagrad);
    Part part = Make(spec);
    AddTo<double>(part, {3}, {2});
    AddTo<double>(part, {3}, {1});
    PHALANX_ASSERT_OK(part.Turn(0));
    // g = 3, so s = 9; two updates would have s = 4 + 1.
    EXPECT_DOUBLE_EQ(Pulled<double>(part, spec, {3})[0], -0.1 * 3 / (3 + 1e-8));
  }
}

TEST(Part, WithAssignTheLastPushStays) {
  for (const uint64_t keys : {8, 0}) {
    const TableSpec spec = Spec<int32_t>(keys, 2, Update::kAssign);
    Part part = Make(spec);
    AddTo<int32_t>(part, {1, 2}, {1, 2, 3, 4});
    AddTo<int32_t>(part, {2, 3}, {5, 6, 7, 8});
    PHALANX_ASSERT_OK(part.Turn(0));
    EXPECT_THAT(Pulled<int32_t>(part, spec, {1, 2, 3}), ElementsAre(1, 2, 5, 6, 7, 8));
  }
}

TEST(Part, ASinglePushKeepsItsBits) {
  for (const uint64_t keys : {8, 0}) {
    const TableSpec spec = Spec<float>(keys, 1, Update::kAssign);
    Part part = Make(spec);
    AddTo<float>(part, {1}, {-0.0f});
    PHALANX_ASSERT_OK(part.Turn(0));
    EXPECT_TRUE(std::signbit(Pulled<float>(part, spec, {1})[0]));
  }
}

// A push of all keys is the same with keys and without.
TEST(Part, PushesOfAllKeys) {
  Random random(phalanx::testing::TestSeed(7));
  for (const Split split : {Split::kRange, Split::kBlocks, Split::kHash}) {
    for (const Update update : kOfFloats) {
      TableSpec spec = Spec<float>(23, 3, update);
      spec.split = split;
      spec.block = split == Split::kBlocks ? 4 : 0;
      const Splitter splitter(spec, 2);
      std::vector<Key> keys;
      for (Key key = 0; key < spec.keys; ++key) {
        if (splitter.PartOf(key) == 1) keys.push_back(key);
      }
      Part with_keys = Make(spec, 1, 2), without = Make(spec, 1, 2);
      for (uint64_t clock = 0; clock < 6; ++clock) {
        std::vector<float> all(keys.size() * spec.width), one(spec.width);
        for (float& value : all) value = static_cast<float>(random.Unit()) - 0.5F;
        for (float& value : one) value = static_cast<float>(random.Unit()) * 1e8F;
        AddTo(with_keys, keys, all);
        if (clock % 2 == 0) {
          AddTo(with_keys, {keys[clock]}, one);
          without.AddAll(all.data());
          AddTo(without, {keys[clock]}, one);
          PHALANX_EXPECT_OK(without.Turn(clock));
        } else {
          PHALANX_EXPECT_OK(without.TurnAll(clock, all.data()));
        }
        PHALANX_EXPECT_OK(with_keys.Turn(clock));
        ASSERT_EQ(without.Save(), with_keys.Save());
      }
      const std::vector<float> values = Pulled<float>(without, spec, keys);
      EXPECT_EQ(without.AllValues(), absl::string_view(reinterpret_cast<const char*>(values.data()),
                                                       values.size() * sizeof(float)));
    }
  }
  EXPECT_EQ(Make(Spec<float>(0, 3, Update::kSum)).AllValues(), "");
}

TEST(Part, IntegersWrap) {
  const TableSpec spec = Spec<int64_t>(2, 1, Update::kSum);
  Part part = Make(spec);
  PushTo<int64_t>(part, {0}, {std::numeric_limits<int64_t>::max()});
  PushTo<int64_t>(part, {0}, {1});
  EXPECT_EQ(Pulled<int64_t>(part, spec, {0})[0], std::numeric_limits<int64_t>::min());
}

TEST(Part, ASparseTableHasEveryKey) {
  const TableSpec spec = Spec<float>(0, 1, Update::kSum);
  for (const int parts : {1, 3, 7}) {
    Part part = Make(spec, parts - 1, parts);
    PHALANX_ASSERT_OK(part.CheckKeys({kMaxKey - 1, kMaxKey}));
    EXPECT_EQ(part.rows(), 0u);
    PushTo<float>(part, {kMaxKey - 1, kMaxKey}, {1, 2});
    EXPECT_THAT(Pulled<float>(part, spec, {kMaxKey - 2, kMaxKey - 1, kMaxKey}),
                ElementsAre(0, 1, 2));
    // A pull makes no row.
    EXPECT_EQ(part.rows(), 2u);
    Part next = Make(spec, parts - 1, parts);
    PHALANX_ASSERT_OK(next.Load(part.Save()));
    EXPECT_THAT(Pulled<float>(next, spec, {kMaxKey - 1, kMaxKey}), ElementsAre(1, 2));
  }
}

TEST(Part, PartsWithoutKeys) {
  const TableSpec spec = Spec<float>(2, 1, Update::kSum);
  Part part = Make(spec, 0, 4);
  EXPECT_EQ(part.rows(), 0u);
  PHALANX_EXPECT_OK(part.CheckKeys({}));
  PushTo<float>(part, {}, {});
  AddTo<float>(part, {}, {});
  PHALANX_EXPECT_OK(part.Turn(0));
  PHALANX_EXPECT_OK(Make(spec, 0, 4).Load(part.Save()));
}

TEST(Part, RefusesKeysThatAreNotItsOwn) {
  TableSpec spec = Spec<float>(100, 1, Update::kSum);
  const auto wrong = [](const char* first, const char* second) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("table \"t\""), HasSubstr(first), HasSubstr(second)));
  };
  for (const TableSpec& layout : Layouts(spec)) {
    const Part part = Make(layout, 1, 2);
    const Splitter splitter(layout, 2);
    std::vector<Key> mine, others;
    for (Key key = 0; key < 100; ++key) {
      (splitter.CanHave(1, key) ? mine : others).push_back(key);
    }
    PHALANX_EXPECT_OK(part.CheckKeys(mine));
    std::vector<Key> keys = mine;
    keys.insert(keys.begin(), mine.front());
    EXPECT_THAT(part.CheckKeys(keys),
                wrong(absl::StrCat("key ", mine[0], " comes after").c_str(), "strictly"));
    keys = mine;
    std::swap(keys[1], keys[2]);
    EXPECT_THAT(part.CheckKeys(keys),
                wrong(absl::StrCat("key ", mine[1], " comes after key ", mine[2]).c_str(), ""));
    // Of a split of the program a part does not know which keys it has not.
    EXPECT_EQ(others.empty(), layout.split == Split::kOwn);
    if (layout.split == Split::kOwn) continue;
    EXPECT_THAT(part.CheckKeys({others[3]}),
                wrong(absl::StrCat("key ", others[3]).c_str(), "part 0; this is part 1 of 2"));
    if (layout.keys == 0) continue;
    keys = mine;
    keys.push_back(100);
    EXPECT_THAT(part.CheckKeys(keys), wrong("key 100", "keys from 0 to 99"));
    EXPECT_THAT(part.CheckKeys({kMaxKey}), wrong("key 18446744073709551615", "0 to 99"));
  }
}

// ---- first values

TEST(Part, FirstValuesAreThoseOfTheKeyInEveryLayout) {
  for (const Init init : {Init::kUniform, Init::kNormal}) {
    TableSpec spec = Spec<float>(200, 5, Update::kSgd);
    spec.init = init;
    spec.scale = 0.5;
    spec.seed = 42;
    std::map<Key, std::vector<float>> expected;
    const Part all = Make(spec);
    for (Key key = 0; key < 200; ++key) expected[key] = Pulled<float>(all, spec, {key});
    EXPECT_NE(expected[0], expected[1]);
    for (const TableSpec& layout : Layouts(spec)) {
      for (int number = 0; number < 3; ++number) {
        Part part = Make(layout, number, 3);
        Part next = Make(layout, number, 3);
        PHALANX_ASSERT_OK(next.Load(part.Save()));
        for (Key key = 0; key < 200; ++key) {
          if (!Splitter(layout, 3).CanHave(number, key)) continue;
          EXPECT_EQ(Pulled<float>(part, layout, {key}), expected[key]);
          EXPECT_EQ(Pulled<float>(next, layout, {key}), expected[key]);
          // A pushed row begins with them.
          PushTo<float>(part, {key}, {0, 0, 0, 0, 0});
          EXPECT_EQ(Pulled<float>(part, layout, {key}), expected[key]);
        }
      }
    }
    TableSpec other = spec;
    other.seed = 43;
    EXPECT_NE(Pulled<float>(Make(other), other, {0}), expected[0]);
  }
}

TEST(Part, FirstValuesHaveTheirDistribution) {
  for (const bool is_normal : {false, true}) {
    for (const bool is_f32 : {false, true}) {
      TableSpec spec = is_f32 ? Spec<float>(0, 3, Update::kSum) : Spec<double>(0, 3, Update::kSum);
      spec.init = is_normal ? Init::kNormal : Init::kUniform;
      spec.scale = 2;
      const Part part = Make(spec);
      double sum = 0, squares = 0;
      const int rows = 20000;
      for (Key key = 0; key < rows; ++key) {
        double row[3];
        if (is_f32) {
          const std::vector<float> values = Pulled<float>(part, spec, {key});
          std::copy(values.begin(), values.end(), row);
        } else {
          const std::vector<double> values = Pulled<double>(part, spec, {key});
          std::copy(values.begin(), values.end(), row);
        }
        for (const double value : row) {
          if (!is_normal) {
            EXPECT_GE(value, -2);
            EXPECT_LT(value, 2);
          }
          sum += value;
          squares += value * value;
        }
      }
      EXPECT_NEAR(sum / (3 * rows), 0, 0.04);
      EXPECT_NEAR(squares / (3 * rows), is_normal ? 4.0 : 4.0 / 3, 0.1);
    }
  }
}

// Snapshots have no rows that were never pushed, so the bits are part of their format.
TEST(Part, FirstValuesAreFixed) {
  TableSpec spec = Spec<double>(0, 2, Update::kSum);
  spec.init = Init::kUniform;
  spec.scale = 1;
  spec.seed = 7;
  Random random(MixKey(MixKey(7) ^ 5));
  const std::vector<double> uniform = Pulled<double>(Make(spec), spec, {5});
  EXPECT_EQ(uniform[0], 2 * random.Unit() - 1);
  EXPECT_EQ(uniform[1], 2 * random.Unit() - 1);
  spec.init = Init::kNormal;
  for (Key key = 0; key < 1000; ++key) {
    Random draws(MixKey(MixKey(7) ^ key));
    double x, y, square;
    do {
      x = 2 * draws.Unit() - 1;
      y = 2 * draws.Unit() - 1;
      square = x * x + y * y;
    } while (square >= 1);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    const std::vector<double> normal = Pulled<double>(Make(spec), spec, {key});
    EXPECT_NEAR(normal[0], x * factor, 1e-14);
    EXPECT_NEAR(normal[1], y * factor, 1e-14);
  }
}

// ---- updates of the program

TEST(Part, OwnUpdatesChangeRows) {
  for (const uint64_t keys : {8, 0}) {
    const TableSpec spec = Spec<double>(keys, 2, Update::kOwn);
    std::vector<std::string> calls;
    Part part = Make(spec, 0, 1,
                     [&](const From& from, absl::Span<const Key> keys, const void* values,
                         absl::Span<const uint32_t> lengths, Part& part) -> absl::Status {
                       EXPECT_TRUE(lengths.empty());
                       const auto* at = static_cast<const double*>(values);
                       calls.push_back(absl::StrCat(from.worker, " ", from.clock, " ", from.life));
                       for (const Key key : keys) {
                         auto* row = static_cast<double*>(part.Row(key).values);
                         for (int i = 0; i < 2; ++i) row[i] = 10 * row[i] + *at++;
                       }
                       return absl::OkStatus();
                     });
    const double pushed[] = {1, 2, 3, 4};
    std::vector<char> bytes(sizeof(pushed) + 3);
    std::memcpy(bytes.data() + 3, pushed, sizeof(pushed));
    const From from = {.worker = 3, .clock = 5, .life = 2};
    PHALANX_ASSERT_OK(part.Push(from, {1, 6}, bytes.data() + 3));
    PHALANX_ASSERT_OK(part.Push(from, {6}, pushed));
    EXPECT_THAT(Pulled<double>(part, spec, {1, 6}), ElementsAre(1, 2, 31, 42));
    // A clock is one call, in the order of keys.
    AddTo<double>(part, {6, 7}, {1, 1, 2, 2});
    AddTo<double>(part, {1, 6}, {5, 5, 3, 3});
    PHALANX_ASSERT_OK(part.Turn(9));
    EXPECT_THAT(Pulled<double>(part, spec, {1, 6, 7}), ElementsAre(15, 25, 314, 424, 2, 2));
    PHALANX_ASSERT_OK(part.Turn(10));
    EXPECT_THAT(calls, ElementsAre("3 5 2", "3 5 2", "-1 9 0"));
  }
}

TEST(Part, OwnUpdatesThatFail) {
  const TableSpec spec = Spec<float>(4, 1, Update::kOwn);
  const float value = 1;
  const auto result = [&](const OwnUpdate& own) {
    Part part = Make(spec, 1, 2, own);
    return part.Push(From{}, {2}, &value);
  };
  EXPECT_THAT(result([](auto&&...) { return absl::OutOfRangeError("too much"); }),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("table \"t\""), HasSubstr("OUT_OF_RANGE: too much"))));
  EXPECT_THAT(
      result([](auto&&...) -> absl::Status { throw std::runtime_error("no way"); }),
      StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("table \"t\""), HasSubstr("no way"))));
  EXPECT_THAT(result([](auto&&...) -> absl::Status { throw 7; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("unknown")));
  // A row of another part, or of no part.
  PHALANX_EXPECT_OK(result(
      [](const From&, absl::Span<const Key>, const void*, absl::Span<const uint32_t>, Part& part) {
        EXPECT_NE(part.Row(3).values, nullptr);
        EXPECT_EQ(part.Row(3).length, 1u);
        EXPECT_EQ(part.Row(0).values, nullptr);
        EXPECT_EQ(part.Row(4).values, nullptr);
        EXPECT_EQ(part.Row(kMaxKey).values, nullptr);
        EXPECT_EQ(part.Resize(3, 1).values, nullptr) << "the table has no lengths";
        return absl::OkStatus();
      }));
}

// ---- snapshots

// A part with some history, and its keys.
Part Busy(const TableSpec& spec, std::vector<Key>& keys) {
  Random random(9);
  Part part = Make(spec, 1, 3);
  keys = SomeKeys(Splitter(spec, 3), 1, random);
  for (int i = 0; i < 3; ++i) {
    PushTo<float>(part, keys, Gradients<float>(keys.size() * spec.width, random));
  }
  return part;
}

TEST(Part, GoesOnTheSameAfterSaveAndLoad) {
  for (const Update update : kOfFloats) {
    for (const TableSpec& spec : Layouts(Spec<float>(200, 3, update))) {
      std::vector<Key> keys;
      Part part = Busy(spec, keys);
      Part next = Make(spec, 1, 3);
      // What was added before a Load is gone.
      AddTo<float>(next, keys, std::vector<float>(keys.size() * 3, 1));
      PHALANX_ASSERT_OK(next.Load(part.Save()));
      EXPECT_EQ(next.Save(), part.Save());
      EXPECT_EQ(next.rows(), part.rows());
      const std::vector<float> values(keys.size() * 3, 0.7f);
      for (Part* one : {&part, &next}) {
        AddTo(*one, keys, values);
        PHALANX_ASSERT_OK(one->Turn(0));
      }
      EXPECT_EQ(next.Save(), part.Save());
    }
  }
}

TEST(Part, LoadsOnlyItsOwn) {
  const TableSpec spec = Spec<float>(200, 3, Update::kMomentum);
  for (const TableSpec& layout : Layouts(spec)) {
    std::vector<Key> keys;
    const std::string saved = Busy(layout, keys).Save();
    const auto refuses = [&](const TableSpec& other, int part, int parts) {
      Part loaded = Make(other, part, parts);
      const std::string before = loaded.Save();
      EXPECT_THAT(loaded.Load(saved),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("table \"")));
      EXPECT_EQ(loaded.Save(), before);
    };
    refuses(layout, 0, 3);
    refuses(layout, 1, 4);
    for (const auto& change : std::vector<std::function<void(TableSpec&)>>{
             [](TableSpec& other) { other.name = "u"; },
             [](TableSpec& other) {
               if (other.split == Split::kOwn) other.split = Split::kRange;
               other.keys += 1;
             },
             [](TableSpec& other) { other.width = 4; },
             [](TableSpec& other) { other.dtype = other.wire = DType::kF64; },
             [](TableSpec& other) { other.update = Update::kAdagrad; },
             [](TableSpec& other) { other.rate = 0.2; },
             [](TableSpec& other) { other.seed = 1; },
         }) {
      TableSpec other = layout;
      change(other);
      refuses(other, 1, 3);
    }
  }
}

// Damaged bytes are refused, or are values; what was there stays when they are refused.
TEST(Part, DamagedBytes) {
  const uint64_t seed = testing::TestSeed(3);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (const TableSpec& spec : Layouts(Spec<float>(200, 2, Update::kAdagrad))) {
    std::vector<Key> keys;
    const std::string saved = Busy(spec, keys).Save();
    Part part = Make(spec, 1, 3);
    std::string before = part.Save();
    int refused = 0;
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = saved;
      const uint64_t kind = random.Below(4);
      if (kind == 0) bytes.resize(random.Below(bytes.size()));
      if (kind == 1) bytes.append(1 + random.Below(20), static_cast<char>(random.Next()));
      if (kind == 2) bytes.erase(random.Below(bytes.size()), 1 + random.Below(9));
      // The header, and the number of rows behind it, more often than values.
      const size_t end = random.Chance(0.5) ? 260 : bytes.size();
      for (uint64_t n = random.Below(4); n > 0 && !bytes.empty(); --n) {
        bytes[random.Below(std::min(end, bytes.size()))] = static_cast<char>(random.Next());
      }
      if (part.Load(bytes).ok()) {
        before = part.Save();
        EXPECT_EQ(before, bytes);
      } else {
        ++refused;
        if (i % 10 == 0) {
          EXPECT_EQ(part.Save(), before);
        }
      }
    }
    EXPECT_GT(refused, 1000);
  }
}

TEST(Part, MemoryOfRows) {
  const TableSpec dense = Spec<float>(1000, 4, Update::kMomentum);
  Part part = Make(dense);
  EXPECT_EQ(part.bytes(), 1000u * 4 * 4 * 2);
  AddTo<float>(part, {1}, {1, 2, 3, 4});
  EXPECT_GT(part.bytes(), 1000u * 4 * 4 * 3);
  const TableSpec sparse = Spec<float>(0, 4, Update::kSum);
  Part rows = Make(sparse);
  for (Key key = 0; key < 100000; ++key) PushTo<float>(rows, {key}, {1, 2, 3, 4});
  EXPECT_EQ(rows.rows(), 100000u);
  EXPECT_GT(rows.bytes(), 100000u * 16);
  EXPECT_LT(rows.bytes(), 100000u * 16 * 5);
}

// A clock after clock takes no more memory.
TEST(Part, MemoryOfClocks) {
  const TableSpec spec = Spec<float>(0, 4, Update::kSum);
  Part part = Make(spec);
  uint64_t bytes = 0;
  for (uint64_t clock = 0; clock < 1000; ++clock) {
    AddTo<float>(part, {1, 5, 9}, std::vector<float>(12, 1.0f));
    PHALANX_ASSERT_OK(part.Turn(clock));
    if (clock == 0) bytes = part.bytes();
  }
  EXPECT_EQ(part.bytes(), bytes);
}

TEST(Convert, BetweenTheTypesOfTheWire) {
  const std::vector<float> values = {0, -1.5f, 3.14159265f, 1e30f};
  std::vector<uint16_t> halves(4);
  std::vector<float> back(4);
  Convert(DType::kF32, DType::kF16, values.data(), halves.data(), 4);
  EXPECT_THAT(halves, ElementsAre(0, 0xbe00, 0x4248, 0x7c00));
  Convert(DType::kF16, DType::kF32, halves.data(), back.data(), 4);
  EXPECT_THAT(back, ElementsAre(0, -1.5f, 3.140625f, std::numeric_limits<float>::infinity()));
  Convert(DType::kF32, DType::kBf16, values.data(), halves.data(), 4);
  EXPECT_THAT(halves, ElementsAre(0, 0xbfc0, 0x4049, 0x714a));
  Convert(DType::kBf16, DType::kF32, halves.data(), back.data(), 4);
  EXPECT_THAT(back, ElementsAre(0, -1.5f, 3.140625f, 0x1.94p+99f));
  Convert(DType::kF32, DType::kF32, values.data(), back.data(), 4);
  EXPECT_EQ(back, values);
  const std::vector<int64_t> integers = {1, -2};
  std::vector<int64_t> copy(2);
  Convert(DType::kI64, DType::kI64, integers.data(), copy.data(), 2);
  EXPECT_EQ(copy, integers);
}

}  // namespace
}  // namespace phalanx::ps::internal
