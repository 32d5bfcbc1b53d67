// A GroupCall that its client cannot make as the program wants it: the sizes do not fit, or there
// is no memory for the input. The other members make the call, too. So it takes its number, and
// fails on all of them with the reason.
//
// In the message `buffer` is kRefusedCall, `input_size` the code of the error and `input` its text.
//
// Pure functions; any thread.
#ifndef PHALANX_LOCAL_JOBS_REFUSED_CALL_H_
#define PHALANX_LOCAL_JOBS_REFUSED_CALL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store::local {

inline constexpr uint64_t kRefusedCall = ~uint64_t{0};

// `why`, an error, is referred to by the message.
inline void Refuse(GroupCall& call, const absl::Status& why) {
  call.buffer = kRefusedCall;
  call.input_size = static_cast<uint64_t>(why.raw_code());
  call.input = why.message().substr(0, kMaxTextBytes);
}

// REQUIRES: `buffer` is kRefusedCall. Never OK.
inline absl::Status ReasonOf(const GroupCall& call) {
  constexpr uint64_t kLastCode = 16;
  const bool known = call.input_size > 0 && call.input_size <= kLastCode;
  const auto code =
      known ? static_cast<absl::StatusCode>(call.input_size) : absl::StatusCode::kInvalidArgument;
  return absl::Status(code, call.input);
}

}  // namespace phalanx::object_store::local

#endif  // PHALANX_LOCAL_JOBS_REFUSED_CALL_H_
