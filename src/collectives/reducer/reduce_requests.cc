#include "src/collectives/reducer/reduce_requests.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace phalanx::collectives {

namespace {

// The shard ends a reduction at its deadline; the reply is on the way for up to this long.
constexpr absl::Duration kShardsLastWord = absl::Milliseconds(100);

}  // namespace

using object_store::ClientId;
using object_store::RequestId;

ReduceRequests::ReduceRequests(std::string name, Executor& control, Send send)
    : name_(std::move(name)), control_(control), send_(std::move(send)) {}

ReduceRequests::~ReduceRequests() {
  guard_.Close();
  for (const auto& [id, request] : requests_) {
    // The timers' callbacks refer to this.
    if (request.timer != 0) control_.Cancel(request.timer);
  }
}

RequestId ReduceRequests::Ask(ClientId client, const ObjectId& target, v1::NodeMessage message,
                              Instant deadline, ReduceDone done) {
  const RequestId id = next_id_++;
  size_t& waiting = by_client_[client];
  if (waiting >= object_store::kMaxRequestsPerClient) {
    Refuse(absl::ResourceExhaustedError(absl::StrCat(
               "node ", name_, ": this client already waits for ", waiting, " reductions")),
           std::move(done));
    return id;
  }
  ++waiting;
  Request& request = requests_[id];
  request = {client, target, std::move(message), deadline, std::move(done), 0};
  if (!deadline.infinite()) {
    const bool shard_ends_it = request.message.has_reduce_request();
    const Instant last = deadline + (shard_ends_it ? kShardsLastWord : absl::ZeroDuration());
    request.timer = control_.RunAt(last, [this, id] {
      const auto it = requests_.find(id);
      it->second.timer = 0;
      Answer(id, absl::DeadlineExceededError(absl::StrCat("object ", it->second.target.hex(),
                                                          " on node ", name_,
                                                          ": no answer before the deadline")));
    });
  }
  // A call whose deadline has passed ends by its timer; the shard need not begin anything for it.
  if (deadline > control_.Now()) send_(target, MessageOf(id, request));
  return id;
}

void ReduceRequests::Refuse(absl::Status why, ReduceDone done) {
  control_.Post(guard_.Wrap(
      [why = std::move(why), done = std::move(done)]() mutable { done(std::move(why)); }));
}

v1::NodeMessage ReduceRequests::MessageOf(RequestId id, const Request& request) const {
  v1::NodeMessage message = request.message;
  if (message.has_reduce_request()) {
    v1::ReduceRequest& reduce = *message.mutable_reduce_request();
    reduce.set_request_id(id);
    if (!request.deadline.infinite()) {
      const absl::Duration left = request.deadline - control_.Now();
      // Rounded up, and at least 1: 0 means no deadline.
      const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
      reduce.set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(1, ms)));
    }
  } else if (message.has_extend_request()) {
    message.mutable_extend_request()->set_request_id(id);
  } else {
    message.mutable_fail_request()->set_request_id(id);
  }
  return message;
}

void ReduceRequests::Forget(std::map<RequestId, Request>::iterator it) {
  if (it->second.timer != 0) control_.Cancel(it->second.timer);
  const auto client = by_client_.find(it->second.client);
  if (--client->second == 0) by_client_.erase(client);
  requests_.erase(it);
}

void ReduceRequests::Answer(RequestId id, absl::Status status) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  // Forgotten first: `done`, in a later turn, finds the client's count without this call.
  ReduceDone done = std::move(it->second.done);
  Forget(it);
  Refuse(std::move(status), std::move(done));
}

std::optional<ObjectId> ReduceRequests::Cancel(ClientId client, RequestId id) {
  const auto it = requests_.find(id);
  // Another client's number is ignored.
  if (it == requests_.end() || it->second.client != client) return std::nullopt;
  const ObjectId target = it->second.target;
  const bool open = it->second.message.reduce_request().reduction().open();
  Forget(it);
  return open ? std::optional(target) : std::nullopt;
}

void ReduceRequests::ClientClosed(ClientId client) {
  if (!by_client_.contains(client)) return;
  // Most clients reduce nothing, which the test above answers without this walk.
  std::vector<RequestId> of_client;
  for (const auto& [id, request] : requests_) {
    if (request.client == client) of_client.push_back(id);
  }
  for (const RequestId id : of_client) Forget(requests_.find(id));
}

void ReduceRequests::OnMade(const ObjectId& target,
                            const std::function<bool(const v1::Reduction&)>& answers) {
  // Collected first: answering erases from the map.
  std::vector<RequestId> answered;
  for (const auto& [id, request] : requests_) {
    const bool reduces = request.target == target && request.message.has_reduce_request();
    if (reduces && answers(request.message.reduce_request().reduction())) answered.push_back(id);
  }
  for (const RequestId id : answered) Answer(id, absl::OkStatus());
}

void ReduceRequests::OnNumbered(const ObjectId& target, const v1::Generation& number) {
  for (auto& [id, request] : requests_) {
    if (request.target != target) continue;
    v1::NodeMessage& message = request.message;
    if (message.has_reduce_request()) {
      *message.mutable_reduce_request()->mutable_reduction()->mutable_begun() = number;
    } else if (message.has_extend_request()) {
      *message.mutable_extend_request()->mutable_begun() = number;
    }
    // A FailRequest is about an object, not about a reduction.
  }
}

std::vector<v1::NodeMessage> ReduceRequests::AskAgain(
    const std::function<bool(const ObjectId& target)>& chosen) {
  std::vector<v1::NodeMessage> reductions;
  for (const auto& [id, request] : requests_) {
    if (!chosen(request.target)) continue;
    v1::NodeMessage message = MessageOf(id, request);
    if (message.has_reduce_request()) {
      message.mutable_reduce_request()->set_again(true);
      reductions.push_back(std::move(message));
      continue;
    }
    // An extension is sent after the registration, which makes its reduction known to the shard.
    if (message.has_extend_request()) message.mutable_extend_request()->set_again(true);
    send_(request.target, std::move(message));
  }
  return reductions;
}

}  // namespace phalanx::collectives
