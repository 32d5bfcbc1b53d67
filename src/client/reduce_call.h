// Checks the arguments of a reduction and makes its message. MakeAndGetCall sends a request that
// creates an object together with a Get of that object; AllReduce uses it.
//
// Any thread, without the connection's lock, except where stated.
#ifndef PHALANX_CLIENT_REDUCE_CALL_H_
#define PHALANX_CLIENT_REDUCE_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {

// Checks what can be checked without the node. Fails with InvalidArgument, naming the target and
// the argument.
absl::Status CheckReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                         const ReduceOptions& options);

// The same check for sources that are added to a reduction.
absl::Status CheckAdded(const ObjectId& target, absl::Span<const ObjectId> sources);

local::Reduce ReduceMessage(Connection& connection, uint64_t request, const ObjectId& target,
                            absl::Span<const ObjectId> sources, const ReduceOptions& options);

// Ends with the object when the request that creates it has succeeded too, or with the first error.
// An error cancels what is left of the two requests.
class MakeAndGetCall final : public FutureState<Buffer> {
 public:
  using FutureState::FutureState;

  // `make` gets the number of the request that creates id(): a Reduce, or a Put without bytes.
  template <typename Make>
  void Begin(absl::Duration timeout, Make make) {
    const Instant deadline = MonotonicNow() + timeout;
    first_ = connection().NewRequests(2);
    const Connection::Batch batch(connection());
    connection().Start(shared_from_this(), first_, 2, deadline, make(first_));
    connection().Update([this, timeout] { SendGet(timeout); });
  }
  void OnAnswer(uint64_t request, const local::Answer& answer) override;

 private:
  // Lock held.
  void SendGet(absl::Duration timeout);
  void Fail(absl::Status why);

  uint64_t first_ = 0;
  bool made_ = false;
  std::optional<Buffer> buffer_;
};

// Starts a reduction and a Get of its target. `verb` appears in error messages and must be a
// literal. `everybody`: every node that has a source makes the same call.
Future<Buffer> ReduceAndGet(std::shared_ptr<Connection> connection, const char* verb,
                            const ObjectId& target, absl::Span<const ObjectId> sources,
                            const ReduceOptions& options, bool everybody);
// The same in the order of a ring (ReduceSpec::Order::kRing), whatever the options say.
Future<Buffer> RingAndGet(std::shared_ptr<Connection> connection, const char* verb,
                          const ObjectId& target, absl::Span<const ObjectId> sources,
                          const ReduceOptions& options);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_REDUCE_CALL_H_
