#include "src/cli/command.h"

namespace phalanx::runtime {

// Scripts depend on these numbers; a new code needs a new number.
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return 2;
    case absl::StatusCode::kNotFound:
      return 3;
    case absl::StatusCode::kDeadlineExceeded:
      return 4;
    case absl::StatusCode::kUnavailable:
      return 5;
    default:
      return 1;
  }
}

}  // namespace phalanx::runtime
