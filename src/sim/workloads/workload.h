// A random workload of simulated clients. On every node some clients put, write, get, stream,
// delete, broadcast, cancel, release and die, at random times, on a few objects that all of them
// share. The seed draws the actions and their rates too, so runs differ in emphasis. Testonly.
#ifndef PHALANX_SIM_WORKLOADS_WORKLOAD_H_
#define PHALANX_SIM_WORKLOADS_WORKLOAD_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/sim/cluster/sim_cluster.h"

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
  kBroadcast,
  kReadRange,
  kOpen,
  kClose,
  kDie,
};
inline constexpr size_t kActions = 16;

struct WorkloadOptions {
  // The number of objects that all clients share.
  int objects = 6;
  // The mean time between two actions on one node.
  absl::Duration mean_pause = absl::Milliseconds(20);
  // The relative weight of each action.
  std::array<double, kActions> weights = {6,   3, 6,   3,   0.5, 8,   4,   8,
                                          0.5, 1, 0.5, 0.5, 1,   0.5, 0.2, 0.2};
  // The size of the largest object; the share of objects that are too large to travel inline.
  uint64_t max_bytes = 400'000;
  double large = 0.4;
  int max_slices = 1;
  // The share of Puts and Seals that wait for adoption, and of Gets that stream later than
  // possible.
  double wait_for_adoption = 0.5;
  // The share of requests without a deadline.
  double patient = 0.5;
  absl::Duration max_timeout = absl::Seconds(5);
  // The most bytes that a writer publishes at once.
  uint64_t max_write = 100'000;
  // The share of attempts with the size and slices of the first attempt at the object, like a task
  // that runs again.
  double same_shape = 0.5;
  // The chance that the id of a deleted object is used again, instead of a new one.
  double reuse_ids = 0.5;
};

class Workload {
 public:
  // The references must outlive this. The tasks that this starts must end first.
  Workload(SimCluster& cluster, const WorkloadOptions& options, Random& random);

  // A client of node `n` acts. REQUIRES: called on the node's control loop.
  void Act(int n);

  // ---- after the storm; each acts on nodes that are up
  // All writers seal or abort.
  void FinishWriters();
  // Cancels requests that wait for memory to write, and releases views.
  void ReleaseMemory();
  // Gets each object on each node. The operations get the next numbers in the history.
  void GetEverything(absl::Duration timeout);
  // Releases views, cancels Gets, and then closes the clients.
  void CloseClients();
  // A client on node `n` puts the objects that nodes wait for in vain.
  void PutMissingObjects(int n);
  // A client on node `n` deletes each object that was ever used.
  void DeleteEverything(int n);

  const std::vector<ObjectId>& all_ids() const { return all_ids_; }

 private:
  void Execute(Action action, int n, SimClient& client);
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
  void Broadcast(SimClient& client);

  SimCluster& cluster_;
  const WorkloadOptions options_;
  Random& random_;
  std::vector<ObjectId> ids_;      // in use
  std::vector<ObjectId> all_ids_;  // ever
  struct Shape {
    uint64_t size_bytes;
    int slices;
  };
  std::map<ObjectId, Shape> shapes_;  // of the first attempt at each object
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_WORKLOAD_H_
