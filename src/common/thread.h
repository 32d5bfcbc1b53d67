// StartThread: a thread, or a Status when the system has none left.
//
// Any thread may call it.
#ifndef PHALANX_COMMON_THREAD_H_
#define PHALANX_COMMON_THREAD_H_

#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx {

// Runs `body` on a thread of its own, named `name` (the first 15 bytes show in top).
// ResourceExhausted, with the name and the cause, when it cannot be made; `body` is destroyed then.
absl::StatusOr<std::thread> StartThread(absl::string_view name, absl::AnyInvocable<void()> body);

}  // namespace phalanx

#endif  // PHALANX_COMMON_THREAD_H_
