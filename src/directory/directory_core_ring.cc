// Reductions whose result everybody wants: a ring is tried before the plan, and given up for it.
#include <algorithm>
#include <utility>

#include "src/common/defects.h"
#include "src/common/version.h"
#include "src/directory/directory_core_impl.h"
#include "src/directory/reduce_messages.h"

namespace phalanx::directory {
namespace {

// Of what a ring would save, so much is waited for sources that are still to come: what comes later
// is folded by the tree of those that are there.
constexpr double kPatience = 0.25;
// A member may be told of the ring, or have memory for it, before the one that feeds it.
constexpr absl::Duration kPatienceToBegin = absl::Seconds(2);
// Once it is committed nothing is decided any more: who lost a connection gets another.
constexpr int kPullsAfterCommit = 8;

}  // namespace

bool DirectoryCore::Impl::RunRing(Reduction& reduction) {
  if (reduction.ring != nullptr) {
    RingPlan& ring = *reduction.ring;
    // An older generation may have come back with a node.
    const bool announced = reduction.root_generation == ring.generation();
    if (announced && !ring.broken() && !ring.committed() && !RingIsObject(reduction)) {
      BreakRing(reduction);
    }
    if (!ring.broken()) return true;
    if (!reduction.awaited.empty() || ResultUndecided(reduction)) return true;
    reduction.ring.reset();
    ForgetCommitted(reduction);
    reduction.root_generation = Generation();
    reduction.ring_wanted = false;
  }
  if (!reduction.ring_wanted || reduction.begun) return false;
  reduction.ring_wanted = AwaitRing(reduction);
  return reduction.ring_wanted;
}

// True: there is one now, or may be one soon.
bool DirectoryCore::Impl::AwaitRing(Reduction& reduction) {
  const ReduceSpec& spec = reduction.plan.spec();
  const Object* object = FindObject(reduction.target);
  const bool put = object != nullptr && (object->adopted || !object->attempts.empty());
  if (put || Learning() || !reduction.registered.empty() || reduction.source_failed ||
      !RingPlan::Possible(spec, reduction.plan.root())) {
    return false;
  }
  const size_t there = reduction.ready.size();
  if (there == 0) return true;
  if (there == spec.sources.size()) return BeginRing(reduction);
  if (reduction.ring_until.infinite()) {
    const std::optional<ReduceSource> first = KnownSource(
        reduction, *reduction.ready.begin(), StateOfSource(reduction, *reduction.ready.begin()));
    const int members = static_cast<int>(std::min<size_t>(spec.sources.size(), kMaxSlices));
    const ReduceCosts costs = CostsNow();
    const uint64_t bytes = first.has_value() ? first->size_bytes : 0;
    const absl::Duration saved =
        ReduceAndBroadcastTime(members, bytes, costs) - RingTime(members, bytes, costs);
    reduction.ring_until = now_ + std::max(absl::ZeroDuration(), saved * kPatience);
  }
  if (reduction.ring_until <= now_) return false;
  SetReduceTimer(reduction, reduction.ring_until);
  return true;
}

bool DirectoryCore::Impl::BeginRing(Reduction& reduction) {
  std::vector<RingPlan::Known> sources;
  for (const ObjectId& source : reduction.plan.spec().sources) {
    std::optional<ReduceSource> known =
        KnownSource(reduction, source, StateOfSource(reduction, source));
    if (!known.has_value()) return false;
    sources.push_back({source, *std::move(known)});
  }
  const Generation version = VersionOfHash(random_.Next(), random_.Next());
  // Above all that a node mints.
  const uint64_t sequence = random_.Next() | uint64_t{1} << 63;
  std::optional<RingPlan> ring = RingPlan::Choose(
      reduction.plan.spec(), sources, CostsNow(), version,
      Generation{sources[0].state.holders.empty() ? NodeKey() : sources[0].state.holders[0].node,
                 sequence});
  if (!ring.has_value()) return false;
  for (const RingPlan::Member& member : ring->members()) {
    const Node* node = FindNode(member.node);
    if (node == nullptr || !node->connected || node->registering) return false;
  }
  reduction.ring = std::make_unique<RingPlan>(*std::move(ring));
  reduction.ring_began = now_;
  ++counters_.rings;
  std::string from;
  for (const RingPlan::Member& member : reduction.ring->members()) {
    for (const RingPlan::Own& own : member.own) {
      from.append(own.id.binary().data(), ObjectId::kSize);
    }
  }
  for (size_t place = 0; place < reduction.ring->members().size(); ++place) {
    PlaceMember(reduction, place, from);
  }
  return true;
}

bool DirectoryCore::Impl::RingIsObject(const Reduction& reduction) {
  const Object* object = FindObject(reduction.target);
  return object != nullptr && object->adopted && object->generation == reduction.ring->generation();
}

void DirectoryCore::Impl::PlaceMember(Reduction& reduction, size_t place,
                                      const std::string& reduced_from) {
  const RingPlan& ring = *reduction.ring;
  const RingPlan::Member& member = ring.members()[place];
  const ReduceSpec& spec = reduction.plan.spec();
  v1::Fold& fold = *Send(member.node).mutable_fold();
  fold.set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(ring.version(), fold.mutable_version());
  ToProto(reduction.number, fold.mutable_begun());
  fold.set_slot(static_cast<uint32_t>(place));
  fold.set_slots(static_cast<uint32_t>(ring.members().size()));
  fold.set_degree(1);
  fold.set_dtype(ToProto(spec.elements, fold.mutable_runs()));
  fold.set_op(static_cast<uint32_t>(spec.op));
  fold.set_planned(ring.sources());
  fold.set_size_bytes(ring.size_bytes());
  fold.set_root(true);
  for (const RingPlan::Own& own : member.own) {
    v1::Fold::Input& input = *fold.add_inputs();
    input.set_source_id(own.id.binary().data(), ObjectId::kSize);
    ToProto(own.generation, input.mutable_generation());
  }
  fold.set_reduced_from(reduced_from);
  fold.set_owned(reduction.owned);
  fold.set_metadata(ring.metadata());
  fold.set_asked_for(ReduceRecord(spec).Encode());
  v1::Fold::Ring& way = *fold.mutable_ring();
  ToProto(ring.generation(), way.mutable_generation());
  ToProto(ring.Before(place), way.mutable_before());
  way.set_before_address(FindNode(ring.Before(place))->info.address());
  ++counters_.folds_placed;
  reduction.placed[{member.node, ring.version()}] = Reduction::Placed();
  TellToKeep(reduction, member.node);
}

bool DirectoryCore::Impl::IsRingMember(const ObjectId& target, const Generation& version,
                                       const NodeKey& node) {
  const Reduction* reduction = FindReduction(target);
  return reduction != nullptr && reduction->ring != nullptr && !reduction->ring->broken() &&
         reduction->ring->version() == version && reduction->ring->PlaceOf(node).has_value();
}

// Each member announces that it begins to write the target. With the first all of them are listed:
// nobody is to send it to a node that makes it itself.
absl::Status DirectoryCore::Impl::OnRingCreate(Node& node, const ObjectId& target,
                                               const Generation& generation, ObjectInfo info) {
  Reduction& reduction = *FindReduction(target);
  const RingPlan& ring = *reduction.ring;
  if (generation != ring.generation() || info.slices != ring.members().size() ||
      info.size_bytes != ring.size_bytes()) {
    return absl::InvalidArgumentError("generation: the ring makes another one");
  }
  const bool info_owned = info.owned;
  Object& object = GetObject(target);
  if (!object.adopted && Refusal(target, generation) == nullptr) {
    Adopt(object, node, generation, std::move(info), /*complete=*/false, /*tell=*/false);
    for (const RingPlan::Member& member : ring.members()) ListWriter(object, member.node);
    reduction.root_generation = generation;
    reduction.open_root = generation;
  }
  if (!object.adopted || object.generation != generation || !object.copies.contains(node.key)) {
    // It was put meanwhile.
    SendSuperseded(node.key, target, generation, object.info);
    BreakRing(reduction);
    if (Object* left = FindObject(target)) ReleaseIfEmpty(*left);
    return absl::OkStatus();
  }
  SendVerdict(node.key, object, generation, v1::Verdict::ADOPTED);
  if (info_owned && !object.info.owned) SendKept(node.key, object);
  if (!reduction.owned) KeepObject(object);
  Settle(object);
  return absl::OkStatus();
}

void DirectoryCore::Impl::ListWriter(Object& object, const NodeKey& key) {
  Node* node = FindNode(key);
  if (node == nullptr) return;
  const auto [copy, added] = object.copies.try_emplace(key);
  if (added) {
    ++node->copies;
    Involve(*node, object.id);
  }
  SetWriter(object, copy->second, true);
  copy->second.primary = key == object.generation.creator;
}

void DirectoryCore::Impl::OnRingReport(Reduction& reduction, const NodeKey& node,
                                       Reduction::Placed& placed, const v1::FoldReport& m) {
  RingPlan& ring = *reduction.ring;
  switch (m.kind()) {
    case v1::FoldReport::READY:
      // An older generation may have come back with a node.
      if (!RingIsObject(reduction)) return BreakRing(reduction);
      if (!ring.OnReady(node)) return;
      reduction.open_root = Generation();
      for (const RingPlan::Member& member : ring.members()) {
        reduction.told_to_commit.insert(member.node);
        v1::FoldCommit& commit = *Send(member.node).mutable_fold_commit();
        commit.set_object_id(reduction.target.binary().data(), ObjectId::kSize);
        ToProto(ring.version(), commit.mutable_version());
      }
      return;
    case v1::FoldReport::PROGRESS:
      placed.watermark = m.watermark();
      placed.bytes_per_second = UsableRate(m.bytes_per_second());
      placed.trouble.clear();
      return;
    case v1::FoldReport::FAILED:
      placed.trouble = m.message();
      if (!MayRecover(reduction, node, placed, m)) BreakRing(reduction);
      return;
    default:
      placed.trouble = m.message();
      return BreakRing(reduction);
  }
}

bool DirectoryCore::Impl::MayRecover(Reduction& reduction, const NodeKey& node,
                                     Reduction::Placed& placed, const v1::FoldReport& m) {
  const RingPlan& ring = *reduction.ring;
  const Node* before = FindNode(ring.Before(*ring.PlaceOf(node)));
  if (before == nullptr || !before->connected) return false;
  if (ring.committed()) return placed.times_lost++ < kPullsAfterCommit;
  const auto code = static_cast<absl::StatusCode>(m.code());
  return BroadcastPlanner::MerelyBusy(code) && now_ < reduction.ring_began + kPatienceToBegin;
}

void DirectoryCore::Impl::RingMemberLost(Reduction& reduction, const NodeKey& key) {
  if (reduction.ring == nullptr || !reduction.ring->PlaceOf(key)) return;
  reduction.placed.erase({key, reduction.ring->version()});
  if (!reduction.ring->broken()) BreakRing(reduction);
}

// Members that have sealed a committed result keep it, and say so; the others take back what they
// have. What is not committed nobody can have.
void DirectoryCore::Impl::BreakRing(Reduction& reduction) {
  reduction.ring->OnLost(reduction.ring->members().front().node);
  TakeBackRing(reduction);
  if (Object* object = FindObject(reduction.target)) Settle(*object);
  TouchReduction(reduction.target);
}

void DirectoryCore::Impl::TakeBackRing(Reduction& reduction) {
  DropMembers(reduction);
  reduction.open_root = Generation();
  if (reduction.ring->committed() || !RingIsObject(reduction)) return;
  ++counters_.voided;
  VoidGeneration(*FindObject(reduction.target), "the ring that made it was given up", NodeKey());
}

void DirectoryCore::Impl::DropMembers(Reduction& reduction) {
  const bool half = DefectActive(Defect::kRingHalfDropped);
  for (const RingPlan::Member& member : reduction.ring->members()) {
    if (half && &member != &reduction.ring->members().front()) continue;
    if (reduction.placed.erase({member.node, reduction.ring->version()}) == 0) continue;
    ++counters_.folds_dropped;
    SendFoldDrop(member.node, reduction.target, reduction.ring->version());
  }
}

void DirectoryCore::Impl::DescribeRing(const Reduction& reduction,
                                       v1::ReductionDescription* out) const {
  const RingPlan& ring = *reduction.ring;
  out->set_ring(true);
  out->set_degree(1);
  out->set_size_bytes(ring.size_bytes());
  out->set_committed(ring.committed());
  for (size_t place = 0; place < ring.members().size(); ++place) {
    const RingPlan::Member& member = ring.members()[place];
    v1::ReductionDescription::Slot& to = *out->add_slots();
    to.set_slot(static_cast<uint32_t>(place));
    to.set_parent(static_cast<int32_t>((place + 1) % ring.members().size()));
    ToProto(ring.version(), to.mutable_version());
    for (const RingPlan::Own& own : member.own) {
      to.add_source_ids(own.id.binary().data(), ObjectId::kSize);
    }
    DescribeFolder(reduction, member.node, ring.version(), to);
  }
}

}  // namespace phalanx::directory
