#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/object_store/store_impl.h"
#include "src/object_store/subject.h"

namespace phalanx::object_store {
namespace {

absl::Status DeletedStatus(const ObjectId& id) {
  return absl::NotFoundError(absl::StrCat("object ", id.hex(), " was deleted"));
}

}  // namespace

// ------------------------------------------------------------------------------------- sending

void Store::Impl::AnnounceCreate(const Copy& copy, std::string bytes, const Generation& version) {
  if (!DefectActive(Defect::kHoldAfterAnnouncement)) FlushHolds();
  v1::NodeMessage message;
  v1::AnnounceCreate* announce = message.mutable_announce_create();
  SetSubject(copy.id, copy.generation, announce);
  Describe(copy, announce->mutable_info());
  if (version.valid()) directory::ToProto(version, announce->mutable_version());
  announce->set_complete(copy.state == CopyState::kComplete);
  if (announce->complete() && copy.size_bytes <= kMaxInlineBytes) {
    announce->set_has_inline(true);
    announce->set_inline_bytes(std::move(bytes));
  }
  channel_.Send(copy.id, std::move(message));
}

void Store::Impl::AnnounceSeal(const Copy& copy) {
  v1::NodeMessage message;
  v1::AnnounceSeal* announce = message.mutable_announce_seal();
  SetSubject(copy.id, copy.generation, announce);
  if (copy.size_bytes <= kMaxInlineBytes) {
    announce->set_has_inline(true);
    announce->set_inline_bytes(copy.block->bytes().data(), copy.size_bytes);
  }
  channel_.Send(copy.id, std::move(message));
}

void Store::Impl::SendWithdraw(const ObjectId& id, const Generation& generation,
                               const absl::Status& why) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_withdraw());
  message.mutable_withdraw()->set_reason(std::string(why.message()));
  channel_.Send(id, std::move(message));
}

void Store::Impl::SendEvictRequest(const Copy& copy) {
  v1::NodeMessage message;
  SetSubject(copy.id, copy.generation, message.mutable_evict_request());
  channel_.Send(copy.id, std::move(message));
}

void Store::Impl::ReportComplete(const Copy& copy, PlanId plan) {
  v1::NodeMessage message;
  v1::PullReport* report = message.mutable_pull_report();
  SetSubject(copy.id, copy.generation, report);
  report->set_plan_id(plan);
  report->set_complete(true);
  channel_.Send(copy.id, std::move(message));
}

void Store::Impl::SendDeleteConfirm(const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_delete_confirm());
  channel_.Send(id, std::move(message));
}

void Store::Impl::SendRequest(const Request& request) {
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
  } else if (const auto* prefetch = std::get_if<PrefetchPart>(&request.part)) {
    v1::PrefetchRequest* out = message.mutable_prefetch_request();
    out->set_request_id(request.id);
    out->set_object_id(id);
    for (const std::string& node : prefetch->nodes) out->add_nodes(node);
  } else if (const auto* broadcast = std::get_if<BroadcastPart>(&request.part)) {
    v1::BroadcastRequest* out = message.mutable_broadcast_request();
    out->set_request_id(request.id);
    out->set_object_id(id);
    for (const std::string& node : broadcast->options.nodes) out->add_nodes(node);
    out->set_sticky(broadcast->options.sticky);
    out->set_stop(broadcast->options.stop);
    out->set_begun(broadcast->begun);
    if (broadcast->mark.stamp() != 0) *out->mutable_mark() = broadcast->mark;
  } else {
    return;
  }
  channel_.Send(request.object, std::move(message));
}

// ------------------------------------------------------------------------ messages of the shard

void Store::Impl::HandleShardMessages() {
  using Message = v1::ShardMessage;
  const auto handle = [this](Message::KindCase kind, auto handler) {
    channel_.Handle(kind, Guarded(std::move(handler)));
  };
  handle(Message::kVerdict, [this](int, const Message& m) { OnVerdict(m.verdict()); });
  handle(Message::kAssign, [this](int, const Message& m) { OnAssign(m.assign()); });
  handle(Message::kDeliver, [this](int, const Message& m) { OnDeliver(m.deliver()); });
  handle(Message::kGone, [this](int, const Message& m) { OnGone(m.gone()); });
  handle(Message::kEvictReply, [this](int, const Message& m) { OnEvictReply(m.evict_reply()); });
  handle(Message::kDeleteReply, [this](int, const Message& m) { OnDeleteReply(m.delete_reply()); });
  handle(Message::kQueryReply, [this](int, const Message& m) { OnQueryReply(m.query_reply()); });
  handle(Message::kPrefetchReply,
         [this](int, const Message& m) { OnPrefetchReply(m.prefetch_reply()); });
  handle(Message::kBroadcastReply,
         [this](int, const Message& m) { OnBroadcastReply(m.broadcast_reply()); });
  handle(Message::kSticky, [this](int shard, const Message& m) { OnSticky(shard, m.sticky()); });
  handle(Message::kBroadcastBegun,
         [this](int shard, const Message& m) { OnBroadcastBegun(shard, m.broadcast_begun()); });
  handle(Message::kFetch, [this](int, const Message& m) { OnFetch(m.fetch()); });
  handle(Message::kDrainStatus,
         [this](int shard, const Message& m) { OnDrainStatus(shard, m.drain_status()); });
  handle(Message::kClaimed, [this](int, const Message& m) { OnClaimed(m.claimed()); });
  handle(Message::kKept, [this](int, const Message& m) { OnKept(m.kept()); });
  handle(Message::kKeepReply, [this](int, const Message& m) { OnKeepReply(m.keep_reply()); });
}

