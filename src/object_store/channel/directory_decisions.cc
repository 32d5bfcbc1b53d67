#include "src/object_store/channel/directory_decisions.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store {
namespace {

absl::Status DeletedStatus(const ObjectId& id, bool expired) {
  return absl::NotFoundError(absl::StrCat("object ", id.hex(), " was deleted",
                                          expired ? ": its time to live had passed" : ""));
}

}  // namespace

DirectoryDecisions::DirectoryDecisions(NodeKey self, const Executor& executor, Turns& turns,
                                       ObjectTable& table, PullManager& pulls, GetRequests& gets,
                                       LocalCopies& copies, CopyReporter& reporter,
                                       MemoryQueue& memory, PutRequests& puts, PullRunner& runner,
                                       DeletedGenerations& deleted, StickyMarks& stickies)
    : self_(self),
      executor_(executor),
      turns_(turns),
      table_(table),
      pulls_(pulls),
      gets_(gets),
      copies_(copies),
      reporter_(reporter),
      memory_(memory),
      puts_(puts),
      runner_(runner),
      deleted_(deleted),
      stickies_(stickies) {}

void DirectoryDecisions::OnVerdict(const v1::Verdict& verdict) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(verdict.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(verdict.generation());
  Copy* copy = table_.Find(*id, generation);
  // Before the copy is looked for: the deletion counts even if the copy is gone.
  if (verdict.kind() == v1::Verdict::DELETED) {
    return OnDeleted(*id, generation, /*expired=*/false);
  }
  if (copy == nullptr) return;
  turns_.Touch(*id);
  switch (verdict.kind()) {
    case v1::Verdict::ADOPTED:
      NoteAdopted(copy);
      if (copy->waiting_put != 0) puts_.AnswerCreator(copy, PutResult{false, generation});
      break;
    case v1::Verdict::STANDBY:
      copy->standing = Standing::kStandby;
      // Readers of this generation may have bytes that the object will not have.
      gets_.VoidReaders(copy, absl::AbortedError("another generation was adopted"));
      break;
    case v1::Verdict::SUPERSEDED:
      OnSuperseded(copy, verdict);
      break;
    default:
      break;
  }
}

void DirectoryDecisions::OnSuperseded(Copy* copy, const v1::Verdict& verdict) {
  const absl::Status why = absl::AbortedError(
      absl::StrCat("object ", copy->id.hex(), ": generation ", copy->generation.ToString(),
                   " was replaced by another one that is complete"));
  reporter_.Withdraw(copy->id, copy->generation, why);
  // Since the verdict the shard can have adopted this generation after all, and can have taken the
  // copy for the answer to the open want.
  pulls_.AskAgain(copy->id);
  if (!copy->created_here) {
    // The pulled generation lost against another one after a restart of the shard.
    pulls_.OnVoid(copy->id, copy->generation, why);
    if (copy->state == CopyState::kComplete) copies_.Drop(copy, why);
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
  const bool answered = puts_.AnswerCreator(copy, outcome);
  // The Put was answered OK before the verdict, so a counter is all that shows the conflict.
  if (!answered && !outcome.ok()) puts_.CountConflict();
  copies_.Drop(copy, why);
}

bool DirectoryDecisions::AlreadyHere(const ObjectId& id, const Generation& generation) {
  Copy* copy = table_.Find(id, generation);
  if (copy == nullptr || copy->state == CopyState::kPulling) return false;
  NoteAdopted(copy);
  turns_.Touch(id);
  return true;
}

// A shard that has restarted does not know the other generation if that generation waited for its
// memory here, or its sender died, when this node registered. So the shard cannot void it.
void DirectoryDecisions::NoteAdopted(Copy* copy) {
  copy->standing = Standing::kAdopted;
  // The shard counts from the adoption, which was a message earlier.
  if (copy->traits.expires.infinite()) copy->traits.expires = executor_.Now() + copy->traits.ttl;
  const PullTarget* target = pulls_.Target(copy->id);
  if (target == nullptr || target->generation == copy->generation) return;
  pulls_.OnVoid(copy->id, Generation(target->generation),
                absl::AbortedError("another generation was adopted"));
}

void DirectoryDecisions::StandBehind(const ObjectId& id, const Generation& adopted) {
  for (Copy* copy = table_.First(id); copy != nullptr; copy = copy->next_generation) {
    // An Assign for another generation is as good as the STANDBY verdict, which may still be on its
    // way.
    if (copy->generation == adopted || copy->standing != Standing::kPending) continue;
    copy->standing = Standing::kStandby;
    gets_.VoidReaders(copy, absl::AbortedError("another generation was adopted"));
    turns_.Touch(id);
  }
}

// The shard has forgotten, or has never known, that the generation was deleted. Without the report
// it would take the want for answered, and the Get would wait for ever.
bool DirectoryDecisions::ReportIfDeleted(const ObjectId& id, const Generation& generation) {
  if (!deleted_.Contains(id, generation)) return false;
  reporter_.ReportDeleted(id, generation);
  return true;
}

void DirectoryDecisions::OnAssign(const v1::Assign& assign) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(assign.object_id());
  const absl::StatusOr<Generation> generation = directory::ParseGeneration(assign.generation());
  if (!id.ok() || !generation.ok() || ReportIfDeleted(*id, *generation)) return;
  // A sender is named, so the object is not lost any more.
  gets_.ForgetLost(*id);
  if (AlreadyHere(*id, *generation)) {
    const Copy* copy = table_.Find(*id, *generation);
    if (copy->state != CopyState::kComplete) return;
    // The plan crossed with this node's report that the copy is complete. A second report, behind
    // the request to evict the copy, would list a copy that the grant takes away.
    if (copy->eviction == Copy::Eviction::kAsked) return;
    reporter_.ReportComplete(*copy, assign.plan_id());
    return;
  }
  if (pulls_.Wants(*id)) StandBehind(*id, *generation);
  pulls_.OnAssign(*id, assign, executor_.Now());
}

