#include "src/object_store/objects/local_copies.h"

#include <utility>

namespace phalanx::object_store {

LocalCopies::LocalCopies(const StoreOptions& options, Turns& turns, ObjectTable& table,
                         GetRequests& gets, HoldReporter& holds, StickyMarks& stickies)
    : options_(options),
      turns_(turns),
      table_(table),
      gets_(gets),
      holds_(holds),
      stickies_(stickies),
      scopes_(options.max_ended_scopes) {}

uint64_t LocalCopies::RecordBytes(const CopyTraits& traits) const {
  // The ids that it refers to are listed with it, and in the tables of this node and of the shards.
  constexpr uint64_t kTables = 5;
  return options_.record_bytes + traits.metadata.size() + traits.reduced_from.size() +
         traits.refers_to.size() * kTables;
}

std::unique_ptr<Copy> LocalCopies::New(const ObjectId& id, const Generation& generation,
                                       uint64_t size, int slices, CopyTraits traits,
                                       std::shared_ptr<MemoryBlock> block) const {
  auto copy = std::make_unique<Copy>();
  copy->id = id;
  copy->generation = generation;
  copy->size_bytes = size;
  copy->record_bytes = RecordBytes(traits);
  copy->traits = std::move(traits);
  copy->traits.slices = slices;
  // The buffer keeps the block: an I/O loop may hold the buffer longer than the copy lives.
  copy->buffer =
      std::make_shared<net::TransferBuffer>(SliceLayout{size, slices}, block->bytes(), block);
  copy->block = std::move(block);
  return copy;
}

Copy* LocalCopies::Add(std::unique_ptr<Copy> copy) {
  Copy* added = table_.Add(std::move(copy));
  // From the announcement on, so that what a partial copy refers to is there when it is complete.
  holds_.HoldReferences(*added);
  scopes_.Add(added->traits.scope, added->id, added->generation);
  return added;
}

void LocalCopies::Complete(Copy* copy) {
  copy->buffer->Close(absl::OkStatus());
  table_.MarkComplete(copy);
  gets_.EndReaders(copy);
}

void LocalCopies::Drop(Copy* copy, const absl::Status& why) {
  gets_.VoidReaders(copy, why);
  copy->buffer->Close(why);
  // Receivers stop at once and ask the shard, instead of filling their memory with a dead
  // generation.
  if (data_plane_ != nullptr) data_plane_->AbortPushes(copy->id, copy->generation, why);
  holds_.DropReferences(*copy);
  stickies_.Forget(copy->id, copy->generation);
  scopes_.Remove(copy->traits.scope, copy->id, copy->generation);
  // Last: without pins the copy is destroyed here.
  table_.Detach(copy);
}

void LocalCopies::Evict(Copy* copy) {
  ++evictions_;
  turns_.Touch(copy->id);
  // Pushes and readers continue on their pins: the bytes are valid, the node only stops to keep
  // them.
  holds_.DropReferences(*copy);
  stickies_.Forget(copy->id, copy->generation);
  scopes_.Remove(copy->traits.scope, copy->id, copy->generation);
  table_.Detach(copy);
}

}  // namespace phalanx::object_store
