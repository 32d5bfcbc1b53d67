#include "src/object_store/store/shard_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {

ShardRequests::ShardRequests(std::string node_name, Executor& executor, Turns& turns,
                             RequestTable& requests, const ObjectTable& table,
                             const GetRequests& gets, DeletedGenerations& deleted,
                             StickyMarks& stickies, ShardChannel& channel)
    : node_name_(std::move(node_name)),
      executor_(executor),
      turns_(turns),
      requests_(requests),
      table_(table),
      gets_(gets),
      deleted_(deleted),
      stickies_(stickies),
      channel_(channel) {}

void ShardRequests::Begin(Request& request) {
  if (absl::Status status = requests_.Admit(request.client, request.object); !status.ok()) {
    requests_.Fail(request, status);
  } else if (request.deadline <= executor_.Now()) {
    turns_.Touch(request.object);
    requests_.Fail(request, gets_.DeadlineStatus(request));
  } else {
    requests_.WatchDeadline(request);
    Send(request);
  }
}

void ShardRequests::Send(const Request& request) {
  v1::NodeMessage message;
  const std::string id = IdBytes(request.object);
  if (std::holds_alternative<DeletePart>(request.part)) {
    message.mutable_delete_request()->set_request_id(request.id);
    message.mutable_delete_request()->set_object_id(id);
  } else if (const auto* stat = std::get_if<StatPart>(&request.part)) {
    message.mutable_query_request()->set_request_id(request.id);
    message.mutable_query_request()->set_object_id(id);
    for (const std::string& node : stat->nodes) message.mutable_query_request()->add_nodes(node);
  } else if (std::holds_alternative<KeepPart>(request.part)) {
    message.mutable_keep_request()->set_request_id(request.id);
    message.mutable_keep_request()->set_object_id(id);
  } else if (const auto* broadcast = std::get_if<BroadcastPart>(&request.part)) {
    v1::BroadcastRequest* out = message.mutable_broadcast_request();
    out->set_request_id(request.id);
    out->set_object_id(id);
    for (const std::string& node : broadcast->options.nodes) out->add_nodes(node);
    out->set_sticky(broadcast->options.sticky);
    out->set_stop(broadcast->options.stop);
    out->set_copies(broadcast->options.copies);
    // In a new session the shard must tell a repeated request from a new one: only a new one makes
    // the object sticky again after a stop.
    out->set_begun(broadcast->begun);
    if (broadcast->mark.stamp() != 0) *out->mutable_mark() = broadcast->mark;
  } else {
    return;
  }
  channel_.Send(request.object, std::move(message));
}

// ------------------------------------------------------------------------------------- replies

void ShardRequests::OnDeleteReply(const v1::DeleteReply& reply) {
  Request* request = requests_.FindWaiting<DeletePart>(reply.request_id());
  if (request == nullptr) return;
  // This node registers the deletion at a shard that restarts, for holders that were out of reach.
  // In the order of the deletions; the reply has the last one first.
  for (int i = reply.generations_size() - 1; i >= 0; --i) {
    deleted_.Add(request->object, directory::FromProto(reply.generations(i)));
  }
  requests_.Answer<DeletePart>(*request, ReplyStatus(reply.code(), reply.message()));
}

void ShardRequests::OnDeleteWaiting(const v1::DeleteWaiting& waiting) {
  Request* request = requests_.FindWaiting<DeletePart>(waiting.request_id());
  if (request != nullptr) std::get<DeletePart>(request->part).waits_for = waiting.reason();
}

void ShardRequests::OnKeepReply(const v1::KeepReply& reply) {
  Request* request = requests_.FindWaiting<KeepPart>(reply.request_id());
  if (request == nullptr) return;
  requests_.Answer<KeepPart>(*request, ReplyStatus(reply.code(), reply.message()));
}

ObjectStat ShardRequests::LocalStat(const ObjectId& id) const {
  ObjectStat stat;
  const Copy* copy = table_.Complete(id);
  if (copy == nullptr) return stat;
  stat.known = stat.complete = stat.local_complete = true;
  stat.size_bytes = copy->size_bytes;
  stat.metadata = copy->traits.metadata;
  stat.reduced_from = copy->traits.reduced_from;
  // At least this one.
  stat.complete_copies = 1;
  stat.owned = copy->traits.owned;
  stat.name = copy->traits.name;
  // The shard deletes the object a moment later than this node expects.
  const absl::Duration rest =
      std::max(copy->traits.expires - executor_.Now(), absl::ZeroDuration());
  stat.ttl = copy->traits.expires.infinite() ? copy->traits.ttl : rest;
  return stat;
}

