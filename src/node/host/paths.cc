#include "src/node/host/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace phalanx::runtime {
namespace {

constexpr char kPrefix[] = "phalanx-up-";
constexpr char kOwner[] = "/owner";

std::string RuntimeRoot() {
  const char* root = getenv("XDG_RUNTIME_DIR");
  // The XDG specification ignores a relative path.
  return root != nullptr && root[0] == '/' ? root : "";
}

// Removes the files directly in a folder, and the folder. The owner's file is the last one: if this
// process dies in between, another one can still remove the rest.
void Remove(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (!absl::EndsWith(entry.path().native(), kOwner)) unlink(entry.path().c_str());
  }
  unlink(absl::StrCat(folder, kOwner).c_str());
  rmdir(folder.c_str());
}

// Removes the folders below `root` whose owners are dead.
void RemoveAbandoned(const std::string& root) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
    const std::string folder = entry.path().native();
    if (!absl::StartsWith(entry.path().filename().native(), kPrefix)) continue;
    struct stat info;
    // Others can write to /tmp: only a folder of this user is trusted, and no link to one.
    if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    if (info.st_uid != geteuid()) continue;
    const int owner = open(absl::StrCat(folder, kOwner).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (owner < 0) continue;
    if (flock(owner, LOCK_EX | LOCK_NB) == 0) Remove(folder);
    close(owner);
  }
}

// Returns the locked file of a new folder's owner, or -1. The file is locked under another name: if
// it were locked after it has its own, another process could take the folder for an abandoned one.
int LockOwner(const std::string& folder) {
  const std::string name = absl::StrCat(folder, kOwner);
  const std::string unlocked = absl::StrCat(name, ".new");
  const int owner = open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (owner < 0) return -1;
  if (flock(owner, LOCK_EX | LOCK_NB) == 0 && rename(unlocked.c_str(), name.c_str()) == 0) {
    return owner;
  }
  close(owner);
  return -1;
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
    RemoveAbandoned(root);
    std::string path = absl::StrCat(root, "/", kPrefix, "XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return TemporaryFolder(std::move(path));
    absl::StrAppend(&why, why.empty() ? "" : "; ", root, ": ", strerror(errno));
  }
  return absl::UnavailableError(absl::StrCat("cannot create a folder for the socket: ", why));
}

TemporaryFolder::TemporaryFolder(std::string path)
    : path_(std::move(path)), owner_(LockOwner(path_)) {}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), owner_(std::exchange(other.owner_, -1)) {}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  Remove(path_);
  if (owner_ >= 0) close(owner_);
}

}  // namespace phalanx::runtime
