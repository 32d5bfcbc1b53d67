#include "src/directory/reductions/reduction_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/reductions/report/reduction_report.h"
#include "src/directory/reductions/ring_plan/measured_costs.h"
namespace phalanx::directory {
namespace {

// A fold that a node could not keep is placed again after this pause, which doubles each time.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr int kMaxDoublings = 5;
constexpr absl::string_view kPartsLost =
    "the shard restarted, and the nodes that are left do not have all sources that were added "
    "before";

}  // namespace

ReductionManager::ReductionManager(const ReductionParts& parts, DeletedResultListener& listener)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      tombstones_(parts.tombstones),
      failures_(parts.failures),
      holds_(parts.holds),
      links_(parts.links),
      catalog_(parts.context, parts.tombstones),
      rings_(parts, catalog_, watcher_, descriptors_, dispatcher_, commits_),
      watcher_(parts, catalog_, rings_),
      descriptors_(parts, catalog_, watcher_),
      dispatcher_(parts, watcher_, descriptors_),
      routes_(parts, dispatcher_),
      paces_(parts, catalog_, watcher_),
      commits_(parts, catalog_, watcher_),
      fold_recovery_(parts, catalog_, descriptors_, dispatcher_, commits_, listener) {}

void ReductionManager::ReplaceRoot(Object& object) {
  const Generation old = object.generation;
  const ObjectInfo info = object.info;
  const bool listed = object.copies.contains(old.creator);
  // Receivers drop what they pulled, because it is void. The creator keeps its copy until it is
  // sent SUPERSEDED, because it may be writing.
  objects_.VoidGeneration(object, "it is computed again", old.creator);
  if (listed) outbox_.SendSuperseded(old.creator, object.id, old, info);
}

absl::Status ReductionManager::OnReduce(Node& node, const v1::ReduceRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const ReductionId number, ParseReductionId(m.reduction()));
  const Reduction::Requester requester{node.key, node.session, m.request_id(), number};
  absl::StatusOr<ReduceSpec> spec = ParseReduction(m.reduction());
  absl::Status valid = spec.ok() ? ValidateReduceSpec(target, *spec) : spec.status();
  if (!valid.ok()) {
    AnswerReduce(target, requester, valid);
    return absl::OkStatus();
  }
  // A node that merely keeps the description waits for no answer, so the limit does not count it.
  const bool kept = requester.request_id == 0;
  if (!kept && catalog_.requesters() >= context_.options.max_reduce_requesters) {
    AnswerReduce(target, requester,
                 ReductionError(
                     target, absl::StatusCode::kResourceExhausted,
                     absl::StrCat(catalog_.requesters(), " requests wait for reductions already")));
    return absl::OkStatus();
  }
  // Before the running one is looked at: the request may name a reduction that ended, and must not
  // join, change or end the one that runs now.
  if (const auto over = AnswerOfEarlier(requester, target, *spec, m.again() || kept)) {
    AnswerReduce(target, requester, *over);
    return absl::OkStatus();
  }
  Reduction* reduction = catalog_.Find(target);
  const bool begins = reduction == nullptr;
  if (begins) {
    const bool which = number.valid() && !catalog_.HasEnded(target, number);
    if (const auto over = AnswerBeforeBegin(target, *spec, !which && (m.again() || kept))) {
      AnswerReduce(target, requester, *over);
      return absl::OkStatus();
    }
    // A part from the middle of an open list waits in Join until the parts before it arrive.
    ReduceSpec begun_with = *spec;
    if (m.reduction().first_source() > 0) begun_with.sources.clear();
    reduction = Begin(target, std::move(begun_with), FromProto(m.reduction().root()),
                      which ? number : ReductionId());
    if (reduction == nullptr) {
      AnswerReduce(target, requester,
                   ReductionError(target, absl::StatusCode::kResourceExhausted,
                                  absl::StrCat("the shard plans ", catalog_.all().size(),
                                               " others with ", catalog_.sources(), " sources")));
      return absl::OkStatus();
    }
    reduction->deadline = context_.now;  // until the first requester has named one
  }
  if (!descriptors_.Join(*reduction, *spec, m.reduction())) {
    AnswerReduce(target, requester,
                 ReductionError(target, absl::StatusCode::kAlreadyExists,
                                "another reduction with other sources or arguments is running"));
    if (kept && descriptors_.LacksSources(*reduction, *spec)) {
      End(*reduction, ReductionError(target, absl::StatusCode::kDataLoss, kPartsLost));
    } else if (begins) {
      End(*reduction, absl::CancelledError(), Outcome::kForgotten);
    }
    return absl::OkStatus();
  }
  const Instant deadline =
      m.timeout_ms() == 0
          ? Instant::Infinite()
          : context_.now + absl::Milliseconds(static_cast<int64_t>(
                               std::min<uint64_t>(m.timeout_ms(), uint64_t{1} << 40)));
  // The latest deadline counts: one requester's haste must not end what others wait for.
  reduction->deadline = std::max(reduction->deadline, deadline);
  AddRequester(*reduction, requester, m, begins);
  catalog_.SetTimer(*reduction, reduction->deadline);
  catalog_.Touch(target);
  return absl::OkStatus();
}

