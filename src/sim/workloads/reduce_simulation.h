// Reductions in a simulated cluster: clients put sources, reduce some of them, join reductions,
// read results during and after the fold, add to open reductions, and delete objects while faults
// happen. Then the faults stop and every reduction must end correctly.
//
//   storm     clients act, faults happen
//   calm      faults stop; missing sources are put: every reduction ends within a bound
//   probe     every promised result is fetched on every node
//   farewell  everything is deleted: no fold, no memory, no state is left
//
// The elements of a source are 64-bit numbers that differ for each attempt to put it, so a sum
// shows which attempts are in it. The invariants:
//  1. Every element of a result is the sum over the same attempts: one for each source in
//     `reduced_from`, each source once, only sources of the request, and as many as it requested.
//     The metadata is that of the first source in the list that has some. If the request names
//     metadata, each of the sources has it.
//  2. All readers of one generation of a target get the same bytes. A target has two generations
//     only if nodes died or were cut off.
//  3. A call ends, and an error has a cause in the run. An addition that is in a result was not
//     refused. A request for another operation does not get this result.
//  4. No node has all bytes of a result before its shard has committed it.
//  5. An open reduction ends when no client is left that has requested it or added to it, and not
//     while one that requested it waits.
//  6. Every core's own invariants.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_REDUCE_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_REDUCE_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

// A result shows which attempt at each source it has.
inline constexpr int kMaxSimulatedSources = 7;

struct ReducePlanOfRun {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not run
  int sources = 6;
  // The number of elements of each source.
  uint64_t elements = 1000;
  absl::Duration mean_pause = absl::Milliseconds(30);
  // Some results are requested with all nodes as readers.
  bool everybody = false;
  // The share of those that are in the order of a ring: they fail if there is none.
  double rings = 0;
  // The share of open reductions. A client closes an open one soon, or at random, or at the end.
  double open = 0.15;
  bool closed_soon = false;
  // The share of acts in which a client dies.
  double deaths = 0;
  // The share of acts in which a node fetches a source: its slot can move to that copy.
  double copies = 0;
  // All requests name the metadata that sources must have, and some attempts have none.
  bool alike = false;
};

// `peace`: the plan has no faults.
ReducePlanOfRun DrawReducePlan(uint64_t seed, bool peace = false);
// Nodes lose contact with shards, which stay up, while they add to reductions that end soon.
ReducePlanOfRun FocusOnAdditions(ReducePlanOfRun plan);
// Clients die while nodes lose contact with shards, and leave most reductions open.
ReducePlanOfRun FocusOnClients(ReducePlanOfRun plan);
// Nodes die while large sources with several copies are reduced over slow links.
ReducePlanOfRun FocusOnMoves(ReducePlanOfRun plan);
std::string Describe(const ReducePlanOfRun& plan);

// `operations` counts reductions; `bytes_checked` counts bytes of results.
SimulationResult RunReduceSimulation(const ReducePlanOfRun& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_REDUCE_SIMULATION_H_
