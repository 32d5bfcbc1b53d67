#include "src/cli/objects/pipe_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// How long a reservation beside the earlier ones can wait for memory.
constexpr absl::Duration kPatience = absl::Milliseconds(500);

absl::Status SpoolError(absl::string_view folder) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot keep the input in ", folder, ": ", strerror(errno),
                   "; give --size, or set TMPDIR to a folder with room for the whole input"));
}

}  // namespace

absl::StatusOr<PipeSpool> PipeSpool::Make(Client& client, const PutOptions& options) {
  const char* variable = std::getenv("TMPDIR");
  std::string folder = variable == nullptr || *variable == '\0' ? "/tmp" : variable;
  std::string path = absl::StrCat(folder, "/phalanx-put-XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return SpoolError(folder);
  // Without a name, the file ends with this process, however that ends.
  unlink(path.c_str());
  PutOptions reservation;
  reservation.metadata = options.metadata;
  reservation.timeout = options.timeout;
  return PipeSpool(client, std::move(reservation), std::move(folder), fd);
}

PipeSpool::PipeSpool(PipeSpool&& other) noexcept
    : client_(other.client_),
      options_(other.options_),
      folder_(other.folder_),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      reservations_(std::move(other.reservations_)),
      reserved_(other.reserved_),
      most_(other.most_) {}

PipeSpool::~PipeSpool() {
  if (fd_ >= 0) close(fd_);
}

absl::Status PipeSpool::Append(absl::string_view bytes) {
  // Reserved before they are written, because an input without an end must not fill the disk.
  if (size_ + bytes.size() > reserved_) {
    PHALANX_RETURN_IF_ERROR(Reserve(size_ + bytes.size()));
  }
  size_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SpoolError(folder_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> PipeSpool::Finish() {
  reservations_.clear();
  if (lseek(fd_, 0, SEEK_SET) != 0) return SpoolError(folder_);
  return fd_;
}

absl::Status PipeSpool::AddReservation(uint64_t bytes, absl::Duration timeout) {
  PutOptions options = options_;
  options.timeout = timeout;
  PHALANX_ASSIGN_OR_RETURN(reservations_.emplace_back(),
                           client_.Create(ObjectId::Random(), bytes, std::move(options)));
  reserved_ += bytes;
  return absl::OkStatus();
}

absl::Status PipeSpool::Reserve(uint64_t least) {
  while (true) {
    const uint64_t more = std::max(least - reserved_, std::min(size_ / 4, most_));
    const absl::Status status = AddReservation(more, std::min(options_.timeout, kPatience));
    // A node that is busy with so much memory can be too late.
    if (!absl::IsResourceExhausted(status) && !absl::IsDeadlineExceeded(status)) return status;
    if (more == least - reserved_) break;
    most_ = more / 2;
  }
  // The node may wait for memory that only this spool could give back. One reservation for all
  // bytes cannot, and the node refuses it at once if it exceeds the capacity.
  reservations_.clear();
  reserved_ = 0;
  const absl::Status status = AddReservation(least, options_.timeout);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("the node cannot hold the input, of which ",
                                                  least, " bytes were read: ", status.message()));
}

}  // namespace phalanx::runtime