void ReductionManager::AddRequester(Reduction& reduction, const Reduction::Requester& requester,
                                    const v1::ReduceRequest& m, bool first) {
  const bool wants_ring =
      m.reduction().everybody() || reduction.plan.spec().order == ReduceSpec::Order::kRing;
  if (wants_ring && reduction.phase == ReductionPhase::kCollecting) {
    reduction.phase = ReductionPhase::kRingWanted;
  }
  // Owned only if all requesters agree: one that did not ask for it need not hold the result.
  reduction.requests.owned = m.owned() && (first || reduction.requests.owned);
  if (reduction.name.empty()) reduction.name = NameOf(m.reduction());
  Object* result = objects_.Find(reduction.target);
  if (result != nullptr) result->LearnName(reduction.name);
  const bool stays =
      !reduction.requests.owned && result != nullptr && !result->info.reduced_from.empty();
  if (stays) objects_.ClearOwned(*result);
  if (!m.again()) reduction.requests.has_new = true;
  if (!reduction.requests.first.valid()) reduction.requests.first = requester.node;
  // An earlier reduction of the target may have failed: Gets wait for this one.
  if (first) failures_.Erase(reduction.target);
  // Gets of a deleted target wait for this reduction instead of ending with NotFound.
  tombstones_.Revive(reduction.target);
  const bool open = reduction.plan.spec().open;
  if (requester.request_id == 0) {
    // The node keeps the description and waits for no answer; it is sent a forget at the end.
    (open ? reduction.replicas.parts : reduction.replicas.whole).insert(requester.node);
  } else {
    reduction.requests.waiting.push_back(requester);
    catalog_.AddRequesters(1);
    const size_t known_sources =
        m.reduction().first_source() + static_cast<size_t>(m.reduction().source_ids_size());
    if (open) reduction.requests.seen.insert(requester.key());
    if (open) descriptors_.Inform(reduction, requester.node, known_sources);
  }
  const bool tells = requester.id.valid() && !reduction.Is(requester.id);
  if (tells && !reduction.identity.confirmed &&
      !catalog_.HasEnded(reduction.target, requester.id)) {
    descriptors_.SetId(reduction, requester.id);
  } else if (tells || (reduction.identity.target_reused && requester.request_id != 0 &&
                       !requester.id.valid())) {
    descriptors_.SendPart(reduction, requester.node, 0);
  }
}

void ReductionManager::AnswerReduce(const ObjectId& target, const Reduction::Requester& requester,
                                    const absl::Status& status) {
  const Node* node = nodes_.Find(requester.node);
  // A node repeats its requests in a new session.
  if (node == nullptr || node->session != requester.session) return;
  if (requester.request_id == 0)
    return descriptors_.SendForget(requester.node, target, requester.id);
  v1::ReduceReply& reply = *outbox_.Send(requester.node).mutable_reduce_reply();
  reply.set_request_id(requester.request_id);
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
}

