#include "src/collectives/kernels/kernel_targets.h"

#include <cstring>
#include <limits>
#include <vector>

// One set of loops per ARM machine: its baseline. Under AddressSanitizer gcc 12 lays out stack
// frames that are less aligned than its own AVX-512 stores need.
#ifdef PHALANX_ASAN
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

// foreach_target.h includes this file once more for each instruction set. The part before HWY_ONCE
// is compiled each time, in a namespace and with compiler flags of its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/collectives/kernels/kernel_targets.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace phalanx::collectives {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Bytes to lanes and back. An object can begin at any address, so no load assumes an alignment.

template <class D>
hn::Vec<D> FromBytes(D d, const uint8_t* from) {
  using Lane = hn::TFromD<D>;
  // The scalar target dereferences a typed pointer, which an unaligned address does not allow.
#if HWY_TARGET == HWY_SCALAR
  Lane lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::Set(d, lane);
#else
  return hn::LoadU(d, reinterpret_cast<const Lane*>(from));
#endif
}

template <class D>
void ToBytes(D d, hn::Vec<D> v, uint8_t* to) {
  using Lane = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  const Lane lane = hn::GetLane(v);
  std::memcpy(to, &lane, sizeof(lane));
#else
  hn::StoreU(v, d, reinterpret_cast<Lane*>(to));
#endif
}

template <class D>
hn::Vec<D> FromSomeBytes(D d, const uint8_t* from, size_t bytes) {
  // Zeros behind the bytes: lanes beyond them are computed, too, and must be defined.
  uint8_t whole[HWY_MAX_BYTES] = {};
  std::memcpy(whole, from, bytes);
  return FromBytes(d, whole);
}

template <class D>
void ToSomeBytes(D d, hn::Vec<D> v, uint8_t* to, size_t bytes) {
  uint8_t whole[HWY_MAX_BYTES];
  ToBytes(d, v, whole);
  std::memcpy(to, whole, bytes);
}

// dst = function(from...) block by block. The rest at the end goes through a block of its own: a
// full load there would read beyond the object.
template <class Function, class... From>
void ForEachBlock(const Function& function, size_t bytes, uint8_t* dst, From... from) {
  const typename Function::D d;
  const size_t step = hn::Lanes(d) * sizeof(hn::TFromD<typename Function::D>);
  size_t at = 0;
  for (; bytes - at >= step; at += step) ToBytes(d, function(FromBytes(d, from + at)...), dst + at);
  const size_t rest = bytes - at;
  if (rest > 0) ToSomeBytes(d, function(FromSomeBytes(d, from + at, rest)...), dst + at, rest);
}

// How elements are stored and computed: `D` is the lane type for loads, operator() applies the op.

// Processors differ in the NaN that they produce: results are the same bits on all machines.
template <class D, class V>
V OneNaN(D d, V v) {
  using Float = hn::TFromD<D>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<Float>::quiet_NaN()), v);
}

template <typename Integer, class Op>
struct Integers {
  using D = hn::ScalableTag<Integer>;
  template <class... V>
  hn::Vec<D> operator()(V... v) const {
    return op(D(), v...);
  }
  Op op;
};

template <typename Float, class Op>
struct Floats {
  using D = hn::ScalableTag<Float>;
  template <class... V>
  hn::Vec<D> operator()(V... v) const {
    return OneNaN(D(), op(D(), v...));
  }
  Op op;
};

// Two elements of 16 bits in each lane of 32: the even ones below, the odd ones above. Widening to
// f32 and narrowing again moves nothing from one lane to another.
template <class Format, class Op>
struct Pairs {
  using D = hn::ScalableTag<uint32_t>;
  using Wide = hn::ScalableTag<float>;
  template <class... V>
  hn::Vec<D> operator()(V... v) const {
    const auto even = OneNaN(Wide(), op(Wide(), Format::Even(v)...));
    const auto odd = OneNaN(Wide(), op(Wide(), Format::Odd(v)...));
    return Format::Join(even, odd);
  }
  Op op;
};

struct Bf16Format {
  using D = hn::ScalableTag<uint32_t>;
  using Wide = hn::ScalableTag<float>;
  using Bits = hn::Vec<D>;
  using Value = hn::Vec<Wide>;

  static Value Even(Bits v) { return hn::BitCast(Wide(), hn::ShiftLeft<16>(v)); }
  static Value Odd(Bits v) { return hn::BitCast(Wide(), hn::And(v, Upper())); }
  static Bits Join(Value even, Value odd) {
    return hn::Or(hn::ShiftRight<16>(Round(even)), hn::And(Round(odd), Upper()));
  }

