#include "src/runtime/client/file_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace phalanx::internal {

absl::StatusOr<std::shared_ptr<FileMapping>> FileMapping::Map(int fd, uint64_t bytes,
                                                              bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
  }
  std::shared_ptr<FileMapping> mapping(new FileMapping(static_cast<char*>(data), bytes));
  if (writable && mprotect(data, bytes, PROT_READ) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot protect ", bytes, " bytes: ", std::strerror(errno)));
  }
  return mapping;
}

FileMapping::~FileMapping() {
  if (!mark_.Forked()) munmap(data_, bytes_);
}

absl::Status FileMapping::BeginWriting(uint64_t upto) {
  if (madvise(data_, bytes_, MADV_DONTFORK) != 0 ||
      mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make ", bytes_, " bytes writable: ", std::strerror(errno)));
  }
  if (populated_ < upto) {
    static const uint64_t page = static_cast<uint64_t>(getpagesize());
    // Saves a fault per page; older kernels refuse, and the faults come.
    madvise(data_ + populated_, upto - populated_, MADV_POPULATE_WRITE);
    populated_ = (upto + page - 1) / page * page;
  }
  return absl::OkStatus();
}

absl::Status FileMapping::EndWriting() {
  if (mprotect(data_, bytes_, PROT_READ) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot protect ", bytes_, " bytes: ", std::strerror(errno)));
  }
  madvise(data_, bytes_, MADV_DOFORK);
  return absl::OkStatus();
}

void MappingTable::Add(Key key, std::shared_ptr<FileMapping> mapping) {
  const auto [it, added] = entries_.try_emplace(key);
  if (!added) return;
  keys_[mapping.get()] = key;
  it->second.mapping = std::move(mapping);
  it->second.place = idle_.insert(idle_.end(), key);
}

std::shared_ptr<FileMapping> MappingTable::Use(Key key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  Entry& entry = it->second;
  if (entry.users++ == 0) idle_.erase(entry.place);
  return entry.mapping;
}

std::shared_ptr<FileMapping> MappingTable::ForReading(uint64_t file) {
  std::shared_ptr<FileMapping> mapping = Use(Key{file, false});
  return mapping != nullptr ? mapping : Use(Key{file, true});
}

std::shared_ptr<FileMapping> MappingTable::ForWriting(uint64_t file) {
  return Use(Key{file, true});
}

void MappingTable::PutBack(const FileMapping* mapping) {
  const auto key = keys_.find(mapping);
  // Forgotten meanwhile.
  if (key == keys_.end()) return;
  Entry& entry = entries_[key->second];
  if (--entry.users == 0) entry.place = idle_.insert(idle_.end(), key->second);
}

std::vector<MappingTable::Key> MappingTable::TakeToForget(size_t keep) {
  std::vector<Key> keys;
  size_t excess = idle_.size() > keep ? idle_.size() - keep : 0;
  for (auto it = idle_.begin(); it != idle_.end() && excess > 0; ++it, --excess) {
    Entry& entry = entries_[*it];
    if (entry.forgetting) continue;
    entry.forgetting = true;
    keys.push_back(*it);
  }
  return keys;
}

std::shared_ptr<FileMapping> MappingTable::Forgotten(Key key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  if (it->second.users == 0) idle_.erase(it->second.place);
  std::shared_ptr<FileMapping> mapping = std::move(it->second.mapping);
  keys_.erase(mapping.get());
  entries_.erase(it);
  return mapping;
}

}  // namespace phalanx::internal
