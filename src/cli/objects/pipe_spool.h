// Holds the bytes of an input of unknown size until its end, while the node keeps memory for them.
//
// An object has its size from the start: the node allocates its memory at once, the directory plans
// by the size, and slices are fractions of it. So such an input cannot be written into the store as
// it arrives. Its bytes wait in a file without a name below $TMPDIR, or /tmp. Meanwhile objects
// that are never sealed, under random ids, reserve memory for them on the node, so that an input
// which the node cannot hold is refused while it is read. The reservations are up to a quarter
// larger than the bytes that were read, and end before the object itself is created.
//
// Main's thread only.
#ifndef PHALANX_CLI_OBJECTS_PIPE_SPOOL_H_
#define PHALANX_CLI_OBJECTS_PIPE_SPOOL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"

namespace phalanx::runtime {

class PipeSpool {
 public:
  // `client` outlives the spool. Of `options`, the metadata and the timeout are used. `waits` is
  // called by a WaitNotice while it waits for memory. Returns Unavailable or ResourceExhausted if
  // no file can be made.
  static absl::StatusOr<PipeSpool> Make(Client& client, const PutOptions& options,
                                        std::function<void()> waits);
  ~PipeSpool();
  PipeSpool(PipeSpool&& other) noexcept;
  PipeSpool& operator=(PipeSpool&&) = delete;

  // Waits for memory up to the timeout, in all. Returns ResourceExhausted if the node cannot hold
  // so many bytes (at once if they exceed its capacity) or the disk is full; errors as
  // Client::Create.
  absl::Status Append(absl::string_view bytes);
  uint64_t size() const { return size_; }
  // Ends the reservation, and returns the file with all bytes, to be read from its beginning. The
  // spool closes it.
  absl::StatusOr<int> Finish();

 private:
  PipeSpool(Client& client, PutOptions options, std::function<void()> waits, std::string folder,
            int fd)
      : client_(client),
        options_(std::move(options)),
        waits_(std::move(waits)),
        folder_(std::move(folder)),
        fd_(fd) {}
  absl::Status Reserve(uint64_t least);
  absl::Status AddReservation(uint64_t bytes, absl::Duration timeout);

  Client& client_;
  const PutOptions options_;
  const std::function<void()> waits_;
  const std::string folder_;
  int fd_;
  uint64_t size_ = 0;
  std::vector<WritableBuffer> reservations_;
  uint64_t reserved_ = 0;
  // The next reservations are no larger, unless they have to be; halved by each refusal.
  uint64_t most_ = 256 << 20;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_PIPE_SPOOL_H_
