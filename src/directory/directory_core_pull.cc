// Wants, plans and reports: from "this node wants the object" to "its copy is complete".
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {
namespace {

// What a link is taken for as long as none was measured, where the question is whether the shard
// sends a small object to all itself: 1 Gbit/s, and the time that asking a sender takes.
constexpr double kAssumedRate = 125e6;
constexpr absl::Duration kAssumedLatency = absl::Milliseconds(1);
// A pull's work at each of its nodes, whatever its length. Those of one node go on one after
// another there, however many are begun at once.
constexpr absl::Duration kPullWork = absl::Microseconds(100);

// A neighbour is waited for no longer than this, and by no more than can be looked at again and
// again.
constexpr absl::Duration kMostPatience = absl::Milliseconds(100);
constexpr size_t kMostPatient = 64;

// A receiver that failed so often at one sender does not take its place.
constexpr int kFailuresToNotOccupy = 2;
// A connection that broke once is made again.
constexpr int kFailuresToTurnAround = 2;

uint64_t AllSlices(const ObjectInfo& info) {
  return info.slices == kMaxSlices ? ~uint64_t{0} : (uint64_t{1} << info.slices) - 1;
}

uint64_t Sum(const google::protobuf::RepeatedField<uint64_t>& watermarks) {
  uint64_t sum = 0;
  for (const uint64_t watermark : watermarks) sum += watermark;
  return sum;
}

}  // namespace

absl::Status DirectoryCore::Impl::OnWant(Node& node, const v1::Want& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  if (!m.near_id().empty()) {
    PHALANX_ASSIGN_OR_RETURN(asked.near, ParseObjectId(m.near_id()));
  }
  if (m.has_no_room_for()) {
    PHALANX_ASSIGN_OR_RETURN(asked.no_room_for, ParseGeneration(m.no_room_for()));
  }
  ++counters_.wants;
  Object& object = GetObject(id);
  AddWant(object, node, asked);
  // Who waits for memory feeds nobody, and nobody's time is spent on feeding it.
  if (LacksRoom(object, asked)) {
    StrikePart(object, node.key);
    RefuseDrain(object, node.key);
  }
  Settle(object);
  return absl::OkStatus();
}

bool DirectoryCore::Impl::LacksRoom(const Object& object, const Want& want) {
  return object.adopted && want.no_room_for == object.generation;
}

void DirectoryCore::Impl::StrikePart(Object& object, const NodeKey& key) {
  const auto copy = object.copies.find(key);
  if (copy == object.copies.end() || copy->second.complete || copy->second.writer) return;
  StrikeCopy(object, key);
}

void DirectoryCore::Impl::AddWant(Object& object, Node& node, const Want& asked) {
  const bool keep = asked.keep;
  const bool answerable = object.inline_cached && !LacksRoom(object, asked);
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
  if (open_wants_ >= options_.max_waiting) {
    ++counters_.wants_refused;
    SendGone(node.key, object, object.generation, v1::Gone::REFUSED,
             absl::StrCat("ResourceExhausted: the shard holds ", open_wants_, " wants"));
    broadcasts_.Refused(object.id, node.key);
    return;
  }
  Want& want = object.wants[node.key] = asked;
  want.order = next_order_++;
  object.waiting.insert({want.order, node.key});
  ++open_wants_;
  ++waiting_wants_;
  Involve(node, object.id);
  if (object.complete_copies == 0 && !Learning()) TellLoss(node.key, object.id);
}

void DirectoryCore::Impl::EndWant(Object& object, const NodeKey& key) {
  EndHope(object, key);
  const auto found = object.wants.find(key);
  if (found == object.wants.end()) return;
  EndFeeds(object, key);
  if (object.waiting.erase({found->second.order, key}) != 0) --waiting_wants_;
  --open_wants_;
  object.wants.erase(found);
  UninvolveIfDone(key, object);
}

void DirectoryCore::Impl::Deliver(Object& object, Node& node, bool keep) {
  ++counters_.delivered;
  inline_in_outbox_ += object.inline_bytes.size();
  v1::Deliver& deliver = *Send(node.key).mutable_deliver();
  deliver.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, deliver.mutable_generation());
  ToProto(object.info, deliver.mutable_info());
  deliver.set_inline_bytes(object.inline_bytes);
  deliver.set_keep(keep);
  inline_by_age_.splice(inline_by_age_.begin(), inline_by_age_, object.inline_age);
  auto [at, added] = object.copies.try_emplace(node.key);
  if (added) ++node.copies;
  at->second.primary = at->second.primary || keep;
  // Asking twice confirms nothing: the first answer may be about to be withdrawn.
  at->second.unconfirmed |= added || !at->second.complete;
  Involve(node, object.id);
  CompleteCopy(object, node.key);
}

