#include "src/sim/workloads/simulation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/sim/cluster/checkers.h"

namespace phalanx::sim {
namespace {

// The limit for the cluster to come to rest: several leases, and the time to move its objects.
constexpr absl::Duration kSettleWithin = absl::Seconds(40);
constexpr absl::Duration kAskEvery = absl::Milliseconds(100);
constexpr absl::Duration kSilence = absl::Seconds(20);

class Simulation {
 public:
  explicit Simulation(const SimulationPlan& plan)
      : plan_(plan),
        cluster_(plan.cluster),
        checkers_(cluster_),
        workload_(cluster_, plan.workload, Random(plan.seed * 101 + 1)),
        faults_(cluster_, plan.faults, Random(plan.seed * 103 + 2)) {}

  SimulationResult Run() {
    Storm();
    Calm();
    Probe();
    Farewell();
    Silence();
    SimulationResult result = ResultOf(cluster_);
    result.operations = cluster_.history().operations().size();
    result.bytes_checked = checkers_.bytes_checked();
    return result;
  }

 private:
  bool failed() { return !cluster_.journal().violation().ok(); }

  // Steps for this time, with a sample of the checkers after every few events.
  void RunFor(absl::Duration time) {
    const Instant end = cluster_.scheduler().now() + time;
    uint64_t events = 0;
    cluster_.scheduler().RunUntil(
        [&] {
          if (++events % static_cast<uint64_t>(plan_.sample_every) == 0) checkers_.Sample();
          return failed();
        },
        time);
    if (!failed() && cluster_.scheduler().now() < end) {
      cluster_.scheduler().RunFor(end - cluster_.scheduler().now());
    }
  }

  void Storm() {
    cluster_.journal().Note("---- storm");
    workload_.Start();
    faults_.Start();
    RunFor(plan_.storm);
    workload_.Stop();
  }

  void Calm() {
    if (failed()) return;
    cluster_.journal().Note("---- calm");
    faults_.Stop();
    workload_.FinishWriters();
    // Time for the seals and aborts to reach the stores.
    RunFor(absl::Milliseconds(100));
    workload_.LetGoOfMemory();
    Await("to settle", [this] {
      // Some writers got their memory only now.
      workload_.FinishWriters();
      if (faults_.SomebodyLeaves()) return absl::UnavailableError("a node is about to leave");
      return checkers_.Settled();
    });
    // From here on a Delete can no longer hide the loss of an object.
    cluster_.history().CloseDeletions();
  }

  void Probe() {
    if (failed()) return;
    cluster_.journal().Note("---- probe");
    // Only the Gets of the probe are checked below.
    const size_t before = cluster_.history().operations().size();
    workload_.GetEverything(absl::Seconds(20));
    RunFor(absl::Seconds(1));
    Await("to have probed", [this] { return checkers_.Settled(); });
    if (failed()) return;
    const auto& operations = cluster_.history().operations();
    for (size_t i = before; i < operations.size(); ++i) CheckProbe(operations[i]);
  }

  bool WasFull(const Operation& probe) {
    return probe.pinned_bytes + SimCluster::CountedBytes(cluster_.Describe(probe.id).summary()) >
           plan_.cluster.capacity_bytes;
  }

  // Each existing object must have been got; a request that still waits must have a reason.
  void CheckProbe(const Operation& probe) {
    if (probe.state != Operation::State::kEnded || !probe.read || probe.status.ok()) return;
    const auto summary = cluster_.Describe(probe.id).summary();
    // Internal is never the answer for a missing object.
    if (summary.complete_copies() == 0 && probe.status.code() != absl::StatusCode::kInternal) {
      return;
    }
    // The object can be too large beside the bytes that are pinned on that node.
    if (absl::IsResourceExhausted(probe.status) && WasFull(probe)) return;
    cluster_.journal().Violation(
        absl::StrCat("probe #", probe.number, " of ", cluster_.history().NameOf(probe.id), " with ",
                     summary.complete_copies(), " complete copies got ", probe.status.ToString(),
                     "; ", cluster_.DescribeEverywhere(probe.id)));
  }

