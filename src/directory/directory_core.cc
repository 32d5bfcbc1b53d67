#include "src/directory/directory_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/directory_core_impl.h"

namespace phalanx::directory {

DirectoryCore::DirectoryCore(DirectoryOptions options, Instant start, Random random)
    : impl_(std::make_unique<Impl>(options, start, random)) {}
DirectoryCore::~DirectoryCore() = default;

void DirectoryCore::NodeUp(const v1::NodeInfo& node, Instant now) {
  impl_->now_ = now;
  impl_->NodeUp(node, now);
  impl_->Conclude();
}

void DirectoryCore::NodeDown(const NodeKey& node, Instant now) {
  impl_->now_ = now;
  impl_->NodeDown(node);
  impl_->EndLearningIfDue();
  impl_->Conclude();
}

void DirectoryCore::NodeConnected(const NodeKey& node, bool connected, Instant now) {
  impl_->now_ = now;
  impl_->NodeConnected(node, connected);
  impl_->Conclude();
}

absl::Status DirectoryCore::OnMessage(const NodeKey& node, const v1::NodeMessage& message,
                                      Instant now) {
  impl_->now_ = now;
  absl::Status status = impl_->OnMessage(node, message);
  impl_->Conclude();
  return status;
}

void DirectoryCore::NotePause(Instant now) {
  impl_->now_ = now;
  impl_->NotePause();
}

void DirectoryCore::Tick(Instant now) {
  impl_->now_ = now;
  impl_->Tick();
  impl_->Conclude();
}

Instant DirectoryCore::NextDeadline() const { return impl_->NextDeadline(); }

std::vector<DirectoryCore::Outgoing> DirectoryCore::TakeOutbox() {
  impl_->inline_in_outbox_ = 0;
  return std::exchange(impl_->outbox_, {});
}

void DirectoryCore::NoteUnderWay(uint64_t bytes) { impl_->under_way_bytes_ = bytes; }

absl::Status DirectoryCore::Describe(const ObjectId& id, Instant now,
                                     v1::DescribeObjectResponse* out) const {
  return impl_->Describe(id, now, out);
}
absl::Status DirectoryCore::List(const v1::ListObjectsRequest& request,
                                 v1::ListObjectsResponse* out) const {
  return impl_->List(request, out);
}
void DirectoryCore::FillStatus(Instant now, v1::GetStatusResponse* out) const {
  impl_->FillStatus(now, out);
}
absl::Status DirectoryCore::CheckInvariants() const { return impl_->CheckInvariants(); }

DirectoryCore::Impl::Impl(DirectoryOptions options, Instant start, Random random)
    : options_(options),
      start_(start),
      random_(random),
      now_(start),
      learning_(!options.first_life),
      learn_until_(start + options.lease),
      // Grows within one life; starts elsewhere in each, so that an old shard's plan is not taken
      // for one of ours.
      next_plan_((random_.Next() & 0x7fffffff) << 32 | 1),
      life_low_(random_.Next()),
      life_high_(random_.Next()),
      planner_(options.lease, options.relay_bytes),
      ended_(options.max_ended_reductions, options.max_ended_entries),
      broadcasts_({options.max_sticky, options.max_broadcasts}),
      holds_(options.max_holds) {}

void DirectoryCore::Impl::Conclude() {
  do {
    RunReductions();
  } while (FreeUnheld());
  RunBroadcasts();
  TellDrains();
}

v1::ShardMessage& DirectoryCore::Impl::Send(const NodeKey& to) {
  return outbox_.emplace_back(Outgoing{to, {}}).message;
}

Node* DirectoryCore::Impl::FindNode(const NodeKey& key) {
  const auto found = nodes_.find(key);
  return found == nodes_.end() ? nullptr : found->second.get();
}

const Node* DirectoryCore::Impl::FindNode(const NodeKey& key) const {
  const auto found = nodes_.find(key);
  return found == nodes_.end() ? nullptr : found->second.get();
}

Object* DirectoryCore::Impl::FindObject(const ObjectId& id) {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second.get();
}

Object& DirectoryCore::Impl::GetObject(const ObjectId& id) {
  auto [at, added] = objects_.try_emplace(id);
  if (added) at->second = std::make_unique<Object>(id);
  return *at->second;
}

// There may be another copy of what was there: it is lost when the shard has learned.
bool DirectoryCore::Impl::MayComeBack(const Object& object) const {
  return object.adopted && object.sealed && object.copies.empty() && Learning();
}

void DirectoryCore::Impl::ReleaseIfEmpty(Object& object) {
  if (!object.copies.empty() || !object.wants.empty() || !object.attempts.empty()) return;
  if (AwaitsResult(object)) return;
  if (MayComeBack(object)) return;
  KeepMark(object);
  EndBroadcast(object, absl::DataLossError("no copy of it is left"));
  if (object.inline_cached && DefectActive(Defect::kInlineKeptAfterDelete)) return;
  DropInline(object);
  if (!object.timer.infinite()) timers_.erase({object.timer, object.id});
  drain_refusals_.erase(object.id);
  if (Node* target = FindNode(object.drain_target)) target->objects.erase(object.id);
  for (const NodeKey& key : draining_) {
    FindNode(key)->sole_fetching.erase(object.id);
    FindNode(key)->sole_queued.erase(object.id);
    FindNode(key)->sole_stuck.erase(object.id);
  }
  objects_.erase(object.id);
}

void DirectoryCore::Impl::UninvolveIfDone(const NodeKey& key, Object& object) {
  Node* node = FindNode(key);
  if (node == nullptr || object.copies.contains(key) || object.wants.contains(key)) return;
  if (object.drain_target == key) return;
  for (const Attempt& attempt : object.attempts) {
    if (attempt.node == key) return;
  }
  node->objects.erase(object.id);
}

void DirectoryCore::Impl::SetTimer(Object& object, Instant when) {
  if (when >= object.timer) return;
  if (!object.timer.infinite()) timers_.erase({object.timer, object.id});
  object.timer = when;
  timers_.insert({when, object.id});
}

void DirectoryCore::Impl::OnTimer(Object& object) {
  const bool unheard =
      std::any_of(object.last_hopes.begin(), object.last_hopes.end(), [this](const NodeKey& key) {
        const Node* node = FindNode(key);
        return node != nullptr && !node->connected;
      });
  if (object.void_at <= now_ && unheard) {
    // It is heard again or fenced before another lease has passed.
    object.void_at = now_ + options_.lease;
  } else if (object.void_at <= now_) {
    object.last_hopes.clear();
    object.void_at = Instant::Infinite();
  }
  SetTimer(object, object.void_at);
  if (object.spared_until > now_) SetTimer(object, object.spared_until);
  RetryStuckDrain(object);
  Settle(object);
}

void DirectoryCore::Impl::NodeUp(const v1::NodeInfo& info, Instant now) {
  const NodeKey key = FromProto(info.key());
  const auto other_life = nodes_.lower_bound(NodeKey{key.node, 0});
  if (other_life != nodes_.end() && other_life->first.node == key.node &&
      other_life->first != key) {
    NodeDown(NodeKey(other_life->first));
  }
  StopAwaitingOtherLives(key);
  auto [at, added] = nodes_.try_emplace(key);
  if (added) {
    at->second = std::make_unique<Node>();
    at->second->key = key;
  } else {
    BeginStale(*at->second);
    ReductionSessionBegins(key);
    broadcasts_.SessionBegins(key);
  }
  Node& node = *at->second;
  node.info = info;
  node.endpoint = Endpoint{key, Place::FromNode(info)};
  node.session = next_session_++;
  node.connected = true;
  node.registering = true;
  node.last_heard = now;
  holds_.SessionBegins(key);
  if (added && options_.num_shards > 1) TellForeignAgain();
}

void DirectoryCore::Impl::NodeDown(const NodeKey& key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return;
  // Out of the books first: nothing is planned for it while its objects are settled.
  const std::unique_ptr<Node> node = std::move(found->second);
  nodes_.erase(found);
  going_ = node.get();
  holds_.SessionEnds(key, now_ + options_.lease);
  draining_.erase(key);
  if (draining_.empty()) drain_refusals_.clear();
  ForgetConfirms(key, Sorted(node->unconfirmed), ~uint64_t{0});
  AwaitCommitted(key);
  for (const ObjectId& id : Sorted(node->objects)) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    EndWant(*object, key);
    if (object->copies.contains(key) && !DefectActive(Defect::kCopyListKeepsDeadNode)) {
      StrikeCopy(*object, key);
    }
    std::erase_if(object->attempts, [&key](const Attempt& a) { return a.node == key; });
    ForgetDrainTarget(*object, key);
    Settle(*object);
  }
  ReductionNodeDown(key);
  broadcasts_.NodeGone(key);
  going_ = nullptr;
}

