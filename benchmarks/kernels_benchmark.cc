// Micro benchmark of a reduction's folds on one core, beside the addition of STREAM (McCalpin):
//
//   kernels_benchmark --benchmark_repetitions=10 --benchmark_enable_random_interleaving=true
//       --benchmark_report_aggregates_only
//
// Every row reads two arrays and writes one, and reports three times their bytes per second. A
// kernel's share of the memory bandwidth is its row divided by `stream_add` of the same run. Arrays
// of 64 MiB do not fit into a cache; arrays of 64 KiB do.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/collectives/kernels/kernel_targets.h"
#include "src/collectives/kernels/kernels.h"
#include "src/common/elements.h"

namespace phalanx::collectives {
namespace {

constexpr int64_t kCached = 64 << 10;
constexpr int64_t kUncached = 64 << 20;

// Memory as the store allocates it: aligned to 64 bytes. Written once, so that the kernel has
// allocated the pages.
class Array {
 public:
  explicit Array(size_t bytes)
      : memory_(static_cast<uint8_t*>(std::aligned_alloc(4096, bytes)), std::free) {
    std::memset(memory_.get(), 0, bytes);
  }
  uint8_t* data() const { return memory_.get(); }

 private:
  const std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
};

struct Arrays {
  explicit Arrays(size_t bytes) : dst(bytes), a(bytes), b(bytes) {}
  Array dst;
  Array a;
  Array b;
};

void FillWithOnes(DType dtype, const Arrays& arrays, uint64_t count) {
  FillIdentity(dtype, ReduceOp::kProd, arrays.a.data(), count);
  FillIdentity(dtype, ReduceOp::kProd, arrays.b.data(), count);
}

void Report(benchmark::State& state) {
  state.SetBytesProcessed(3 * state.range(0) * static_cast<int64_t>(state.iterations()));
}

// A plain loop, compiled for the machine at hand.
__attribute__((optimize("O3"), target_clones("default", "avx2", "avx512f"))) void StreamAdd(
    double* __restrict dst, const double* __restrict a, const double* __restrict b, size_t count) {
  for (size_t i = 0; i < count; ++i) dst[i] = a[i] + b[i];
}

void RunStreamAdd(benchmark::State& state) {
  const Arrays arrays(static_cast<size_t>(state.range(0)));
  const size_t count = static_cast<size_t>(state.range(0)) / sizeof(double);
  FillWithOnes(DType::kF64, arrays, count);
  for (auto _ : state) {
    StreamAdd(reinterpret_cast<double*>(arrays.dst.data()),
              reinterpret_cast<const double*>(arrays.a.data()),
              reinterpret_cast<const double*>(arrays.b.data()), count);
    benchmark::ClobberMemory();
  }
  Report(state);
}
BENCHMARK(RunStreamAdd)->Name("stream_add")->Arg(kUncached)->Arg(kCached);

void RunFold(benchmark::State& state, DType dtype, ReduceOp op, const KernelTarget& target,
             bool in_place) {
  const Arrays arrays(static_cast<size_t>(state.range(0)));
  const uint64_t count = static_cast<uint64_t>(state.range(0)) / ElementSize(dtype);
  FillWithOnes(dtype, arrays, count);
  uint8_t* const dst = in_place ? arrays.a.data() : arrays.dst.data();
  for (auto _ : state) {
    Fold(dtype, op, dst, arrays.a.data(), arrays.b.data(), count, target);
    benchmark::ClobberMemory();
  }
  Report(state);
}

void Register(DType dtype, ReduceOp op, const KernelTarget& target, bool in_place = false) {
  const std::string name = absl::StrCat("fold_", ReduceOpName(op), "_", DTypeName(dtype), "_",
                                        target.name, in_place ? "_in_place" : "");
  benchmark::RegisterBenchmark(name.c_str(),
                               [dtype, op, &target, in_place](benchmark::State& state) {
                                 RunFold(state, dtype, op, target, in_place);
                               })
      ->Arg(kUncached)
      ->Arg(kCached);
}

void RegisterAll() {
  const KernelTarget& best = BestKernelTarget();
  for (const DType dtype : kAllDTypes) Register(dtype, ReduceOp::kSum, best);
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    Register(dtype, ReduceOp::kSum, best, /*in_place=*/true);
    Register(dtype, ReduceOp::kMax, best);
  }
  Register(DType::kU8, ReduceOp::kProd, best);
  Register(DType::kI64, ReduceOp::kProd, best);
  for (const KernelTarget& target : SupportedKernelTargets().subspan(1)) {
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      Register(dtype, ReduceOp::kSum, target);
    }
  }
}

}  // namespace
}  // namespace phalanx::collectives

int main(int argc, char** argv) {
  phalanx::collectives::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
