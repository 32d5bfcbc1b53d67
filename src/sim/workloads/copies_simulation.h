// Simulated clusters of several nodes per host, whose clients put objects with a number of copies,
// ask for other numbers, and delete objects, while nodes crash and return and shards restart.
//
//   storm     clients act, faults happen    always: every answer to a client is true
//   calm      faults stop                   within a bound: of each object with a wanted number of
//                                           copies, so many different hosts have one primary copy
//                                           each, or all hosts if there are fewer; the shard wants
//                                           what the nodes with copies know; no request waits
//   farewell  everything is deleted         within a bound: nothing is left
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_COPIES_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_COPIES_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct CopiesPlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not used
  absl::Duration mean_pause = absl::Milliseconds(60);
  uint64_t max_bytes = 200'000;
  int objects = 8;  // in use at a time
};

// `peace`: the plan has no faults.
CopiesPlan DrawCopiesPlan(uint64_t seed, bool peace = false);
std::string Describe(const CopiesPlan& plan);

// `operations` counts requests for copies that were answered with success, `bytes_checked` the
// objects with a wanted number that were found as they should be.
SimulationResult RunCopiesSimulation(const CopiesPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_COPIES_SIMULATION_H_
