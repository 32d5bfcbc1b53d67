#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/validate.h"
#include "src/object_store/store_impl.h"

namespace phalanx::object_store {
namespace {

absl::Status ReplyStatus(int code, const std::string& message) {
  if (code == 0) return absl::OkStatus();
  if (code < 0 || code > 16) code = static_cast<int>(absl::StatusCode::kUnknown);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace

template <typename Part>
Store::Impl::Request* Store::Impl::OpenRequest(RequestId id) {
  Request* request = FindRequest(id);
  if (request == nullptr || request->stage != Request::Stage::kWaiting) return nullptr;
  return std::holds_alternative<Part>(request->part) ? request : nullptr;
}

template <typename Part, typename Result>
void Store::Impl::AnswerWith(Request& request, Result result) {
  request.answer = [done = std::move(std::get<Part>(request.part).done),
                    result = std::move(result)]() mutable { done(std::move(result)); };
  Finish(request);
}

void Store::Impl::Ask(Request& request) {
  if (absl::Status status = Admit(request.client, request.object); !status.ok()) {
    AnswerError(request, status);
  } else if (request.deadline <= executor_.Now()) {
    OnDeadline(request);
  } else {
    WatchDeadline(request);
    SendRequest(request);
  }
}

// ------------------------------------------------------------------------------------- replies

void Store::Impl::OnDeleteReply(const v1::DeleteReply& reply) {
  Request* request = OpenRequest<DeletePart>(reply.request_id());
  if (request == nullptr) return;
  for (const v1::Generation& generation : reply.generations()) {
    RememberTombstone(request->object, directory::FromProto(generation));
  }
  AnswerWith<DeletePart>(*request, ReplyStatus(reply.code(), reply.message()));
}

void Store::Impl::OnKeepReply(const v1::KeepReply& reply) {
  Request* request = OpenRequest<KeepPart>(reply.request_id());
  if (request == nullptr) return;
  AnswerWith<KeepPart>(*request, ReplyStatus(reply.code(), reply.message()));
}

ObjectStat Store::Impl::LocalStat(const ObjectId& id) const {
  ObjectStat stat;
  const Copy* copy = table_.Complete(id);
  if (copy == nullptr) return stat;
  stat.known = stat.complete = stat.local_complete = true;
  stat.size_bytes = copy->size_bytes;
  stat.metadata = copy->metadata;
  stat.reduced_from = copy->reduced_from;
  stat.complete_copies = 1;
  stat.owned = copy->owned;
  return stat;
}

void Store::Impl::OnQueryReply(const v1::QueryReply& reply) {
  Request* request = OpenRequest<StatPart>(reply.request_id());
  if (request == nullptr) return;
  if (const absl::Status status = ReplyStatus(reply.code(), reply.message()); !status.ok()) {
    return AnswerWith<StatPart>(*request, absl::StatusOr<ObjectStat>(status));
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
  if (reply.known()) stat.owned = reply.info().owned();
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
  AnswerWith<StatPart>(*request, absl::StatusOr<ObjectStat>(std::move(stat)));
}

void Store::Impl::OnPrefetchReply(const v1::PrefetchReply& reply) {
  Request* request = OpenRequest<PrefetchPart>(reply.request_id());
  if (request == nullptr) return;
  const absl::Status status = ReplyStatus(reply.code(), reply.message());
  absl::StatusOr<int> result = static_cast<int>(reply.nodes());
  if (!status.ok()) result = status;
  AnswerWith<PrefetchPart>(*request, std::move(result));
}

void Store::Impl::OnBroadcastReply(const v1::BroadcastReply& reply) {
  Request* request = OpenRequest<BroadcastPart>(reply.request_id());
  if (request == nullptr) return;
  std::get<BroadcastPart>(request->part).answered = true;
  const absl::Status status = ReplyStatus(reply.code(), reply.message());
  absl::StatusOr<int> result = static_cast<int>(reply.nodes());
  if (!status.ok()) result = status;
  AnswerWith<BroadcastPart>(*request, std::move(result));
}

void Store::Impl::OnBroadcastBegun(int shard, const v1::BroadcastBegun& begun) {
  NoteStamp(shard, begun.mark());
  Request* request = OpenRequest<BroadcastPart>(begun.request_id());
  if (request == nullptr || DefectActive(Defect::kAskedAgainAnew)) return;
  BroadcastPart& part = std::get<BroadcastPart>(request->part);
  part.begun = true;
  part.mark = begun.mark();
}

void Store::Impl::LeaveBroadcast(const Request& request) {
  const auto* part = std::get_if<BroadcastPart>(&request.part);
  if (part == nullptr || part->answered || part->options.stop || request.object.nil()) return;
  v1::NodeMessage message;
  v1::BroadcastRequest* out = message.mutable_broadcast_request();
  out->set_request_id(request.id);
  out->set_object_id(request.object.binary().data(), ObjectId::kSize);
  out->set_end(true);
  channel_.Send(request.object, std::move(message));
}

// What is not here any more need not be told again.
void Store::Impl::OnSticky(int shard, const v1::Sticky& sticky) {
  NoteStamp(shard, sticky.mark());
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(sticky.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(sticky.generation());
  if (table_.Find(*id, generation) != nullptr) stickies_[{*id, generation}] = sticky.mark();
}

void Store::Impl::NoteStamp(int shard, const v1::StickyMark& mark) {
  uint64_t& last = last_stamps_[static_cast<size_t>(shard)];
  last = std::max(last, mark.stamp());
}

void Store::Impl::SendDrain(int shard) {
  v1::NodeMessage message;
  message.mutable_drain_request();
  channel_.SendTo(shard, std::move(message));
}

void Store::Impl::OnDrainStatus(int shard, const v1::DrainStatus& status) {
  Request* request = OpenRequest<DrainPart>(drain_);
  if (request == nullptr) return;
  DrainPart& drain = std::get<DrainPart>(request->part);
  drain.left[static_cast<size_t>(shard)] = status.objects_left();
  if (!status.message().empty()) drain.message = status.message();
  for (const std::optional<uint32_t>& left : drain.left) {
    if (!left || *left != 0) return;
  }
  drain_ = 0;
  AnswerWith<DrainPart>(*request, absl::OkStatus());
}

// ------------------------------------------------------------------------------ public methods

void Store::Delete(ClientId client, const ObjectId& id, Instant deadline,
                   absl::AnyInvocable<void(absl::Status)> done) {
  Impl::Turn turn(*impl_);
  impl_->Ask(impl_->NewRequest(client, id, deadline, Impl::DeletePart{std::move(done)}));
}

void Store::Keep(ClientId client, const ObjectId& id, Instant deadline,
                 absl::AnyInvocable<void(absl::Status)> done) {
  Impl::Turn turn(*impl_);
  impl_->Ask(impl_->NewRequest(client, id, deadline, Impl::KeepPart{std::move(done)}));
}

void Store::Stat(ClientId client, const ObjectId& id, Instant deadline,
                 absl::AnyInvocable<void(absl::StatusOr<ObjectStat>)> done,
                 std::vector<std::string> nodes) {
  Impl::Turn turn(*impl_);
  impl_->Ask(
      impl_->NewRequest(client, id, deadline, Impl::StatPart{std::move(nodes), std::move(done)}));
}

RequestId Store::Broadcast(ClientId client, const ObjectId& id, BroadcastOptions options,
                           Instant deadline, absl::AnyInvocable<void(absl::StatusOr<int>)> done) {
  Impl::Turn turn(*impl_);
  Impl::Request& request = impl_->NewRequest(
      client, id, deadline, Impl::BroadcastPart{std::move(options), std::move(done)});
  const RequestId number = request.id;
  impl_->Ask(request);
  return number;
}

void Store::Prefetch(ClientId client, const ObjectId& id, std::vector<std::string> nodes,
                     Instant deadline, absl::AnyInvocable<void(absl::StatusOr<int>)> done) {
  Impl::Turn turn(*impl_);
  impl_->Ask(impl_->NewRequest(client, id, deadline,
                               Impl::PrefetchPart{std::move(nodes), std::move(done)}));
}

void Store::Drain(Instant deadline, absl::AnyInvocable<void(absl::Status)> done) {
  Impl::Turn turn(*impl_);
  Impl::DrainPart part;
  part.left.resize(static_cast<size_t>(impl_->channel_.num_shards()));
  part.message = "the directory has not answered";
  part.done = std::move(done);
  Impl::Request& request = impl_->NewRequest(0, ObjectId(), deadline, std::move(part));
  if (impl_->drain_ != 0) {
    impl_->AnswerError(request, absl::FailedPreconditionError("the node is being drained already"));
    return;
  }
  impl_->drain_ = request.id;
  impl_->WatchDeadline(request);
  for (int shard = 0; shard < impl_->channel_.num_shards(); ++shard) impl_->SendDrain(shard);
}

}  // namespace phalanx::object_store
