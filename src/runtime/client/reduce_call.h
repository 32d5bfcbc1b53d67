// What a reduction's arguments must satisfy, the message that carries them, and AllReduce: a
// request that makes an object beside a Get of it.
//
// Any thread, without the connection's lock, but where stated.
#ifndef PHALANX_RUNTIME_CLIENT_REDUCE_CALL_H_
#define PHALANX_RUNTIME_CLIENT_REDUCE_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/runtime/client/call.h"

namespace phalanx::internal {

// InvalidArgument naming the target and what does not fit, as far as it can be seen here.
absl::Status CheckReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                         const ReduceOptions& options);

// The same for sources that are added to it.
absl::Status CheckAdded(const ObjectId& target, absl::Span<const ObjectId> sources);

local::Reduce ReduceMessage(uint64_t request, const ObjectId& target,
                            absl::Span<const ObjectId> sources, const ReduceOptions& options);

// Ends with the object when the request that makes it has succeeded, or with the first error; what
// is left of the two requests is cancelled then.
class MakeAndGetCall final : public FutureState<Buffer> {
 public:
  using FutureState::FutureState;

  // `make` gets the number of the request that makes id(): a Reduce, or a Put without bytes.
  template <typename Make>
  void Begin(absl::Duration timeout, Make make) {
    const Instant deadline = MonotonicNow() + timeout;
    first_ = connection().NewRequests(2);
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

// A reduction and a Get of its target. `verb` is for messages, and a literal. `everybody`: who has
// a source makes the same call.
Future<Buffer> ReduceAndGet(std::shared_ptr<Connection> connection, const char* verb,
                            const ObjectId& target, absl::Span<const ObjectId> sources,
                            const ReduceOptions& options, bool everybody);

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_REDUCE_CALL_H_
