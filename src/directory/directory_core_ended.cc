// Reductions that are over, and their numbers.
//
// A target may be reduced again: after a Delete, after a failure, when its result is lost. Nodes
// that were away still ask for the one before, keep it in mind, fold it or add to it. So each has a
// number, which they are told and repeat:
//  1. What names another one than the one under way never joins, changes or ends that.
//  2. Of two of which nodes tell a shard that began anew, the one that was begun later is the one
//     under way.
//  3. How the last ones ended is remembered, to be told to who asks for them again.
//  4. What an earlier life of the shard began is over when one that this life began is: it may have
//     been the same, of which nobody had told the number.
// Who asked before a number was told does not know it, and is taken for one of the reduction that
// is under way; so who asks for a target that was reduced before is told at once. Who asks again
// for an open one and knows no number is taken for one of the last that it asked for and that
// ended.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/version.h"
#include "src/directory/directory_core_impl.h"
#include "src/directory/reduce_messages.h"

namespace phalanx::directory {
namespace {

// What a node tells beyond it is no count.
constexpr uint64_t kMaxCount = uint64_t{1} << 62;

absl::Status About(const ObjectId& target, absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("reduction of ", target.hex(), ": ", what));
}

absl::Status OutcomeLost(const ObjectId& target) {
  return About(target, absl::StatusCode::kDataLoss,
               "it has ended, and its result is lost or nobody knows how it ended");
}

// The one list may be longer.
bool Agree(const std::vector<ObjectId>& a, const std::vector<ObjectId>& b) {
  return std::equal(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin());
}

bool SameLife(const Generation& a, const Generation& b) { return a.creator == b.creator; }

}  // namespace

void DirectoryCore::Impl::NoteNumber(const Generation& number) {
  if (!IsReductionNumber(number) || number.sequence > kMaxCount) return;
  reductions_counted_ = std::max(reductions_counted_, number.sequence - 1);
}

Generation DirectoryCore::Impl::MintNumber() {
  return ReductionNumber(life_low_, life_high_, ++reductions_counted_);
}

void DirectoryCore::Impl::Renumber(Reduction& reduction, const Generation& number) {
  reduction.number = number;
  reduction.firm = true;
  absl::btree_set<NodeKey> told = reduction.keepers;
  told.insert(reduction.part_keepers.begin(), reduction.part_keepers.end());
  told.insert(reduction.informed.begin(), reduction.informed.end());
  for (const NodeKey& key : told) TellPart(reduction, key, 0);
}

void DirectoryCore::Impl::Remember(const Reduction& reduction, const absl::Status& status) {
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
  ended_.Remember(reduction.target, reduction.number, std::move(ended));
}

bool DirectoryCore::Impl::Over(const ObjectId& target, const Generation& number) {
  const Reduction* running = FindReduction(target);
  if (!number.valid() || (running != nullptr && running->Is(number))) return false;
  const Generation life = ReductionNumber(life_low_, life_high_, 1);
  if (SameLife(number, life) || Refusal(target, number) != nullptr) return true;
  if (running != nullptr && running->firm && BegunLater(running->number, number)) return true;
  for (const auto& [of, ended] : ended_.Of(target)) {
    const bool later = SameLife(of, number) ? of.sequence >= number.sequence : SameLife(of, life);
    if (later) return true;
  }
  const Tombstone* deleted = FindTombstone(target);
  return deleted != nullptr &&
         std::any_of(deleted->generations.begin(), deleted->generations.end(),
                     [&life](const Generation& of) { return SameLife(of, life); });
}

void DirectoryCore::Impl::EndIfEarlier(const ObjectId& target, const Generation& number,
                                       const ReduceSpec& spec) {
  Reduction* running = FindReduction(target);
  const bool earlier = running != nullptr && !running->Is(number) && running->firm &&
                       BegunLater(number, running->number);
  if (!earlier || Over(target, number)) return;
  const ReduceSpec& before = running->plan.spec();
  const bool same = SameArguments(before, spec) && before.sources == spec.sources;
  // Who waits for the one may as well wait for the other.
  if (same && !spec.open) return Renumber(*running, number);
  EndReduction(*running, About(target, absl::StatusCode::kDataLoss,
                               "it had ended before the shard began anew, nobody knows how"));
}

