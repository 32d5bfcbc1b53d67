// Many Gets with one result: all of a list, or the first few to arrive.
//
// A window of requests is on its way at a time; each answer sends the next. Guarded by the
// connection's lock.
#ifndef PHALANX_RUNTIME_CLIENT_GATHER_H_
#define PHALANX_RUNTIME_CLIENT_GATHER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/runtime/client/call.h"

namespace phalanx::internal {

// Gets that one call has unanswered.
inline constexpr size_t kGatherWindow = 4096;

// Ends when `count` of `ids` have come, or so many have failed that they cannot: with the first
// error then. What has not come is cancelled. REQUIRES: count <= ids.size().
Future<std::vector<Client::Arrival>> GetFirstOf(std::shared_ptr<Connection> connection,
                                                absl::Span<const ObjectId> ids, size_t count,
                                                const GetOptions& options);
// All of them, in the order of `ids`; `near`: best had from the node that made that object, if it
// is not nil.
Future<std::vector<Buffer>> GetAllOf(std::shared_ptr<Connection> connection,
                                     absl::Span<const ObjectId> ids, const GetOptions& options,
                                     const ObjectId& near = ObjectId());

local::Get GetMessage(uint64_t request, const ObjectId& id, const GetOptions& options,
                      absl::Duration timeout, const ObjectId& near = ObjectId());

// The answer to a Get of one object.
struct GetCall final : public FutureState<Buffer> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
  uint64_t offset = 0;
  uint64_t length = UINT64_MAX;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_GATHER_H_
