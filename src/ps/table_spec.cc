#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "phalanx/elements.h"
#include "phalanx/ps_barrier.h"
#include "phalanx/ps_table.h"
#include "src/common/io/utf8.h"

namespace phalanx::ps {
namespace {

// Of a row with the state of its update, which is at most twice the values.
constexpr uint64_t kMostFields = 3;

// Collects the first error of a spec.
class Checker {
 public:
  explicit Checker(const TableSpec& spec) : spec_(spec) {}

  // `wrong` goes behind the name of the table, and begins with the name of the field.
  template <typename... Text>
  void Require(bool condition, const Text&... wrong) {
    if (condition || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "table \"",
        IsUtf8(spec_.name) ? absl::Utf8SafeCHexEscape(spec_.name) : absl::CHexEscape(spec_.name),
        "\": ", wrong...));
  }

  // A number that the table's arithmetic can have. f32 has the smaller range of the two types.
  void RequireNumber(absl::string_view field, double value, double least) {
    const double most = spec_.dtype == DType::kF64
                            ? std::numeric_limits<double>::max()
                            : static_cast<double>(std::numeric_limits<float>::max());
    Require(value >= least && value <= most, field, " is ", value, "; it has to be a number from ",
            least, " to ", most);
  }
  // The same, and not zero when it is rounded to the table's type.
  void RequirePositive(absl::string_view field, double value) {
    RequireNumber(field, value, 0);
    Require(spec_.dtype == DType::kF64 ? value > 0 : static_cast<float>(value) > 0, field, " is ",
            value, "; it has to be greater than 0 as ", DTypeName(spec_.dtype));
  }

  absl::Status status() const { return status_; }

