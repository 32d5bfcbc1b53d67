// One anonymous file in memory, mapped by this process. Its pages exist from the start, or are made
// in steps (MakePages). A process must not touch a page that does not exist.
//
// The size is sealed. Other processes get a descriptor that can only be mapped read-only, or a
// writable one, unless the file was made for this process alone.
//
// Thread rule: made and destroyed on any thread (both take time with the size), MakePages on any
// thread; otherwise used by one thread at a time.
#ifndef PHALANX_OBJECT_STORE_MEMORY_MEMFD_FILE_H_
#define PHALANX_OBJECT_STORE_MEMORY_MEMFD_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phalanx::object_store {

class MemfdFile {
 public:
  enum class Writers {
    kAnyHolder,    // every process that has the writable descriptor
    kThisProcess,  // seals forbid any new writable mapping
  };

  // Returns the bytes that the system can give; called between steps of the reservation. If empty,
  // only the kernel limits the reservation.
  using Available = std::function<uint64_t()>;

  // Rounds `bytes` up to whole pages; the first `ready` bytes of them exist. ResourceExhausted if
  // there is no memory or no descriptor; the text names the bytes. REQUIRES: bytes > 0, `ready` is
  // `bytes` or whole pages.
  static absl::StatusOr<std::unique_ptr<MemfdFile>> Create(uint64_t bytes, uint64_t ready,
                                                           Writers writers,
                                                           const Available& available);
  // Makes the pages [begin, end). ResourceExhausted as Create; some of the pages can then exist.
  // REQUIRES: both are whole pages, end <= bytes().
  absl::Status MakePages(uint64_t begin, uint64_t end, const Available& available) const;
  // Unmaps and closes. Other processes keep what they mapped.
  ~MemfdFile();
  MemfdFile(const MemfdFile&) = delete;
  MemfdFile& operator=(const MemfdFile&) = delete;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // -1 if the file was made for this process alone.
  int writable_fd() const { return writers_ == Writers::kAnyHolder ? fd_ : -1; }
  // Opened by the first call; -1 if the process has no descriptor left.
  int read_only_fd();
  // Returns a new descriptor like read_only_fd for another process; the caller closes it. The
  // kernel remembers the viewer until all that was mapped by the descriptor is unmapped, in forked
  // processes too. -1 if the process has no descriptor left.
  int OpenFor(uint64_t viewer) const;
  // Whether a descriptor from OpenFor, or a mapping by one, still exists.
  bool SeenBy(uint64_t viewer) const;
  // Gives the pages back to the system at once, although other processes can still have the file
  // mapped: clients keep mappings that they do not read. REQUIRES: no process reads or writes the
  // file any more. No effect on a file that was made for this process alone: its seals forbid it.
  void GiveUpPages();

 private:
  MemfdFile(int fd, char* data, uint64_t bytes, Writers writers)
      : fd_(fd), data_(data), bytes_(bytes), writers_(writers) {}

  const int fd_;
  char* const data_;
  const uint64_t bytes_;
  const Writers writers_;
  int read_only_fd_ = -1;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_MEMFD_FILE_H_
