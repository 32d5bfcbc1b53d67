#include "src/directory/pulls/pull_scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {
namespace {

// Assumed for a link that was not measured, when the shard decides whether to send a small object
// to every node itself: 1 Gbit/s, and the time in which a node can ask a sender.
constexpr double kAssumedRate = 125e6;
constexpr absl::Duration kAssumedInlineLatency = absl::Milliseconds(1);
// A pull's work at each of its two nodes, whatever its length. A node works on its pulls one after
// another, however many are started at once.
constexpr absl::Duration kPullWork = absl::Microseconds(100);

// A receiver waits for its neighbour no longer than this; and only while so few nodes wait that all
// of them can be examined again and again.
constexpr absl::Duration kMaxAffinityWait = absl::Milliseconds(100);
constexpr size_t kMaxAffinityWaiters = 64;

// A receiver that failed so often at a sender does not take the sender's one place.
constexpr int kFailuresToNotOccupy = 2;

uint64_t AllSlices(const ObjectInfo& info) {
  return info.slices == kMaxSlices ? ~uint64_t{0} : (uint64_t{1} << info.slices) - 1;
}

absl::Status Broken(const Object& object, absl::string_view what) {
  return absl::InternalError(absl::StrCat("object ", object.id.hex(), ": ", what));
}

}  // namespace

PullScheduler::PullScheduler(const Parts& parts, PullListener& listener)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      tombstones_(parts.tombstones),
      failures_(parts.failures),
      inline_cache_(parts.inline_cache),
      placements_(parts.placements),
      listener_(listener),
      planner_(parts.context.options.lease, parts.context.options.relay_bytes) {}

absl::Status PullScheduler::OnWant(Node& node, const v1::Want& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  if (!m.near_id().empty()) {
    PHALANX_ASSIGN_OR_RETURN(asked.affinity_object, ParseObjectId(m.near_id()));
  }
  if (m.has_no_room_for()) {
    PHALANX_ASSIGN_OR_RETURN(asked.no_room_for, ParseGeneration(m.no_room_for()));
  }
  ++context_.counters.wants;
  Object& object = objects_.GetOrCreate(id);
  AddWant(object, node, asked);
  // Who waits for memory feeds nobody, and nobody's time is spent on feeding it.
  if (object.LacksRoom(asked)) {
    RemovePartialCopy(object, node.key);
    listener_.OnRefused(object, node.key);
  }
  objects_.Reevaluate(object);
  return absl::OkStatus();
}

void PullScheduler::RemovePartialCopy(Object& object, const NodeKey& key) {
  const auto copy = object.copies.find(key);
  if (copy == object.copies.end() || copy->second.complete || copy->second.writer) return;
  objects_.RemoveCopy(object, key);
}

void PullScheduler::AddWant(Object& object, Node& node, const Want& asked) {
  const bool keep = asked.keep;
  const bool answerable = object.inline_entry.cached() && !object.LacksRoom(asked);
  if (const auto open = object.wants.find(node.key); open != object.wants.end()) {
    open->second.keep = open->second.keep || keep;
    open->second.number = asked.number;
    open->second.no_room_for = asked.no_room_for;
    // A node asks once: that it asks again says that it takes the first question for answered.
    Requeue(object, node.key);
    return;
  }
  if (const auto copy = object.copies.find(node.key);
      copy != object.copies.end() && copy->second.complete && !copy->second.stale) {
    // It has what it asks for: the question crossed our answer.
    copy->second.primary = copy->second.primary || keep;
    if (answerable) Deliver(object, node, keep);
    return;
  }
  if (object.adopted && answerable && !asked.held && DeliversAtOnce(object)) {
    Deliver(object, node, keep);
    return;
  }
  if (open_wants_ >= context_.options.max_waiting) {
    ++context_.counters.wants_refused;
    outbox_.SendGone(node.key, object.id, object.generation, v1::Gone::REFUSED,
                     absl::StrCat("ResourceExhausted: the shard holds ", open_wants_, " wants"));
    placements_.Refused(object.id, node.key);
    return;
  }
  Want& want = object.wants[node.key] = asked;
  want.order = context_.NewOrder();
  object.waiting.insert({want.order, node.key});
  ++open_wants_;
  ++waiting_wants_;
  node.objects.insert(object.id);
  if (object.complete_copies == 0 && !gate_.learning()) objects_.SendLoss(node.key, object.id);
}

