// Simulated clusters whose clients hold objects, let go of them, pass references on in messages,
// put objects that refer to others, read those, and die; while things break.
//
//   storm     clients act, things break     always: what is held for sure is not freed
//   calm      faults stop                   within a bound: what nobody holds is freed, and each
//                                           shard counts the nodes that hold what is left
//   farewell  clients let go, or die        within a bound: nothing is left
//
// What is held for sure: an object is *safe* as long as at every sample since it was put somebody
// held it whose hold must count: a client on a node that has not been away from the object's shard
// for a lease since; a reference on its way, within its time, from such a node; or such a node's
// copy of an object that refers to it. One that is safe must not be freed.
//
// A run is a pure function of its seed. Testonly.
#ifndef PHALANX_SIM_LIFETIME_SIMULATION_H_
#define PHALANX_SIM_LIFETIME_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/simulation.h"

namespace phalanx::sim {

struct LifetimePlan {
  uint64_t seed = 1;
  SimulationPlan world;  // cluster and faults; its workload is not run
  absl::Duration mean_pause = absl::Milliseconds(30);
  uint64_t max_bytes = 100'000;
};

// `peace`: without faults.
LifetimePlan DrawLifetimePlan(uint64_t seed, bool peace = false);
std::string Describe(const LifetimePlan& plan);

// `operations` counts objects put; `bytes_checked` how often one that is held for sure was found to
// be there.
SimulationResult RunLifetimeSimulation(const LifetimePlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_LIFETIME_SIMULATION_H_
