// Simulated clusters whose clients put objects under a few names, delete them, put others under the
// same names and read them everywhere, while nodes are cut off from the directory, stop and die,
// and shards restart.
//
// The oracle: a Get that begins after a Delete was acknowledged, on any node, returns no generation
// that this Delete named. It holds also for a Get that a stopped node reads when it continues, and
// across a restart of the shard, as long as one node that knew of the deletion was in touch with
// the shard while it learned.
//
// A Delete without trouble between its node and the shard is acknowledged within a bound, whatever
// holders do.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_DELETE_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_DELETE_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct DeletePlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not used
  absl::Duration mean_pause = absl::Milliseconds(20);
  int names = 4;
  uint64_t max_bytes = 100'000;
};

// `peace`: the plan has no faults.
DeletePlan DrawDeletePlan(uint64_t seed, bool peace = false);
std::string Describe(const DeletePlan& plan);

// `operations` counts the acknowledged Deletes. `bytes_checked` counts the Gets that began after an
// acknowledged Delete of their object and were answered.
SimulationResult RunDeleteSimulation(const DeletePlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_DELETE_SIMULATION_H_