void PullScheduler::EndWant(Object& object, const NodeKey& key) {
  objects_.EndFinalReport(object, key);
  const auto found = object.wants.find(key);
  if (found == object.wants.end()) return;
  EndFeeds(object, key);
  if (object.waiting.erase({found->second.order, key}) != 0) --waiting_wants_;
  --open_wants_;
  object.wants.erase(found);
  objects_.UnlinkNodeIfUnused(key, object);
}

void PullScheduler::Deliver(Object& object, Node& node, bool keep) {
  ++context_.counters.delivered;
  outbox_.AddInlineBytes(object.inline_entry.bytes().size());
  v1::Deliver& deliver = *outbox_.Send(node.key).mutable_deliver();
  deliver.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, deliver.mutable_generation());
  ToProto(object.info, deliver.mutable_info());
  deliver.set_inline_bytes(object.inline_entry.bytes());
  deliver.set_keep(keep);
  inline_cache_.Touch(object.inline_entry);
  bool added = false;
  Copy& copy = objects_.AddCopy(object, node, &added);
  copy.primary = copy.primary || keep;
  // Asking twice confirms nothing: the first answer may be about to be withdrawn.
  copy.unconfirmed |= added || !copy.complete;
  objects_.CompleteCopy(object, node.key);
}

BroadcastTree& PullScheduler::Tree(Object& object) {
  if (object.tree == nullptr) {
    object.tree = std::make_unique<BroadcastTree>(object.info.size_bytes, planner_.visited());
    for (const auto& [key, copy] : object.copies) Join(object, key, copy);
  }
  return *object.tree;
}

BroadcastTree::Member* PullScheduler::Join(Object& object, const NodeKey& key, const Copy& copy) {
  BroadcastTree& tree = *object.tree;
  if (BroadcastTree::Member* member = tree.Find(key)) return member;
  using Role = BroadcastTree::Role;
  const Role role = copy.complete ? Role::kComplete : copy.writer ? Role::kWriter : Role::kReceiver;
  const Node* node = nodes_.Find(key);
  // Only a defect under test lists a node that is gone.
  const Endpoint endpoint = node != nullptr ? node->endpoint : Endpoint{key, {}};
  const bool connected = (node == nullptr || node->connected) && !copy.stale;
  BroadcastTree::Member* member =
      tree.Add(endpoint, role, connected, node != nullptr && node->draining);
  for (const uint64_t watermark : copy.watermarks) member->progress.bytes += watermark;
  return member;
}

bool PullScheduler::DeliversAtOnce(const Object& object) const {
  const uint64_t bytes = outbox_.inline_bytes() + object.inline_entry.bytes().size();
  const bool cheap = object.inline_entry.bytes().size() <= context_.options.inline_always_bytes;
  return (cheap || bytes <= context_.options.inline_burst_bytes) &&
         outbox_.unacknowledged_bytes() + bytes <= context_.options.inline_under_way_bytes;
}

// All that goes out in this turn shares the shard's link, which is taken to be like those of the
// nodes. A sender must be sooner by far: a pull costs both nodes more work than a message.
bool PullScheduler::PrefersInline(const Object& object, const Node& receiver,
                                  const BroadcastPlanner::Choice& choice) const {
  if (choice.sender == nullptr) return true;
  const uint64_t bytes = outbox_.inline_bytes() + object.inline_entry.bytes().size();
  if (outbox_.unacknowledged_bytes() + bytes > context_.options.inline_under_way_bytes)
    return false;
  const double rate = planner_.links().MedianRate().value_or(kAssumedRate);
  const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
  const absl::Duration transfer =
      choice.finish.infinite() ? kAssumedInlineLatency + once : choice.finish - context_.now;
  const int pulls_before =
      std::max(planner_.Pushes(choice.sender->endpoint.node), planner_.Pulls(receiver.key));
  const absl::Duration by_sender = transfer + (pulls_before + 1) * kPullWork;
  return absl::Seconds(static_cast<double>(bytes) / rate) <= 2 * by_sender;
}

bool PullScheduler::MayBeServed(const Object& object, const NodeKey& key) const {
  const Want& want = object.wants.at(key);
  return !want.held && nodes_.Find(key)->connected && !object.LacksRoom(want);
}

void PullScheduler::Plan(Object& object) {
  // Who waits for a neighbour may have been passed over before that was served.
  for (uint64_t assigned = context_.counters.assigned;; assigned = context_.counters.assigned) {
    Round round;
    if (object.adopted) PlanRound(object, round);
    if (!round.awaits_neighbour || context_.counters.assigned == assigned) return;
  }
}

