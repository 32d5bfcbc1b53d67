// A ShardConnector that writes every message between a node and a shard to the journal, to debug
// one run. Testonly.
#ifndef PHALANX_SIM_CLUSTER_TRACING_CONNECTOR_H_
#define PHALANX_SIM_CLUSTER_TRACING_CONNECTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/directory/session/message_stream.h"
#include "src/sim/cluster/history.h"

namespace phalanx::sim {

struct Trace {
  // The prefix of each line.
  std::string prefix;
  // Whether messages are written to the journal.
  bool to_journal = false;
  // Called with every message that the node sends; may be empty.
  std::function<void(const v1::NodeMessage&)> on_sent;
  // Called with every message that arrives for the node, and its number; may be empty.
  std::function<void(uint64_t sequence, const v1::ShardMessage&)> on_received;
};

// `history` must outlive it.
std::unique_ptr<directory::ShardConnector> NewTracingConnector(
    std::unique_ptr<directory::ShardConnector> connector, Trace trace, History& history);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_TRACING_CONNECTOR_H_
