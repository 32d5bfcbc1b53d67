// Reductions: who asks for them, what nodes report of their folds, and what the plans decide.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/common/version.h"
#include "src/directory/directory_core_impl.h"
#include "src/directory/reduce_messages.h"

namespace phalanx::directory {
namespace {

// What a shape is chosen by as long as nothing was measured: 1 Gbit/s, and a fast network's way.
constexpr double kAssumedRate = 125e6;
constexpr absl::Duration kAssumedLatency = absl::Microseconds(200);
// One core folds at about the speed of its memory.
constexpr double kFoldRate = 4e9;
// What a fold hands on at a time: what has come, mostly, and not the whole segments of the wire.
constexpr uint64_t kSegmentBytes = 4 << 10;
// Of two children, as measured in trees of 24 nodes at 250 Mbit/s.
constexpr double kUnevenness = 1.2;
// A fold that a node could not keep is placed again after so long, and twice as long each time.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr int kMaxDoublings = 5;
constexpr size_t kMaxNamed = 4;  // missing sources, in an error
constexpr absl::string_view kPartsLost =
    "the shard began anew, and not all that was added before is known to nodes that are left";

absl::Status About(const ObjectId& target, absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("reduction of ", target.hex(), ": ", what));
}

}  // namespace

Reduction* DirectoryCore::Impl::FindReduction(const ObjectId& target) {
  const auto found = reductions_.find(target);
  return found == reductions_.end() ? nullptr : found->second.get();
}

// ---- who asks

absl::Status DirectoryCore::Impl::OnReduce(Node& node, const v1::ReduceRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation number, ParseNumber(m.reduction()));
  const Reduction::Asker asker{node.key, node.session, m.request_id(), number};
  absl::StatusOr<ReduceSpec> spec = ParseReduction(m.reduction());
  absl::Status valid = spec.ok() ? ValidateReduceSpec(target, *spec) : spec.status();
  if (!valid.ok()) {
    AnswerReduce(target, asker, valid);
    return absl::OkStatus();
  }
  const bool kept = asker.request_id == 0;
  if (!kept && reduce_askers_ >= options_.max_reduce_askers) {
    AnswerReduce(target, asker,
                 About(target, absl::StatusCode::kResourceExhausted,
                       absl::StrCat(reduce_askers_, " requests wait for reductions already")));
    return absl::OkStatus();
  }
  if (const auto over = AnswerOfEarlier(asker, target, *spec, m.again() || kept)) {
    AnswerReduce(target, asker, *over);
    return absl::OkStatus();
  }
  Reduction* reduction = FindReduction(target);
  const bool begins = reduction == nullptr;
  if (begins) {
    const bool which = number.valid() && !Over(target, number);
    if (const auto over = AnswerBeforeBegin(target, *spec, !which && (m.again() || kept))) {
      AnswerReduce(target, asker, *over);
      return absl::OkStatus();
    }
    ReduceSpec begun_with = *spec;
    if (m.reduction().first_source() > 0) begun_with.sources.clear();
    absl::StatusOr<Reduction*> begun =
        BeginReduction(target, std::move(begun_with), FromProto(m.reduction().root()),
                       which ? number : Generation());
    if (!begun.ok()) {
      AnswerReduce(target, asker, begun.status());
      return absl::OkStatus();
    }
    reduction = *begun;
    reduction->deadline = now_;  // until the first has said how long
  }
  if (!Join(*reduction, *spec, m.reduction())) {
    AnswerReduce(target, asker,
                 About(target, absl::StatusCode::kAlreadyExists,
                       "another one, of other sources or arguments, is under way"));
    if (kept && LacksSources(*reduction, *spec)) {
      EndReduction(*reduction, About(target, absl::StatusCode::kDataLoss, kPartsLost));
    } else if (begins) {
      EndReduction(*reduction, absl::CancelledError());
    }
    return absl::OkStatus();
  }
  const Instant deadline = m.timeout_ms() == 0
                               ? Instant::Infinite()
                               : now_ + absl::Milliseconds(static_cast<int64_t>(
                                            std::min<uint64_t>(m.timeout_ms(), uint64_t{1} << 40)));
  reduction->deadline = std::max(reduction->deadline, deadline);
  TakeAsker(*reduction, asker, m, begins);
  SetReduceTimer(*reduction, reduction->deadline);
  TouchReduction(target);
  return absl::OkStatus();
}

