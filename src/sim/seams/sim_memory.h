// The memory of a simulated node: HeapMemory with delays and failures, like the helper thread and
// the system behind the real one. Answers can overtake each other. Half of the small blocks are
// there at once.
//
// Thread rule: as SharedMemory. Testonly.
#ifndef PHALANX_SIM_SEAMS_SIM_MEMORY_H_
#define PHALANX_SIM_SEAMS_SIM_MEMORY_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/common/time/executor.h"
#include "src/object_store/memory/heap_memory.h"

namespace phalanx::sim {

class SimMemory final : public object_store::SharedMemory {
 public:
  // `executor` must outlive this.
  SimMemory(Executor& executor, Random random)
      : executor_(executor), random_(std::move(random)), heap_(executor) {}

  // Sets the longest delay and the failure rate of the allocations from now on.
  void SetTrouble(absl::Duration max_delay, double failures) {
    max_delay_ = max_delay;
    failures_ = failures;
  }

  void Allocate(uint64_t bytes, Allocated done) override {
    const absl::Duration delay = max_delay_ * random_.Unit();
    const bool fail = random_.Chance(failures_);
    Task allocate = [this, bytes, fail, done = std::move(done)]() mutable {
      if (fail) heap_.FailNext(1);
      heap_.Allocate(bytes, std::move(done));
    };
    if (delay <= absl::ZeroDuration()) {
      executor_.Post(std::move(allocate));
    } else {
      executor_.RunAt(executor_.Now() + delay, std::move(allocate));
    }
  }
  std::shared_ptr<object_store::MemoryBlock> TryAllocate(uint64_t bytes) override {
    return random_.Chance(0.5) ? heap_.TryAllocate(bytes) : nullptr;
  }
  void Reconsider() override { heap_.Reconsider(); }
  void Trim(uint64_t keep_bytes) override { heap_.Trim(keep_bytes); }
  object_store::SharedMemoryStats stats() const override { return heap_.stats(); }

 private:
  Executor& executor_;
  Random random_;
  object_store::HeapMemory heap_;
  absl::Duration max_delay_;
  double failures_ = 0;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SEAMS_SIM_MEMORY_H_
