// Who joins a reduction or adds to it, and what nodes keep in mind of it for a shard that begins
// anew.
//
// The list of an open reduction only grows at its end, and is closed once: what any node keeps of
// it is a part of one list. So parts that nodes tell after a restart of the shard are put together
// by their places, in any order; a gap that is left when the shard has learned all there is to
// learn means that something that was added is lost, and the reduction ends with DataLoss rather
// than without it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/common/version.h"
#include "src/directory/directory_core_impl.h"
#include "src/directory/reduce_messages.h"

namespace phalanx::directory {
namespace {

// Nodes that keep a reduction in mind, beside those that ask for it.
constexpr size_t kMaxKeepers = 2;
// Nodes that ask for an open one, and are told of each extension.
constexpr size_t kMaxInformed = 4;

absl::Status About(const ObjectId& target, absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("reduction of ", target.hex(), ": ", what));
}

// Whether `part`, from place `first` on, and the list are the same where they overlap.
bool Agrees(const std::vector<ObjectId>& list, size_t first, const std::vector<ObjectId>& part) {
  if (first >= list.size()) return true;
  const size_t both = std::min(list.size() - first, part.size());
  return std::equal(part.begin(), part.begin() + both, list.begin() + first);
}

}  // namespace

// ---- who joins

bool DirectoryCore::Impl::Join(Reduction& reduction, const ReduceSpec& asked,
                               const v1::Reduction& m) {
  const ReduceSpec& running = reduction.plan.spec();
  if (!SameArguments(running, asked)) return false;
  const size_t first = m.first_source();
  const size_t end = first + asked.sources.size();
  const size_t known = running.sources.size();
  if (!asked.open) return first == 0 && running.sources == asked.sources;
  if (!Agrees(running.sources, first, asked.sources)) return false;
  if (m.closed() && (end < known || reduction.closed_at.value_or(end) != end)) return false;
  if (end > known) {
    // When the plan has begun nothing comes any more to fill a gap.
    const bool gap = reduction.begun && first > known;
    const bool over = reduction.plan.closed() || end > reduction.closed_at.value_or(end);
    const bool room = end <= kMaxReduceSources &&
                      reduce_sources_ + asked.sources.size() <= options_.max_reduce_sources;
    if (gap || over || !room) return false;
    std::vector<ObjectId>& part = reduction.parts[first];
    if (part.size() < asked.sources.size()) {
      reduce_sources_ += asked.sources.size() - part.size();
      part = asked.sources;
    }
  }
  if (m.closed()) reduction.closed_at = end;
  const bool taken = TakeParts(reduction);
  // Who joins with more has added to it: the others keep that in mind, too.
  if (taken && reduction.plan.spec().sources.size() > known) {
    for (const NodeKey& keeper : reduction.informed) TellPart(reduction, keeper, known);
  }
  return taken;
}

bool DirectoryCore::Impl::TakeParts(Reduction& reduction) {
  const ReduceSpec& spec = reduction.plan.spec();
  while (!reduction.parts.empty() && reduction.parts.begin()->first <= spec.sources.size()) {
    const auto at = reduction.parts.begin();
    const size_t known = spec.sources.size();
    const size_t first = at->first;
    const std::vector<ObjectId> part = std::move(at->second);
    reduce_sources_ -= part.size();
    reduction.parts.erase(at);
    if (!Agrees(spec.sources, first, part)) return false;
    if (first + part.size() <= known) continue;
    const std::vector<ObjectId> added(part.begin() + (known - first), part.end());
    if (!reduction.plan.Add(added).ok()) return false;
    Watch(reduction, added);
  }
  const bool all = reduction.closed_at == spec.sources.size();
  return !all || reduction.plan.closed() || reduction.plan.Close().ok();
}

bool DirectoryCore::Impl::HasGap(const Reduction& reduction) {
  return !reduction.parts.empty() || (reduction.closed_at.has_value() && !reduction.plan.closed());
}

bool DirectoryCore::Impl::LacksSources(const Reduction& reduction, const ReduceSpec& kept) {
  if (!kept.open || !SameArguments(reduction.plan.spec(), kept)) return false;
  return std::any_of(kept.sources.begin(), kept.sources.end(),
                     [&](const ObjectId& id) { return !reduction.plan.Has(id); });
}

// ---- who adds

absl::Status DirectoryCore::Impl::OnExtend(Node& node, const v1::ExtendRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation number, ParseNumber(m));
  NoteNumber(number);
  const Reduction* reduction = FindReduction(target);
  const bool may_come = Learning() && (reduction == nullptr || !reduction->begun);
  if (!may_come) {
    AnswerExtend(node.key, m);
    return absl::OkStatus();
  }
  const size_t size = 1 + static_cast<size_t>(m.source_ids_size());
  if (deferred_extend_sources_ + size > options_.max_deferred) {
    v1::ExtendReply& reply = *Send(node.key).mutable_extend_reply();
    reply.set_request_id(m.request_id());
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(absl::StrCat("reduction of ", target.hex(), ": ", deferred_extends_.size(),
                                   " requests wait for the end of the shard's first lease"));
    return absl::OkStatus();
  }
  deferred_extend_sources_ += size;
  deferred_extends_.push_back({node.key, node.session, m});
  return absl::OkStatus();
}

