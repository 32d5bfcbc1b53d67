// Runs of clients that use all operations on objects (workload.h), with faults. See
// docs/simulation.md.
//
//   storm     clients act, faults happen         always: Checkers::CheckCopies
//   calm      faults stop, writers finish        within a bound: Checkers::Settled
//   probe     every node gets every object       every object with a complete copy is got
//   farewell  everything is released, deleted    within a bound: Checkers::Empty
//   silence   only heartbeats                    idle connections close
//
// A run is a pure function of its plan: the same seed gives the same trace. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_SIMULATION_H_

#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

// `operations` counts the requests of clients; `bytes_checked` counts bytes of copies.
SimulationResult RunSimulation(const SimulationPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_SIMULATION_H_
