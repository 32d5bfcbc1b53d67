// ParallelSort: sorts an array with several threads.
#ifndef PS_INTERNAL_PARALLEL_SORT_H_
#define PS_INTERNAL_PARALLEL_SORT_H_

#include <algorithm>
#include <functional>
#include <thread>

#include "ps/sarray.h"

namespace ps {

namespace internal {

template <typename T, class Fn>
void SortHalves(T* data, size_t size, size_t grain, const Fn& less) {
  if (size <= grain) {
    std::sort(data, data + size, less);
    return;
  }
  const size_t half = size / 2;
  std::thread first([=, &less] { SortHalves(data, half, grain, less); });
  SortHalves(data + half, size - half, grain, less);
  first.join();
  std::inplace_merge(data, data + half, data + size, less);
}

}  // namespace internal

template <typename T, class Fn = std::less<T>>
void ParallelSort(SArray<T>* array, int num_threads = 2, const Fn& less = Fn()) {
  CHECK_GT(num_threads, 0);
  // Below this a thread costs more than it sorts.
  const size_t least = 16 * 1024;
  const size_t grain = std::max(array->size() / static_cast<size_t>(num_threads) + 1, least);
  internal::SortHalves(array->data(), array->size(), grain, less);
}

}  // namespace ps

#endif  // PS_INTERNAL_PARALLEL_SORT_H_