void ReductionManager::End(Reduction& reduction, const absl::Status& status, Outcome outcome) {
  status.ok() ? ++context_.counters.reductions_committed : ++context_.counters.reductions_failed;
  for (const Reduction::Requester& requester : reduction.requests.waiting) {
    AnswerReduce(reduction.target, requester, status);
  }
  catalog_.RemoveRequesters(reduction.requests.waiting.size());
  if (reduction.ring.plan != nullptr) {
    const Object* object = objects_.Find(reduction.target);
    const bool made =
        status.ok() && object != nullptr && object->generation == reduction.ring.plan->generation();
    // The members of a ring that made the result finish by themselves.
    if (!made) rings_.TakeBack(reduction);
  }
  routes_.EndAll(reduction);
  reduction.plan.Cancel();
  for (const ReduceEffect& effect : reduction.plan.TakeEffects()) {
    if (const auto* drop = std::get_if<DropFold>(&effect)) dispatcher_.Apply(reduction, *drop);
  }
  // Folds that were registered and never restored: their nodes hold memory for them.
  for (const auto& [node, fold] : reduction.registered) {
    dispatcher_.SendDrop(node, reduction.target, VersionFromProto(fold.version()));
  }
  absl::btree_set<NodeKey> holders = reduction.replicas.whole;
  holders.insert(reduction.replicas.parts.begin(), reduction.replicas.parts.end());
  // Clients that still hold an open reduction open let go of it, also on nodes that keep nothing.
  if (reduction.plan.spec().open) {
    for (const auto& [key, node] : nodes_.all()) {
      if (holds_.HeldBy(key, reduction.identity.open_hold)) holders.insert(key);
    }
  }
  for (const NodeKey& key : holders)
    descriptors_.SendForget(key, reduction.target, reduction.identity.id);
  // A retry whose answer was lost with its session asks for this outcome.
  if (outcome == Outcome::kRemembered) Remember(reduction, status);
  watcher_.UnwatchAll(reduction);
  const ObjectId target = reduction.target;
  catalog_.Erase(reduction);
  // A Put that stood by can be adopted now, and other reductions may have the target as a source.
  OnObjectChanged(target);
  if (Object* object = objects_.Find(target)) objects_.Reevaluate(*object);
}

bool ReductionManager::OnUnheld(const ObjectId& id) {
  const Reduction* reduction = catalog_.FindByOpenHold(id);
  if (reduction == nullptr) return false;
  catalog_.Touch(reduction->target);
  return true;
}

bool ReductionManager::Abandoned(const Reduction& reduction) const {
  const bool open = reduction.plan.spec().open && !reduction.plan.closed() &&
                    !reduction.replicas.closed_at.has_value();
  if (!open) return false;
  // Nodes can still register holds, and a close can be among the requests that wait.
  const bool known = !gate_.learning() && gate_.num_extends() == 0 && holds_.complete();
  return known && !holds_.Held(reduction.identity.open_hold);
}

void ReductionManager::EndAbandoned(Reduction& reduction) {
  const NodeKey first = reduction.requests.first;
  const std::string where =
      first.valid() ? absl::StrCat(" (it was opened on node ", nodes_.NameOf(first), ")") : "";
  const absl::Status why = ReductionError(
      reduction.target, absl::StatusCode::kCancelled,
      absl::StrCat("the last client that had opened it or added to it has ended, and none closed "
                   "it",
                   where, "; open it again, with a client that stays until it is closed"));
  // Before End, which refuses the Gets of the target that wait.
  failures_.Set(reduction.target, why);
  End(reduction, why);
}

