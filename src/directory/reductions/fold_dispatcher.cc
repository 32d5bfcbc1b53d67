#include "src/directory/reductions/fold_dispatcher.h"

#include <optional>
#include <string>
#include <utility>

#include "src/directory/core/reduce_messages.h"
#include "src/directory/reductions/results/reduce_result.h"
namespace phalanx::directory {

FoldDispatcher::FoldDispatcher(const ReductionParts& parts, SourceWatcher& watcher,
                               ReductionDescriptors& descriptors)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      watcher_(watcher),
      descriptors_(descriptors) {}

void FoldDispatcher::Apply(Reduction& reduction, const PlaceFold& effect) {
  // The node went down in this turn. The plan is notified next and places the fold again.
  if (nodes_.Find(effect.node) == nullptr) return;
  ++context_.counters.folds_placed;
  v1::Fold& fold = *outbox_.Send(effect.node).mutable_fold();
  FillFold(reduction, effect.task, &fold);
  // The result needs all its bytes.
  if (!effect.task.root) fold.set_begin(BeginOf(reduction, effect.task.version));
  Reduction::Placed& placed = reduction.placed[{effect.node, effect.task.version}];
  placed.registered = true;
  // A fold that is committed in advance is sealed without another message, so its node may have the
  // result from now on.
  if (effect.task.root && effect.task.committed) reduction.commit.sent_to.insert(effect.node);
  descriptors_.SendToReplica(reduction, effect.node);
}

void FoldDispatcher::PlaceRelay(Reduction& reduction, const FoldInput& input, uint64_t size_bytes,
                                const NodeKey& to) {
  FoldTask task;
  task.version = input.version;
  task.size_bytes = size_bytes;
  task.planned = 1;
  v1::Fold& fold = *outbox_.Send(to).mutable_fold();
  FillWork(reduction, task, &fold);
  fold.set_relay(true);
  fold.set_begin(BeginOf(reduction, input.version));
  FillSender(input.version, input.node, *fold.add_inputs());
  ++context_.counters.folds_relayed;
  reduction.placed[{to, input.version}] = Reduction::Placed();
}

void FoldDispatcher::NoteArrived(Reduction& reduction, const NodeKey& node,
                                 const SlotVersion& version, const v1::FoldReport& m) {
  const FoldTask* task = reduction.plan.Find(node, version);
  if (task == nullptr || m.input() >= task->inputs.size()) return;
  const FoldInput& input = task->inputs[m.input()];
  if (input.kind != FoldInput::Kind::kSlot || m.watermark() > task->size_bytes) return;
  reduction.arrived[input.version] = {{node, version}, m.watermark()};
}

uint64_t FoldDispatcher::BeginOf(const Reduction& reduction, const SlotVersion& version) {
  const auto arrived = reduction.arrived.find(version);
  if (arrived == reduction.arrived.end()) return 0;
  const Reduction::Arrived& above = arrived->second;
  // A fold that is placed anew begins at the first byte.
  return reduction.placed.contains(above.fold) ? above.bytes : 0;
}

void FoldDispatcher::FillSender(const SlotVersion& version, const NodeKey& sender,
                                v1::Fold::Input& out) const {
  ToProto(version, out.mutable_generation());
  ToProto(sender, out.mutable_sender());
  if (const Node* node = nodes_.Find(sender)) out.set_sender_address(node->info.address());
}

void FoldDispatcher::FillWork(const Reduction& reduction, const FoldTask& task, v1::Fold* out) {
  const ReduceSpec& spec = reduction.plan.spec();
  out->set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(task.version, out->mutable_version());
  ToProto(reduction.identity.id, out->mutable_begun());
  out->set_slot(static_cast<uint32_t>(task.slot));
  out->set_slots(static_cast<uint32_t>(task.slots));
  // Slots and degree are registered at a restarted shard, which rebuilds the same tree from them.
  out->set_degree(static_cast<uint32_t>(task.degree));
  out->set_dtype(ToProto(spec.elements, out->mutable_runs()));
  out->set_op(static_cast<uint32_t>(spec.op));
  out->set_planned(task.planned);
  out->set_range_offset(spec.range_offset);
  out->set_size_bytes(task.size_bytes);
}

void FoldDispatcher::FillFold(const Reduction& reduction, const FoldTask& task, v1::Fold* out) {
  const ReduceSpec& spec = reduction.plan.spec();
  FillWork(reduction, task, out);
  out->set_root(task.root);
  out->set_committed(task.committed);
  for (const FoldInput& input : task.inputs) {
    v1::Fold::Input& to = *out->add_inputs();
    if (input.kind == FoldInput::Kind::kSlot) {
      FillSender(input.version, reduction.SenderOf(input), to);
      continue;
    }
    ToProto(input.generation, to.mutable_generation());
    // A fold that is committed in advance must not depend on a source that may be gone when the
    // order arrives.
    std::optional<absl::string_view> bytes;
    if (input.kind == FoldInput::Kind::kInline || task.committed) {
      bytes = watcher_.InlineBytesOf(reduction, input, task.size_bytes);
    }
    if (input.kind == FoldInput::Kind::kSource && !bytes.has_value()) {
      to.set_source_id(input.source.binary().data(), ObjectId::kSize);
      continue;
    }
    to.set_has_inline(true);
    if (bytes.has_value()) {
      outbox_.AddInlineBytes(bytes->size());
      to.set_inline_bytes(std::string(*bytes));
    }
  }
  // Only the root creates the object that carries all this.
  if (!task.root) return;
  out->set_owned(reduction.requests.owned);
  std::string from;
  for (const ObjectId& source : task.reduced_from) {
    from.append(source.binary().data(), ObjectId::kSize);
  }
  out->set_reduced_from(std::move(from));
  out->set_metadata(task.metadata);
  // The arguments travel with the object: a restarted shard compares repeated requests with them.
  out->set_asked_for(ReduceRecord(spec).Encode());
  SetName(reduction.name, out);
}

void FoldDispatcher::SendDrop(const NodeKey& to, const ObjectId& target,
                              const SlotVersion& version) {
  if (nodes_.Find(to) == nullptr) return;
  v1::FoldDrop& drop = *outbox_.Send(to).mutable_fold_drop();
  drop.set_object_id(target.binary().data(), ObjectId::kSize);
  ToProto(version, drop.mutable_version());
}

void FoldDispatcher::ForgetArrived(Reduction& reduction, const Reduction::FoldKey& fold) {
  absl::erase_if(reduction.arrived,
                 [&fold](const auto& entry) { return entry.second.fold == fold; });
}

void FoldDispatcher::Apply(Reduction& reduction, const DropFold& effect) {
  // First: a report that crosses the drop is answered as one of an unknown fold.
  reduction.placed.erase({effect.node, effect.version});
  ForgetArrived(reduction, {effect.node, effect.version});
  ++context_.counters.folds_dropped;
  SendDrop(effect.node, reduction.target, effect.version);
}

void FoldDispatcher::Apply(Reduction& reduction, const CommitFold& effect) {
  // From the commit on a node can have every byte of the root's generation: it is not replaced any
  // more.
  reduction.commit.open_root = Generation();
  if (nodes_.Find(effect.node) == nullptr) return;
  SendCommit(reduction, effect.node, effect.version);
}

void FoldDispatcher::SendCommit(Reduction& reduction, const NodeKey& to,
                                const SlotVersion& version) {
  // From here on the node may have answered its clients, even if the shard never learns of it.
  reduction.commit.sent_to.insert(to);
  v1::FoldCommit& commit = *outbox_.Send(to).mutable_fold_commit();
  commit.set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(version, commit.mutable_version());
}

void FoldDispatcher::Repeat(const Reduction& reduction, const FoldTask& task, const NodeKey& to) {
  FillFold(reduction, task, outbox_.Send(to).mutable_fold());
}

}  // namespace phalanx::directory
