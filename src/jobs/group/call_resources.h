// PlanCache: the plans of the last different calls. CallMemoryPool: memory of small calls.
//
// Owned by a GroupCore. Pure; one thread at a time.
#ifndef PHALANX_JOBS_GROUP_CALL_RESOURCES_H_
#define PHALANX_JOBS_GROUP_CALL_RESOURCES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "src/jobs/group/group_plan.h"

namespace phalanx::jobs {

inline constexpr size_t kMaxRememberedPlans = 16;
// Of all remembered plans together, but for the last one: 56 bytes each.
inline constexpr size_t kMaxRememberedSteps = 1 << 16;
// A call with a larger result, or with more memory, gets it from the owner of the core: the pool
// has none.
inline constexpr uint64_t kPooledResultBytes = 65536;
inline constexpr uint64_t kPooledBytes = 262144;
inline constexpr size_t kMaxPooled = 16;

// Memory of one call. The last reference gives it back.
struct GroupMemory {
  absl::Span<char> work;
  absl::Span<char> scratch;
  // What keeps the bytes, for the owner.
  std::shared_ptr<void> owner;
};

class PlanCache {
 public:
  // As MakeGroupPlan.
  std::shared_ptr<const GroupPlan> Get(const GroupShape& shape, CallSpec spec, int node,
                                       bool acknowledged) {
    // It changes from call to call, and no plan depends on it.
    spec.keep = {};
    // Other kinds have the same plan with and without.
    acknowledged = acknowledged && HasRoot(spec.kind);
    for (const Entry& entry : entries_) {
      if (entry.acknowledged == acknowledged && entry.spec == spec) return entry.plan;
    }
    auto plan = std::make_shared<GroupPlan>(MakeGroupPlan(shape, spec, node, acknowledged));
    steps_ += plan->steps.size();
    while (!entries_.empty() &&
           (entries_.size() >= kMaxRememberedPlans || steps_ > kMaxRememberedSteps)) {
      steps_ -= entries_.front().plan->steps.size();
      entries_.pop_front();
    }
    entries_.push_back({spec, acknowledged, plan});
    return plan;
  }
  // The shape has changed.
  void Clear() {
    entries_.clear();
    steps_ = 0;
  }
  size_t steps() const { return steps_; }

 private:
  struct Entry {
    CallSpec spec;
    bool acknowledged = false;
    std::shared_ptr<const GroupPlan> plan;
  };
  std::deque<Entry> entries_;
  size_t steps_ = 0;
};

class CallMemoryPool {
 public:
  // Returns memory that nothing else refers to, or null if the call needs too much.
  std::shared_ptr<GroupMemory> Take(uint64_t work_bytes, uint64_t scratch_bytes) {
    if (work_bytes > kPooledResultBytes || work_bytes + scratch_bytes > kPooledBytes) {
      return nullptr;
    }
    std::shared_ptr<GroupMemory> memory;
    for (const std::shared_ptr<GroupMemory>& each : pool_) {
      if (each.use_count() == 1) memory = each;
    }
    if (memory == nullptr) {
      memory = std::make_shared<GroupMemory>();
      memory->owner = std::shared_ptr<char[]>(new char[kPooledBytes]);
      if (pool_.size() < kMaxPooled) pool_.push_back(memory);
    }
    char* const bytes = static_cast<char*>(memory->owner.get());
    memory->work = absl::MakeSpan(bytes, work_bytes);
    memory->scratch = absl::MakeSpan(bytes + work_bytes, scratch_bytes);
    return memory;
  }
  // A number for memory that is asked for elsewhere.
  uint64_t NewTicket() { return next_ticket_++; }

 private:
  std::vector<std::shared_ptr<GroupMemory>> pool_;
  uint64_t next_ticket_ = 1;
};

struct CallResources {
  PlanCache plans;
  CallMemoryPool pool;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_CALL_RESOURCES_H_