 private:
  static Bits Upper() { return hn::Set(D(), 0xffff0000u); }
  // To nearest, ties to even, in the upper half. A carry out of the largest number is infinity.
  static Bits Round(Value value) {
    const Bits bits = hn::BitCast(D(), value);
    const Bits is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(D(), 1u));
    return hn::Add(bits, hn::Add(is_odd, hn::Set(D(), 0x7fffu)));
  }
};

// binary16 by integer arithmetic, for machines without instructions for it. Subtracting or adding a
// power of two shifts denormals of f16 into place without rounding.
struct F16Format {
  using D = hn::ScalableTag<uint32_t>;
  using Wide = hn::ScalableTag<float>;
  using Bits = hn::Vec<D>;
  using Value = hn::Vec<Wide>;

  static Value Even(Bits v) { return Widen(hn::And(v, Set(0xffff))); }
  static Value Odd(Bits v) { return Widen(hn::ShiftRight<16>(v)); }
  static Bits Join(Value even, Value odd) {
    return hn::Or(Round(even), hn::ShiftLeft<16>(Round(odd)));
  }

 private:
  static Bits Set(uint32_t bits) { return hn::Set(D(), bits); }
  static Bits Select(decltype(hn::Eq(Bits(), Bits())) mask, Bits yes, Bits no) {
    return hn::IfThenElse(mask, yes, no);
  }
  static Value AsFloat(Bits bits) { return hn::BitCast(Wide(), bits); }
  static Bits AsBits(Value value) { return hn::BitCast(D(), value); }

  static Value Widen(Bits half) {
    const Bits shifted = hn::ShiftLeft<13>(hn::And(half, Set(0x7fff)));
    const Bits exponent = hn::And(shifted, Set(0x1fu << 23));
    const Bits normal = hn::Add(shifted, Set((127u - 15u) << 23));
    const Bits special = hn::Add(normal, Set((128u - 16u) << 23));
    const Bits smallest = Set((127u - 14u) << 23);
    const Bits denormal =
        AsBits(hn::Sub(AsFloat(hn::Add(normal, Set(1u << 23))), AsFloat(smallest)));
    Bits magnitude = Select(hn::Eq(exponent, Set(0x1fu << 23)), special, normal);
    magnitude = Select(hn::Eq(exponent, Set(0)), denormal, magnitude);
    return AsFloat(hn::Or(magnitude, hn::ShiftLeft<16>(hn::And(half, Set(0x8000)))));
  }

  // To nearest, ties to even. The only NaN that reaches this is OneNaN's.
  static Bits Round(Value value) {
    const Bits bits = AsBits(value);
    const Bits sign = hn::And(bits, Set(0x80000000u));
    const Bits magnitude = hn::Xor(bits, sign);
    const Bits is_odd = hn::And(hn::ShiftRight<13>(magnitude), Set(1));
    const Bits rebased = hn::Sub(magnitude, Set((127u - 15u) << 23));
    const Bits normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(is_odd, Set(0xfff))));
    // In the binade of this, the last bit of an f32 is that of the smallest f16.
    const Bits aligner = Set((127u - 1u) << 23);
    const Bits denormal = hn::Sub(AsBits(hn::Add(AsFloat(magnitude), AsFloat(aligner))), aligner);
    const auto is_normal = hn::Ge(AsFloat(magnitude), AsFloat(Set((127u - 14u) << 23)));
    const auto is_large = hn::Ge(AsFloat(magnitude), AsFloat(Set((127u + 16u) << 23)));
    Bits half = Select(hn::RebindMask(D(), is_normal), normal, denormal);
    half = Select(hn::RebindMask(D(), is_large), Set(0x7c00), half);
    half = Select(hn::RebindMask(D(), hn::IsNaN(value)), Set(0x7e00), half);
    return hn::Or(half, hn::ShiftRight<16>(sign));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// binary16 by the processor's own conversions.
template <class Op>
struct F16s {
  using Wide = hn::ScalableTag<float>;
  using D = hn::Rebind<hwy::float16_t, Wide>;
  template <class... V>
  hn::Vec<D> operator()(V... v) const {
    return hn::DemoteTo(D(), OneNaN(Wide(), op(Wide(), hn::PromoteTo(Wide(), v)...)));
  }
  Op op;
};
#else
template <class Op>
using F16s = Pairs<F16Format, Op>;
#endif

template <class Op>
using Bf16s = Pairs<Bf16Format, Op>;

// The ops, on whole vectors.

struct Sum {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

// No instruction multiplies bytes: the product of two u16 ends in that of their lower bytes.
struct ProdOfBytePairs {
  template <class D, class V>
  V operator()(D d, V a, V b) const {
    const V even = hn::And(hn::Mul(a, b), hn::Set(d, 0xff));
    const V odd = hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b));
    return hn::Or(even, hn::ShiftLeft<8>(odd));
  }
};

