#include "src/directory/pulls/pull_scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {
namespace {

// The work of a pull at each of its two nodes, independent of its length. A node works on its pulls
// one after another, even if many are started at once.
constexpr absl::Duration kPullWork = absl::Microseconds(100);

// A receiver waits for its near node at most this long, and only while few enough nodes wait that
// each change can examine all of them.
constexpr absl::Duration kMaxNearWait = absl::Milliseconds(100);
constexpr size_t kMaxNearWaiters = 64;

// A slow receiver, which would take a part of a fast node's link, waits for this share of its own
// time for fast ones that ask at the same time, and at most this long. So does one that is placed
// in two trees.
constexpr double kYieldShare = 0.015;
constexpr absl::Duration kMostYield = absl::Milliseconds(20);

// A receiver that failed this often at a sender does not occupy the sender.
constexpr int kFailuresToNotOccupy = 2;

// The node that made the want's near object; invalid if it does not help.
NodeKey NearNodeOf(const ObjectTable& objects, const NodeTable& nodes, const NodeKey& key,
                   const Want& want) {
  const Object* made_there = objects.Find(want.near_object);
  if (made_there == nullptr || !made_there->adopted()) return NodeKey();
  const NodeKey& near = made_there->generation.creator;
  const Node* receiver = nodes.Find(key);
  const Node* sender = nodes.Find(near);
  if (near == key || receiver == nullptr || sender == nullptr) return NodeKey();
  // Pulls between near nodes in different zones would cross the boundary once per node.
  return Crosses(receiver->endpoint.locality, sender->endpoint.locality) ? NodeKey() : near;
}

absl::Status CheckWants(const Object& object, const NodeTable& nodes, Instant now) {
  size_t feeds = 0;
  for (const auto& [key, want] : object.wants) {
    const Node* node = nodes.Find(key);
    if (node == nullptr) return Broken(object, "a node that is down wants it");
    const bool waits = object.waiting.contains({want.order, key});
    const bool pulls = want.state == WantState::kPulling;
    if (waits == pulls) return Broken(object, "a want neither waits nor pulls, or both");
    const auto copy = object.copies.find(key);
    if (copy != object.copies.end() && copy->second.complete() && !copy->second.stale) {
      return Broken(object, "a node wants what it has");
    }
    size_t fed = 0;
    for (const RelayTree* tree : object.trees.all()) {
      const RelayTree::Member* member = tree->Find(key);
      if (member == nullptr || member->feeds.empty()) continue;
      ++fed;
      feeds += member->feeds.size();
    }
    const bool all_fed = fed > 0 && fed == object.trees.all().size();
    if (pulls && !all_fed && !want.outside_sender.valid()) {
      return Broken(object, "a want is assigned to no sender");
    }
    if (!pulls && all_fed) return Broken(object, "a waiting node pulls");
    const bool lacks_room = object.LacksRoom(want);
    if (lacks_room && pulls) return Broken(object, "a node without room for it pulls");
    // An object with a timer is exempt: its wants can wait for a pause, a near node, faster nodes
    // or final reports.
    const bool plannable = want.state == WantState::kWaiting && !lacks_room && node->connected &&
                           object.adopted() && want.not_before <= now && object.timer.infinite();
    if (plannable && object.inline_entry.cached()) return Broken(object, "a want is not answered");
    const bool writes = copy != object.copies.end() && copy->second.writing();
    if (!plannable || writes || object.trees.first == nullptr) continue;
    // Every candidate in the index is rooted and the waiting node is not, so a candidate cannot be
    // downstream of it.
    if (object.trees.first->Candidates(Nearness::kWorld, 1) != nullptr) {
      return Broken(object, "a want waits though a node could serve it");
    }
  }
  if (object.waiting.size() > object.wants.size())
    return Broken(object, "a node waits that does not want it");
  for (const RelayTree* tree : object.trees.all()) {
    feeds -= tree->feeds();
    if (absl::Status status = tree->CheckInvariants(); !status.ok()) return status;
  }
  if (feeds != 0) return Broken(object, "a pull's receiver does not want the object");
  return absl::OkStatus();
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
      planner_(parts.context.options.lease, parts.context.options.relay_bytes),
      prober_(context_, nodes_, outbox_, planner_.pairs()),
      routes_(context_, nodes_, outbox_, objects_, placements_, planner_) {}

absl::Status PullScheduler::OnWant(Node& node, const v1::Want& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Want asked;
  asked.number = m.number();
  asked.keep = m.keep();
  if (!m.near_id().empty()) {
    PHALANX_ASSIGN_OR_RETURN(asked.near_object, ParseObjectId(m.near_id()));
  }
  if (m.has_no_room_for()) {
    PHALANX_ASSIGN_OR_RETURN(asked.no_room_for, ParseGeneration(m.no_room_for()));
  }
  PHALANX_ASSIGN_OR_RETURN(const ObjectName name, ParseNameOf(m));
  // Nothing is changed before this line: a Want with a bad field must leave no object behind.
  ++context_.counters.wants;
  Object& object = objects_.GetOrCreate(id);
  object.LearnName(name);
  AddWant(object, node, asked);
  // A node that waits for memory neither sends its partial copy nor occupies a sender.
  if (object.LacksRoom(asked)) {
    RemovePartialCopy(object, node.key);
    listener_.OnRefused(object, node.key);
    routes_.OnRefused(object, node.key);
  }
  objects_.Reevaluate(object);
  return absl::OkStatus();
}

// A complete copy stays: its node wants nothing, or has withdrawn it already. So does a copy that
// is being written: its bytes come from a client, whatever becomes of the pull.
void PullScheduler::RemovePartialCopy(Object& object, const NodeKey& key) {
  const auto copy = object.copies.find(key);
  if (copy == object.copies.end() || copy->second.complete() || copy->second.writing()) return;
  objects_.RemoveCopy(object, key);
}

void PullScheduler::AddWant(Object& object, Node& node, const Want& asked) {
  const bool keep = asked.keep;
  const bool answerable = object.inline_entry.cached() && !object.LacksRoom(asked);
  // A registered want has this done at the end of its registration.
  if (gate_.learning() && asked.state != WantState::kHeld) AdmitOutsidePulls(object, node.key);
  if (const auto open = object.wants.find(node.key); open != object.wants.end()) {
    open->second.keep = open->second.keep || keep;
    open->second.number = asked.number;
    open->second.no_room_for = asked.no_room_for;
    // A node sends one Want at a time: a second one says that the first pull has ended there.
    Requeue(object, node.key);
    return;
  }
  // A stale copy proves nothing: its node has a new session and can have lost the bytes.
  if (const auto copy = object.copies.find(node.key);
      copy != object.copies.end() && copy->second.complete() && !copy->second.stale) {
    // The Want crossed the Deliver, or the report of the pull.
    copy->second.primary = copy->second.primary || keep;
    if (answerable) Deliver(object, node, keep);
    return;
  }
  // A held want waits for the end of its registration, which can still bring the node's own copy.
  if (object.adopted() && answerable && asked.state != WantState::kHeld && DeliversAtOnce(object)) {
    Deliver(object, node, keep);
    return;
  }
  if (open_wants_ >= context_.options.max_waiting) {
    ++context_.counters.wants_refused;
    // Not answering would leave the Get open for ever: the node repeats a Want only in a new
    // session.
    outbox_.SendRefused(node.key, object.id, asked.number, absl::StatusCode::kOk,
                        absl::StrCat("ResourceExhausted: the shard holds ", open_wants_, " wants"));
    // A broadcast must not wait for a node that cannot want the object.
    placements_.Refused(object.id, node.key);
    listener_.OnRefused(object, node.key);
    return;
  }
  Want& want = object.wants[node.key] = asked;
  want.order = context_.NewOrder();
  object.waiting.insert({want.order, node.key});
  ++open_wants_;
  ++waiting_wants_;
  // NodeDown and SessionBegins visit only the objects that are linked to the node.
  node.objects.insert(object.id);
  // A node that asks after the loss must learn of it as well: a Get with on_lost = kFail would wait
  // otherwise. While the gate is learning another copy can still be registered.
  if (object.copies.complete() == 0 && !gate_.learning()) objects_.SendLoss(node.key, object.id);
}

void PullScheduler::EndWant(Object& object, const NodeKey& key) {
  // A node that is down or gives the object up reports nothing more about its pull. To wait for it
  // would delay the decision about the generation by a lease.
  objects_.EndFinalReport(object, key);
  const auto found = object.wants.find(key);
  if (found == object.wants.end()) return;
  // Before the want is erased: EndFeeds finds the pull by its want.
  EndFeeds(object, key);
  if (object.waiting.erase({found->second.order, key}) != 0) --waiting_wants_;
  --open_wants_;
  object.wants.erase(found);
  objects_.UnlinkNodeIfUnused(key, object);
}

void PullScheduler::Deliver(Object& object, Node& node, bool keep) {
  ++context_.counters.delivered;
  // The bytes count against this turn and against the limit on unacknowledged bytes, which decide
  // whether the next receiver gets them from the shard, too.
  outbox_.AddInlineBytes(object.inline_entry.bytes().size());
  v1::Deliver& deliver = *outbox_.Send(node.key).mutable_deliver();
  deliver.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, deliver.mutable_generation());
  objects_.WriteInfo(object, context_.now, deliver.mutable_info());
  deliver.set_inline_bytes(object.inline_entry.bytes());
  deliver.set_keep(keep);
  inline_cache_.Touch(object.inline_entry);
  Copy& copy = objects_.AddCopy(object, node);
  copy.primary = copy.primary || keep;
  // A second Want confirms nothing: the node may be about to withdraw the first copy.
  objects_.CompleteCopy(object, node.key, CopyState::kDelivered);
}

// Most objects are small or read once, so the tree is made when a pull is first planned.
RelayTree& PullScheduler::Tree(Object& object) {
  if (object.trees.first == nullptr) {
    object.trees.first = std::make_unique<RelayTree>(object.info.size_bytes, planner_.visited());
    for (const auto& [key, copy] : object.copies) Join(object, *object.trees.first, key, copy);
  }
  return *object.trees.first;
}

RelayTree::Member* PullScheduler::Join(const Object& object, RelayTree& tree, const NodeKey& key,
                                       const Copy& copy) const {
  if (RelayTree::Member* member = tree.Find(key)) return member;
  using Role = RelayTree::Role;
  const Role role = copy.complete()  ? Role::kComplete
                    : copy.writing() ? Role::kWriter
                                     : Role::kReceiver;
  const Node* node = nodes_.Find(key);
  // Only a defect under test lists a node that is down.
  const Endpoint endpoint = node != nullptr ? node->endpoint : Endpoint{key, {}};
  const bool connected =
      node == nullptr ? !copy.stale : object.Offers(*node, copy, gate_.learning());
  RelayTree::Member* member =
      tree.Add(endpoint, role, connected, node != nullptr && node->draining);
  member->progress.bytes = tree.BytesOf(copy.watermarks);
  return member;
}

bool PullScheduler::DeliversAtOnce(const Object& object) const {
  const uint64_t bytes = outbox_.inline_bytes() + object.inline_entry.bytes().size();
  const bool cheap = object.inline_entry.bytes().size() <= context_.options.inline_always_bytes;
  // A pull costs each of its nodes more than a tiny message, so those are sent in any number. The
  // second limit is on memory: unacknowledged bytes are kept for all sessions that are slow.
  return (cheap || bytes <= context_.options.inline_burst_bytes) &&
         outbox_.unacknowledged_bytes() + bytes <= context_.options.inline_under_way_bytes;
}

// Every message of this turn shares the shard's link, which is assumed to be like the nodes' links.
// The work of both nodes counts, although they do it at the same time: a sender must be worth it.
bool PullScheduler::PrefersInline(const Object& object, const Node& receiver,
                                  const PullPlanner::Choice& choice) const {
  if (choice.sender == nullptr) return true;
  const uint64_t bytes = outbox_.inline_bytes() + object.inline_entry.bytes().size();
  // Even a slow sender is better here: bytes that a stalled session does not acknowledge stay in
  // the shard's memory.
  if (outbox_.unacknowledged_bytes() + bytes > context_.options.inline_under_way_bytes)
    return false;
  const LinkModel& links = planner_.links();
  const double rate = links.ExpectedRate();
  const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
  // With assumed numbers, the shares of a link that the planner counts on say too little.
  const absl::Duration transfer = links.MedianRate().has_value() ? choice.finish - context_.now
                                                                 : links.ExpectedLatency() + once;
  // The pull begins after those that either node was assigned before it.
  const int pulls_before =
      std::max(planner_.Pushes(choice.sender->endpoint.node), planner_.Pulls(receiver.key));
  const absl::Duration by_sender = transfer + 2 * (pulls_before + 1) * kPullWork;
  return absl::Seconds(static_cast<double>(bytes) / rate) <= by_sender;
}

bool PullScheduler::MayBeServed(const Object& object, const NodeKey& key) const {
  const Want& want = object.wants.at(key);
  // A disconnected node may be dead. It is planned when its session resumes.
  return want.state != WantState::kHeld && nodes_.Find(key)->connected && !object.LacksRoom(want);
}

void PullScheduler::Plan(Object& object) {
  // A node that waits for its near node may have been passed over before the near node was served.
  for (uint64_t assigned = context_.counters.assigned;; assigned = context_.counters.assigned) {
    Round round;
    if (object.adopted()) PlanRound(object, round);
    ServeAgain(object, round.isolated);
    if (!round.awaits_near_node || context_.counters.assigned == assigned) break;
  }
  FollowRoutes(object);
}

// Last: the relay can have been assigned its sender in this turn, after its receiver was planned.
void PullScheduler::FollowRoutes(Object& object) {
  if (!routes_.Has(object)) return;
  routes_.Refresh(object);
  std::vector<NodeKey> waiting;
  for (const NodeKey& key : routes_.Ready(object)) {
    if (object.wants.at(key).state == WantState::kPulling) {
      MoveToBetterSender(object, *object.trees.first, object.trees.first->Find(key));
    } else {
      waiting.push_back(key);
    }
  }
  ServeAgain(object, waiting);
}

void PullScheduler::ServeAgain(Object& object, const std::vector<NodeKey>& nodes) {
  Round round;
  round.last = true;
  for (const NodeKey& key : nodes) {
    if (MayBeServed(object, key)) {
      Serve(object, *nodes_.Find(key), object.wants.at(key), round);
    }
  }
}

// Each assigned receiver is a candidate for the next one, so the receivers of one turn form a chain
// or a tree at once. Their order is that of their ids, from the source's on, and not that of their
// wants: the next broadcast of this source has the same pairs, whose connections are open. To make
// a connection takes longer than to send a small object.
void PullScheduler::PlanRound(Object& object, Round& round) {
  // Before all wants are visited: each new want of an object without a sender comes here, or of one
  // in two trees.
  if (object.waiting.empty() || !HasSender(object)) return;
  if (object.trees.second != nullptr && object.trees.placed_at > context_.now) {
    return objects_.SetTimer(object, object.trees.placed_at);
  }
  std::vector<NodeKey> ready = Ready(object);
  if (SplitPays(object, ready)) Replant(object, /*in_halves=*/true);
  if (object.trees.second != nullptr) {
    if (PlanHalves(object)) return;
    Replant(object, /*in_halves=*/false);
    ready = Ready(object);
  }
  for (const NodeKey& key : ready) {
    if (!Serve(object, *nodes_.Find(key), object.wants.at(key), round)) return;
  }
}

std::vector<NodeKey> PullScheduler::Ready(const Object& object) const {
  std::vector<NodeKey> ready;
  for (const auto& [order, key] : object.waiting) {
    if (MayBeServed(object, key)) ready.push_back(key);
  }
  std::sort(ready.begin(), ready.end());
  const NodeKey& source = object.generation.creator;
  std::rotate(ready.begin(), std::upper_bound(ready.begin(), ready.end(), source), ready.end());
  return ready;
}

bool PullScheduler::HasSender(Object& object) {
  return object.inline_entry.cached() || Tree(object).Candidates(Nearness::kWorld, 1) != nullptr;
}

bool PullScheduler::Serve(Object& object, Node& node, Want& want, Round& round) {
  const bool in_time = want.not_before <= context_.now;
  if (object.inline_entry.cached() && (!in_time || DeliversAtOnce(object))) {
    Deliver(object, node, want.keep);
    return true;
  }
  if (!in_time) {
    // The timer plans again.
    objects_.SetTimer(object, want.not_before);
    return true;
  }
  RelayTree& tree = Tree(object);
  // Without a candidate no other node can be served either, unless the bytes are cached here.
  if (tree.Candidates(Nearness::kWorld, 1) == nullptr) {
    if (!object.inline_entry.cached()) return false;
    Deliver(object, node, want.keep);
    return true;
  }
  const auto copy = object.copies.find(node.key);
  // A writer gets the bytes from its client. As a receiver it could be fed by its own readers.
  if (copy != object.copies.end() && copy->second.writing()) return true;
  if (AwaitsNearNode(object, node.key, want)) {
    round.awaits_near_node = true;
    objects_.SetTimer(object, *want.near_until);
    return true;
  }
  NotePatience(object, node, want);
  if (*want.yields_until > context_.now) {
    objects_.SetTimer(object, *want.yields_until);
    return true;
  }
  // The planner needs the receiver as a member; it is removed again if there is no sender.
  const bool joined_now = tree.Find(node.key) == nullptr;
  const Copy none;
  RelayTree::Member* receiver =
      Join(object, tree, node.key, copy != object.copies.end() ? copy->second : none);
  // Its nodes have an order of their own, in which each link carries as much as any other.
  const bool near = object.NamesNear(want, context_.options.least_near_bytes);
  if (near) tree.KeepWhole();
  // Counted once per round: a count for each receiver would make a broadcast to n nodes cost n²
  // steps.
  if (!round.left.has_value()) {
    round.left = std::count_if(
        object.waiting.begin(), object.waiting.end(),
        [this, &object](const auto& waiting) { return MayBeServed(object, waiting.second); });
  }
  planner_.ExpectReceivers(tree, (*round.left)--);
  const PullPlanner::Choice choice =
      planner_.Choose(tree, receiver, context_.now, NodeKey(),
                      near ? NearNodeOf(objects_, nodes_, node.key, want) : NodeKey());
  if (choice.troubled && AwaitsRelay(object, node.key, round)) {
    if (joined_now) tree.Remove(node.key);
    return true;
  }
  if (choice.sender != nullptr &&
      !(object.inline_entry.cached() && PrefersInline(object, node, choice))) {
    Assign(object, tree, node, want, choice);
    return true;
  }
  // A member without a copy would break the invariants, and the node was assigned no sender.
  if (joined_now) tree.Remove(node.key);
  if (object.inline_entry.cached()) {
    Deliver(object, node, want.keep);
  } else if (!choice.retry_at.infinite()) {
    objects_.SetTimer(object, choice.retry_at);
  }
  return true;
}

bool PullScheduler::AwaitsNearNode(const Object& object, const NodeKey& key, Want& want) {
  if (!object.NamesNear(want, context_.options.least_near_bytes) || object.inline_entry.cached() ||
      context_.IsForeign(want.near_object) || object.waiting.size() > kMaxNearWaiters) {
    return false;
  }
  // The deadline is set once: if each Plan moved it, a receiver could wait for ever.
  if (!want.near_until.has_value()) {
    const double rate = planner_.links().ExpectedRate();
    const absl::Duration once = absl::Seconds(static_cast<double>(object.info.size_bytes) / rate);
    want.near_until = context_.now + std::min(once, kMaxNearWait);
  }
  if (*want.near_until <= context_.now) return false;
  const Object* made_there = objects_.Find(want.near_object);
  // The near node is known only when its object exists; all nodes of a collective begin together.
  if (made_there == nullptr || !made_there->adopted()) return true;
  const NodeKey near = NearNodeOf(objects_, nodes_, key, want);
  if (!near.valid()) return false;
  const RelayTree::Member* member = object.trees.first->Find(near);
  return member == nullptr || !member->rooted();
}

void PullScheduler::NotePatience(const Object& object, const Node& node, Want& want) const {
  // Once for each want: a later pull of it continues where an earlier one ended.
  if (want.yields_until.has_value()) return;
  const LinkModel& links = planner_.links();
  std::optional<double> rate = links.SlowNode(node.endpoint, context_.now);
  if (!rate.has_value() && object.trees.second != nullptr) rate = links.ExpectedRate();
  const double once = rate.has_value() ? static_cast<double>(object.info.size_bytes) / *rate : 0;
  want.yields_until = context_.now + std::min(kYieldShare * absl::Seconds(once), kMostYield);
}

bool PullScheduler::AwaitsRelay(Object& object, const NodeKey& key, Round& round) {
  if (object.inline_entry.cached() || !routes_.Isolated(object, key)) return false;
  if (round.last) return routes_.Around(object, key);
  round.isolated.push_back(key);
  return true;
}

void PullScheduler::Assign(Object& object, RelayTree& tree, Node& node, Want& want,
                           const PullPlanner::Choice& choice) {
  const NodeKey from = choice.sender->endpoint.node;
  const uint64_t slices = tree.slices() & AllSlices(object.info.slices);
  // The receiver is a copy from now on, before it has any byte: the next receiver may be planned in
  // the same turn, and relays through it.
  Copy& copy = objects_.AddCopy(object, node);
  if (copy.pull == nullptr) copy.pull = std::make_unique<PullRecord>();
  // The record outlives the pull: the tools and repairs of later pulls read it.
  const bool second = &tree == object.trees.second.get();
  (second ? copy.pull->second_sender : copy.pull->sender) = from;
  if (object.trees.second == nullptr) copy.pull->second_sender = NodeKey();
  copy.pull->plan = context_.NewPlan();
  copy.pull->started = context_.now;
  copy.pull->ended = Instant::Infinite();
  copy.pull->reported = false;
  copy.pull->bytes_per_second = 0;
  copy.pull->starved_ns = 0;

  RelayTree::Member* receiver = tree.Find(node.key);
  // A pull that keeps failing moves no bytes. If it counted, the sender would look busy to the
  // others.
  const bool occupies =
      planner_.pairs().Failures(node.key, from, context_.now) < kFailuresToNotOccupy;
  tree.Attach(receiver, choice.sender, context_.last_plan, slices, occupies, context_.now);
  receiver->finish = choice.finish;
  // Rates of the earlier pull would blame the new sender for the slowness of the old one.
  receiver->progress.bytes_per_second = 0;
  receiver->progress.starved_ns = 0;
  receiver->progress.at = receiver->progress.interval_began = context_.now;
  planner_.PullBegan(from, node.key);
  // Both were about this pull only; a retry is planned like any other want.
  want.no_room_for = Generation();
  want.near_object = ObjectId();
  if (object.trees.Feed(node.key)) BeginPulling(object, node, want);
  ++context_.counters.assigned;
  if (DefectActive(Defect::kCompleteForPartial) && !copy.complete()) {
    objects_.SetCopyState(object, copy, CopyState::kComplete);
  }

  v1::Assign& assign = *outbox_.Send(node.key).mutable_assign();
  assign.set_object_id(object.id.binary().data(), ObjectId::kSize);
  ToProto(object.generation, assign.mutable_generation());
  objects_.WriteInfo(object, context_.now, assign.mutable_info());
  assign.set_plan_id(context_.last_plan);
  ToProto(from, assign.mutable_sender());
  if (const Node* sender_node = nodes_.Find(from)) {
    assign.set_sender_address(sender_node->info.address());
  }
  assign.set_slices(slices);
  assign.set_keep(want.keep);
  // The node ignores an Assign for an earlier Want than its open one: the Assign crossed an Unwant.
  assign.set_want(want.number);
}

void PullScheduler::BeginPulling(Object& object, Node& node, Want& want) {
  want.state = WantState::kPulling;
  ++node.pulls;
  object.waiting.erase({want.order, node.key});
  --waiting_wants_;
}

void PullScheduler::EndFeeds(Object& object, const NodeKey& receiver, bool completed,
                             const RelayTree* only) {
  const auto found = object.wants.find(receiver);
  if (found == object.wants.end()) return;
  Want& want = found->second;
  if (want.state == WantState::kPulling) {
    want.state = WantState::kWaiting;
    if (Node* node = nodes_.Find(receiver)) --node->pulls;
    const auto copy = object.copies.find(receiver);
    if (copy != object.copies.end() && copy->second.pull != nullptr)
      copy->second.pull->ended = context_.now;
  } else if (object.trees.second == nullptr) {
    // With two trees, a node that waits for one half can be fed the other.
    return;
  }
  for (RelayTree* tree : object.trees.all()) {
    RelayTree::Member* member = tree->Find(receiver);
    if (member == nullptr || (only != nullptr && tree != only)) continue;
    // Before the feeds are gone: the planner counts pulls by the nodes at both ends.
    for (const auto& feed : member->feeds) {
      planner_.PullEnded(feed->sender->endpoint.node, receiver, context_.now);
    }
    if (completed) {
      // Not through Detach: every member downstream would lose its root and be rooted again.
      tree->Complete(member);
    } else {
      if (!member->feeds.empty()) tree->Detach(member);
      if (want.outside_sender.valid()) tree->SetFedFromOutside(member, false);
    }
  }
  want.outside_sender = NodeKey();
}

void PullScheduler::RequeueIn(Object& object, const NodeKey& key, const RelayTree* only) {
  const auto found = object.wants.find(key);
  if (found == object.wants.end()) return;
  const bool pulled = found->second.state == WantState::kPulling;
  EndFeeds(object, key, /*completed=*/false, only);
  if (!pulled) return;
  // With its old order, which is a part of its key in `waiting`.
  object.waiting.insert({found->second.order, key});
  ++waiting_wants_;
  object.trees.placed_at = Instant();
}

void PullScheduler::OnCopyRemoved(Object& object, const NodeKey& key) {
  if (object.wants.contains(key)) Requeue(object, key);
  for (RelayTree* tree : object.trees.all()) {
    RelayTree::Member* member = tree->Find(key);
    if (member == nullptr) continue;
    // Before Remove, which only unlinks them: each receiver must wait again in order to be planned.
    RequeueReceivers(object, *tree, *member);
    tree->Remove(key);
  }
}

void PullScheduler::DropTree(Object& object) {
  object.trees = RelayTrees();
  routes_.EndAll(object);
}

// With more than one copy the next Get uses the tree again. Making it costs a step for each copy.
void PullScheduler::DropTreeIfIdle(Object& object) {
  if (object.trees.first == nullptr || !object.wants.empty()) return;
  // Two trees are for one broadcast: a node that asks later does not wait for others.
  if (object.trees.second == nullptr && object.copies.size() > 1) return;
  object.trees = RelayTrees();
}

absl::Status PullScheduler::OnUnwant(Node& node, const v1::Unwant& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  // By the number of the order: a refusal that crossed a later Fetch must not answer that one.
  if (m.fetch() != 0) {
    placements_.Refused(id, node.key, m.fetch());
    listener_.OnOrderRefused(id, node.key, m.fetch());
  }
  Object* object = objects_.Find(id);
  if (object == nullptr) return absl::OkStatus();
  // An Unwant without it can have crossed the order.
  if (m.fetch() != 0) routes_.OnRefused(*object, node.key, m.fetch());
  if (!object->wants.contains(node.key)) {
    if (routes_.Has(*object)) objects_.Reevaluate(*object);
    return absl::OkStatus();
  }
  EndWant(*object, node.key);
  // The node drops its part: its receivers get another sender now, not when their pulls fail.
  RemovePartialCopy(*object, node.key);
  listener_.OnRefused(*object, node.key);
  objects_.Reevaluate(*object);
  return absl::OkStatus();
}

void PullScheduler::OnCopyComplete(Object& object, const NodeKey& node) {
  // The order matters: EndFeeds keeps the receivers below rooted, and EndWant would detach the
  // feeds.
  EndFeeds(object, node, /*completed=*/true);
  // Also without a pull: the copy may be a writer's, or come from a registration or a Deliver.
  const Copy& copy = object.copies.at(node);
  for (RelayTree* tree : object.trees.all()) tree->Complete(Join(object, *tree, node, copy));
  if (object.wants.contains(node)) EndWant(object, node);
}

void PullScheduler::OnCopyRegistered(Object& object, const NodeKey& node, bool connected) {
  const Copy& copy = object.copies.at(node);
  for (RelayTree* tree : object.trees.all()) {
    tree->SetConnected(Join(object, *tree, node, copy), connected);
  }
}

void PullScheduler::SetConnected(Object& object, const NodeKey& node, bool connected) {
  for (RelayTree* tree : object.trees.all()) {
    if (RelayTree::Member* member = tree->Find(node)) tree->SetConnected(member, connected);
  }
}

void PullScheduler::Postpone(Object& object, const NodeKey& node) {
  const auto want = object.wants.find(node);
  if (want == object.wants.end()) return;
  // A node that withdraws what it gets, because it has no memory, would otherwise be sent the
  // object again and again in a busy loop.
  const int doublings = std::min(want->second.withdrawals++, 8);
  want->second.not_before = context_.now + absl::Milliseconds(10) * (1 << doublings);
}

// Keys first: Requeue changes the wants that it ends.
void PullScheduler::RequeueOutsidePulls(Object& object) {
  std::vector<NodeKey> outside;
  for (const auto& [key, want] : object.wants) {
    if (want.outside_sender.valid()) outside.push_back(key);
  }
  for (const NodeKey& key : outside) Requeue(object, key);
}

void PullScheduler::RefuseWants(Object& object) {
  if (object.wants.empty()) return;
  // A generation that stands by may answer the wants, and while the gate is learning one may still
  // be registered: a Get that was made after the Delete would wrongly end with NotFound.
  const Tombstone* tombstone =
      object.standbys.empty() && !gate_.learning() ? tombstones_.FindDeleted(object.id) : nullptr;
  const absl::Status* failure = failures_.Find(object.id);
  if (tombstone == nullptr && failure == nullptr) return;
  while (!object.wants.empty()) {
    const NodeKey key = object.wants.begin()->first;
    const uint64_t number = object.wants.begin()->second.number;
    EndWant(object, key);
    if (tombstone != nullptr) {
      outbox_.SendDeleted(key, object.id, tombstone->last, tombstone->by_ttl);
    } else {
      outbox_.SendRefused(key, object.id, number, failure->code(), failure->message());
    }
  }
}

absl::Status PullScheduler::CheckInvariants() const {
  if (absl::Status status = routes_.CheckInvariants(); !status.ok()) return status;
  absl::btree_map<NodeKey, uint64_t> pulls;
  absl::btree_map<NodeKey, int> pushes;
  size_t open = 0;
  size_t waiting = 0;
  for (const auto& [id, object] : objects_.all()) {
    if (absl::Status status = CheckWants(*object, nodes_, context_.now); !status.ok())
      return status;
    for (const auto& [key, want] : object->wants) {
      if (want.state == WantState::kPulling) ++pulls[key];
      for (const RelayTree* tree : object->trees.all()) {
        const RelayTree::Member* member = tree->Find(key);
        if (member == nullptr) continue;
        for (const auto& feed : member->feeds) ++pushes[feed->sender->endpoint.node];
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
