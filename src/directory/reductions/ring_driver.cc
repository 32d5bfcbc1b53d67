#include "src/directory/reductions/ring_driver.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/common/ids/digest.h"
#include "src/common/ids/version.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/reductions/report/reduction_report.h"
#include "src/directory/reductions/results/reduce_result.h"
#include "src/directory/reductions/ring_plan/measured_costs.h"
namespace phalanx::directory {
namespace {

// Of what a ring would save, this share is spent on waiting for sources that are still missing: a
// source that comes later is folded by the tree.
constexpr double kPatience = 0.25;
// A member may receive its order, or memory, before the member that feeds it.
constexpr absl::Duration kPatienceToBegin = absl::Seconds(2);
// Once the ring is committed nothing can be decided any more: a member that lost a connection pulls
// again.
constexpr int kPullsAfterCommit = 8;

}  // namespace

RingDriver::RingDriver(const ReductionParts& parts, ReductionCatalog& catalog,
                       SourceWatcher& watcher, ReductionDescriptors& descriptors,
                       FoldDispatcher& dispatcher, CommitTracker& commits)
    : context_(parts.context),
      nodes_(parts.nodes),
      outbox_(parts.outbox),
      gate_(parts.gate),
      objects_(parts.objects),
      tombstones_(parts.tombstones),
      links_(parts.links),
      pairs_(parts.pairs),
      catalog_(catalog),
      watcher_(watcher),
      descriptors_(descriptors),
      dispatcher_(dispatcher),
      commits_(commits) {}

bool RingDriver::Run(Reduction& reduction) {
  if (reduction.ring.plan != nullptr) {
    RingPlan& ring = *reduction.ring.plan;
    // A node that registered an older generation may have taken the object away from the ring.
    const bool announced = reduction.commit.root_generation == ring.generation();
    if (announced && !ring.broken() && !ring.committed() && !IsObject(reduction)) {
      Break(reduction);
    }
    if (!ring.broken()) return true;
    // A member of the broken ring may have sealed the result. No tree is begun beside it.
    if (!reduction.commit.awaited.empty() || commits_.ResultUndecided(reduction)) return true;
    reduction.ring.plan.reset();
    commits_.ForgetCommitted(reduction);
    reduction.commit.root_generation = Generation();
    reduction.phase = ReductionPhase::kCollecting;
  }
  if (reduction.phase != ReductionPhase::kRingWanted) return false;
  if (!Await(reduction)) reduction.phase = ReductionPhase::kCollecting;
  return reduction.phase != ReductionPhase::kCollecting;
}

bool RingDriver::Await(Reduction& reduction) {
  const ReduceSpec& spec = reduction.plan.spec();
  const Object* object = objects_.Find(reduction.target);
  const bool put = object != nullptr && (object->adopted() || !object->standbys.empty());
  // A ring is an attempt that must not fail often: anything that a tree would have to sort out goes
  // to the tree at once.
  if (put || gate_.learning() || !reduction.registered.empty() || reduction.sources.failed ||
      !RingPlan::Possible(spec, reduction.plan.root())) {
    return false;
  }
  const size_t there = reduction.sources.ready.size();
  // Nothing is known of the size yet, and a tree could not begin either.
  if (there == 0) return true;
  if (there == spec.sources.size()) return Begin(reduction);
  // There is no tree that would do without them.
  if (spec.order == ReduceSpec::Order::kRing) return true;
  if (reduction.ring.wait_until.infinite()) {
    const std::optional<ReduceSource> first =
        watcher_.KnownSource(reduction, *reduction.sources.ready.begin(),
                             watcher_.StateOfSource(reduction, *reduction.sources.ready.begin()));
    const int members = static_cast<int>(std::min<size_t>(spec.sources.size(), kMaxSlices));
    const ReduceCosts costs = MeasuredCosts(links_);
    const uint64_t bytes = first.has_value() ? first->size_bytes : 0;
    const absl::Duration saved =
        ReduceAndBroadcastTime(members, bytes, costs) - RingTime(members, bytes, costs);
    reduction.ring.wait_until = context_.now + std::max(absl::ZeroDuration(), saved * kPatience);
  }
  if (reduction.ring.wait_until <= context_.now) return false;
  catalog_.SetTimer(reduction, reduction.ring.wait_until);
  return true;
}

bool RingDriver::Begin(Reduction& reduction) {
  std::vector<RingPlan::Known> sources;
  for (const ObjectId& source : reduction.plan.spec().sources) {
    std::optional<ReduceSource> known =
        watcher_.KnownSource(reduction, source, watcher_.StateOfSource(reduction, source));
    if (!known.has_value()) return false;
    sources.push_back({source, *std::move(known)});
  }
  Digest128 random;
  random.high = context_.random.Next();
  random.low = context_.random.Next();
  // Random, not a hash of the sources: members of a broken ring can still hold its version when the
  // next ring of the same sources is placed.
  const SlotVersion version = VersionOf(random);
  // Nodes mint smaller sequences, so that no node's generation equals the ring's.
  const uint64_t sequence = context_.random.Next() | uint64_t{1} << 63;
  std::optional<RingPlan> ring = RingPlan::Choose(
      reduction.plan.spec(), sources, MeasuredCosts(links_), version,
      Generation{sources[0].state.holders.empty() ? NodeKey() : sources[0].state.holders[0].node,
                 sequence});
  if (!ring.has_value()) return false;
  for (const RingPlan::Member& member : ring->members()) {
    const Node* node = nodes_.Find(member.node);
    // One member that does not answer would stop the whole ring.
    if (node == nullptr || !node->connected || node->registering) return false;
    // Every member receives nearly twice the object; in a tree the slow one only gets the result.
    if (watcher_.SpeedOf(*node) < 1) return false;
    const NodeKey& before = ring->Before(*ring->PlaceOf(member.node));
    const bool cut = pairs_.Cut(member.node, before, context_.now);
    if (cut && !DefectActive(Defect::kRingAcrossCut)) return false;
  }
  reduction.ring.plan = std::make_unique<RingPlan>(*std::move(ring));
  reduction.phase = ReductionPhase::kRing;
  reduction.ring.began = context_.now;
  ++context_.counters.rings;
  std::string from;
  for (const RingPlan::Member& member : reduction.ring.plan->members()) {
    for (const RingPlan::Own& own : member.own) {
      from.append(own.id.binary().data(), ObjectId::kSize);
    }
  }
  for (size_t place = 0; place < reduction.ring.plan->members().size(); ++place) {
    PlaceMember(reduction, place, from);
  }
  return true;
}

bool RingDriver::IsObject(const Reduction& reduction) const {
  const Object* object = objects_.Find(reduction.target);
  return object != nullptr && object->adopted() &&
         object->generation == reduction.ring.plan->generation();
}

void RingDriver::PlaceMember(Reduction& reduction, size_t place, const std::string& reduced_from) {
  const RingPlan& ring = *reduction.ring.plan;
  const RingPlan::Member& member = ring.members()[place];
  const ReduceSpec& spec = reduction.plan.spec();
  v1::Fold& fold = *outbox_.Send(member.node).mutable_fold();
  fold.set_object_id(reduction.target.binary().data(), ObjectId::kSize);
  ToProto(ring.version(), fold.mutable_version());
  ToProto(reduction.identity.id, fold.mutable_begun());
  const size_t shifted = DefectActive(Defect::kRingPlaceShifted) ? 1 : 0;
  fold.set_slot(static_cast<uint32_t>((place + shifted) % ring.members().size()));
  fold.set_slots(static_cast<uint32_t>(ring.members().size()));
  fold.set_degree(1);
  fold.set_dtype(ToProto(spec.elements, fold.mutable_runs()));
  fold.set_op(static_cast<uint32_t>(spec.op));
  fold.set_planned(ring.sources());
  fold.set_size_bytes(ring.size_bytes());
  // Every member creates the target, so each one needs what a root is sent.
  fold.set_root(true);
  for (const RingPlan::Own& own : member.own) {
    v1::Fold::Input& input = *fold.add_inputs();
    input.set_source_id(own.id.binary().data(), ObjectId::kSize);
    ToProto(own.generation, input.mutable_generation());
  }
  fold.set_reduced_from(reduced_from);
  fold.set_owned(reduction.requests.owned);
  fold.set_metadata(ring.metadata());
  fold.set_asked_for(ReduceRecord(spec).Encode());
  SetName(reduction.name, &fold);
  v1::Fold::Ring& way = *fold.mutable_ring();
  ToProto(ring.generation(), way.mutable_generation());
  ToProto(ring.Before(place), way.mutable_before());
  way.set_before_address(nodes_.Find(ring.Before(place))->info.address());
  ++context_.counters.folds_placed;
  reduction.placed[{member.node, ring.version()}] = Reduction::Placed();
  descriptors_.SendToReplica(reduction, member.node);
}

bool RingDriver::IsMember(const ObjectId& target, const SlotVersion& version,
                          const NodeKey& node) const {
  const Reduction* reduction = catalog_.Find(target);
  return reduction != nullptr && reduction->ring.plan != nullptr &&
         !reduction->ring.plan->broken() && reduction->ring.plan->version() == version &&
         reduction->ring.plan->PlaceOf(node).has_value();
}

absl::Status RingDriver::OnCreate(Node& node, const ObjectId& target, Announcement announced) {
  const Generation generation = announced.generation;
  ObjectInfo& info = announced.info;
  Reduction& reduction = *catalog_.Find(target);
  const RingPlan& ring = *reduction.ring.plan;
  if (generation != ring.generation() || info.slices != ring.members().size() ||
      info.size_bytes != ring.size_bytes()) {
    return absl::InvalidArgumentError("generation: the ring makes another one");
  }
  const bool info_owned = info.owned;
  Object& object = objects_.GetOrCreate(target);
  if (!object.adopted() && !tombstones_.Refuses(target, generation)) {
    objects_.Adopt(object, node, generation, std::move(info), /*complete=*/false, /*notify=*/false);
    // The first announcement lists all of them: a member that has not begun yet could otherwise be
    // assigned a sender for what it makes itself.
    for (const RingPlan::Member& member : ring.members()) objects_.AddWriter(object, member.node);
    reduction.commit.root_generation = generation;
    reduction.commit.open_root = generation;
  }
  if (!object.adopted() || object.generation != generation || !object.copies.contains(node.key)) {
    // A client put an object under the target's id after the ring was placed.
    outbox_.SendSuperseded(node.key, target, generation, object.info);
    Break(reduction);
    if (Object* left = objects_.Find(target)) objects_.ReleaseIfEmpty(*left);
    return absl::OkStatus();
  }
  outbox_.SendVerdict(node.key, target, generation, v1::Verdict::ADOPTED);
  if (info_owned && !object.info.owned) outbox_.SendKept(node.key, object.id, object.generation);
  if (!reduction.requests.owned) objects_.ClearOwned(object);
  objects_.Reevaluate(object);
  return absl::OkStatus();
}

void RingDriver::OnReport(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                          const v1::FoldReport& m) {
  RingPlan& ring = *reduction.ring.plan;
  switch (m.kind()) {
    case v1::FoldReport::READY:
      // A node that registered an older generation may have taken the object away from the ring.
      if (!IsObject(reduction)) return Break(reduction);
      if (!ring.OnReady(node)) return;
      reduction.commit.open_root = Generation();
      for (const RingPlan::Member& member : ring.members()) {
        dispatcher_.SendCommit(reduction, member.node, ring.version());
      }
      return;
    case v1::FoldReport::PROGRESS:
      placed.watermark = m.watermark();
      placed.bytes_per_second = UsableRate(m.bytes_per_second());
      placed.trouble.clear();
      return;
    case v1::FoldReport::FAILED:
      placed.trouble = DescribeFailure(nodes_, node, m);
      if (!MayRecover(reduction, node, placed, m)) Break(reduction);
      return;
    default:
      placed.trouble = m.message();
      return Break(reduction);
  }
}

bool RingDriver::MayRecover(Reduction& reduction, const NodeKey& node, Reduction::Placed& placed,
                            const v1::FoldReport& m) {
  const RingPlan& ring = *reduction.ring.plan;
  const Node* before = nodes_.Find(ring.Before(*ring.PlaceOf(node)));
  // The member before is gone, so no retry can succeed.
  if (before == nullptr || !before->connected) return false;
  const auto code = static_cast<absl::StatusCode>(m.code());
  if (FailedPairs::IsUnreached(code)) pairs_.Remember(node, before->key, code, context_.now);
  // The members that have the result keep it, and the others can pull it from them.
  if (pairs_.Cut(node, before->key, context_.now) && !DefectActive(Defect::kCutNotHeard)) {
    return false;
  }
  if (ring.committed()) return placed.times_lost++ < kPullsAfterCommit;
  return FailedPairs::IsBusy(code) && context_.now < reduction.ring.began + kPatienceToBegin;
}

void RingDriver::MemberLost(Reduction& reduction, const NodeKey& key) {
  if (reduction.ring.plan == nullptr || !reduction.ring.plan->PlaceOf(key)) return;
  // First: DropMembers sends nothing to a member that is not listed.
  reduction.placed.erase({key, reduction.ring.plan->version()});
  if (!reduction.ring.plan->broken()) Break(reduction);
}

void RingDriver::Break(Reduction& reduction) {
  reduction.ring.plan->OnLost(reduction.ring.plan->members().front().node);
  TakeBack(reduction);
  if (Object* object = objects_.Find(reduction.target)) objects_.Reevaluate(*object);
  catalog_.Touch(reduction.target);
}

void RingDriver::TakeBack(Reduction& reduction) {
  DropMembers(reduction);
  reduction.commit.open_root = Generation();
  // After the commit a member that has sealed keeps its copy, so the generation is not void.
  if (reduction.ring.plan->committed() || !IsObject(reduction)) return;
  ++context_.counters.voided;
  objects_.VoidGeneration(*objects_.Find(reduction.target), "the ring that made it was given up",
                          NodeKey());
}

void RingDriver::DropMembers(Reduction& reduction) {
  const bool half = DefectActive(Defect::kRingHalfDropped);
  for (const RingPlan::Member& member : reduction.ring.plan->members()) {
    if (half && &member != &reduction.ring.plan->members().front()) continue;
    if (reduction.placed.erase({member.node, reduction.ring.plan->version()}) == 0) continue;
    ++context_.counters.folds_dropped;
    dispatcher_.SendDrop(member.node, reduction.target, reduction.ring.plan->version());
  }
}

}  // namespace phalanx::directory
