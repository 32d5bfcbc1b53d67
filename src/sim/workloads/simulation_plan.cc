#include "src/sim/workloads/simulation_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace phalanx::sim {
namespace {

double& Weight(WorkloadOptions& options, Action action) {
  return options.weights[static_cast<size_t>(action)];
}
double& Weight(FaultOptions& options, Fault fault) {
  return options.weights[static_cast<size_t>(fault)];
}

int Between(Random& random, int least, int most) {
  return least + static_cast<int>(random.Below(static_cast<uint64_t>(most - least + 1)));
}

// Returns a value between the two, uniform on a logarithmic scale.
double BetweenLog(Random& random, double least, double most) {
  return least * std::pow(most / least, random.Unit());
}

void DrawCluster(Random& random, ClusterOptions& cluster) {
  cluster.nodes = Between(random, 2, 5);
  cluster.shards = random.Chance(0.6) ? 1 : Between(random, 2, 3);
  // From a few objects to most of them, so that some runs evict.
  cluster.capacity_bytes = static_cast<uint64_t>(BetweenLog(random, 1.5e6, 12e6));
  cluster.lease = absl::Milliseconds(BetweenLog(random, 400, 2000));
  cluster.io_loops = Between(random, 0, 2);
  cluster.zones = random.Chance(0.7) ? 0 : 2;
  cluster.secret = random.Chance(0.2) ? "a secret" : "";
  // A small cache evicts, so that small objects travel by pulls too.
  if (random.Chance(0.3)) cluster.directory.inline_cache_bytes = random.Below(100'000);
  cluster.data_plane.segment_bytes = static_cast<size_t>(BetweenLog(random, 4096, 65536));
  cluster.data_plane.checksums = random.Chance(0.5);
  // Short, because the silence at the end waits for it.
  cluster.data_plane.idle_timeout = absl::Seconds(5);
  // A low limit makes receivers queue at a sender.
  cluster.data_plane.max_pushes = random.Chance(0.2) ? 6 : 64;
  cluster.scheduler.shuffle_ties = random.Chance(0.5);
  if (random.Chance(0.5))
    cluster.scheduler.max_turn_delay = absl::Microseconds(200) * random.Unit();
  if (random.Chance(0.5)) cluster.allocation_delay = absl::Milliseconds(20) * random.Unit();
  SimFabric::Options& fabric = cluster.fabric;
  fabric.link.latency = absl::Microseconds(BetweenLog(random, 20, 5000));
  fabric.link.jitter = fabric.link.latency * random.Unit();
  fabric.link.bytes_per_second = random.Chance(0.3) ? 0 : BetweenLog(random, 1e6, 1e9);
  if (random.Chance(0.5)) fabric.interface_bytes_per_second = BetweenLog(random, 2e6, 1e9);
  fabric.segment_bytes = static_cast<size_t>(BetweenLog(random, 4096, 65536));
  fabric.send_buffer_bytes = fabric.receive_buffer_bytes =
      static_cast<size_t>(BetweenLog(random, 16384, 262144));
  fabric.short_io = random.Chance(0.2) ? 0.3 * random.Unit() : 0;
  fabric.trickle = random.Chance(0.2) ? 0.02 * random.Unit() : 0;
}

void DrawWorkload(Random& random, WorkloadOptions& workload) {
  workload.objects = Between(random, 2, 8);
  workload.mean_pause = absl::Milliseconds(BetweenLog(random, 15, 120));
  for (double& weight : workload.weights) weight *= 2 * random.Unit();
  workload.max_bytes = static_cast<uint64_t>(BetweenLog(random, 70'000, 600'000));
  workload.large = random.Unit();
  workload.max_slices = random.Chance(0.3) ? Between(random, 2, 8) : 1;
  workload.wait_for_adoption = random.Unit();
  // Requests without a deadline must be answered in the calm.
  workload.patient = random.Unit();
  workload.max_write = static_cast<uint64_t>(BetweenLog(random, 10'000, 500'000));
  workload.reuse_ids = random.Unit();
  workload.same_shape = random.Unit();
}

void DrawFaults(Random& random, FaultOptions& faults) {
  faults.mean_pause = absl::Milliseconds(BetweenLog(random, 50, 1500));
  faults.mean_length = absl::Milliseconds(BetweenLog(random, 20, 3000));
  // A swarm: most kinds of faults are absent from a run.
  for (double& weight : faults.weights) weight = random.Chance(0.35) ? random.Unit() : 0;
}

void Quiet(FaultOptions& faults) { faults.weights.fill(0); }

void FocusOnPeace(Random& random, SimulationPlan& plan) {
  ClusterOptions& cluster = plan.cluster;
  FaultOptions& faults = plan.faults;
  // No fault is ever drawn.
  faults.mean_pause = absl::InfiniteDuration();
  cluster.peaceful = true;
  // Fast enough that a segment does not wait long behind all the others.
  cluster.fabric.link.bytes_per_second = BetweenLog(random, 2e7, 1e9);
  cluster.fabric.interface_bytes_per_second = BetweenLog(random, 5e7, 1e9);
}

void FocusOnDeletes(Random& random, SimulationPlan& plan) {
  WorkloadOptions& workload = plan.workload;
  FaultOptions& faults = plan.faults;
  // Few ids, so that requests meet.
  workload.objects = Between(random, 1, 3);
  Weight(workload, Action::kDelete) = 4;
  Weight(workload, Action::kGet) = 8;
  Quiet(faults);
  Weight(faults, Fault::kCrashShard) = 1;
  Weight(faults, Fault::kPartitionShard) = 1;
  Weight(faults, Fault::kStallNode) = random.Unit();
}

void FocusOnMemory(Random& random, SimulationPlan& plan) {
  ClusterOptions& cluster = plan.cluster;
  WorkloadOptions& workload = plan.workload;
  FaultOptions& faults = plan.faults;
  // Many Gets of the same objects and few puts, while the nodes of the writers die.
  cluster.capacity_bytes = 500'000 + random.Below(400'000);
  // Short, so that a dead node is noticed within the storm.
  cluster.lease = absl::Milliseconds(400);
  workload.objects = Between(random, 5, 10);
  workload.mean_pause = absl::Milliseconds(15);
  workload.large = 0.9;
  workload.max_bytes = 250'000;
  workload.weights.fill(0.05);
  Weight(workload, Action::kPut) = 2;
  Weight(workload, Action::kGet) = 10;
  Weight(workload, Action::kRelease) = 16;
  Quiet(faults);
  faults.mean_pause = absl::Milliseconds(BetweenLog(random, 300, 1500));
  Weight(faults, Fault::kCrashNode) = 1;
  Weight(faults, Fault::kMemory) = 0.2 * random.Unit();
  Weight(faults, Fault::kDrain) = 0.2 * random.Unit();
}

void FocusOnStreams(Random&, SimulationPlan& plan) {
  WorkloadOptions& workload = plan.workload;
  FaultOptions& faults = plan.faults;
  Weight(workload, Action::kStream) = 8;
  Weight(workload, Action::kCreate) = 5;
  Weight(workload, Action::kWrite) = 12;
  workload.large = 0.9;
  Weight(faults, Fault::kCrashNode) = 1;
  Weight(faults, Fault::kStallNode) = 1;
  Weight(faults, Fault::kHalfOpenNodes) = 1;
}

void FocusOnLinks(Random& random, SimulationPlan& plan) {
  ClusterOptions& cluster = plan.cluster;
  WorkloadOptions& workload = plan.workload;
  FaultOptions& faults = plan.faults;
  workload.max_slices = 8;
  workload.large = 0.9;
  // Corruption is only a fault if it is detected.
  cluster.data_plane.checksums = true;
  cluster.fabric.link.bytes_per_second = BetweenLog(random, 1e6, 2e7);
  Quiet(faults);
  Weight(faults, Fault::kResetNodes) = 2;
  Weight(faults, Fault::kSeverNodes) = 1;
  Weight(faults, Fault::kHalfOpenNodes) = 0.5;
  Weight(faults, Fault::kPartitionNodes) = 0.5;
  Weight(faults, Fault::kSlowLink) = 0.5;
  Weight(faults, Fault::kCorruption) = 1;
}

void FocusOnSessions(Random&, SimulationPlan& plan) {
  FaultOptions& faults = plan.faults;
  Quiet(faults);
  Weight(faults, Fault::kResetShard) = 2;
  Weight(faults, Fault::kSeverShard) = 2;
  Weight(faults, Fault::kHalfOpenShard) = 1;
  Weight(faults, Fault::kPartitionShard) = 1;
  Weight(faults, Fault::kStallShard) = 0.5;
}

void FocusOnRivals(Random& random, SimulationPlan& plan) {
  ClusterOptions& cluster = plan.cluster;
  WorkloadOptions& workload = plan.workload;
  FaultOptions& faults = plan.faults;
  workload.objects = Between(random, 1, 3);
  workload.max_write = 50'000;
  workload.same_shape = 1;
  cluster.fabric.link.latency = absl::Milliseconds(BetweenLog(random, 1, 20));
  Weight(workload, Action::kCreate) = 6;
  Weight(workload, Action::kSeal) = 3;
  Weight(workload, Action::kAbort) = 3;
  Weight(workload, Action::kStream) = 6;
  Weight(workload, Action::kDie) = 1;
  Weight(workload, Action::kDelete) = 0.5;
  Weight(faults, Fault::kCrashShard) = 0.5;
  Weight(faults, Fault::kCrashNode) = 0.5;
}

void ApplyFocus(Focus focus, Random& random, SimulationPlan& plan) {
  switch (focus) {
    case Focus::kAnything:
      return;
    case Focus::kPeace:
      return FocusOnPeace(random, plan);
    case Focus::kDeletes:
      return FocusOnDeletes(random, plan);
    case Focus::kMemory:
      return FocusOnMemory(random, plan);
    case Focus::kStreams:
      return FocusOnStreams(random, plan);
    case Focus::kLinks:
      return FocusOnLinks(random, plan);
    case Focus::kSessions:
      return FocusOnSessions(random, plan);
    case Focus::kRivals:
      return FocusOnRivals(random, plan);
  }
}

}  // namespace