void DirectoryDecisions::OnDeliver(const v1::Deliver& deliver) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(deliver.object_id());
  const absl::StatusOr<Generation> generation = directory::ParseGeneration(deliver.generation());
  if (!id.ok() || !generation.ok() || ReportIfDeleted(*id, *generation)) return;
  gets_.ForgetLost(*id);
  if (AlreadyHere(*id, *generation)) return;
  if (pulls_.Wants(*id)) StandBehind(*id, *generation);
  pulls_.OnDeliver(*id, deliver, executor_.Now());
}

void DirectoryDecisions::OnGone(const v1::Gone& gone) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(gone.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(gone.generation());
  switch (gone.kind()) {
    case v1::Gone::DELETED:
      OnDeleted(*id, generation, gone.expired());
      break;
    case v1::Gone::LOST:
      gets_.OnLost(*id, gone.reason());
      break;
    case v1::Gone::VOID:
      OnVoid(*id, generation, gone.reason());
      break;
    case v1::Gone::REFUSED: {
      const bool failed = gone.code() > 0;
      const auto code = failed ? static_cast<absl::StatusCode>(gone.code())
                               : absl::StatusCode::kResourceExhausted;
      const char* cause = gone.expired() ? ": "
                          : failed       ? ": its producer failed: "
                                         : ": the directory refused: ";
      pulls_.OnRefused(
          *id, gone.want(),
          absl::Status(code, absl::StrCat("object ", id->hex(), cause, gone.reason())));
      break;
    }
    default:
      break;
  }
}

void DirectoryDecisions::OnVoid(const ObjectId& id, const Generation& generation,
                                const std::string& reason) {
  gets_.ForgetLost(id);
  const absl::Status why = absl::AbortedError(
      absl::StrCat("object ", id.hex(), ": generation ", generation.ToString(), " died: ", reason));
  pulls_.OnVoid(id, generation, why);
  Copy* copy = table_.Find(id, generation);
  // The copy is complete here, but the shard will adopt another generation, and all nodes must read
  // the same bytes. (A generation that this node alone created gets a verdict instead.)
  const bool judged = copy != nullptr && copy->created_here && copy->generation.creator == self_;
  if (copy != nullptr && !judged && copy->state == CopyState::kComplete) {
    turns_.Touch(id);
    copies_.Drop(copy, why);
  }
}

void DirectoryDecisions::OnDeleted(const ObjectId& id, const Generation& generation, bool expired) {
  if (!generation.valid()) return;
  // Kept even without a copy: this node may have to report the deletion to a shard that restarts.
  deleted_.Add(id, generation);
  // A Put whose verdict is a deletion was adopted before the deletion.
  gets_.ForgetLost(id);
  pulls_.OnDeleted(id, generation, DeletedStatus(id, expired));
  EndCopy(id, generation, DeletedStatus(id, expired), PutResult{false, generation});
  // Always: the shard keeps its tombstone until it has this answer.
  reporter_.ConfirmDelete(id, generation);
}

void DirectoryDecisions::EndCopy(const ObjectId& id, const Generation& generation,
                                 const absl::Status& why, const absl::StatusOr<PutResult>& put,
                                 bool of_object) {
  turns_.Touch(id);
  Copy* copy = table_.Find(id, generation);
  if (copy == nullptr || copy->state == CopyState::kPulling) return;
  const bool waited_for = copy->state == CopyState::kWriting;
  puts_.AnswerCreator(copy, copy->waiting_put != 0 ? put : absl::StatusOr<PutResult>(why));
  // Before Drop: Gets wait for a copy that is being written only if they would be shown it.
  const bool shown = copy->standing != Standing::kStandby;
  copies_.Drop(copy, why);
  if (waited_for && shown && of_object) gets_.EndAll(id, why);
}

