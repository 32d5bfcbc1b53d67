// What nodes report of their pulls, and pulls of nodes that register again.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/pulls/pull_scheduler.h"

namespace phalanx::directory {
namespace {

// A completion counts under any plan of the current adoption. Under an earlier plan it is void: the
// shard has sent Gone, so the node has dropped the bytes by the time it reads a newer plan (or has
// kept them, and reports so under that plan).
bool ReportsCurrentPull(const Object& object, const NodeKey& key, PlanId plan, PlanId last_plan) {
  if (plan >= object.first_plan && plan <= last_plan) return true;
  const auto copy = object.copies.find(key);
  return copy != object.copies.end() && copy->second.registered;
}

}  // namespace

absl::Status PullScheduler::OnPullReport(Node& node, const v1::PullReport& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  PHALANX_RETURN_IF_ERROR(ValidateWatermarkCount(m.watermarks()));
  if (tombstones_.Refuses(id, generation) && m.complete() &&
      DefectActive(Defect::kLateCompletionAfterDelete)) {
    Object& object = objects_.GetOrCreate(id);
    if (!object.adopted())
      objects_.Adopt(object, node, generation, ObjectInfo(), true, /*notify=*/false);
    return absl::OkStatus();
  }
  Object* object = objects_.Find(id);
  if (object == nullptr || !object->IsAdopted(generation)) {
    ++context_.counters.late_messages;
    if (m.complete()) RefuseCompletion(node, id, generation);
    return absl::OkStatus();
  }
  // Only now: the number and the size of the slices are those of the adopted generation.
  PHALANX_RETURN_IF_ERROR(ValidateWatermarks(object->info, m.watermarks()));
  if (m.complete() && !ReportsCurrentPull(*object, node.key, m.plan_id(), context_.last_plan)) {
    ++context_.counters.late_messages;
    return absl::OkStatus();
  }
  // Before the copy is completed or requeued, which ends the feed that is measured.
  MeasurePull(*object, node.key, m);
  const auto want = object->wants.find(node.key);
  if (m.complete()) {
    ++context_.counters.pulls_completed;
    // Lists the copy if it is not listed: whatever became of the want meanwhile, the node has every
    // byte.
    Copy& copy = objects_.AddCopy(*object, node);
    // A completed pull shows that the two nodes reach each other again.
    if (copy.pull != nullptr) {
      planner_.pairs().Forget(node.key, copy.pull->sender);
      planner_.pairs().Forget(node.key, copy.pull->second_sender);
    }
    objects_.ConfirmCopy(*object, copy);
    objects_.CompleteCopy(*object, node.key);
    listener_.OnReported(*object, node.key, m.plan_id(), m.primary());
  } else if (want != object->wants.end()) {
    PullFailed(*object, node, want->second, m);
  }
  objects_.Reevaluate(*object);
  return absl::OkStatus();
}

// The node has a complete copy of a generation that is not adopted. It is asked to drop the copy:
// otherwise it would hold a copy that the shard does not list.
void PullScheduler::RefuseCompletion(Node& node, const ObjectId& id, const Generation& generation) {
  if (Tombstone* tombstone = tombstones_.FindRefusing(id, generation)) {
    // The tombstone must outlive the copy, which the node registers in its next session if this
    // Gone is lost with the present one.
    tombstones_.AwaitConfirm(*tombstone, generation, node.key, node.session);
    outbox_.SendDeleted(node.key, id, generation, tombstone->by_ttl);
    return;
  }
  const Object* object = objects_.Find(id);
  // SUPERSEDED only while another generation is complete. Without one, VOID lets a Get on that node
  // continue to wait for the object.
  if (object != nullptr && object->adopted() && object->copies.complete() > 0) {
    outbox_.SendVerdict(node.key, id, generation, v1::Verdict::SUPERSEDED, object->generation,
                        object->info);
    return;
  }
  outbox_.SendVoid(node.key, id, generation,
                   "the generation was given up before this copy was complete");
}

// Only the current plan's report measures the link between this sender and this receiver.
void PullScheduler::MeasurePull(Object& object, const NodeKey& receiver, const v1::PullReport& m) {
  const auto copy = object.copies.find(receiver);
  if (copy == object.copies.end()) return;
  const double rate = UsableRate(m.bytes_per_second());
  // Kept without a current plan, too: the bytes stay at the node, and its next pull continues
  // there.
  if (!m.complete()) copy->second.watermarks.assign(m.watermarks().begin(), m.watermarks().end());
  if (PullRecord* record = copy->second.pull.get()) {
    record->bytes_received += m.bytes_received();
    record->starved_ns = std::max(record->starved_ns, m.starved_ns());
    if (rate > 0) record->bytes_per_second = rate;
  }
  for (const RelayTree* tree : object.trees.all()) {
    RelayTree::Member* member = tree->Find(receiver);
    if (member == nullptr || member->sender() == nullptr) continue;
    // The report of an earlier plan still says how much the node has, but nothing about this
    // sender.
    member->progress.bytes = m.complete() ? tree->size_bytes() : tree->BytesOf(m.watermarks());
    const RelayTree::Feed& feed = *member->feeds.front();
    if (feed.plan != m.plan_id()) continue;
    const Endpoint& sender = member->sender()->endpoint;
    LinkModel& links = planner_.links();
    links.RecordLatency(sender, member->endpoint, UsableLatency(m.first_byte_ns()), context_.now);
    links.RecordRate(sender, member->endpoint, rate, planner_.SharedBy(feed, feed.since),
                     context_.now);
  }
}

void PullScheduler::PullFailed(Object& object, Node& node, Want& want, const v1::PullReport& m) {
  RelayTree* const tree = object.trees.Of(node.key, m.plan_id());
  // The pull of one half has brought every byte of it, or an earlier one has.
  const bool done = tree == nullptr || (object.trees.second != nullptr &&
                                        tree->BytesOf(m.watermarks()) == tree->size_bytes());
  if (m.code() == 0 && done) {
    if (DefectActive(Defect::kHalfTakenForAll)) objects_.CompleteCopy(object, node.key);
    return;
  }
  const auto copy = object.copies.find(node.key);
  PullRecord* record = copy == object.copies.end() ? nullptr : copy->second.pull.get();
  // The node has not received every byte, so a decision about the generation need not wait for it.
  const bool of_last_plan = record != nullptr && (record->plan == m.plan_id() || record->plan == 0);
  if (of_last_plan || (record != nullptr && tree != nullptr)) {
    record->reported = true;
    objects_.EndFinalReport(object, node.key);
  }
  NodeKey sender = want.outside_sender;
  if (!sender.valid() && tree == nullptr) {
    if (want.state == WantState::kPulling && DefectActive(Defect::kOldPlanEndsNewPlan)) {
      EndFeeds(object, node.key);
      want.state = WantState::kPulling;
      ++node.pulls;
      return;
    }
    // Another plan has replaced that pull, or the shard has ended it itself, because it had removed
    // the sender.
    ++context_.counters.late_messages;
    return;
  }
  if (!sender.valid()) sender = tree->Find(node.key)->sender()->endpoint.node;
  if (object.trees.second != nullptr && DefectActive(Defect::kFailedHalfForgotten)) return;
  ++context_.counters.pulls_failed;
  ++context_.counters.repairs;
  const auto code = static_cast<absl::StatusCode>(m.code());
  // Before Requeue: the next plan would otherwise choose the same sender again.
  planner_.pairs().Remember(node.key, sender, code, context_.now);
  if (record != nullptr) ++record->repairs;
  RequeueIn(object, node.key, tree);
  if (!planner_.pairs().Cut(node.key, sender, context_.now)) return;
  if (object.trees.second == nullptr) return SwapWithDescendants(object, node.key, sender);
  // The ways around cut pairs are of all slices.
  RelayTree::Member* member = tree == nullptr ? nullptr : tree->Find(node.key);
  if (member != nullptr && planner_.Choose(*tree, member, context_.now).troubled) {
    Replant(object, /*in_halves=*/false);
  }
}

// Two nodes that cannot reach each other may both reach the receiver's descendants: these are moved
// to the sender, and the receiver pulls from them.
void PullScheduler::SwapWithDescendants(Object& object, const NodeKey& receiver,
                                        const NodeKey& sender) {
  RelayTree::Member* member =
      object.trees.first == nullptr ? nullptr : object.trees.first->Find(receiver);
  if (member == nullptr || member->first_receiver == nullptr) return;
  // Another node can still feed the receiver: its own receivers keep their pulls.
  if (!planner_.Choose(*object.trees.first, member, context_.now).troubled) return;
  RequeueReceivers(object, *object.trees.first, *member, sender);
}

void PullScheduler::RequeueReceivers(Object& object, RelayTree& tree,
                                     const RelayTree::Member& sender, const NodeKey& unreached) {
  std::vector<const RelayTree::Member*> senders = {&sender};
  while (!senders.empty()) {
    const RelayTree::Member& from = *senders.back();
    if (from.first_receiver == nullptr) {
      senders.pop_back();
      continue;
    }
    // Requeue unlinks the first receiver from the sender's list, so the loop ends.
    const RelayTree::Member* const to = from.first_receiver->receiver;
    const NodeKey receiver = to->endpoint.node;
    RequeueIn(object, receiver, &tree);
    ++context_.counters.repairs;
    if (Copy& copy = object.copies.at(receiver); copy.pull != nullptr) ++copy.pull->repairs;
    if (planner_.pairs().Cut(receiver, unreached, context_.now)) senders.push_back(to);
  }
}

absl::Status PullScheduler::OnProgress(Node& node, const v1::Progress& m) {
  // All of the message is checked first: a bad entry must not leave the earlier ones applied.
  for (const v1::Progress::Pull& pull : m.pulls()) {
    PHALANX_RETURN_IF_ERROR(ParseObjectId(pull.object_id()).status());
    PHALANX_RETURN_IF_ERROR(ParseGeneration(pull.generation()).status());
    PHALANX_RETURN_IF_ERROR(ValidateWatermarkCount(pull.watermarks()));
  }
  const bool room_came = m.used_bytes() < node.info.used_bytes();
  node.info.set_used_bytes(m.used_bytes());
  if (room_came) listener_.OnRoomFreed();
  for (const v1::Progress::Pull& pull : m.pulls()) NotePullProgress(node, pull);
  return absl::OkStatus();
}

void PullScheduler::NotePullProgress(Node& node, const v1::Progress::Pull& pull) {
  Object* object = objects_.Find(*ParseObjectId(pull.object_id()));
  if (object == nullptr || !object->IsAdopted(FromProto(pull.generation())) ||
      !ValidateWatermarks(object->info, pull.watermarks()).ok()) {
    return;
  }
  const auto copy = object->copies.find(node.key);
  if (copy == object->copies.end() || copy->second.complete()) return;
  copy->second.watermarks.assign(pull.watermarks().begin(), pull.watermarks().end());
  objects_.NoteChange(object->id);
  RelayTree* const tree = object->trees.Of(node.key, pull.plan_id());
  if (tree == nullptr) return;
  RelayTree::Member* const member = tree->Find(node.key);
  const double rate = UsableRate(pull.bytes_per_second());
  copy->second.pull->bytes_per_second = rate;
  for (const RelayTree* other : object->trees.all()) {
    if (other == tree) continue;
    copy->second.pull->bytes_per_second += other->Find(node.key)->progress.bytes_per_second;
  }
  copy->second.pull->starved_ns = pull.starved_ns();
  // The node pulls under its current plan, from a sender that is not complete either: it does not
  // have every byte. Of two senders, the other can be complete.
  if (object->trees.second == nullptr && object->final_reports.awaited.contains(node.key)) {
    objects_.EndFinalReport(*object, node.key);
    if (object->final_reports.awaited.empty()) return objects_.Reevaluate(*object);
  }
  // The sender is disconnected, and its receiver reports no progress: the receiver is moved before
  // the lease ends. A sender that still delivers keeps its receiver.
  const Node* sender = nodes_.Find(member->sender()->endpoint.node);
  // Before OnProgress, which overwrites the bytes that the last report named.
  const uint64_t bytes = tree->BytesOf(pull.watermarks());
  const bool silent = bytes <= member->progress.bytes;
  if (sender != nullptr && !sender->connected && silent) {
    return MoveToBetterSender(*object, *tree, member);
  }
  if (pull.connecting()) return NoteUnconnected(*object, *tree, member);
  const PullPlanner::Sample sample{
      .bytes = bytes,
      .bytes_per_second = rate,
      .starved_ns = pull.starved_ns(),
      .window = UsableLatency(pull.window_ns()),
      .window_starved = UsableLatency(pull.window_starved_ns()),
      .silent = UsableLatency(pull.silent_ns()),
  };
  for (RelayTree::Member* slow : planner_.OnProgress(*tree, member, sample, context_.now)) {
    MoveToBetterSender(*object, *tree, slow);
  }
}

// A connection can be slow, so the node continues to connect until it is given another sender. If
// only its own receivers could be that sender, they are planned again first. If only a relay could,
// the receiver waits for it: it is no sender meanwhile.
void PullScheduler::NoteUnconnected(Object& object, RelayTree& tree, RelayTree::Member* receiver) {
  const NodeKey key = receiver->endpoint.node;
  const NodeKey sender = receiver->sender()->endpoint.node;
  // Each time, also of a pair that is known: the pause keeps the sender from being chosen again
  // before the receivers below have one.
  planner_.pairs().Remember(key, sender, absl::StatusCode::kDeadlineExceeded, context_.now);
  if (!planner_.Choose(tree, receiver, context_.now).troubled) {
    return MoveToBetterSender(object, tree, receiver);
  }
  // The ways around cut pairs are of all slices.
  if (object.trees.second != nullptr) {
    Replant(object, /*in_halves=*/false);
    return objects_.Reevaluate(object);
  }
  // A relay that reaches no sender is replaced, and so is one that its receiver does not reach.
  if (receiver->first_receiver == nullptr && !routes_.Around(object, key)) {
    return FollowRoutes(object);
  }
  Requeue(object, key);
  RequeueReceivers(object, tree, *receiver, sender);
  objects_.Reevaluate(object);
}

void PullScheduler::MoveToBetterSender(Object& object, RelayTree& tree,
                                       RelayTree::Member* receiver) {
  const NodeKey key = receiver->endpoint.node;
  Node* node = nodes_.Find(key);
  const PullPlanner::Choice choice =
      planner_.Choose(tree, receiver, context_.now, receiver->progress.blamed);
  if (choice.sender == nullptr || choice.sender == receiver->sender() || node == nullptr) return;
  // Only now that a better sender is known: a pull that works, however slowly, is not given up for
  // none.
  RequeueIn(object, key, &tree);
  ++context_.counters.relieved;
  Assign(object, tree, *node, object.wants.at(key), choice);
}

absl::Status PullScheduler::OnRegisterWant(Node& node, const v1::RegisterWant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const ObjectName name, ParseNameOf(m));
  if (DefectActive(Defect::kWaiterDroppedAtRestart)) return absl::OkStatus();
  Object& object = objects_.GetOrCreate(id);
  object.LearnName(name);
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  // Until RegisterEnd the node may still register a copy of the object, or the sender that it pulls
  // from. A plan before that would replace a pull that works.
  if (node.registering) asked.state = WantState::kHeld;
  AddWant(object, node, asked);
  // A want that was open before is not held: the end of the registration does not plan it.
  const auto want = object.wants.find(node.key);
  const bool held = want != object.wants.end() && want->second.state == WantState::kHeld;
  held ? objects_.ReleaseIfEmpty(object) : objects_.Reevaluate(object);
  return absl::OkStatus();
}

