// Scripted scenarios: a few verbs over a simulated cluster, so that a test reads as a sequence of
// events. The checkers of the random runs watch every step; a violation fails the test.
//
// All links are equal and nothing is random: a story is the same in every run. Testonly; on the
// test's thread, owned by the test.
#ifndef PHALANX_TESTS_SIMULATION_STORY_H_
#define PHALANX_TESTS_SIMULATION_STORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/sim/cluster/checkers.h"
#include "src/sim/cluster/sim_cluster.h"

namespace phalanx::sim {

class Story {
 public:
  // Nodes 0, 1, ... with interfaces of 10 MB/s, one shard, a lease of one second.
  explicit Story(int nodes);

  SimCluster& cluster() { return cluster_; }

  // ---- requests; node `n`'s client sends them, and the result is the operation's number (0 if the
  // test has failed already). REQUIRES: a Put of at most 1 MiB.
  uint64_t StartPut(int n, absl::string_view name, uint64_t bytes);
  uint64_t StartGet(int n, absl::string_view name);
  uint64_t StartStream(int n, absl::string_view name);
  uint64_t StartDelete(int n, absl::string_view name);
  // Starts a writer on node `n`, awaits its memory, and publishes `bytes` of `size`.
  void StartWriting(int n, absl::string_view name, uint64_t size, uint64_t bytes);
  // Lets time pass until the operation is answered, and returns its status. Fails after a minute.
  absl::Status Await(uint64_t operation);
  // Awaits all of them, and expects OK.
  void AwaitAll(const std::vector<uint64_t>& operations);
  // Starts and awaits a Put, and expects OK.
  void Put(int n, absl::string_view name, uint64_t bytes);
  void Delete(int n, absl::string_view name);
  // Returns the number of the attempt whose bytes a Get saw.
  uint64_t Seen(uint64_t get) { return cluster_.history().operation(get).attempt; }
  // Returns the one client of a node. It opens at the first call, and dies with its node.
  SimClient& ClientOf(int n);

  // ---- time
  void Pass(absl::Duration time);
  // Fails after a minute.
  void Until(absl::FunctionRef<bool()> done);
  // Lets the cluster come to rest: the directory lists exactly the existing copies, nothing is in
  // flight.
  void Settle();

  // ---- inspection
  // Returns the number of bytes of the object's copy on node `n`.
  uint64_t Has(int n, absl::string_view name);
  // Returns the receivers of node `n`.
  std::vector<int> FedBy(int n, absl::string_view name);
  // Returns a node other than `writer` that feeds another one; -1 if there is none.
  int Relay(int writer, absl::string_view name);
  // Returns the number of bytes that other nodes have sent to node `n`.
  uint64_t SentTo(int n);

 private:
  uint64_t StartRequest(int n, const std::function<uint64_t(SimClient&)>& request);

  SimCluster cluster_;
  Checkers checkers_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_STORY_H_
