#include "src/sim/workloads/cut_simulation.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/random.h"
#include "src/common/slice_layout.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/ps/rows/ring_sums.h"
#include "src/sim/cluster/checkers.h"
#include "src/sim/cluster/ordered_floats.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using object_store::View;

// What finding a cut can take.
constexpr absl::Duration kToFindCuts = absl::Seconds(1);
// What the way around known cuts can take beyond twice the usual time: longer chains of hops.
constexpr absl::Duration kToGoAround = absl::Milliseconds(200);
constexpr absl::Duration kHang = absl::Seconds(30);
constexpr int kRoundsWithCuts = 4;

uint64_t Element(const ObjectId& source, uint64_t i) {
  uint64_t seed = 0;
  std::memcpy(&seed, source.binary().data(), sizeof seed);
  return (seed + i) * 0x9e3779b97f4a7c15;
}

class CutSimulation {
 public:
  explicit CutSimulation(const CutPlan& plan)
      : plan_(plan), cluster_(plan.cluster), checkers_(cluster_), random_(plan.seed * 131 + 7) {}

  // Returns the time of a round in which nothing is cut.
  absl::Duration UsualTime() {
    Connect();
    if (plan_.warm) RunRound();
    return RunRound();
  }
  SimulationResult Run(absl::Duration usual);

 private:
  struct Round {
    ObjectId target;
    std::vector<ObjectId> sources;
    uint32_t num_objects = 0;
    size_t put = 0;
    size_t done = 0;      // calls that have ended, and results that were read
    bool sliced = false;  // a ring has made the result
    // Of kRing, if there is no ring.
    std::vector<ObjectId> slices;
    std::string sum;
  };
  using Pair = std::pair<int, int>;

  bool failed() { return !cluster_.journal().violation().ok(); }
  bool Until(absl::string_view what, absl::FunctionRef<bool()> done);
  void Connect();
  bool Reduces() const { return plan_.kind <= CutPlan::Kind::kRing; }
  bool InRingOrder() const { return plan_.kind == CutPlan::Kind::kRing; }
  // Runs one round and checks the result. Returns the time that it has taken.
  absl::Duration RunRound();
  absl::Duration RunReduction(const std::string& name);
  absl::Duration RunTransfer();
  void Put(int n, const ObjectId& source);
  std::string BytesOf(int n, const ObjectId& source) const;
  // The floats of kRing.
  OrderedFloats Floats() const;
  void Reduce(int n);
  void Reduced(int n, const absl::Status& status);
  void ReduceSlices(int n);
  void GetSlice(int n, int slice);
  void Get(int n);
  void Broadcast(int n);
  void CheckView(int n, const View& view);
  void CheckSum(int n, const View& view, const std::vector<ObjectId>& from);
  void CheckBytes(int n, const View& view, absl::string_view bytes);
  void CheckTime(absl::Duration took, absl::Duration bound);
  void Forget();
  void DrawPairs();
  void Cut();
  void KillRelay();
  void CleanUp();
  absl::Status Empty();
  ClientId ClientOf(int n);

  const CutPlan& plan_;
  SimCluster cluster_;
  Checkers checkers_;
  Random random_;
  std::vector<Pair> pairs_;
  std::map<NodeKey, ClientId> clients_;
  int rounds_ = 0;
  Round round_;
  uint64_t bytes_checked_ = 0;
  uint64_t from_rings_ = 0;
  uint64_t from_slices_ = 0;
  bool killed_ = false;
};

bool CutSimulation::Until(absl::string_view what, absl::FunctionRef<bool()> done) {
  uint64_t events = 0;
  const bool reached = cluster_.scheduler().RunUntil(
      [&] {
        if (++events % 64 == 0) checkers_.CheckCores();
        return failed() || done();
      },
      kHang);
  if (reached || failed()) return !failed();
  cluster_.journal().Violation(absl::StrCat(what, " has not ended after ",
                                            absl::FormatDuration(kHang), ": ",
                                            cluster_.Describe(round_.target).ShortDebugString()));
  return false;
}

void CutSimulation::Connect() {
  Until("connecting", [this] {
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) return false;
      for (const absl::Status& state : cluster_.node(n)->ShardStates()) {
        if (!state.ok()) return false;
      }
    }
    return true;
  });
}

