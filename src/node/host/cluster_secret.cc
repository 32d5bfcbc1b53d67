#include "src/node/host/cluster_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

absl::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Opens a regular file. A pipe without a writer would block a daemon where it handles no signals.
absl::StatusOr<int> OpenSecretFile(const std::string& file, struct stat& info) {
  const int fd = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    const std::string text =
        absl::StrCat("cannot read the secret in ", file, ": ", strerror(errno));
    return errno == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  close(fd);
  return absl::InvalidArgumentError(absl::StrCat("the secret must be in a file, but ", file, " is ",
                                                 KindOf(info.st_mode),
                                                 ": give a file, or set PHALANX_SECRET"));
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& file) {
  struct stat info = {};
  PHALANX_ASSIGN_OR_RETURN(const int fd, OpenSecretFile(file, info));
  // One byte more than allowed, so that a file that is too long is an error and not cut off.
  std::string bytes(kMaxSecretBytes + 1, '\0');
  const ssize_t size = read(fd, bytes.data(), bytes.size());
  close(fd);
  if (size > static_cast<ssize_t>(kMaxSecretBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the secret in ", file, " is longer than ", kMaxSecretBytes, " bytes"));
  }
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  // Editors add a newline, and `echo` does too.
  std::string secret(absl::StripAsciiWhitespace(bytes));
  if (secret.empty()) return absl::InvalidArgumentError(absl::StrCat(file, " contains no secret"));
  // Only a warning: the node works, but other users of this host can join its cluster.
  if ((info.st_mode & S_IROTH) != 0) {
    PHALANX_LOG(WARNING) << "every user of this host can read the secret" << LogField("file", file);
  }
  return secret;
}

}  // namespace

absl::StatusOr<std::string> ReadClusterSecret(const std::string& file) {
  // A file on the command line is deliberate, so an error in it must not fall back to the
  // environment.
  if (!file.empty()) return ReadSecretFile(file);
  const char* secret = std::getenv("PHALANX_SECRET");
  const absl::string_view text = absl::StripAsciiWhitespace(secret == nullptr ? "" : secret);
  if (text.size() > kMaxSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("PHALANX_SECRET is longer than ", kMaxSecretBytes, " bytes"));
  }
  return std::string(text);
}

std::string NewClusterSecret() {
  std::string bytes(32, '\0');
  SystemRandomBytes(bytes.data(), bytes.size());
  return absl::BytesToHexString(bytes);
}

}  // namespace phalanx::runtime
