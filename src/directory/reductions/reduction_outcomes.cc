// Requests for reductions that have ended: how each ended, or whether it can begin again.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/ids/version.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/reductions/reduction_manager.h"
#include "src/directory/reductions/results/reduce_result.h"
namespace phalanx::directory {
namespace {

absl::Status OutcomeLost(const ObjectId& target) {
  return ReductionError(
      target, absl::StatusCode::kDataLoss,
      "it has ended; its result is lost, or its outcome was lost when the directory restarted");
}

// Returns true if one list is the beginning of the other.
bool Agree(const std::vector<ObjectId>& a, const std::vector<ObjectId>& b) {
  return std::equal(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin());
}

}  // namespace

void ReductionManager::Remember(const Reduction& reduction, const absl::Status& status) {
  if (DefectActive(Defect::kEndedReductionForgotten)) return;
  EndedReduction ended;
  ended.status = status;
  ended.arguments = reduction.plan.spec();
  ended.sources = std::exchange(ended.arguments.sources, {});
  ended.arguments.source_metadata = {};
  if (!ended.arguments.open) ended.sources = {};
  ended.asked = reduction.requests.seen;
  ended.closed = reduction.plan.closed();
  catalog_.ended().Remember(reduction.target, reduction.identity.id, std::move(ended));
}

void ReductionManager::EndIfEarlier(const ObjectId& target, const ReductionId& number,
                                    const ReduceSpec& spec) {
  Reduction* running = catalog_.Find(target);
  const bool earlier = running != nullptr && !running->Is(number) && running->identity.confirmed &&
                       BeganAfter(number, running->identity.id);
  if (!earlier || catalog_.HasEnded(target, number)) return;
  const ReduceSpec& before = running->plan.spec();
  const bool same = SameArguments(before, spec) && before.sources == spec.sources;
  // The same arguments and sources give the same result, so the requesters can wait for this one.
  if (same && !spec.open) return descriptors_.SetId(*running, number);
  End(*running,
      ReductionError(target, absl::StatusCode::kDataLoss,
                     "it ended before the directory restarted, and its outcome was lost"));
}

std::optional<absl::Status> ReductionManager::AnswerOfEarlier(const Reduction::Requester& requester,
                                                              const ObjectId& target,
                                                              const ReduceSpec& spec, bool again) {
  // It was given up while the node, which has no caller, was out of contact: to begin it again
  // would have Gets wait for it.
  const bool given_up = requester.request_id == 0 && failures_.Find(target) != nullptr;
  if (given_up && catalog_.Find(target) == nullptr) return absl::CancelledError();
  const ReductionId& number = requester.id;
  if (!number.valid()) return AnswerOfUnnumbered(requester, target, spec, again);
  catalog_.NoteId(number);
  EndIfEarlier(target, number, spec);
  if (!catalog_.HasEnded(target, number)) return std::nullopt;
  if (tombstones_.Refuses(target, number.AsGeneration())) {
    return ReductionError(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  // The node only keeps the description; it is sent a forget.
  if (requester.request_id == 0)
    return ReductionError(target, absl::StatusCode::kNotFound, "it has ended");
  const EndedReduction* ended = catalog_.ended().Find(target, number);
  if (ended != nullptr && absl::IsDataLoss(ended->status)) return ended->status;
  // A closed reduction is determined by its arguments, so any result of them answers the request.
  // An open one may have sources that were added to it alone.
  if (!spec.open) return std::nullopt;
  // The node was sent the id of a reduction that ended before the node's request arrived.
  const bool ours = catalog_.MintedHere(number);
  if (ended != nullptr && ours && !ended->asked.contains(requester.key())) return std::nullopt;
  const bool running = catalog_.Find(target) != nullptr;
  if (ended != nullptr && (running || !ended->status.ok())) return ended->status;
  return running ? OutcomeLost(target) : ResultOrLoss(target, spec, again);
}

std::optional<absl::Status> ReductionManager::AnswerOfUnnumbered(
    const Reduction::Requester& requester, const ObjectId& target, const ReduceSpec& spec,
    bool again) {
  if (!again || !spec.open) return std::nullopt;
  const EndedReduction* last = nullptr;
  ReductionId last_number;
  for (const auto& [number, ended] : catalog_.ended().Of(target)) {
    const bool same = SameArguments(ended->arguments, spec) && Agree(ended->sources, spec.sources);
    // A lost outcome may belong to a request of an earlier life of the shard.
    const bool meant =
        same && (ended->asked.contains(requester.key()) || absl::IsDataLoss(ended->status));
    if (!meant || (last != nullptr && BeganAfter(last_number, number))) continue;
    last = ended;
    last_number = number;
  }
  // Sources may have been added to it, so it must not begin without them.
  if (last == nullptr) return std::nullopt;
  if (!last->status.ok()) return last->status;
  if (catalog_.Find(target) != nullptr) return std::nullopt;
  return ResultOrLoss(target, spec, again);
}

absl::Status ReductionManager::ResultOrLoss(const ObjectId& target, const ReduceSpec& spec,
                                            bool again) {
  return AnswerBeforeBegin(target, spec, again).value_or(OutcomeLost(target));
}

void ReductionManager::EndIfDeleted(const ObjectId& id, const ReductionId& number) {
  catalog_.NoteId(number);
  Reduction* reduction = catalog_.Find(id);
  if (reduction == nullptr) return;
  const bool unknown = !reduction->identity.confirmed && !reduction->requests.has_new;
  if (!reduction->Is(number) && !unknown) return;
  End(*reduction, ReductionError(id, absl::StatusCode::kNotFound, "its target was deleted"));
}

std::optional<absl::Status> ReductionManager::AnswerBeforeBegin(const ObjectId& target,
                                                                const ReduceSpec& spec,
                                                                bool again) {
  const Tombstone* deleted = tombstones_.FindDeleted(target);
  const auto names_reduction = [this](const Tombstone& tombstone) {
    const std::vector<Generation> all = tombstones_.Generations(tombstone);
    return std::any_of(all.begin(), all.end(), IsReductionId);
  };
  if (deleted != nullptr && (again || !names_reduction(*deleted))) {
    return ReductionError(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  const Object* object = objects_.Find(target);
  if (object == nullptr || !object->adopted()) return std::nullopt;
  const std::string& from = object->info.reduced_from;
  // The root of a reduction that an earlier life of the shard planned: it is restored or withdrawn.
  if (!object->sealed() && !from.empty()) return std::nullopt;
  // A result of which no copy is left is computed again.
  const bool lost =
      object->copies.complete() == 0 && object->final_reports.awaited.empty() && !gate_.learning();
  if (lost && !from.empty()) return std::nullopt;
  if (from.empty()) {
    return ReductionError(target, absl::StatusCode::kAlreadyExists,
                          "an object that is not its result was put under this id");
  }
  const std::string differ = DifferenceFrom(spec, *object);
  if (differ.empty()) return absl::OkStatus();
  return ReductionError(
      target, absl::StatusCode::kAlreadyExists,
      absl::StrCat("the target has the result of another reduction; what differs: ", differ));
}

std::string ReductionManager::DifferenceFrom(const ReduceSpec& asked, const Object& result) const {
  std::optional<ReduceRecord> made = ReduceRecord::Decode(result.info.asked_for);
  if (gate_.restarted() && DefectActive(Defect::kArgumentsForgottenAtRestart)) made.reset();
  return DifferenceOf(asked, made ? &*made : nullptr, result.info.reduced_from,
                      result.info.size_bytes);
}

}  // namespace phalanx::directory
