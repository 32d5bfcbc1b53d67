// One anonymous file in memory, all of its pages there, mapped by this process.
//
// Its size is sealed. It can be handed to other processes by descriptor: one that can only be
// mapped read-only, or, unless it was made for this process alone, one to write through.
//
// Thread rule: made and destroyed on any thread (both take time with the size); otherwise used by
// one thread at a time.
#ifndef PHALANX_OBJECT_STORE_MEMFD_FILE_H_
#define PHALANX_OBJECT_STORE_MEMFD_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phalanx::object_store {

class MemfdFile {
 public:
  enum class Writers {
    kAnyHolder,    // whoever gets the writable descriptor
    kThisProcess,  // nobody else, ever: no new writable mapping can be made by any descriptor
  };

  // Bytes that the system can give; asked between steps of the reservation. Empty: only the kernel
  // is asked.
  using Available = std::function<uint64_t()>;

  // `bytes` are rounded up to whole pages. ResourceExhausted when there is no memory or no
  // descriptor; the text says how much was asked. REQUIRES: bytes > 0.
  static absl::StatusOr<std::unique_ptr<MemfdFile>> Create(uint64_t bytes, Writers writers,
                                                           const Available& available);
  // Unmaps and closes. Other processes keep what they mapped.
  ~MemfdFile();
  MemfdFile(const MemfdFile&) = delete;
  MemfdFile& operator=(const MemfdFile&) = delete;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // -1 if it was made for this process alone.
  int writable_fd() const { return writers_ == Writers::kAnyHolder ? fd_ : -1; }
  // Opened at the first call; -1 when there is no descriptor left.
  int read_only_fd();
  // A new descriptor like read_only_fd, for another process; the caller closes it. The kernel
  // remembers the viewer until everything that was mapped by it is unmapped, in children of fork
  // too. -1 when there is no descriptor left.
  int OpenFor(uint64_t viewer) const;
  // Whether a descriptor from OpenFor, or anything mapped by one, is still there.
  bool SeenBy(uint64_t viewer) const;
  // The pages go back to the system at once, although other processes may have the file mapped
  // still: clients keep mappings that they do not look through. Nothing may be read or written any
  // more. Without effect on a file that was made for this process alone, whose seals forbid it.
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

#endif  // PHALANX_OBJECT_STORE_MEMFD_FILE_H_