void DirectoryCore::Impl::TakeAsker(Reduction& reduction, const Reduction::Asker& asker,
                                    const v1::ReduceRequest& m, bool first) {
  if (m.reduction().everybody()) reduction.ring_wanted = true;
  reduction.owned = m.owned() && (first || reduction.owned);
  Object* result = FindObject(reduction.target);
  const bool stays = !reduction.owned && result != nullptr && !result->info.reduced_from.empty();
  if (stays) KeepObject(*result);
  if (!m.again()) reduction.fresh = true;
  // Who wants the object waits for this one.
  if (Tombstone* tombstone = FindTombstone(reduction.target)) tombstone->revived = true;
  const bool open = reduction.plan.spec().open;
  if (asker.request_id == 0) {
    // Nobody waits there: the node was told to keep it in mind, and is told when to forget it.
    (open ? reduction.part_keepers : reduction.keepers).insert(asker.node);
  } else {
    reduction.askers.push_back(asker);
    ++reduce_askers_;
    const size_t told =
        m.reduction().first_source() + static_cast<size_t>(m.reduction().source_ids_size());
    if (open) reduction.asked.insert(asker.key());
    if (open) Inform(reduction, asker.node, told);
  }
  const bool tells = asker.number.valid() && !reduction.Is(asker.number);
  if (tells && !reduction.firm && !Over(reduction.target, asker.number)) {
    Renumber(reduction, asker.number);
  } else if (tells || (reduction.anew && asker.request_id != 0 && !asker.number.valid())) {
    TellPart(reduction, asker.node, 0);
  }
}

