#include "src/node/host/cluster_secret.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/random.h"

namespace phalanx::runtime {
namespace {

absl::StatusOr<std::string> ReadSecretFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    const std::string text =
        absl::StrCat("cannot read the secret in ", file, ": ", strerror(errno));
    return errno == EACCES ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  // One byte more than allowed, so that a file that is too long is an error and not cut off.
  std::string bytes(kMaxSecretBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.gcount() > static_cast<std::streamsize>(kMaxSecretBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the secret in ", file, " is longer than ", kMaxSecretBytes, " bytes"));
  }
  bytes.resize(static_cast<size_t>(in.gcount()));
  // Editors add a newline, and `echo` does too.
  std::string secret(absl::StripAsciiWhitespace(bytes));
  if (secret.empty()) return absl::InvalidArgumentError(absl::StrCat(file, " contains no secret"));
  // Only a warning: the node works, but other users of this host can join its cluster.
  struct stat info;
  if (stat(file.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0) {
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
