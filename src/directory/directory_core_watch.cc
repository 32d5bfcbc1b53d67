// The sources of reductions: those that belong to this shard, those of other shards, which are
// watched by way of a node, and those whose producers failed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/directory/directory_core_impl.h"
#include "src/directory/reduce_messages.h"

namespace phalanx::directory {
namespace {

// As many as are worth knowing: one folds it, the others stand in for it.
constexpr int kMaxHoldersTold = 8;
constexpr size_t kMaxCopiesLookedAt = 256;
// Bytes of sources that travel from shard to shard, for one reduction.
constexpr size_t kMaxForeignInlineBytes = 1 << 20;

}  // namespace

bool DirectoryCore::Impl::IsForeign(const ObjectId& id) const {
  return options_.num_shards > 1 && id.ShardHash() % static_cast<uint64_t>(options_.num_shards) !=
                                        static_cast<uint64_t>(options_.shard_index);
}

void DirectoryCore::Impl::Watch(Reduction& reduction, absl::Span<const ObjectId> sources) {
  v1::WatchSource foreign;
  reduction.plan.Hold();
  for (const ObjectId& source : sources) {
    ++reduce_sources_;
    if (IsForeign(source)) {
      reduction.has_foreign = true;
      foreign.add_source_ids(source.binary().data(), ObjectId::kSize);
      continue;
    }
    watchers_[source].insert(Watcher{NodeKey(), reduction.target});
    TellPlan(reduction, source, StateOf(source, /*with_bytes=*/false));
  }
  reduction.plan.Release();
  if (foreign.source_ids_size() == 0 || FindNode(reduction.agent) == nullptr) return;
  foreign.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  *Send(reduction.agent).mutable_watch_source() = std::move(foreign);
}

void DirectoryCore::Impl::ChooseAgent(Reduction& reduction) {
  if (!reduction.has_foreign || FindNode(reduction.agent) != nullptr) return;
  const auto usable = [this](const NodeKey& key) {
    const Node* node = FindNode(key);
    return node != nullptr && node->connected && !node->registering;
  };
  reduction.agent = usable(reduction.plan.root()) ? reduction.plan.root() : NodeKey();
  for (auto at = nodes_.begin(); at != nodes_.end() && !reduction.agent.valid(); ++at) {
    if (usable(at->first)) reduction.agent = at->first;
  }
  if (!reduction.agent.valid()) return;
  v1::WatchSource& watch = *Send(reduction.agent).mutable_watch_source();
  watch.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  for (const ObjectId& source : reduction.plan.spec().sources) {
    if (IsForeign(source)) watch.add_source_ids(source.binary().data(), ObjectId::kSize);
  }
}

void DirectoryCore::Impl::Unwatch(const ObjectId& source, const Watcher& watcher) {
  const auto found = watchers_.find(source);
  if (found == watchers_.end()) return;
  found->second.erase(watcher);
  if (!found->second.empty()) return;
  watchers_.erase(found);
  const Object* object = FindObject(source);
  if (object != nullptr && Unheld(*object)) unheld_.insert(source);
}

void DirectoryCore::Impl::UnwatchAll(Reduction& reduction) {
  v1::WatchSource end;
  for (const ObjectId& source : reduction.plan.spec().sources) {
    --reduce_sources_;
    if (IsForeign(source)) {
      end.add_source_ids(source.binary().data(), ObjectId::kSize);
    } else {
      Unwatch(source, Watcher{NodeKey(), reduction.target});
    }
  }
  if (end.source_ids_size() == 0 || FindNode(reduction.agent) == nullptr) return;
  end.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  end.set_end(true);
  *Send(reduction.agent).mutable_watch_source() = std::move(end);
}

void DirectoryCore::Impl::ForgetWatcher(const NodeKey& node) {
  const auto found = watched_through_.find(node);
  if (found == watched_through_.end()) return;
  for (const auto& [source, target] : found->second) {
    Unwatch(source, Watcher{node, target});
    SpareSource(source);
  }
  watched_through_.erase(found);
}

absl::Status DirectoryCore::Impl::OnWatchSource(Node& node, const v1::WatchSource& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.target_id()));
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> sources, ParseSources(m.source_ids()));
  for (const ObjectId& source : sources) {
    if (IsForeign(source)) {
      return absl::InvalidArgumentError(
          absl::StrCat("source_ids: ", source.hex(), " belongs to another shard"));
    }
  }
  size_t bytes_left = kMaxForeignInlineBytes;
  for (const ObjectId& source : sources) {
    if (m.end()) {
      Unwatch(source, Watcher{node.key, target});
      const auto through = watched_through_.find(node.key);
      if (through != watched_through_.end()) through->second.erase({source, target});
      continue;
    }
    watchers_[source].insert(Watcher{node.key, target});
    watched_through_[node.key].insert({source, target});
    v1::SourceState state = ForeignStateOf(source, bytes_left);
    // It may still be registered; and what was put behind a tombstone, too.
    if (Learning() && !state.has_generation()) continue;
    state.set_target_id(target.binary().data(), ObjectId::kSize);
    *Send(node.key).mutable_source_state() = std::move(state);
  }
  return absl::OkStatus();
}