void ShardRequests::OnQueryReply(const v1::QueryReply& reply) {
  Request* request = requests_.FindWaiting<StatPart>(reply.request_id());
  if (request == nullptr) return;
  if (const absl::Status status = ReplyStatus(reply.code(), reply.message()); !status.ok()) {
    return requests_.Answer<StatPart>(*request, absl::StatusOr<ObjectStat>(status));
  }
  // A shard that has just started may not count what is here yet.
  ObjectStat stat = LocalStat(request->object);
  stat.deleted = reply.deleted() && !stat.local_complete;
  if (!stat.local_complete) {
    stat.known = reply.known();
    stat.complete = reply.complete();
    stat.size_bytes = reply.info().size_bytes();
    stat.metadata = reply.info().metadata();
    stat.reduced_from = reply.info().reduced_from();
  }
  // A name that the shard cannot have sent is no name.
  if (stat.name.empty()) stat.name = directory::NameOf(reply.info());
  // A Keep from another client reaches the shard first.
  if (reply.known()) stat.owned = reply.info().owned();
  // The shard's is not late.
  if (reply.known()) stat.ttl = directory::TtlOf(reply.info());
  stat.holders = reply.holders();
  stat.complete_copies = std::max(stat.complete_copies, reply.complete_copies());
  stat.partial_copies = reply.partial_copies();
  stat.waiting = reply.waiting();
  stat.conflicts = reply.conflicts();
  stat.sticky = reply.sticky();
  stat.named = reply.named();
  stat.named_complete = reply.named_complete();
  stat.named_without_room = reply.named_without_room();
  stat.named_bytes = reply.named_bytes();
  stat.copies_wanted = reply.copies_wanted();
  stat.copies_there = reply.copies_there();
  requests_.Answer<StatPart>(*request, absl::StatusOr<ObjectStat>(std::move(stat)));
}

void ShardRequests::OnBroadcastReply(const v1::BroadcastReply& reply) {
  Request* request = requests_.FindWaiting<BroadcastPart>(reply.request_id());
  if (request == nullptr) return;
  // So that Leave does not send the shard an end for what it has forgotten.
  std::get<BroadcastPart>(request->part).answered = true;
  const absl::Status status = ReplyStatus(reply.code(), reply.message());
  absl::StatusOr<int> result = static_cast<int>(reply.nodes());
  if (!status.ok()) result = status;
  requests_.Answer<BroadcastPart>(*request, std::move(result));
}

void ShardRequests::OnBroadcastBegun(int shard, const v1::BroadcastBegun& begun) {
  // Also without a request: a restarted shard must mint stamps above every one that it ever sent.
  stickies_.NoteStamp(shard, begun.mark().stamp());
  Request* request = requests_.FindWaiting<BroadcastPart>(begun.request_id());
  if (request == nullptr || DefectActive(Defect::kRetryStartsAgain)) return;
  BroadcastPart& part = std::get<BroadcastPart>(request->part);
  part.begun = true;
  part.mark = begun.mark();
}

RequestId ShardRequests::StartEndScope(ClientId client, Scope scope, Instant deadline,
                                       StatusDone done) {
  EndScopePart part{std::move(scope), {}, std::move(done)};
  part.ended.resize(static_cast<size_t>(channel_.num_shards()));
  Request& request = requests_.New(client, ObjectId(), deadline, std::move(part));
  const RequestId id = request.id;
  if (absl::Status status = requests_.Admit(client); !status.ok()) {
    requests_.Fail(request, status);
  } else if (request.deadline <= executor_.Now()) {
    requests_.Fail(request, EndScopeOverdue(std::get<EndScopePart>(request.part)));
  } else {
    requests_.WatchDeadline(request);
    for (int shard = 0; shard < channel_.num_shards(); ++shard) SendEndScope(request, shard);
  }
  return id;
}

void ShardRequests::SendEndScope(const Request& request, int shard) {
  v1::NodeMessage message;
  v1::EndScopeRequest* out = message.mutable_end_scope_request();
  out->set_request_id(request.id);
  directory::ToProto(std::get<EndScopePart>(request.part).scope, out->mutable_scope());
  channel_.SendTo(shard, std::move(message));
}