ClientId CutSimulation::ClientOf(int n) {
  const NodeKey key = cluster_.node(n)->key();
  const auto found = clients_.find(key);
  if (found != clients_.end()) return found->second;
  return clients_[key] = cluster_.store(n)->OpenClient();
}

// ---- a round

OrderedFloats CutSimulation::Floats() const {
  return {plan_.seed * 1000 + static_cast<uint64_t>(rounds_), plan_.sources, 2 * plan_.elements};
}

std::string CutSimulation::BytesOf(int n, const ObjectId& source) const {
  if (InRingOrder()) return Floats().Source(n);
  std::string bytes(plan_.elements * sizeof(uint64_t), '\0');
  for (uint64_t i = 0; i < plan_.elements; ++i) {
    const uint64_t element = Element(source, i);
    std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
  }
  return bytes;
}

void CutSimulation::Put(int n, const ObjectId& source) {
  object_store::PutOptions options;
  options.id = source;
  options.slices = plan_.slices;
  options.wait_for_adoption = true;
  cluster_.store(n)->Put(ClientOf(n), options, BytesOf(n, source),
                         [this](const absl::StatusOr<object_store::PutResult>& put) {
                           cluster_.journal().Violation("Put", put.status());
                           ++round_.put;
                         });
}

void CutSimulation::Reduce(int n) {
  const bool everybody = plan_.kind == CutPlan::Kind::kAllReduce;
  ReduceTarget target{round_.target};
  target.root_here = !everybody && !InRingOrder() && plan_.seed % 2 == 0;
  target.everybody = everybody;
  ReduceSpec spec;
  spec.sources = round_.sources;
  spec.elements = InRingOrder() ? DType::kF32 : DType::kU64;
  spec.num_objects = round_.num_objects;
  if (InRingOrder()) spec.order = ReduceSpec::Order::kRing;
  if (plan_.kind == CutPlan::Kind::kFixedOrder) spec.order = ReduceSpec::Order::kFixed;
  cluster_.node(n)->reducer().Reduce(ClientOf(n), target, std::move(spec), Instant::Infinite(),
                                     [this, n](const absl::Status& s) { Reduced(n, s); });
}

void CutSimulation::Reduced(int n, const absl::Status& status) {
  ++round_.done;
  if (InRingOrder() && absl::IsFailedPrecondition(status)) return ReduceSlices(n);
  cluster_.journal().Violation("Reduce", status);
  // The result is there: before that it would be waited for also where there is no ring.
  for (int reader = 0; InRingOrder() && reader < plan_.sources; ++reader) {
    cluster_.OnNode(reader, [this, reader] { Get(reader); });
  }
}

// As a server of parameters does, which needs all of them.
void CutSimulation::ReduceSlices(int n) {
  const size_t sources = round_.sources.size();
  for (const auto& one : ps::internal::RingSlices(Floats().bytes(), sources)) {
    const int slice = static_cast<int>(round_.slices.size());
    round_.slices.push_back(ObjectId::FromName("slice", absl::StrCat(rounds_, " ", slice)));
    ReduceSpec spec;
    for (const size_t source : one.sources) spec.sources.push_back(round_.sources[source]);
    spec.elements = DType::kF32;
    spec.order = ReduceSpec::Order::kFixed;
    spec.range_offset = one.begin;
    spec.range_bytes = one.bytes;
    cluster_.node(n)->reducer().Reduce(ClientOf(n), ReduceTarget{round_.slices.back()},
                                       std::move(spec), Instant::Infinite(),
                                       [this, n, slice](const absl::Status& status) {
                                         cluster_.journal().Violation("Reduce a slice", status);
                                         GetSlice(n, slice);
                                       });
  }
}

void CutSimulation::GetSlice(int n, int slice) {
  object_store::GetEvents events;
  events.on_view = [this, n, slice, client = ClientOf(n)](const absl::StatusOr<View>& view) {
    ++round_.done;
    cluster_.journal().Violation("Get a slice", view.status());
    if (!view.ok()) return;
    ++from_slices_;
    const SliceLayout layout{Floats().bytes(), plan_.sources};
    const absl::string_view sum = round_.sum;
    CheckBytes(n, *view, sum.substr(layout.Begin(slice), layout.Size(slice)));
    cluster_.store(n)->Release(client, view->pin).IgnoreError();
  };
  const ObjectId& target = round_.slices[static_cast<size_t>(slice)];
  cluster_.store(n)->Get(ClientOf(n), {target, Instant::Infinite()}, std::move(events));
}