v1::SourceState DirectoryCore::Impl::ForeignStateOf(const ObjectId& source, size_t& bytes_left) {
  v1::SourceState state = StateOf(source, /*with_bytes=*/false);
  if (!state.has_inline()) return state;
  const std::string& bytes = FindObject(source)->inline_bytes;
  const bool room =
      bytes.size() <= bytes_left &&
      under_way_bytes_ + inline_in_outbox_ + bytes.size() <= options_.inline_under_way_bytes;
  // What nobody else can be named for is sent in any case.
  state.set_has_inline(room || state.holders_size() == 0);
  if (!state.has_inline()) return state;
  state.set_inline_bytes(bytes);
  bytes_left -= std::min(bytes_left, bytes.size());
  inline_in_outbox_ += bytes.size();
  return state;
}

v1::SourceState DirectoryCore::Impl::StateOf(const ObjectId& source, bool with_bytes) {
  v1::SourceState state;
  state.set_source_id(source.binary().data(), ObjectId::kSize);
  Object* object = FindObject(source);
  // As long as generations may still be registered that were put since.
  const bool sure = MayAdoptFromAbsence();
  if (const auto failed = failed_.find(source); sure && failed != failed_.end()) {
    state.set_code(static_cast<int>(failed->second.why.code()));
    state.set_message(std::string(failed->second.why.message()));
    return state;
  }
  if (object == nullptr || !object->adopted) {
    if (!sure || FindDeleted(source) == nullptr) return state;
    state.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    state.set_message(absl::StrCat("object ", source.hex(), " was deleted"));
    return state;
  }
  // What is being reduced counts once it is committed.
  if (object->complete_copies == 0 && FindReduction(source) != nullptr) return state;
  ListHolders(*object, &state);
  const bool bytes_here = object->inline_cached && object->complete_copies > 0;
  if (state.holders_size() == 0 && !bytes_here) return state;
  ToProto(object->generation, state.mutable_generation());
  state.set_size_bytes(object->info.size_bytes);
  state.set_metadata(object->info.metadata);
  state.set_has_inline(bytes_here);
  if (bytes_here && with_bytes) state.set_inline_bytes(object->inline_bytes);
  return state;
}

