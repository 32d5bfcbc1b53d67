// AsyncCalls: the calls of a session that it has made and whose results have not come.
//
//   Session::AllreduceAsync ──► a call of the group ──► ends, in any order
//                     │                                   │
//                     └► the session's future ◄───────────┘ ends when the call and all before it
//                     have
//
// A future that ends with an error ends those of all later calls with it. Their calls are
// cancelled, so that they write to no memory of the program, and wait for no rank that does not
// make them.
//
// Owned by a session and by the calls under way. Any thread: the futures' state is under the
// connection's lock, and ends where that of the calls does. In a child of fork there are no calls.
#ifndef PHALANX_CLIENT_SPMD_ASYNC_CALLS_H_
#define PHALANX_CLIENT_SPMD_ASYNC_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"

namespace phalanx::spmd::internal {

class AsyncCalls : public std::enable_shared_from_this<AsyncCalls> {
 public:
  explicit AsyncCalls(std::shared_ptr<phalanx::internal::Connection> connection)
      : connection_(std::move(connection)) {}

  struct EndedCall {
    uint64_t number = 0;
    uint64_t losses = 0;  // that the session had seen as it was made
  };

  // `made` is the call. Errors begin with `where`.
  Future<Done> Add(const EndedCall& when_ended, const Future<Done>& made, std::string where);
  // The calls that have ended with results since the last time, in order.
  std::vector<EndedCall> TakeEnded();
  // The error of the first call that has failed.
  absl::Status over() const;
  size_t under_way() const;
  // Ends all calls under way.
  void Cancel();
  // Waits until the oldest call under way has ended.
  void AwaitOldest() const;

  // A future that has ended.
  static Future<Done> EndedFuture(const Client& client, const absl::Status& status);

 private:
  struct Call;

  // Lock held.
  void EndInOrder();
  void CancelAll(const absl::Status& why);

  const std::shared_ptr<phalanx::internal::Connection> connection_;
  // Under its lock.
  std::deque<std::shared_ptr<Call>> calls_;
  std::vector<EndedCall> ended_;
  absl::Status over_;
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_ASYNC_CALLS_H_