void CutSimulation::Get(int n) {
  object_store::GetEvents events;
  events.on_view = [this, n, client = ClientOf(n)](const absl::StatusOr<View>& view) {
    ++round_.done;
    cluster_.journal().Violation("Get", view.status());
    if (!view.ok()) return;
    CheckView(n, *view);
    cluster_.store(n)->Release(client, view->pin).IgnoreError();
  };
  cluster_.store(n)->Get(ClientOf(n), {round_.target, Instant::Infinite()}, std::move(events));
}

void CutSimulation::Broadcast(int n) {
  cluster_.store(n)->Broadcast(ClientOf(n), round_.target, {.nodes = {"*"}}, Instant::Infinite(),
                               [this](const absl::StatusOr<int>& nodes) {
                                 cluster_.journal().Violation("Broadcast", nodes.status());
                                 ++round_.done;
                               });
}

void CutSimulation::CheckView(int n, const View& view) {
  if (!Reduces()) return CheckSum(n, view, round_.sources);
  round_.sliced = view.buffer->layout().slices > 1;
  from_rings_ += round_.sliced ? 1 : 0;
  const auto wrong = [this, n](absl::string_view what) {
    cluster_.journal().Violation(absl::StrCat("the result on ", NodeName(n), " ", what));
  };
  std::vector<ObjectId> from;
  for (absl::string_view ids = view.reduced_from; ids.size() >= ObjectId::kSize;
       ids.remove_prefix(ObjectId::kSize)) {
    const auto source =
        std::find_if(round_.sources.begin(), round_.sources.end(), [ids](const ObjectId& id) {
          return ids.substr(0, ObjectId::kSize) ==
                 absl::string_view(id.binary().data(), ObjectId::kSize);
        });
    if (source == round_.sources.end()) return wrong("has an unknown source");
    from.push_back(*source);
  }
  const size_t wanted = round_.num_objects != 0 ? round_.num_objects : round_.sources.size();
  if (from.size() != wanted) return wrong(absl::StrCat("has ", from.size(), " sources"));
  const bool ordered = plan_.kind == CutPlan::Kind::kFixedOrder || InRingOrder();
  if (ordered && from != round_.sources) return wrong("is in another order");
  const std::set<ObjectId> distinct(from.begin(), from.end());
  if (distinct.size() != from.size()) return wrong("has a source twice");
  if (!InRingOrder()) return CheckSum(n, view, from);
  if (!round_.sliced) return wrong("was made by a tree");
  CheckBytes(n, view, round_.sum);
}

void CutSimulation::CheckBytes(int n, const View& view, absl::string_view bytes) {
  const absl::string_view there(view.buffer->slice(0).data(), view.buffer->layout().object_bytes);
  bytes_checked_ += there.size();
  if (there == bytes) return;
  cluster_.journal().Violation(absl::StrCat("the result on ", NodeName(n), " has other bits"));
}

void CutSimulation::CheckSum(int n, const View& view, const std::vector<ObjectId>& from) {
  const auto wrong = [this, n](absl::string_view what) {
    cluster_.journal().Violation(absl::StrCat("the object on ", NodeName(n), " ", what));
  };
  const absl::Span<char> bytes(view.buffer->slice(0).data(), view.buffer->layout().object_bytes);
  bytes_checked_ += bytes.size();
  if (bytes.size() != plan_.elements * sizeof(uint64_t)) return wrong("has another size");
  for (uint64_t i = 0; i < plan_.elements; ++i) {
    uint64_t sum = 0;
    for (const ObjectId& source : from) sum += Element(source, i);
    if (std::memcmp(bytes.data() + i * sizeof sum, &sum, sizeof sum) != 0) {
      return wrong(absl::StrCat("is wrong from element ", i, " on"));
    }
  }
}

absl::Duration CutSimulation::RunRound() {
  round_ = Round();
  const std::string name = absl::StrCat("round ", ++rounds_);
  cluster_.journal().Note("---- ", name);
  round_.target = ObjectId::FromName("target", name);
  const absl::Duration took = Reduces() ? RunReduction(name) : RunTransfer();
  cluster_.journal().Note(name, " took ", absl::FormatDuration(took));
  Forget();
  return took;
}

