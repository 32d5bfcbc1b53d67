// Requests for reductions that have ended: how each ended, or whether it can begin again.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/version.h"
#include "src/directory/reduce_messages.h"
#include "src/directory/reduce_result.h"
#include "src/directory/reductions/reduction_manager.h"
namespace phalanx::directory {
namespace {

absl::Status About(const ObjectId& target, absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("reduction of ", target.hex(), ": ", what));
}

absl::Status OutcomeLost(const ObjectId& target) {
  return About(target, absl::StatusCode::kDataLoss,
               "it has ended, and its result is lost or nobody knows how it ended");
}

// Returns true if one list is the beginning of the other.
bool Agree(const std::vector<ObjectId>& a, const std::vector<ObjectId>& b) {
  return std::equal(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin());
}

}  // namespace

void ReductionManager::Remember(const Reduction& reduction, const absl::Status& status) {
  // Nothing ever began.
  if (absl::IsCancelled(status)) return;
  if (DefectActive(Defect::kEndedReductionForgotten)) return;
  EndedReduction ended;
  ended.status = status;
  ended.arguments = reduction.plan.spec();
  ended.sources = std::exchange(ended.arguments.sources, {});
  if (!ended.arguments.open) ended.sources = {};
  ended.asked = reduction.asked;
  ended.closed = reduction.plan.closed();
  catalog_.ended().Remember(reduction.target, reduction.number, std::move(ended));
}

void ReductionManager::EndIfEarlier(const ObjectId& target, const Generation& number,
                                    const ReduceSpec& spec) {
  Reduction* running = catalog_.Find(target);
  const bool earlier = running != nullptr && !running->Is(number) && running->firm &&
                       BegunLater(number, running->number);
  if (!earlier || catalog_.HasEnded(target, number)) return;
  const ReduceSpec& before = running->plan.spec();
  const bool same = SameArguments(before, spec) && before.sources == spec.sources;
  // Who waits for the one may as well wait for the other.
  if (same && !spec.open) return descriptors_.SetId(*running, number);
  End(*running, About(target, absl::StatusCode::kDataLoss,
                      "it had ended before the shard began anew, nobody knows how"));
}

std::optional<absl::Status> ReductionManager::AnswerOfEarlier(const Reduction::Asker& asker,
                                                              const ObjectId& target,
                                                              const ReduceSpec& spec, bool again) {
  const Generation& number = asker.number;
  if (!number.valid()) return AnswerOfUnnumbered(asker, target, spec, again);
  catalog_.NoteId(number);
  EndIfEarlier(target, number, spec);
  if (!catalog_.HasEnded(target, number)) return std::nullopt;
  if (tombstones_.Refuses(target, number)) {
    return About(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  // Nobody waits for it.
  if (asker.request_id == 0) return About(target, absl::StatusCode::kNotFound, "it has ended");
  const EndedReduction* ended = catalog_.ended().Find(target, number);
  if (ended != nullptr && absl::IsDataLoss(ended->status)) return ended->status;
  // Its result, or what has the same arguments, will do; unless something was added to just it.
  if (!spec.open) return std::nullopt;
  // It was told the number of one that it had not come to when that ended.
  const bool ours = catalog_.MintedHere(number);
  if (ended != nullptr && ours && !ended->asked.contains(asker.key())) return std::nullopt;
  const bool running = catalog_.Find(target) != nullptr;
  if (ended != nullptr && (running || !ended->status.ok())) return ended->status;
  return running ? OutcomeLost(target) : ResultOrLoss(target, spec, again);
}

std::optional<absl::Status> ReductionManager::AnswerOfUnnumbered(const Reduction::Asker& asker,
                                                                 const ObjectId& target,
                                                                 const ReduceSpec& spec,
                                                                 bool again) {
  if (!again || !spec.open) return std::nullopt;
  const EndedReduction* last = nullptr;
  Generation last_number;
  for (const auto& [number, ended] : catalog_.ended().Of(target)) {
    const bool same = SameArguments(ended->arguments, spec) && Agree(ended->sources, spec.sources);
    // What is lost may be that of an earlier life of the shard.
    const bool meant =
        same && (ended->asked.contains(asker.key()) || absl::IsDataLoss(ended->status));
    if (!meant || (last != nullptr && BegunLater(last_number, number))) continue;
    last = ended;
    last_number = number;
  }
  // Something may have been added to it: it must not begin without that.
  if (last == nullptr) return std::nullopt;
  if (!last->status.ok()) return last->status;
  if (catalog_.Find(target) != nullptr) return std::nullopt;
  return ResultOrLoss(target, spec, again);
}

absl::Status ReductionManager::ResultOrLoss(const ObjectId& target, const ReduceSpec& spec,
                                            bool again) {
  return AnswerBeforeBegin(target, spec, again).value_or(OutcomeLost(target));
}

void ReductionManager::EndIfBuried(const ObjectId& id, const Generation& number) {
  catalog_.NoteId(number);
  Reduction* reduction = catalog_.Find(id);
  if (reduction == nullptr) return;
  const bool unknown = !reduction->firm && !reduction->fresh;
  if (!reduction->Is(number) && !unknown) return;
  End(*reduction, About(id, absl::StatusCode::kNotFound, "its target was deleted"));
}

std::optional<absl::Status> ReductionManager::AnswerBeforeBegin(const ObjectId& target,
                                                                const ReduceSpec& spec,
                                                                bool again) {
  const Tombstone* deleted = tombstones_.FindDeleted(target);
  const auto names_reduction = [](const Tombstone& tombstone) {
    return std::any_of(tombstone.generations.begin(), tombstone.generations.end(),
                       IsReductionNumber);
  };
  if (deleted != nullptr && (again || !names_reduction(*deleted))) {
    return About(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  const Object* object = objects_.Find(target);
  if (object == nullptr || !object->adopted) return std::nullopt;
  const std::string& from = object->info.reduced_from;
  // A part of a reduction that an earlier life of this shard planned: it goes on, or is withdrawn.
  if (!object->sealed && !from.empty()) return std::nullopt;
  // A result that nobody has any more is computed anew.
  const bool lost =
      object->complete_copies == 0 && object->unreported_receivers.empty() && !gate_.learning();
  if (lost && !from.empty()) return std::nullopt;
  if (from.empty()) {
    return About(target, absl::StatusCode::kAlreadyExists,
                 "an object that is not its result was put under this id");
  }
  const std::string differ = DifferenceFrom(spec, *object);
  if (differ.empty()) return absl::OkStatus();
  return About(target, absl::StatusCode::kAlreadyExists,
               absl::StrCat("there is the result of another one; what differs: ", differ));
}

std::string ReductionManager::DifferenceFrom(const ReduceSpec& asked, const Object& result) const {
  std::optional<ReduceRecord> made = ReduceRecord::Decode(result.info.asked_for);
  if (gate_.restarted() && DefectActive(Defect::kArgumentsForgottenAtRestart)) made.reset();
  return DifferenceOf(asked, made ? &*made : nullptr, result.info.reduced_from,
                      result.info.size_bytes);
}

}  // namespace phalanx::directory
