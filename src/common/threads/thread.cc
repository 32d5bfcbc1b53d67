#include "src/common/threads/thread.h"

#include <pthread.h>

#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx {

absl::StatusOr<std::thread> StartThread(absl::string_view name, absl::AnyInvocable<void()> body) {
  // std::thread reports an error only by an exception. The tree uses Status, so it is converted
  // here.
  try {
    // pthread_setname_np rejects names over 15 bytes instead of cutting them.
    return std::thread([name = std::string(name.substr(0, 15)), body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start thread ", name, ": ", error.code().message()));
  }
}

}  // namespace phalanx
