#include "src/directory/testing/directory_core_world.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory::testing {
namespace {

// Of a node whose connection broke.
constexpr absl::Duration kGrace = absl::Milliseconds(30);

template <typename Message>
Message* About(const ObjectId& id, const Generation& generation, Message* out) {
  out->set_object_id(id.binary().data(), ObjectId::kSize);
  ToProto(generation, out->mutable_generation());
  return out;
}

template <typename Message>
void SetId(const ObjectId& id, Message* out) {
  out->set_object_id(id.binary().data(), ObjectId::kSize);
}

ObjectId IdOf(const std::string& bytes) { return *ObjectId::FromBinary(bytes); }

}  // namespace

World::World(Options options, uint64_t seed) : options_(std::move(options)), random_(seed) {
  directory_options_.inline_cache_bytes = 64;
  core_ = std::make_unique<DirectoryCore>(directory_options_, now_, random_.Fork());
  for (int i = 0; i < options_.objects; ++i) {
    ids_.push_back(ObjectId::FromName("world", absl::StrCat(i)));
  }
  nodes_.resize(options_.nodes);
  for (int i = 0; i < options_.nodes; ++i) {
    Node& node = nodes_[i];
    node.key = NodeKey{static_cast<uint64_t>(i + 1), 1};
    ToProto(node.key, node.info.mutable_key());
    node.info.set_name(absl::StrCat("n", i));
    node.info.set_address(absl::StrCat("10.0.0.", i, ":1"));
    Open(node);
  }
  if (options_.cuts) DrawCuts();
}

// One node at least reaches all others, in both directions.
void World::DrawCuts() {
  const uint64_t lonely = nodes_[0].key.node;
  for (size_t i = 1; i + 1 < nodes_.size(); ++i) {
    const uint64_t other = nodes_[i].key.node;
    if (random_.Chance(0.5)) cuts_.insert({lonely, other});
    if (random_.Chance(0.5)) cuts_.insert({other, lonely});
  }
}

ObjectId World::AnyObject() { return ids_[random_.Below(ids_.size())]; }

World::Node* World::FindLife(const NodeKey& key) {
  for (Node& node : nodes_) {
    if (node.key == key && node.alive) return &node;
  }
  return nullptr;
}

void World::Put(Node& node, const ObjectId& id) {
  if (node.locals.contains(id) || node.wants.contains(id)) return;
  Local& local = node.locals[id];
  local.generation = Generation{node.key, node.next_sequence++};
  local.primary = true;
  const bool small = random_.Chance(0.4);
  local.size = small ? 1 + random_.Below(30) : 1 << 20;
  local.complete = small || random_.Chance(0.3);
  local.writing = !local.complete;
  v1::AnnounceCreate& m =
      *About(id, local.generation, node.to_shard.emplace_back().mutable_announce_create());
  m.mutable_info()->set_size_bytes(local.size);
  m.mutable_info()->set_slices(1);
  m.set_complete(local.complete);
  m.set_has_inline(small);
  if (small) m.set_inline_bytes(std::string(local.size, 'x'));
}

void World::SealOne(Node& node) {
  for (auto& [id, local] : node.locals) {
    if (!local.writing) continue;
    local.writing = false;
    local.complete = true;
    About(id, local.generation, node.to_shard.emplace_back().mutable_announce_seal());
    return;
  }
}

void World::Abort(Node& node) {
  for (auto& [id, local] : node.locals) {
    if (!local.writing) continue;
    About(id, local.generation, node.to_shard.emplace_back().mutable_withdraw());
    node.locals.erase(id);
    return;
  }
}

void World::EvictOne(Node& node) {
  for (auto& [id, local] : node.locals) {
    if (!local.complete || local.primary || local.evicting) continue;
    local.evicting = true;
    About(id, local.generation, node.to_shard.emplace_back().mutable_evict_request());
    return;
  }
}

void World::Crash(Node& node) {
  if (!node.alive) {
    node.alive = true;
    ++node.key.incarnation;
    ToProto(node.key, node.info.mutable_key());
    node.knows_shard = false;
    Open(node);
    return;
  }
  Trace(node, "dies");
  node.alive = false;
  if (node.up) core_->NodeDown(node.key, now_);
  node.up = false;
  const NodeKey key = node.key;
  const v1::NodeInfo info = node.info;
  node = Node();
  node.key = key;
  node.info = info;
  node.alive = false;
}

