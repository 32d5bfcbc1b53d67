// The plans of runs of reductions, drawn from a seed and a focus.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/sim/workloads/reduce_simulation.h"

namespace phalanx::sim {

ReducePlanOfRun DrawReducePlan(uint64_t seed, bool peace) {
  ReducePlanOfRun plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 113 + 5);
  plan.world.cluster.capacity_bytes = 64 << 20;
  plan.world.cluster.allocation_failures = 0;
  plan.sources = static_cast<int>(2 + random.Below(kMaxSimulatedSources - 1));
  // From sizes that travel inline to sizes that form a chain.
  constexpr uint64_t kElements[] = {1, 100, 5000, 20'000, 40'000};
  plan.elements = kElements[random.Below(5)];
  plan.mean_pause = absl::Milliseconds(30 + random.Below(100));
  // Memory failures are mostly left to the store's own simulation.
  if (!random.Chance(0.2)) plan.world.faults.weights[static_cast<size_t>(Fault::kMemory)] = 0;
  // All reductions of a run can be pending at the end: links that carry them for minutes would
  // starve the sessions on them.
  SimFabric::Options& fabric = plan.world.cluster.fabric;
  if (fabric.link.bytes_per_second > 0) {
    fabric.link.bytes_per_second = std::max(fabric.link.bytes_per_second, 4e7);
  }
  if (fabric.interface_bytes_per_second > 0) {
    fabric.interface_bytes_per_second = std::max(fabric.interface_bytes_per_second, 4e7);
  }
  // Drawn last, so that earlier seeds keep their runs.
  plan.everybody = random.Chance(0.25);
  if (!plan.everybody) return plan;
  // Conditions for rings, after the first lease; sometimes for trees.
  plan.world.cluster.zones = 0;
  plan.world.storm += plan.world.cluster.lease;
  plan.sources = std::min(plan.world.cluster.nodes, static_cast<int>(3 + random.Below(3)));
  if (random.Chance(0.8)) plan.elements = 60'000;
  if (random.Chance(0.5)) plan.rings = 0.5;
  return plan;
}

ReducePlanOfRun FocusOnAdditions(ReducePlanOfRun plan) {
  plan.everybody = false;
  plan.open = 0.8;
  plan.closed_soon = true;
  // Faults happen in each of these worlds, even if it was drawn without faults.
  plan.world.cluster.peaceful = false;
  FaultOptions& faults = plan.world.faults;
  faults.weights.fill(0);
  faults.weights[static_cast<size_t>(Fault::kPartitionShard)] = 1;
  faults.weights[static_cast<size_t>(Fault::kHalfOpenShard)] = 1;
  faults.mean_pause = absl::Milliseconds(50);
  return plan;
}

ReducePlanOfRun FocusOnClients(ReducePlanOfRun plan) {
  plan = FocusOnAdditions(plan);
  plan.closed_soon = false;
  plan.deaths = 0.1;
  return plan;
}

ReducePlanOfRun FocusOnMoves(ReducePlanOfRun plan) {
  plan.everybody = false;
  plan.copies = 0.6;
  plan.elements = 60'000;
  plan.world.cluster.fabric.interface_bytes_per_second = 3e6;
  plan.world.cluster.peaceful = false;
  FaultOptions& faults = plan.world.faults;
  faults.weights.fill(0);
  faults.weights[static_cast<size_t>(Fault::kCrashNode)] = 4;
  faults.weights[static_cast<size_t>(Fault::kResetNodes)] = 1;
  faults.mean_pause = absl::Milliseconds(80);
  return plan;
}

std::string Describe(const ReducePlanOfRun& plan) {
  return absl::StrCat(plan.sources, " sources of ", plan.elements, " elements",
                      plan.everybody ? ", wanted by all" : "",
                      plan.rings > 0 ? ", some in the order of a ring; " : "; ",
                      Describe(plan.world));
}

}  // namespace phalanx::sim
