// Scripted scenarios: a few verbs over a simulated cluster, so that a test reads as what happened.
// Every step is watched by the same checkers as the random runs; what they find fails the test.
//
// All links are alike, nothing is drawn: a story is the same every time. Testonly; on the test's
// thread, owned by the test.
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
#include "src/sim/checkers.h"
#include "src/sim/sim_cluster.h"

namespace phalanx::sim {

class Story {
 public:
  // Nodes 0, 1, ... with interfaces of 10 MB/s, one shard, a lease of one second.
  explicit Story(int nodes);

  SimCluster& cluster() { return cluster_; }

  // ---- what clients ask; node `n`'s client asks, the number is the operation's (0 if the test has
  // failed meanwhile). REQUIRES: a Put of at most 1 MiB.
  uint64_t StartPut(int n, absl::string_view name, uint64_t bytes);
  uint64_t StartGet(int n, absl::string_view name);
  uint64_t StartStream(int n, absl::string_view name);
  uint64_t StartDelete(int n, absl::string_view name);
  // A writer on node `n` that has been granted its memory and has published `bytes` of `size`.
  void StartWriting(int n, absl::string_view name, uint64_t size, uint64_t bytes);
  // Time passes until it is answered: how. A minute is a failure.
  absl::Status Await(uint64_t operation);
  // All of them, expected to be OK.
  void AwaitAll(const std::vector<uint64_t>& operations);
  // The same, started and awaited, expected to be OK.
  void Put(int n, absl::string_view name, uint64_t bytes);
  void Delete(int n, absl::string_view name);
  // The number of the attempt whose bytes a Get saw.
  uint64_t Seen(uint64_t get) { return cluster_.history().operation(get).attempt; }
  // The one client of a node; it opens when first asked for, and dies with its node.
  SimClient& ClientOf(int n);

  // ---- time
  void Pass(absl::Duration time);
  // A minute is a failure.
  void Until(absl::FunctionRef<bool()> done);
  // Comes to rest: the directory lists exactly what there is, nothing is in flight.
  void ComeToRest();

  // ---- looking
  // Bytes of the object's copy on node `n`.
  uint64_t Has(int n, absl::string_view name);
  // Who is being fed by node `n`.
  std::vector<int> FedBy(int n, absl::string_view name);
  // A node but `writer` that feeds another one; -1 if there is none.
  int Relay(int writer, absl::string_view name);
  // Bytes that other nodes have sent to node `n`.
  uint64_t SentTo(int n);

 private:
  uint64_t Ask(int n, const std::function<uint64_t(SimClient&)>& ask);

  SimCluster cluster_;
  Checkers checkers_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_STORY_H_