void World::Fence(Node& node) {
  if (!node.alive) return;
  if (!node.up) {
    Open(node);
    return;
  }
  // Opens a new session before the shard has noticed the end of the old one, or after it.
  if (random_.Chance(0.5)) {
    Trace(node, "is fenced");
    core_->NodeDown(node.key, now_);
    node.up = false;
    return;
  }
  Open(node);
}

void World::Open(Node& node) {
  Trace(node, "opens a session");
  node.up = true;
  node.connected = true;
  node.to_shard.clear();
  node.from_shard.clear();
  node.lacking.clear();
  node.fetches.clear();
  core_->NodeUp(node.info, now_);
  node.to_shard.emplace_back().mutable_register_begin()->set_had_session(node.knows_shard);
  node.knows_shard = true;
  for (auto& [id, local] : node.locals) {
    local.evicting = false;
    v1::RegisterCopy& m =
        *About(id, local.generation, node.to_shard.emplace_back().mutable_register_copy());
    m.mutable_info()->set_size_bytes(local.size);
    m.mutable_info()->set_slices(1);
    m.set_primary(local.primary);
    m.set_adopted(local.adopted);
    m.set_complete(local.complete);
    m.set_writing(local.writing);
    if (local.plan != 0) ToProto(local.sender, m.mutable_sender());
  }
  for (const auto& [id, keep] : node.wants) {
    v1::RegisterWant& m = *node.to_shard.emplace_back().mutable_register_want();
    SetId(id, &m);
    m.set_keep(keep);
  }
  for (const auto& [id, generation] : node.tombstones) {
    About(id, generation, node.to_shard.emplace_back().mutable_register_tombstone());
  }
  node.to_shard.emplace_back().mutable_register_end();
}

void World::RestartShard() {
  if (options_.trace) std::cerr << "the shard restarts\n";
  core_ = std::make_unique<DirectoryCore>(directory_options_, now_, random_.Fork());
  for (Node& node : nodes_) {
    node.up = false;
    node.to_shard.clear();
    node.from_shard.clear();
  }
}

void World::ToggleStream(Node& node) {
  if (!node.up) return;
  node.connected = !node.connected;
  // The grace if the connection broke, the lease if the node fell silent.
  node.believed_until = now_ + (random_.Chance(0.25) ? kGrace : directory_options_.lease);
  Trace(node, node.connected ? "is connected again" : "is disconnected");
  core_->NodeConnected(node.key, node.connected, now_);
}

void World::FenceTheSilent() {
  for (Node& node : nodes_) {
    if (!node.up || node.connected || now_ < node.believed_until) continue;
    Trace(node, "is fenced");
    node.up = false;
    core_->NodeDown(node.key, now_);
  }
}

void World::AskFor(Node& node, const ObjectId& id, bool keep) {
  if (node.wants.contains(id) || node.locals.contains(id)) return;
  node.wants[id] = keep;
  v1::Want& m = *node.to_shard.emplace_back().mutable_want();
  SetId(id, &m);
  m.set_keep(keep);
}

void World::AskAgain(Node& node, const ObjectId& id) {
  v1::Want& m = *node.to_shard.emplace_back().mutable_want();
  SetId(id, &m);
  m.set_keep(node.wants.at(id));
  const auto lacking = node.lacking.find(id);
  if (lacking != node.lacking.end()) ToProto(lacking->second, m.mutable_no_room_for());
}

bool World::Lacks(Node& node, const ObjectId& id, const Generation& generation) {
  const auto lacking = node.lacking.find(id);
  const bool already = lacking != node.lacking.end() && lacking->second == generation;
  const auto local = node.locals.find(id);
  const bool part = local != node.locals.end() && local->second.generation == generation;
  if (!already) node.lacking.erase(id);
  const bool runs_out = options_.memory_runs_out && !settling_ && !part && random_.Chance(0.15);
  if (!already && !runs_out) return false;
  // The node drops a copy of another generation before it requests the memory.
  if (local != node.locals.end()) node.locals.erase(local);
  node.lacking[id] = generation;
  AskAgain(node, id);
  return true;
}

void World::FindMemory(Node& node) {
  if (node.lacking.empty()) return;
  const ObjectId id = node.lacking.begin()->first;
  node.lacking.erase(node.lacking.begin());
  AskAgain(node, id);
}

