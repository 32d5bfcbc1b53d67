// What nodes report of their pulls, and pulls of nodes that register again.
#include <algorithm>
#include <utility>

#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/pulls/pull_scheduler.h"

namespace phalanx::directory {
namespace {

// A connection that broke once is made again.
constexpr int kFailuresToSwap = 2;

uint64_t Sum(const google::protobuf::RepeatedField<uint64_t>& watermarks) {
  uint64_t sum = 0;
  for (const uint64_t watermark : watermarks) sum += watermark;
  return sum;
}

}  // namespace

absl::Status PullScheduler::OnPullReport(Node& node, const v1::PullReport& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  PHALANX_RETURN_IF_ERROR(ValidateWatermarkCount(m.watermarks()));
  if (tombstones_.Refuses(id, generation) && m.complete() &&
      DefectActive(Defect::kLateCompletionAfterDelete)) {
    Object& object = objects_.GetOrCreate(id);
    if (!object.adopted)
      objects_.Adopt(object, node, generation, ObjectInfo(), true, /*notify=*/false);
    return absl::OkStatus();
  }
  Object* object = objects_.Find(id);
  if (object == nullptr || !object->adopted || object->generation != generation) {
    ++context_.counters.late_messages;
    if (m.complete()) RefuseCompletion(node, id, generation);
    return absl::OkStatus();
  }
  PHALANX_RETURN_IF_ERROR(ValidateWatermarks(object->info, m.watermarks()));
  if (m.complete() && !ReportsCurrentPull(*object, node.key, m.plan_id())) {
    ++context_.counters.late_messages;
    return absl::OkStatus();
  }
  MeasurePull(*object, node.key, m);
  const auto want = object->wants.find(node.key);
  if (m.complete()) {
    ++context_.counters.pulls_completed;
    Copy& copy = objects_.AddCopy(*object, node);
    if (copy.pull != nullptr) planner_.ForgetFailure(node.key, copy.pull->sender);
    copy.unconfirmed = false;
    objects_.CompleteCopy(*object, node.key);
  } else if (want != object->wants.end()) {
    PullFailed(*object, node, want->second, m);
  }
  objects_.Reevaluate(*object);
  return absl::OkStatus();
}

// A completion is a fact whichever of this adoption's plans brought it. One from before is void:
// its node was told so, and has dropped the bytes by the time it reads a newer plan (or has kept
// them, and says so under that plan).
bool PullScheduler::ReportsCurrentPull(const Object& object, const NodeKey& key,
                                       PlanId plan) const {
  if (plan >= object.first_plan && plan <= context_.last_plan) return true;
  const auto copy = object.copies.find(key);
  return copy != object.copies.end() && copy->second.registered;
}

// The node has a complete copy of what is not (or no longer) the object's generation: it is told to
// drop it, so that it does not believe to hold what is not listed.
void PullScheduler::RefuseCompletion(Node& node, const ObjectId& id, const Generation& generation) {
  if (Tombstone* tombstone = tombstones_.FindRefusing(id, generation)) {
    tombstones_.AwaitConfirm(*tombstone, id, generation, node.key, node.session);
    outbox_.SendGone(node.key, id, generation, v1::Gone::DELETED, "deleted");
    return;
  }
  const Object* object = objects_.Find(id);
  if (object != nullptr && object->adopted && object->complete_copies > 0) {
    outbox_.SendVerdict(node.key, id, generation, v1::Verdict::SUPERSEDED, object->generation,
                        object->info);
    return;
  }
  outbox_.SendGone(node.key, id, generation, v1::Gone::VOID,
                   "the generation was given up before this copy was complete");
}

// What the pull under the current plan has measured.
void PullScheduler::MeasurePull(Object& object, const NodeKey& receiver, const v1::PullReport& m) {
  const auto copy = object.copies.find(receiver);
  if (copy == object.copies.end()) return;
  const double rate = UsableRate(m.bytes_per_second());
  if (!m.complete()) copy->second.watermarks.assign(m.watermarks().begin(), m.watermarks().end());
  if (PullRecord* record = copy->second.pull.get()) {
    record->bytes_received += m.bytes_received();
    record->starved_ns = std::max(record->starved_ns, m.starved_ns());
    if (rate > 0) record->bytes_per_second = rate;
  }
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(receiver);
  if (member == nullptr || member->sender() == nullptr) return;
  member->progress.bytes = m.complete() ? object.info.size_bytes : Sum(m.watermarks());
  const BroadcastTree::Feed& feed = *member->feeds.front();
  if (feed.plan != m.plan_id()) return;
  const Endpoint& sender = member->sender()->endpoint;
  LinkModel& links = planner_.links();
  links.RecordLatency(sender, member->endpoint, UsableLatency(m.first_byte_ns()), context_.now);
  links.RecordRate(sender, member->endpoint, rate, planner_.SharedBy(feed, feed.since),
                   context_.now);
}

void PullScheduler::PullFailed(Object& object, Node& node, Want& want, const v1::PullReport& m) {
  const auto copy = object.copies.find(node.key);
  PullRecord* record = copy == object.copies.end() ? nullptr : copy->second.pull.get();
  if (record != nullptr && (record->plan == m.plan_id() || record->plan == 0)) {
    record->reported = true;
    objects_.EndFinalReport(object, node.key);
  }
  if (!want.pulling) {
    ++context_.counters.late_messages;
    return;
  }
  NodeKey sender = want.outside_sender;
  if (!sender.valid()) {
    const BroadcastTree::Feed& feed = *object.tree->Find(node.key)->feeds.front();
    // Plan 0 is a pull that was registered: its number is an earlier shard's.
    const bool current = feed.plan == m.plan_id() || feed.plan == 0;
    if (!current && DefectActive(Defect::kOldPlanEndsNewPlan)) {
      EndFeeds(object, node.key);
      want.pulling = true;
      ++node.pulls;
      return;
    }
    if (!current) {
      ++context_.counters.late_messages;
      return;
    }
    sender = feed.sender->endpoint.node;
  }
  ++context_.counters.pulls_failed;
  ++context_.counters.repairs;
  const auto code = static_cast<absl::StatusCode>(m.code());
  planner_.RememberFailure(node.key, sender, code, context_.now);
  if (record != nullptr) ++record->repairs;
  Requeue(object, node.key);
  const bool once = planner_.Failures(node.key, sender) < kFailuresToSwap;
  if (!once && !BroadcastPlanner::MerelyBusy(code)) SwapWithDescendants(object, node.key);
}

// Two nodes that cannot reach each other may both reach those downstream of the one: these go to
// the sender that failed it, and it can have the bytes from them.
void PullScheduler::SwapWithDescendants(Object& object, const NodeKey& receiver) {
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(receiver);
  if (member == nullptr || member->first_receiver == nullptr) return;
  if (!planner_.Choose(*object.tree, member, context_.now).troubled) return;
  RequeueReceivers(object, *member);
}

void PullScheduler::RequeueReceivers(Object& object, const BroadcastTree::Member& sender) {
  while (sender.first_receiver != nullptr) {
    const NodeKey receiver = sender.first_receiver->receiver->endpoint.node;
    Requeue(object, receiver);
    ++context_.counters.repairs;
    if (Copy& copy = object.copies.at(receiver); copy.pull != nullptr) ++copy.pull->repairs;
  }
}

absl::Status PullScheduler::OnProgress(Node& node, const v1::Progress& m) {
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
  if (object == nullptr || !object->adopted || object->generation != FromProto(pull.generation()) ||
      !ValidateWatermarks(object->info, pull.watermarks()).ok()) {
    return;
  }
  const auto copy = object->copies.find(node.key);
  if (copy == object->copies.end() || copy->second.complete) return;
  copy->second.watermarks.assign(pull.watermarks().begin(), pull.watermarks().end());
  objects_.NoteChange(object->id);
  BroadcastTree::Member* member = object->tree == nullptr ? nullptr : object->tree->Find(node.key);
  if (member == nullptr || member->sender() == nullptr) return;
  const PlanId plan = member->feeds.front()->plan;
  if (plan != 0 && plan != pull.plan_id()) return;
  const double rate = UsableRate(pull.bytes_per_second());
  copy->second.pull->bytes_per_second = rate;
  copy->second.pull->starved_ns = pull.starved_ns();
  // It pulls as we last told it, from somebody who has not every byte either.
  if (object->unreported_receivers.contains(node.key)) {
    objects_.EndFinalReport(*object, node.key);
    if (object->unreported_receivers.empty()) return objects_.Reevaluate(*object);
  }
  // Out of touch with the shard, and nothing comes from it by its receiver's own word: the lease is
  // not waited for. A sender that delivers goes on, whatever became of its session.
  const Node* sender = nodes_.Find(member->sender()->endpoint.node);
  const bool silent = Sum(pull.watermarks()) <= member->progress.bytes;
  if (sender != nullptr && !sender->connected && silent) return ReplaceSlowSender(*object, member);
  const BroadcastPlanner::Sample sample{Sum(pull.watermarks()), rate, pull.starved_ns()};
  for (BroadcastTree::Member* slow :
       planner_.OnProgress(*object->tree, member, sample, context_.now)) {
    ReplaceSlowSender(*object, slow);
  }
}

void PullScheduler::ReplaceSlowSender(Object& object, BroadcastTree::Member* receiver) {
  const NodeKey key = receiver->endpoint.node;
  Node* node = nodes_.Find(key);
  const BroadcastPlanner::Choice choice =
      planner_.Choose(*object.tree, receiver, context_.now, receiver->blamed);
  if (choice.sender == nullptr || choice.sender == receiver->sender() || node == nullptr) return;
  Requeue(object, key);
  ++context_.counters.relieved;
  Assign(object, *node, object.wants.at(key), choice.sender, choice.finish);
}

absl::Status PullScheduler::OnRegisterWant(Node& node, const v1::RegisterWant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (DefectActive(Defect::kWaiterDroppedAtRestart)) return absl::OkStatus();
  Object& object = objects_.GetOrCreate(id);
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  asked.held = node.registering;
  AddWant(object, node, asked);
  // One that was open before is not held: no end of a registration answers it.
  const auto want = object.wants.find(node.key);
  const bool held = want != object.wants.end() && want->second.held;
  held ? objects_.ReleaseIfEmpty(object) : objects_.Reevaluate(object);
  return absl::OkStatus();
}

bool PullScheduler::AdmitRegisteredWant(Object& object, Node& node) {
  const auto found = object.wants.find(node.key);
  if (found == object.wants.end() || !found->second.held) return false;
  Want& want = found->second;
  want.held = false;
  const auto copy = object.copies.find(node.key);
  if (copy == object.copies.end() || !copy->second.registered_sender.valid()) return true;
  const NodeKey sender = std::exchange(copy->second.registered_sender, NodeKey());
  if (LinkRegisteredPull(object, node, want, sender) || !gate_.learning()) return true;
  // Its sender may still register: the pull goes on meanwhile.
  want.pulling = true;
  want.outside_sender = sender;
  ++node.pulls;
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  Tree(object).SetFedFromOutside(Join(object, node.key, copy->second), true);
  return true;
}

bool PullScheduler::LinkRegisteredPull(Object& object, Node& node, Want& want,
                                       const NodeKey& sender) {
  const auto copy = object.copies.find(sender);
  if (copy == object.copies.end() || copy->second.stale) return false;
  BroadcastTree& tree = Tree(object);
  BroadcastTree::Member* from = Join(object, sender, copy->second);
  BroadcastTree::Member* to = Join(object, node.key, object.copies.at(node.key));
  tree.MarkDownstream(to);
  if (tree.Downstream(*from)) return false;
  tree.SetFedFromOutside(to, false);
  tree.Attach(to, from, /*plan=*/0, ~uint64_t{0}, /*occupies=*/true, context_.now);
  to->progress.at = context_.now;
  planner_.PullBegan(sender, node.key);
  want.outside_sender = NodeKey();
  if (want.pulling) return true;
  want.pulling = true;
  ++node.pulls;
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  return true;
}

void PullScheduler::AdmitOutsidePulls(Object& object, const NodeKey& sender) {
  for (auto& [key, want] : object.wants) {
    if (!want.outside_sender.valid() || want.outside_sender != sender) continue;
    Node* node = nodes_.Find(key);
    if (!LinkRegisteredPull(object, *node, want, sender)) Requeue(object, key);
  }
}

}  // namespace phalanx::directory