void PullScheduler::PlanRound(Object& object, Round& round) {
  std::pair<uint64_t, NodeKey> place;  // iterators do not outlive an Assign
  for (auto at = object.waiting.begin(); at != object.waiting.end();
       at = object.waiting.upper_bound(place)) {
    place = *at;
    const NodeKey key = place.second;
    if (!MayBeServed(object, key)) continue;
    if (!Serve(object, *nodes_.Find(key), object.wants.at(key), round)) return;
  }
}

bool PullScheduler::Serve(Object& object, Node& node, Want& want, Round& round) {
  const bool in_time = want.not_before <= context_.now;
  if (object.inline_entry.cached() && (!in_time || DeliversAtOnce(object))) {
    Deliver(object, node, want.keep);
    return true;
  }
  if (!in_time) {
    objects_.SetTimer(object, want.not_before);
    return true;
  }
  BroadcastTree& tree = Tree(object);
  if (tree.Candidates(Nearness::kWorld, 1) == nullptr) {
    if (!object.inline_entry.cached()) return false;
    Deliver(object, node, want.keep);
    return true;
  }
  const auto copy = object.copies.find(node.key);
  if (copy != object.copies.end() && copy->second.writer) return true;
  if (AwaitsNeighbour(object, node.key, want)) {
    round.awaits_neighbour = true;
    objects_.SetTimer(object, *want.affinity_until);
    return true;
  }
  const bool stranger = tree.Find(node.key) == nullptr;
  const Copy none;
  BroadcastTree::Member* receiver =
      Join(object, node.key, copy != object.copies.end() ? copy->second : none);
  if (!round.left.has_value()) {
    round.left = std::count_if(
        object.waiting.begin(), object.waiting.end(),
        [this, &object](const auto& waiting) { return MayBeServed(object, waiting.second); });
  }
  planner_.ExpectReceivers(tree, (*round.left)--);
  const BroadcastPlanner::Choice choice =
      planner_.Choose(tree, receiver, context_.now, NodeKey(), NeighbourOf(object, node.key, want));
  if (choice.sender != nullptr &&
      !(object.inline_entry.cached() && PrefersInline(object, node, choice))) {
    Assign(object, node, want, choice.sender, choice.finish);
    return true;
  }
  if (stranger) tree.Remove(node.key);
  if (object.inline_entry.cached()) {
    Deliver(object, node, want.keep);
  } else if (!choice.retry_at.infinite()) {
    objects_.SetTimer(object, choice.retry_at);
  }
  return true;
}

NodeKey PullScheduler::NeighbourOf(const Object& object, const NodeKey& key, const Want& want) {
  if (want.affinity_object.nil() || object.info.size_bytes < context_.options.least_near_bytes)
    return NodeKey();
  const Object* made_there = objects_.Find(want.affinity_object);
  if (made_there == nullptr || !made_there->adopted) return NodeKey();
  const NodeKey& neighbour = made_there->generation.creator;
  const Node* receiver = nodes_.Find(key);
  const Node* sender = nodes_.Find(neighbour);
  if (neighbour == key || receiver == nullptr || sender == nullptr) return NodeKey();
  // A ring that goes to and fro between zones would cross what is between them again and again.
  return Crosses(receiver->endpoint.place, sender->endpoint.place) ? NodeKey() : neighbour;
}

bool PullScheduler::AwaitsNeighbour(const Object& object, const NodeKey& key, Want& want) {
  if (want.affinity_object.nil() || object.inline_entry.cached() ||
      object.info.size_bytes < context_.options.least_near_bytes ||
      context_.IsForeign(want.affinity_object) || object.waiting.size() > kMaxAffinityWaiters) {
    return false;
  }
  if (!want.affinity_until.has_value()) {
    const double rate = planner_.links().MedianRate().value_or(kAssumedRate);
    const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
    want.affinity_until = context_.now + std::min(once, kMaxAffinityWait);
  }
  if (*want.affinity_until <= context_.now) return false;
  const Object* made_there = objects_.Find(want.affinity_object);
  if (made_there == nullptr || !made_there->adopted) return true;
  const NodeKey neighbour = NeighbourOf(object, key, want);
  if (!neighbour.valid()) return false;
  const BroadcastTree::Member* member = object.tree->Find(neighbour);
  return member == nullptr || !member->rooted();
}

