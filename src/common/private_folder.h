// A folder for sockets that only this user may enter, so that nobody else can put another socket in
// the place of one. Any thread.
#ifndef PHALANX_COMMON_PRIVATE_FOLDER_H_
#define PHALANX_COMMON_PRIVATE_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace phalanx {

// Makes `folder` with mode 0700 unless it is there. PermissionDenied when it is there and belongs
// to somebody else or is open to others; Unavailable when it cannot be made, or is a link or a
// file.
absl::Status MakePrivateFolder(const std::string& folder);

}  // namespace phalanx

#endif  // PHALANX_COMMON_PRIVATE_FOLDER_H_
