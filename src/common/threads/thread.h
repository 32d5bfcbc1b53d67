// StartThread: starts a thread, or returns a Status if the system cannot create one.
//
// Any thread may call it.
#ifndef PHALANX_COMMON_THREADS_THREAD_H_
#define PHALANX_COMMON_THREADS_THREAD_H_

#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx {

// Runs `body` on a new thread named `name` (top shows the first 15 bytes). Returns
// ResourceExhausted, with the name and the cause, if the thread cannot be created; `body` is
// destroyed then.
absl::StatusOr<std::thread> StartThread(absl::string_view name, absl::AnyInvocable<void()> body);

}  // namespace phalanx

#endif  // PHALANX_COMMON_THREADS_THREAD_H_
