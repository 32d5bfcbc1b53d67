// The production DirectoryCore among nodes that are a coarse model: registered, past the first
// lease, told what their owner says at the instants that it says. Counts what the core does.
// One thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_SHARD_H_
#define PHALANX_TESTS_SIMULATION_COARSE_SHARD_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/directory_core.h"

namespace phalanx::sim {

// Sees every message of the core, in order.
using OutgoingListener = std::function<void(const directory::DirectoryCore::Outgoing&)>;

class CoarseShard {
 public:
  // Nodes are numbered from 0. An empty listener is not called.
  CoarseShard(const directory::DirectoryOptions& options, int nodes, uint64_t seed = 1,
              OutgoingListener listener = {});

  // When all nodes have registered: nothing is to be told earlier.
  Instant start() const { return start_; }
  static NodeKey KeyOf(int node) { return NodeKey{static_cast<uint64_t>(node) + 1, 1}; }
  static int NodeOf(const NodeKey& key) { return static_cast<int>(key.node) - 1; }

  // The message arrives; a deadline of the core that has passed comes first.
  // REQUIRES: the core takes it.
  void Tell(int node, const v1::NodeMessage& message, Instant now);
  void NodeDown(int node, Instant now);
  void Tick(Instant now);
  std::vector<directory::DirectoryCore::Outgoing> TakeOutbox();

  const directory::DirectoryCore& core() const { return core_; }
  // Of FillStatus.
  uint64_t Counter(const char* name) const;
  // Since the last ResetCounts: messages it was told, and the time it has taken by the machine's
  // clock.
  uint64_t messages() const { return messages_; }
  absl::Duration core_time() const { return core_time_; }
  void ResetCounts();

 private:
  const Instant start_;
  const OutgoingListener listener_;
  directory::DirectoryCore core_;
  uint64_t messages_ = 0;
  absl::Duration core_time_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_TESTS_SIMULATION_COARSE_SHARD_H_