std::optional<absl::Status> DirectoryCore::Impl::AnswerBeforeBegin(const ObjectId& target,
                                                                   const ReduceSpec& spec,
                                                                   bool again) {
  const Tombstone* deleted = FindDeleted(target);
  const auto names_reduction = [](const Tombstone& tombstone) {
    return std::any_of(tombstone.generations.begin(), tombstone.generations.end(),
                       IsReductionNumber);
  };
  if (deleted != nullptr && (again || !names_reduction(*deleted))) {
    return About(target, absl::StatusCode::kNotFound, "the target was deleted");
  }
  const Object* object = FindObject(target);
  if (object == nullptr || !object->adopted) return std::nullopt;
  const std::string& from = object->info.reduced_from;
  // A part of a reduction that an earlier life of this shard planned: it goes on, or is withdrawn.
  if (!object->sealed && !from.empty()) return std::nullopt;
  // A result that nobody has any more is computed anew.
  const bool lost = object->complete_copies == 0 && object->last_hopes.empty() && !Learning();
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

std::string DirectoryCore::Impl::DifferenceFrom(const ReduceSpec& asked,
                                                const Object& result) const {
  std::optional<ReduceRecord> made = ReduceRecord::Decode(result.info.asked_for);
  if (restarted_ && DefectActive(Defect::kArgumentsForgottenAtRestart)) made.reset();
  return DifferenceOf(asked, made ? &*made : nullptr, result.info.reduced_from,
                      result.info.size_bytes);
}

absl::StatusOr<Reduction*> DirectoryCore::Impl::BeginReduction(const ObjectId& target,
                                                               ReduceSpec spec, const NodeKey& root,
                                                               const Generation& number) {
  if (reductions_.size() >= options_.max_reductions ||
      reduce_sources_ + spec.sources.size() > options_.max_reduce_sources) {
    return About(target, absl::StatusCode::kResourceExhausted,
                 absl::StrCat("the shard plans ", reductions_.size(), " others with ",
                              reduce_sources_, " sources"));
  }
  ++counters_.reductions;
  const std::vector<ObjectId> sources = spec.sources;
  auto& made = reductions_[target];
  made = std::make_unique<Reduction>(target, std::move(spec), root);
  made->started = now_;
  made->firm = number.valid();
  made->number = made->firm ? number : MintNumber();
  made->minted = made->number;
  made->anew = !ended_.Of(target).empty() || FindTombstone(target) != nullptr;
  Watch(*made, sources);
  TouchReduction(target);
  return made.get();
}

void DirectoryCore::Impl::AnswerReduce(const ObjectId& target, const Reduction::Asker& asker,
                                       const absl::Status& status) {
  const Node* node = FindNode(asker.node);
  // In a new session it asks again.
  if (node == nullptr || node->session != asker.session) return;
  if (asker.request_id == 0) return TellToForget(asker.node, target, asker.number);
  v1::ReduceReply& reply = *Send(asker.node).mutable_reduce_reply();
  reply.set_request_id(asker.request_id);
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
}

void DirectoryCore::Impl::EndReduction(Reduction& reduction, const absl::Status& status) {
  status.ok() ? ++counters_.reductions_committed : ++counters_.reductions_failed;
  for (const Reduction::Asker& asker : reduction.askers) {
    AnswerReduce(reduction.target, asker, status);
  }
  reduce_askers_ -= reduction.askers.size();
  if (reduction.ring != nullptr) {
    const Object* object = FindObject(reduction.target);
    const bool made =
        status.ok() && object != nullptr && object->generation == reduction.ring->generation();
    // Its members come to their ends by themselves.
    if (!made) TakeBackRing(reduction);
  }
  reduction.plan.Cancel();
  for (const ReduceEffect& effect : reduction.plan.TakeEffects()) {
    if (const auto* drop = std::get_if<DropFold>(&effect)) Carry(reduction, *drop);
  }
  for (const auto& [node, fold] : reduction.registered) {
    SendFoldDrop(node, reduction.target, FromProto(fold.version()));
  }
  absl::btree_set<NodeKey> keepers = reduction.keepers;
  keepers.insert(reduction.part_keepers.begin(), reduction.part_keepers.end());
  for (const NodeKey& key : keepers) TellToForget(key, reduction.target, reduction.number);
  Remember(reduction, status);
  for (const auto& [first, part] : reduction.parts) reduce_sources_ -= part.size();
  UnwatchAll(reduction);
  if (!reduction.timer.infinite()) reduce_timers_.erase({reduction.timer, reduction.target});
  const ObjectId target = reduction.target;
  touched_reductions_.erase(target);
  reductions_.erase(target);
  // A Put that stood by may be the object now; and who waits for the target as a source.
  NoteChange(target);
  if (Object* object = FindObject(target)) Settle(*object);
}

// ---- what nodes report

absl::Status DirectoryCore::Impl::OnFoldReport(Node& node, const v1::FoldReport& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation version, ParseGeneration(m.version()));
  Reduction* reduction = FindReduction(target);
  const auto found = reduction == nullptr ? decltype(reduction->placed)::iterator()
                                          : reduction->placed.find({node.key, version});
  if (reduction == nullptr || found == reduction->placed.end()) {
    // A member of a ring that has made the result may wait for what nobody sends it any more. What
    // an earlier life of this shard planned goes on until the plan begins.
    const bool known = !Learning() && (reduction == nullptr || reduction->registered.empty());
    if (m.kind() == v1::FoldReport::FAILED && known) SendFoldDrop(node.key, target, version);
    return absl::OkStatus();
  }
  Reduction::Placed& placed = found->second;
  TouchReduction(target);
  if (IsRingMember(target, version, node.key)) {
    OnRingReport(*reduction, node.key, placed, m);
    return absl::OkStatus();
  }
  switch (m.kind()) {
    case v1::FoldReport::READY:
      reduction->root_ready = IsRoot(target, version, node.key) && RootStandsBy(*reduction);
      if (!reduction->root_ready) reduction->plan.OnReady(node.key, version);
      return absl::OkStatus();
    case v1::FoldReport::PROGRESS:
      placed.watermark = m.watermark();
      placed.bytes_per_second = UsableRate(m.bytes_per_second());
      placed.trouble.clear();
      return absl::OkStatus();
    case v1::FoldReport::FAILED:
      placed.trouble = m.message();
      if (m.code() == static_cast<int>(absl::StatusCode::kNotFound)) {
        const FoldTask* task = reduction->plan.Find(node.key, version);
        if (task != nullptr) NoteAbsent(*reduction, *task, node.key, m.input());
      }
      return absl::OkStatus();
    case v1::FoldReport::NO_MEMORY:
    case v1::FoldReport::DROPPED:
      placed.trouble = m.message();
      if (DefectActive(Defect::kLostFoldForgotten)) return absl::OkStatus();
      placed.again = now_ + kFirstPause * (1 << std::min(placed.times_lost++, kMaxDoublings));
      SetReduceTimer(*reduction, placed.again);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("kind: a report of no kind this shard knows");
  }
}

