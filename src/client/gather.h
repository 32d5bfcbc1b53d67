// Many Gets with one result: all objects of a list, or the first few that arrive.
//
// A window of requests is outstanding at a time; each answer sends the next request. Guarded by the
// connection's lock.
#ifndef PHALANX_CLIENT_GATHER_H_
#define PHALANX_CLIENT_GATHER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {

// The limit of unanswered Gets of one call.
inline constexpr size_t kGatherWindow = 4096;

// Ends when `count` of `ids` have arrived, or with the first error once so many have failed that
// `count` cannot be reached. The other Gets are cancelled then. REQUIRES: count <= ids.size().
Future<std::vector<Client::Arrival>> GetFirstOf(std::shared_ptr<Connection> connection,
                                                absl::Span<const ObjectId> ids, size_t count,
                                                const GetOptions& options);
// Gets all objects, in the order of `ids`. If `near` is not nil, the node prefers to fetch from the
// node that made the object `near`.
Future<std::vector<Buffer>> GetAllOf(std::shared_ptr<Connection> connection,
                                     absl::Span<const ObjectId> ids, const GetOptions& options,
                                     const ObjectId& near = ObjectId());

local::Get GetMessage(uint64_t request, const ObjectId& id, const GetOptions& options,
                      absl::Duration timeout, const ObjectName& name,
                      const ObjectId& near = ObjectId());

// A Get of one object.
struct GetCall final : public FutureState<Buffer> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
  uint64_t offset = 0;
  uint64_t length = UINT64_MAX;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_GATHER_H_
