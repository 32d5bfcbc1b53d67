// Reductions in the order of a ring (ReduceSpec::Order::kRing) in a simulated cluster, as servers
// of parameters make them: each source is mostly at a node of its own, some come late, callers
// join, and nodes read the result before it is there. A caller whose reduction fails because there
// is no ring takes the result back, for those that wait for it, and has each slice summed by a
// reduction of its own, in the order that its place in the ring gives.
//
//   storm     clients act, faults happen
//   calm      faults stop; missing sources are put: every reduction ends within a bound
//   probe     every promised result is fetched on every node
//   farewell  everything is deleted: no fold, no memory, no state is left
//
// The elements are floats whose sum in another order has other bits. The invariants:
//  1. A result has the bits that the definition of the order gives, whether a ring has made it or
//     the reductions of its slices. It lists its sources in their order. A result of the order of a
//     ring is in one slice for each source: no tree has made it.
//  2. A call ends, and an error has a cause in the run. Without faults a ring is made if each
//  source
//     is at a node of its own and its slices are not too small.
//  3. What was taken back is waited for by none.
//  4. A target has two generations only if nodes died or were cut off, or it was deleted.
//  5. Every core's own invariants.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_RING_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_RING_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct RingPlanOfRun {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not run
  int sources = 4;
  // Floats of each source.
  uint64_t elements = 60'000;
  absl::Duration mean_pause = absl::Milliseconds(30);
  // The share of reductions two of whose sources are put at one node.
  double shared = 0.1;
  // The share of sources that come late.
  double late = 0.3;
  // The share of acts in which a node fetches a source: it has a copy at two nodes then.
  double copies = 0;
  // The number of reductions whose objects are there at a time.
  size_t kept = 8;

  // Nodes can be too small for what is there: calls can fail for want of memory.
  bool tight() const { return world.cluster.capacity_bytes < (uint64_t{32} << 20); }
};

// `peace`: the plan has no faults.
RingPlanOfRun DrawRingPlan(uint64_t seed, bool peace = false);
std::string Describe(const RingPlanOfRun& plan);

// `operations` counts reductions, `from_rings` results that were read and that a ring had made,
// `from_slices` results of slices that were read, and `bytes_checked` bytes of both.
SimulationResult RunRingSimulation(const RingPlanOfRun& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_RING_SIMULATION_H_