void DirectoryCore::Impl::NoteAbsent(Reduction& reduction, const FoldTask& task,
                                     const NodeKey& node, size_t input) {
  if (input >= task.inputs.size() || task.inputs[input].kind != FoldInput::Kind::kSource) return;
  // A report that was under way when the root was committed: it has been folded since.
  if (reduction.plan.committed() && !task.root) return;
  const ObjectId source = task.inputs[input].source;
  const Generation generation = task.inputs[input].generation;
  if (!reduction.absent.insert({source, generation, node}).second) return;
  TellSource(reduction, source);
  // What was committed with it will never be folded: the plan begins anew, and knows better now.
  if (!reduction.plan.committed()) return;
  reduction.open_root = std::exchange(reduction.root_generation, Generation());
  ForgetCommitted(reduction);
  reduction.plan.OnResultLost();
}

// ---- time, and nodes

void DirectoryCore::Impl::SetReduceTimer(Reduction& reduction, Instant when) {
  if (when >= reduction.timer) return;
  if (!reduction.timer.infinite()) reduce_timers_.erase({reduction.timer, reduction.target});
  reduction.timer = when;
  reduce_timers_.insert({when, reduction.target});
}

void DirectoryCore::Impl::OnReduceTimer(Reduction& reduction) {
  reduce_timers_.erase({reduction.timer, reduction.target});
  reduction.timer = Instant::Infinite();
  const auto end = [this, &reduction] {
    EndReduction(reduction, About(reduction.target, absl::StatusCode::kDeadlineExceeded,
                                  DescribeWaiting(reduction)));
  };
  if (reduction.awaited_until <= now_) StopAwaiting(reduction);
  const bool over = reduction.deadline <= now_;
  if (over && !reduction.committed()) return end();
  // What is committed is about to be sealed, and was seen whole by somebody, maybe: it is waited
  // for, unless its node has lost it.
  Instant next =
      std::min(over ? now_ + options_.lease : reduction.deadline, reduction.awaited_until);
  std::vector<Reduction::FoldKey> lost;
  for (auto& [key, placed] : reduction.placed) {
    if (placed.again <= now_) {
      placed.again = Instant::Infinite();
      lost.push_back(key);
    } else {
      next = std::min(next, placed.again);
    }
  }
  for (const Reduction::FoldKey& key : lost) {
    const bool result = IsRoot(reduction.target, key.second, key.first);
    if (result && ResultUndecided(reduction)) continue;
    if (result && over) return end();
    if (result) ForgetCommitted(reduction);
    reduction.plan.OnFoldLost(key.first, key.second);
  }
  SetReduceTimer(reduction, next);
  TouchReduction(reduction.target);
}

std::string DirectoryCore::Impl::DescribeWaiting(const Reduction& reduction) const {
  const ReducePlan::View view = reduction.plan.Look();
  const ReduceSpec& spec = reduction.plan.spec();
  const size_t needed = spec.num_objects != 0 ? spec.num_objects : spec.sources.size();
  if (reduction.committed()) return "its result is being published";
  if (spec.open && !reduction.plan.closed()) return "it was not closed in time";
  if (view.ready >= needed) return absl::StrCat(view.ready, " sources are being folded");
  std::vector<std::string> missing;
  for (const ObjectId& source : spec.sources) {
    if (missing.size() == kMaxNamed) break;
    if (!reduction.ready.contains(source)) missing.push_back(source.hex());
  }
  return absl::StrCat(view.ready, " of ", needed,
                      " sources are there; missing: ", absl::StrJoin(missing, ", "),
                      missing.size() == kMaxNamed ? ", ..." : "");
}

void DirectoryCore::Impl::ForgetAskers(Reduction& reduction, const NodeKey& node) {
  reduce_askers_ -= std::erase_if(
      reduction.askers, [&node](const Reduction::Asker& asker) { return asker.node == node; });
}

void DirectoryCore::Impl::ForgetKeeper(Reduction& reduction, const NodeKey& key) {
  reduction.keepers.erase(key);
  reduction.informed.erase(key);
  reduction.part_keepers.erase(key);
}

void DirectoryCore::Impl::ReductionNodeDown(const NodeKey& key) {
  ForgetWatcher(key);
  ForgetRegisteredFolds(key);
  // What became of sources comes first: the plan moves to their other holders what it can.
  TellChanges();
  for (auto& [target, reduction] : reductions_) {
    RingMemberLost(*reduction, key);
    const auto first = reduction->placed.lower_bound({key, Generation()});
    auto last = first;
    while (last != reduction->placed.end() && last->first.first == key) ++last;
    const bool folded_there = first != last;
    reduction->placed.erase(first, last);
    ForgetKeeper(*reduction, key);
    ForgetAskers(*reduction, key);
    const bool undecided = reduction->plan.RootNode() == key && ResultUndecided(*reduction);
    if (undecided || reduction->awaited.contains(key)) {
      reduction->lost_roots.insert(key);
    } else {
      reduction->plan.OnNodeDown(key);
    }
    if (folded_there) TellUnplaced(*reduction);
    if (reduction->agent == key) reduction->agent = NodeKey();
    TouchReduction(target);
  }
}

