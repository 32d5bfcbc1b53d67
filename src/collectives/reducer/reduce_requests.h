// The calls about reductions of this node's clients. A call ends with the shard's reply, at its
// deadline, when it is cancelled or when its client closes, whichever is first.
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
// Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_REDUCER_REDUCE_REQUESTS_H_
#define PHALANX_COLLECTIVES_REDUCER_REDUCE_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/threads/callback_guard.h"
#include "src/common/time/executor.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

using ReduceDone = absl::AnyInvocable<void(absl::Status)>;

class ReduceRequests {
 public:
  using Send = std::function<void(const ObjectId& target, v1::NodeMessage message)>;

  // `name` is the node's, for messages. `control` outlives this.
  ReduceRequests(std::string name, Executor& control, Send send);
  // No pending call is called back.
  ~ReduceRequests();

  // Sends one of ReduceRequest, ExtendRequest and FailRequest, complete but for its request_id and
  // its timeout, now and in every new session. DeadlineExceeded at the deadline; of a reduction a
  // moment later, so that the shard's reply, which names what is missing, arrives first.
  // ResourceExhausted if the client has too many calls already.
  object_store::RequestId Ask(object_store::ClientId client, const ObjectId& target,
                              v1::NodeMessage message, Instant deadline, ReduceDone done);
  // Calls `done` with `why`, in a later turn. Nothing is sent.
  void Refuse(absl::Status why, ReduceDone done);
  // Returns the target if the call requested an open reduction, which continues.
  std::optional<ObjectId> Cancel(object_store::ClientId client, object_store::RequestId request);
  void ClientClosed(object_store::ClientId client);

  // The target was made on this node, and committed: calls for a reduction that `answers` accepts
  // end at once. The shard's later replies to them are ignored.
  void OnMade(const ObjectId& target, const std::function<bool(const v1::Reduction&)>& answers);
  // The shard has named the reduction of this target. Later requests for it carry the number, so
  // that a shard that restarts does not take them for another reduction.
  void OnNumbered(const ObjectId& target, const v1::Generation& number);
  // Ends a request, as when the shard has replied. Ignores unknown ids.
  void Answer(object_store::RequestId id, absl::Status status);
  // For a new session: requests for the chosen targets again. Returns the requests for reductions,
  // which belong into the registration. Sends the others, which the session must deliver after it.
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

#endif  // PHALANX_COLLECTIVES_REDUCER_REDUCE_REQUESTS_H_
