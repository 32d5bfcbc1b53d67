#include "src/jobs/group/service/store_group_memory.h"

#include <algorithm>
#include <utility>

namespace phalanx::jobs {

using object_store::Reservation;
using object_store::ScratchBlock;

void StoreGroupMemory::Allocate(uint64_t work_bytes, uint64_t scratch_bytes, Instant deadline,
                                Allocated done) {
  AllocateBoth(work_bytes, scratch_bytes, deadline,
               [work_bytes, scratch_bytes, done = std::move(done)](
                   absl::StatusOr<std::shared_ptr<GroupBlocks>> blocks) mutable {
                 if (!blocks.ok()) return done(blocks.status());
                 auto memory = std::make_shared<GroupMemory>();
                 if (work_bytes > 0) memory->work = (*blocks)->work.block->bytes();
                 if (scratch_bytes > 0) memory->scratch = (*blocks)->scratch.block->bytes();
                 memory->owner = *std::move(blocks);
                 done(std::move(memory));
               });
}

void StoreGroupMemory::ShareKept(std::shared_ptr<KeptBytes> kept) {
  kept->limit = store_.stats().capacity_bytes / kKeptShare;
  kept_ = std::move(kept);
}

// A smaller block would have no file of its own that the client could write.
void StoreGroupMemory::AllocateInput(uint64_t bytes, Instant deadline, BlockDone done) {
  const uint64_t whole = std::max(bytes, object_store::kOwnFileBytes);
  AllocateBoth(
      whole, 0, deadline,
      [done = std::move(done)](absl::StatusOr<std::shared_ptr<GroupBlocks>> blocks) mutable {
        if (!blocks.ok()) return done(blocks.status());
        done(std::move((*blocks)->work));
      });
}

std::shared_ptr<object_store::MemoryBlock> StoreGroupMemory::BlockOf(const GroupDone& done) {
  // A result in an input needs no block, and results in memory of the pool have none.
  if (done.in_input || done.memory == nullptr || done.result.size() <= kPooledResultBytes) {
    return nullptr;
  }
  const absl::Span<char> work = done.memory->work;
  if (done.result.data() < work.data() || done.result.data() >= work.data() + work.size()) {
    return nullptr;
  }
  return BlockOf(*done.memory);
}

void StoreGroupMemory::AllocateBoth(
    uint64_t first, uint64_t second, Instant deadline,
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<GroupBlocks>>)> done) {
  // One reservation for both blocks, so that no two calls wait for each other with half of their
  // memory.
  Reserve(first + second, deadline,
          [this, first, second,
           done = std::move(done)](absl::StatusOr<std::shared_ptr<Reservation>> reserved) mutable {
            if (!reserved.ok()) return done(reserved.status());
            const std::shared_ptr<Reservation> from = *std::move(reserved);
            auto blocks = std::make_shared<GroupBlocks>();
            auto then = [this, from, second, blocks,
                         done = std::move(done)](absl::StatusOr<ScratchBlock> block) mutable {
              if (!block.ok()) return done(block.status());
              blocks->work = *std::move(block);
              if (second == 0) return done(std::move(blocks));
              store_.AllocateScratch(
                  from, second,
                  [blocks, done = std::move(done)](absl::StatusOr<ScratchBlock> block) mutable {
                    if (!block.ok()) return done(block.status());
                    blocks->scratch = *std::move(block);
                    done(std::move(blocks));
                  });
            };
            if (first == 0) return then(ScratchBlock());
            store_.AllocateScratch(from, first, std::move(then));
          });
}

void StoreGroupMemory::Reserve(uint64_t bytes, Instant deadline, object_store::ReserveDone done) {
  // At the first need: a node without large calls has no such client.
  if (client_ == 0) client_ = store_.OpenClient();
  static const ObjectId purpose = ObjectId::FromName("phalanx", "memory of groups");
  // A deadline that has passed says that the memory is not worth a kept result.
  const Instant now = control_.Now();
  const bool gives_way =
      now < deadline && bytes <= store_.stats().capacity_bytes && kept_->node_results() > 0;
  const Instant until = gives_way ? std::min(deadline, now + kEvictionPatience) : deadline;
  struct Waiting {
    bool answered = false;
    bool counted = false;
  };
  const auto waiting = std::make_shared<Waiting>();
  store_.ReserveScratch(client_, purpose, bytes, until,
                        [this, bytes, deadline, gives_way, until, waiting, done = std::move(done)](
                            absl::StatusOr<std::shared_ptr<Reservation>> reserved) mutable {
                          waiting->answered = true;
                          kept_->awaited -= waiting->counted ? 1 : 0;
                          // Another error comes before.
                          if (reserved.ok() || !gives_way || control_.Now() < until)
                            return done(std::move(reserved));
                          const uint64_t before = kept_->used();
                          while (kept_->used() + bytes > before && kept_->DropOldestOfNode()) {
                          }
                          Reserve(bytes, deadline, std::move(done));
                        });
  // What has its memory already takes that of no result.
  waiting->counted = !waiting->answered && now < deadline;
  kept_->awaited += waiting->counted ? 1 : 0;
}

}  // namespace phalanx::jobs