  void Farewell() {
    if (failed()) return;
    cluster_.journal().Note("---- farewell");
    // Pins and waiting Gets would keep objects on the nodes.
    workload_.LetGo();
    RunFor(absl::Milliseconds(200));
    // A prefetch of an object that was never put stays pending until the put.
    workload_.PutWhatIsMissing(0);
    RunFor(absl::Seconds(1));
    // One node deletes all, so every other node must learn of it from the shards.
    workload_.DeleteEverything(0);
    RunFor(absl::Seconds(1));
    for (int n = 0; n < cluster_.num_nodes(); ++n) CloseClients(n);
    Await("to be empty", [this] { return checkers_.Empty(); });
  }

  void CloseClients(int n) {
    cluster_.OnNode(n, [this, n] {
      for (SimClient* client : cluster_.clients(n)) client->Close(/*clean=*/true);
    });
  }

  void Silence() {
    if (failed()) return;
    cluster_.journal().Note("---- silence");
    // A trickle needs an event for each byte, which the count of events below does not allow.
    cluster_.fabric().SetShortIo(0, /*one_byte_at_a_time=*/false);
    // After this time idle connections must be closed.
    RunFor(plan_.cluster.data_plane.idle_timeout + absl::Seconds(1));
    // Events measure work without depending on the machine.
    const uint64_t before = cluster_.scheduler().steps();
    RunFor(kSilence);
    const uint64_t events = cluster_.scheduler().steps() - before;
    const int sessions = cluster_.num_nodes() * cluster_.num_shards();
    const double a_second = static_cast<double>(events) / absl::ToDoubleSeconds(kSilence);
    // Each direction has four heartbeats per lease, with about eight events each, and there are
    // timers.
    const double allowed = sessions * 100 / absl::ToDoubleSeconds(plan_.cluster.lease);
    if (a_second > allowed) {
      cluster_.journal().Violation(
          absl::StrCat("idle, yet ", a_second, " events a second; ", allowed, " are allowed"));
    }
    for (int n = 0; n < cluster_.num_nodes() && !failed(); ++n) {
      const int open = cluster_.node(n)->data_plane_stats().connections;
      if (open == 0) continue;
      cluster_.journal().Violation(absl::StrCat(NodeName(n), " keeps ", open, " idle connections"));
    }
    const size_t connections = cluster_.fabric().open_connections();
    if (connections != static_cast<size_t>(sessions)) {
      cluster_.journal().Violation(absl::StrCat(connections, " connections for ", sessions,
                                                " sessions:\n",
                                                cluster_.fabric().DescribeConnections()));
    }
  }

  template <typename Condition>
  void Await(absl::string_view what, Condition condition) {
    absl::Status last;
    const Instant end = cluster_.scheduler().now() + kSettleWithin;
    while (!failed()) {
      last = condition();
      if (last.ok()) {
        cluster_.journal().Note("settled");
        return;
      }
      if (cluster_.scheduler().now() >= end) break;
      RunFor(kAskEvery);
    }
    if (failed()) return;
    cluster_.journal().Violation(absl::StrCat(
        "took longer than ", absl::FormatDuration(kSettleWithin), " ", what, ": ", last.message()));
  }

  const SimulationPlan plan_;
  SimCluster cluster_;
  Checkers checkers_;
  Workload workload_;
  Faults faults_;
};

}  // namespace

SimulationResult ResultOf(SimCluster& cluster) {
  SimulationResult result;
  result.status = cluster.journal().violation();
  result.tail = cluster.journal().Tail();
  result.trace_hash = cluster.journal().trace_hash();
  result.events = cluster.scheduler().steps();
  result.simulated = cluster.scheduler().now() - Instant();
  result.lives = static_cast<uint64_t>(cluster.lives());
  return result;
}

SimulationResult RunSimulation(const SimulationPlan& plan) { return Simulation(plan).Run(); }

}  // namespace phalanx::sim