void DirectoryCore::Impl::AnswerDeferredExtends() {
  deferred_extend_sources_ = 0;
  for (const DeferredExtend& extend : std::exchange(deferred_extends_, {})) {
    const Node* node = FindNode(extend.node);
    // In a new session the node asks again.
    if (node != nullptr && node->session == extend.session) {
      AnswerExtend(extend.node, extend.request);
    }
  }
}

void DirectoryCore::Impl::AnswerExtend(const NodeKey& node, const v1::ExtendRequest& m) {
  const ObjectId target = *ParseObjectId(m.object_id());
  const Generation number = FromProto(m.begun());
  Reduction* reduction = FindReduction(target);
  const bool another = reduction != nullptr && number.valid() && !reduction->Is(number) &&
                       (reduction->firm || Over(target, number));
  absl::Status status;
  if (m.again() && TakenBefore(m, target, number)) {
    // Its answer died with the session.
  } else if (reduction == nullptr || another) {
    status = About(target, absl::StatusCode::kNotFound, "it is not under way");
  } else {
    status = Extend(*reduction, node, m);
  }
  v1::ExtendReply& reply = *Send(node).mutable_extend_reply();
  reply.set_request_id(m.request_id());
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
}

absl::Status DirectoryCore::Impl::Extend(Reduction& reduction, const NodeKey& node,
                                         const v1::ExtendRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(std::vector<ObjectId> sources, ParseSources(m.source_ids()));
  if (HasGap(reduction)) {
    return About(reduction.target, absl::StatusCode::kUnavailable,
                 "nodes have not told yet what was added to it before the shard began anew");
  }
  const bool done =
      m.again() && std::all_of(sources.begin(), sources.end(),
                               [&reduction](const ObjectId& id) { return reduction.plan.Has(id); });
  if (done) sources.clear();
  const size_t known = reduction.plan.spec().sources.size();
  if (!sources.empty()) {
    const bool room = reduce_sources_ + sources.size() <= options_.max_reduce_sources &&
                      known + sources.size() <= kMaxReduceSources;
    if (!room) {
      return About(reduction.target, absl::StatusCode::kResourceExhausted, "too many sources");
    }
    PHALANX_RETURN_IF_ERROR(reduction.plan.Add(sources));
    Watch(reduction, sources);
  }
  absl::Status status;
  const bool closes = m.close() && !(done && reduction.plan.closed());
  if (closes) status = reduction.plan.Close();
  TouchReduction(reduction.target);
  if (sources.empty() && (!closes || !status.ok())) return status;
  absl::btree_set<NodeKey> keepers = reduction.informed;
  keepers.insert(node);
  for (const NodeKey& keeper : keepers) TellPart(reduction, keeper, known);
  return status;
}

// ---- what nodes keep in mind

void DirectoryCore::Impl::Inform(Reduction& reduction, const NodeKey& node, size_t known) {
  if (reduction.informed.size() >= kMaxInformed && !reduction.informed.contains(node)) return;
  reduction.informed.insert(node);
  const size_t all = reduction.plan.spec().sources.size();
  if (known < all || reduction.plan.closed()) TellPart(reduction, node, std::min(known, all));
}

void DirectoryCore::Impl::TellPart(Reduction& reduction, const NodeKey& node, size_t first) {
  if (FindNode(node) == nullptr) return;
  reduction.part_keepers.insert(node);
  FillKeep(reduction, first, Send(node).mutable_keep_reduction());
}

void DirectoryCore::Impl::TellToKeep(Reduction& reduction, const NodeKey& node) {
  const bool asks = std::any_of(reduction.askers.begin(), reduction.askers.end(),
                                [&node](const Reduction::Asker& a) { return a.node == node; });
  if (asks || reduction.keepers.size() >= kMaxKeepers) return;
  if (!reduction.keepers.insert(node).second) return;
  FillKeep(reduction, 0, Send(node).mutable_keep_reduction());
}

void DirectoryCore::Impl::FillKeep(const Reduction& reduction, size_t first,
                                   v1::KeepReduction* out) const {
  out->set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(reduction.plan.spec(), reduction.plan.root(), out->mutable_reduction(), first);
  out->mutable_reduction()->set_closed(reduction.plan.closed());
  ToProto(reduction.number, out->mutable_reduction()->mutable_begun());
  out->set_owned(reduction.owned);
  if (reduction.deadline.infinite()) return;
  out->set_timeout_ms(static_cast<uint64_t>(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(reduction.deadline - now_))));
}

void DirectoryCore::Impl::TellToForget(const NodeKey& node, const ObjectId& target,
                                       const Generation& number) {
  if (FindNode(node) == nullptr) return;
  v1::KeepReduction& keep = *Send(node).mutable_keep_reduction();
  keep.set_object_id(target.binary().data(), ObjectId::kSize);
  keep.set_forget(true);
  if (number.valid()) ToProto(number, keep.mutable_reduction()->mutable_begun());
}