BroadcastTree& DirectoryCore::Impl::Tree(Object& object) {
  if (object.tree == nullptr) {
    object.tree = std::make_unique<BroadcastTree>(object.info.size_bytes, planner_.visited());
    for (const auto& [key, copy] : object.copies) Join(object, key, copy);
  }
  return *object.tree;
}

BroadcastTree::Member* DirectoryCore::Impl::Join(Object& object, const NodeKey& key,
                                                 const Copy& copy) {
  BroadcastTree& tree = *object.tree;
  if (BroadcastTree::Member* member = tree.Find(key)) return member;
  using Role = BroadcastTree::Role;
  const Role role = copy.complete ? Role::kComplete : copy.writer ? Role::kWriter : Role::kReceiver;
  const Node* node = FindNode(key);
  // Only a defect under test lists a node that is gone.
  const Endpoint endpoint = node != nullptr ? node->endpoint : Endpoint{key, {}};
  const bool connected = (node == nullptr || node->connected) && !copy.stale;
  BroadcastTree::Member* member =
      tree.Add(endpoint, role, connected, node != nullptr && node->draining);
  for (const uint64_t watermark : copy.watermarks) member->progress.bytes += watermark;
  return member;
}

bool DirectoryCore::Impl::DeliversAtOnce(const Object& object) const {
  const uint64_t bytes = inline_in_outbox_ + object.inline_bytes.size();
  const bool cheap = object.inline_bytes.size() <= options_.inline_always_bytes;
  return (cheap || bytes <= options_.inline_burst_bytes) &&
         under_way_bytes_ + bytes <= options_.inline_under_way_bytes;
}

// All that goes out in this turn shares the shard's link, which is taken to be like those of the
// nodes. A sender must be sooner by far: a pull costs both nodes more work than a message.
bool DirectoryCore::Impl::DeliversRather(const Object& object, const Node& receiver,
                                         const BroadcastPlanner::Choice& choice) const {
  if (choice.sender == nullptr) return true;
  const uint64_t bytes = inline_in_outbox_ + object.inline_bytes.size();
  if (under_way_bytes_ + bytes > options_.inline_under_way_bytes) return false;
  const double rate = planner_.links().MedianRate().value_or(kAssumedRate);
  const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
  const absl::Duration transfer =
      choice.finish.infinite() ? kAssumedLatency + once : choice.finish - now_;
  const int pulls_before =
      std::max(planner_.Pushes(choice.sender->endpoint.node), planner_.Pulls(receiver.key));
  const absl::Duration by_sender = transfer + (pulls_before + 1) * kPullWork;
  return absl::Seconds(static_cast<double>(bytes) / rate) <= 2 * by_sender;
}

bool DirectoryCore::Impl::MayBeServed(const Object& object, const NodeKey& key) const {
  const Want& want = object.wants.at(key);
  return !want.held && FindNode(key)->connected && !LacksRoom(object, want);
}

void DirectoryCore::Impl::Plan(Object& object) {
  // Who waits for a neighbour may have been passed over before that was served.
  for (uint64_t assigned = counters_.assigned;; assigned = counters_.assigned) {
    Round round;
    if (object.adopted) PlanRound(object, round);
    if (!round.patient || counters_.assigned == assigned) return;
  }
}

