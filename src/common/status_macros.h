// PHALANX_RETURN_IF_ERROR and PHALANX_ASSIGN_OR_RETURN, for functions that return absl::Status or
// absl::StatusOr.
#ifndef PHALANX_COMMON_STATUS_MACROS_H_
#define PHALANX_COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expression` from the enclosing function if it is an error.
#define PHALANX_RETURN_IF_ERROR(expression)                              \
  do {                                                                   \
    absl::Status phalanx_status = (expression);                          \
    if (ABSL_PREDICT_FALSE(!phalanx_status.ok())) return phalanx_status; \
  } while (false)

// Assigns the value of `expression` (a StatusOr) to `target`, which may be a declaration, or
// returns its status. Expands to two statements: not usable as the only body of an `if`.
#define PHALANX_ASSIGN_OR_RETURN(target, expression) \
  PHALANX_ASSIGN_OR_RETURN_NAMED_(PHALANX_STATUS_CONCAT_(phalanx_or_, __LINE__), target, expression)

#define PHALANX_ASSIGN_OR_RETURN_NAMED_(name, target, expression)      \
  auto name = (expression);                                            \
  if (ABSL_PREDICT_FALSE(!name.ok())) return std::move(name).status(); \
  target = *std::move(name)

#define PHALANX_STATUS_CONCAT_(a, b) PHALANX_STATUS_CONCAT_INNER_(a, b)
#define PHALANX_STATUS_CONCAT_INNER_(a, b) a##b

#endif  // PHALANX_COMMON_STATUS_MACROS_H_