// ---- folds that go on

absl::Status DirectoryCore::Impl::OnRegisterFold(Node& node, const v1::RegisterFold& m) {
  PHALANX_ASSIGN_OR_RETURN(const ObjectId target, ParseObjectId(m.object_id()));
  PHALANX_ASSIGN_OR_RETURN(const Generation version, ParseGeneration(m.version()));
  PHALANX_RETURN_IF_ERROR(ParseSources(m.source_ids()).status());
  PHALANX_RETURN_IF_ERROR(CheckShape(m.slots(), m.degree(), m.slot()));
  PHALANX_ASSIGN_OR_RETURN(const Generation number, ParseNumber(m));
  NoteNumber(number);
  restarted_ = true;
  if (RefuseFold(node.key, m)) return absl::OkStatus();
  Reduction* reduction = FindReduction(target);
  if (Learning() && (reduction == nullptr || !reduction->begun)) {
    // Who asks for it, or keeps it in mind, may register after this node.
    const size_t size = 1 + static_cast<size_t>(m.source_ids_size());
    if (registered_fold_sources_ + size > options_.max_reduce_sources) {
      SendFoldDrop(node.key, target, version);
    } else {
      registered_fold_sources_ += size;
      registered_folds_[node.key].push_back(m);
    }
    return absl::OkStatus();
  }
  Reduction::Placed* placed =
      reduction == nullptr ? nullptr : PlaceAgain(*reduction, node.key, version);
  if (placed == nullptr) {
    SendFoldDrop(node.key, target, version);
    return absl::OkStatus();
  }
  placed->registered = true;
  if (const FoldTask* task = reduction->plan.Find(node.key, version)) {
    FillFold(*reduction, *task, Send(node.key).mutable_fold());
  }
  if (m.ready()) reduction->plan.OnReady(node.key, version);
  TouchReduction(target);
  return absl::OkStatus();
}

bool DirectoryCore::Impl::RefuseFold(const NodeKey& node, const v1::RegisterFold& m) {
  const ObjectId target = *ParseObjectId(m.object_id());
  const Generation version = FromProto(m.version());
  if (Refusal(target, FromProto(m.begun())) == nullptr) return false;
  SendFoldDrop(node, target, version);
  const Generation made = FromProto(m.generation());
  if (m.has_generation() && made.creator == node && made.sequence != 0) Entomb(target, made);
  return true;
}

void DirectoryCore::Impl::RefuseRegisteredFolds() {
  for (auto& [node, folds] : registered_folds_) {
    std::erase_if(folds, [this, &node = node](const auto& m) { return RefuseFold(node, m); });
  }
}

void DirectoryCore::Impl::ForgetRegisteredFolds(const NodeKey& node) {
  const auto found = registered_folds_.find(node);
  if (found == registered_folds_.end()) return;
  for (const v1::RegisterFold& fold : found->second) {
    registered_fold_sources_ -= 1 + static_cast<size_t>(fold.source_ids_size());
  }
  registered_folds_.erase(found);
}

void DirectoryCore::Impl::HandOutRegisteredFolds() {
  registered_fold_sources_ = 0;
  NumberByFolds();
  for (auto& [node, folds] : std::exchange(registered_folds_, {})) {
    for (v1::RegisterFold& fold : folds) {
      const ObjectId target = *ParseObjectId(fold.object_id());
      Reduction* reduction = FindReduction(target);
      if (reduction != nullptr && (!fold.has_begun() || reduction->Is(FromProto(fold.begun())))) {
        reduction->registered.push_back({node, std::move(fold)});
      } else {
        SendFoldDrop(node, target, FromProto(fold.version()));
      }
    }
  }
}

// Who asked may not know which one it was; those who fold do.
void DirectoryCore::Impl::NumberByFolds() {
  absl::btree_map<ObjectId, Generation> latest;
  for (const auto& [node, folds] : registered_folds_) {
    for (const v1::RegisterFold& fold : folds) {
      const ObjectId target = *ParseObjectId(fold.object_id());
      const Generation number = FromProto(fold.begun());
      const Reduction* reduction = FindReduction(target);
      if (reduction == nullptr || reduction->firm || !fold.has_begun()) continue;
      if (Over(target, number)) continue;
      Generation& known = latest[target];
      if (!known.valid() || BegunLater(number, known)) known = number;
    }
  }
  for (const auto& [target, number] : latest) Renumber(*FindReduction(target), number);
}

void DirectoryCore::Impl::RestoreFolds(Reduction& reduction) {
  for (const auto& [node, fold] : reduction.registered) {
    const auto sources = ParseSources(fold.source_ids());
    if (!sources.ok()) continue;
    reduction.plan.Restore(static_cast<int>(fold.slots()), static_cast<int>(fold.degree()),
                           static_cast<int>(fold.slot()), *sources, node,
                           FromProto(fold.version()));
  }
}

}  // namespace phalanx::directory
