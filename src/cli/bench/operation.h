// The operations that a benchmark times. Each is a class with the same four steps:
//
// |  Prepare   outside the clock: creates objects that the operation needs
// |  Execute   from the agreed instant; returns the seconds that this rank needed
// |  Verify    outside the clock: checks every byte that this rank received
// |  Clean     deletes the objects of the run
//
// One thread, blocking. Owned by the bench runner.
#ifndef PHALANX_CLI_BENCH_OPERATION_H_
#define PHALANX_CLI_BENCH_OPERATION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/client.h"
#include "src/cli/bench/options.h"

namespace phalanx::runtime::bench {

// One run of one size.
struct Run {
  int number = 0;
  uint64_t size = 0;
  // The seed of the run's pattern and ids; the same on every rank.
  uint64_t seed = 0;
  // False for a warm-up; only counted runs go into the record.
  bool counted = false;
  // Nodes are killed in this run. On rank 0, kill_now kills them while the operation runs, and
  // returns the ranks of the killed nodes.
  bool kill = false;
  std::function<absl::StatusOr<std::vector<int>>()> kill_now = {};
};

class Operation {
 public:
  // The bare work that is measured in the same run: the same transfers over bare sockets
  // (raw_links.h); kPairTwice: twice the bytes from one rank to another; kCopy: copying the bytes
  // into warm shared memory, the lower bound of a local Put; kSaveAndCopy: making a string of the
  // bytes on all ranks, and copying it into warm memory.
  enum class Shape {
    kNone,
    kChain,
    kStar,
    kFoldingChain,
    kRing,
    kFoldingRing,
    kRingTwice,
    kPairTwice,
    kCopy,
    kSaveAndCopy
  };

  virtual ~Operation() = default;
  virtual Shape shape() const = 0;
  // The number of calls in one run, one after the other; the seconds of a run are those of one
  // call, and the bare work is repeated as often.
  virtual int calls(const Run&) const { return 1; }
  // The ranks whose processes are killed in this run.
  virtual std::vector<int> killed_ranks(const Run&) const { return {}; }
  // The bytes that cross the network in one run; the divisor of CPU time. 0: no bytes of the user.
  virtual uint64_t bytes_moved(const Run& run) const = 0;
  // The number of operations in one run, for rates; 0 if a rate has no meaning.
  virtual uint64_t count(const Run&) const { return 0; }
  // The objects that one run broadcasts, for operations that broadcast.
  virtual std::vector<ObjectId> broadcasts(const Run&) const { return {}; }
  // The objects that one run reduces, likewise.
  virtual std::vector<ObjectId> reductions(const Run&) const { return {}; }
  virtual absl::Status Prepare(const Run& run) = 0;
  virtual absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) = 0;
  virtual absl::StatusOr<bool> Verify(const Run& run) = 0;
  virtual absl::Status Clean(const Run& run) = 0;
};

// The names of all operations.
std::vector<std::string> OperationNames();

// Returns InvalidArgument for an unknown op or a world that is too small for it.
absl::StatusOr<std::unique_ptr<Operation>> MakeOperation(const BenchOptions& options,
                                                         std::shared_ptr<Client> client);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_OPERATION_H_
