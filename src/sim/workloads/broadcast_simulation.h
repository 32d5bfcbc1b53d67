// Simulated clusters whose clients put objects, broadcast them to some or all nodes (including
// nodes that join later), stop broadcasts, and delete objects, while nodes crash and return and
// shards restart.
//
//   storm     clients act, faults happen    always: a node keeps the sticky mark of its copy; every
//                                           answer to a client is true
//   calm      faults stop                   within a bound: each node has the objects that are
//                                           sticky for it, and no request waits
//   farewell  everything is deleted         within a bound: nothing is left
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_BROADCAST_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_BROADCAST_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct BroadcastPlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not used
  absl::Duration mean_pause = absl::Milliseconds(60);
  uint64_t max_bytes = 200'000;
  int objects = 8;  // in use at a time
  int slices = 1;   // of each object
};

// `peace`: the plan has no faults.
BroadcastPlan DrawBroadcastPlan(uint64_t seed, bool peace = false);
BroadcastPlan InHalves(BroadcastPlan plan);
std::string Describe(const BroadcastPlan& plan);

// `operations` counts successful broadcasts. `bytes_checked` counts the checks that found a sticky
// object on a node of its broadcast.
SimulationResult RunBroadcastSimulation(const BroadcastPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_BROADCAST_SIMULATION_H_