void DirectoryCore::Impl::ListHolders(const Object& object, v1::SourceState* state) const {
  // Of what is broadcast as well there may be ten thousand, and each changes it: the creator's and
  // some others will do, if one of them is complete.
  std::vector<std::pair<NodeKey, const Copy*>> copies;
  bool complete = object.complete_copies == 0;
  const auto created = object.copies.find(object.generation.creator);
  if (created != object.copies.end()) {
    copies.push_back({created->first, &created->second});
    complete = complete || created->second.complete;
  }
  for (auto at = object.copies.begin(); at != object.copies.end(); ++at) {
    if (copies.size() >= kMaxCopiesLookedAt && complete) break;
    if (at == created || (copies.size() >= kMaxCopiesLookedAt && !at->second.complete)) continue;
    copies.push_back({at->first, &at->second});
    complete = complete || at->second.complete;
  }
  bool any_bytes = false;
  for (const auto& [key, copy] : copies) {
    const bool has = std::any_of(copy->watermarks.begin(), copy->watermarks.end(),
                                 [](uint64_t watermark) { return watermark > 0; });
    any_bytes = any_bytes || has;
  }
  // Complete ones first, of these the primary; a session that is broken for a moment comes last.
  std::vector<std::pair<int, NodeKey>> holders;
  for (const auto& [key, listed] : copies) {
    const Copy& copy = *listed;
    const Node* node = FindNode(key);
    const bool has_bytes =
        copy.complete || (any_bytes && (copy.writer || !copy.watermarks.empty()));
    if (node == nullptr || !has_bytes || copy.unconfirmed) continue;
    const int rank =
        (copy.complete ? 0 : 4) + (copy.primary ? 0 : 1) + (node->connected && !copy.stale ? 0 : 2);
    holders.push_back({rank, key});
  }
  std::sort(holders.begin(), holders.end());
  if (holders.size() > kMaxHoldersTold) holders.resize(kMaxHoldersTold);
  for (const auto& [rank, key] : holders) {
    v1::SourceState::Holder& holder = *state->add_holders();
    ToProto(key, holder.mutable_node());
    holder.set_complete(object.copies.at(key).complete);
  }
}

absl::Status DirectoryCore::Impl::OnSourceState(Node& node, const v1::SourceState& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.target_id()));
  PHALANX_ASSIGN_OR_RETURN(const ObjectId source, ParseObjectId(m.source_id()));
  if (m.has_generation()) {
    PHALANX_RETURN_IF_ERROR(ParseGeneration(m.generation()).status());
  }
  if (m.size_bytes() > kMaxObjectBytes || m.inline_bytes().size() > kMaxInlineBytes ||
      m.holders_size() > kMaxHoldersTold || m.metadata().size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError("source_state: it is larger than any there is");
  }
  for (const v1::SourceState::Holder& holder : m.holders()) {
    PHALANX_RETURN_IF_ERROR(ParseNodeKey(holder.node()).status());
  }
  Reduction* reduction = FindReduction(target);
  if (reduction == nullptr || reduction->agent != node.key || !reduction->plan.Watches(source) ||
      !IsForeign(source)) {
    return absl::OkStatus();
  }
  v1::SourceState& state = reduction->foreign[source];
  reduction->foreign_inline_bytes -= state.inline_bytes().size();
  state = m;
  if (state.inline_bytes().size() != state.size_bytes() ||
      reduction->foreign_inline_bytes + state.inline_bytes().size() > kMaxForeignInlineBytes) {
    state.clear_inline_bytes();
    state.set_has_inline(false);
  }
  reduction->foreign_inline_bytes += state.inline_bytes().size();
  TellPlan(*reduction, source, state);
  TouchReduction(target);
  return absl::OkStatus();
}

void DirectoryCore::Impl::TellPlan(Reduction& reduction, const ObjectId& source,
                                   const v1::SourceState& state) {
  if (state.code() != 0) {
    reduction.ready.erase(source);
    // What is in a slot is held by its node, though it was deleted; unless that came too late.
    const auto absent = reduction.absent.lower_bound({source, Generation(), NodeKey()});
    const bool held = absent == reduction.absent.end() || std::get<0>(*absent) != source;
    if (held && reduction.plan.Placed(source)) return;
    reduction.source_failed = true;
    reduction.plan.OnSourceFailed(
        source, absl::Status(static_cast<absl::StatusCode>(state.code()), state.message()));
    return;
  }
  std::optional<ReduceSource> told = KnownSource(reduction, source, state);
  if (told.has_value() && reduction.ring != nullptr && !reduction.ring->committed()) {
    reduction.ring->OnSource(source, told->generation);
    if (reduction.ring->broken()) BreakRing(reduction);
  }
  told.has_value() ? (void)reduction.ready.insert(source) : (void)reduction.ready.erase(source);
  reduction.plan.OnSource(source, std::move(told));
}