// Few instruction sets multiply u64: modulo 2^64 the product takes three multiplications of u32.
struct Prod64 {
  template <class D, class V>
  V operator()(D, V a, V b) const {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_AVX3
    return hn::Mul(a, b);
#else
    const hn::RepartitionToNarrow<D> d32;
    const auto narrow = [&](V v) { return hn::BitCast(d32, v); };
    const V low = hn::MulEven(narrow(a), narrow(b));
    const V cross = hn::Add(hn::MulEven(narrow(hn::ShiftRight<32>(a)), narrow(b)),
                            hn::MulEven(narrow(a), narrow(hn::ShiftRight<32>(b))));
    return hn::Add(low, hn::ShiftLeft<32>(cross));
#endif
  }
};

struct Min {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Min(a, b);
  }
};

struct Max {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Max(a, b);
  }
};

// Processors disagree on NaN and on zeros of either sign. `chosen` is already right for different
// numbers and where `b` is NaN; `of_equals` differs from both only for -0 and +0.
template <class V>
V MendExtreme(V a, V b, V chosen, V of_equals) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), of_equals, chosen));
}

struct FloatMin {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return MendExtreme(a, b, hn::IfThenElse(hn::Lt(a, b), a, b), hn::Or(a, b));
  }
};

struct FloatMax {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return MendExtreme(a, b, hn::IfThenElse(hn::Gt(a, b), a, b), hn::And(a, b));
  }
};

struct BitAnd {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  V operator()(D, V a, V b) const {
    return hn::Xor(a, b);
  }
};

struct Scale {
  template <class D, class V>
  V operator()(D d, V v) const {
    return hn::Mul(v, hn::Set(d, factor));
  }
  float factor;
};

template <typename Float>
struct Divide {
  template <class D, class V>
  V operator()(D d, V v) const {
    return hn::Div(v, hn::Set(d, divisor));
  }
  Float divisor;
};

struct FinishF16 {
  template <class D, class V>
  V operator()(D d, V v) const {
    const V mean = hn::Div(hn::Mul(v, hn::Set(d, factor)), hn::Set(d, divisor));
    const V limit = hn::Set(d, 65504.0f);
    const V bounded = hn::Min(hn::Max(mean, hn::Neg(limit)), limit);
    return hn::IfThenElse(hn::Le(hn::Abs(v), limit), bounded, mean);
  }
  float factor;
  float divisor;
};

// Which loop folds which type. Sums and products of integers have the same bits with and without
// sign, so that both share a loop.

template <class Function>
void Fold(uint8_t* dst, const uint8_t* a, const uint8_t* b, size_t bytes) {
  ForEachBlock(Function(), bytes, dst, a, b);
}

FoldLoop SumLoop(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Fold<F16s<Sum>>;
    case DType::kBf16:
      return Fold<Bf16s<Sum>>;
    case DType::kF32:
      return Fold<Floats<float, Sum>>;
    case DType::kF64:
      return Fold<Floats<double, Sum>>;
    case DType::kI8:
    case DType::kU8:
      return Fold<Integers<uint8_t, Sum>>;
    case DType::kI16:
      return Fold<Integers<uint16_t, Sum>>;
    case DType::kI32:
    case DType::kU32:
      return Fold<Integers<uint32_t, Sum>>;
    case DType::kI64:
    case DType::kU64:
      return Fold<Integers<uint64_t, Sum>>;
  }
  return nullptr;
}

FoldLoop ProdLoop(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Fold<F16s<Prod>>;
    case DType::kBf16:
      return Fold<Bf16s<Prod>>;
    case DType::kF32:
      return Fold<Floats<float, Prod>>;
    case DType::kF64:
      return Fold<Floats<double, Prod>>;
    case DType::kI8:
    case DType::kU8:
      return Fold<Integers<uint16_t, ProdOfBytePairs>>;
    case DType::kI16:
      return Fold<Integers<uint16_t, Prod>>;
    case DType::kI32:
    case DType::kU32:
      return Fold<Integers<uint32_t, Prod>>;
    case DType::kI64:
    case DType::kU64:
      return Fold<Integers<uint64_t, Prod64>>;
  }
  return nullptr;
}