void ShardRequests::OnEndScopeReply(int shard, const v1::EndScopeReply& reply) {
  Request* request = requests_.FindWaiting<EndScopePart>(reply.request_id());
  if (request == nullptr) return;
  if (const absl::Status status = ReplyStatus(reply.code(), reply.message()); !status.ok()) {
    return requests_.Answer<EndScopePart>(*request, status);
  }
  std::vector<bool>& ended = std::get<EndScopePart>(request->part).ended;
  ended[static_cast<size_t>(shard)] = true;
  // The objects of a scope are spread over all shards.
  const bool all = std::find(ended.begin(), ended.end(), false) == ended.end();
  if (all) requests_.Answer<EndScopePart>(*request, absl::OkStatus());
}

absl::Status ShardRequests::EndScopeOverdue(const EndScopePart& part) {
  std::vector<size_t> missing;
  for (size_t shard = 0; shard < part.ended.size(); ++shard) {
    if (!part.ended[shard]) missing.push_back(shard);
  }
  return absl::DeadlineExceededError(
      absl::StrCat(part.scope.ToString(), ": not all nodes and shards have confirmed its end; ",
                   "no answer from shard ", absl::StrJoin(missing, ", ")));
}

void ShardRequests::Leave(const Request& request) {
  if (drain_ == request.id) drain_ = 0;
  const auto* part = std::get_if<BroadcastPart>(&request.part);
  // A stop has no requester that the shard would keep.
  if (part == nullptr || part->answered || part->options.stop || request.object.nil()) return;
  v1::NodeMessage message;
  v1::BroadcastRequest* out = message.mutable_broadcast_request();
  out->set_request_id(request.id);
  out->set_object_id(request.object.binary().data(), ObjectId::kSize);
  out->set_end(true);
  channel_.Send(request.object, std::move(message));
}

void ShardRequests::SendDrain(int shard) {
  v1::NodeMessage message;
  message.mutable_drain_request();
  channel_.SendTo(shard, std::move(message));
}

void ShardRequests::OnDrainStatus(int shard, const v1::DrainStatus& status) {
  Request* request = requests_.FindWaiting<DrainPart>(drain_);
  if (request == nullptr) return;
  DrainPart& drain = std::get<DrainPart>(request->part);
  drain.left[static_cast<size_t>(shard)] = status.objects_left();
  if (!status.message().empty()) drain.message = status.message();
  // A shard that has not answered yet may have objects of which this node has the only copy.
  for (const std::optional<uint32_t>& left : drain.left) {
    if (!left || *left != 0) return;
  }
  drain_ = 0;
  requests_.Answer<DrainPart>(*request, absl::OkStatus());
}

void ShardRequests::StartDrain(Instant deadline, StatusDone done) {
  DrainPart part;
  part.left.resize(static_cast<size_t>(channel_.num_shards()));
  part.message = "the directory has not answered";
  part.done = std::move(done);
  Request& request = requests_.New(0, ObjectId(), deadline, std::move(part));
  // One at a time: DrainStatus names no request.
  if (drain_ != 0) {
    requests_.Fail(request, absl::FailedPreconditionError("the node is already draining"));
    return;
  }
  drain_ = request.id;
  requests_.WatchDeadline(request);
  for (int shard = 0; shard < channel_.num_shards(); ++shard) SendDrain(shard);
}

absl::Status ShardRequests::DrainOverdue(const DrainPart& drain) const {
  uint64_t left = 0;
  for (const auto& shard : drain.left) left += shard.value_or(0);
  return absl::DeadlineExceededError(absl::StrCat(
      "node ", node_name_, ": ", left, " objects have no other copy yet; ", drain.message));
}

void ShardRequests::SendAgain(int shard) {
  // A drain has no object; it goes to every shard, below.
  const auto asks = [this, shard](const Request& request) {
    return channel_.ShardOf(request.object) == shard && !request.object.nil();
  };
  for (const RequestId id : requests_.Waiting(asks)) Send(*requests_.Find(id));
  const auto ends = [shard](const Request& request) {
    const auto* part = std::get_if<EndScopePart>(&request.part);
    return part != nullptr && !part->ended[static_cast<size_t>(shard)];
  };
  for (const RequestId id : requests_.Waiting(ends)) SendEndScope(*requests_.Find(id), shard);
  // A new session of a node does not drain until the node asks again.
  if (drain_ != 0) SendDrain(shard);
}

}  // namespace phalanx::object_store