v1::SourceState DirectoryCore::Impl::StateOfSource(const Reduction& reduction,
                                                   const ObjectId& source) {
  if (!IsForeign(source)) return StateOf(source, /*with_bytes=*/false);
  const auto foreign = reduction.foreign.find(source);
  return foreign == reduction.foreign.end() ? v1::SourceState() : foreign->second;
}

std::optional<ReduceSource> DirectoryCore::Impl::KnownSource(const Reduction& reduction,
                                                             const ObjectId& source,
                                                             const v1::SourceState& state) const {
  if (!state.has_generation()) return std::nullopt;
  ReduceSource known;
  known.generation = FromProto(state.generation());
  known.size_bytes = state.size_bytes();
  known.has_inline = state.has_inline();
  known.metadata = state.metadata();
  for (const v1::SourceState::Holder& holder : state.holders()) {
    const NodeKey key = FromProto(holder.node());
    const Node* node = FindNode(key);
    if (node == nullptr || reduction.absent.contains({source, known.generation, key})) continue;
    const auto zone = node->info.labels().find("zone");
    known.holders.push_back(ReduceSource::Holder{
        key, holder.complete(), zone == node->info.labels().end() ? "" : zone->second});
  }
  if (known.holders.empty() && !known.has_inline) return std::nullopt;
  return known;
}

void DirectoryCore::Impl::TellWatchers(const ObjectId& source, absl::btree_set<ObjectId>& held) {
  const auto found = watchers_.find(source);
  if (found == watchers_.end()) return;
  const v1::SourceState state = StateOf(source, /*with_bytes=*/false);
  for (const Watcher& watcher : found->second) {
    if (!watcher.node.valid()) {
      Reduction& reduction = *FindReduction(watcher.target);
      if (held.insert(watcher.target).second) reduction.plan.Hold();
      TellPlan(reduction, source, state);
      TouchReduction(watcher.target);
      continue;
    }
    size_t bytes_left = kMaxForeignInlineBytes;
    v1::SourceState told = ForeignStateOf(source, bytes_left);
    if (Learning() && !told.has_generation()) continue;
    told.set_target_id(watcher.target.binary().data(), ObjectId::kSize);
    *Send(watcher.node).mutable_source_state() = std::move(told);
  }
}

void DirectoryCore::Impl::TellChanges() {
  absl::btree_set<ObjectId> held;
  for (const ObjectId& source : std::exchange(changed_sources_, {})) TellWatchers(source, held);
  for (const ObjectId& target : held) FindReduction(target)->plan.Release();
}

// Nodes of which other shards knew before this one did.
void DirectoryCore::Impl::TellForeignAgain() {
  for (const auto& [target, reduction] : reductions_) {
    if (!reduction->has_foreign) continue;
    reduction->plan.Hold();
    for (const auto& [source, state] : reduction->foreign) TellPlan(*reduction, source, state);
    reduction->plan.Release();
    TouchReduction(target);
  }
}

std::optional<absl::string_view> DirectoryCore::Impl::InlineBytesOf(const Reduction& reduction,
                                                                    const FoldInput& input,
                                                                    uint64_t size_bytes) {
  const std::string* bytes = nullptr;
  if (IsForeign(input.source)) {
    const auto found = reduction.foreign.find(input.source);
    if (found != reduction.foreign.end() && found->second.has_inline() &&
        FromProto(found->second.generation()) == input.generation) {
      bytes = &found->second.inline_bytes();
    }
  } else {
    const Object* object = FindObject(input.source);
    if (object != nullptr && object->inline_cached && object->generation == input.generation) {
      bytes = &object->inline_bytes;
    }
  }
  const uint64_t offset = reduction.plan.spec().range_offset;
  if (bytes == nullptr || bytes->size() < offset || bytes->size() - offset < size_bytes) {
    return std::nullopt;
  }
  return absl::string_view(*bytes).substr(offset, size_bytes);
}

