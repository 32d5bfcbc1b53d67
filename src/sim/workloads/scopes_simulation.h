// Simulated clusters whose clients put objects into scopes with growing numbers, get them, end the
// scopes, and put into ended ones, while nodes crash and return, links break and shards restart.
//
//   storm     clients act, faults happen    always: a node that was in touch when a scope's end was
//                                           acknowledged has no copy of the scope; no Get there
//                                           returns one, or ends with an end that no client asked
//                                           for; the shards have no tombstones
//   calm      faults stop                   within a bound: no copy is left of a scope that a
//   living
//                                           node knows to have ended; no request waits
//   farewell  every scope ends              within a bound: nothing is left
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_SCOPES_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_SCOPES_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct ScopesPlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not used
  absl::Duration mean_pause = absl::Milliseconds(20);
  uint64_t max_bytes = 200'000;
  int scopes = 2;  // names
};

// `peace`: the plan has no faults.
ScopesPlan DrawScopesPlan(uint64_t seed, bool peace = false);
std::string Describe(const ScopesPlan& plan);

// `operations` counts acknowledged ends of scopes, `bytes_checked` the nodes that were found
// without copies of an ended scope.
SimulationResult RunScopesSimulation(const ScopesPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_SCOPES_SIMULATION_H_