absl::Duration CutSimulation::RunReduction(const std::string& name) {
  for (int n = 0; n < plan_.sources; ++n) {
    round_.sources.push_back(ObjectId::FromName(name, absl::StrCat(n)));
    cluster_.OnNode(n, [this, n] { Put(n, round_.sources[static_cast<size_t>(n)]); });
  }
  Until("putting the sources", [this] { return round_.put == round_.sources.size(); });
  if (plan_.kind == CutPlan::Kind::kSomeOf) {
    round_.num_objects = static_cast<uint32_t>(plan_.sources - 1);
  }
  if (InRingOrder()) round_.sum = Floats().RingSum();
  const bool everybody = plan_.kind == CutPlan::Kind::kAllReduce;
  const Instant began = cluster_.scheduler().now();
  const int callers = everybody ? plan_.sources : 1;
  // All nodes with sources read the result, or one each of its slices: a copy that no other node
  // wants is handed on by none.
  for (int n = 0; n < plan_.sources; ++n) {
    cluster_.OnNode(n, [this, n, callers] {
      if (n < callers) Reduce(n);
      if (!InRingOrder()) Get(n);
    });
  }
  Until("the reduction", [this, callers] {
    if (plan_.relay_dies) KillRelay();
    return round_.done == static_cast<size_t>(callers + plan_.sources);
  });
  return cluster_.scheduler().now() - began;
}

// The holder is at one end of a cut, at the other one in the next round.
absl::Duration CutSimulation::RunTransfer() {
  Pair ends = pairs_.empty() ? Pair{0, 1} : pairs_.front();
  if (rounds_ % 2 == 0) std::swap(ends.first, ends.second);
  const auto [holder, reader] = ends;
  round_.sources = {round_.target};
  cluster_.OnNode(holder, [this, n = holder] { Put(n, round_.target); });
  Until("putting the object", [this] { return round_.put == 1; });
  const Instant began = cluster_.scheduler().now();
  const bool everybody = plan_.kind == CutPlan::Kind::kBroadcast;
  if (everybody) cluster_.OnNode(holder, [this, n = holder] { Broadcast(n); });
  cluster_.OnNode(reader, [this, n = reader] { Get(n); });
  Until("the transfer", [this, everybody] {
    if (plan_.relay_dies) KillRelay();
    return round_.done == (everybody ? 2 : 1);
  });
  const absl::Duration took = cluster_.scheduler().now() - began;
  Until("the end of the relays' pulls", [this] {
    const v1::DescribeObjectResponse object = cluster_.Describe(round_.target);
    return object.waiting_size() == 0 &&
           std::none_of(object.copies().begin(), object.copies().end(),
                        [](const v1::CopyDescription& copy) { return copy.pulling(); });
  });
  // One node only reaches the lonely holder: the others that were tried have no copy.
  const bool lonely = plan_.which == CutPlan::Which::kAllButOne && rounds_ % 2 == 1;
  if (lonely && !everybody && !failed() &&
      cluster_.Describe(round_.target).summary().complete_copies() > 3) {
    cluster_.journal().Violation("a node has fetched the object for nobody");
  }
  return took;
}

// Deletes the objects of the round.
void CutSimulation::Forget() {
  std::vector<ObjectId> ids = round_.sources;
  ids.push_back(round_.target);
  ids.insert(ids.end(), round_.slices.begin(), round_.slices.end());
  size_t deleted = 0;
  cluster_.OnNode(0, [this, &ids, &deleted] {
    for (const ObjectId& id : ids) {
      cluster_.store(0)->Delete(ClientOf(0), id, Instant::Infinite(),
                                [&deleted](const absl::Status&) { ++deleted; });
    }
  });
  Until("deleting", [&] { return deleted == ids.size(); });
}

void CutSimulation::CheckTime(absl::Duration took, absl::Duration bound) {
  if (took <= bound || failed()) return;
  cluster_.journal().Violation(absl::StrCat("round ", rounds_, " took ", absl::FormatDuration(took),
                                            ", and should take at most ",
                                            absl::FormatDuration(bound)));
}

// ---- faults

