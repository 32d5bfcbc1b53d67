#include "src/cli/objects/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/command.h"

namespace phalanx::runtime {
namespace {

absl::Status ErrnoStatus(int error, absl::string_view what, absl::string_view path) {
  if (error == EPIPE) return ClosedPipe();
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(text);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

// The path of the unfinished file, for the signal handler; one file at a time. A fixed buffer,
// because a handler must not allocate.
char unfinished[4096];

void RemoveUnfinished(int signal_number) {
  unlink(unfinished);
  // The default action then ends the process with the right status for its parent.
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void CleanUpWhenInterrupted(const std::string& path) {
  // Without the handler an interrupt leaves a temporary file; that is better than removing a
  // cut-off path.
  if (path.size() >= sizeof(unfinished)) return;
  memcpy(unfinished, path.c_str(), path.size() + 1);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, RemoveUnfinished);
}

void KeepWhenInterrupted() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  if (path == "-") return OutputFile(STDOUT_FILENO, "standard output", "");
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "write to", path);
    return OutputFile(fd, path, "");
  }
  // Replaces the file to which a link points, not the link.
  std::string target = path;
  if (exists) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (real != nullptr) target = real.get();
  }
  // In the same folder, so that rename() replaces the file in one step.
  std::string temporary = absl::StrCat(target, ".phalanx-XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  CleanUpWhenInterrupted(temporary);
  // mkostemp creates a file that only its owner can read. This sets the mode of the old file, or
  // that of an ordinary new file.
  // umask can only be read by setting it.
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, exists ? info.st_mode & 0777 : 0666 & ~mask);
  return OutputFile(fd, target, std::move(temporary));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
    KeepWhenInterrupted();
  }
  // Standard output belongs to the process.
  if (fd_ > STDERR_FILENO) close(fd_);
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write to", path_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Restart() {
  if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) {
    return ErrnoStatus(errno, "truncate", path_);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (temporary_.empty()) return absl::OkStatus();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return ErrnoStatus(errno, "create", path_);
  temporary_.clear();
  KeepWhenInterrupted();
  return absl::OkStatus();
}

}  // namespace phalanx::runtime
