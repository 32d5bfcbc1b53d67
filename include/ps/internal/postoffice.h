// Postoffice: this process in its job. There is one. Any thread.
#ifndef PS_INTERNAL_POSTOFFICE_H_
#define PS_INTERNAL_POSTOFFICE_H_

#include <algorithm>
#include <functional>
#include <mutex>
#include <vector>

#include "ps/internal/customer.h"
#include "ps/internal/env.h"
#include "ps/internal/van.h"
#include "ps/range.h"

namespace ps {

// Errors are thrown as dmlc::Error, after they were printed. From the death of a process of the job
// on, all calls fail, those that wait included. The death of a server is none if all have
// KVServerDefaultHandle: its next life is waited for.
class Postoffice {
 public:
  using Callback = std::function<void()>;

  static Postoffice* Get();
  Van* van() { return &van_; }

  // Waits for all processes of the job. Each customer of a worker that calls it counts as a worker.
  void Start(int customer_id, const char* argv0, bool do_barrier);
  // With the customer 0 this process leaves the job.
  void Finalize(int customer_id, bool do_barrier = true);
  // Called once, at the end of Finalize(0).
  void RegisterExitCallback(const Callback& callback);
  // Waits until all nodes of the group have called it, or have left the job. A process of which
  // several customers have called Start waits for all of these.
  void Barrier(int customer_id, int node_group);

  // There is none with these ids.
  void AddCustomer(Customer* customer);
  void RemoveCustomer(Customer* customer);
  // Waits `timeout` seconds for it. Returns nullptr if there is none.
  Customer* GetCustomer(int app_id, int customer_id, int timeout = 0) const;

  // Of a node or a group. The processes of a group, also if several of their customers count.
  const std::vector<int>& GetNodeIDs(int node_id) const;
  // Of the servers in the order of ranks. The last one ends with kMaxKey, and has it.
  const std::vector<Range>& GetServerKeyRanges() { return KeyRanges(kMaxKey); }
  // Ids of nodes that have died. `t` has no meaning here.
  std::vector<int> GetDeadNodes(int t = 60);

  static int WorkerRankToID(int rank) { return rank * 2 + 9; }
  static int ServerRankToID(int rank) { return rank * 2 + 8; }
  static int IDtoRank(int id) { return std::max((id - 8) / 2, 0); }

  int num_workers() const;
  int num_servers() const;
  int my_rank() const { return IDtoRank(van_.my_node().id); }
  bool is_worker() const;
  bool is_server() const;
  bool is_scheduler() const;
  int verbose() const;
  // Always false: a server that takes the place of one that has died does what that one has done.
  bool is_recovery() const { return false; }

 private:
  Postoffice() = default;
  const std::vector<Range>& KeyRanges(uint64_t greatest);

  Van van_;
};

#define PS_VLOG(x) LOG_IF(INFO, (x) <= ::ps::Postoffice::Get()->verbose())

}  // namespace ps

#endif  // PS_INTERNAL_POSTOFFICE_H_