std::optional<absl::Status> DirectoryCore::Impl::AnswerOfEarlier(const Reduction::Asker& asker,
                                                                 const ObjectId& target,
                                                                 const ReduceSpec& spec,
                                                                 bool again) {
  const Generation& number = asker.number;
  if (!number.valid()) return AnswerOfUnnumbered(asker, target, spec, again);
  NoteNumber(number);
  EndIfEarlier(target, number, spec);
  if (!Over(target, number)) return std::nullopt;
  if (Refusal(target, number) != nullptr) {
    return About(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  // Nobody waits for it.
  if (asker.request_id == 0) return About(target, absl::StatusCode::kNotFound, "it has ended");
  const EndedReduction* ended = ended_.Find(target, number);
  if (ended != nullptr && absl::IsDataLoss(ended->status)) return ended->status;
  // Its result, or what has the same arguments, will do; unless something was added to just it.
  if (!spec.open) return std::nullopt;
  // It was told the number of one that it had not come to when that ended.
  const bool ours = SameLife(number, ReductionNumber(life_low_, life_high_, 1));
  if (ended != nullptr && ours && !ended->asked.contains(asker.key())) return std::nullopt;
  const bool running = FindReduction(target) != nullptr;
  if (ended != nullptr && (running || !ended->status.ok())) return ended->status;
  return running ? OutcomeLost(target) : ResultOrLoss(target, spec, again);
}

std::optional<absl::Status> DirectoryCore::Impl::AnswerOfUnnumbered(const Reduction::Asker& asker,
                                                                    const ObjectId& target,
                                                                    const ReduceSpec& spec,
                                                                    bool again) {
  if (!again || !spec.open) return std::nullopt;
  const EndedReduction* last = nullptr;
  Generation last_number;
  for (const auto& [number, ended] : ended_.Of(target)) {
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
  if (FindReduction(target) != nullptr) return std::nullopt;
  return ResultOrLoss(target, spec, again);
}

absl::Status DirectoryCore::Impl::ResultOrLoss(const ObjectId& target, const ReduceSpec& spec,
                                               bool again) {
  return AnswerBeforeBegin(target, spec, again).value_or(OutcomeLost(target));
}

void DirectoryCore::Impl::EndIfBuried(const ObjectId& id, const Generation& number) {
  NoteNumber(number);
  Reduction* reduction = FindReduction(id);
  if (reduction == nullptr) return;
  const bool unknown = !reduction->firm && !reduction->fresh;
  if (!reduction->Is(number) && !unknown) return;
  EndReduction(*reduction, About(id, absl::StatusCode::kNotFound, "its target was deleted"));
}

bool DirectoryCore::Impl::TakenBefore(const v1::ExtendRequest& m, const ObjectId& target,
                                      const Generation& number) {
  const absl::StatusOr<std::vector<ObjectId>> sources = ParseSources(m.source_ids());
  if (!sources.ok()) return false;
  const auto all_in = [&sources](const std::vector<ObjectId>& list) {
    const absl::flat_hash_set<ObjectId> in(list.begin(), list.end());
    return std::all_of(sources->begin(), sources->end(),
                       [&in](const ObjectId& id) { return in.contains(id); });
  };
  const Reduction* running = FindReduction(target);
  if (running != nullptr && running->Is(number)) return false;
  // Without a number it may be for the one under way, which may have the same sources.
  const bool tells = number.valid() || running == nullptr;
  for (const auto& [of, ended] : ended_.Of(target)) {
    const bool meant = tells && (!number.valid() || number == of);
    const bool done = ended->arguments.open && (!m.close() || ended->closed);
    if (meant && done && all_in(ended->sources)) return true;
  }
  // An earlier life of the shard may have closed it and seen its end.
  const Object* object = FindObject(target);
  if (running != nullptr || object == nullptr || !object->adopted) return false;
  const std::optional<ReduceRecord> made = ReduceRecord::Decode(object->info.asked_for);
  if (!made.has_value() || !made->arguments.open) return false;
  return made->arguments.num_objects != 0 || all_in(IdsIn(object->info.reduced_from));
}

}  // namespace phalanx::directory
