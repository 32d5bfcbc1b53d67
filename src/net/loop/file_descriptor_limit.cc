#include "src/net/loop/file_descriptor_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace phalanx::net {

absl::StatusOr<uint64_t> RaiseFileDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    // Only the soft limit changes, so this needs no privilege.
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return limit.rlim_cur;
  }
  return absl::UnavailableError(absl::StrCat("descriptor limit: ", std::strerror(errno)));
}

}  // namespace phalanx::net