absl::string_view FocusName(Focus focus) {
  static constexpr absl::string_view kNames[] = {"anything", "peace", "deletes",  "memory",
                                                 "streams",  "links", "sessions", "rivals"};
  return kNames[static_cast<size_t>(focus)];
}

SimulationPlan DrawPlan(uint64_t seed, Focus focus) {
  Random random(seed);
  SimulationPlan plan;
  plan.seed = seed;
  plan.cluster.seed = seed;
  // Drawn even if the caller gives the focus, so that the other draws stay the same.
  const Focus drawn = static_cast<Focus>(random.Below(kFocuses));
  plan.focus = focus == Focus::kAnything ? drawn : focus;
  DrawCluster(random, plan.cluster);
  DrawWorkload(random, plan.workload);
  DrawFaults(random, plan.faults);
  ApplyFocus(plan.focus, random, plan);
  plan.storm = absl::Seconds(1 + 4 * random.Unit());
  plan.sample_every = 1 << random.Below(7);
  // Drawn last, so that earlier draws of a seed stay the same.
  directory::DirectoryOptions& shard = plan.cluster.directory;
  if (random.Chance(0.3)) shard.inline_burst_bytes = random.Below(20'000);
  shard.inline_always_bytes = std::min(shard.inline_always_bytes, shard.inline_burst_bytes);
  if (random.Chance(0.2)) shard.inline_under_way_bytes = random.Below(50'000);
  if (random.Chance(0.5)) plan.cluster.registered_per_turn = 1 + random.Below(4);
  if (random.Chance(0.5)) shard.least_near_bytes = 1;
  shard.first_life = random.Chance(0.5);
  return plan;
}

void PullInHalves(ClusterOptions& cluster, size_t least) {
  cluster.directory.least_in_halves = least;
  cluster.directory.worth_of_halves = std::numeric_limits<double>::infinity();
}

SimulationPlan InHalves(SimulationPlan plan) {
  PullInHalves(plan.cluster, 1);
  // All Gets name a near node, which the planner follows in one tree only.
  plan.cluster.directory.least_near_bytes = directory::DirectoryOptions().least_near_bytes;
  plan.workload.max_slices = 4;
  plan.workload.large = std::max(plan.workload.large, 0.7);
  Weight(plan.workload, Action::kGet) += 2;
  return plan;
}

std::string Describe(const SimulationPlan& plan) {
  return absl::StrCat("seed ", plan.seed, ", ", FocusName(plan.focus), ": ", plan.cluster.nodes,
                      " nodes of ", plan.cluster.capacity_bytes, " bytes, ", plan.cluster.shards,
                      " shards, ", plan.workload.objects, " objects, storm of ",
                      absl::FormatDuration(plan.storm));
}

}  // namespace phalanx::sim