void DirectoryCore::Impl::NodeConnected(const NodeKey& key, bool connected) {
  Node* node = FindNode(key);
  if (node == nullptr || node->connected == connected) return;
  node->connected = connected;
  node->last_heard = now_;
  for (const ObjectId& id : Sorted(node->objects)) {
    Object* object = FindObject(id);
    if (object == nullptr) continue;
    if (object->tree != nullptr) {
      BroadcastTree::Member* member = object->tree->Find(key);
      const auto copy = object->copies.find(key);
      const bool stale = copy != object->copies.end() && copy->second.stale;
      if (member != nullptr) object->tree->SetConnected(member, connected && !stale);
    }
    if (!connected) continue;
    SupersedeAll(*object);
    Plan(*object);
  }
  if (!connected) return;
  RetryStuckDrains();
  // It may be the first by way of whom the sources of other shards can be watched.
  for (const auto& [target, reduction] : reductions_) {
    if (reduction->has_foreign && !reduction->agent.valid()) TouchReduction(target);
  }
}

namespace {

// Of a message about one object.
absl::string_view ObjectIdOf(const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kRegisterCopy:
      return message.register_copy().object_id();
    case v1::NodeMessage::kRegisterWant:
      return message.register_want().object_id();
    case v1::NodeMessage::kRegisterTombstone:
      return message.register_tombstone().object_id();
    case v1::NodeMessage::kAnnounceCreate:
      return message.announce_create().object_id();
    case v1::NodeMessage::kAnnounceSeal:
      return message.announce_seal().object_id();
    case v1::NodeMessage::kWithdraw:
      return message.withdraw().object_id();
    case v1::NodeMessage::kWant:
      return message.want().object_id();
    case v1::NodeMessage::kUnwant:
      return message.unwant().object_id();
    case v1::NodeMessage::kPullReport:
      return message.pull_report().object_id();
    case v1::NodeMessage::kEvictRequest:
      return message.evict_request().object_id();
    case v1::NodeMessage::kDeleteRequest:
      return message.delete_request().object_id();
    case v1::NodeMessage::kDeleteConfirm:
      return message.delete_confirm().object_id();
    case v1::NodeMessage::kQueryRequest:
      return message.query_request().object_id();
    case v1::NodeMessage::kPrefetchRequest:
      return message.prefetch_request().object_id();
    case v1::NodeMessage::kBroadcastRequest:
      return message.broadcast_request().object_id();
    case v1::NodeMessage::kReduceRequest:
      return message.reduce_request().object_id();
    case v1::NodeMessage::kExtendRequest:
      return message.extend_request().object_id();
    case v1::NodeMessage::kFoldReport:
      return message.fold_report().object_id();
    case v1::NodeMessage::kFailRequest:
      return message.fail_request().object_id();
    case v1::NodeMessage::kRegisterFold:
      return message.register_fold().object_id();
    case v1::NodeMessage::kSourceState:
      return message.source_state().source_id();
    case v1::NodeMessage::kClaim:
      return message.claim().object_id();
    case v1::NodeMessage::kKeepRequest:
      return message.keep_request().object_id();
    default:
      return {};
  }
}

}  // namespace