void DirectoryCore::Impl::TellSource(Reduction& reduction, const ObjectId& source) {
  const auto foreign = reduction.foreign.find(source);
  if (!IsForeign(source)) {
    TellPlan(reduction, source, StateOf(source, /*with_bytes=*/false));
  } else if (foreign != reduction.foreign.end()) {
    TellPlan(reduction, source, v1::SourceState(foreign->second));
  }
}

void DirectoryCore::Impl::TellSources(Reduction& reduction) {
  reduction.plan.Hold();
  for (const ObjectId& source : reduction.plan.spec().sources) TellSource(reduction, source);
  reduction.plan.Release();
}

// What was deleted while its node held it is gone with the node, and nobody says so again.
void DirectoryCore::Impl::TellUnplaced(Reduction& reduction) {
  reduction.plan.Hold();
  for (const ObjectId& source : reduction.plan.spec().sources) {
    if (reduction.plan.Placed(source)) continue;
    const auto foreign = reduction.foreign.find(source);
    const bool known = foreign != reduction.foreign.end();
    const v1::SourceState state = !IsForeign(source) ? StateOf(source, /*with_bytes=*/false)
                                  : known            ? foreign->second
                                                     : v1::SourceState();
    if (state.code() != 0) TellPlan(reduction, source, state);
  }
  reduction.plan.Release();
}

void DirectoryCore::Impl::ReductionSessionBegins(const NodeKey& key) {
  ForgetWatcher(key);
  ForgetRegisteredFolds(key);
  for (auto& [target, reduction] : reductions_) {
    ForgetAskers(*reduction, key);
    ForgetKeeper(*reduction, key);
    RingMemberLost(*reduction, key);
    if (reduction->agent == key) reduction->agent = NodeKey();
    for (auto at = reduction->placed.lower_bound({key, Generation()});
         at != reduction->placed.end() && at->first.first == key; ++at) {
      at->second.registered = false;
    }
    TouchReduction(target);
  }
}

void DirectoryCore::Impl::ReductionSessionRegistered(const NodeKey& key) {
  for (auto& [target, reduction] : reductions_) {
    std::vector<Generation> lost;
    for (auto at = reduction->placed.lower_bound({key, Generation()});
         at != reduction->placed.end() && at->first.first == key; ++at) {
      if (!at->second.registered) lost.push_back(at->first.second);
    }
    for (const Generation& version : lost) {
      const bool root = IsRoot(target, version, key);
      if (root && ResultUndecided(*reduction)) continue;
      if (root) ForgetCommitted(*reduction);
      reduction->plan.OnFoldLost(key, version);
    }
    CommittedIsBack(*reduction, key);
    // The node may be the first by way of whom the sources of other shards can be watched.
    const bool unwatched = reduction->has_foreign && !reduction->agent.valid();
    if (!lost.empty() || unwatched) TouchReduction(target);
  }
}

// ---- what the plans decide

bool DirectoryCore::Impl::IsRoot(const ObjectId& target, const Generation& version,
                                 const NodeKey& node) {
  const Reduction* reduction = FindReduction(target);
  return reduction != nullptr && reduction->plan.RootVersion() == version &&
         reduction->plan.RootNode() == node;
}

void DirectoryCore::Impl::RunReductions() {
  while (!changed_sources_.empty() || !touched_reductions_.empty()) {
    TellChanges();
    if (touched_reductions_.empty()) continue;
    const ObjectId target = *touched_reductions_.begin();
    touched_reductions_.erase(touched_reductions_.begin());
    if (Reduction* reduction = FindReduction(target)) RunReduction(*reduction);
  }
}