// Unlike sums, minima and maxima depend on the sign: each integer type has a loop of its own.
template <class IntegerOp, class FloatOp>
FoldLoop ExtremeLoop(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Fold<F16s<FloatOp>>;
    case DType::kBf16:
      return Fold<Bf16s<FloatOp>>;
    case DType::kF32:
      return Fold<Floats<float, FloatOp>>;
    case DType::kF64:
      return Fold<Floats<double, FloatOp>>;
    case DType::kI8:
      return Fold<Integers<int8_t, IntegerOp>>;
    case DType::kU8:
      return Fold<Integers<uint8_t, IntegerOp>>;
    case DType::kI16:
      return Fold<Integers<int16_t, IntegerOp>>;
    case DType::kI32:
      return Fold<Integers<int32_t, IntegerOp>>;
    case DType::kU32:
      return Fold<Integers<uint32_t, IntegerOp>>;
    case DType::kI64:
      return Fold<Integers<int64_t, IntegerOp>>;
    case DType::kU64:
      return Fold<Integers<uint64_t, IntegerOp>>;
  }
  return nullptr;
}

FoldLoop LoopFor(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return SumLoop(dtype);
    case ReduceOp::kProd:
      return ProdLoop(dtype);
    case ReduceOp::kMin:
      return ExtremeLoop<Min, FloatMin>(dtype);
    case ReduceOp::kMax:
      return ExtremeLoop<Max, FloatMax>(dtype);
    case ReduceOp::kBitAnd:
      // Bitwise ops do not see elements: the widest lanes do for all types.
      return Fold<Integers<uint64_t, BitAnd>>;
    case ReduceOp::kBitOr:
      return Fold<Integers<uint64_t, BitOr>>;
    case ReduceOp::kBitXor:
      return Fold<Integers<uint64_t, BitXor>>;
  }
  return nullptr;
}

void ScaleF16(uint8_t* dst, const uint8_t* src, size_t bytes, float factor) {
  ForEachBlock(F16s<Scale>{{factor}}, bytes, dst, src);
}

void FinishF16Mean(uint8_t* values, size_t bytes, float factor, uint64_t divisor) {
  const FinishF16 finish = {factor, static_cast<float>(divisor)};
  ForEachBlock(F16s<FinishF16>{finish}, bytes, values, values);
}

// f16 has FinishF16Mean instead, and integers have no mean.
void DivideBy(DType dtype, uint8_t* values, size_t bytes, uint64_t divisor) {
  const Divide<float> by_float = {static_cast<float>(divisor)};
  const Divide<double> by_double = {static_cast<double>(divisor)};
  if (dtype == DType::kBf16) ForEachBlock(Bf16s<Divide<float>>{by_float}, bytes, values, values);
  if (dtype == DType::kF32) {
    ForEachBlock(Floats<float, Divide<float>>{by_float}, bytes, values, values);
  }
  if (dtype == DType::kF64) {
    ForEachBlock(Floats<double, Divide<double>>{by_double}, bytes, values, values);
  }
}

// One table for each instruction set: the best one is chosen once, at the first call.
KernelTarget Kernels() {
  return {hwy::TargetName(HWY_TARGET), LoopFor, ScaleF16, FinishF16Mean, DivideBy};
}

}  // namespace HWY_NAMESPACE
}  // namespace phalanx::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace phalanx::collectives {
namespace {

// Highway's own detection is in its shared library, which a statically linked executable does not
// load. The conditions are the compiler flags that Highway sets for each of its targets.
#if HWY_ARCH_X86
bool HasF16Conversions() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

std::vector<KernelTarget> Detect() {
  __builtin_cpu_init();
  const bool ssse3 = __builtin_cpu_supports("ssse3");
  const bool sse4 = ssse3 && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
                    HasF16Conversions();
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw");
  std::vector<KernelTarget> found;
  const auto add = [&](bool supported, KernelTarget (*kernels)()) {
    if (supported && kernels != nullptr) found.push_back(kernels());
  };
  add(avx3, HWY_CHOOSE_AVX3(Kernels));
  add(avx2, HWY_CHOOSE_AVX2(Kernels));
  add(sse4, HWY_CHOOSE_SSE4(Kernels));
  add(ssse3, HWY_CHOOSE_SSSE3(Kernels));
  // The compiler's baseline, which runs everywhere, unless it is the last one found.
  add(found.empty() || found.back().name != HWY_STATIC_DISPATCH(Kernels)().name,
      &HWY_STATIC_DISPATCH(Kernels));
  return found;
}
#else
std::vector<KernelTarget> Detect() { return {HWY_STATIC_DISPATCH(Kernels)()}; }
#endif

}  // namespace

absl::Span<const KernelTarget> SupportedKernelTargets() {
  // Never destroyed: folds on other threads can outlast static destructors.
  static const auto* const kTargets = new std::vector<KernelTarget>(Detect());
  return *kTargets;
}

}  // namespace phalanx::collectives
#endif  // HWY_ONCE
