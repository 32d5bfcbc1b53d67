// Runs broadcasts among thousands of nodes in the coarse model by hand. Prints one row for each
// size and number of receivers. See docs/benchmarks.md.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/simulation/coarse_broadcast.h"

namespace phalanx::sim {
namespace {

double Ms(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

void PrintRow(const CoarsePlan& plan) {
  const CoarseResult r = RunCoarseBroadcast(plan);
  const CoarseLinks& links = plan.links;
  const int n = plan.receivers;
  std::printf("| %d | %g MiB | %s | %.2f | %.2f | %.2f | %.2f | %d | %d | %.1f | %.1f | %.2f |\n",
              n, static_cast<double>(plan.size_bytes) / (1 << 20), plan.measured ? "yes" : "no",
              Ms(r.time), Ms(TreeTime(links, n, plan.size_bytes, 0)),
              Ms(TreeTime(links, n, plan.size_bytes, 1)),
              Ms(SlicedTime(links, n, plan.size_bytes, 2)), r.depth, r.fan_out,
              static_cast<double>(r.examined) / n, static_cast<double>(r.visited) / n,
              absl::ToDoubleMicroseconds(r.core_time) / n);
  if (plan.relays_killed > 0) {
    std::printf(
        "killed %d relays, %d complete: %lu repairs, %lu examined, %lu visited, %lu below\n",
        plan.relays_killed, r.complete, r.repairs, r.repair_examined, r.repair_visited,
        r.repair_below);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace phalanx::sim

int main(int argc, char** argv) {
  CLI::App app("broadcasts among thousands of nodes in a coarse model");
  std::vector<int> nodes = {100, 1000};
  std::vector<double> sizes_mib = {1, 16, 64};
  double latency_us = 50;
  double gbit = 10;
  uint64_t hop_kib = 16;
  int killed = 0;
  int slices = 1;
  bool cold = false;
  app.add_option("--nodes", nodes, "receivers")->delimiter(',');
  app.add_option("--mib", sizes_mib, "sizes in MiB, multiples of a hop")->delimiter(',');
  app.add_option("--latency-us", latency_us, "one way");
  app.add_option("--gbit", gbit, "of every link");
  app.add_option("--hop-kib", hop_kib, "what is sent in one go");
  app.add_option("--kill", killed, "relays that die half way");
  app.add_option("--slices", slices, "of the object, 1 or 2")->check(CLI::Range(1, 2));
  bool waiting = false;
  app.add_flag("--waiting", waiting, "all Gets start before the Put");
  app.add_flag("--cold", cold, "nothing was measured before");
  CLI11_PARSE(app, argc, argv);
  std::printf(
      "receivers | size | measured | ms | best tree | chain | two slices | depth | "
      "fan-out | candidates per Get | visits per Get | us of the core per Get\n");
  for (const double mib : sizes_mib) {
    for (const int n : nodes) {
      phalanx::sim::CoarsePlan plan;
      plan.links.latency = absl::Microseconds(latency_us);
      plan.links.bytes_per_second = gbit * 1e9 / 8;
      plan.links.hop_bytes = hop_kib << 10;
      plan.receivers = n;
      plan.size_bytes = static_cast<uint64_t>(mib * (1 << 20));
      plan.slices = slices;
      plan.measured = !cold;
      plan.waiting = waiting;
      plan.relays_killed = killed;
      phalanx::sim::PrintRow(plan);
    }
  }
  return 0;
}
