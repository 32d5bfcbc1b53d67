// StoreGroupMemory: memory of a node's groups out of the capacity of its store, as blocks that
// clients map.
//
// Thread rule: everything on the control loop. Owned by the node.
#ifndef PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_
#define PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/common/time/instant.h"
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

class StoreGroupMemory final : public GroupAllocator {
 public:
  // `store` outlives this and the memory that it gives.
  explicit StoreGroupMemory(object_store::Store& store) : store_(store) {}

  void Allocate(uint64_t work_bytes, uint64_t scratch_bytes, Instant deadline,
                Allocated done) override;
  uint64_t KeptLimit() const override;
  // A block with a file that its client can write.
  using BlockDone = object_store::ScratchDone;
  void AllocateInput(uint64_t bytes, Instant deadline, BlockDone done);

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

  object_store::Store& store_;
  object_store::ClientId client_ = 0;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_SERVICE_STORE_GROUP_MEMORY_H_
