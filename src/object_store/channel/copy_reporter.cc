#include "src/object_store/channel/copy_reporter.h"

#include <utility>

#include "src/common/defects.h"
#include "src/directory/core/validate.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {
namespace {

// `ttl`: what is left of the time to live.
void Describe(const Copy& copy, absl::Duration ttl, v1::ObjectInfo* out) {
  out->set_size_bytes(copy.size_bytes);
  out->set_slices(static_cast<uint32_t>(copy.buffer->layout().slices));
  out->set_metadata(copy.traits.metadata);
  if (!copy.traits.reduced_from.empty()) out->set_reduced_from(copy.traits.reduced_from);
  if (!copy.traits.refers_to.empty()) out->set_refers_to(copy.traits.refers_to);
  if (copy.traits.owned) out->set_owned(true);
  if (!copy.traits.asked_for.empty()) out->set_asked_for(copy.traits.asked_for);
  directory::SetName(copy.traits.name, out);
  directory::SetScope(copy.traits.scope, out);
  directory::SetTtl(ttl, out);
}

// The mark of an object whose creator wants primary copies on so many hosts.
v1::StickyMark CreatorMark(uint32_t copies) {
  v1::StickyMark mark;
  mark.set_stamp(directory::kCreatorStamp);
  mark.set_copies(copies);
  return mark;
}

}  // namespace

void CopyReporter::AnnounceCreate(const Copy& copy, std::string bytes, const SlotVersion& version) {
  // The creator's hold precedes the object: a shard that knows an owned object without a hold frees
  // it.
  if (!DefectActive(Defect::kHoldAfterAnnouncement)) holds_.Flush();
  v1::NodeMessage message;
  v1::AnnounceCreate* announce = message.mutable_announce_create();
  SetSubject(copy.id, copy.generation, announce);
  // The shard adopts the generation by this message: nothing of the time has passed.
  Describe(copy, copy.traits.ttl, announce->mutable_info());
  if (version.valid()) directory::ToProto(version, announce->mutable_version());
  if (copy.traits.copies > 0) *announce->mutable_mark() = CreatorMark(copy.traits.copies);
  announce->set_complete(copy.state == CopyState::kComplete);
  // With its bytes the shard answers Gets of a small object itself: one round trip and no pull.
  if (announce->complete() && copy.size_bytes <= kMaxInlineBytes) {
    announce->set_has_inline(true);
    announce->set_inline_bytes(std::move(bytes));
  }
  channel_.Send(copy.id, std::move(message));
}

void CopyReporter::AnnounceSeal(const Copy& copy) {
  v1::NodeMessage message;
  v1::AnnounceSeal* announce = message.mutable_announce_seal();
  SetSubject(copy.id, copy.generation, announce);
  if (copy.size_bytes <= kMaxInlineBytes) {
    announce->set_has_inline(true);
    // A copy of the bytes: the memory may be evicted before the message leaves.
    announce->set_inline_bytes(copy.block->bytes().data(), copy.size_bytes);
  }
  channel_.Send(copy.id, std::move(message));
}

void CopyReporter::Withdraw(const ObjectId& id, const Generation& generation,
                            const absl::Status& why) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_withdraw());
  message.mutable_withdraw()->set_reason(std::string(why.message()));
  channel_.Send(id, std::move(message));
}

void CopyReporter::RequestEviction(const Copy& copy) {
  v1::NodeMessage message;
  SetSubject(copy.id, copy.generation, message.mutable_evict_request());
  channel_.Send(copy.id, std::move(message));
}

void CopyReporter::ReportComplete(const Copy& copy, PlanId plan) {
  v1::NodeMessage message;
  v1::PullReport* report = message.mutable_pull_report();
  SetSubject(copy.id, copy.generation, report);
  // Under the plan that the shard named last: it drops reports of an earlier adoption.
  report->set_plan_id(plan);
  report->set_complete(true);
  report->set_primary(copy.primary);
  channel_.Send(copy.id, std::move(message));
}

void CopyReporter::ConfirmScope(int shard, const Scope& scope) {
  v1::NodeMessage message;
  directory::ToProto(scope, message.mutable_scope_confirm()->mutable_scope());
  channel_.SendTo(shard, std::move(message));
}

void CopyReporter::ConfirmDelete(const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_delete_confirm());
  channel_.Send(id, std::move(message));
}

void CopyReporter::ReportDeleted(const ObjectId& id, const Generation& generation) {
  v1::NodeMessage message;
  SetSubject(id, generation, message.mutable_register_tombstone());
  channel_.Send(id, std::move(message));
}

v1::RegisterCopy CopyReporter::Registration(const Copy& copy) const {
  v1::RegisterCopy out;
  SetSubject(copy.id, copy.generation, &out);
  const bool counting = !copy.traits.expires.infinite();
  Describe(copy, counting ? copy.traits.expires - executor_.Now() : copy.traits.ttl,
           out.mutable_info());
  if (DefectActive(Defect::kNameNotRegistered)) out.mutable_info()->clear_name();
  if (DefectActive(Defect::kTtlForgottenAtRestart)) out.mutable_info()->clear_ttl_ns();
  out.set_primary(copy.primary);
  // Until the shard has sent a mark of its own, which then takes its place.
  if (copy.traits.copies > 0) *out.mutable_sticky() = CreatorMark(copy.traits.copies);
  out.set_adopted(copy.standing == Standing::kAdopted);
  out.set_complete(copy.state == CopyState::kComplete);
  // A creator that pulls back what it had withdrawn is not a writer: its bytes would never come.
  out.set_writing(copy.state == CopyState::kWriting);
  // A complete copy has no watermarks, which would only make the registration longer.
  for (int slice = 0; !out.complete() && slice < copy.buffer->layout().slices; ++slice) {
    out.add_watermarks(copy.buffer->watermark(slice));
  }
  return out;
}

}  // namespace phalanx::object_store
