// A folder for sockets that only this user may enter, so that no other user can replace a socket in
// it. Any thread.
#ifndef PHALANX_COMMON_IO_PRIVATE_FOLDER_H_
#define PHALANX_COMMON_IO_PRIVATE_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace phalanx {

// Creates `folder` with mode 0700 if it does not exist. Returns PermissionDenied if it exists and
// belongs to another user or other users have access to it, and Unavailable if it cannot be
// created, or is a link or a file.
absl::Status MakePrivateFolder(const std::string& folder);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_PRIVATE_FOLDER_H_