void DirectoryCore::Impl::RunReduction(Reduction& reduction) {
  const Object* object = FindObject(reduction.target);
  const bool adopted = object != nullptr && object->adopted;
  if (adopted && object->complete_copies > 0 && !object->tentative) {
    if (object->info.reduced_from.empty()) {
      return EndReduction(reduction,
                          About(reduction.target, absl::StatusCode::kAlreadyExists,
                                "an object that is not its result was put under this id"));
    }
    const std::string differ = DifferenceFrom(reduction.plan.spec(), *object);
    if (differ.empty()) return EndReduction(reduction, absl::OkStatus());
    return EndReduction(
        reduction,
        About(reduction.target, absl::StatusCode::kAlreadyExists,
              absl::StrCat("there is the result of another one; what differs: ", differ)));
  }
  // One of which the shard learns late, from one node: another may follow that knows the rest.
  const Instant patience = reduction.started + options_.lease;
  const bool waits = HasGap(reduction) && now_ < patience;
  if (!reduction.begun && waits) SetReduceTimer(reduction, patience);
  if (RunRing(reduction)) return ChooseAgent(reduction);
  if (!reduction.begun && MayAdoptFromAbsence() && !waits) {
    if (absl::Status status = BeginPlan(reduction); !status.ok()) {
      return EndReduction(reduction, status);
    }
  }
  ChooseAgent(reduction);
  if (reduction.plan.committed() && reduction.awaited.empty()) {
    const bool announced = reduction.root_generation.valid();
    const bool gone =
        announced ? !ResultUndecided(reduction) && !RootStandsBy(reduction)
                  : !reduction.lost_roots.empty() || FindNode(reduction.plan.RootNode()) == nullptr;
    if (gone) BeginAnew(reduction);
  }
  if (reduction.root_ready && !RootStandsBy(reduction)) {
    reduction.root_ready = false;
    reduction.plan.OnReady(reduction.plan.RootNode(), reduction.plan.RootVersion());
  }
  counters_.reduce_sources_examined += reduction.plan.TakeExamined();
  for (const ReduceEffect& effect : reduction.plan.TakeEffects()) {
    if (const auto* place = std::get_if<PlaceFold>(&effect)) Carry(reduction, *place);
    if (const auto* drop = std::get_if<DropFold>(&effect)) Carry(reduction, *drop);
    if (const auto* commit = std::get_if<CommitFold>(&effect)) Carry(reduction, *commit);
    if (const auto* end = std::get_if<phalanx::directory::EndReduction>(&effect)) {
      return EndReduction(reduction, end->why);
    }
  }
}

bool DirectoryCore::Impl::ResultUndecided(const Reduction& reduction) {
  const Object* object = FindObject(reduction.target);
  if (object == nullptr || !object->adopted || !reduction.committed()) return false;
  // Lost, it stays adopted.
  const bool may_be = !object->sealed || object->complete_copies > 0 || HasWriter(*object) ||
                      !object->last_hopes.empty() || Learning();
  return may_be && reduction.root_generation.valid() &&
         object->generation == reduction.root_generation;
}

bool DirectoryCore::Impl::RootStandsBy(const Reduction& reduction) {
  Object* object = FindObject(reduction.target);
  return object != nullptr && FindAttempt(*object, reduction.root_generation,
                                          reduction.root_generation.creator) != nullptr;
}

ReduceCosts DirectoryCore::Impl::CostsNow() const {
  ReduceCosts costs;
  const LinkModel& links = planner_.links();
  // The pulls of a tree are opened once: in a chain that flows nobody waits behind others'
  // requests.
  const auto round_trip = links.LowLatency();
  costs.latency = round_trip.has_value() ? *round_trip / 2 : kAssumedLatency;
  costs.bytes_per_second = links.MedianRate().value_or(kAssumedRate);
  costs.fold_per_second = kFoldRate;
  costs.segment_bytes = kSegmentBytes;
  costs.unevenness = kUnevenness;
  return costs;
}

absl::Status DirectoryCore::Impl::BeginPlan(Reduction& reduction) {
  reduction.begun = true;
  if (HasGap(reduction)) return About(reduction.target, absl::StatusCode::kDataLoss, kPartsLost);
  reduction.plan.SetCosts(CostsNow());
  RestoreFolds(reduction);
  // After a restart: it did not come back.
  const NodeKey root = reduction.plan.root();
  if (root.valid() && FindNode(root) == nullptr) reduction.plan.OnNodeDown(root);
  reduction.plan.Begin();
  std::vector<ReduceEffect> effects = reduction.plan.TakeEffects();
  for (const ReduceEffect& effect : effects) {
    if (const auto* place = std::get_if<PlaceFold>(&effect)) Carry(reduction, *place);
  }
  for (const auto& [node, fold] : std::exchange(reduction.registered, {})) {
    const Generation version = FromProto(fold.version());
    if (!reduction.placed.contains({node, version})) {
      SendFoldDrop(node, reduction.target, version);
    } else if (fold.ready()) {
      reduction.plan.OnReady(node, version);
    }
  }
  for (const ReduceEffect& effect : effects) {
    const auto* end = std::get_if<phalanx::directory::EndReduction>(&effect);
    if (end != nullptr) return end->why;
  }
  return absl::OkStatus();
}