void CutSimulation::DrawPairs() {
  const auto any = [this] { return static_cast<int>(random_.Below(plan_.sources)); };
  if (plan_.which == CutPlan::Which::kAllButOne) {
    const int lonely = any();
    const int friendly =
        (lonely + 1 + static_cast<int>(random_.Below(plan_.sources - 1))) % plan_.sources;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (n != lonely && n != friendly) pairs_.push_back({lonely, n});
    }
    return;
  }
  while (pairs_.size() < (plan_.which == CutPlan::Which::kOnePair ? 1u : 2u)) {
    const Pair pair{any(), any()};
    const bool known =
        std::find(pairs_.begin(), pairs_.end(), pair) != pairs_.end() ||
        std::find(pairs_.begin(), pairs_.end(), Pair{pair.second, pair.first}) != pairs_.end();
    if (pair.first != pair.second && !known) pairs_.push_back(pair);
  }
}

void CutSimulation::Cut() {
  for (const auto& [a, b] : pairs_) {
    NetworkFaults& network = cluster_.network();
    const bool both = plan_.how == CutPlan::How::kSilent || plan_.how == CutPlan::How::kRefused;
    const bool silent =
        plan_.how == CutPlan::How::kSilent || plan_.how == CutPlan::How::kSilentOneWay;
    silent ? network.Partition(NodeName(a), NodeName(b)) : network.Refuse(NodeName(a), NodeName(b));
    if (!both) continue;
    silent ? network.Partition(NodeName(b), NodeName(a)) : network.Refuse(NodeName(b), NodeName(a));
  }
}

void CutSimulation::KillRelay() {
  // Not the last one.
  for (int n = plan_.sources; n < cluster_.num_nodes() && !killed_; ++n) {
    if (cluster_.node(n) == nullptr) continue;
    const bool folds = cluster_.node(n)->reducer().stats().folds != 0;
    const bool pulls = !Reduces() && cluster_.store(n)->stats().objects != 0;
    if (!folds && !pulls) continue;
    cluster_.CrashNode(n);
    killed_ = true;
  }
}

// ---- the run

SimulationResult CutSimulation::Run(absl::Duration usual) {
  Connect();
  DrawPairs();
  if (plan_.warm) RunRound();
  if (plan_.half_way) {
    cluster_.scheduler().After(usual / 2, [this] { Cut(); });
  } else {
    Cut();
  }
  for (int i = 0; i < kRoundsWithCuts && !failed(); ++i) {
    const uint64_t rings = cluster_.Counter("rings");
    // A Delete waits for the lease of a dead relay with a copy, and then the cut is forgotten.
    // The trees of the rounds before can have had no use for the pair: then no node was asked to
    // probe it.
    const bool known = i + 1 == kRoundsWithCuts && plan_.which == CutPlan::Which::kOnePair &&
                       (Reduces() || !killed_) && cluster_.Counter("probes") > 0;
    CheckTime(RunRound(), 2 * usual + (known ? kToGoAround : kToFindCuts));
    if (known && cluster_.Counter("rings") > rings && !round_.sliced) {
      cluster_.journal().Violation("a ring was begun across a known cut");
    }
  }
  if (!failed()) {
    cluster_.HealEverything();
    cluster_.scheduler().RunFor(plan_.cluster.lease + absl::Seconds(1));
    const uint64_t relayed = cluster_.Counter("folds_relayed") + cluster_.Counter("pulls_relayed");
    CheckTime(RunRound(), usual * 1.5 + kToGoAround);
    if (cluster_.Counter("folds_relayed") + cluster_.Counter("pulls_relayed") > relayed) {
      cluster_.journal().Violation("a pair that has healed is not used");
    }
  }
  if (!failed()) CleanUp();
  SimulationResult result;
  result.status = cluster_.journal().violation();
  result.tail = cluster_.journal().Tail();
  result.trace_hash = cluster_.journal().trace_hash();
  result.events = cluster_.scheduler().steps();
  result.simulated = cluster_.scheduler().now() - Instant();
  result.lives = static_cast<uint64_t>(cluster_.lives());
  result.operations = static_cast<uint64_t>(rounds_);
  result.bytes_checked = bytes_checked_;
  result.from_rings = from_rings_;
  result.from_slices = from_slices_;
  result.splits = cluster_.Counter("splits");
  return result;
}

void CutSimulation::CleanUp() {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    cluster_.OnNode(n, [this, n] {
      const auto client = clients_.find(cluster_.node(n)->key());
      if (client == clients_.end()) return;
      cluster_.node(n)->reducer().ClientClosed(client->second);
      cluster_.store(n)->CloseClient(client->second, /*clean=*/true);
    });
  }
  absl::Status last = Empty();
  const Instant end = cluster_.scheduler().now() + kHang;
  while (!last.ok() && !failed() && cluster_.scheduler().now() < end) {
    cluster_.scheduler().RunFor(absl::Milliseconds(100));
    last = Empty();
  }
  cluster_.journal().Violation("in the end", last);
}

