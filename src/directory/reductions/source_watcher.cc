#include "src/directory/reductions/source_watcher.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"
namespace phalanx::directory {
namespace {

// As many holders as a plan can use: one folds the source, the others stand in for it.
constexpr int kMaxHolders = 8;
constexpr size_t kMaxCopiesExamined = 256;
// Bytes of sources that travel from shard to shard, for one reduction.
constexpr size_t kMaxForeignInlineBytes = 1 << 20;

}  // namespace

SourceWatcher::SourceWatcher(const ReductionParts& parts, ReductionCatalog& catalog,
                             RingListener& rings)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      tombstones_(parts.tombstones),
      failures_(parts.failures),
      links_(parts.links),
      catalog_(catalog),
      rings_(rings) {}

void SourceWatcher::ReportSource(Reduction& reduction, const ObjectId& source) {
  const auto foreign = reduction.sources.foreign.find(source);
  if (!context_.IsForeign(source)) {
    ReportToPlan(reduction, source, StateOf(source));
  } else if (foreign != reduction.sources.foreign.end()) {
    ReportToPlan(reduction, source, v1::SourceState(foreign->second));
  }
}

void SourceWatcher::ReportSources(Reduction& reduction) {
  // Held, so that the plan decides once and not after each of ten thousand sources.
  reduction.plan.Hold();
  for (const ObjectId& source : reduction.plan.spec().sources) ReportSource(reduction, source);
  reduction.plan.Release();
}

void SourceWatcher::Watch(Reduction& reduction, absl::Span<const ObjectId> sources) {
  v1::WatchSource foreign;
  reduction.plan.Hold();
  for (const ObjectId& source : sources) {
    catalog_.AddSources(1);
    if (context_.IsForeign(source)) {
      reduction.sources.has_foreign = true;
      foreign.add_source_ids(source.binary().data(), ObjectId::kSize);
      continue;
    }
    // Also while the source does not exist: a watched id is not freed when it is put.
    watchers_[source].insert(Watcher{NodeKey(), reduction.target});
    ReportToPlan(reduction, source, StateOf(source));
  }
  reduction.plan.Release();
  if (foreign.source_ids_size() == 0 || nodes_.Find(reduction.sources.watch_proxy) == nullptr)
    return;
  foreign.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  *outbox_.Send(reduction.sources.watch_proxy).mutable_watch_source() = std::move(foreign);
}

void SourceWatcher::ChooseProxy(Reduction& reduction) {
  if (!reduction.sources.has_foreign || nodes_.Find(reduction.sources.watch_proxy) != nullptr)
    return;
  const auto usable = [this](const NodeKey& key) {
    const Node* node = nodes_.Find(key);
    return node != nullptr && node->connected && !node->registering;
  };
  reduction.sources.watch_proxy = usable(reduction.plan.root()) ? reduction.plan.root() : NodeKey();
  for (auto at = nodes_.all().begin();
       at != nodes_.all().end() && !reduction.sources.watch_proxy.valid(); ++at) {
    if (usable(at->first)) reduction.sources.watch_proxy = at->first;
  }
  // The next node that connects or registers brings the reduction here again.
  if (!reduction.sources.watch_proxy.valid()) return;
  v1::WatchSource& watch = *outbox_.Send(reduction.sources.watch_proxy).mutable_watch_source();
  watch.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  for (const ObjectId& source : reduction.plan.spec().sources) {
    if (context_.IsForeign(source)) watch.add_source_ids(source.binary().data(), ObjectId::kSize);
  }
}

void SourceWatcher::Unwatch(const ObjectId& source, const Watcher& watcher) {
  const auto found = watchers_.find(source);
  if (found == watchers_.end()) return;
  found->second.erase(watcher);
  if (!found->second.empty()) return;
  watchers_.erase(found);
  const Object* object = objects_.Find(source);
  // The watch may have been the last reason not to free the source.
  if (object != nullptr && objects_.Unreferenced(*object)) objects_.NoteUnreferenced(source);
}

void SourceWatcher::UnwatchAll(Reduction& reduction) {
  v1::WatchSource end;
  for (const ObjectId& source : reduction.plan.spec().sources) {
    catalog_.RemoveSources(1);
    if (context_.IsForeign(source)) {
      end.add_source_ids(source.binary().data(), ObjectId::kSize);
    } else {
      Unwatch(source, Watcher{NodeKey(), reduction.target});
    }
  }
  if (end.source_ids_size() == 0 || nodes_.Find(reduction.sources.watch_proxy) == nullptr) return;
  end.set_target_id(reduction.target.binary().data(), ObjectId::kSize);
  end.set_end(true);
  *outbox_.Send(reduction.sources.watch_proxy).mutable_watch_source() = std::move(end);
}

void SourceWatcher::NodeDown(const NodeKey& node) {
  const auto found = watched_through_.find(node);
  if (found == watched_through_.end()) return;
  for (const auto& [source, target] : found->second) {
    Unwatch(source, Watcher{node, target});
    // The reduction's shard chooses another proxy, and its watch must find the source again.
    objects_.GrantGrace(source);
  }
  watched_through_.erase(found);
}

absl::Status SourceWatcher::OnWatchSource(Node& node, const v1::WatchSource& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.target_id()));
  PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> sources, ParseSources(m.source_ids()));
  // All ids are checked before one is watched: an error changes nothing.
  for (const ObjectId& source : sources) {
    if (context_.IsForeign(source)) {
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
    // By node, so that a node that goes down does not cost a search of all sources.
    watched_through_[node.key].insert({source, target});
    v1::SourceState state = ForeignStateOf(source, bytes_left);
    // While the shard learns, the source may still be registered: absence is not reported.
    if (gate_.learning() && !state.has_generation()) continue;
    state.set_target_id(target.binary().data(), ObjectId::kSize);
    *outbox_.Send(node.key).mutable_source_state() = std::move(state);
  }
  return absl::OkStatus();
}

