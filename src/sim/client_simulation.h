// What simulations of clients of one kind have in common: a storm in which clients act at random
// while things break, a calm in which everything comes to its end, and a farewell after which
// nothing is left.
//
//   ClientSimulation ◄── of reductions, of lifetimes, of broadcasts
//     ├─ SimCluster, Checkers, Faults
//     └─ Act(n), again and again, on the control loop of each node
//
// Everything random is drawn from the plan's seed. Thread rule: the test's thread. Testonly.
#ifndef PHALANX_SIM_CLIENT_SIMULATION_H_
#define PHALANX_SIM_CLIENT_SIMULATION_H_

#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/sim/checkers.h"
#include "src/sim/faults.h"
#include "src/sim/sim_cluster.h"
#include "src/sim/simulation.h"

namespace phalanx::sim {

class ClientSimulation {
 public:
  struct Settings {
    absl::Duration mean_pause;  // of a node, between two of its clients' acts
    absl::Duration settle_within = absl::Seconds(60);
    int sample_every = 1;  // events
  };

  SimulationResult Run();

 protected:
  // `world` outlives this.
  ClientSimulation(const SimulationPlan& world, const Settings& settings, Random faults,
                   Random clients)
      : cluster_(world.cluster),
        checkers_(cluster_),
        faults_(cluster_, world.faults, std::move(faults)),
        random_(std::move(clients)),
        world_(world),
        settings_(settings) {}
  virtual ~ClientSimulation() = default;

  // ---- what kind it is
  // Before the storm.
  virtual void Begin() {}
  // A client of that node, which is up, does something.
  virtual void Act(int n) = 0;
  // Beside the invariants of shards and nodes, which are checked before it.
  virtual void LookAround() {}
  // No fault is left: awaits what must come, and checks what has.
  virtual void ComeToRest() = 0;
  // Has everything deleted and closed.
  virtual void Leave() = 0;
  virtual absl::Status Empty() { return checkers_.Empty(); }
  // `operations`, `bytes_checked` and what else is its own.
  virtual void Fill(SimulationResult& result) = 0;

  // ---- for these
  bool failed() { return !cluster_.journal().violation().ok(); }
  Instant now() { return cluster_.scheduler().now(); }
  void RunFor(absl::Duration time);
  // Fails if the condition is not OK within the time to settle.
  void Await(absl::string_view what, absl::FunctionRef<absl::Status()> condition);
  // On its control loop, if it is up and not stalled.
  void OnNode(int n, std::function<void(int)> task);

  SimCluster cluster_;
  Checkers checkers_;
  Faults faults_;
  Random random_;
  bool running_ = false;  // the storm

 private:
  void Storm();
  void Calm();
  void Farewell();
  void Later(int n);
  void Sample();

  const SimulationPlan& world_;
  const Settings settings_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLIENT_SIMULATION_H_
