// Simulated clusters whose clients put objects, have them broadcast to some nodes or to all, also
// those that come later, stop that, and delete; while nodes crash and come back, and shards begin
// anew.
//
//   storm     clients act, things break     always: who has a copy that was told to be sticky does
//                                           not forget it; who was answered was answered the truth
//   calm      faults stop                   within a bound: each node has what is sticky for it,
//                                           shards and nodes agree on what is, nobody waits
//   farewell  everything is deleted         within a bound: nothing is left
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_BROADCAST_SIMULATION_H_
#define PHALANX_SIM_BROADCAST_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/simulation.h"

namespace phalanx::sim {

struct BroadcastPlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not run
  absl::Duration mean_pause = absl::Milliseconds(60);
  uint64_t max_bytes = 200'000;
  int objects = 8;  // that are acted on at a time
};

// `peace`: without faults.
BroadcastPlan DrawBroadcastPlan(uint64_t seed, bool peace = false);
std::string Describe(const BroadcastPlan& plan);

// `operations` counts broadcasts that were answered well; `bytes_checked` how often a node was
// found to have, or in the end was awaited to have, what is sticky for it.
SimulationResult RunBroadcastSimulation(const BroadcastPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_BROADCAST_SIMULATION_H_