v1::SourceState SourceWatcher::ForeignStateOf(const ObjectId& source, size_t& bytes_left) {
  v1::SourceState state = StateOf(source);
  if (!state.has_inline()) return state;
  const std::string& bytes = objects_.Find(source)->inline_entry.bytes();
  const bool room = bytes.size() <= bytes_left &&
                    outbox_.unacknowledged_bytes() + outbox_.inline_bytes() + bytes.size() <=
                        context_.options.inline_under_way_bytes;
  // Without a holder, the bytes are the only way to the source.
  state.set_has_inline(room || state.holders_size() == 0);
  if (!state.has_inline()) return state;
  state.set_inline_bytes(bytes);
  // The bytes of a source without a holder are sent beyond the limit, so the rest can be less.
  bytes_left -= std::min(bytes_left, bytes.size());
  outbox_.AddInlineBytes(bytes.size());
  return state;
}

v1::SourceState SourceWatcher::StateOf(const ObjectId& source) {
  v1::SourceState state;
  state.set_source_id(source.binary().data(), ObjectId::kSize);
  Object* object = objects_.Find(source);
  if (object != nullptr) SetName(object->info.name, &state);
  // A generation that was put after the failure or the Delete may still be registered.
  const bool sure = gate_.MayAdoptFromAbsence();
  if (const absl::Status* failed = failures_.Find(source); sure && failed != nullptr) {
    state.set_code(static_cast<int>(failed->code()));
    state.set_message(std::string(failed->message()));
    return state;
  }
  if (object == nullptr || !object->adopted()) {
    if (!sure || tombstones_.FindDeleted(source) == nullptr) return state;
    state.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    state.set_message(absl::StrCat("object ", source.hex(), " was deleted"));
    return state;
  }
  // The target of a running reduction is a source only once it is committed.
  if (object->copies.complete() == 0 && catalog_.Find(source) != nullptr) return state;
  ListHolders(*object, &state);
  const bool bytes_here = object->inline_entry.cached() && object->copies.complete() > 0;
  // An object that no node can hand on is no source yet, although it exists.
  if (state.holders_size() == 0 && !bytes_here) return state;
  ToProto(object->generation, state.mutable_generation());
  state.set_size_bytes(object->info.size_bytes);
  state.set_metadata(object->info.metadata);
  state.set_has_inline(bytes_here);
  return state;
}