void PullScheduler::Assign(Object& object, Node& node, Want& want, BroadcastTree::Member* sender,
                           Instant finish) {
  const NodeKey from = sender->endpoint.node;
  Copy& copy = objects_.AddCopy(object, node);
  if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
  copy.pull->sender = from;
  copy.pull->plan = context_.NewPlan();
  copy.pull->started = context_.now;
  copy.pull->ended = Instant::Infinite();
  copy.pull->reported = false;
  copy.pull->bytes_per_second = 0;
  copy.pull->starved_ns = 0;

  BroadcastTree& tree = *object.tree;
  BroadcastTree::Member* receiver = tree.Find(node.key);
  const bool occupies = planner_.Failures(node.key, from) < kFailuresToNotOccupy;
  tree.Attach(receiver, sender, context_.last_plan, AllSlices(object.info), occupies, context_.now);
  receiver->finish = finish;
  receiver->progress.bytes_per_second = 0;
  receiver->progress.starved_ns = 0;
  receiver->progress.at = context_.now;
  planner_.PullBegan(from, node.key);
  ++node.pulls;
  want.pulling = true;
  want.no_room_for = Generation();
  want.affinity_object = ObjectId();
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  ++context_.counters.assigned;
  if (DefectActive(Defect::kCompleteForPartial) && !copy.complete) {
    copy.complete = true;
    ++object.complete_copies;
  }

  v1::Assign& assign = *outbox_.Send(node.key).mutable_assign();
  assign.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, assign.mutable_generation());
  ToProto(object.info, assign.mutable_info());
  assign.set_plan_id(context_.last_plan);
  ToProto(from, assign.mutable_sender());
  if (const Node* sender_node = nodes_.Find(from)) {
    assign.set_sender_address(sender_node->info.address());
  }
  assign.set_slices(AllSlices(object.info));
  assign.set_keep(want.keep);
  assign.set_want(want.number);
}

void PullScheduler::EndFeeds(Object& object, const NodeKey& receiver, bool completed) {
  const auto found = object.wants.find(receiver);
  if (found == object.wants.end() || !found->second.pulling) return;
  Want& want = found->second;
  want.pulling = false;
  if (Node* node = nodes_.Find(receiver)) --node->pulls;
  const auto copy = object.copies.find(receiver);
  if (copy != object.copies.end() && copy->second.pull != nullptr)
    copy->second.pull->ended = context_.now;
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(receiver);
  if (member == nullptr) return;
  for (const auto& feed : member->feeds) {
    planner_.PullEnded(feed->sender->endpoint.node, receiver, context_.now);
  }
  if (completed) {
    // Not by way of Detach: everybody downstream would lose its root and find it again.
    object.tree->Complete(member);
  } else {
    object.tree->Detach(member);
    if (want.outside_sender.valid()) object.tree->SetFedFromOutside(member, false);
  }
  want.outside_sender = NodeKey();
}

void PullScheduler::Requeue(Object& object, const NodeKey& key) {
  const auto found = object.wants.find(key);
  if (found == object.wants.end() || !found->second.pulling) return;
  EndFeeds(object, key);
  object.waiting.insert({found->second.order, key});
  ++waiting_wants_;
}

void PullScheduler::OnCopyRemoved(Object& object, const NodeKey& key) {
  if (object.wants.contains(key)) Requeue(object, key);
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(key);
  if (member == nullptr) return;
  RequeueReceivers(object, *member);
  object.tree->Remove(key);
}

void PullScheduler::DropTreeIfIdle(Object& object) {
  if (object.tree == nullptr || !object.wants.empty() || object.copies.size() > 1) return;
  object.tree.reset();
}

absl::Status PullScheduler::OnUnwant(Node& node, const v1::Unwant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.fetch() != 0) placements_.Refused(id, node.key, m.fetch());
  Object* object = objects_.Find(id);
  if (object == nullptr || !object->wants.contains(node.key)) return absl::OkStatus();
  EndWant(*object, node.key);
  RemovePartialCopy(*object, node.key);
  listener_.OnRefused(*object, node.key);
  objects_.Reevaluate(*object);
  return absl::OkStatus();
}

void PullScheduler::OnCopyComplete(Object& object, const NodeKey& node) {
  EndFeeds(object, node, /*completed=*/true);
  if (object.tree != nullptr) object.tree->Complete(Join(object, node, object.copies.at(node)));
  if (object.wants.contains(node)) EndWant(object, node);
}

void PullScheduler::OnCopyRegistered(Object& object, const NodeKey& node, bool connected) {
  if (object.tree == nullptr) return;
  object.tree->SetConnected(Join(object, node, object.copies.at(node)), connected);
}

void PullScheduler::SetConnected(Object& object, const NodeKey& node, bool connected) {
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(node);
  if (member != nullptr) object.tree->SetConnected(member, connected);
}

void PullScheduler::Postpone(Object& object, const NodeKey& node) {
  const auto want = object.wants.find(node);
  if (want == object.wants.end()) return;
  const int doublings = std::min(want->second.withdrawals++, 8);
  want->second.not_before = context_.now + absl::Milliseconds(10) * (1 << doublings);
}