void DirectoryCore::Impl::PlanRound(Object& object, Round& round) {
  std::pair<uint64_t, NodeKey> place;  // iterators do not outlive an Assign
  for (auto at = object.waiting.begin(); at != object.waiting.end();
       at = object.waiting.upper_bound(place)) {
    place = *at;
    const NodeKey key = place.second;
    if (!MayBeServed(object, key)) continue;
    if (!Serve(object, *FindNode(key), object.wants.at(key), round)) return;
  }
}

bool DirectoryCore::Impl::Serve(Object& object, Node& node, Want& want, Round& round) {
  const bool in_time = want.not_before <= now_;
  if (object.inline_cached && (!in_time || DeliversAtOnce(object))) {
    Deliver(object, node, want.keep);
    return true;
  }
  if (!in_time) {
    SetTimer(object, want.not_before);
    return true;
  }
  BroadcastTree& tree = Tree(object);
  if (tree.Candidates(Nearness::kWorld, 1) == nullptr) {
    if (!object.inline_cached) return false;
    Deliver(object, node, want.keep);
    return true;
  }
  const auto copy = object.copies.find(node.key);
  if (copy != object.copies.end() && copy->second.writer) return true;
  if (AwaitsNeighbour(object, node.key, want)) {
    round.patient = true;
    SetTimer(object, *want.patient_until);
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
      planner_.Choose(tree, receiver, now_, NodeKey(), NeighbourOf(object, node.key, want));
  if (choice.sender != nullptr && !(object.inline_cached && DeliversRather(object, node, choice))) {
    Assign(object, node, want, choice.sender, choice.finish);
    return true;
  }
  if (stranger) tree.Remove(node.key);
  if (object.inline_cached) {
    Deliver(object, node, want.keep);
  } else if (!choice.retry_at.infinite()) {
    SetTimer(object, choice.retry_at);
  }
  return true;
}

NodeKey DirectoryCore::Impl::NeighbourOf(const Object& object, const NodeKey& key,
                                         const Want& want) {
  if (want.near.nil() || object.info.size_bytes < options_.least_near_bytes) return NodeKey();
  const Object* made_there = FindObject(want.near);
  if (made_there == nullptr || !made_there->adopted) return NodeKey();
  const NodeKey& neighbour = made_there->generation.creator;
  const Node* receiver = FindNode(key);
  const Node* sender = FindNode(neighbour);
  if (neighbour == key || receiver == nullptr || sender == nullptr) return NodeKey();
  // A ring that goes to and fro between zones would cross what is between them again and again.
  return Crosses(receiver->endpoint.place, sender->endpoint.place) ? NodeKey() : neighbour;
}

bool DirectoryCore::Impl::AwaitsNeighbour(const Object& object, const NodeKey& key, Want& want) {
  if (want.near.nil() || object.inline_cached ||
      object.info.size_bytes < options_.least_near_bytes || IsForeign(want.near) ||
      object.waiting.size() > kMostPatient) {
    return false;
  }
  if (!want.patient_until.has_value()) {
    const double rate = planner_.links().MedianRate().value_or(kAssumedRate);
    const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
    want.patient_until = now_ + std::min(once, kMostPatience);
  }
  if (*want.patient_until <= now_) return false;
  const Object* made_there = FindObject(want.near);
  if (made_there == nullptr || !made_there->adopted) return true;
  const NodeKey neighbour = NeighbourOf(object, key, want);
  if (!neighbour.valid()) return false;
  const BroadcastTree::Member* member = object.tree->Find(neighbour);
  return member == nullptr || !member->rooted();
}

void DirectoryCore::Impl::Assign(Object& object, Node& node, Want& want,
                                 BroadcastTree::Member* sender, Instant finish) {
  const NodeKey from = sender->endpoint.node;
  auto [at, added] = object.copies.try_emplace(node.key);
  Copy& copy = at->second;
  if (added) ++node.copies;
  Involve(node, object.id);
  if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
  copy.pull->sender = from;
  copy.pull->plan = ++next_plan_;
  copy.pull->started = now_;
  copy.pull->ended = Instant::Infinite();
  copy.pull->reported = false;
  copy.pull->bytes_per_second = 0;
  copy.pull->starved_ns = 0;

  BroadcastTree& tree = *object.tree;
  BroadcastTree::Member* receiver = tree.Find(node.key);
  const bool occupies = planner_.Failures(node.key, from) < kFailuresToNotOccupy;
  tree.Attach(receiver, sender, next_plan_, AllSlices(object.info), occupies, now_);
  receiver->finish = finish;
  receiver->progress.bytes_per_second = 0;
  receiver->progress.starved_ns = 0;
  receiver->progress.at = now_;
  planner_.PullBegan(from, node.key);
  ++node.pulls;
  want.pulling = true;
  want.no_room_for = Generation();
  want.near = ObjectId();
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
  ++counters_.assigned;
  if (DefectActive(Defect::kCompleteForPartial) && !copy.complete) {
    copy.complete = true;
    ++object.complete_copies;
  }

  v1::Assign& assign = *Send(node.key).mutable_assign();
  assign.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, assign.mutable_generation());
  ToProto(object.info, assign.mutable_info());
  assign.set_plan_id(next_plan_);
  ToProto(from, assign.mutable_sender());
  if (const Node* sender_node = FindNode(from)) {
    assign.set_sender_address(sender_node->info.address());
  }
  assign.set_slices(AllSlices(object.info));
  assign.set_keep(want.keep);
  assign.set_want(want.number);
}

