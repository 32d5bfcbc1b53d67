// The state that copies of a Buffer share: a range of an object, in the node's memory or, if the
// object is small, in `own`.
//
// Immutable; any thread can drop the last reference.
#ifndef PHALANX_CLIENT_BUFFER_STATE_H_
#define PHALANX_CLIENT_BUFFER_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

struct BufferState {
  ObjectId id;
  uint64_t object_size = 0;
  std::string metadata;
  std::string own;
  HeldPin pin;
  absl::string_view view;  // into `own` or into the memory that `pin` holds
};

// Returns the Buffer for an answer to a Get of [offset, offset + length); lock held. Errors: the
// error in the node's answer, or as Connection::Take.
absl::StatusOr<Buffer> BufferFrom(Call& call, const local::Answer& answer, uint64_t offset,
                                  uint64_t length);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_BUFFER_STATE_H_
