// Every type with every op, on every instruction set of this machine, against kernel_reference.h.
#include "src/collectives/kernels/kernels.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/collectives/kernels/kernel_reference.h"

namespace phalanx::collectives {
namespace {

struct Kernel {
  DType dtype;
  ReduceOp op;
  const KernelTarget* target;

  std::string Name() const {
    return absl::StrCat(ReduceOpName(op), " of ", DTypeName(dtype), " on ", target->name);
  }
};

void ForEachKernel(const std::function<void(const Kernel&)>& test) {
  for (const KernelTarget& target : SupportedKernelTargets()) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (CheckReducible(dtype, op).ok()) test({dtype, op, &target});
      }
    }
  }
}

std::vector<Bits> Reference(DType dtype, ReduceOp op, const std::vector<Bits>& a,
                            const std::vector<Bits>& b) {
  std::vector<Bits> folded(a.size());
  for (size_t i = 0; i < a.size(); ++i) folded[i] = FoldReference(dtype, op, a[i], b[i]);
  return folded;
}

std::vector<Bits> Folded(const Kernel& kernel, const std::vector<Bits>& a,
                         const std::vector<Bits>& b) {
  const std::vector<uint8_t> x = BytesOf(kernel.dtype, a);
  const std::vector<uint8_t> y = BytesOf(kernel.dtype, b);
  std::vector<uint8_t> out(x.size());
  Fold(kernel.dtype, kernel.op, out.data(), x.data(), y.data(), a.size(), *kernel.target);
  return ElementsOf(kernel.dtype, out);
}

// Describes the first element that differs from the expected one; empty if none does.
std::string Difference(const std::vector<Bits>& expected, const std::vector<Bits>& actual,
                       const std::vector<Bits>& a, const std::vector<Bits>& b) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i]) continue;
    return absl::StrCat("element ", i, ": ", absl::Hex(a[i]), " and ", absl::Hex(b[i]), " gave ",
                        absl::Hex(actual[i]), ", not ", absl::Hex(expected[i]));
  }
  return "";
}

// Element i is a closed form of i and `rank`: all bits take part, NaNs and denormals among them.
std::vector<Bits> Pattern(DType dtype, size_t count, uint64_t rank) {
  std::vector<Bits> elements(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t mixed = (i + 1) * 0x9e3779b97f4a7c15 + rank * 0xbf58476d1ce4e5b9;
    elements[i] = mixed >> (64 - 8 * ElementSize(dtype));
  }
  return elements;
}

// Memory between two inaccessible pages.
class Fenced {
 public:
  Fenced() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = 4 * page;
    void* const at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    whole_ = static_cast<uint8_t*>(at);
    begin_ = whole_ + page;
    end_ = whole_ + bytes_ - page;
    if (mprotect(begin_, 2 * page, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::fill(begin_, end_, kCanary);
  }
  ~Fenced() { munmap(whole_, bytes_); }

  uint8_t* begin() { return begin_; }
  uint8_t* end() { return end_; }

  // Whether all bytes outside [from, from + bytes) are unchanged. Restores all bytes.
  bool OnlyWritten(uint8_t* from, size_t bytes) {
    const auto intact = [](uint8_t byte) { return byte == kCanary; };
    const bool only = std::all_of(begin_, from, intact) && std::all_of(from + bytes, end_, intact);
    std::fill(from, from + bytes, kCanary);
    return only;
  }

 private:
  static constexpr uint8_t kCanary = 0xa5;
  size_t bytes_;
  uint8_t* whole_;
  uint8_t* begin_;
  uint8_t* end_;
};

struct Places {
  uint8_t* dst;
  uint8_t* a;
  uint8_t* b;
};

class FencedFold {
 public:
  FencedFold(const Kernel& kernel, size_t most)
      : kernel_(kernel),
        a_(BytesOf(kernel.dtype, Pattern(kernel.dtype, most, 1))),
        b_(BytesOf(kernel.dtype, Pattern(kernel.dtype, most, 2))),
        expected_(
            BytesOf(kernel.dtype, Reference(kernel.dtype, kernel.op, Pattern(kernel.dtype, most, 1),
                                            Pattern(kernel.dtype, most, 2)))) {}