absl::Status DirectoryCore::Impl::OnMessage(const NodeKey& key, const v1::NodeMessage& message) {
  Node* node = FindNode(key);
  if (node == nullptr) {
    ++counters_.late_messages;
    return absl::OkStatus();
  }
  node->last_heard = now_;
  const absl::Status status = Handle(*node, message);
  if (status.ok()) return status;
  const auto id = ParseObjectId(ObjectIdOf(message));
  return absl::Status(status.code(),
                      absl::StrCat("node ", node->info.name(),
                                   id.ok() ? ", object " + id->hex() : "", ": ", status.message()));
}

absl::Status DirectoryCore::Impl::Handle(Node& node, const v1::NodeMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeMessage::kRegisterBegin:
      return OnRegisterBegin(node, message.register_begin());
    case v1::NodeMessage::kRegisterCopy:
      return OnRegisterCopy(node, message.register_copy());
    case v1::NodeMessage::kRegisterWant:
      return OnRegisterWant(node, message.register_want());
    case v1::NodeMessage::kRegisterTombstone:
      return OnRegisterTombstone(node, message.register_tombstone());
    case v1::NodeMessage::kRegisterEnd:
      OnRegisterEnd(node);
      return absl::OkStatus();
    case v1::NodeMessage::kAnnounceCreate:
      return OnCreate(node, message.announce_create());
    case v1::NodeMessage::kAnnounceSeal:
      return OnSeal(node, message.announce_seal());
    case v1::NodeMessage::kWithdraw:
      return OnWithdraw(node, message.withdraw());
    case v1::NodeMessage::kWant:
      return OnWant(node, message.want());
    case v1::NodeMessage::kUnwant:
      return OnUnwant(node, message.unwant());
    case v1::NodeMessage::kPullReport:
      return OnPullReport(node, message.pull_report());
    case v1::NodeMessage::kProgress:
      return OnProgress(node, message.progress());
    case v1::NodeMessage::kEvictRequest:
      return OnEvict(node, message.evict_request());
    case v1::NodeMessage::kDeleteRequest:
      return OnDelete(node, message.delete_request());
    case v1::NodeMessage::kDeleteConfirm:
      return OnDeleteConfirm(node, message.delete_confirm());
    case v1::NodeMessage::kQueryRequest:
      return OnQuery(node, message.query_request());
    case v1::NodeMessage::kPrefetchRequest:
      return OnPrefetch(node, message.prefetch_request());
    case v1::NodeMessage::kBroadcastRequest:
      return OnBroadcast(node, message.broadcast_request());
    case v1::NodeMessage::kDrainRequest:
      return OnDrain(node);
    case v1::NodeMessage::kReduceRequest:
      return OnReduce(node, message.reduce_request());
    case v1::NodeMessage::kExtendRequest:
      return OnExtend(node, message.extend_request());
    case v1::NodeMessage::kFoldReport:
      return OnFoldReport(node, message.fold_report());
    case v1::NodeMessage::kFailRequest:
      return OnFail(node, message.fail_request());
    case v1::NodeMessage::kRegisterFold:
      return OnRegisterFold(node, message.register_fold());
    case v1::NodeMessage::kWatchSource:
      return OnWatchSource(node, message.watch_source());
    case v1::NodeMessage::kSourceState:
      return OnSourceState(node, message.source_state());
    case v1::NodeMessage::kRegisterHolds:
      return OnRegisterHolds(node, message.register_holds());
    case v1::NodeMessage::kHold:
      return OnHold(node, message.hold());
    case v1::NodeMessage::kUnhold:
      return OnUnhold(node, message.unhold());
    case v1::NodeMessage::kClaim:
      return OnClaim(node, message.claim());
    case v1::NodeMessage::kKeepRequest:
      return OnKeep(node, message.keep_request());
    case v1::NodeMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of no kind this shard knows");
}