void SourceWatcher::ListHolders(const Object& object, v1::SourceState* state) const {
  // An object that is also broadcast may have ten thousand copies, and each change comes here: the
  // creator's copy and some others are enough, if one of them is complete.
  std::vector<std::pair<NodeKey, const Copy*>> copies;
  bool complete = object.copies.complete() == 0;
  const auto created = object.copies.find(object.generation.creator);
  if (created != object.copies.end()) {
    copies.push_back({created->first, &created->second});
    complete = complete || created->second.complete();
  }
  for (auto at = object.copies.begin(); at != object.copies.end(); ++at) {
    if (copies.size() >= kMaxCopiesExamined && complete) break;
    if (at == created || (copies.size() >= kMaxCopiesExamined && !at->second.complete())) continue;
    copies.push_back({at->first, &at->second});
    complete = complete || at->second.complete();
  }
  // A fold at a node without bytes only waits, so partial copies count once one of them has some.
  bool any_bytes = false;
  for (const auto& [key, copy] : copies) {
    const bool has = std::any_of(copy->watermarks.begin(), copy->watermarks.end(),
                                 [](uint64_t watermark) { return watermark > 0; });
    any_bytes = any_bytes || has;
  }
  // Complete copies first, and among them the primary, then the creator's, which a ring of one
  // source at each node can need. A node whose session is broken may be back in a moment, so it is
  // listed, but last.
  std::vector<std::pair<int, NodeKey>> holders;
  for (const auto& [key, listed] : copies) {
    const Copy& copy = *listed;
    const Node* node = nodes_.Find(key);
    const bool has_bytes =
        copy.complete() || (any_bytes && (copy.writing() || !copy.watermarks.empty()));
    if (node == nullptr || !has_bytes || copy.unconfirmed()) continue;
    const bool creator = key == object.generation.creator;
    const int rank = (copy.complete() ? 0 : 8) + (node->connected && !copy.stale ? 0 : 4) +
                     (copy.primary ? 0 : 2) + (creator ? 0 : 1);
    holders.push_back({rank, key});
  }
  std::sort(holders.begin(), holders.end());
  if (holders.size() > kMaxHolders) holders.resize(kMaxHolders);
  for (const auto& [rank, key] : holders) {
    v1::SourceState::Holder& holder = *state->add_holders();
    ToProto(key, holder.mutable_node());
    holder.set_complete(object.copies.at(key).complete());
  }
}

absl::Status SourceWatcher::OnSourceState(Node& node, const v1::SourceState& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.target_id()));
  PHALANX_ASSIGN_OR_RETURN(const ObjectId source, ParseObjectId(m.source_id()));
  if (m.has_generation()) {
    PHALANX_RETURN_IF_ERROR(ParseGeneration(m.generation()).status());
  }
  if (m.size_bytes() > kMaxObjectBytes || m.inline_bytes().size() > kMaxInlineBytes ||
      m.holders_size() > kMaxHolders || m.metadata().size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError("source_state: it is larger than any there is");
  }
  PHALANX_RETURN_IF_ERROR(ParseNameOf(m).status());
  for (const v1::SourceState::Holder& holder : m.holders()) {
    PHALANX_RETURN_IF_ERROR(ParseNodeKey(holder.node()).status());
  }
  // A state that a former proxy sent, or that crossed the end of the reduction, is late and not
  // wrong.
  Reduction* reduction = catalog_.Find(target);
  if (reduction == nullptr || reduction->sources.watch_proxy != node.key ||
      !reduction->plan.Watches(source) || !context_.IsForeign(source)) {
    return absl::OkStatus();
  }
  v1::SourceState& state = reduction->sources.foreign[source];
  // Taken off first: the new state replaces the old one under the same limit.
  reduction->sources.foreign_inline_bytes -= state.inline_bytes().size();
  state = m;
  // Without its bytes the source is folded where it is.
  if (state.inline_bytes().size() != state.size_bytes() ||
      reduction->sources.foreign_inline_bytes + state.inline_bytes().size() >
          kMaxForeignInlineBytes) {
    state.clear_inline_bytes();
    state.set_has_inline(false);
  }
  reduction->sources.foreign_inline_bytes += state.inline_bytes().size();
  ReportToPlan(*reduction, source, state);
  catalog_.Touch(target);
  return absl::OkStatus();
}