void Store::Impl::OnVerdict(const v1::Verdict& verdict) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(verdict.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(verdict.generation());
  Copy* copy = table_.Find(*id, generation);
  if (verdict.kind() == v1::Verdict::DELETED) return OnDeleted(*id, generation);
  if (copy == nullptr) return;
  Touch(*id);
  switch (verdict.kind()) {
    case v1::Verdict::ADOPTED:
      NoteAdopted(copy);
      if (copy->waiting_put != 0) TellCreator(copy, PutResult{false, generation});
      break;
    case v1::Verdict::STANDBY:
      copy->standing = Standing::kStandby;
      VoidReaders(copy, absl::AbortedError("another generation was adopted"));
      break;
    case v1::Verdict::SUPERSEDED:
      OnSuperseded(copy, verdict);
      break;
    default:
      break;
  }
}

void Store::Impl::OnSuperseded(Copy* copy, const v1::Verdict& verdict) {
  const absl::Status why = absl::AbortedError(
      absl::StrCat("object ", copy->id.hex(), ": generation ", copy->generation.ToString(),
                   " gave way to another that is complete"));
  SendWithdraw(copy->id, copy->generation, why);
  // Since it said so it may have adopted this one after all, and have taken the copy for an answer
  // to the open want.
  pulls_.AskAgain(copy->id);
  if (!copy->created_here) {
    // What was pulled belonged to a generation that lost after a restart of the shard.
    pulls_.OnVoid(copy->id, copy->generation, why);
    if (copy->state == CopyState::kComplete) DropCopy(copy, why);
    return;
  }
  const uint64_t adopted_bytes = verdict.info().size_bytes();
  const Generation adopted = directory::FromProto(verdict.adopted());
  absl::StatusOr<PutResult> outcome = PutResult{true, adopted};
  if (adopted_bytes != copy->size_bytes) {
    outcome = absl::AlreadyExistsError(
        absl::StrCat("object ", copy->id.hex(), " has ", adopted_bytes, " bytes (generation ",
                     adopted.ToString(), "), not ", copy->size_bytes));
  }
  const bool told = TellCreator(copy, outcome);
  if (!told && !outcome.ok()) ++conflicts_;
  DropCopy(copy, why);
}

bool Store::Impl::AlreadyHere(const ObjectId& id, const Generation& generation) {
  Copy* copy = table_.Find(id, generation);
  if (copy == nullptr || copy->state == CopyState::kPulling) return false;
  NoteAdopted(copy);
  Touch(id);
  return true;
}

// A shard that began anew may not know of the other one, and so cannot void it: it waited for its
// memory here, or its sender died, when we registered.
void Store::Impl::NoteAdopted(Copy* copy) {
  copy->standing = Standing::kAdopted;
  const PullTarget* target = pulls_.Target(copy->id);
  if (target == nullptr || target->generation == copy->generation) return;
  pulls_.OnVoid(copy->id, Generation(target->generation),
                absl::AbortedError("another generation was adopted"));
}

void Store::Impl::StandBehind(const ObjectId& id, const Generation& adopted) {
  for (Copy* copy = table_.First(id); copy != nullptr; copy = copy->next_generation) {
    if (copy->generation == adopted || copy->standing != Standing::kPending) continue;
    copy->standing = Standing::kStandby;
    VoidReaders(copy, absl::AbortedError("another generation was adopted"));
    Touch(id);
  }
}

// The shard has forgotten, or never heard, that the generation was deleted. Were it not told, it
// would take the want for answered, and the Get would wait for ever.
bool Store::Impl::TellIfDeleted(const ObjectId& id, const Generation& generation) {
  if (tombstones_.count({id, generation}) == 0) return false;
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_register_tombstone());
  channel_.Send(id, std::move(message));
  return true;
}

void Store::Impl::OnAssign(const v1::Assign& assign) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(assign.object_id());
  const absl::StatusOr<Generation> generation = directory::ParseGeneration(assign.generation());
  if (!id.ok() || !generation.ok() || TellIfDeleted(*id, *generation)) return;
  ForgetLost(*id);
  if (AlreadyHere(*id, *generation)) {
    const Copy* copy = table_.Find(*id, *generation);
    if (copy->state != CopyState::kComplete) return;
    // The plan crossed with our word that the copy is complete. Said again behind the request to
    // evict it, that would list a copy which the grant takes away.
    if (copy->eviction == Copy::Eviction::kAsked) return;
    ReportComplete(*copy, assign.plan_id());
    return;
  }
  if (pulls_.Wants(*id)) StandBehind(*id, *generation);
  pulls_.OnAssign(*id, assign);
}

