#include "src/cli/command.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/cli/views/colour.h"

namespace phalanx::runtime {
namespace {

// Marks the status, because calls of the client can return Cancelled as well.
constexpr absl::string_view kClosedPipe = "phalanx/closed-pipe";
// The code as text.
constexpr absl::string_view kOwnExitCode = "phalanx/exit-code";

}  // namespace

// Scripts depend on these numbers; a new code needs a new number.
int ExitCode(const absl::Status& status) {
  int own = 0;
  const absl::optional<absl::Cord> payload = status.GetPayload(kOwnExitCode);
  if (payload && absl::SimpleAtoi(std::string(*payload), &own)) return own;
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

absl::Status WithExitCode(absl::Status status, int code) {
  status.SetPayload(kOwnExitCode, absl::Cord(absl::StrCat(code)));
  return status;
}

std::string ErrorLine(absl::string_view command, const absl::Status& status, bool json,
                      bool colours) {
  const std::string code = absl::StatusCodeToString(status.code());
  if (!json) {
    return absl::StrCat(Painted(absl::StrCat("phalanx ", command, ":"), Colour::kRed, colours), " ",
                        status.message(), " (", code, ")\n");
  }
  const nlohmann::json error = {{"command", std::string(command)},
                                {"code", code},
                                {"error", std::string(status.message())},
                                {"exit_code", ExitCode(status)}};
  // A path in the message need not be UTF-8, which JSON must be.
  return absl::StrCat(error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
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
