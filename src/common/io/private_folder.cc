#include "src/common/io/private_folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace phalanx {

absl::Status MakePrivateFolder(const std::string& folder) {
  // EEXIST is no error here: the checks below decide whether an existing folder is private.
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("cannot create ", folder, ": ", strerror(errno)));
  }
  struct stat info;
  // lstat, because another user can have created a link of this name in a shared folder.
  if (lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::UnavailableError(absl::StrCat(folder, " is not a folder"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        folder, " is not private to this user (owner ", info.st_uid, ", mode ",
        absl::StrFormat("%03o", info.st_mode & 0777),
        "): another user could replace a socket in it; close it to others (chmod 700), "
        "or choose a folder that does not exist yet"));
  }
  return absl::OkStatus();
}

}  // namespace phalanx
