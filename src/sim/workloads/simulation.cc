#include "src/sim/workloads/simulation.h"

#include "absl/strings/str_cat.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

// The limit for the cluster to come to rest: several leases, and the time to move its objects.
constexpr absl::Duration kSettleWithin = absl::Seconds(40);
constexpr absl::Duration kSilence = absl::Seconds(20);

class Simulation final : public ClientSimulation {
 public:
  explicit Simulation(const SimulationPlan& plan)
      : ClientSimulation(plan,
                         {.mean_pause = plan.workload.mean_pause,
                          .settle_within = kSettleWithin,
                          .sample_every = plan.sample_every},
                         Random(plan.seed * 103 + 2), Random(plan.seed * 101 + 1)),
        workload_(cluster_, plan.workload, random_) {}

 private:
  void Act(int n) override { workload_.Act(n); }
  void OnSample() override { checkers_.CheckCopies(); }

  void Settle() override {
    workload_.FinishWriters();
    // Time for the seals and aborts to reach the stores.
    RunFor(absl::Milliseconds(100));
    workload_.ReleaseMemory();
    Await("to settle", [this] {
      // Some writers got their memory only now.
      workload_.FinishWriters();
      return checkers_.Settled();
    });
    // From here on a Delete can no longer hide the loss of an object.
    cluster_.history().CloseDeletions();
    Probe();
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
           cluster_.options().capacity_bytes;
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

  void CleanUp() override {
    // Pins and waiting Gets would keep objects on the nodes.
    workload_.CloseClients();
    RunFor(absl::Milliseconds(200));
    // A node that was ordered to fetch an object whose copies are lost waits until the next put.
    workload_.PutMissingObjects(0);
    RunFor(absl::Seconds(1));
    // One node deletes all, so every other node must learn of it from the shards.
    workload_.DeleteEverything(0);
    RunFor(absl::Seconds(1));
    for (int n = 0; n < cluster_.num_nodes(); ++n) CloseClients(n);
  }

  void CloseClients(int n) {
    cluster_.OnNode(n, [this, n] {
      for (SimClient* client : cluster_.clients(n)) client->Close(/*clean=*/true);
    });
  }

  void CheckIdle() override {
    cluster_.journal().Note("---- silence");
    // A trickle needs an event for each byte, which the count of events below does not allow.
    cluster_.fabric().SetShortIo(0, /*one_byte_at_a_time=*/false);
    // After this time idle connections must be closed.
    RunFor(cluster_.options().data_plane.idle_timeout + absl::Seconds(1));
    // Events measure work without depending on the machine.
    const uint64_t before = cluster_.scheduler().steps();
    RunFor(kSilence);
    const uint64_t events = cluster_.scheduler().steps() - before;
    const int sessions = cluster_.num_nodes() * cluster_.num_shards();
    const double a_second = static_cast<double>(events) / absl::ToDoubleSeconds(kSilence);
    // Each direction has four heartbeats per lease, with about eight events each, and there are
    // timers.
    const double allowed = sessions * 100 / absl::ToDoubleSeconds(cluster_.options().lease);
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

  void FillResult(SimulationResult& result) override {
    result.operations = cluster_.history().operations().size();
    result.bytes_checked = checkers_.bytes_checked();
  }

  Workload workload_;
};

}  // namespace

SimulationResult RunSimulation(const SimulationPlan& plan) { return Simulation(plan).Run(); }

}  // namespace phalanx::sim