void DirectoryCore::Impl::Tick() {
  EndLearningIfDue();
  holds_.Expire(now_);
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const ObjectId id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Object* object = FindObject(id);
    object->timer = Instant::Infinite();
    OnTimer(*object);
  }
  while (!reduce_timers_.empty() && reduce_timers_.begin()->first <= now_) {
    OnReduceTimer(*FindReduction(ObjectId(reduce_timers_.begin()->second)));
  }
  ForgetTombstones();
  planner_.Tick(now_);
}

void DirectoryCore::Impl::NotePause() {
  const Instant anew = now_ + options_.lease;
  learn_until_ = std::max(learn_until_, anew);
  holds_.Postpone(anew);
  for (const auto& [when, id] : timers_) {
    Object& object = *FindObject(id);
    if (!object.void_at.infinite()) object.void_at = std::max(object.void_at, anew);
  }
  for (const auto& [target, reduction] : reductions_) {
    if (!reduction->awaited.empty()) {
      reduction->awaited_until = std::max(reduction->awaited_until, anew);
    }
  }
}

Instant DirectoryCore::Impl::NextDeadline() const {
  Instant next = holds_.NextDeadline();
  // What is left over from the last turn.
  if (broadcasts_.walking()) next = std::min(next, now_);
  // Looked at often, so that a pause within the lease is noticed and not taken for part of it.
  if (learning_) next = std::min(next, now_ + options_.lease / 4);
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (!reduce_timers_.empty()) next = std::min(next, reduce_timers_.begin()->first);
  if (!tombstones_by_age_.empty()) {
    const auto oldest = tombstones_.find(tombstones_by_age_.begin()->second);
    const Instant of_age = oldest->second->since + options_.tombstone_age;
    const bool too_many = tombstones_.size() > options_.max_tombstones;
    // What is left over from the last turn is due now, not a pause long.
    next = std::min(next, too_many ? now_ : std::max(of_age, now_));
  }
  return next;
}

}  // namespace phalanx::directory