absl::Status ReductionManager::OnFoldReport(Node& node, const v1::FoldReport& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const SlotVersion version, ParseVersion(m.version()));
  Reduction* reduction = catalog_.Find(target);
  const auto found = reduction == nullptr ? decltype(reduction->placed)::iterator()
                                          : reduction->placed.find({node.key, version});
  if (reduction == nullptr || found == reduction->placed.end()) {
    // A member of a finished ring may still wait for bytes that no node sends any more. Folds of an
    // earlier life of the shard continue until the plan begins.
    const bool known = !gate_.learning() && (reduction == nullptr || reduction->registered.empty());
    if (m.kind() == v1::FoldReport::FAILED && known)
      dispatcher_.SendDrop(node.key, target, version);
    return absl::OkStatus();
  }
  Reduction::Placed& placed = found->second;
  catalog_.Touch(target);
  if (rings_.IsMember(target, version, node.key)) {
    rings_.OnReport(*reduction, node.key, placed, m);
    return absl::OkStatus();
  }
  switch (m.kind()) {
    case v1::FoldReport::READY:
      commits_.OnReady(*reduction, node.key, version);
      return absl::OkStatus();
    case v1::FoldReport::PROGRESS:
      placed.watermark = m.watermark();
      placed.bytes_per_second = UsableRate(m.bytes_per_second());
      placed.trouble.clear();
      reduction->plan.OnProgress(version, m.watermark());
      return m.has_pace() ? paces_.OnPace(*reduction, node, placed, version, m.pace())
                          : absl::OkStatus();
    case v1::FoldReport::FAILED:
      OnFoldFailed(*reduction, node.key, placed, version, m);
      return absl::OkStatus();
    case v1::FoldReport::NO_MEMORY:
    case v1::FoldReport::DROPPED:
      placed.trouble = m.message();
      OnFoldGone(*reduction, node.key, placed, version);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("kind: a report of no kind this shard knows");
  }
}

void ReductionManager::OnFoldFailed(Reduction& reduction, const NodeKey& node,
                                    Reduction::Placed& placed, const SlotVersion& version,
                                    const v1::FoldReport& m) {
  placed.trouble = DescribeFailure(nodes_, node, m);
  dispatcher_.NoteArrived(reduction, node, version, m);
  if (m.code() == static_cast<int>(absl::StatusCode::kNotFound)) {
    const FoldTask* task = reduction.plan.Find(node, version);
    if (task != nullptr) NoteAbsent(reduction, *task, node, m.input());
    return;
  }
  // After the commit too: the root can have told its last bytes and still lack them.
  routes_.OnFailed(reduction, node, version, m);
}

void ReductionManager::OnFoldGone(Reduction& reduction, const NodeKey& node,
                                  Reduction::Placed& placed, const SlotVersion& version) {
  if (DefectActive(Defect::kLostFoldForgotten)) return;
  FoldDispatcher::ForgetArrived(reduction, {node, version});
  if (FoldRoutes::IsRelay(reduction, node, version)) {
    return routes_.OnRelayRefused(reduction, node, version);
  }
  // After a pause: a node without memory would refuse the same order at once.
  placed.again = context_.now + kFirstPause * (1 << std::min(placed.times_lost++, kMaxDoublings));
  reduction.LookAt({node, version}, placed, placed.again);
  catalog_.SetTimer(reduction, placed.look);
}

void ReductionManager::NoteAbsent(Reduction& reduction, const FoldTask& task, const NodeKey& node,
                                  size_t input) {
  if (input >= task.inputs.size() || task.inputs[input].kind != FoldInput::Kind::kSource) return;
  // The report crossed the commit: the source was folded meanwhile.
  if (reduction.plan.committed() && !task.root) return;
  const ObjectId source = task.inputs[input].source;
  const Generation generation = task.inputs[input].generation;
  if (!reduction.sources.absent.insert({source, generation, node}).second) return;
  watcher_.ReportSource(reduction, source);
  // The committed root waits for this source in vain. The plan starts over, and knows now that the
  // node does not hold it.
  if (!reduction.plan.committed()) return;
  reduction.commit.open_root = std::exchange(reduction.commit.root_generation, Generation());
  commits_.ForgetCommitted(reduction);
  reduction.plan.OnResultLost();
}