void SourceWatcher::ReportToPlan(Reduction& reduction, const ObjectId& source,
                                 const v1::SourceState& state) {
  if (state.code() != 0) {
    reduction.sources.ready.erase(source);
    // The node of a slot holds its sources until the commit, even if they are deleted. Only a
    // source that its node reported absent is really gone.
    const auto absent = reduction.sources.absent.lower_bound({source, Generation(), NodeKey()});
    const bool held = absent == reduction.sources.absent.end() || std::get<0>(*absent) != source;
    if (held && reduction.plan.Placed(source)) return;
    // A ring is not tried without one of its sources; a tree may do without it.
    reduction.sources.failed = true;
    reduction.plan.OnSourceFailed(
        source, absl::Status(static_cast<absl::StatusCode>(state.code()), state.message()));
    return;
  }
  std::optional<ReduceSource> known = KnownSource(reduction, source, state);
  // A ring is not repaired: a source of another generation ends it before it commits the old one.
  if (known.has_value() && reduction.ring.plan != nullptr && !reduction.ring.plan->committed()) {
    reduction.ring.plan->OnSource(source, known->generation);
    if (reduction.ring.plan->broken()) rings_.OnSourceLost(reduction);
  }
  known.has_value() ? (void)reduction.sources.ready.insert(source)
                    : (void)reduction.sources.ready.erase(source);
  reduction.plan.OnSource(source, std::move(known));
}

v1::SourceState SourceWatcher::StateOfSource(const Reduction& reduction, const ObjectId& source) {
  if (!context_.IsForeign(source)) return StateOf(source);
  const auto foreign = reduction.sources.foreign.find(source);
  return foreign == reduction.sources.foreign.end() ? v1::SourceState() : foreign->second;
}

std::optional<ReduceSource> SourceWatcher::KnownSource(const Reduction& reduction,
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
    const Node* node = nodes_.Find(key);
    // A node without a session here cannot be sent an order, whatever its other shard knows of it.
    if (node == nullptr || reduction.sources.absent.contains({source, known.generation, key}))
      continue;
    const auto zone = node->info.labels().find("zone");
    known.holders.push_back(ReduceSource::Holder{
        key, holder.complete(), zone == node->info.labels().end() ? "" : zone->second,
        SpeedOf(reduction, *node)});
  }
  if (known.holders.empty() && !known.has_inline) return std::nullopt;
  return known;
}

double SourceWatcher::SpeedOf(const Node& node) const {
  const std::optional<double> slow = links_.SlowNode(node.endpoint, context_.now);
  const double fast = links_.FastRate().value_or(links_.ExpectedRate());
  // Below 1 whatever the noise: a node that is slow is slower than the fast ones.
  return slow.has_value() ? std::min(*slow / fast, LinkModel::kSlowShare) : 1;
}

double SourceWatcher::SpeedOf(const Reduction& reduction, const Node& node) const {
  const auto seen = reduction.slow_nodes.find(node.key);
  return seen == reduction.slow_nodes.end() ? SpeedOf(node)
                                            : std::min(SpeedOf(node), seen->second.speed);
}

