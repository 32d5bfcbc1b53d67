#include "src/ps/rows/updates.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/common/check.h"

namespace phalanx::ps::internal {
namespace {

// An element at any address, which also may alias: messages are read where they lie.
template <typename T>
struct Unaligned {
  using Type __attribute__((aligned(1), may_alias)) = T;
};
template <typename T>
using Pushed = const typename Unaligned<T>::Type* __restrict;

// Signed overflow has no meaning in C++, that of unsigned numbers wraps: the bits are the same.
template <typename T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<int32_t> {
  using Type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using Type = uint64_t;
};

// The loop of all sums: the compiler makes vectors of it, because nothing aliases and no order of
// elements matters.
template <typename Element>
void Add(const void* pushed, void* sums, uint64_t count) {
  using T = typename Wrapping<Element>::Type;
  const auto* g = static_cast<Pushed<T>>(pushed);
  auto* __restrict w = static_cast<T*>(sums);
  for (uint64_t i = 0; i < count; ++i) w[i] += g[i];
}

// The last push stays: the pushes of a clock come here one after the other, or their last one.
template <typename T>
void Assign(const TableSpec&, const void* pushed, void* values, void*, void*, uint64_t count) {
  std::memcpy(values, pushed, count * sizeof(T));
}

template <typename T>
void Sum(const TableSpec&, const void* pushed, void* values, void*, void*, uint64_t count) {
  Add<T>(pushed, values, count);
}

// w -= rate * g.
template <typename T>
void Sgd(const TableSpec& spec, const void* pushed, void* values, void*, void*, uint64_t count) {
  const T rate = static_cast<T>(spec.rate);
  const auto* g = static_cast<Pushed<T>>(pushed);
  auto* __restrict w = static_cast<T*>(values);
  for (uint64_t i = 0; i < count; ++i) w[i] -= rate * g[i];
}

// The heavy ball (Polyak 1964), without Nesterov's step ahead: v = momentum * v + g; w -= rate * v.
template <typename T>
void Momentum(const TableSpec& spec, const void* pushed, void* values, void* first, void*,
              uint64_t count) {
  const T rate = static_cast<T>(spec.rate);
  const T momentum = static_cast<T>(spec.momentum);
  const auto* g = static_cast<Pushed<T>>(pushed);
  auto* __restrict w = static_cast<T*>(values);
  auto* __restrict v = static_cast<T*>(first);
  for (uint64_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + g[i];
    w[i] -= rate * v[i];
  }
}

// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
// optimization" (JMLR 2011), diagonal. Epsilon is added to the root, not under it.
template <typename T>
void Adagrad(const TableSpec& spec, const void* pushed, void* values, void* first, void*,
             uint64_t count) {
  const T rate = static_cast<T>(spec.rate);
  const T epsilon = static_cast<T>(spec.epsilon);
  const auto* g = static_cast<Pushed<T>>(pushed);
  auto* __restrict w = static_cast<T*>(values);
  auto* __restrict s = static_cast<T*>(first);
  for (uint64_t i = 0; i < count; ++i) {
    s[i] += g[i] * g[i];
    w[i] -= rate * g[i] / (std::sqrt(s[i]) + epsilon);
  }
}

// FTRL-Proximal: McMahan et al., "Ad click prediction: a view from the trenches" (KDD 2013),
// algorithm 1, for each coordinate.
// The values follow from z and n, and are kept so that a pull is a copy.
template <typename T>
void Ftrl(const TableSpec& spec, const void* pushed, void* values, void* first, void* second,
          uint64_t count) {
  const T alpha = static_cast<T>(spec.rate);
  const T beta = static_cast<T>(spec.beta);
  const T l1 = static_cast<T>(spec.l1);
  const T l2 = static_cast<T>(spec.l2);
  const auto* g = static_cast<Pushed<T>>(pushed);
  auto* __restrict w = static_cast<T*>(values);
  auto* __restrict z = static_cast<T*>(first);
  auto* __restrict n = static_cast<T*>(second);
  for (uint64_t i = 0; i < count; ++i) {
    const T squares = n[i] + g[i] * g[i];
    const T root = std::sqrt(squares);
    const T sigma = (root - std::sqrt(n[i])) / alpha;
    const T sum = z[i] + (g[i] - sigma * w[i]);
    const T value = (std::copysign(l1, sum) - sum) / ((beta + root) / alpha + l2);
    n[i] = squares;
    z[i] = sum;
    // A NaN stays one: it is not within the bound.
    w[i] = std::abs(sum) <= l1 ? T{0} : value;
  }
}

// Null: an update without a loop here. UpdateLoopOf sees that none is asked for.
template <typename T>
UpdateLoop LoopOfFloats(Update update) {
  switch (update) {
    case Update::kSgd:
      return Sgd<T>;
    case Update::kMomentum:
      return Momentum<T>;
    case Update::kAdagrad:
      return Adagrad<T>;
    case Update::kFtrl:
      return Ftrl<T>;
    default:
      return nullptr;
  }
}

// Null: there is none for this type, or the update is the program's.
template <typename T>
UpdateLoop LoopOf(Update update) {
  if (update == Update::kAssign) return Assign<T>;
  if (update == Update::kSum) return Sum<T>;
  if constexpr (std::is_floating_point_v<T>) return LoopOfFloats<T>(update);
  return nullptr;
}

}  // namespace

// Arrays of state beside the values, each as long as a row.
int StateArrays(Update update) {
  if (update == Update::kFtrl) return 2;
  return update == Update::kMomentum || update == Update::kAdagrad ? 1 : 0;
}

UpdateLoop UpdateLoopOf(const TableSpec& spec) {
  UpdateLoop loop = nullptr;
  if (spec.dtype == DType::kF32) loop = LoopOf<float>(spec.update);
  if (spec.dtype == DType::kF64) loop = LoopOf<double>(spec.update);
  if (spec.dtype == DType::kI32) loop = LoopOf<int32_t>(spec.update);
  if (spec.dtype == DType::kI64) loop = LoopOf<int64_t>(spec.update);
  PHALANX_CHECK(loop != nullptr, "the update and the type fit each other");
  return loop;
}

AddLoop AddLoopOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Add<float>;
    case DType::kF64:
      return Add<double>;
    case DType::kI32:
      return Add<int32_t>;
    case DType::kI64:
      return Add<int64_t>;
    default:
      break;
  }
  PHALANX_CHECK(false, "tables have elements of four types");
}

}  // namespace phalanx::ps::internal