void ReductionManager::OnTimer(Reduction& reduction) {
  const auto end = [this, &reduction] {
    End(reduction, ReductionError(reduction.target, absl::StatusCode::kDeadlineExceeded,
                                  DescribeWaiting(reduction)));
  };
  if (reduction.commit.awaited_until <= context_.now) commits_.StopAwaiting(reduction);
  const bool passed = reduction.deadline <= context_.now;
  // While nodes register, one of them may bring a request with a later deadline.
  const bool over = passed && gate_.MayAdoptFromAbsence();
  if (over && !reduction.committed()) return end();
  // A committed result is about to be sealed, and a client may have read it already. So it is
  // waited for beyond the deadline, unless its node has lost it.
  Instant next = std::min(passed ? context_.now + context_.options.lease : reduction.deadline,
                          reduction.commit.awaited_until);
  std::vector<Reduction::FoldKey> lost;
  for (const Reduction::FoldKey& key : reduction.TakeDue(context_.now)) {
    Reduction::Placed& placed = reduction.placed.at(key);
    if (placed.again <= context_.now) {
      placed.again = Instant::Infinite();
      lost.push_back(key);
    }
    reduction.LookAt(key, placed, std::min(placed.again, paces_.OnTimer(reduction, key)));
  }
  if (!reduction.looks.empty()) next = std::min(next, reduction.looks.begin()->first);
  // Apart from the loop above: `next` is known then.
  for (const Reduction::FoldKey& key : lost) {
    const bool result = commits_.IsRoot(reduction.target, key.second, key.first);
    if (result && commits_.ResultUndecided(reduction)) continue;
    if (result && over) return end();
    if (result) commits_.ForgetCommitted(reduction);
    reduction.plan.OnFoldLost(key.first, key.second);
  }
  catalog_.SetTimer(reduction, next);
  catalog_.Touch(reduction.target);
}

void ReductionManager::ForgetRequesters(Reduction& reduction, const NodeKey& node) {
  catalog_.RemoveRequesters(std::erase_if(
      reduction.requests.waiting,
      [&node](const Reduction::Requester& requester) { return requester.node == node; }));
}

void ReductionManager::NodeDown(const NodeKey& key) {
  watcher_.NodeDown(key);
  fold_recovery_.Forget(key);
  // Changes of sources come first, so that the plan can move folds to their other holders.
  watcher_.RunChanges();
  for (const auto& [target, reduction] : catalog_.all()) {
    rings_.MemberLost(*reduction, key);
    const auto first = reduction->placed.lower_bound({key, SlotVersion()});
    auto last = first;
    for (; last != reduction->placed.end() && last->first.first == key; ++last) {
      FoldDispatcher::ForgetArrived(*reduction, last->first);
    }
    const bool folded_there = first != last;
    reduction->placed.erase(first, last);
    reduction->slow_nodes.erase(key);
    descriptors_.ForgetReplica(*reduction, key);
    ForgetRequesters(*reduction, key);
    const bool undecided =
        reduction->plan.RootNode() == key && commits_.ResultUndecided(*reduction);
    // The plan is not notified yet: it would compute another result beside one that clients may
    // have read.
    if (undecided || reduction->commit.awaited.contains(key)) {
      reduction->commit.lost_roots.insert(key);
    } else {
      reduction->plan.OnNodeDown(key);
    }
    if (folded_there) watcher_.ReportUnplaced(*reduction);
    if (reduction->sources.watch_proxy == key) reduction->sources.watch_proxy = NodeKey();
    catalog_.Touch(target);
  }
}

void ReductionManager::SessionBegins(const NodeKey& key) {
  watcher_.NodeDown(key);
  fold_recovery_.Forget(key);
  for (const auto& [target, reduction] : catalog_.all()) {
    ForgetRequesters(*reduction, key);
    descriptors_.ForgetReplica(*reduction, key);
    rings_.MemberLost(*reduction, key);
    routes_.SessionBegins(*reduction, key);
    if (reduction->sources.watch_proxy == key) reduction->sources.watch_proxy = NodeKey();
    for (auto at = reduction->placed.lower_bound({key, SlotVersion()});
         at != reduction->placed.end() && at->first.first == key; ++at) {
      // Marked, not dropped: the folds continue on the node, which registers them.
      at->second.registered = false;
    }
    catalog_.Touch(target);
  }
}

