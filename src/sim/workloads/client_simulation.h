// The base of all simulations: a storm in which clients act at random while faults happen, a calm
// in which all requests end, and a farewell after which nothing is left.
//
//   ClientSimulation ◄── of objects, of reductions, of lifetimes, of broadcasts
//     ├─ SimCluster, Checkers, Faults
//     └─ Act(n), repeatedly, on the control loop of each node
//
// All random choices are drawn from the plan's seed. Thread rule: the test's thread. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_CLIENT_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_CLIENT_SIMULATION_H_

#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/sim/cluster/checkers.h"
#include "src/sim/cluster/sim_cluster.h"
#include "src/sim/workloads/faults.h"
#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

class ClientSimulation {
 public:
  struct Settings {
    absl::Duration mean_pause;  // between two acts of a node's clients
    absl::Duration settle_within = absl::Seconds(60);
    int sample_every = 1;  // events
  };

  SimulationResult Run();

 protected:
  // `world` must outlive this.
  ClientSimulation(const SimulationPlan& world, const Settings& settings, Random faults,
                   Random clients)
      : cluster_(world.cluster),
        checkers_(cluster_),
        faults_(cluster_, world.faults, std::move(faults)),
        random_(std::move(clients)),
        world_(world),
        settings_(settings) {}
  virtual ~ClientSimulation() = default;

  // ---- for the subclass to implement
  //
  // Called before the storm.
  virtual void Begin() {}
  // A client of node `n`, which is up, acts.
  virtual void Act(int n) = 0;
  // Called at each sample, after the invariants of shards and nodes were checked.
  virtual void OnSample() {}
  // Called when the faults have stopped: awaits the end of all requests and checks the results.
  virtual void Settle() = 0;
  // Deletes all objects and closes all clients.
  virtual void CleanUp() = 0;
  virtual absl::Status Empty() { return checkers_.Empty(); }
  // Called in the end, when Empty has returned OK.
  virtual void CheckIdle() {}
  // Sets `operations`, `bytes_checked` and the subclass's other results.
  virtual void FillResult(SimulationResult& result) = 0;

  // ---- for the subclass to call
  bool failed() { return !cluster_.journal().violation().ok(); }
  Instant now() { return cluster_.scheduler().now(); }
  void RunFor(absl::Duration time);
  // Steps until the condition returns OK; a violation if it does not within the time to settle.
  void Await(absl::string_view what, absl::FunctionRef<absl::Status()> condition);
  // Awaits that every node that is up has a session with every shard, and that the shards have
  // received what the nodes had to repeat. A node that lost contact in the storm can take seconds
  // to dial.
  void AwaitSessions();
  // Runs `task` on the node's control loop, if the node is up and not stalled.
  void OnNode(int n, std::function<void(int)> task);

  SimCluster cluster_;
  Checkers checkers_;
  Faults faults_;
  Random random_;
  bool running_ = false;  // during the storm

 private:
  void Storm();
  void Calm();
  void Farewell();
  void ScheduleAct(int n);
  void Sample();

  const SimulationPlan& world_;
  const Settings settings_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_CLIENT_SIMULATION_H_
