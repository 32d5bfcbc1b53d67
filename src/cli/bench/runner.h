// Runs one benchmark as one of its ranks: meets the other ranks, measures the limit over bare
// sockets, times the runs, verifies the bytes, and makes the records on rank 0.
//
// One thread, blocking; called by the command.
#ifndef PHALANX_CLI_BENCH_RUNNER_H_
#define PHALANX_CLI_BENCH_RUNNER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/client.h"
#include "src/cli/bench/options.h"

namespace phalanx::runtime::bench {

// Kills relays of the object's tree, or nodes of its reduction. Called on rank 0 while the
// operation runs.
struct KillReport {
  // Names of the killed nodes; their ranks report no results.
  std::vector<std::string> nodes;
};
using Killer =
    std::function<absl::StatusOr<KillReport>(const ObjectId& object, uint64_t size_bytes)>;
// Returns how many bytes all live nodes received for the object, from the directory's records.
using BytesReceived = std::function<absl::StatusOr<uint64_t>(const ObjectId& object)>;

// Returns a drawing of the object's tree as the directory records it.
using TreeDrawer = std::function<absl::StatusOr<std::string>(const ObjectId& object)>;

// The requests of rank 0 to the directory; each can be empty if it is not needed.
struct DirectoryTools {
  Killer kill;
  Killer kill_reducer;
  BytesReceived bytes_received;
  TreeDrawer draw_tree;
};

// Returns the records on rank 0, and none on other ranks. A rank whose own daemon was killed
// returns Unavailable.
absl::StatusOr<std::vector<BenchRecord>> RunBench(BenchOptions options,
                                                  std::shared_ptr<Client> client,
                                                  const DirectoryTools& tools);

// A list of objects with op, size_bytes, world, runs, median_s, min_s, max_s, limit_s,
// shape_limit_s, verified, cpu_s_per_gb, each_s, each_ranks_s and, where they have a meaning,
// operations_per_s, calls, killed, bytes_sent_twice, slowest_tree, slowest_ranks_s.
std::string RecordsAsJson(const std::vector<BenchRecord>& records);
// A table for people, with a line per record.
std::string RecordsAsTable(const std::vector<BenchRecord>& records);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_RUNNER_H_