bool PullScheduler::AdmitRegisteredWant(Object& object, Node& node) {
  const auto found = object.wants.find(node.key);
  if (found == object.wants.end() || found->second.state != WantState::kHeld) return false;
  Want& want = found->second;
  want.state = WantState::kWaiting;
  if (gate_.learning()) AdmitOutsidePulls(object, node.key);
  const auto copy = object.copies.find(node.key);
  if (copy == object.copies.end() || !copy->second.registered_sender.valid()) return true;
  const NodeKey sender = std::exchange(copy->second.registered_sender, NodeKey());
  if (LinkRegisteredPull(object, node, want, sender) || !gate_.learning()) return true;
  // One that has registered has no copy.
  const Node* from = nodes_.Find(sender);
  if (from != nullptr && !from->registering) return true;
  // The sender may still register: until the gate opens, the pull counts as running.
  want.outside_sender = sender;
  BeginPulling(object, node, want);
  // Counts as rooted, so that other receivers can be fed by it meanwhile.
  RelayTree& tree = Tree(object);
  tree.SetFedFromOutside(Join(object, tree, node.key, copy->second), true);
  return true;
}

bool PullScheduler::LinkRegisteredPull(Object& object, Node& node, Want& want,
                                       const NodeKey& sender) {
  const auto copy = object.copies.find(sender);
  if (copy == object.copies.end() || copy->second.stale) return false;
  // What the node pulls is not what either tree is of.
  if (object.trees.second != nullptr) return false;
  RelayTree& tree = Tree(object);
  RelayTree::Member* from = Join(object, tree, sender, copy->second);
  RelayTree::Member* to = Join(object, tree, node.key, object.copies.at(node.key));
  // What several nodes register need not fit together. A cycle would never get a byte, so a pull
  // that would close one is planned again.
  tree.MarkDownstream(to);
  if (tree.Downstream(*from)) return false;
  tree.SetFedFromOutside(to, false);
  tree.Attach(to, from, /*plan=*/0, ~uint64_t{0}, /*occupies=*/true, context_.now);
  // Pulls continue through a registration.
  tree.KeepWhole();
  // Otherwise the first report would be taken for the progress since the start of the clock.
  to->progress.at = to->progress.interval_began = context_.now;
  planner_.PullBegan(sender, node.key);
  want.outside_sender = NodeKey();
  if (want.state != WantState::kPulling) BeginPulling(object, node, want);
  return true;
}

void PullScheduler::AdmitOutsidePulls(Object& object, const NodeKey& sender) {
  if (object.trees.first == nullptr) return;
  // Neither call below adds or erases a want, so the loop's iterator stays valid.
  for (auto& [key, want] : object.wants) {
    if (!want.outside_sender.valid() || want.outside_sender != sender) continue;
    Node* node = nodes_.Find(key);
    if (!LinkRegisteredPull(object, *node, want, sender)) Requeue(object, key);
  }
}

}  // namespace phalanx::directory