void DirectoryCore::Impl::EndFeeds(Object& object, const NodeKey& receiver, bool completed) {
  const auto found = object.wants.find(receiver);
  if (found == object.wants.end() || !found->second.pulling) return;
  Want& want = found->second;
  want.pulling = false;
  if (Node* node = FindNode(receiver)) --node->pulls;
  const auto copy = object.copies.find(receiver);
  if (copy != object.copies.end() && copy->second.pull != nullptr) copy->second.pull->ended = now_;
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(receiver);
  if (member == nullptr) return;
  for (const auto& feed : member->feeds) {
    planner_.PullEnded(feed->sender->endpoint.node, receiver, now_);
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

void DirectoryCore::Impl::Requeue(Object& object, const NodeKey& key) {
  const auto found = object.wants.find(key);
  if (found == object.wants.end() || !found->second.pulling) return;
  EndFeeds(object, key);
  object.waiting.insert({found->second.order, key});
  ++waiting_wants_;
}

void DirectoryCore::Impl::LeaveTree(Object& object, const NodeKey& key) {
  if (object.wants.contains(key)) Requeue(object, key);
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(key);
  if (member == nullptr) return;
  RequeueReceivers(object, *member);
  object.tree->Remove(key);
}

void DirectoryCore::Impl::DropTreeIfIdle(Object& object) {
  if (object.tree == nullptr || !object.wants.empty() || object.copies.size() > 1) return;
  object.tree.reset();
}

absl::Status DirectoryCore::Impl::OnUnwant(Node& node, const v1::Unwant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  if (m.fetch() != 0) broadcasts_.Refused(id, node.key, m.fetch());
  Object* object = FindObject(id);
  if (object == nullptr || !object->wants.contains(node.key)) return absl::OkStatus();
  EndWant(*object, node.key);
  StrikePart(*object, node.key);
  RefuseDrain(*object, node.key);
  Settle(*object);
  return absl::OkStatus();
}

absl::Status DirectoryCore::Impl::OnPullReport(Node& node, const v1::PullReport& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation generation, ParseGeneration(m.generation()));
  PHALANX_RETURN_IF_ERROR(ValidateWatermarkCount(m.watermarks()));
  if (Refusal(id, generation) != nullptr && m.complete() &&
      DefectActive(Defect::kLateCompletionAfterDelete)) {
    Object& object = GetObject(id);
    if (!object.adopted) Adopt(object, node, generation, ObjectInfo(), true, /*tell=*/false);
    return absl::OkStatus();
  }
  Object* object = FindObject(id);
  if (object == nullptr || !object->adopted || object->generation != generation) {
    ++counters_.late_messages;
    if (m.complete()) RefuseCompletion(node, id, generation);
    return absl::OkStatus();
  }
  PHALANX_RETURN_IF_ERROR(ValidateWatermarks(object->info, m.watermarks()));
  if (m.complete() && !ReportsCurrentPull(*object, node.key, m.plan_id())) {
    ++counters_.late_messages;
    return absl::OkStatus();
  }
  MeasurePull(*object, node.key, m);
  const auto want = object->wants.find(node.key);
  if (m.complete()) {
    ++counters_.pulls_completed;
    auto [at, added] = object->copies.try_emplace(node.key);
    if (added) ++node.copies;
    Involve(node, object->id);
    if (at->second.pull != nullptr) planner_.ForgetFailure(node.key, at->second.pull->sender);
    at->second.unconfirmed = false;
    CompleteCopy(*object, node.key);
  } else if (want != object->wants.end()) {
    PullFailed(*object, node, want->second, m);
  }
  Settle(*object);
  return absl::OkStatus();
}

// A completion is a fact whichever of this adoption's plans brought it. One from before is void:
// its node was told so, and has dropped the bytes by the time it reads a newer plan (or has kept
// them, and says so under that plan).
bool DirectoryCore::Impl::ReportsCurrentPull(const Object& object, const NodeKey& key,
                                             PlanId plan) const {
  if (plan >= object.first_plan && plan <= next_plan_) return true;
  const auto copy = object.copies.find(key);
  return copy != object.copies.end() && copy->second.registered;
}

// The node has a complete copy of what is not (or no longer) the object's generation: it is told to
// drop it, so that it does not believe to hold what is not listed.
void DirectoryCore::Impl::RefuseCompletion(Node& node, const ObjectId& id,
                                           const Generation& generation) {
  if (Tombstone* tombstone = Refusal(id, generation)) {
    AwaitConfirm(*tombstone, id, generation, node);
    SendGone(node.key, Object(id), generation, v1::Gone::DELETED, "deleted");
    return;
  }
  const Object* object = FindObject(id);
  if (object != nullptr && object->adopted && object->complete_copies > 0) {
    SendVerdict(node.key, *object, generation, v1::Verdict::SUPERSEDED);
    return;
  }
  SendGone(node.key, Object(id), generation, v1::Gone::VOID,
           "the generation was given up before this copy was complete");
}

// What the pull under the current plan has measured.
void DirectoryCore::Impl::MeasurePull(Object& object, const NodeKey& receiver,
                                      const v1::PullReport& m) {
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
  links.RecordLatency(sender, member->endpoint, UsableLatency(m.first_byte_ns()), now_);
  links.RecordRate(sender, member->endpoint, rate, planner_.SharedBy(feed, feed.since), now_);
}

void DirectoryCore::Impl::PullFailed(Object& object, Node& node, Want& want,
                                     const v1::PullReport& m) {
  const auto copy = object.copies.find(node.key);
  PullRecord* record = copy == object.copies.end() ? nullptr : copy->second.pull.get();
  if (record != nullptr && (record->plan == m.plan_id() || record->plan == 0)) {
    record->reported = true;
    EndHope(object, node.key);
  }
  if (!want.pulling) {
    ++counters_.late_messages;
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
      ++counters_.late_messages;
      return;
    }
    sender = feed.sender->endpoint.node;
  }
  ++counters_.pulls_failed;
  ++counters_.repairs;
  const auto code = static_cast<absl::StatusCode>(m.code());
  planner_.RememberFailure(node.key, sender, code, now_);
  if (record != nullptr) ++record->repairs;
  Requeue(object, node.key);
  const bool once = planner_.Failures(node.key, sender) < kFailuresToTurnAround;
  if (!once && !BroadcastPlanner::MerelyBusy(code)) TurnAround(object, node.key);
}

