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
#include "src/cli/objects/wait_notice.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime {
namespace {

// How long a reservation beside the earlier ones can wait for memory.
constexpr absl::Duration kPatience = absl::Milliseconds(500);

absl::Status SpoolError(absl::string_view folder) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot keep the input in ", folder, ": ", strerror(errno),
                   "; give --size, or set TMPDIR to a folder with room for the whole input"));
}

// Returns a file that ends with this process, however that ends, because it has no name.
int OpenNameless(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  // An old kernel sees only a folder that is opened for writing; some file systems cannot do it.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = absl::StrCat(folder, "/phalanx-put-XXXXXX");
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

absl::StatusOr<PipeSpool> PipeSpool::Make(Client& client, const PutOptions& options,
                                          std::function<void()> waits) {
  const char* variable = std::getenv("TMPDIR");
  std::string folder = variable == nullptr || *variable == '\0' ? "/tmp" : variable;
  const int fd = OpenNameless(folder);
  if (fd < 0) return SpoolError(folder);
  PutOptions reservation;
  reservation.metadata = options.metadata;
  reservation.timeout = options.timeout;
  return PipeSpool(client, std::move(reservation), std::move(waits), std::move(folder), fd);
}

PipeSpool::PipeSpool(PipeSpool&& other) noexcept
    : client_(other.client_),
      options_(other.options_),
      waits_(other.waits_),
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
  const WaitNotice notice(waits_);
  const Instant start = MonotonicNow();
  const auto left = [&] {
    return std::max(options_.timeout - (MonotonicNow() - start), absl::ZeroDuration());
  };
  while (true) {
    const uint64_t more = std::max(least - reserved_, std::min(size_ / 4, most_));
    // The last attempt, below, needs time as well.
    const absl::Status status = AddReservation(more, std::min(left() / 4, kPatience));
    // A node that is busy with so much memory can be too late.
    if (!absl::IsResourceExhausted(status) && !absl::IsDeadlineExceeded(status)) return status;
    if (more == least - reserved_) break;
    most_ = more / 2;
  }
  // The node may wait for memory that only this spool could give back. One reservation for all
  // bytes cannot, and the node refuses it at once if it exceeds the capacity.
  reservations_.clear();
  reserved_ = 0;
  const absl::Status status = AddReservation(least, left());
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("the node cannot hold the input, of which ",
                                                  least, " bytes were read: ", status.message()));
}

}  // namespace phalanx::runtime
