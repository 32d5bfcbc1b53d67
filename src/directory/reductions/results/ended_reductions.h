// How the last reductions ended, for nodes that still request them, add sources to them, or keep
// their descriptors. Pure. Owned by ReductionCatalog; no thread of its own.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_RESULTS_ENDED_REDUCTIONS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_RESULTS_ENDED_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/bounded_map.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory {

struct EndedReduction {
  absl::Status status;
  ReduceSpec arguments;  // without the sources and their metadata
  // Of an open reduction: all sources that were added, and the requests for it and the extensions
  // that were carried out (node, request).
  std::vector<ObjectId> sources;
  absl::btree_set<std::pair<NodeKey, uint64_t>> asked;
  bool closed = false;
};

class EndedReductions {
 public:
  // So many, with so many sources and requests; the oldest are forgotten first.
  EndedReductions(size_t max_reductions, size_t max_entries)
      : max_entries_(max_entries), ended_(max_reductions) {}

  // Stores how the reduction with that target and that id ended.
  void Remember(const ObjectId& target, const ReductionId& number, EndedReduction ended);

  // Returns null if the reduction is not known. Valid until the next Remember.
  const EndedReduction* Find(const ObjectId& target, const ReductionId& number) const;
  // Returns all known ones of the target, with their ids.
  std::vector<std::pair<ReductionId, const EndedReduction*>> Of(const ObjectId& target) const;

  absl::Status CheckInvariants() const;

 private:
  using Key = std::pair<ObjectId, ReductionId>;
  static size_t SizeOf(const EndedReduction& ended) {
    return ended.sources.size() + ended.asked.size();
  }

  const size_t max_entries_;
  BoundedMap<Key, EndedReduction> ended_;
  size_t size_ = 0;  // of all of them
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_RESULTS_ENDED_REDUCTIONS_H_