 private:
  const TableSpec& spec_;
  absl::Status status_;
};

template <typename Enum>
bool AtMost(Enum value, Enum last) {
  return static_cast<uint8_t>(value) <= static_cast<uint8_t>(last);
}

// Updates with a rate, which integers could not be multiplied with.
bool HasNumbers(Update update) {
  return update == Update::kSgd || update == Update::kMomentum || update == Update::kAdagrad ||
         update == Update::kFtrl;
}

// What a row is. The other checks need its type, so this one is first.
void CheckShape(const TableSpec& spec, Checker& check) {
  check.Require(!spec.name.empty(), "name is empty");
  check.Require(spec.name.size() <= kMaxTableNameSize, "name has ", spec.name.size(),
                " bytes; it may have ", kMaxTableNameSize);
  check.Require(IsUtf8(spec.name), "name is not UTF-8");
  check.Require(spec.width >= 1 && spec.width <= kMaxWidth, "width is ", spec.width,
                "; it has to be 1 to ", kMaxWidth);
  const DType dtype = spec.dtype;
  check.Require(
      dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32 || dtype == DType::kI64,
      "dtype is ", DTypeName(dtype), "; it has to be f32, f64, i32 or i64");
  if (!check.status().ok()) return;
  // Half floats only travel: sums of many small gradients would be lost in their 11 or 8 bits.
  const bool narrow = spec.wire == DType::kF16 || spec.wire == DType::kBf16;
  check.Require(spec.wire == dtype || (dtype == DType::kF32 && narrow), "wire is ",
                DTypeName(spec.wire), "; values of ", DTypeName(dtype), " travel as ",
                dtype == DType::kF32 ? "f32, f16 or bf16" : DTypeName(dtype));
  // All later products of keys, width and sizes fit into 63 bits then, and are not checked again.
  const uint64_t row = kMostFields * spec.width * ElementSize(dtype);
  constexpr uint64_t kMostBytes = std::numeric_limits<int64_t>::max();
  check.Require(spec.keys <= kMostBytes / row, "keys is ", spec.keys, ", and width ", spec.width,
                "; so many elements have no address");
  check.Require(!spec.lengths || spec.keys == 0, "lengths is set, which only sparse tables have; ",
                "keys is ", spec.keys);
}

// A field that has no meaning with the others has to be left alone: that it was set shows that the
// program expects something of it.
void CheckSync(const TableSpec& spec, Checker& check) {
  check.Require(AtMost(spec.sync, Sync::kAsp), "sync is ", static_cast<int>(spec.sync),
                ", which is none");
  check.Require(spec.staleness == 0 || spec.sync == Sync::kSsp, "staleness is ", spec.staleness,
                ", which only ssp has; sync is ", SyncName(spec.sync));
  check.Require(AtMost(spec.split, Split::kOwn), "split is ", static_cast<int>(spec.split),
                ", which is none");
  check.Require(spec.split != Split::kOwn || spec.keys == 0, "split is own, which only sparse ",
                "tables have; keys is ", spec.keys);
  if (spec.split == Split::kBlocks) {
    check.Require(spec.block > 0, "block is 0; split blocks needs 1 key or more");
  } else {
    check.Require(spec.block == 0, "block is ", spec.block, ", which only blocks has; split is ",
                  SplitName(spec.split));
  }
  check.Require(AtMost(spec.on_loss, OnLoss::kFail), "on_loss is ", static_cast<int>(spec.on_loss),
                ", which is none");
  check.Require(spec.copies <= 4096, "copies is ", spec.copies, "; it may be 4096");
  check.Require(spec.snapshot_bytes > 0 || spec.sync == Sync::kAsp,
                "snapshot_bytes is 0, which only asp has; sync is ", SyncName(spec.sync));
}

// All numbers of all updates are numbers, also where they have no meaning: a spec with a NaN would
// differ from itself.
void CheckUpdate(const TableSpec& spec, Checker& check) {
  check.Require(AtMost(spec.update, Update::kOwn), "update is ", static_cast<int>(spec.update),
                ", which is none");
  if (!check.status().ok()) return;
  check.Require(!HasNumbers(spec.update) || IsFloat(spec.dtype), "update is ",
                UpdateName(spec.update), ", which needs floats; dtype is ", DTypeName(spec.dtype));
  check.RequireNumber("rate", spec.rate, 0);
  if (HasNumbers(spec.update)) check.RequirePositive("rate", spec.rate);
  check.RequireNumber("momentum", spec.momentum, 0);
  check.RequireNumber("epsilon", spec.epsilon, 0);
  // The first gradient of a coordinate can be 0: nothing may be divided by 0 then.
  if (spec.update == Update::kAdagrad) check.RequirePositive("epsilon", spec.epsilon);
  check.RequireNumber("beta", spec.beta, 0);
  check.RequireNumber("l1", spec.l1, 0);
  check.RequireNumber("l2", spec.l2, 0);
  // The square of a small gradient is 0, too.
  if (spec.update == Update::kFtrl && spec.l2 == 0) check.RequirePositive("beta", spec.beta);
  check.Require(AtMost(spec.init, Init::kNormal), "init is ", static_cast<int>(spec.init),
                ", which is none");
  check.RequireNumber("scale", spec.scale, 0);
  if (spec.init == Init::kZeros) return;
  check.Require(!spec.lengths, "init is not zeros; rows with lengths begin without elements");
  check.Require(IsFloat(spec.dtype), "init is not zeros, which needs floats; dtype is ",
                DTypeName(spec.dtype));
  check.Require(spec.update != Update::kFtrl,
                "init is not zeros; ftrl computes its values from its state, which begins at 0");
  check.RequirePositive("scale", spec.scale);
}

}  // namespace

// The first error only: later ones are often its consequences.
absl::Status Check(const TableSpec& spec) {
  Checker check(spec);
  CheckShape(spec, check);
  if (check.status().ok()) CheckSync(spec, check);
  if (check.status().ok()) CheckUpdate(spec, check);
  return check.status();
}

absl::string_view SyncName(Sync sync) {
  switch (sync) {
    case Sync::kBsp:
      return "bsp";
    case Sync::kSsp:
      return "ssp";
    case Sync::kAsp:
      return "asp";
  }
  return "unknown";
}

absl::string_view SplitName(Split split) {
  switch (split) {
    case Split::kRange:
      return "range";
    case Split::kHash:
      return "hash";
    case Split::kBlocks:
      return "blocks";
    case Split::kOwn:
      return "own";
  }
  return "unknown";
}

absl::string_view BarrierGroupName(BarrierGroup group) {
  switch (group) {
    case BarrierGroup::kWorkers:
      return "workers";
    case BarrierGroup::kServers:
      return "servers";
    case BarrierGroup::kAll:
      return "all";
  }
  return "unknown";
}

absl::string_view UpdateName(Update update) {
  switch (update) {
    case Update::kAssign:
      return "assign";
    case Update::kSum:
      return "sum";
    case Update::kSgd:
      return "sgd";
    case Update::kMomentum:
      return "momentum";
    case Update::kAdagrad:
      return "adagrad";
    case Update::kFtrl:
      return "ftrl";
    case Update::kOwn:
      return "own";
  }
  return "unknown";
}

}  // namespace phalanx::ps
