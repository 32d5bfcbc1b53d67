// Every field of a table's spec, with values that are refused and the nearest that are not.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/ps_table.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::ps {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TableSpec Changed(const std::function<void(TableSpec&)>& change) {
  TableSpec spec;
  spec.name = "weights";
  change(spec);
  return spec;
}

void ExpectOk(const std::function<void(TableSpec&)>& change) {
  EXPECT_THAT(Check(Changed(change)), IsOk());
}

// The error names the table and, first, the field.
void ExpectWrong(const std::string& text, const std::function<void(TableSpec&)>& change) {
  EXPECT_THAT(Check(Changed(change)), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("table \"weights\": " + text)));
}

TEST(TableSpec, NamesAreOneTo255BytesOfUtf8) {
  ExpectOk([](TableSpec& spec) { spec.name = std::string(255, 'x'); });
  ExpectOk([](TableSpec& spec) { spec.name = "Gewichte \xc3\xbc"; });
  EXPECT_THAT(Check(TableSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name is empty")));
  EXPECT_THAT(Check(Changed([](TableSpec& spec) { spec.name = std::string(256, 'x'); })),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name has 256 bytes")));
  EXPECT_THAT(Check(Changed([](TableSpec& spec) { spec.name = "a\xff"; })),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("table \"a\\xff\""), HasSubstr("name is not UTF-8"))));
}

TEST(TableSpec, RowsOfSparseTablesCanHaveLengths) {
  ExpectOk([](TableSpec& spec) { spec.lengths = true; });
  ExpectWrong("lengths is set, which only sparse tables have; keys is 7", [](TableSpec& spec) {
    spec.lengths = true;
    spec.keys = 7;
  });
  ExpectWrong("init is not zeros; rows with lengths", [](TableSpec& spec) {
    spec.lengths = true;
    spec.init = Init::kUniform;
    spec.scale = 1;
  });
}

TEST(TableSpec, RowsHaveAnAddress) {
  ExpectWrong("width is 0", [](TableSpec& spec) { spec.width = 0; });
  ExpectOk([](TableSpec& spec) { spec.width = kMaxWidth; });
  ExpectWrong("width is 65537", [](TableSpec& spec) { spec.width = kMaxWidth + 1; });
  ExpectOk([](TableSpec& spec) { spec.keys = uint64_t{1} << 40; });
  ExpectWrong("keys is 18446744073709551615", [](TableSpec& spec) { spec.keys = ~uint64_t{0}; });
  // 2^48 rows of 2^16 elements are 2^64: a product of 64 bits would be 0.
  ExpectWrong("keys is 281474976710656, and width 65536", [](TableSpec& spec) {
    spec.keys = uint64_t{1} << 48;
    spec.width = 65536;
  });
}

TEST(TableSpec, FourTypesOfElements) {
  for (const DType dtype : kAllDTypes) {
    const bool allowed = dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32 ||
                         dtype == DType::kI64;
    const auto change = [dtype](TableSpec& spec) { spec.dtype = spec.wire = dtype; };
    if (allowed) {
      ExpectOk(change);
    } else {
      ExpectWrong("dtype is " + std::string(DTypeName(dtype)), change);
    }
  }
  ExpectWrong("dtype is unknown", [](TableSpec& spec) { spec.dtype = static_cast<DType>(99); });
}

TEST(TableSpec, OnlyF32TravelsAsAnotherType) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
    for (const DType wire : kAllDTypes) {
      const bool narrow = wire == DType::kF16 || wire == DType::kBf16;
      const auto change = [dtype, wire](TableSpec& spec) {
        spec.dtype = dtype;
        spec.wire = wire;
      };
      if (wire == dtype || (dtype == DType::kF32 && narrow)) {
        ExpectOk(change);
      } else {
        ExpectWrong("wire is " + std::string(DTypeName(wire)), change);
      }
    }
  }
}

TEST(TableSpec, StalenessIsOfSspAndBlocksAreOfBlocks) {
  ExpectOk([](TableSpec& spec) {
    spec.sync = Sync::kSsp;
    spec.staleness = 4000000000;
  });
  ExpectWrong("staleness is 1", [](TableSpec& spec) { spec.staleness = 1; });
  ExpectOk([](TableSpec& spec) {
    spec.split = Split::kBlocks;
    spec.block = 1;
  });
  ExpectWrong("block is 0", [](TableSpec& spec) { spec.split = Split::kBlocks; });
  ExpectWrong("block is 5", [](TableSpec& spec) { spec.block = 5; });
}

TEST(TableSpec, NumbersThatAreNoEnumerators) {
  ExpectWrong("sync is 3", [](TableSpec& spec) { spec.sync = static_cast<Sync>(3); });
  ExpectWrong("split is own, which only sparse tables have; keys is 784", [](TableSpec& spec) {
    spec.keys = 784;
    spec.split = Split::kOwn;
  });
  ExpectWrong("split is 4", [](TableSpec& spec) { spec.split = static_cast<Split>(4); });
  ExpectWrong("update is 7", [](TableSpec& spec) { spec.update = static_cast<Update>(7); });
  ExpectWrong("init is 3", [](TableSpec& spec) { spec.init = static_cast<Init>(3); });
  ExpectWrong("on_loss is 3", [](TableSpec& spec) { spec.on_loss = static_cast<OnLoss>(3); });
  ExpectWrong("snapshot_bytes is 0", [](TableSpec& spec) { spec.snapshot_bytes = 0; });
  TableSpec asp;
  asp.name = "w";
  asp.sync = Sync::kAsp;
  asp.snapshot_bytes = 0;
  EXPECT_THAT(Check(asp), IsOk());
  ExpectWrong("copies is 4097", [](TableSpec& spec) { spec.copies = 4097; });
}

