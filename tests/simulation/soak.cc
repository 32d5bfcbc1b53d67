// Runs many simulated clusters by hand: consecutive seeds in some processes, or one seed with a log
// of all its events. See docs/simulation.md.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/sim/workloads/broadcast_simulation.h"
#include "src/sim/workloads/copies_simulation.h"
#include "src/sim/workloads/cut_simulation.h"
#include "src/sim/workloads/delete_simulation.h"
#include "src/sim/workloads/lifetime_simulation.h"
#include "src/sim/workloads/reduce_simulation.h"
#include "src/sim/workloads/ring_simulation.h"
#include "src/sim/workloads/scopes_simulation.h"
#include "src/sim/workloads/simulation.h"

namespace phalanx::sim {
namespace {

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 1000;
  int jobs = 2;
  bool verbose = false;
  bool twice = false;
  bool keep_going = false;
  bool reductions = false;
  bool additions = false;
  bool clients = false;
  bool moves = false;
  bool rings = false;
  bool cuts = false;
  bool cut_rings = false;
  bool cut_gets = false;
  bool lifetimes = false;
  bool broadcasts = false;
  bool copies = false;
  bool scopes = false;
  bool deletes = false;
  bool halves = false;
  std::string focus = "anything";
  std::string defect = "none";
};

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Focus FocusOf(const std::string& name) {
  for (int i = 0; i < kFocuses; ++i) {
    if (name == FocusName(static_cast<Focus>(i))) return static_cast<Focus>(i);
  }
  std::fprintf(stderr, "no focus \"%s\"\n", name.c_str());
  std::exit(2);
}

ClusterOptions& ClusterOf(SimulationPlan& plan) { return plan.cluster; }
ClusterOptions& ClusterOf(CutPlan& plan) { return plan.cluster; }
template <typename Plan>
ClusterOptions& ClusterOf(Plan& plan) {
  return plan.world.cluster;
}

// Other plans have no objects of several slices.
template <typename Plan>
Plan InHalves(Plan plan) {
  return plan;
}

template <typename Plan>
bool RunPlan(uint64_t seed, Plan plan, SimulationResult (*run)(const Plan&), const Flags& flags) {
  if (flags.halves) plan = InHalves(std::move(plan));
  ClusterOf(plan).verbose = flags.verbose;
  if (flags.verbose) std::fprintf(stderr, "%s\n", Describe(plan).c_str());
  const SimulationResult result = run(plan);
  bool fine = result.status.ok();
  if (!fine) {
    std::fprintf(stderr, "%s\n%s\nSEED %lu FAILED: %s\n", Describe(plan).c_str(),
                 flags.verbose ? "" : result.tail.c_str(), seed, result.status.ToString().c_str());
  }
  if (fine && flags.twice) {
    ClusterOf(plan).verbose = false;
    fine = run(plan).trace_hash == result.trace_hash;
    if (!fine) std::fprintf(stderr, "SEED %lu FAILED: its trace differs between two runs\n", seed);
  }
  if (flags.verbose) {
    std::fprintf(stderr, "%lu events, %lu operations, %lu lives, %lu bytes checked, %s simulated\n",
                 result.events, result.operations, result.lives, result.bytes_checked,
                 absl::FormatDuration(result.simulated).c_str());
  }
  return fine;
}

// Returns whether the seed passes.
bool RunSeed(uint64_t seed, const Flags& flags) {
  if (flags.moves) {
    return RunPlan(seed, FocusOnMoves(DrawReducePlan(seed)), RunReduceSimulation, flags);
  }
  if (flags.clients) {
    return RunPlan(seed, FocusOnClients(DrawReducePlan(seed)), RunReduceSimulation, flags);
  }
  if (flags.additions) {
    return RunPlan(seed, FocusOnAdditions(DrawReducePlan(seed)), RunReduceSimulation, flags);
  }
  if (flags.reductions) return RunPlan(seed, DrawReducePlan(seed), RunReduceSimulation, flags);
  if (flags.broadcasts) {
    return RunPlan(seed, DrawBroadcastPlan(seed), RunBroadcastSimulation, flags);
  }
  if (flags.copies) return RunPlan(seed, DrawCopiesPlan(seed), RunCopiesSimulation, flags);
  if (flags.scopes) return RunPlan(seed, DrawScopesPlan(seed), RunScopesSimulation, flags);
  if (flags.rings) return RunPlan(seed, DrawRingPlan(seed), RunRingSimulation, flags);
  if (flags.cut_rings) return RunPlan(seed, DrawRingCutPlan(seed), RunCutSimulation, flags);
  if (flags.cuts) return RunPlan(seed, DrawCutPlan(seed), RunCutSimulation, flags);
  if (flags.cut_gets) return RunPlan(seed, DrawTransferCutPlan(seed), RunCutSimulation, flags);
  if (flags.deletes) return RunPlan(seed, DrawDeletePlan(seed), RunDeleteSimulation, flags);
  if (flags.lifetimes) return RunPlan(seed, DrawLifetimePlan(seed), RunLifetimeSimulation, flags);
  return RunPlan(seed, DrawPlan(seed, FocusOf(flags.focus)), RunSimulation, flags);
}

// Runs a seed in a process of its own, because it can abort.
bool RunApart(uint64_t seed, const Flags& flags) {
  const pid_t child = fork();
  if (child == 0) std::_Exit(RunSeed(seed, flags) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "SEED %lu FAILED: signal %d\n", seed, WTERMSIG(status));
  }
  return status == 0;
}

