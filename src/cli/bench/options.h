// The options of a benchmark and its results, as one rank sees them. Plain values.
#ifndef PHALANX_CLI_BENCH_OPTIONS_H_
#define PHALANX_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/elements.h"

namespace phalanx::runtime::bench {

// What a reduction reduces.
struct ReductionChoice {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool fixed_order = false;
  // The number of sources that are reduced (0: all), and the number of ranks, counted from the
  // last, that never put their source.
  int subset = 0;
  int absent = 0;
  // The nodes of these ranks get a copy of every source before the clock starts. A source that is
  // lost by a kill is not put again.
  bool spare_copies = false;
};

// The nodes that are killed or stopped while the operation runs.
struct Faults {
  // Kill this many relays with at least two descendants once each has received `fraction` of the
  // object. For a reduction, kill nodes with two slots below and two above them; rank 0 puts their
  // sources again at once. Only with one run.
  int victims = 0;
  double fraction = 0.5;
  // Stop the nodes (SIGSTOP) instead: alive, but silent.
  bool stop = false;
  // The process of the last rank of a group_allreduce ends this long after the start; 0: it does
  // not. Only with one run.
  absl::Duration kill_member;
};

struct BenchOptions {
  // broadcast, broadcast_all, gather, allgather, all_to_all, reduce, allreduce, reduce_scatter,
  // roundtrip, put, put_turns, get, put_get, directory, puts, gets, group_allreduce, group_reduce,
  // group_broadcast, group_allgather, group_reduce_scatter, group_all_to_all, group_barrier,
  // job_allreduce, job_checkpoint, job_lazy_checkpoint, job_local_checkpoint, job_local_counted
  std::string op;
  int world = 1;
  int rank = 0;
  std::vector<uint64_t> sizes = {1024, 1 << 20, 32 << 20};
  int runs = 10;
  int warmup = 2;
  // Calls in a run of an operation of a group, or of job_allreduce, one after the other; 0: 32 MiB
  // of them, at most 1,000.
  int calls = 0;
  // The name of the session: the same for all ranks, and different for every benchmark of a
  // cluster.
  std::string session = "bench";
  // An address of this rank's host for the bare sockets that measure the limit; empty: no limit is
  // measured.
  std::string raw_host = "127.0.0.1";
  // Receiver i of a broadcast starts i-1 times this span after the first; source i of a reduction
  // arrives i times this span after the first, and the clock starts with the last source.
  absl::Duration stagger;
  // The Puts of a broadcast or an all_to_all are inside the clock.
  bool with_put = false;
  // Receivers of a broadcast call Get before the Put, which starts the clock.
  bool waiting = false;
  ReductionChoice reduction;
  Faults faults;
  // Keep the tree of a broadcast's slowest run, and each rank's time in that run.
  bool trace = false;
  // Processes for which the benchmark counts CPU time (the daemons); only rank 0 reads it.
  std::vector<int> cpu_pids;

  // The longest time that a rank waits for the others.
  absl::Duration timeout = absl::Seconds(120);
};

// One op and size, over all ranks: the maximum over ranks of each run, and statistics over runs.
struct BenchRecord {
  std::string op;
  uint64_t size_bytes = 0;
  int world = 1;
  int runs = 0;
  double median_s = 0;
  double min_s = 0;
  double max_s = 0;
  // Medians of the same size over bare warm sockets: one pair of ranks, and the op's whole shape.
  // For a local Put: copying into shared memory with new pages, and into warm memory. For a
  // checkpoint: making the string, and that with one copy. 0: not measured.
  double limit_s = 0;
  double shape_limit_s = 0;
  bool verified = false;
  double cpu_s_per_gb = 0;
  double operations_per_s = 0;
  // With kill: the number of killed nodes and, for a broadcast, the bytes that crossed the network
  // beyond one copy for each survivor.
  int killed = 0;
  uint64_t bytes_sent_twice = 0;
  // The number of calls in a run; the seconds are those of one call.
  int calls = 1;
  std::vector<double> each_s;
  // By run, the seconds of each rank.
  std::vector<std::vector<double>> each_ranks_s;
  // With trace: for the slowest run, the tree at its end, and the seconds of each rank.
  double slowest_s = 0;
  std::string slowest_tree;
  std::vector<double> slowest_ranks_s;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_OPTIONS_H_
