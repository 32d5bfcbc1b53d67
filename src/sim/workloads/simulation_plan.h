// The plan of a simulated run, drawn from its seed, and the result of the run. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_SIMULATION_PLAN_H_
#define PHALANX_SIM_WORKLOADS_SIMULATION_PLAN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/sim/cluster/sim_cluster.h"
#include "src/sim/workloads/faults.h"
#include "src/sim/workloads/workload.h"

namespace phalanx::sim {

// The emphasis of a run. kAnything: the seed draws it.
enum class Focus {
  kAnything,
  kPeace,     // no faults, so the checkers are strict
  kDeletes,   // few ids, many deletes, shards that restart
  kMemory,    // nodes too small for the workload
  kStreams,   // slow writers with streaming readers, relays that die
  kLinks,     // large objects in slices, connections that break or flip bits, checksums on
  kSessions,  // streams to the shards that break, are cut, or stop silently
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
  // The checkers run after every so many events.
  int sample_every = 16;
};

// Draws a plan. If `focus` is kAnything, it is drawn too.
SimulationPlan DrawPlan(uint64_t seed, Focus focus = Focus::kAnything);
// So many nodes that pull an object of several slices, or more, pull it in two trees.
void PullInHalves(ClusterOptions& cluster, size_t least);
// The same cluster, doing so from the first node on, with more objects of several slices.
SimulationPlan InHalves(SimulationPlan plan);
std::string Describe(const SimulationPlan& plan);

struct SimulationResult {
  // OK, or Internal with the simulated time and the violated invariant.
  absl::Status status;
  // The last lines of the journal, for the report of a failure.
  std::string tail;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  absl::Duration simulated;
  uint64_t operations = 0;
  uint64_t lives = 0;
  uint64_t bytes_checked = 0;
  // For reductions: the number of results that a ring has made.
  uint64_t from_rings = 0;
  // The number of results that were summed slice by slice, since there was no ring.
  uint64_t from_slices = 0;
  // How often nodes began to pull an object in two trees, as the shards that run at the end count.
  uint64_t splits = 0;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_SIMULATION_PLAN_H_