void DirectoryCore::Impl::BeginPlans() {
  HandOutRegisteredFolds();
  for (const auto& [target, reduction] : reductions_) TouchReduction(target);
  RunReductions();
  AnswerDeferredExtends();
  RunReductions();
}

void DirectoryCore::Impl::Carry(Reduction& reduction, const PlaceFold& effect) {
  if (FindNode(effect.node) == nullptr) return;
  ++counters_.folds_placed;
  FillFold(reduction, effect.task, Send(effect.node).mutable_fold());
  Reduction::Placed& placed = reduction.placed[{effect.node, effect.task.version}];
  placed.registered = true;
  if (effect.task.root && effect.task.committed) reduction.told_to_commit.insert(effect.node);
  TellToKeep(reduction, effect.node);
}

void DirectoryCore::Impl::FillFold(Reduction& reduction, const FoldTask& task, v1::Fold* out) {
  const ReduceSpec& spec = reduction.plan.spec();
  out->set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(task.version, out->mutable_version());
  ToProto(reduction.number, out->mutable_begun());
  out->set_slot(static_cast<uint32_t>(task.slot));
  out->set_slots(static_cast<uint32_t>(task.slots));
  out->set_degree(static_cast<uint32_t>(task.degree));
  out->set_dtype(ToProto(spec.elements, out->mutable_runs()));
  out->set_op(static_cast<uint32_t>(spec.op));
  out->set_planned(task.planned);
  out->set_range_offset(spec.range_offset);
  out->set_size_bytes(task.size_bytes);
  out->set_root(task.root);
  out->set_committed(task.committed);
  for (const FoldInput& input : task.inputs) {
    v1::Fold::Input& to = *out->add_inputs();
    ToProto(input.generation, to.mutable_generation());
    if (input.kind == FoldInput::Kind::kSlot) {
      ToProto(input.node, to.mutable_sender());
      if (const Node* node = FindNode(input.node)) to.set_sender_address(node->info.address());
      continue;
    }
    // What is committed beforehand must not depend on what may be gone when the order arrives.
    std::optional<absl::string_view> bytes;
    if (input.kind == FoldInput::Kind::kInline || task.committed) {
      bytes = InlineBytesOf(reduction, input, task.size_bytes);
    }
    if (input.kind == FoldInput::Kind::kSource && !bytes.has_value()) {
      to.set_source_id(input.source.binary().data(), ObjectId::kSize);
      continue;
    }
    to.set_has_inline(true);
    if (bytes.has_value()) {
      inline_in_outbox_ += bytes->size();
      to.set_inline_bytes(std::string(*bytes));
    }
  }
  if (!task.root) return;
  out->set_owned(reduction.owned);
  std::string from;
  for (const ObjectId& source : task.reduced_from) {
    from.append(source.binary().data(), ObjectId::kSize);
  }
  out->set_reduced_from(std::move(from));
  out->set_metadata(task.metadata);
  out->set_asked_for(ReduceRecord(spec).Encode());
}

void DirectoryCore::Impl::SendFoldDrop(const NodeKey& to, const ObjectId& target,
                                       const Generation& version) {
  if (FindNode(to) == nullptr) return;
  v1::FoldDrop& drop = *Send(to).mutable_fold_drop();
  drop.set_object_id(target.binary().data(), ObjectId::kSize);
  ToProto(version, drop.mutable_version());
}

void DirectoryCore::Impl::Carry(Reduction& reduction, const DropFold& effect) {
  reduction.placed.erase({effect.node, effect.version});
  ++counters_.folds_dropped;
  SendFoldDrop(effect.node, reduction.target, effect.version);
}

void DirectoryCore::Impl::Carry(Reduction& reduction, const CommitFold& effect) {
  reduction.open_root = Generation();
  if (FindNode(effect.node) == nullptr) return;
  reduction.told_to_commit.insert(effect.node);
  v1::FoldCommit& commit = *Send(effect.node).mutable_fold_commit();
  commit.set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(effect.version, commit.mutable_version());
}