absl::Status CutSimulation::Empty() {
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    const collectives::Reducer::Stats stats = cluster_.node(n)->reducer().stats();
    if (stats.folds != 0 || stats.scratch_bytes != 0 || stats.waiting != 0) {
      return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", stats.folds, " folds, ",
                                                 stats.scratch_bytes, " bytes of theirs, ",
                                                 stats.waiting, " calls"));
    }
  }
  return checkers_.Empty();
}

template <typename Enum>
Enum Draw(Random& random, int values) {
  return static_cast<Enum>(random.Below(static_cast<uint64_t>(values)));
}

}  // namespace

CutPlan DrawCutPlan(uint64_t seed, bool /*peace*/) {
  CutPlan plan;
  plan.seed = seed;
  Random random(seed * 127 + 11);
  plan.kind = Draw<CutPlan::Kind>(random, 4);
  plan.how = Draw<CutPlan::How>(random, 4);
  plan.which = random.Chance(0.1) ? CutPlan::Which::kAllButOne : Draw<CutPlan::Which>(random, 2);
  plan.sources = random.Chance(0.5) ? 6 : 12;
  plan.elements = random.Chance(0.5) ? 50'000 : 120'000;
  plan.half_way = random.Chance(0.5);
  plan.warm = random.Chance(0.5);
  plan.relay_dies = random.Chance(0.15) && plan.which != CutPlan::Which::kAllButOne;
  plan.cluster.seed = seed;
  plan.cluster.nodes = plan.sources + (plan.relay_dies ? 2 : 0);
  plan.cluster.shards = random.Chance(0.3) ? 2 : 1;
  plan.cluster.capacity_bytes = 64 << 20;
  plan.cluster.io_loops = random.Chance(0.5) ? 1 : 0;
  // The rounds with cuts all fall into one lease.
  plan.cluster.lease = absl::Seconds(10);
  plan.cluster.directory.first_life = true;
  plan.cluster.fabric.link.latency = absl::Microseconds(100);
  plan.cluster.fabric.interface_bytes_per_second = 1e7;
  plan.cluster.fabric.send_buffer_bytes = 64 << 10;
  plan.cluster.fabric.receive_buffer_bytes = 64 << 10;
  return plan;
}

CutPlan DrawRingCutPlan(uint64_t seed, bool peace) {
  CutPlan plan = DrawCutPlan(seed, peace);
  plan.kind = CutPlan::Kind::kRing;
  return plan;
}

CutPlan DrawTransferCutPlan(uint64_t seed, bool peace) {
  CutPlan plan = DrawCutPlan(seed, peace);
  plan.kind = Random(seed).Chance(0.5) ? CutPlan::Kind::kGet : CutPlan::Kind::kBroadcast;
  return plan;
}

CutPlan InHalves(CutPlan plan) {
  PullInHalves(plan.cluster, 2);
  plan.slices = 2;
  return plan;
}

std::string Describe(const CutPlan& plan) {
  constexpr const char* kKinds[] = {"reduce",     "allreduce", "fixed order", "all but one of",
                                    "ring order", "get",       "broadcast"};
  constexpr const char* kPairs[] = {"one pair", "two pairs", "all links of one node but one"};
  constexpr const char* kHows[] = {"silent", "silent one way", "refused", "refused one way"};
  return absl::StrCat(kKinds[static_cast<int>(plan.kind)], " ", plan.sources, " sources of ",
                      plan.elements, " elements; ", kPairs[static_cast<int>(plan.which)], " ",
                      kHows[static_cast<int>(plan.how)],
                      plan.half_way ? " from the middle" : " from the start",
                      plan.warm ? ", warm" : ", cold", plan.relay_dies ? ", a relay dies" : "",
                      "; ", plan.cluster.shards, " shards, ", plan.cluster.io_loops, " I/O loops");
}

SimulationResult RunCutSimulation(const CutPlan& plan) {
  const absl::Duration usual = CutSimulation(plan).UsualTime();
  return CutSimulation(plan).Run(usual);
}

}  // namespace phalanx::sim