// Two nodes that cannot reach each other may both reach those downstream of the one: these go to
// the sender that failed it, and it can have the bytes from them.
void DirectoryCore::Impl::TurnAround(Object& object, const NodeKey& receiver) {
  BroadcastTree::Member* member = object.tree == nullptr ? nullptr : object.tree->Find(receiver);
  if (member == nullptr || member->first_receiver == nullptr) return;
  if (!planner_.Choose(*object.tree, member, now_).troubled) return;
  RequeueReceivers(object, *member);
}

void DirectoryCore::Impl::RequeueReceivers(Object& object, const BroadcastTree::Member& sender) {
  while (sender.first_receiver != nullptr) {
    const NodeKey receiver = sender.first_receiver->receiver->endpoint.node;
    Requeue(object, receiver);
    ++counters_.repairs;
    if (Copy& copy = object.copies.at(receiver); copy.pull != nullptr) ++copy.pull->repairs;
  }
}

absl::Status DirectoryCore::Impl::OnProgress(Node& node, const v1::Progress& m) {
  for (const v1::Progress::Pull& pull : m.pulls()) {
    PHALANX_RETURN_IF_ERROR(ParseObjectId(pull.object_id()).status());
    PHALANX_RETURN_IF_ERROR(ParseGeneration(pull.generation()).status());
    PHALANX_RETURN_IF_ERROR(ValidateWatermarkCount(pull.watermarks()));
  }
  const bool room_came = m.used_bytes() < node.info.used_bytes();
  node.info.set_used_bytes(m.used_bytes());
  if (room_came && !draining_.empty()) RetryStuckDrains();
  for (const v1::Progress::Pull& pull : m.pulls()) NotePullProgress(node, pull);
  return absl::OkStatus();
}