void DirectoryDecisions::OnScopeEnded(int shard, const v1::ScopeEnded& ended) {
  const Scope scope = directory::ScopeOf(ended);
  if (scope.empty()) return;
  copies_.scopes().End(scope, executor_.Now());
  gets_.EndScope(scope);
  // Pulls that wait for their memory have no copy yet.
  for (const auto& [id, generation] : pulls_.TargetsIn(scope)) {
    if (reporter_.ShardOf(id) != shard) continue;
    pulls_.OnDeleted(id, generation, EndedScopeStatus(id, scope));
  }
  // A shard names a scope again for each late Put: one entry of the name, and one confirmation.
  uint64_t& number = endings_[{shard, scope.name}];
  number = std::max(number, scope.number);
}

bool DirectoryDecisions::DropEnded() {
  for (size_t left = kMaxDroppedPerTurn; !endings_.empty();) {
    const int shard = endings_.begin()->first.first;
    const Scope scope{endings_.begin()->first.second, endings_.begin()->second};
    for (const auto& [id, generation] : copies_.scopes().CopiesIn(scope)) {
      if (reporter_.ShardOf(id) != shard) continue;
      if (left-- == 0) return false;
      const Copy* copy = table_.Find(id, generation);
      const absl::Status why = EndedScopeStatus(id, copy->traits.scope);
      // Another generation, of another scope, can be the object: Gets wait for that one then.
      const bool of_object = copy->standing == Standing::kAdopted;
      if (of_object) {
        gets_.ForgetLost(id);
        pulls_.OnDeleted(id, generation, why);
      } else {
        // The shard may list it as one that stands by.
        reporter_.Withdraw(id, generation, why);
      }
      EndCopy(id, generation, why, why, of_object);
    }
    endings_.erase(endings_.begin());
    reporter_.ConfirmScope(shard, scope);
  }
  return true;
}

void DirectoryDecisions::OnEvictReply(const v1::EvictReply& reply) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(reply.object_id());
  if (!id.ok()) return;
  Copy* copy = table_.Find(*id, directory::FromProto(reply.generation()));
  if (copy == nullptr || copy->eviction != Copy::Eviction::kAsked) return;
  if (reply.granted()) {
    copies_.Evict(copy);
  } else {
    memory_.OnRefused(copy);
  }
}

void DirectoryDecisions::OnFetch(const v1::Fetch& fetch) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(fetch.object_id());
  if (!id.ok()) return;
  if (fetch.end()) return OnFetchEnd(*id, fetch.plan_id());
  if (fetch.release()) return OnRelease(*id, fetch.plan_id());
  Copy* copy = table_.Complete(*id);
  if (copy == nullptr || copy->standing != Standing::kAdopted) {
    if (!fetch.only_confirm()) runner_.Fetch(*id, fetch.keep(), fetch.plan_id());
    // If a Deliver is waiting for memory, this order is answered when it has been kept.
    pulls_.ConfirmDelivery(*id, fetch.plan_id());
    return;
  }
  if (fetch.keep()) table_.MakePrimary(copy);
  // A request to evict the copy, which is on its way, reports the same.
  if (copy->eviction != Copy::Eviction::kAsked) reporter_.ReportComplete(*copy, fetch.plan_id());
}

void DirectoryDecisions::OnFetchEnd(const ObjectId& id, PlanId order) {
  turns_.Touch(id);
  pulls_.EndOrder(id, order);
  // It was fetched for other nodes, so it is worth less than what clients of this node have read.
  Copy* copy = table_.Complete(id);
  if (copy != nullptr && !copy->reads.any) table_.MakeOldest(copy);
}

void DirectoryDecisions::OnRelease(const ObjectId& id, PlanId order) {
  Copy* copy = table_.Complete(id);
  if (copy == nullptr || copy->standing != Standing::kAdopted) return;
  turns_.Touch(id);
  table_.MakeSecondary(copy);
  reporter_.ReportComplete(*copy, order);
}

// The mark of a copy that is gone is never registered again.
void DirectoryDecisions::OnSticky(int shard, const v1::Sticky& sticky) {
  stickies_.NoteStamp(shard, sticky.mark().stamp());
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(sticky.object_id());
  if (!id.ok()) return;
  const Generation generation = directory::FromProto(sticky.generation());
  if (table_.Find(*id, generation) != nullptr) stickies_.Set(*id, generation, sticky.mark());
}

void DirectoryDecisions::OnKept(const v1::Kept& kept) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(kept.object_id());
  if (!id.ok()) return;
  Copy* copy = table_.Find(*id, directory::FromProto(kept.generation()));
  // So that this node registers the copy as not owned at a shard that restarts.
  if (copy != nullptr) copy->traits.owned = false;
}

}  // namespace phalanx::object_store
