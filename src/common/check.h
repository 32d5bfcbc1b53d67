// PHALANX_CHECK aborts the process if one of our own invariants does not hold. It is on in every
// build.
//
// Bad input from a user, a peer, a file or the network returns an absl::Status; it never fails a
// check. Any thread.
#ifndef PHALANX_COMMON_CHECK_H_
#define PHALANX_COMMON_CHECK_H_

#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"

namespace phalanx::internal {

// Writes "file:line: check failed: condition: message" to stderr in one piece and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              absl::string_view message);

}  // namespace phalanx::internal

// `message` states the invariant. The macro evaluates it only if `condition` is false.
#define PHALANX_CHECK(condition, message)                                          \
  do {                                                                             \
    if (ABSL_PREDICT_FALSE(!(condition))) {                                        \
      ::phalanx::internal::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                              \
  } while (false)

#endif  // PHALANX_COMMON_CHECK_H_