void SourceWatcher::NotifyWatchers(const ObjectId& source, absl::btree_set<ObjectId>& held) {
  const auto found = watchers_.find(source);
  if (found == watchers_.end()) return;
  const v1::SourceState state = StateOf(source);
  for (const Watcher& watcher : found->second) {
    if (!watcher.node.valid()) {
      Reduction& reduction = *catalog_.Find(watcher.target);
      if (held.insert(watcher.target).second) reduction.plan.Hold();
      ReportToPlan(reduction, source, state);
      catalog_.Touch(watcher.target);
      continue;
    }
    size_t bytes_left = kMaxForeignInlineBytes;
    v1::SourceState known = ForeignStateOf(source, bytes_left);
    // The source may still be registered: its absence proves nothing yet.
    if (gate_.learning() && !known.has_generation()) continue;
    known.set_target_id(watcher.target.binary().data(), ObjectId::kSize);
    *outbox_.Send(watcher.node).mutable_source_state() = std::move(known);
  }
}

void SourceWatcher::RunChanges() {
  // A plan that watches many of the changed sources decides after all of them.
  absl::btree_set<ObjectId> held;
  for (const ObjectId& source : std::exchange(changed_, {})) NotifyWatchers(source, held);
  for (const ObjectId& target : held) catalog_.Find(target)->plan.Release();
}

void SourceWatcher::NodeUp() {
  for (const auto& [target, reduction] : catalog_.all()) {
    if (!reduction->sources.has_foreign) continue;
    reduction->plan.Hold();
    for (const auto& [source, state] : reduction->sources.foreign)
      ReportToPlan(*reduction, source, state);
    reduction->plan.Release();
    catalog_.Touch(target);
  }
}

std::optional<absl::string_view> SourceWatcher::InlineBytesOf(const Reduction& reduction,
                                                              const FoldInput& input,
                                                              uint64_t size_bytes) {
  const std::string* bytes = nullptr;
  if (context_.IsForeign(input.source)) {
    const auto found = reduction.sources.foreign.find(input.source);
    if (found != reduction.sources.foreign.end() && found->second.has_inline() &&
        FromProto(found->second.generation()) == input.generation) {
      bytes = &found->second.inline_bytes();
    }
  } else {
    const Object* object = objects_.Find(input.source);
    if (object != nullptr && object->inline_entry.cached() &&
        object->generation == input.generation) {
      bytes = &object->inline_entry.bytes();
    }
  }
  // The generation was compared above: bytes of another attempt must not be folded with this
  // version.
  const uint64_t offset = reduction.plan.spec().range_offset;
  if (bytes == nullptr || bytes->size() < offset || bytes->size() - offset < size_bytes) {
    return std::nullopt;
  }
  return absl::string_view(*bytes).substr(offset, size_bytes);
}

void SourceWatcher::ReportUnplaced(Reduction& reduction) {
  reduction.plan.Hold();
  for (const ObjectId& source : reduction.plan.spec().sources) {
    if (reduction.plan.Placed(source)) continue;
    const auto foreign = reduction.sources.foreign.find(source);
    const bool known = foreign != reduction.sources.foreign.end();
    const v1::SourceState state = !context_.IsForeign(source) ? StateOf(source)
                                  : known                     ? foreign->second
                                                              : v1::SourceState();
    if (state.code() != 0) ReportToPlan(reduction, source, state);
  }
  reduction.plan.Release();
}

// What was withheld while the shard learned, absence and deletion, is reported now.
void SourceWatcher::EndLearning() {
  for (const auto& [source, watchers] : watchers_) changed_.insert(source);
}

absl::Status SourceWatcher::CheckInvariants() const {
  for (const auto& [target, reduction] : catalog_.all()) {
    for (const ObjectId& source : reduction->plan.spec().sources) {
      if (context_.IsForeign(source)) continue;
      const auto watched = watchers_.find(source);
      if (watched == watchers_.end() || !watched->second.contains(Watcher{NodeKey(), target})) {
        return absl::InternalError(
            absl::StrCat("reduction of ", target.hex(), ": a source is not watched"));
      }
    }
  }
  for (const auto& [source, watchers] : watchers_) {
    for (const Watcher& watcher : watchers) {
      const bool known = watcher.node.valid() ? nodes_.Find(watcher.node) != nullptr
                                              : catalog_.Find(watcher.target) != nullptr;
      if (!known) return absl::InternalError("a source is watched for no reduction");
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
