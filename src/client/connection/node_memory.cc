#include "src/client/connection/node_memory.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::internal {
namespace {

absl::Status NotMapped() {
  return absl::ResourceExhaustedError(
      "this process has no descriptor or no address space left to map the object");
}

}  // namespace

bool NodeMemory::AddFile(const local::File& file, int fd) {
  if (fd < 0) return false;
  absl::StatusOr<std::shared_ptr<FileMapping>> mapping =
      FileMapping::Map(fd, file.bytes, file.writable);
  // The mapping keeps a copy if it needs one.
  close(fd);
  if (mapping.ok()) files_->Add({file.file, file.writable}, *std::move(mapping));
  return mapping.ok();
}

std::shared_ptr<FileMapping> NodeMemory::Forgotten(const local::Forgotten& forgotten) {
  return files_->Forgotten({forgotten.file, forgotten.writable});
}

std::shared_ptr<void> NodeMemory::GiveUpFiles() {
  return std::exchange(files_, std::make_shared<MappingTable>());
}

absl::StatusOr<std::shared_ptr<FileMapping>> NodeMemory::Pin(const local::Mapped& answer) {
  std::shared_ptr<FileMapping> mapping = files_->ForReading(answer.file);
  if (mapping == nullptr) return NotMapped();
  if (!mapping->Contains(answer.offset, answer.object_size)) {
    // The lookup counted a user.
    PutBack(mapping.get());
    return absl::InternalError(absl::StrCat("the node says the object is at ", answer.offset,
                                            " of a file of ", mapping->bytes(), " bytes"));
  }
  pins_.insert(answer.pin);
  return mapping;
}

void NodeMemory::Unpin(uint64_t pin, const FileMapping* mapping) {
  pins_.erase(pin);
  PutBack(mapping);
}

std::vector<local::Leave> NodeMemory::LeaveMessages() const {
  std::vector<local::Leave> messages(1);
  for (const uint64_t pin : pins_) {
    messages.back().pins.push_back(pin);
    // A client can have more pins than fit into one frame.
    if (messages.back().pins.size() < local::kMaxPinsPerFrame) continue;
    messages.back().more = true;
    messages.emplace_back();
  }
  return messages;
}

absl::StatusOr<std::shared_ptr<FileMapping>> NodeMemory::TakeWriter(const local::Granted& answer,
                                                                    uint64_t size) {
  std::shared_ptr<FileMapping> mapping = files_->ForWriting(answer.file);
  if (mapping == nullptr) return NotMapped();
  if (!mapping->Contains(answer.offset, size)) {
    PutBack(mapping.get());
    return absl::InternalError(absl::StrCat("the node grants ", size, " bytes at ", answer.offset,
                                            " of a file of ", mapping->bytes(), " bytes"));
  }
  return mapping;
}

}  // namespace phalanx::internal
