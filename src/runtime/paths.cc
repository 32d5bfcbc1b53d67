#include "src/runtime/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::runtime {
namespace {

std::string RuntimeRoot() {
  const char* root = getenv("XDG_RUNTIME_DIR");
  // The XDG specification ignores a relative path.
  return root != nullptr && root[0] == '/' ? root : "";
}

}  // namespace

std::string UserFolder() {
  const std::string root = RuntimeRoot();
  if (!root.empty()) return absl::StrCat(root, "/phalanx");
  // The user's number keeps users apart in the shared /tmp; the folder's mode is checked where it
  // is used.
  return absl::StrCat("/tmp/phalanx-", geteuid());
}

std::string DefaultSocketPath() { return absl::StrCat(UserFolder(), "/node.sock"); }

absl::StatusOr<TemporaryFolder> TemporaryFolder::Make() {
  std::string why;
  for (const std::string& root : {RuntimeRoot(), std::string("/tmp")}) {
    if (root.empty()) continue;
    // Short, because a socket's path has at most 107 bytes.
    std::string path = absl::StrCat(root, "/phalanx-up-XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return TemporaryFolder(std::move(path));
    absl::StrAppend(&why, why.empty() ? "" : "; ", root, ": ", strerror(errno));
  }
  return absl::UnavailableError(absl::StrCat("cannot create a folder for the socket: ", why));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  // Errors are ignored: a file that stays is harmless, and a destructor cannot report it.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    unlink(entry.path().c_str());
  }
  rmdir(path_.c_str());
}

}  // namespace phalanx::runtime