void DirectoryCore::Impl::NotePullProgress(Node& node, const v1::Progress::Pull& pull) {
  Object* object = FindObject(*ParseObjectId(pull.object_id()));
  if (object == nullptr || !object->adopted || object->generation != FromProto(pull.generation()) ||
      !ValidateWatermarks(object->info, pull.watermarks()).ok()) {
    return;
  }
  const auto copy = object->copies.find(node.key);
  if (copy == object->copies.end() || copy->second.complete) return;
  copy->second.watermarks.assign(pull.watermarks().begin(), pull.watermarks().end());
  NoteChange(object->id);
  BroadcastTree::Member* member = object->tree == nullptr ? nullptr : object->tree->Find(node.key);
  if (member == nullptr || member->sender() == nullptr) return;
  const PlanId plan = member->feeds.front()->plan;
  if (plan != 0 && plan != pull.plan_id()) return;
  const double rate = UsableRate(pull.bytes_per_second());
  copy->second.pull->bytes_per_second = rate;
  copy->second.pull->starved_ns = pull.starved_ns();
  // It pulls as we last told it, from somebody who has not every byte either.
  if (object->last_hopes.contains(node.key)) {
    EndHope(*object, node.key);
    if (object->last_hopes.empty()) return Settle(*object);
  }
  // Out of touch with the shard, and nothing comes from it by its receiver's own word: the lease is
  // not waited for. A sender that delivers goes on, whatever became of its session.
  const Node* sender = FindNode(member->sender()->endpoint.node);
  const bool silent = Sum(pull.watermarks()) <= member->progress.bytes;
  if (sender != nullptr && !sender->connected && silent) return Relieve(*object, member);
  const BroadcastPlanner::Sample sample{Sum(pull.watermarks()), rate, pull.starved_ns()};
  for (BroadcastTree::Member* slow : planner_.OnProgress(*object->tree, member, sample, now_)) {
    Relieve(*object, slow);
  }
}

void DirectoryCore::Impl::Relieve(Object& object, BroadcastTree::Member* receiver) {
  const NodeKey key = receiver->endpoint.node;
  Node* node = FindNode(key);
  const BroadcastPlanner::Choice choice =
      planner_.Choose(*object.tree, receiver, now_, receiver->blamed);
  if (choice.sender == nullptr || choice.sender == receiver->sender() || node == nullptr) return;
  Requeue(object, key);
  ++counters_.relieved;
  Assign(object, *node, object.wants.at(key), choice.sender, choice.finish);
}

void DirectoryCore::Impl::SendGone(const NodeKey& to, const Object& object,
                                   const Generation& generation, v1::Gone::Kind kind,
                                   absl::string_view reason) {
  v1::Gone& gone = *Send(to).mutable_gone();
  gone.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(generation, gone.mutable_generation());
  gone.set_kind(kind);
  gone.set_reason(reason.data(), reason.size());
}

}  // namespace phalanx::directory
