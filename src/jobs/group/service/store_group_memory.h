// StoreGroupMemory: memory of a node's groups out of the capacity of its store, as blocks that
// clients map.
//
// Kept results have memory of the store, too, and give way: what does not get its memory at once,
// or from copies that the store evicts in kEvictionPatience, gets that of the oldest results of all
// groups. While it waits all the same, no large result is kept.
//
// Thread rule: everything on the control loop. Owned by the node.
#ifndef PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_
#define PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/common/time/executor.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/results/kept_results.h"
#include "src/jobs/group/service/group_service.h"
#include "src/object_store/memory/shared_memory.h"
#include "src/object_store/store/store.h"

namespace phalanx::jobs {

// The owner of a GroupMemory that StoreGroupMemory made.
struct GroupBlocks {
  object_store::ScratchBlock work;
  object_store::ScratchBlock scratch;
};

// Kept results may take this part of the node's capacity.
inline constexpr uint64_t kKeptShare = 4;
inline constexpr absl::Duration kAllocationPatience = absl::Seconds(30);
inline constexpr absl::Duration kEvictionPatience = absl::Milliseconds(10);

class StoreGroupMemory final : public GroupAllocator {
 public:
  // Both outlive this and the memory that it gives.
  StoreGroupMemory(object_store::Store& store, Executor& control)
      : store_(store), control_(control) {}

  void Allocate(uint64_t work_bytes, uint64_t scratch_bytes, Instant deadline,
                Allocated done) override;
  void ShareKept(std::shared_ptr<KeptBytes> kept) override;
  // A block with a file that its client can write.
  using BlockDone = object_store::ScratchDone;
  void AllocateInput(uint64_t bytes, Instant deadline, BlockDone done);

  // The deadline of an allocation that no call limits.
  Instant DefaultDeadline() const { return control_.Now() + kAllocationPatience; }

  // The block in which the result of a call is, or null: the core's own memory, or an
  // input.
  static std::shared_ptr<object_store::MemoryBlock> BlockOf(const GroupDone& done);
  // The block with the work of a call. REQUIRES: this has given the memory.
  static std::shared_ptr<object_store::MemoryBlock> BlockOf(const GroupMemory& memory) {
    return static_cast<const GroupBlocks*>(memory.owner.get())->work.block;
  }

 private:
  // Reserves the sum and allocates both; a part without bytes has no block.
  void AllocateBoth(uint64_t first, uint64_t second, Instant deadline,
                    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<GroupBlocks>>)> done);

  // As Store::ReserveScratch, but with the memory of kept results if there is no other.
  void Reserve(uint64_t bytes, Instant deadline, object_store::ReserveDone done);

  object_store::Store& store_;
  Executor& control_;
  object_store::ClientId client_ = 0;
  std::shared_ptr<KeptBytes> kept_ = std::make_shared<KeptBytes>();
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_
