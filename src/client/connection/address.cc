#include "src/client/connection/address.h"

#include <sys/un.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace phalanx::internal {

absl::StatusOr<std::string> SocketPath(absl::string_view address) {
  absl::string_view path = address;
  if (!absl::ConsumePrefix(&path, "unix:") && path.substr(0, 1) != "/" &&
      path.substr(0, 1) != "." && path.find(':') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a client connects to the node of its own host, \"unix:PATH\" or a path, not to \"",
        address, "\""));
  }
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.size() > kMaxPath || path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a socket's path has 1 to ", kMaxPath, " bytes: \"", address, "\""));
  }
  return std::string(path);
}

}  // namespace phalanx::internal
