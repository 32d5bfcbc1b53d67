// The production DirectoryCore with nodes of a coarse model: registered, after the first lease. The
// owner delivers the nodes' messages at its own instants. Counts the work of the core. One thread.
#ifndef PHALANX_TESTS_SIMULATION_COARSE_SHARD_H_
#define PHALANX_TESTS_SIMULATION_COARSE_SHARD_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"

namespace phalanx::sim {

// Sees every message of the core, in order.
using OutgoingListener = std::function<void(const directory::DirectoryCore::Outgoing&)>;

class CoarseShard {
 public:
  // Nodes are numbered from 0. With several zones, neighbours are labelled with the same one. An
  // empty listener is not called.
  CoarseShard(const directory::DirectoryOptions& options, int nodes, uint64_t seed = 1,
              OutgoingListener listener = {}, int zones = 1);

  // The instant at which all nodes have registered. No message can be delivered earlier.
  Instant start() const { return start_; }
  static NodeKey KeyOf(int node) { return NodeKey{static_cast<uint64_t>(node) + 1, 1}; }
  static int NodeOf(const NodeKey& key) { return static_cast<int>(key.node) - 1; }

  // Delivers a message. The core first handles its deadlines that have passed. REQUIRES: the core
  // accepts the message.
  void Deliver(int node, const v1::NodeMessage& message, Instant now);
  void NodeDown(int node, Instant now);
  void Tick(Instant now);
  std::vector<directory::DirectoryCore::Outgoing> TakeOutbox();

  const directory::DirectoryCore& core() const { return core_; }
  // Returns a counter of FillStatus.
  uint64_t Counter(const char* name) const;
  // Since the last ResetCounts: the messages delivered, and the time in the core by the machine's
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
