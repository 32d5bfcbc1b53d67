// The operations that a benchmark times, one class for each, all with the same four steps:
//
//   Prepare   outside the clock: objects that the operation needs
//   Execute   from the agreed instant; returns this rank's seconds until it was done
//   Verify    outside the clock: every byte that this rank got
//   Clean     drops what the run made
//
// One thread, blocking. Operations belong to the bench runner.
#ifndef PHALANX_RUNTIME_BENCH_OPERATION_H_
#define PHALANX_RUNTIME_BENCH_OPERATION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/client.h"
#include "src/runtime/bench/options.h"

namespace phalanx::runtime::bench {

// One run of one size.
struct Run {
  int number = 0;
  uint64_t size = 0;
  // Of the run's pattern and ids; the same on every rank.
  uint64_t seed = 0;
  // After the warm-up: its time goes into the record.
  bool counted = false;
  // Nodes are killed in this run; and how, on rank 0: while the operation goes on. The ranks whose
  // nodes they were.
  bool kill = false;
  std::function<absl::StatusOr<std::vector<int>>()> kill_now = {};
};

class Operation {
 public:
  // What is measured beside it in the same run: the same work by bare sockets (raw_links.h), or
  // kCopy: copying the bytes into warm shared memory, the best that a local Put can do.
  enum class Shape { kNone, kChain, kStar, kFoldingChain, kRing, kFoldingRing, kRingTwice, kCopy };

  virtual ~Operation() = default;
  virtual Shape shape() const = 0;
  // Bytes that cross the network in one run: what CPU time is divided by.
  virtual uint64_t bytes_moved(const Run& run) const = 0;
  // Operations in one run, for rates; 0 when a rate means nothing.
  virtual uint64_t count(const Run&) const { return 0; }
  // What is broadcast in one run, as far as the operation is about that.
  virtual std::vector<ObjectId> broadcasts(const Run&) const { return {}; }
  // What is reduced, likewise.
  virtual std::vector<ObjectId> reductions(const Run&) const { return {}; }
  virtual absl::Status Prepare(const Run& run) = 0;
  virtual absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) = 0;
  virtual absl::StatusOr<bool> Verify(const Run& run) = 0;
  virtual absl::Status Clean(const Run& run) = 0;
};

// InvalidArgument for an unknown op or a world that is too small for it.
absl::StatusOr<std::unique_ptr<Operation>> MakeOperation(const BenchOptions& options,
                                                         std::shared_ptr<Client> client);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_OPERATION_H_