TEST(TableSpec, UpdatesFitTheType) {
  for (int number = 0; number <= static_cast<int>(Update::kOwn); ++number) {
    const auto update = static_cast<Update>(number);
    const bool any = update == Update::kAssign || update == Update::kSum || update == Update::kOwn;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
      const auto change = [=](TableSpec& spec) {
        spec.update = update;
        spec.dtype = spec.wire = dtype;
      };
      if (any || IsFloat(dtype)) {
        ExpectOk(change);
      } else {
        ExpectWrong("update is " + std::string(UpdateName(update)), change);
      }
    }
  }
}

TEST(TableSpec, NumbersAreFiniteAndNotNegative) {
  struct Field {
    const char* name;
    double TableSpec::*field;
  };
  for (const Field& field :
       {Field{"rate", &TableSpec::rate}, Field{"momentum", &TableSpec::momentum},
        Field{"epsilon", &TableSpec::epsilon}, Field{"beta", &TableSpec::beta},
        Field{"l1", &TableSpec::l1}, Field{"l2", &TableSpec::l2},
        Field{"scale", &TableSpec::scale}}) {
    // 1e39 is beyond f32.
    for (const double wrong : {kNan, kInfinity, -kInfinity, -1e-3, 1e39}) {
      ExpectWrong(std::string(field.name) + " is ",
                  [&](TableSpec& spec) { spec.*field.field = wrong; });
    }
    ExpectOk([&](TableSpec& spec) { spec.*field.field = 1e38; });
    ExpectOk([&](TableSpec& spec) {
      spec.dtype = spec.wire = DType::kF64;
      spec.*field.field = 1e39;
    });
  }
}

TEST(TableSpec, NothingIsDividedByZero) {
  ExpectWrong("rate is 0", [](TableSpec& spec) {
    spec.update = Update::kFtrl;
    spec.rate = 0;
  });
  // 1e-50 is 0 as f32.
  ExpectWrong("epsilon is 1e-50", [](TableSpec& spec) {
    spec.update = Update::kAdagrad;
    spec.epsilon = 1e-50;
  });
  ExpectOk([](TableSpec& spec) {
    spec.update = Update::kAdagrad;
    spec.dtype = spec.wire = DType::kF64;
    spec.epsilon = 1e-50;
  });
  ExpectWrong("beta is 0", [](TableSpec& spec) {
    spec.update = Update::kFtrl;
    spec.beta = 0;
  });
  ExpectOk([](TableSpec& spec) {
    spec.update = Update::kFtrl;
    spec.beta = 0;
    spec.l2 = 1;
  });
}

TEST(TableSpec, FirstValuesThatAreNotZeros) {
  const auto normal = [](TableSpec& spec) {
    spec.init = Init::kNormal;
    spec.scale = 0.5;
  };
  ExpectOk(normal);
  ExpectWrong("scale is 0", [](TableSpec& spec) { spec.init = Init::kUniform; });
  ExpectWrong("init is not zeros, which needs floats", [&](TableSpec& spec) {
    normal(spec);
    spec.dtype = spec.wire = DType::kI64;
  });
  ExpectWrong("init is not zeros; ftrl", [&](TableSpec& spec) {
    normal(spec);
    spec.update = Update::kFtrl;
  });
}

TEST(TableSpec, Names) {
  EXPECT_EQ(SyncName(Sync::kBsp), "bsp");
  EXPECT_EQ(SyncName(Sync::kSsp), "ssp");
  EXPECT_EQ(SyncName(Sync::kAsp), "asp");
  EXPECT_EQ(SyncName(static_cast<Sync>(9)), "unknown");
  EXPECT_EQ(SplitName(Split::kRange), "range");
  EXPECT_EQ(SplitName(Split::kHash), "hash");
  EXPECT_EQ(SplitName(Split::kBlocks), "blocks");
  EXPECT_EQ(SplitName(Split::kOwn), "own");
  EXPECT_EQ(SplitName(static_cast<Split>(9)), "unknown");
  EXPECT_EQ(UpdateName(Update::kAssign), "assign");
  EXPECT_EQ(UpdateName(Update::kSum), "sum");
  EXPECT_EQ(UpdateName(Update::kSgd), "sgd");
  EXPECT_EQ(UpdateName(Update::kMomentum), "momentum");
  EXPECT_EQ(UpdateName(Update::kAdagrad), "adagrad");
  EXPECT_EQ(UpdateName(Update::kFtrl), "ftrl");
  EXPECT_EQ(UpdateName(Update::kOwn), "own");
  EXPECT_EQ(UpdateName(static_cast<Update>(9)), "unknown");
}

}  // namespace
}  // namespace phalanx::ps