void PullScheduler::RequeueOutsidePulls(Object& object) {
  std::vector<NodeKey> outside;
  for (const auto& [key, want] : object.wants) {
    if (want.outside_sender.valid()) outside.push_back(key);
  }
  for (const NodeKey& key : outside) Requeue(object, key);
}

void PullScheduler::RefuseWants(Object& object) {
  if (object.wants.empty()) return;
  const Tombstone* tombstone =
      object.attempts.empty() && !gate_.learning() ? tombstones_.FindDeleted(object.id) : nullptr;
  const absl::Status* failure = failures_.Find(object.id);
  if (tombstone == nullptr && failure == nullptr) return;
  while (!object.wants.empty()) {
    const NodeKey key = object.wants.begin()->first;
    EndWant(object, key);
    if (tombstone != nullptr) {
      outbox_.SendGone(key, object.id, tombstone->generations.front(), v1::Gone::DELETED,
                       "deleted");
      continue;
    }
    v1::Gone& gone = *outbox_.Send(key).mutable_gone();
    gone.set_object_id(object.id.binary().data(), ObjectId::kSize);
    gone.set_kind(v1::Gone::REFUSED);
    gone.set_code(static_cast<int>(failure->code()));
    gone.set_reason(std::string(failure->message()));
  }
}

absl::Status PullScheduler::CheckWants(const Object& object) const {
  size_t feeds = 0;
  for (const auto& [key, want] : object.wants) {
    const Node* node = nodes_.Find(key);
    if (node == nullptr) return Broken(object, "a node that is down wants it");
    const bool waits = object.waiting.contains({want.order, key});
    if (waits == want.pulling) return Broken(object, "a want neither waits nor pulls, or both");
    const auto copy = object.copies.find(key);
    if (copy != object.copies.end() && copy->second.complete && !copy->second.stale) {
      return Broken(object, "a node wants what it has");
    }
    const BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(key);
    const bool fed = member != nullptr && !member->feeds.empty();
    if (want.pulling && !fed && !want.outside_sender.valid()) {
      return Broken(object, "a want is assigned to no sender");
    }
    if (!want.pulling && fed) return Broken(object, "a waiting node pulls");
    if (fed) feeds += member->feeds.size();
    const bool lacks_room = object.LacksRoom(want);
    if (lacks_room && want.pulling) return Broken(object, "a node without room for it pulls");
    const bool plannable = !want.pulling && !want.held && !lacks_room && node->connected &&
                           object.adopted && want.not_before <= context_.now &&
                           object.timer.infinite();
    if (plannable && object.inline_entry.cached()) return Broken(object, "a want is not answered");
    const bool writes = copy != object.copies.end() && copy->second.writer;
    if (!plannable || writes || object.tree == nullptr) continue;
    // Every candidate in the index is rooted and the waiting node is not, so a candidate cannot be
    // downstream of it.
    if (object.tree->Candidates(Nearness::kWorld, 1) != nullptr) {
      return Broken(object, "a want waits though a node could serve it");
    }
  }
  if (object.waiting.size() > object.wants.size()) return Broken(object, "a stranger waits");
  if (object.tree != nullptr && object.tree->feeds() != feeds) {
    return Broken(object, "a pull's receiver does not want the object");
  }
  return object.tree == nullptr ? absl::OkStatus() : object.tree->CheckInvariants();
}

absl::Status PullScheduler::CheckInvariants() const {
  absl::btree_map<NodeKey, uint64_t> pulls;
  absl::btree_map<NodeKey, int> pushes;
  size_t open = 0;
  size_t waiting = 0;
  for (const auto& [id, object] : objects_.all()) {
    if (absl::Status status = CheckWants(*object); !status.ok()) return status;
    for (const auto& [key, want] : object->wants) {
      if (!want.pulling) continue;
      ++pulls[key];
      if (object->tree == nullptr || want.outside_sender.valid()) continue;
      for (const auto& feed : object->tree->Find(key)->feeds) {
        ++pushes[feed->sender->endpoint.node];
      }
    }
    open += object->wants.size();
    waiting += object->waiting.size();
  }
  if (open != open_wants_ || waiting != waiting_wants_) {
    return absl::InternalError("the wants are miscounted");
  }
  for (const auto& [key, node] : nodes_.all()) {
    if (pulls[key] != node->pulls || pushes[key] != planner_.Pushes(key)) {
      return absl::InternalError(
          absl::StrCat("node ", node->info.name(), ": its pulls are miscounted"));
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