void World::SendProgress(Node& node) {
  v1::Progress& m = *node.to_shard.emplace_back().mutable_progress();
  for (const auto& [id, local] : node.locals) {
    if (local.plan == 0) continue;
    v1::Progress::Pull& pull = *About(id, local.generation, m.add_pulls());
    pull.set_plan_id(local.plan);
    const bool cut = Cut(node, local.sender);
    pull.set_connecting(cut && random_.Chance(0.5));
    pull.add_watermarks(cut ? 0 : random_.Below(local.size + 1));
    pull.set_bytes_per_second(random_.Chance(0.3) ? 1e3 : 1e6);
    pull.set_starved_ns(random_.Below(3) * 100'000'000);
  }
}

void World::Fail(Node& node, const ObjectId& id, absl::StatusCode code) {
  Local& local = node.locals.at(id);
  v1::PullReport& m =
      *About(id, local.generation, node.to_shard.emplace_back().mutable_pull_report());
  m.set_plan_id(local.plan);
  m.set_code(static_cast<int>(code));
  node.last_report = m;
  local.plan = 0;
}

bool World::Cut(const Node& receiver, const NodeKey& sender) const {
  return cuts_.contains({receiver.key.node, sender.node});
}

void World::RunPull(Node& node) {
  std::vector<ObjectId> pulling;
  for (const auto& [id, local] : node.locals) {
    if (local.plan != 0) pulling.push_back(id);
  }
  if (pulling.empty()) return;
  const ObjectId id = pulling[random_.Below(pulling.size())];
  Local& local = node.locals.at(id);
  Node* sender = FindLife(local.sender);
  if (sender == nullptr) return Fail(node, id, absl::StatusCode::kUnavailable);
  if (Cut(node, local.sender)) {
    return Fail(
        node, id,
        random_.Chance(0.5) ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded);
  }
  const auto there = sender->locals.find(id);
  if (there == sender->locals.end() || there->second.generation != local.generation) {
    return Fail(node, id, absl::StatusCode::kNotFound);
  }
  if (!there->second.complete) return;
  local.complete = true;
  local.primary = node.wants[id];
  v1::PullReport& m =
      *About(id, local.generation, node.to_shard.emplace_back().mutable_pull_report());
  m.set_plan_id(local.plan);
  m.set_complete(true);
  local.plan = 0;
  node.wants.erase(id);
}

void World::Act() {
  Node& node = AnyNode();
  const uint64_t dice = random_.Below(100);
  if (dice < 3 && options_.crashes) return Crash(node);
  if (dice < 6 && options_.fencing) return Fence(node);
  if (dice < 7 && options_.shard_restarts) return RestartShard();
  if (!node.alive) return;
  if (!node.up) return Open(node);
  if (dice < 20) return Put(node, AnyObject());
  if (dice < 40) {
    AskFor(node, AnyObject(), /*keep=*/random_.Chance(0.1));
  } else if (dice < 43 && !node.wants.empty()) {
    GiveUp(node, node.wants.begin()->first, /*order=*/0);
  } else if (dice < 53) {
    SealOne(node);
  } else if (dice < 55) {
    Abort(node);
  } else if (dice < 60) {
    EvictOne(node);
  } else if (dice < 62 && options_.deletes) {
    v1::DeleteRequest& m = *node.to_shard.emplace_back().mutable_delete_request();
    SetId(AnyObject(), &m);
    m.set_request_id(next_request_++);
  } else if (dice < 64 && options_.stale_reports && node.last_report.plan_id() != 0) {
    *node.to_shard.emplace_back().mutable_pull_report() = node.last_report;
  } else if (dice < 90) {
    RunPull(node);
  } else if (dice < 91) {
    SendProgress(node);
    FindMemory(node);
  } else if (dice < 93) {
    if (options_.disconnects) ToggleStream(node);
  } else if (dice < 94) {
    if (options_.drains) node.to_shard.emplace_back().mutable_drain_request();
  } else if (dice < 96) {
    // A link breaks without a cause.
    for (auto& [id, local] : node.locals) {
      if (local.plan == 0) continue;
      Fail(node, id, absl::StatusCode::kUnavailable);
      break;
    }
  } else {
    now_ = now_ + absl::Milliseconds(random_.Below(800));
    FenceTheSilent();
    core_->Tick(now_);
  }
}