void ReductionManager::SessionRegistered(const NodeKey& key) {
  for (const auto& [target, reduction] : catalog_.all()) {
    std::vector<SlotVersion> lost;
    for (auto at = reduction->placed.lower_bound({key, SlotVersion()});
         at != reduction->placed.end() && at->first.first == key; ++at) {
      if (!at->second.registered) lost.push_back(at->first.second);
    }
    // What the node did not register it does not have: the folds are placed again.
    for (const SlotVersion& version : lost) {
      const bool root = commits_.IsRoot(target, version, key);
      if (root && commits_.ResultUndecided(*reduction)) continue;
      if (root) commits_.ForgetCommitted(*reduction);
      reduction->plan.OnFoldLost(key, version);
    }
    commits_.CommittedIsBack(*reduction, key);
    // The node may be the first that can be the watch proxy.
    const bool unwatched =
        reduction->sources.has_foreign && !reduction->sources.watch_proxy.valid();
    if (!lost.empty() || unwatched) catalog_.Touch(target);
  }
}

void ReductionManager::RunPending() {
  // Until neither is left: a reduction that ends changes its target, which can be a source of
  // another.
  while (watcher_.has_changes() || catalog_.has_touched()) {
    watcher_.RunChanges();
    if (!catalog_.has_touched()) continue;
    if (Reduction* reduction = catalog_.Find(catalog_.TakeTouched())) Run(*reduction);
  }
}

void ReductionManager::Run(Reduction& reduction) {
  const Object* object = objects_.Find(reduction.target);
  const bool adopted = object != nullptr && object->adopted();
  // A provisional generation may give way to one that an earlier life adopted, perhaps the result.
  if (adopted && object->copies.complete() > 0 && !object->provisional) {
    if (object->info.reduced_from.empty()) {
      return End(reduction,
                 ReductionError(reduction.target, absl::StatusCode::kAlreadyExists,
                                "an object that is not its result was put under this id"));
    }
    const std::string differ = DifferenceFrom(reduction.plan.spec(), *object);
    if (differ.empty()) return End(reduction, absl::OkStatus());
    return End(reduction,
               ReductionError(
                   reduction.target, absl::StatusCode::kAlreadyExists,
                   absl::StrCat("the target has the result of another reduction; what differs: ",
                                differ)));
  }
  if (Abandoned(reduction)) return EndAbandoned(reduction);
  // One node has registered a part of the list; another node may follow with the rest.
  const Instant patience = reduction.started + context_.options.lease;
  const bool waits = descriptors_.HasGap(reduction) && context_.now < patience;
  if (reduction.phase != ReductionPhase::kPlanned && waits) catalog_.SetTimer(reduction, patience);
  if (rings_.Run(reduction)) return watcher_.ChooseProxy(reduction);
  // The fold of a tree has other bits. The requester can ask for slices in that order.
  if (reduction.plan.spec().order == ReduceSpec::Order::kRing &&
      !DefectActive(Defect::kRingOrderInTree)) {
    return End(reduction, ReductionError(reduction.target, absl::StatusCode::kFailedPrecondition,
                                         "its sources make no ring, or their ring has broken"));
  }
  // A shard that restarted waits until it has learned: nodes may have folds of an earlier plan, and
  // a new one would start them over.
  if (reduction.phase != ReductionPhase::kPlanned && gate_.MayAdoptFromAbsence() && !waits) {
    if (absl::Status status = BeginPlan(reduction); !status.ok()) {
      return End(reduction, status);
    }
  }
  watcher_.ChooseProxy(reduction);
  if (reduction.plan.committed() && reduction.commit.awaited.empty()) {
    const bool announced = reduction.commit.root_generation.valid();
    const bool gone =
        announced ? !commits_.ResultUndecided(reduction) && !commits_.RootStandsBy(reduction)
                  : !reduction.commit.lost_roots.empty() ||
                        nodes_.Find(reduction.plan.RootNode()) == nullptr;
    if (gone) commits_.PlanAgain(reduction);
  }
  if (reduction.commit.root_ready && !commits_.RootStandsBy(reduction)) {
    reduction.commit.root_ready = false;
    reduction.plan.OnReady(reduction.plan.RootNode(), reduction.plan.RootVersion());
  }
  context_.counters.reduce_sources_examined += reduction.plan.TakeExamined();
  context_.counters.slow_replaced += reduction.plan.TakeSwaps();
  for (const ReduceEffect& effect : reduction.plan.TakeEffects()) {
    if (const auto* place = std::get_if<PlaceFold>(&effect)) routes_.Apply(reduction, *place);
    if (const auto* drop = std::get_if<DropFold>(&effect)) dispatcher_.Apply(reduction, *drop);
    if (const auto* commit = std::get_if<CommitFold>(&effect))
      dispatcher_.Apply(reduction, *commit);
    if (const auto* end = std::get_if<EndReduction>(&effect)) {
      return End(reduction, end->why);
    }
  }
  routes_.Refresh(reduction);
}

