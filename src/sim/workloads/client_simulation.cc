#include "src/sim/workloads/client_simulation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::sim {
namespace {

constexpr absl::Duration kPollEvery = absl::Milliseconds(100);

}  // namespace

SimulationResult ClientSimulation::Run() {
  Storm();
  Calm();
  Farewell();
  SimulationResult result;
  result.status = cluster_.journal().violation();
  result.tail = cluster_.journal().Tail();
  result.trace_hash = cluster_.journal().trace_hash();
  result.events = cluster_.scheduler().steps();
  result.simulated = now() - Instant();
  result.lives = static_cast<uint64_t>(cluster_.lives());
  result.splits = cluster_.Counter("splits");
  FillResult(result);
  return result;
}

// ---- phases

void ClientSimulation::Storm() {
  cluster_.journal().Note("---- storm");
  running_ = true;
  Begin();
  for (int n = 0; n < cluster_.num_nodes(); ++n) ScheduleAct(n);
  faults_.Start();
  RunFor(world_.storm);
  running_ = false;
}

void ClientSimulation::Calm() {
  if (failed()) return;
  cluster_.journal().Note("---- calm");
  // A leaving node drains on its own time, after Stop has repaired everything else.
  faults_.Stop();
  Await("for nodes to leave", [this] {
    return faults_.NodeIsLeaving() ? absl::UnavailableError("a node is still leaving")
                                   : absl::OkStatus();
  });
  Settle();
}

void ClientSimulation::Farewell() {
  if (failed()) return;
  cluster_.journal().Note("---- farewell");
  CleanUp();
  Await("to be empty", [this] { return Empty(); });
  if (!failed()) CheckIdle();
}

// ---- steps

void ClientSimulation::RunFor(absl::Duration time) {
  const Instant end = now() + time;
  uint64_t events = 0;
  cluster_.scheduler().RunUntil(
      [&] {
        if (++events % static_cast<uint64_t>(settings_.sample_every) == 0) Sample();
        return failed();
      },
      time);
  // No event is left before the end, so the clock is moved there.
  if (!failed() && now() < end) cluster_.scheduler().RunFor(end - now());
}

void ClientSimulation::Sample() {
  checkers_.CheckCores();
  OnSample();
}

void ClientSimulation::Await(absl::string_view what, absl::FunctionRef<absl::Status()> condition) {
  absl::Status last;
  const Instant end = now() + settings_.settle_within;
  while (!failed()) {
    last = condition();
    if (last.ok()) return;
    if (now() >= end) break;
    // Not after every event: the conditions read the state of the whole cluster.
    RunFor(kPollEvery);
  }
  if (failed()) return;
  cluster_.journal().Violation(absl::StrCat("took longer than ",
                                            absl::FormatDuration(settings_.settle_within), " ",
                                            what, ": ", last.message()));
}

void ClientSimulation::AwaitSessions() {
  // Until then, a session that broke in the storm looks intact to its node.
  RunFor(world_.cluster.lease * 4);
  Await("for sessions", [this] {
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      for (const absl::Status& state : cluster_.node(n)->ShardStates()) {
        if (!state.ok())
          return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", state.ToString()));
      }
    }
    return absl::OkStatus();
  });
  RunFor(world_.cluster.lease);
}

void ClientSimulation::OnNode(int n, std::function<void(int)> task) {
  // A stalled node would run all posted tasks at once when it resumes.
  if (n < 0 || cluster_.node(n) == nullptr || cluster_.node_stalled(n)) return;
  cluster_.OnNode(n, [n, task = std::move(task)] { task(n); });
}

void ClientSimulation::ScheduleAct(int n) {
  cluster_.scheduler().After(settings_.mean_pause * -std::log(1.0 - random_.Unit()), [this, n] {
    if (!running_) return;
    OnNode(n, [this](int node) { Act(node); });
    ScheduleAct(n);
  });
}

}  // namespace phalanx::sim