bool World::SendOne(Node& node) {
  if (!node.up || !node.connected || node.to_shard.empty()) return false;
  const v1::NodeMessage message = std::move(node.to_shard.front());
  node.to_shard.pop_front();
  Trace(node, "tells", &message);
  const absl::Status status = core_->OnMessage(node.key, message, now_);
  if (!status.ok() && wrong_.ok()) wrong_ = status;
  Collect();
  return true;
}

void World::Collect() {
  for (DirectoryCore::Outgoing& out : core_->TakeOutbox()) {
    if (options_.on_outgoing) options_.on_outgoing(out);
    Node* node = FindLife(out.to);
    if (node != nullptr) CheckOrder(*node, out.message);
    if (node != nullptr && node->up) node->from_shard.push_back(std::move(out.message));
  }
}

bool World::ReceiveOne(Node& node) {
  if (!node.up || !node.connected || node.from_shard.empty()) return false;
  const v1::ShardMessage message = std::move(node.from_shard.front());
  node.from_shard.pop_front();
  Trace(node, "hears", &message);
  OnMessage(node, message);
  return true;
}

void World::Drop(Node& node, const ObjectId& id, const Generation& generation) {
  const auto local = node.locals.find(id);
  if (local != node.locals.end() && local->second.generation == generation) {
    node.locals.erase(local);
  }
}

void World::CheckOrder(const Node& node, const v1::ShardMessage& message) {
  ObjectId id;
  Generation generation;
  const auto take = [&id, &generation](const auto& m) {
    id = IdOf(m.object_id());
    generation = FromProto(m.generation());
  };
  if (message.has_gone()) take(message.gone());
  if (message.has_verdict()) take(message.verdict());
  if (message.has_evict_reply()) take(message.evict_reply());
  if (message.gone().kind() == v1::Gone::DELETED ||
      message.verdict().kind() == v1::Verdict::DELETED) {
    deleted_.insert(generation);
  }
  const bool drop = message.gone().kind() == v1::Gone::VOID || message.evict_reply().granted() ||
                    message.verdict().kind() == v1::Verdict::SUPERSEDED;
  const auto local = node.locals.find(id);
  if (!drop || local == node.locals.end() || local->second.generation != generation) return;
  const auto wrong = [this, &id, &node](absl::string_view what) {
    if (!wrong_.ok()) return;
    wrong_ = absl::InternalError(
        absl::StrCat("object ", id.ShortHex(), ", node ", node.info.name(), ": ", what));
  };
  if (message.has_gone() && local->second.writing) wrong("void while it writes");
  if (!local->second.complete || !local->second.adopted || deleted_.contains(generation)) return;
  for (const Node& other : nodes_) {
    const auto there = other.locals.find(id);
    if (&other != &node && there != other.locals.end() && there->second.complete) return;
  }
  wrong("asked to drop the last copy");
}

void World::OnVerdict(Node& node, const v1::Verdict& m) {
  const ObjectId id = IdOf(m.object_id());
  const Generation generation = FromProto(m.generation());
  const auto local = node.locals.find(id);
  const bool have = local != node.locals.end() && local->second.generation == generation;
  switch (m.kind()) {
    case v1::Verdict::ADOPTED:
      if (have) local->second.adopted = true;
      break;
    case v1::Verdict::SUPERSEDED:
      Drop(node, id, generation);
      About(id, generation, node.to_shard.emplace_back().mutable_withdraw());
      break;
    case v1::Verdict::DELETED:
      Drop(node, id, generation);
      node.tombstones[id] = generation;
      About(id, generation, node.to_shard.emplace_back().mutable_delete_confirm());
      break;
    default:
      break;
  }
}

void World::OnAssign(Node& node, const v1::Assign& m) {
  const ObjectId id = IdOf(m.object_id());
  const Generation generation = FromProto(m.generation());
  if (!node.wants.contains(id)) {
    SetId(id, node.to_shard.emplace_back().mutable_unwant());
    return;
  }
  if (Lacks(node, id, generation)) return;
  Local& local = node.locals[id];
  if (local.complete && local.generation == generation) {
    local.plan = 0;
    ReportComplete(node, id, generation, m.plan_id());
    node.wants.erase(id);
    return;
  }
  if (local.generation != generation) local = Local();
  local.generation = generation;
  local.size = m.info().size_bytes();
  local.adopted = true;
  local.sender = FromProto(m.sender());
  local.plan = m.plan_id();
}

