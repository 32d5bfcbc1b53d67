// A ShardConnector that tells the journal every message that a node and a shard send each other,
// for whoever looks into one run. Testonly.
#ifndef PHALANX_SIM_TRACING_CONNECTOR_H_
#define PHALANX_SIM_TRACING_CONNECTOR_H_

#include <memory>
#include <string>

#include "src/directory/message_stream.h"
#include "src/sim/history.h"

namespace phalanx::sim {

// `who` stands at the beginning of each line. `history` outlives it.
std::unique_ptr<directory::ShardConnector> NewTracingConnector(
    std::unique_ptr<directory::ShardConnector> connector, std::string who, History& history);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_TRACING_CONNECTOR_H_
