// A random workload by simulated clients: on every node some clients put, write, get, stream,
// delete, prefetch, cancel, let go and die, at random times, at a few objects that all of them
// share. What they do and how often is drawn from the seed too, so that each run leans another way.
// Testonly.
#ifndef PHALANX_SIM_WORKLOAD_H_
#define PHALANX_SIM_WORKLOAD_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/sim/sim_cluster.h"

namespace phalanx::sim {

enum class Action {
  kPut,
  kCreate,
  kWrite,
  kSeal,
  kAbort,
  kGet,
  kStream,
  kRelease,
  kCancel,
  kDelete,
  kStat,
  kPrefetch,
  kReadRange,
  kOpen,
  kClose,
  kDie,
};
inline constexpr size_t kActions = 16;

struct WorkloadOptions {
  // How many objects everybody shares.
  int objects = 6;
  // Between two actions on one node.
  absl::Duration mean_pause = absl::Milliseconds(20);
  // How often each action is chosen, in proportion.
  std::array<double, kActions> weights = {6,   3, 6,   3,   0.5, 8,   4,   8,
                                          0.5, 1, 0.5, 0.5, 1,   0.5, 0.2, 0.2};
  // Largest object; how often an object is larger than what travels inline.
  uint64_t max_bytes = 400'000;
  double large = 0.4;
  int max_slices = 1;
  // How often a Put or Seal waits for its verdict, a Get is streamed later than it could be.
  double wait_for_adoption = 0.5;
  // How often a request has no deadline.
  double patient = 0.5;
  absl::Duration max_timeout = absl::Seconds(5);
  // How much a writer publishes at a time, at most.
  uint64_t max_write = 100'000;
  // How often an attempt has the size and slices of the first one at its object, as that of a task
  // that is run again.
  double same_shape = 0.5;
  // A deleted object's id is used again (rather than a new one) so often.
  double reuse_ids = 0.5;
};

class Workload {
 public:
  // `cluster` outlives this, and all that was started by it ends before.
  Workload(SimCluster& cluster, const WorkloadOptions& options, Random random);

  // Clients act until Stop.
  void Start();
  void Stop() { running_ = false; }

  // ---- afterwards; each acts on nodes that are up
  // Writers seal or abort.
  void FinishWriters();
  // Whoever waits for memory to write gives up; views are released.
  void LetGoOfMemory();
  // A Get of each object on each node. Their numbers in the history follow those there are.
  void GetEverything(absl::Duration timeout);
  // Views are released, Gets cancelled; then the clients say goodbye.
  void LetGo();
  // One client on node `n` puts what nodes ask for in vain.
  void PutWhatIsMissing(int n);
  // One client on node `n` deletes each object that anybody ever used.
  void DeleteEverything(int n);

  const std::vector<ObjectId>& all_ids() const { return all_ids_; }

 private:
  void Later(int n);
  void Act(int n);
  void Do(Action action, int n, SimClient& client);
  Action Choose();
  SimClient& AnyClient(int n);
  const ObjectId& AnyId();
  const ObjectId& NewId();
  SimClient::PutShape AnyShape();
  uint64_t AnySize();
  absl::Duration AnyTimeout();
  void Put(SimClient& client);
  void Write(SimClient& client);
  void Delete(SimClient& client);
  void Prefetch(SimClient& client);

  SimCluster& cluster_;
  const WorkloadOptions options_;
  Random random_;
  bool running_ = false;
  std::vector<ObjectId> ids_;      // in use
  std::vector<ObjectId> all_ids_;  // ever
  struct Shape {
    uint64_t size_bytes;
    int slices;
  };
  std::map<ObjectId, Shape> shapes_;  // of the first attempts
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOAD_H_