void World::OnGone(Node& node, const v1::Gone& m) {
  const ObjectId id = IdOf(m.object_id());
  const Generation generation = FromProto(m.generation());
  if (m.kind() == v1::Gone::DELETED) {
    Drop(node, id, generation);
    node.wants.erase(id);
    node.lacking.erase(id);
    node.tombstones[id] = generation;
    About(id, generation, node.to_shard.emplace_back().mutable_delete_confirm());
  } else if (m.kind() == v1::Gone::VOID) {
    // A node keeps what it created itself until the verdict, which can still be ADOPTED.
    if (generation.creator != node.key) Drop(node, id, generation);
    const auto lacking = node.lacking.find(id);
    if (lacking == node.lacking.end() || lacking->second != generation) return;
    node.lacking.erase(lacking);
    AskAgain(node, id);
  }
}

void World::OnDeliver(Node& node, const v1::Deliver& m) {
  const ObjectId id = IdOf(m.object_id());
  const Generation generation = FromProto(m.generation());
  const auto have = node.locals.find(id);
  const bool here = have != node.locals.end() && have->second.generation == generation;
  if (here && have->second.complete) return;
  const size_t sent_before = node.to_shard.size();
  if (!node.wants.contains(id) || Lacks(node, id, generation)) {
    v1::NodeMessage withdraw;
    About(id, generation, withdraw.mutable_withdraw());
    // Before the Want, if Lacks has opened it again.
    node.to_shard.insert(node.to_shard.begin() + static_cast<std::ptrdiff_t>(sent_before),
                         withdraw);
    return;
  }
  Local local;
  local.generation = generation;
  local.size = m.info().size_bytes();
  local.complete = true;
  local.adopted = true;
  node.locals[id] = local;
  node.wants.erase(id);
  const auto fetch = node.fetches.find(id);
  if (fetch == node.fetches.end()) return;
  ReportComplete(node, id, generation, fetch->second);
  node.fetches.erase(fetch);
}

void World::GiveUp(Node& node, const ObjectId id, PlanId order) {
  node.wants.erase(id);
  node.lacking.erase(id);
  if (const auto at = node.locals.find(id); at != node.locals.end()) node.locals.erase(at);
  v1::Unwant& unwant = *node.to_shard.emplace_back().mutable_unwant();
  SetId(id, &unwant);
  unwant.set_fetch(order);
}

void World::OnFetch(Node& node, const v1::Fetch& m) {
  const ObjectId id = IdOf(m.object_id());
  if (m.end()) {
    const auto fetch = node.fetches.find(id);
    if (fetch == node.fetches.end() || fetch->second != m.plan_id()) return;
    node.fetches.erase(fetch);
    // A client of the node can want it, too.
    if (node.wants.contains(id) && random_.Chance(0.7)) GiveUp(node, id, m.plan_id());
    return;
  }
  const auto local = node.locals.find(id);
  if (local != node.locals.end() && local->second.complete && !local->second.evicting) {
    local->second.primary |= m.keep();
    ReportComplete(node, id, local->second.generation, m.plan_id());
    return;
  }
  if (m.only_confirm()) return;
  node.fetches[id] = m.plan_id();
  AskFor(node, id, m.keep());
}

void World::ReportComplete(Node& node, const ObjectId& id, const Generation& generation,
                           PlanId plan) {
  v1::PullReport& report =
      *About(id, generation, node.to_shard.emplace_back().mutable_pull_report());
  report.set_plan_id(plan);
  report.set_complete(true);
}

void World::OnMessage(Node& node, const v1::ShardMessage& message) {
  if (message.has_verdict()) {
    OnVerdict(node, message.verdict());
  } else if (message.has_assign()) {
    OnAssign(node, message.assign());
  } else if (message.has_gone()) {
    OnGone(node, message.gone());
  } else if (message.has_deliver()) {
    OnDeliver(node, message.deliver());
  } else if (message.has_fetch()) {
    OnFetch(node, message.fetch());
  } else if (message.has_evict_reply()) {
    const v1::EvictReply& m = message.evict_reply();
    const ObjectId id = IdOf(m.object_id());
    const auto local = node.locals.find(id);
    if (local == node.locals.end() || !local->second.evicting) return;
    local->second.evicting = false;
    if (m.granted()) Drop(node, id, FromProto(m.generation()));
  }
}

