#include "src/common/check.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace phalanx::internal {

void CheckFailed(const char* file, int line, const char* condition, absl::string_view message) {
  const std::string text =
      absl::StrCat(file, ":", line, ": check failed: ", condition, ": ", message, "\n");
  // write(2) and no stream: the process can no longer be trusted. A short write loses only text.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace phalanx::internal
