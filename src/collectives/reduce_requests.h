// The reductions that clients of this node have asked for, until they are answered: the shard's
// word, the deadline, or nobody who waits any more, whichever is first.
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
// Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_REDUCE_REQUESTS_H_
#define PHALANX_COLLECTIVES_REDUCE_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/callback_guard.h"
#include "src/common/executor.h"
#include "src/object_store/store.h"

namespace phalanx::collectives {

using ReduceDone = absl::AnyInvocable<void(absl::Status)>;

class ReduceRequests {
 public:
  using Send = std::function<void(const ObjectId& target, v1::NodeMessage message)>;

  // `name` is the node's, for messages. `control` outlives this.
  ReduceRequests(std::string name, Executor& control, Send send);
  // Nobody is called back.
  ~ReduceRequests();

  // Sends one of ReduceRequest, ExtendRequest and FailRequest, complete but for its request_id and
  // its timeout, now and whenever a new session begins. DeadlineExceeded: of a reduction by the
  // shard's word, which names what is missing and is waited for a moment longer. ResourceExhausted
  // when the client has too many already.
  object_store::RequestId Ask(object_store::ClientId client, const ObjectId& target,
                              v1::NodeMessage message, Instant deadline, ReduceDone done);
  // Not even begun: `done` is called with `why`.
  void Refuse(absl::Status why, ReduceDone done);
  void Cancel(object_store::ClientId client, object_store::RequestId request);
  void ClientClosed(object_store::ClientId client);

  // The target was made here, and committed: those who wait for such a reduction are answered at
  // once. The shard's replies to them, which follow, are ignored.
  void OnMade(const ObjectId& target, const std::function<bool(const v1::Reduction&)>& answers);
  // The number of the reduction that those who wait for it mean: told with what is asked again.
  void OnNumbered(const ObjectId& target, const v1::Generation& number);
  // A reply of whatever kind; unknown numbers are ignored.
  void OnReply(uint64_t request_id, int code, const std::string& message);
  // Those whose targets are chosen are asked for again: reductions by what is returned, within the
  // registration; what is sent must come behind it.
  std::vector<v1::NodeMessage> AskAgain(const std::function<bool(const ObjectId& target)>& chosen);

  size_t size() const { return requests_.size(); }

 private:
  struct Request {
    object_store::ClientId client = 0;
    ObjectId target;
    v1::NodeMessage message;
    Instant deadline;
    ReduceDone done;
    TimerId timer = 0;
  };

  v1::NodeMessage MessageOf(object_store::RequestId id, const Request& request) const;
  void Answer(object_store::RequestId id, absl::Status status);
  void Forget(std::map<object_store::RequestId, Request>::iterator it);

  const std::string name_;
  Executor& control_;
  Send send_;
  CallbackGuard guard_;
  object_store::RequestId next_id_ = 1;
  std::map<object_store::RequestId, Request> requests_;
  std::map<object_store::ClientId, size_t> by_client_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCE_REQUESTS_H_