  // Up to the fences' ends, and from their beginnings, each moved away from it by its shift.
  void Run(size_t count, size_t dst_shift, size_t a_shift, size_t b_shift) {
    const size_t bytes = count * ElementSize(kernel_.dtype);
    RunAt(count,
          {x_.end() - bytes - dst_shift, y_.end() - bytes - a_shift, z_.end() - bytes - b_shift});
    RunAt(count, {x_.begin() + dst_shift, y_.begin() + a_shift, z_.begin() + b_shift});
  }

 private:
  void RunAt(size_t count, Places at) {
    if (has_failed_) return;
    const size_t bytes = count * ElementSize(kernel_.dtype);
    std::copy_n(a_.begin(), bytes, at.a);
    std::copy_n(b_.begin(), bytes, at.b);
    Fold(kernel_.dtype, kernel_.op, at.dst, at.a, at.b, count, *kernel_.target);
    const bool folded = std::equal(at.dst, at.dst + bytes, expected_.begin());
    const bool left_inputs =
        std::equal(at.a, at.a + bytes, a_.begin()) && std::equal(at.b, at.b + bytes, b_.begin());
    const bool left_others =
        x_.OnlyWritten(at.dst, bytes) & y_.OnlyWritten(at.a, bytes) & z_.OnlyWritten(at.b, bytes);
    EXPECT_TRUE(folded && left_inputs && left_others)
        << kernel_.Name() << ", " << count << " elements: folded " << folded << ", inputs intact "
        << left_inputs << ", other bytes intact " << left_others;
    has_failed_ = !folded || !left_inputs || !left_others;
  }

  const Kernel kernel_;
  const std::vector<uint8_t> a_;
  const std::vector<uint8_t> b_;
  const std::vector<uint8_t> expected_;
  Fenced x_;
  Fenced y_;
  Fenced z_;
  bool has_failed_ = false;  // Only the first failure is printed; later ones would repeat it.
};

TEST(KernelsTest, AnyNumberOfElementsIsFoldedAndNothingBeyond) {
  ForEachKernel([](const Kernel& kernel) {
    FencedFold fold(kernel, 130);
    for (size_t count = 0; count <= 130; ++count) fold.Run(count, 0, 0, 0);
  });
}

TEST(KernelsTest, ElementsLieAtAnyAddress) {
  ForEachKernel([](const Kernel& kernel) {
    FencedFold fold(kernel, 67);
    for (const size_t count : {1, 2, 16, 67}) {
      for (size_t shift = 0; shift < 65; shift += 3) {
        fold.Run(count, shift, 0, 0);
        fold.Run(count, 1, shift, 2);
        fold.Run(count, 0, 5, shift);
      }
    }
  });
}

TEST(KernelsTest, ManyElementsAreFoldedAlikeOnEveryTarget) {
  constexpr size_t kMany = 10'007;
  for (const DType dtype : kAllDTypes) {
    const std::vector<Bits> a = Pattern(dtype, kMany, 3);
    const std::vector<Bits> b = Pattern(dtype, kMany, 4);
    for (const ReduceOp op : kAllReduceOps) {
      if (!CheckReducible(dtype, op).ok()) continue;
      const std::vector<Bits> expected = Reference(dtype, op, a, b);
      for (const KernelTarget& target : SupportedKernelTargets()) {
        const Kernel kernel = {dtype, op, &target};
        EXPECT_EQ(Difference(expected, Folded(kernel, a, b), a, b), "") << kernel.Name();
      }
    }
  }
}

TEST(KernelsTest, EverySpecialValueMeetsEveryOther) {
  ForEachKernel([](const Kernel& kernel) {
    std::vector<Bits> a;
    std::vector<Bits> b;
    for (const Bits x : SpecialBits(kernel.dtype)) {
      for (const Bits y : SpecialBits(kernel.dtype)) {
        a.push_back(x);
        b.push_back(y);
      }
    }
    const std::vector<Bits> expected = Reference(kernel.dtype, kernel.op, a, b);
    EXPECT_EQ(Difference(expected, Folded(kernel, a, b), a, b), "") << kernel.Name();
  });
}

TEST(KernelsTest, EveryFloatOf16BitsMeetsOthersOfEveryMagnitude) {
  std::vector<Bits> a(65536);
  for (size_t i = 0; i < a.size(); ++i) a[i] = i;
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const Bits stride : {0, 1, 3, 1021, 32768, 40503}) {
      std::vector<Bits> b(a.size());
      for (size_t i = 0; i < b.size(); ++i) b[i] = (i * stride + 0x3c01) % 65536;
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
        const std::vector<Bits> expected = Reference(dtype, op, a, b);
        for (const KernelTarget& target : SupportedKernelTargets()) {
          const Kernel kernel = {dtype, op, &target};
          EXPECT_EQ(Difference(expected, Folded(kernel, a, b), a, b), "") << kernel.Name();
        }
      }
    }
  }
}

