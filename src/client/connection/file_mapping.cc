#include "src/client/connection/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/common/io/populate.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace phalanx::internal {

namespace {

// mremap moves whole page tables only between addresses that agree in their last 21 bits.
constexpr uint64_t kMoveBytes = 2 << 20;

// Maps the file, or anonymous memory (fd -1), at a multiple of kMoveBytes. Null, with errno, if the
// system refuses.
char* MapAligned(int fd, uint64_t bytes, int protection) {
  const uint64_t reserved = bytes + kMoveBytes;
  void* const hole =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hole == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(hole);
  const uint64_t past = reinterpret_cast<uintptr_t>(begin) % kMoveBytes;
  char* const data = begin + (past == 0 ? 0 : kMoveBytes - past);
  const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  if (mmap(data, bytes, protection, kind | MAP_FIXED, fd, 0) == MAP_FAILED) {
    // munmap can overwrite errno.
    const int why = errno;
    munmap(hole, reserved);
    errno = why;
    return nullptr;
  }
  static const uint64_t page = static_cast<uint64_t>(getpagesize());
  char* const end = data + (bytes + page - 1) / page * page;
  if (data > begin) munmap(begin, data - begin);
  if (begin + reserved > end) munmap(end, begin + reserved - end);
  return data;
}

// Moves the pages of one mapping of a file to another of the same size; `from` stays mapped.
bool MovePages(char* from, char* to, uint64_t bytes) {
  return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
         MAP_FAILED;
}

// Whether the system moves pages of shared memory (Linux 5.13 and later).
bool PagesCanMove() {
  const uint64_t page = static_cast<uint64_t>(getpagesize());
  void* const both =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (both == MAP_FAILED) return false;
  char* const from = static_cast<char*>(both);
  const bool can = MovePages(from, from + page, page);
  munmap(both, 2 * page);
  return can;
}

// Returns another descriptor of the file, or -1 if that would leave the process less than half of
// its descriptors.
int SparedCopy(int fd) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(fd) >= limit.rlim_cur / 2) {
    return -1;
  }
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) CloseInChildren(copy);
  return copy;
}

absl::Status Refused(absl::string_view what, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot ", what, " ", bytes, " bytes: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<FileMapping>> FileMapping::Map(int fd, uint64_t bytes,
                                                              bool writable) {
  static const bool pages_can_move = PagesCanMove();
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Refused("map", bytes);
  std::shared_ptr<FileMapping> mapping(
      new FileMapping(static_cast<char*>(data), bytes, SparedCopy(fd)));
  if (!writable) return mapping;
  // Mapped writable first: the kernel then allows mprotect to make it writable again.
  mapping->writing_ = MapAligned(fd, bytes, PROT_READ | PROT_WRITE);
  if (mapping->writing_ == nullptr || mprotect(mapping->writing_, bytes, PROT_READ) != 0) {
    return Refused("map", bytes);
  }
  if (!pages_can_move) return mapping;
  mapping->twin_ = MapAligned(fd, bytes, PROT_READ | PROT_WRITE);
  if (mapping->twin_ == nullptr || madvise(mapping->twin_, bytes, MADV_DONTFORK) != 0) {
    return Refused("map", bytes);
  }
  return mapping;
}

FileMapping::~FileMapping() {
  if (mark_.Forked()) return;
  munmap(const_cast<char*>(data_), bytes_);
  if (writing_ != nullptr) munmap(writing_, bytes_);
  if (twin_ != nullptr) munmap(twin_, bytes_);
  if (fd_ < 0) return;
  KeepInChildren(fd_);
  close(fd_);
}

char* FileMapping::PrivatePages(uint64_t offset, uint64_t length) const {
  static const uint64_t page = static_cast<uint64_t>(getpagesize());
  if (fd_ < 0 || length == 0 || offset % page != 0 || mark_.Forked()) return nullptr;
  void* const pages =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_, static_cast<off_t>(offset));
  return pages == MAP_FAILED ? nullptr : static_cast<char*>(pages);
}

absl::Status FileMapping::BeginWriting(uint64_t upto) {
  if (writing_ == nullptr) {
    return absl::ResourceExhaustedError("the system took the memory that was to be written");
  }
  // Without a twin children must not get the pages: they are the live file, not a copy.
  if (pages_at_twin_) {
    if (!MovePages(twin_, writing_, bytes_)) {
      const absl::Status why = Refused("make writable", bytes_);
      // The system can have unmapped the destination, so another mapping can be there from now on.
      writing_ = nullptr;
      return why;
    }
    pages_at_twin_ = false;
  } else if (madvise(writing_, bytes_, MADV_DONTFORK) != 0 ||
             mprotect(writing_, bytes_, PROT_READ | PROT_WRITE) != 0) {
    return Refused("make writable", bytes_);
  }
  if (populated_ < upto) {
    static const uint64_t page = static_cast<uint64_t>(getpagesize());
    Populate(writing_ + populated_, upto - populated_);
    // The page of the last byte is filled too.
    populated_ = (upto + page - 1) / page * page;
  }
  return absl::OkStatus();
}

absl::Status FileMapping::EndWriting() {
  if (writing_ == nullptr) return absl::OkStatus();
  // A racing write can bring pages back between the two calls; mprotect protects them.
  pages_at_twin_ = twin_ != nullptr && MovePages(writing_, twin_, bytes_);
  // The system can have unmapped the twin as well. From here on each page's protection is changed
  // instead.
  if (!pages_at_twin_) twin_ = nullptr;
  if (mprotect(writing_, bytes_, PROT_READ) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot protect ", bytes_, " bytes: ", std::strerror(errno)));
  }
  madvise(writing_, bytes_, MADV_DOFORK);
  return absl::OkStatus();
}

char* FileMapping::NextPlace() const {
  char* const place = MapAligned(-1, bytes_, PROT_NONE);
  if (place == nullptr || pages_at_twin_) return place;
  // mremap with an old size of 0 maps a shared mapping a second time.
  void* const again =
      mremap(writing_, 0, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(place));
  return again == MAP_FAILED ? nullptr : place;
}

absl::StatusOr<FileMapping::GivenAway> FileMapping::GiveAway(uint64_t upto) {
  if (writing_ == nullptr) {
    return absl::ResourceExhaustedError("the system took the memory that was written");
  }
  static const uint64_t page = static_cast<uint64_t>(getpagesize());
  const uint64_t kept = std::max(page, (upto + page - 1) / page * page);
  // Copied to a new place and then moved over: the old address must keep its bytes for its reader
  // at every moment.
  void* const copy =
      mmap(nullptr, kept, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return Refused("copy", kept);
  char* const next = NextPlace();
  if (next == nullptr) {
    const absl::Status why = Refused("map", bytes_);
    munmap(copy, kept);
    return why;
  }
  std::memcpy(copy, data_, upto);
  char* const given = std::exchange(writing_, nullptr);
  if (mremap(copy, kept, kept, MREMAP_MAYMOVE | MREMAP_FIXED, given) == MAP_FAILED) {
    // The system can have unmapped the destination.
    const absl::Status why = Refused("move", kept);
    munmap(copy, kept);
    munmap(next, bytes_);
    return why;
  }
  if (kept < bytes_) munmap(given + kept, bytes_ - kept);
  writing_ = next;
  if (!pages_at_twin_) populated_ = 0;
  return GivenAway{given, kept};
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
  // The node has forgotten the file in the meantime.
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
