// What a benchmark is asked to do, and what it found: one rank's view. Plain values.
#ifndef PHALANX_RUNTIME_BENCH_OPTIONS_H_
#define PHALANX_RUNTIME_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/elements.h"

namespace phalanx::runtime::bench {

struct BenchOptions {
  // broadcast, broadcast_all, gather, allgather, all_to_all, reduce, allreduce, reduce_scatter,
  // roundtrip, put, put_turns, get, put_get, directory, puts, gets
  std::string op;
  int world = 1;
  int rank = 0;
  std::vector<uint64_t> sizes = {1024, 1 << 20, 32 << 20};
  int runs = 10;
  int warmup = 2;
  // Names the meeting; all ranks give the same, no two benchmarks of one cluster do.
  std::string session = "bench";
  // An address of this rank's host for the bare sockets that measure the limit; empty: no limit is
  // measured.
  std::string raw_host = "127.0.0.1";
  // Receiver i of a broadcast comes i-1 times so much after the first; source i of a reduction i
  // times so much after the first, and the clock starts with the last.
  absl::Duration stagger;
  // The Puts are inside the clock of a broadcast, or of an all_to_all.
  bool with_put = false;
  // Receivers of a broadcast ask before the sender puts: the clock starts at the Put.
  bool waiting = false;
  // Of reductions.
  DType dtype = DType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  bool fixed_order = false;
  // How many sources go in, 0: all; and how many ranks, the last ones, never put theirs.
  int subset = 0;
  int absent = 0;
  // Those ranks' nodes get a copy of every source before the clock starts, and what is lost by a
  // kill is not put again.
  bool spare_copies = false;
  // Kill so many relays that have two descendants or more once so large a part has arrived
  // everywhere; of a reduction, nodes with two slots below them and two above, whose sources rank 0
  // puts again at once. One run only.
  int kill = 0;
  double kill_fraction = 0.5;
  // They are stopped (SIGSTOP) instead: alive, but silent.
  bool stop_victims = false;
  // Keep the tree of a broadcast's slowest run, and each rank's time in it.
  bool trace = false;
  // Processes whose CPU time is charged to the operation (the daemons); read by rank 0.
  std::vector<int> cpu_pids;

  // Each rank waits for the others at most so long.
  absl::Duration timeout = absl::Seconds(120);
};

// One op and size, over all ranks: the maximum over ranks of each run, then statistics over runs.
struct BenchRecord {
  std::string op;
  uint64_t size_bytes = 0;
  int world = 1;
  int runs = 0;
  double median_s = 0;
  double min_s = 0;
  double max_s = 0;
  // Medians of the same size over bare warm sockets: one pair of ranks, and the op's whole shape.
  // Of a local Put: copying into shared memory of new pages, and into warm memory. 0: not measured.
  double limit_s = 0;
  double shape_limit_s = 0;
  bool verified = false;
  double cpu_s_per_gb = 0;
  double operations_per_s = 0;
  // With kill: how many were killed; of a broadcast, bytes that crossed the network beyond one copy
  // for each survivor.
  int killed = 0;
  uint64_t bytes_sent_twice = 0;
  std::vector<double> each_s;
  // With trace: of the slowest run, the tree as it was drawn at its end, and the seconds of each
  // rank.
  double slowest_s = 0;
  std::string slowest_tree;
  std::vector<double> slowest_ranks_s;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_OPTIONS_H_
