// ParallelOrderedMatch: values of some keys into those of others.
#ifndef PS_INTERNAL_PARALLEL_KV_MATCH_H_
#define PS_INTERNAL_PARALLEL_KV_MATCH_H_

#include <algorithm>

#include "ps/internal/assign_op.h"
#include "ps/sarray.h"

namespace ps {

// Both lists of keys are sorted, and each key has k values. The values of the keys that are in both
// lists are put into those of `dst_val`, which gets k values for each of `dst_key`. Returns how
// many values that were. One pass over both lists takes less time than threads would save.
template <typename K, typename V, typename C>
size_t ParallelOrderedMatch(const SArray<K>& src_key, const SArray<V>& src_val,
                            const SArray<K>& dst_key, C* dst_val, int k = 1, AssignOp op = ASSIGN,
                            int num_threads = 1) {
  CHECK_GT(num_threads, 0);
  const size_t width = static_cast<size_t>(k);
  CHECK_EQ(src_key.size() * width, src_val.size());
  dst_val->resize(dst_key.size() * width);
  size_t matched = 0;
  for (size_t from = 0, to = 0; from < src_key.size() && to < dst_key.size();) {
    if (src_key[from] < dst_key[to]) {
      ++from;
    } else if (dst_key[to] < src_key[from]) {
      ++to;
    } else {
      for (size_t i = 0; i < width; ++i) {
        AssignFunc(src_val[from * width + i], op, &(*dst_val)[to * width + i]);
      }
      matched += width;
      ++from;
      ++to;
    }
  }
  return matched;
}

}  // namespace ps

#endif  // PS_INTERNAL_PARALLEL_KV_MATCH_H_
