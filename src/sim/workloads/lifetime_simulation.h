// Simulated clusters whose clients hold objects, release them, pass references on in messages, put
// objects that refer to others, read those objects, and die, while faults happen.
//
//   storm     clients act, faults happen    always: a safe object is not freed
//   calm      faults stop                   within a bound: unreferenced objects are freed, and
//                                           shards count the holders of the others
//   farewell  clients release, or die       within a bound: nothing is left
//
// An object is *safe* if at every sample since its put there was a hold that must count: a client
// on a node that has not been away from the object's shard for a lease since; a reference in
// transit, within its time, from such a node; or such a node's copy of an object that refers to
// this one. A safe object must not be freed.
//
// Some objects have a time to live. Such an object is safe only until so much time has passed since
// its Put began, which is before the shard adopts it; and within a bound after that time it exists
// nowhere, and no Get that begins then returns it, whatever restarted meanwhile.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_LIFETIME_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_LIFETIME_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct LifetimePlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not used
  absl::Duration mean_pause = absl::Milliseconds(30);
  uint64_t max_bytes = 100'000;
};

// `peace`: the plan has no faults.
LifetimePlan DrawLifetimePlan(uint64_t seed, bool peace = false);
std::string Describe(const LifetimePlan& plan);

// `operations` counts the objects that were put. `bytes_checked` counts the checks that found a
// safe object.
SimulationResult RunLifetimeSimulation(const LifetimePlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_LIFETIME_SIMULATION_H_