void DirectoryCore::Impl::ListReductions(Instant now, v1::GetStatusResponse* out) const {
  constexpr size_t kMaxReductionsListed = 16;
  std::vector<const Reduction*> oldest;
  for (const auto& [target, reduction] : reductions_) oldest.push_back(reduction.get());
  const size_t listed = std::min(oldest.size(), kMaxReductionsListed);
  std::partial_sort(oldest.begin(), oldest.begin() + static_cast<ptrdiff_t>(listed), oldest.end(),
                    [](const Reduction* a, const Reduction* b) { return a->started < b->started; });
  oldest.resize(listed);
  for (const Reduction* reduction : oldest) {
    const ReducePlan::View view = reduction->plan.Look();
    const ReduceSpec& spec = reduction->plan.spec();
    v1::RunningReduction& to = *out->add_running_reductions();
    to.set_object_id(reduction->target.binary().data(), ObjectId::kSize);
    to.set_ready(view.ready);
    to.set_needed(spec.num_objects != 0 ? spec.num_objects : spec.sources.size());
    to.set_size_bytes(view.size_bytes);
    to.set_elapsed_ns(
        static_cast<uint64_t>(std::max<int64_t>(0, now.nanos() - reduction->started.nanos())));
    to.set_state(DescribeWaiting(*reduction));
    const auto root =
        reduction->placed.find({reduction->plan.RootNode(), reduction->plan.RootVersion()});
    if (root != reduction->placed.end()) to.set_watermark(root->second.watermark);
  }
}

void DirectoryCore::Impl::DescribeFolder(const Reduction& reduction, const NodeKey& node,
                                         const Generation& version,
                                         v1::ReductionDescription::Slot& out) const {
  ToProto(node, out.mutable_node());
  if (const Node* known = FindNode(node)) {
    out.set_node_name(known->info.name());
    out.set_connected(known->connected);
  }
  const auto placed = reduction.placed.find({node, version});
  if (placed == reduction.placed.end()) return;
  out.set_watermark(placed->second.watermark);
  out.set_bytes_per_second(placed->second.bytes_per_second);
  out.set_trouble(placed->second.trouble);
}

void DirectoryCore::Impl::DescribeReduction(const Reduction& reduction, Instant now,
                                            v1::ReductionDescription* out) const {
  constexpr int kMaxSlotsDescribed = 4096;
  constexpr int kMaxMissingDescribed = 256;
  const ReduceSpec& spec = reduction.plan.spec();
  const ReducePlan::View view = reduction.plan.Look();
  ToProto(spec, reduction.plan.root(), out->mutable_reduction());
  out->set_ready(view.ready);
  out->set_needed(spec.num_objects != 0 ? spec.num_objects : spec.sources.size());
  // As long as there are too few of them none is to spare, placed or not.
  const size_t needed = out->needed();
  out->set_spares(view.ready > needed ? view.ready - needed : 0);
  out->set_degree(view.degree);
  out->set_epoch(view.epoch);
  out->set_size_bytes(view.size_bytes);
  out->set_committed(reduction.committed());
  out->set_asking(reduction.askers.size());
  out->set_elapsed_ns(
      static_cast<uint64_t>(std::max<int64_t>(0, now.nanos() - reduction.started.nanos())));
  if (reduction.ring != nullptr) return DescribeRing(reduction, out);
  for (const ReducePlan::SlotView& slot : view.slots) {
    if (out->slots_size() == kMaxSlotsDescribed) break;
    v1::ReductionDescription::Slot& to = *out->add_slots();
    to.set_slot(slot.slot);
    to.set_parent(slot.parent);
    if (slot.version.valid()) ToProto(slot.version, to.mutable_version());
    for (const ObjectId& id : slot.own) to.add_source_ids(id.binary().data(), ObjectId::kSize);
    if (slot.node.valid()) DescribeFolder(reduction, slot.node, slot.version, to);
  }
  out->set_slots_left_out(view.slots.size() - out->slots_size());
  for (const ObjectId& source : spec.sources) {
    if (out->missing_source_ids_size() == kMaxMissingDescribed) break;
    if (!reduction.ready.contains(source)) {
      out->add_missing_source_ids(source.binary().data(), ObjectId::kSize);
    }
  }
}

}  // namespace phalanx::directory