void Store::Impl::OnDeliver(const v1::Deliver& deliver) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(deliver.object_id());
  const absl::StatusOr<Generation> generation = directory::ParseGeneration(deliver.generation());
  if (!id.ok() || !generation.ok() || TellIfDeleted(*id, *generation)) return;
  ForgetLost(*id);
  if (AlreadyHere(*id, *generation)) return;
  if (pulls_.Wants(*id)) StandBehind(*id, *generation);
  pulls_.OnDeliver(*id, deliver);
}

void Store::Impl::OnGone(const v1::Gone& gone) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(gone.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(gone.generation());
  switch (gone.kind()) {
    case v1::Gone::DELETED:
      OnDeleted(*id, generation);
      break;
    case v1::Gone::LOST:
      OnLost(*id, gone.reason());
      break;
    case v1::Gone::VOID: {
      ForgetLost(*id);
      const absl::Status why = absl::AbortedError(absl::StrCat(
          "object ", id->hex(), ": generation ", generation.ToString(), " died: ", gone.reason()));
      pulls_.OnVoid(*id, generation, why);
      Copy* copy = table_.Find(*id, generation);
      // Complete here, yet gone for the shard: another generation will be adopted, and bytes of two
      // must not be told apart by which node one asks. (What was made here alone is judged by a
      // verdict.)
      const bool judged =
          copy != nullptr && copy->created_here && copy->generation.creator == options_.self;
      if (copy != nullptr && !judged && copy->state == CopyState::kComplete) {
        Touch(*id);
        DropCopy(copy, why);
      }
      break;
    }
    case v1::Gone::REFUSED: {
      const bool failed = gone.code() > 0;
      const auto code = failed ? static_cast<absl::StatusCode>(gone.code())
                               : absl::StatusCode::kResourceExhausted;
      const char* who = failed ? ": its producer failed: " : ": the directory refused: ";
      pulls_.OnRefused(*id,
                       absl::Status(code, absl::StrCat("object ", id->hex(), who, gone.reason())));
      break;
    }
    default:
      break;
  }
}

void Store::Impl::OnDeleted(const ObjectId& id, const Generation& generation) {
  if (!generation.valid()) return;
  const absl::Status why = DeletedStatus(id);
  RememberTombstone(id, generation);
  ForgetLost(id);
  Touch(id);
  pulls_.OnDeleted(id, generation, why);
  Copy* copy = table_.Find(id, generation);
  if (copy != nullptr && copy->state != CopyState::kPulling) {
    const bool waited_for = copy->state == CopyState::kWriting;
    // A Put whose verdict is its deletion had been adopted before.
    TellCreator(copy, copy->waiting_put != 0
                          ? absl::StatusOr<PutResult>(PutResult{false, generation})
                          : absl::StatusOr<PutResult>(why));
    const bool shown = copy->standing != Standing::kStandby;
    DropCopy(copy, why);
    if (waited_for && shown) EndAllGets(id, why);
  }
  SendDeleteConfirm(id, generation);
}

void Store::Impl::RememberTombstone(const ObjectId& id, const Generation& generation) {
  if (!tombstones_.emplace(id, generation).second) return;
  tombstones_by_age_.emplace_back(id, generation);
  if (tombstones_by_age_.size() <= options_.max_tombstones) return;
  tombstones_.erase(tombstones_by_age_.front());
  tombstones_by_age_.pop_front();
}

void Store::Impl::OnEvictReply(const v1::EvictReply& reply) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(reply.object_id());
  if (!id.ok()) return;
  Copy* copy = table_.Find(*id, directory::FromProto(reply.generation()));
  if (copy == nullptr || copy->eviction != Copy::Eviction::kAsked) return;
  if (reply.granted()) {
    EvictCopy(copy);
  } else {
    eviction_.Refused(copy, executor_.Now());
  }
}

void Store::Impl::OnFetch(const v1::Fetch& fetch) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(fetch.object_id());
  if (!id.ok()) return;
  Copy* copy = table_.Complete(*id);
  if (copy == nullptr || copy->standing != Standing::kAdopted) {
    if (!fetch.only_confirm() && !pulls_.Fetches(*id)) {
      fetches_.emplace_back(executor_.Now() + options_.fetch_patience, *id);
    }
    if (!fetch.only_confirm()) pulls_.Fetch(*id, fetch.keep(), fetch.plan_id());
    pulls_.ConfirmDelivery(*id, fetch.plan_id());
    return;
  }
  if (fetch.keep()) table_.MakePrimary(copy);
  // The request to evict it, which is on its way, says as much.
  if (copy->eviction != Copy::Eviction::kAsked) ReportComplete(*copy, fetch.plan_id());
}

}  // namespace phalanx::object_store
