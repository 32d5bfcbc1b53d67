// One simulated run: a cluster, a workload and faults drawn from a seed; then peace, and everything
// has to come out right. See docs/simulation.md.
//
//   storm    clients act, things break           always: Checkers::Sample
//   calm     faults stop, writers finish         within a bound of simulated time:
//   Checkers::Settled probe    every object is asked for everywhere: what has a complete copy is
//   got farewell everything is let go and deleted    within a bound: Checkers::Empty silence
//   nothing happens but heartbeats; idle connections close
//
// A run is a pure function of its plan: the same seed gives the same trace. Testonly.
#ifndef PHALANX_SIM_SIMULATION_H_
#define PHALANX_SIM_SIMULATION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/sim/faults.h"
#include "src/sim/sim_cluster.h"
#include "src/sim/workload.h"

namespace phalanx::sim {

// Where a run leans to. kAnything leaves that to the seed.
enum class Focus {
  kAnything,
  kPeace,     // no faults at all: the checkers may be strict
  kDeletes,   // few ids, many deletes, shards that restart
  kMemory,    // nodes too small for what is asked of them
  kStreams,   // slow writers and those who read while they write, relays that go away
  kLinks,     // large objects in slices, connections that break or flip bits, checksums on
  kSessions,  // streams to the shards that break, are cut, go silent
  kRivals,    // several writers at every object
};
inline constexpr int kFocuses = 8;
absl::string_view FocusName(Focus focus);

struct SimulationPlan {
  uint64_t seed = 1;
  Focus focus = Focus::kAnything;
  ClusterOptions cluster;
  WorkloadOptions workload;
  FaultOptions faults;
  absl::Duration storm = absl::Seconds(4);
  // Checkers look after every so many events.
  int sample_every = 16;
};

// Draws a plan. `focus` kAnything: that is drawn too.
SimulationPlan DrawPlan(uint64_t seed, Focus focus = Focus::kAnything);
std::string Describe(const SimulationPlan& plan);

struct SimulationResult {
  // OK, or Internal with the simulated time and what did not hold.
  absl::Status status;
  // The last things that happened, for whoever looks into a failure.
  std::string tail;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  absl::Duration simulated;
  uint64_t operations = 0;
  uint64_t lives = 0;
  uint64_t bytes_checked = 0;
  // Of reductions: results seen that a ring has made.
  uint64_t from_rings = 0;
};

// What every simulation tells of a cluster that has run.
SimulationResult ResultOf(SimCluster& cluster);

SimulationResult RunSimulation(const SimulationPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SIMULATION_H_