// Runs every `jobs`-th seed, in a process of its own. The exit status is 0 if all pass.
pid_t StartJob(int job, const Flags& flags) {
  const pid_t child = fork();
  if (child != 0) return child;
  bool fine = true;
  for (uint64_t i = static_cast<uint64_t>(job); i < flags.seeds;
       i += static_cast<uint64_t>(flags.jobs)) {
    fine = RunApart(flags.first + i, flags) && fine;
    if (!fine && !flags.keep_going) break;
  }
  std::exit(fine ? 0 : 1);
}

int Run(const Flags& flags) {
  const std::optional<Defect> defect = DefectFromName(flags.defect);
  if (!defect) {
    std::fprintf(stderr, "no defect \"%s\"\n", flags.defect.c_str());
    return 2;
  }
  std::optional<testing::ScopedDefect> scoped;
  if (*defect != Defect::kNone) scoped.emplace(*defect);
  if (flags.seeds == 1) return RunSeed(flags.first, flags) ? 0 : 1;

  const double start = Seconds();
  std::vector<pid_t> jobs;
  for (int job = 0; job < flags.jobs; ++job) jobs.push_back(StartJob(job, flags));
  int failed = 0;
  for (const pid_t job : jobs) {
    int status = 0;
    waitpid(job, &status, 0);
    if (status != 0) ++failed;
  }
  const double seconds = Seconds() - start;
  std::printf("%lu seeds from %lu in %.1f s: %.0f seeds a minute; %s\n", flags.seeds, flags.first,
              seconds, static_cast<double>(flags.seeds) * 60 / seconds,
              failed == 0 ? "all fine" : "FAILED (not all were run, unless --keep-going)");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace phalanx::sim

int main(int argc, char** argv) {
  phalanx::sim::Flags flags;
  CLI::App app("Simulated clusters under random faults, by seed");
  app.add_option("--first", flags.first, "the first seed");
  app.add_option("--seeds", flags.seeds, "how many");
  app.add_option("--jobs", flags.jobs, "processes that run them");
  app.add_option("--focus", flags.focus, "the focus of all runs");
  app.add_option("--defect", flags.defect, "a seeded defect to switch on");
  app.add_flag("--verbose", flags.verbose, "print all events");
  app.add_flag("--twice", flags.twice, "run each seed twice and compare the traces");
  app.add_flag("--keep-going", flags.keep_going, "continue after a failure");
  app.add_flag("--reductions", flags.reductions, "simulate reductions");
  app.add_flag("--additions", flags.additions, "simulate reductions with many additions");
  app.add_flag("--moves", flags.moves, "simulate reductions whose slots move to other copies");
  app.add_flag("--clients", flags.clients, "simulate open reductions whose clients die");
  app.add_flag("--broadcasts", flags.broadcasts, "simulate sticky broadcasts");
  app.add_flag("--copies", flags.copies, "simulate copies on several hosts");
  app.add_flag("--scopes", flags.scopes, "simulate scopes of objects");
  app.add_flag("--rings", flags.rings, "simulate reductions in the order of a ring");
  app.add_flag("--cuts", flags.cuts,
               "simulate reductions among nodes that cannot reach each other");
  app.add_flag("--cut-rings", flags.cut_rings,
               "simulate reductions in the order of a ring among such nodes");
  app.add_flag("--cut-gets", flags.cut_gets,
               "simulate Gets and broadcasts among nodes that cannot reach each other");
  app.add_flag("--deletes", flags.deletes, "simulate Deletes, and reads after them");
  app.add_flag("--lifetimes", flags.lifetimes, "simulate holds and lifetimes");
  app.add_flag("--halves", flags.halves, "pull objects in two trees");
  CLI11_PARSE(app, argc, argv);
  return phalanx::sim::Run(flags);
}
