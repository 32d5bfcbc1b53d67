#include "src/cli/command.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/cord.h"

namespace phalanx::runtime {
namespace {

// Marks the status, because calls of the client can return Cancelled as well.
constexpr absl::string_view kClosedPipe = "phalanx/closed-pipe";

}  // namespace

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

absl::Status ClosedPipe() {
  absl::Status status = absl::CancelledError("the reader of the output is gone");
  status.SetPayload(kClosedPipe, absl::Cord());
  return status;
}

bool IsClosedPipe(const absl::Status& status) { return status.GetPayload(kClosedPipe).has_value(); }

absl::Status FlushOutput() {
  std::cout.flush();
  fflush(stdout);
  if (std::cout && ferror(stdout) == 0) return absl::OkStatus();
  // The streams keep no cause. A pipe without a reader reports an error.
  pollfd output = {STDOUT_FILENO, 0, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0) return ClosedPipe();
  return absl::UnknownError("cannot write to standard output");
}

}  // namespace phalanx::runtime
