#include "src/directory/reductions/reduction_descriptors.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids/version.h"
#include "src/common/status_macros.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/reductions/results/reduce_result.h"
namespace phalanx::directory {
namespace {

// Nodes that keep the description of a reduction, beside those that requested it.
constexpr size_t kMaxReplicas = 2;
// Requesters of an open reduction that are sent each extension.
constexpr size_t kMaxInformed = 4;

// Returns true if `part`, from place `first` on, and the list are the same where they overlap.
bool Agrees(const std::vector<ObjectId>& list, size_t first, const std::vector<ObjectId>& part) {
  if (first >= list.size()) return true;
  const size_t both = std::min(list.size() - first, part.size());
  return std::equal(part.begin(), part.begin() + both, list.begin() + first);
}

}  // namespace

ReductionDescriptors::ReductionDescriptors(const ReductionParts& parts, ReductionCatalog& catalog,
                                           SourceWatcher& watcher)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      catalog_(catalog),
      watcher_(watcher) {}

void ReductionDescriptors::SetId(Reduction& reduction, const ReductionId& number) {
  reduction.identity.id = number;
  reduction.identity.confirmed = true;
  absl::btree_set<NodeKey> replicas = reduction.replicas.whole;
  replicas.insert(reduction.replicas.parts.begin(), reduction.replicas.parts.end());
  replicas.insert(reduction.replicas.extensions.begin(), reduction.replicas.extensions.end());
  // The nodes keep the description under the id that this life had minted, which means nothing any
  // more.
  for (const NodeKey& key : replicas) SendPart(reduction, key, 0);
}

bool ReductionDescriptors::TakenBefore(const NodeKey& node, const v1::ExtendRequest& m,
                                       const ObjectId& target, const ReductionId& number) {
  const absl::StatusOr<std::vector<ObjectId>> sources = ParseSources(m.source_ids());
  if (!sources.ok()) return false;
  const auto all_in = [&sources](const std::vector<ObjectId>& list) {
    const absl::flat_hash_set<ObjectId> in(list.begin(), list.end());
    return std::all_of(sources->begin(), sources->end(),
                       [&in](const ObjectId& id) { return in.contains(id); });
  };
  // The running reduction answers for itself (Extend).
  const Reduction* running = catalog_.Find(target);
  if (running != nullptr && running->Is(number)) return false;
  // An extension without an id may mean the running reduction, which can have the same sources.
  const bool tells = number.valid() || running == nullptr;
  for (const auto& [of, ended] : catalog_.ended().Of(target)) {
    if (ended->asked.contains({node, m.request_id()})) return true;
    const bool meant = tells && (!number.valid() || number == of);
    // An earlier life of the shard may have carried it out. The list of a reduction that ended with
    // an error proves nothing: another node can have added the same sources.
    const bool done = ended->status.ok() && ended->arguments.open && (!m.close() || ended->closed);
    if (meant && done && all_in(ended->sources)) return true;
  }
  // An earlier life of the shard may have carried out the extension; the result tells.
  const Object* object = objects_.Find(target);
  if (running != nullptr || object == nullptr || !object->adopted()) return false;
  const std::optional<ReduceRecord> made = ReduceRecord::Decode(object->info.asked_for);
  if (!made.has_value() || !made->arguments.open) return false;
  return made->arguments.num_objects != 0 || all_in(IdsIn(object->info.reduced_from));
}

bool ReductionDescriptors::Join(Reduction& reduction, const ReduceSpec& asked,
                                const v1::Reduction& m) {
  const ReduceSpec& running = reduction.plan.spec();
  if (!SameArguments(running, asked)) return false;
  const size_t first = m.first_source();
  const size_t end = first + asked.sources.size();
  const size_t known = running.sources.size();
  if (!asked.open) return first == 0 && running.sources == asked.sources;
  if (!Agrees(running.sources, first, asked.sources)) return false;
  // A closed list has an end: two ends, or sources beyond it, are two reductions.
  if (m.closed() && (end < known || reduction.replicas.closed_at.value_or(end) != end))
    return false;
  if (end > known) {
    // Once the plan has begun, no node sends the missing part any more.
    const bool gap = reduction.phase == ReductionPhase::kPlanned && first > known;
    const bool over = reduction.plan.closed() || end > reduction.replicas.closed_at.value_or(end);
    const bool room = end <= kMaxReduceSources && catalog_.HasRoomForSources(asked.sources.size());
    if (gap || over || !room) return false;
    // Several nodes keep the same part; the longest one counts.
    std::vector<ObjectId>& part = reduction.replicas.list_parts[first];
    if (part.size() < asked.sources.size()) {
      catalog_.AddSources(asked.sources.size() - part.size());
      part = asked.sources;
    }
  }
  if (m.closed()) reduction.replicas.closed_at = end;
  const bool taken = TakeParts(reduction);
  // A request with more sources extends the list: the other replicas are sent the extension.
  if (taken && reduction.plan.spec().sources.size() > known) {
    for (const NodeKey& holder : reduction.replicas.extensions) SendPart(reduction, holder, known);
  }
  return taken;
}

bool ReductionDescriptors::TakeParts(Reduction& reduction) {
  const ReduceSpec& spec = reduction.plan.spec();
  while (!reduction.replicas.list_parts.empty() &&
         reduction.replicas.list_parts.begin()->first <= spec.sources.size()) {
    const auto at = reduction.replicas.list_parts.begin();
    const size_t known = spec.sources.size();
    const size_t first = at->first;
    const std::vector<ObjectId> part = std::move(at->second);
    // Watch, below, counts the sources that are new; the part must not count twice.
    catalog_.RemoveSources(part.size());
    reduction.replicas.list_parts.erase(at);
    if (!Agrees(spec.sources, first, part)) return false;
    if (first + part.size() <= known) continue;
    const std::vector<ObjectId> added(part.begin() + (known - first), part.end());
    if (!reduction.plan.Add(added).ok()) return false;
    watcher_.Watch(reduction, added);
  }
  const bool all = reduction.replicas.closed_at == spec.sources.size();
  return !all || reduction.plan.closed() || reduction.plan.Close().ok();
}

bool ReductionDescriptors::HasGap(const Reduction& reduction) {
  return !reduction.replicas.list_parts.empty() ||
         (reduction.replicas.closed_at.has_value() && !reduction.plan.closed());
}

bool ReductionDescriptors::LacksSources(const Reduction& reduction, const ReduceSpec& kept) {
  if (!kept.open || !SameArguments(reduction.plan.spec(), kept)) return false;
  return std::any_of(kept.sources.begin(), kept.sources.end(),
                     [&](const ObjectId& id) { return !reduction.plan.Has(id); });
}

absl::Status ReductionDescriptors::OnExtend(Node& node, const v1::ExtendRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const ReductionId number, ParseReductionId(m));
  catalog_.NoteId(number);
  const Reduction* reduction = catalog_.Find(target);
  // The reduction may still be registered: NotFound would mean that nothing was added.
  const bool may_come =
      gate_.learning() && (reduction == nullptr || reduction->phase != ReductionPhase::kPlanned);
  if (!may_come) {
    AnswerExtend(node.key, m);
    return absl::OkStatus();
  }
  if (!gate_.Defer(DeferredExtend{node.key, node.session, m})) {
    v1::ExtendReply& reply = *outbox_.Send(node.key).mutable_extend_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(absl::StrCat("reduction of ", target.hex(), ": ", gate_.num_extends(),
                                   " requests wait for the end of the shard's first lease"));
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

void ReductionDescriptors::AnswerExtend(const NodeKey& node, const v1::ExtendRequest& m) {
  const ObjectId target = *ParseObjectId(m.object_id());
  const ReductionId number = ReductionIdFromProto(m.begun());
  Reduction* reduction = catalog_.Find(target);
  const bool another = reduction != nullptr && number.valid() && !reduction->Is(number) &&
                       (reduction->identity.confirmed || catalog_.HasEnded(target, number));
  absl::Status status;
  if (m.again() && TakenBefore(node, m, target, number)) {
    // Carried out before: only the answer was lost with the session.
  } else if (reduction == nullptr || another) {
    status = ReductionError(target, absl::StatusCode::kNotFound,
                            absl::StrCat("it is not running", HowItEnded(target)));
  } else {
    status = Extend(*reduction, node, m);
    if (status.ok()) reduction->requests.seen.insert({node, m.request_id()});
  }
  v1::ExtendReply& reply = *outbox_.Send(node).mutable_extend_reply();
  reply.set_request_id(m.request_id());
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  // The reduction has ended: the clients of the node that added to it let go of it.
  if (status.ok() && reduction == nullptr) SendForget(node, target, number);
}

std::string ReductionDescriptors::HowItEnded(const ObjectId& target) const {
  const EndedReduction* last = nullptr;
  ReductionId last_id;
  for (const auto& [id, ended] : catalog_.ended().Of(target)) {
    if (last != nullptr && BeganAfter(last_id, id)) continue;
    last = ended;
    last_id = id;
  }
  return last == nullptr || last->status.ok()
             ? ""
             : absl::StrCat("; the last one ended with: ", last->status.message());
}

absl::Status ReductionDescriptors::Extend(Reduction& reduction, const NodeKey& node,
                                          const v1::ExtendRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(std::vector<ObjectId> sources, ParseSources(m.source_ids()));
  if (HasGap(reduction)) {
    return ReductionError(
        reduction.target, absl::StatusCode::kUnavailable,
        "nodes have not yet registered what was added to it before the shard restarted");
  }
  // A repeated extension must not be carried out twice, nor fail because its sources are there.
  const bool done =
      m.again() && std::all_of(sources.begin(), sources.end(),
                               [&reduction](const ObjectId& id) { return reduction.plan.Has(id); });
  if (done) sources.clear();
  const size_t known = reduction.plan.spec().sources.size();
  if (!sources.empty()) {
    const bool room =
        catalog_.HasRoomForSources(sources.size()) && known + sources.size() <= kMaxReduceSources;
    if (!room) {
      return ReductionError(reduction.target, absl::StatusCode::kResourceExhausted,
                            "too many sources");
    }
    PHALANX_RETURN_IF_ERROR(reduction.plan.Add(sources));
    watcher_.Watch(reduction, sources);
  }
  absl::Status status;
  const bool closes = m.close() && !(done && reduction.plan.closed());
  if (closes) status = reduction.plan.Close();
  catalog_.Touch(reduction.target);
  // The part can have been lost with the session, like the answer.
  if (done) SendPart(reduction, node, 0);
  if (sources.empty() && (!closes || !status.ok())) return status;
  absl::btree_set<NodeKey> holders = reduction.replicas.extensions;
  // The node that adds keeps the sources before it gets its answer: an acknowledged addition
  // survives the shard.
  holders.insert(node);
  for (const NodeKey& holder : holders) SendPart(reduction, holder, known);
  return status;
}

void ReductionDescriptors::Inform(Reduction& reduction, const NodeKey& node, size_t known) {
  if (reduction.replicas.extensions.size() >= kMaxInformed &&
      !reduction.replicas.extensions.contains(node))
    return;
  reduction.replicas.extensions.insert(node);
  const size_t all = reduction.plan.spec().sources.size();
  if (known < all || reduction.plan.closed()) SendPart(reduction, node, std::min(known, all));
}

void ReductionDescriptors::SendPart(Reduction& reduction, const NodeKey& node, size_t first) {
  if (nodes_.Find(node) == nullptr) return;
  reduction.replicas.parts.insert(node);
  FillKeep(reduction, first, outbox_.Send(node).mutable_keep_reduction());
}

void ReductionDescriptors::SendToReplica(Reduction& reduction, const NodeKey& node) {
  const bool asks =
      std::any_of(reduction.requests.waiting.begin(), reduction.requests.waiting.end(),
                  [&node](const Reduction::Requester& a) { return a.node == node; });
  if (asks || reduction.replicas.whole.size() >= kMaxReplicas) return;
  if (!reduction.replicas.whole.insert(node).second) return;
  FillKeep(reduction, 0, outbox_.Send(node).mutable_keep_reduction());
}

void ReductionDescriptors::FillKeep(const Reduction& reduction, size_t first,
                                    v1::KeepReduction* out) const {
  out->set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(reduction.plan.spec(), reduction.plan.root(), out->mutable_reduction(), first);
  out->mutable_reduction()->set_closed(reduction.plan.closed());
  ToProto(reduction.identity.id, out->mutable_reduction()->mutable_begun());
  out->set_owned(reduction.requests.owned);
  SetName(reduction.name, out->mutable_reduction());
  if (reduction.deadline.infinite()) return;
  // At least 1: 0 would mean no deadline.
  out->set_timeout_ms(static_cast<uint64_t>(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(reduction.deadline - context_.now))));
}

void ReductionDescriptors::SendForget(const NodeKey& node, const ObjectId& target,
                                      const ReductionId& number) {
  if (nodes_.Find(node) == nullptr) return;
  v1::KeepReduction& keep = *outbox_.Send(node).mutable_keep_reduction();
  keep.set_object_id(target.binary().data(), ObjectId::kSize);
  keep.set_forget(true);
  if (number.valid()) ToProto(number, keep.mutable_reduction()->mutable_begun());
}

void ReductionDescriptors::EndLearning() {
  for (const DeferredExtend& extend : gate_.TakeExtends()) {
    const Node* node = nodes_.Find(extend.node);
    // A node repeats its requests in a new session.
    if (node != nullptr && node->session == extend.session) {
      AnswerExtend(extend.node, extend.request);
    }
  }
}

void ReductionDescriptors::ForgetReplica(Reduction& reduction, const NodeKey& node) {
  reduction.replicas.whole.erase(node);
  reduction.replicas.extensions.erase(node);
  reduction.replicas.parts.erase(node);
}

}  // namespace phalanx::directory