absl::Status ReductionManager::BeginPlan(Reduction& reduction) {
  reduction.phase = ReductionPhase::kPlanned;
  if (descriptors_.HasGap(reduction))
    return ReductionError(reduction.target, absl::StatusCode::kDataLoss, kPartsLost);
  reduction.plan.SetCosts(MeasuredCosts(links_));
  // Before Begin, so that the sources get their old slots and the folds keep their versions.
  fold_recovery_.Restore(reduction);
  // After a restart of the shard, the root's node may not have registered.
  const NodeKey root = reduction.plan.root();
  if (root.valid() && nodes_.Find(root) == nullptr) reduction.plan.OnNodeDown(root);
  reduction.plan.Begin();
  std::vector<ReduceEffect> effects = reduction.plan.TakeEffects();
  for (const ReduceEffect& effect : effects) {
    if (const auto* place = std::get_if<PlaceFold>(&effect)) routes_.Apply(reduction, *place);
  }
  // After the plan has placed its folds: what it did not place again is of no use to it.
  for (const auto& [node, fold] : std::exchange(reduction.registered, {})) {
    const SlotVersion version = VersionFromProto(fold.version());
    if (!reduction.placed.contains({node, version})) {
      dispatcher_.SendDrop(node, reduction.target, version);
    } else {
      fold_recovery_.Continue(reduction, node, fold);
    }
  }
  for (const ReduceEffect& effect : effects) {
    const auto* end = std::get_if<EndReduction>(&effect);
    if (end != nullptr) return end->why;
  }
  return absl::OkStatus();
}

Reduction* ReductionManager::Begin(const ObjectId& target, ReduceSpec spec, const NodeKey& root,
                                   const ReductionId& id) {
  const std::vector<ObjectId> sources = spec.sources;
  Reduction* reduction = catalog_.Begin(target, std::move(spec), root, id);
  if (reduction == nullptr) return nullptr;
  ++context_.counters.reductions;
  watcher_.Watch(*reduction, sources);
  catalog_.Touch(target);
  return reduction;
}

absl::Status ReductionManager::OnCreate(Node& node, const v1::AnnounceCreate& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(Announcement announced, ParseAnnouncement(m));
  ++context_.counters.creates;
  const SlotVersion version = VersionFromProto(m.version());
  if (rings_.IsMember(id, version, node.key)) {
    return rings_.OnCreate(node, id, std::move(announced));
  }
  if (!commits_.IsRoot(id, version, node.key)) {
    // The plan has changed since, or the reduction has ended. The node drops what it made as if
    // another object of the same size had been put before.
    dispatcher_.SendDrop(node.key, id, version);
    outbox_.SendSuperseded(node.key, id, announced.generation, announced.info);
    return absl::OkStatus();
  }
  return OnRootCreate(node, id, std::move(announced));
}

absl::Status ReductionManager::OnRootCreate(Node& node, const ObjectId& id,
                                            Announcement announced) {
  const Generation generation = announced.generation;
  PHALANX_ASSIGN_OR_RETURN(Object* const object, objects_.BeginCreate(node, id, generation));
  if (object == nullptr) return absl::OkStatus();
  Reduction& reduction = *catalog_.Find(id);
  const bool other = object->adopted() && object->generation != generation;
  // A node may have every byte of any other generation: that one is waited for, and this one stands
  // by.
  if (other && object->generation == reduction.commit.open_root) ReplaceRoot(*object);
  reduction.commit.root_generation = generation;
  // Not after a commit: then some node may have every byte, and it must not be replaced.
  reduction.commit.open_root = reduction.plan.committed() ? Generation() : generation;
  PHALANX_RETURN_IF_ERROR(
      objects_.FinishCreate(*object, node, std::move(announced), gate_.MayAdoptFromAbsence()));
  // A requester that wants the result to stay may have joined since the root was placed.
  const bool adopted = object->IsAdopted(generation);
  if (adopted && !catalog_.Find(id)->requests.owned) objects_.ClearOwned(*object);
  objects_.Reevaluate(*object);
  return absl::OkStatus();
}