TEST(KernelsTest, TheResultMayTakeThePlaceOfEitherInputOrBoth) {
  ForEachKernel([](const Kernel& kernel) {
    const DType dtype = kernel.dtype;
    const std::vector<Bits> a = Pattern(dtype, 1000, 5);
    const std::vector<Bits> b = Pattern(dtype, 1000, 6);
    const std::vector<Bits> expected = Reference(dtype, kernel.op, a, b);
    const auto fold = [&](std::vector<uint8_t>& dst, const std::vector<uint8_t>& x,
                          const std::vector<uint8_t>& y) {
      Fold(dtype, kernel.op, dst.data(), x.data(), y.data(), 1000, *kernel.target);
      return ElementsOf(dtype, dst);
    };
    std::vector<uint8_t> x = BytesOf(dtype, a);
    std::vector<uint8_t> y = BytesOf(dtype, b);
    EXPECT_EQ(Difference(expected, fold(x, x, y), a, b), "") << kernel.Name() << ", over a";
    x = BytesOf(dtype, a);
    EXPECT_EQ(Difference(expected, fold(y, x, y), a, b), "") << kernel.Name() << ", over b";
    EXPECT_EQ(Difference(Reference(dtype, kernel.op, a, a), fold(x, x, x), a, a), "")
        << kernel.Name() << ", over itself";
  });
}

TEST(KernelsTest, TheIdentityChangesNothing) {
  ForEachKernel([](const Kernel& kernel) {
    const std::vector<Bits> values = SpecialBits(kernel.dtype);
    std::vector<uint8_t> bytes = BytesOf(kernel.dtype, values);
    FillIdentity(kernel.dtype, kernel.op, bytes.data(), values.size());
    const std::vector<Bits> identity = ElementsOf(kernel.dtype, bytes);
    std::vector<Bits> expected = values;
    if (IsFloat(kernel.dtype)) {
      for (Bits& bits : expected) {
        const double value = ValueOf(kernel.dtype, bits);
        if (value != value) bits = NearestTo(kernel.dtype, value);
      }
    }
    EXPECT_EQ(Difference(expected, Folded(kernel, identity, values), identity, values), "")
        << kernel.Name();
    EXPECT_EQ(Difference(expected, Folded(kernel, values, identity), values, identity), "")
        << kernel.Name();
  });
}

TEST(KernelsTest, EveryMachineHasABaselineAndEachTargetOnce) {
  std::vector<std::string> names;
  for (const KernelTarget& target : SupportedKernelTargets()) {
    names.emplace_back(target.name);
  }
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(BestKernelTarget().name, names.front());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace phalanx::collectives
