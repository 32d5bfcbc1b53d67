#include "src/directory/reductions/fold_recovery.h"

#include <utility>

#include "src/common/ids/version.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"
namespace phalanx::directory {
namespace {

// The generation of the target that the fold has created; not valid if there is none.
Generation MadeBy(const NodeKey& node, const v1::RegisterFold& m) {
  const Generation made = FromProto(m.generation());
  return m.has_generation() && made.creator == node ? made : Generation();
}

}  // namespace

FoldRecovery::FoldRecovery(const ReductionParts& parts, ReductionCatalog& catalog,
                           ReductionDescriptors& descriptors, FoldDispatcher& dispatcher,
                           CommitTracker& commits, DeletedResultListener& listener)
    : context_(parts.context),
      gate_(parts.gate),
      tombstones_(parts.tombstones),
      catalog_(catalog),
      descriptors_(descriptors),
      dispatcher_(dispatcher),
      commits_(commits),
      listener_(listener) {}

absl::Status FoldRecovery::OnRegisterFold(Node& node, const v1::RegisterFold& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const SlotVersion version, ParseVersion(m.version()));
  PHALANX_RETURN_IF_ERROR(ParseSources(m.source_ids()).status());
  PHALANX_RETURN_IF_ERROR(CheckShape(m.slots(), m.degree(), m.slot()));
  PHALANX_ASSIGN_OR_RETURN(const ReductionId number, ParseReductionId(m));
  // Ids of this life must be later than any that an earlier one minted.
  catalog_.NoteId(number);
  gate_.NoteEarlierLife();
  if (Refuse(node.key, m)) return absl::OkStatus();
  Reduction* reduction = catalog_.Find(target);
  if (gate_.learning() && (reduction == nullptr || reduction->phase != ReductionPhase::kPlanned)) {
    // The node that knows the description may register after this one.
    const size_t size = 1 + static_cast<size_t>(m.source_ids_size());
    // Dropped, not refused: the plan places the slot again if it needs it.
    if (size_ + size > context_.options.max_reduce_sources) {
      dispatcher_.SendDrop(node.key, target, version);
    } else {
      size_ += size;
      folds_[node.key].push_back(m);
    }
    return absl::OkStatus();
  }
  Reduction::Placed* placed =
      reduction == nullptr ? nullptr : commits_.PlaceAgain(*reduction, node.key, version);
  if (placed == nullptr) {
    dispatcher_.SendDrop(node.key, target, version);
    return absl::OkStatus();
  }
  placed->registered = true;
  // A fold whose result exists gets no order: it would start over if its sources can be had in
  // another way now, and fail if they were deleted.
  const bool made = commits_.IsRoot(target, version, node.key) &&
                    commits_.ResultExists(target, MadeBy(node.key, m));
  // The plan may have changed the fold's inputs while the node was away.
  const FoldTask* task = reduction->plan.Find(node.key, version);
  if (task != nullptr && !made) dispatcher_.Repeat(*reduction, *task, node.key);
  Continue(*reduction, node.key, m);
  catalog_.Touch(target);
  return absl::OkStatus();
}

void FoldRecovery::Continue(Reduction& reduction, const NodeKey& node, const v1::RegisterFold& m) {
  const SlotVersion version = VersionFromProto(m.version());
  const Generation made = MadeBy(node, m);
  // Before OnReady, which asks whether this generation stands by. Its announcement may have been
  // lost with the earlier session, or an earlier life of the shard may have received it.
  if (made.valid() && commits_.IsRoot(reduction.target, version, node)) {
    reduction.commit.root_generation = made;
  }
  if (m.ready()) commits_.OnReady(reduction, node, version);
}

bool FoldRecovery::Refuse(const NodeKey& node, const v1::RegisterFold& m) {
  const ObjectId target = *ParseObjectId(m.object_id());
  const SlotVersion version = VersionFromProto(m.version());
  // The target was deleted before its reduction had a generation: the tombstone has the reduction's
  // id.
  if (!tombstones_.Refuses(target, ReductionIdFromProto(m.begun()).AsGeneration())) return false;
  dispatcher_.SendDrop(node, target, version);
  if (const Generation made = MadeBy(node, m); made.valid()) {
    listener_.OnDeletedGeneration(target, made);
  }
  return true;
}

// A tombstone can be registered after the fold that it refuses.
void FoldRecovery::RefuseDeleted() {
  for (auto& [node, folds] : folds_) {
    std::erase_if(folds, [this, &node = node](const auto& m) { return Refuse(node, m); });
  }
}

void FoldRecovery::Forget(const NodeKey& node) {
  const auto found = folds_.find(node);
  if (found == folds_.end()) return;
  for (const v1::RegisterFold& fold : found->second) {
    size_ -= 1 + static_cast<size_t>(fold.source_ids_size());
  }
  folds_.erase(found);
}

void FoldRecovery::HandOut() {
  size_ = 0;
  // First: a fold is matched with its reduction by the id.
  SetIds();
  for (auto& [node, folds] : std::exchange(folds_, {})) {
    for (v1::RegisterFold& fold : folds) {
      const ObjectId target = *ParseObjectId(fold.object_id());
      Reduction* reduction = catalog_.Find(target);
      if (reduction != nullptr &&
          (!fold.has_begun() || reduction->Is(ReductionIdFromProto(fold.begun())))) {
        reduction->registered.push_back({node, std::move(fold)});
      } else {
        dispatcher_.SendDrop(node, target, VersionFromProto(fold.version()));
      }
    }
  }
}

void FoldRecovery::SetIds() {
  absl::btree_map<ObjectId, ReductionId> latest;
  for (const auto& [node, folds] : folds_) {
    for (const v1::RegisterFold& fold : folds) {
      const ObjectId target = *ParseObjectId(fold.object_id());
      const ReductionId number = ReductionIdFromProto(fold.begun());
      const Reduction* reduction = catalog_.Find(target);
      if (reduction == nullptr || reduction->identity.confirmed || !fold.has_begun()) continue;
      if (catalog_.HasEnded(target, number)) continue;
      ReductionId& known = latest[target];
      // If nodes register two reductions of one target, the later one is the running one.
      if (!known.valid() || BeganAfter(number, known)) known = number;
    }
  }
  for (const auto& [target, number] : latest) descriptors_.SetId(*catalog_.Find(target), number);
}

absl::Status FoldRecovery::CheckInvariants() const {
  size_t size = 0;
  for (const auto& [node, folds] : folds_) {
    for (const v1::RegisterFold& fold : folds) {
      size += 1 + static_cast<size_t>(fold.source_ids_size());
    }
  }
  return size == size_ ? absl::OkStatus() : absl::InternalError("registered folds are miscounted");
}

void FoldRecovery::Restore(Reduction& reduction) {
  for (const auto& [node, fold] : reduction.registered) {
    const auto sources = ParseSources(fold.source_ids());
    if (!sources.ok()) continue;
    reduction.plan.Restore(static_cast<int>(fold.slots()), static_cast<int>(fold.degree()),
                           static_cast<int>(fold.slot()), *sources, node,
                           VersionFromProto(fold.version()));
  }
}

}  // namespace phalanx::directory