absl::Status DirectoryCore::Impl::CheckReductions() const {
  size_t sources = 0;
  size_t askers = 0;
  for (const auto& [target, reduction] : reductions_) {
    askers += reduction->askers.size();
    const auto broken = [&target = target](absl::string_view what) {
      return absl::InternalError(absl::StrCat("reduction of ", target.hex(), ": ", what));
    };
    if (absl::Status status = reduction->plan.CheckInvariants(); !status.ok()) {
      return broken(status.message());
    }
    for (const auto& [first, part] : reduction->parts) sources += part.size();
    for (const ObjectId& source : reduction->plan.spec().sources) {
      ++sources;
      if (IsForeign(source)) continue;
      const auto watched = watchers_.find(source);
      if (watched == watchers_.end() || !watched->second.contains(Watcher{NodeKey(), target})) {
        return broken("a source is not watched");
      }
    }
    for (const auto& [key, placed] : reduction->placed) {
      if (FindNode(key.first) == nullptr) return broken("a fold is placed at a node that is down");
      const RingPlan* ring = reduction->ring.get();
      const bool member = ring != nullptr && !ring->broken() && ring->version() == key.second &&
                          ring->PlaceOf(key.first).has_value();
      if (!member && reduction->plan.Find(key.first, key.second) == nullptr) {
        return broken("a fold is placed that the plan does not know");
      }
    }
    const bool timed = reduction->timer.infinite() ||
                       reduce_timers_.contains({reduction->timer, reduction->target});
    if (!timed) return broken("its timer is lost");
  }
  if (sources != reduce_sources_) return absl::InternalError("sources are miscounted");
  if (askers != reduce_askers_) return absl::InternalError("who asks is miscounted");
  for (const auto& [source, watchers] : watchers_) {
    for (const Watcher& watcher : watchers) {
      const bool known = watcher.node.valid() ? FindNode(watcher.node) != nullptr
                                              : reductions_.contains(watcher.target);
      if (!known) return absl::InternalError("a source is watched for nobody");
    }
  }
  if (absl::Status status = ended_.CheckInvariants(); !status.ok()) return status;
  return failed_.size() == failed_by_age_.size()
             ? absl::OkStatus()
             : absl::InternalError("failed objects are miscounted");
}

// ---- producers that failed

absl::Status DirectoryCore::Impl::OnFail(Node& node, const v1::FailRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(m.object_id()));
  Object* object = FindObject(id);
  v1::FailReply& reply = *Send(node.key).mutable_fail_reply();
  reply.set_request_id(m.request_id());
  if (m.code() <= 0 || m.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    reply.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
    reply.set_message(absl::StrCat("object ", id.hex(), ": ", m.code(), " is no error's code"));
    return absl::OkStatus();
  }
  if (object != nullptr && object->adopted && object->complete_copies > 0) {
    reply.set_code(static_cast<int>(absl::StatusCode::kAlreadyExists));
    reply.set_message(absl::StrCat("object ", id.hex(), " was put; it cannot fail any more"));
    return absl::OkStatus();
  }
  ForgetFailure(id);
  FailedObject& failed = failed_[id];
  failed.why = absl::Status(static_cast<absl::StatusCode>(m.code()), m.message());
  failed.order = next_order_++;
  failed_by_age_[failed.order] = id;
  if (failed_.size() > options_.max_failed) ForgetFailure(ObjectId(failed_by_age_.begin()->second));
  NoteChange(id);
  if (object != nullptr) Settle(*object);
  return absl::OkStatus();
}

void DirectoryCore::Impl::ForgetFailure(const ObjectId& id) {
  const auto found = failed_.find(id);
  if (found == failed_.end()) return;
  failed_by_age_.erase(found->second.order);
  failed_.erase(found);
}

void DirectoryCore::Impl::RefuseWantsOfFailed(Object& object) {
  const auto failed = failed_.find(object.id);
  if (failed == failed_.end()) return;
  while (!object.wants.empty()) {
    const NodeKey key = object.wants.begin()->first;
    EndWant(object, key);
    v1::Gone& gone = *Send(key).mutable_gone();
    gone.set_object_id(object.id.binary().data(), ObjectId::kSize);
    gone.set_kind(v1::Gone::REFUSED);
    gone.set_code(static_cast<int>(failed->second.why.code()));
    gone.set_reason(std::string(failed->second.why.message()));
  }
}

}  // namespace phalanx::directory
