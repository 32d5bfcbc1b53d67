// Reductions in a simulated cluster: clients put sources, reduce some of them, join, read results
// while and after they are computed, add to open reductions, delete; things break; then peace, and
// everything has to come out right.
//
//   storm     clients act, things break
//   calm      faults stop; what is missing is put: every reduction ends within a bound
//   probe     every result that was promised is got everywhere
//   farewell  everything is deleted: no fold, no memory, no state is left
//
// A source's elements are 64-bit numbers, another for each attempt to put it, so that a sum tells
// which attempts are in it. What must hold, always:
//  1. Every element of a result is the sum over the same attempts: one of each source that
//     `reduced_from` names, each of them once, as many as were asked for, of those asked for; its
//     metadata is that of the first of these in the list that has any.
//  2. All who got the same generation of a target got the same bytes; two generations of one target
//     are seen only where nodes died or were cut off.
//  3. A call ends, and with an error that something explains. No addition is refused that is in a
//     result; and who asks for another operation than that of a result is not given it.
//  4. Nobody has all bytes of a result before its shard has committed it.
//  5. Every core's own invariants.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_REDUCE_SIMULATION_H_
#define PHALANX_SIM_REDUCE_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/simulation.h"

namespace phalanx::sim {

struct ReducePlanOfRun {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not run
  int sources = 6;
  // Elements of each source.
  uint64_t elements = 1000;
  absl::Duration mean_pause = absl::Milliseconds(30);
  // Of some of the results all nodes are said to want them.
  bool everybody = false;
  // So many of the reductions are open; closed by somebody soon, or by chance and in the end.
  double open = 0.15;
  bool closed_soon = false;
};

// `peace`: without faults.
ReducePlanOfRun DrawReducePlan(uint64_t seed, bool peace = false);
// Nodes lose touch with shards, which stay, while they add to reductions that end soon.
ReducePlanOfRun LeanToAdditions(ReducePlanOfRun plan);
std::string Describe(const ReducePlanOfRun& plan);

// `operations` counts reductions, `bytes_checked` those of results.
SimulationResult RunReduceSimulation(const ReducePlanOfRun& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_REDUCE_SIMULATION_H_
