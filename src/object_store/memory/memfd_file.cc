#include "src/object_store/memory/memfd_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/io/populate.h"
#include "src/common/status_macros.h"

// Not in this C library's headers.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace phalanx::object_store {
namespace {

// Pages are reserved so many bytes at a time: the kernel would kill a process before it
// refuses a step that is too large.
constexpr uint64_t kStepBytes = uint64_t{64} << 20;
// Bytes that stay free for the rest of the machine.
constexpr uint64_t kMarginBytes = uint64_t{32} << 20;

absl::Status NoMemory(uint64_t bytes, absl::string_view step, int error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory of ", bytes, " bytes: ", step, ": ", strerror(error)));
}

absl::Status Reserve(int fd, uint64_t begin, uint64_t end, const MemfdFile::Available& available) {
  const uint64_t bytes = end - begin;
  for (uint64_t done = 0; done < bytes; done += std::min(kStepBytes, bytes - done)) {
    const uint64_t step = std::min(kStepBytes, bytes - done);
    if (available) {
      const uint64_t left = available();
      if (left < kMarginBytes || left - kMarginBytes < step) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "shared memory of ", bytes, " bytes: after ", done, " the machine has only ", left,
            " bytes left: give the node a smaller --capacity, "
            "or the container more memory"));
      }
    }
    int result = 0;
    do {
      result = fallocate(fd, 0, static_cast<off_t>(begin + done), static_cast<off_t>(step));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return NoMemory(bytes, "fallocate", errno);
  }
  return absl::OkStatus();
}

// The size of a new file, its first pages, and a mapping of all.
absl::StatusOr<char*> Fill(int fd, uint64_t bytes, uint64_t ready,
                           const MemfdFile::Available& available) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return NoMemory(bytes, "ftruncate", errno);
  PHALANX_RETURN_IF_ERROR(Reserve(fd, 0, ready, available));
  // MAP_POPULATE would make the pages that are to be made later.
  const int populate = CanPopulate() || ready < bytes ? 0 : MAP_POPULATE;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, fd, 0);
  if (data == MAP_FAILED) return NoMemory(bytes, "mmap", errno);
  Populate(static_cast<char*>(data), ready);
  return static_cast<char*>(data);
}

// The rest stays for clients: without a descriptor they could not even connect to delete objects.
constexpr rlim_t kKeptDescriptors = 64;

// Whether `fd`, the lowest that was free, leaves enough of them.
absl::Status CheckDescriptors(int fd, uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const rlim_t kept = std::min(kKeptDescriptors, limit.rlim_cur / 4);
  if (static_cast<rlim_t>(fd) + kept < limit.rlim_cur) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "shared memory of ", bytes, " bytes: the last ", kept, " of ", limit.rlim_cur,
      " descriptors are kept for clients and peers: delete objects of 1 MiB and more, or raise the "
      "node's hard limit (ulimit -Hn)"));
}

struct flock ByteOf(uint64_t viewer, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(viewer);
  lock.l_len = 1;
  return lock;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemfdFile>> MemfdFile::Create(uint64_t bytes, uint64_t ready,
                                                             Writers writers,
                                                             const Available& available) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > (uint64_t{1} << 62)) return NoMemory(bytes, "size", EFBIG);
  bytes = (bytes + page - 1) / page * page;
  ready = std::min(bytes, (ready + page - 1) / page * page);
  const int fd = memfd_create("phalanx", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NoMemory(bytes, "memfd_create", errno);
  const absl::Status enough = CheckDescriptors(fd, bytes);
  absl::StatusOr<char*> data = enough.ok() ? Fill(fd, bytes, ready, available) : enough;
  // The size is sealed: a process that shrank the file would kill every reader with a SIGBUS.
  int seals = F_SEAL_SHRINK | F_SEAL_GROW;
  if (writers == Writers::kThisProcess) seals |= F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (data.ok() && fcntl(fd, F_ADD_SEALS, seals) != 0) {
    const absl::Status status = NoMemory(bytes, "F_ADD_SEALS", errno);
    munmap(*data, bytes);
    data = status;
  }
  if (!data.ok()) {
    close(fd);
    return data.status();
  }
  return std::unique_ptr<MemfdFile>(new MemfdFile(fd, *data, bytes, writers));
}

absl::Status MemfdFile::MakePages(uint64_t begin, uint64_t end, const Available& available) const {
  PHALANX_RETURN_IF_ERROR(Reserve(fd_, begin, end, available));
  Populate(data_ + begin, end - begin);
  return absl::OkStatus();
}

MemfdFile::~MemfdFile() {
  munmap(data_, bytes_);
  close(fd_);
  if (read_only_fd_ >= 0) close(read_only_fd_);
}

// A mapping keeps the open file that it was made by, and with it the locks of that: one byte for
// each viewer, at the offset of its number.
int MemfdFile::OpenFor(uint64_t viewer) const {
  const std::string path = absl::StrCat("/proc/self/fd/", fd_);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  struct flock lock = ByteOf(viewer, F_RDLCK);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return fd;
  close(fd);
  return -1;
}

bool MemfdFile::SeenBy(uint64_t viewer) const {
  struct flock lock = ByteOf(viewer, F_WRLCK);
  // An error counts as seen: pages that are wrongly kept cost memory, pages that are wrongly reused
  // cost an object.
  return fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void MemfdFile::GiveUpPages() {
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_));
}

int MemfdFile::read_only_fd() {
  // The seals forbid a writable mapping by any descriptor.
  if (writers_ == Writers::kThisProcess) return fd_;
  if (read_only_fd_ < 0) {
    const std::string path = absl::StrCat("/proc/self/fd/", fd_);
    read_only_fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  return read_only_fd_;
}

}  // namespace phalanx::object_store