void World::Trace(const Node& node, absl::string_view what, const google::protobuf::Message* m) {
  if (!options_.trace) return;
  std::string text = m != nullptr ? m->ShortDebugString() : "";
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::string id(ids_[i].binary().data(), ObjectId::kSize);
    absl::StrReplaceAll({{absl::CEscape(id), absl::StrCat("x", i)}}, &text);
  }
  std::cerr << (now_.nanos() / 1000000) << " " << node.info.name() << "." << node.key.incarnation
            << " " << what << " " << text << "\n";
}

absl::Status World::Invariants() {
  if (!wrong_.ok()) return wrong_;
  return core_->CheckInvariants();
}

absl::Status World::Step() {
  Act();
  Collect();
  SendOne(AnyNode());
  ReceiveOne(AnyNode());
  SendOne(AnyNode());
  ReceiveOne(AnyNode());
  return Invariants();
}

// One round of every possible step. False if no step was possible.
bool World::Finishing() {
  bool moved = false;
  for (Node& node : nodes_) {
    while (SendOne(node)) moved = true;
    while (ReceiveOne(node)) moved = true;
    for (const ObjectId& id : ids_) {
      const auto local = node.locals.find(id);
      if (local == node.locals.end() || local->second.plan == 0) continue;
      const size_t before = node.to_shard.size();
      RunPull(node);
      moved = moved || node.to_shard.size() != before;
    }
  }
  return moved;
}

absl::Status World::Settle() {
  settling_ = true;
  for (Node& node : nodes_) {
    if (node.alive && !node.up) Open(node);
    if (!node.connected) ToggleStream(node);
    while (!node.lacking.empty()) FindMemory(node);
    while (std::any_of(node.locals.begin(), node.locals.end(),
                       [](const auto& l) { return l.second.writing; })) {
      SealOne(node);
    }
  }
  int quiet = 0;
  for (int round = 0; round < 10000 && quiet < 60; ++round) {
    quiet = Finishing() ? 0 : quiet + 1;
    now_ = now_ + absl::Milliseconds(100);
    core_->Tick(now_);
    Collect();
    if (absl::Status status = Invariants(); !status.ok()) return status;
  }
  return quiet < 60 ? absl::InternalError("the world never comes to rest") : absl::OkStatus();
}

absl::Status World::Check() {
  for (size_t i = 0; i < ids_.size(); ++i) {
    const ObjectId& id = ids_[i];
    const std::string name = absl::StrCat("object x", i, " (", id.ShortHex(), ")");
    v1::DescribeObjectResponse described;
    const bool known = core_->Describe(id, now_, &described).ok();
    const bool deleted = known && described.summary().deleted();
    const Generation adopted = FromProto(described.summary().generation());
    std::set<NodeKey> listed;
    for (const v1::CopyDescription& copy : described.copies()) {
      if (copy.complete()) listed.insert(FromProto(copy.node()));
    }
    std::set<NodeKey> real;
    for (const Node& node : nodes_) {
      const auto wrong = [&name, &node](absl::string_view what) {
        return absl::InternalError(absl::StrCat(name, ", node ", node.info.name(), ": ", what));
      };
      if (!node.alive) continue;
      const auto local = node.locals.find(id);
      const bool has = local != node.locals.end();
      // A node that still wants the object can keep the first part of a failed pull.
      const bool counts = has && (local->second.complete || !node.wants.contains(id));
      if (counts && (deleted || !known)) return wrong("has what the shard knows nothing of");
      if (counts && local->second.generation != adopted) return wrong("has another generation");
      const auto tombstone = node.tombstones.find(id);
      if (known && !deleted && tombstone != node.tombstones.end() && tombstone->second == adopted) {
        return wrong("knows the generation as deleted");
      }
      if (has && local->second.complete) real.insert(node.key);
      if (!node.wants.contains(id)) continue;
      if (deleted) return wrong("waits for what was deleted");
      if (!listed.empty()) return wrong("waits for what others have");
    }
    if (listed != real) {
      return absl::InternalError(absl::StrCat(
          name, ": ", listed.size(), " complete copies are listed, ", real.size(), " exist"));
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory::testing