void ReductionManager::OnObjectChanged(const ObjectId& id) {
  watcher_.NoteChange(id);
  if (catalog_.Find(id) != nullptr) catalog_.Touch(id);
}

std::optional<Generation> ReductionManager::PlannedResult(const ObjectId& id) const {
  const Reduction* reduction = catalog_.Find(id);
  if (reduction == nullptr) return std::nullopt;
  return reduction->commit.root_generation;
}

void ReductionManager::NodeAdded() {
  if (context_.options.num_shards > 1) watcher_.NodeUp();
}

void ReductionManager::NodeConnected() {
  for (const auto& [target, reduction] : catalog_.all()) {
    if (reduction->sources.has_foreign && !reduction->sources.watch_proxy.valid())
      catalog_.Touch(target);
  }
}

void ReductionManager::EndLearning() {
  // Folds before plans, and plans before extensions, which need the whole list.
  fold_recovery_.HandOut();
  for (const auto& [target, reduction] : catalog_.all()) catalog_.Touch(target);
  RunPending();
  descriptors_.EndLearning();
  // What waited could have closed an open reduction that no client holds open any more.
  for (const auto& [target, reduction] : catalog_.all()) catalog_.Touch(target);
  RunPending();
  // Deadlines that passed meanwhile count from here on.
  for (const auto& [target, reduction] : catalog_.all()) {
    if (reduction->deadline <= context_.now) catalog_.SetTimer(*reduction, context_.now);
  }
}

void ReductionManager::Tick() {
  while (Reduction* reduction = catalog_.TakeDue()) OnTimer(*reduction);
}

ReductionManager::Cancelled ReductionManager::CancelDeleted(const ObjectId& target) {
  Reduction* reduction = catalog_.Find(target);
  if (reduction == nullptr) return {};
  // Read first: End erases the reduction.
  const Cancelled cancelled{true, reduction->identity.id, reduction->commit.root_generation};
  End(*reduction, ReductionError(target, absl::StatusCode::kNotFound, "its target was deleted"));
  return cancelled;
}

void ReductionManager::OnResultDeleted(const ObjectId& target) {
  Reduction* reduction = catalog_.Find(target);
  if (reduction == nullptr) return;
  // A deleted result need not be waited for, wherever it may still be.
  reduction->commit.awaited.clear();
  catalog_.Touch(target);
}

bool ReductionManager::ClearOwned(const ObjectId& target) {
  Reduction* reduction = catalog_.Find(target);
  if (reduction != nullptr) reduction->requests.owned = false;
  return reduction != nullptr;
}

absl::Status ReductionManager::CheckInvariants() const {
  for (const auto& [target, reduction] : catalog_.all()) {
    const auto broken = [&target = target](absl::string_view what) {
      return absl::InternalError(absl::StrCat("reduction of ", target.hex(), ": ", what));
    };
    if (absl::Status status = reduction->plan.CheckInvariants(); !status.ok()) {
      return broken(status.message());
    }
    for (const auto& [key, placed] : reduction->placed) {
      if (nodes_.Find(key.first) == nullptr) {
        return broken("a fold is placed at a node that is down");
      }
      const bool member = rings_.IsMember(target, key.second, key.first);
      const bool relay = FoldRoutes::IsRelay(*reduction, key.first, key.second);
      if (!member && !relay && reduction->plan.Find(key.first, key.second) == nullptr) {
        return broken("a fold is placed that the plan does not know");
      }
    }
    if (absl::Status status = routes_.CheckInvariants(*reduction); !status.ok()) {
      return broken(status.message());
    }
  }
  if (absl::Status status = watcher_.CheckInvariants(); !status.ok()) return status;
  if (absl::Status status = fold_recovery_.CheckInvariants(); !status.ok()) return status;
  return catalog_.CheckInvariants();
}

}  // namespace phalanx::directory
