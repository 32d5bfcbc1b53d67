// Control streams over the simulated network: the production streams of
// directory/byte_message_stream.h, so that cuts, delays, half-open connections and short reads
// reach them and the sessions above them.
//
// Deterministic. Testonly.
#ifndef PHALANX_SIM_SEAMS_SIM_MESSAGE_STREAM_H_
#define PHALANX_SIM_SEAMS_SIM_MESSAGE_STREAM_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "src/common/time/executor.h"
#include "src/directory/session/message_stream.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::sim {

// Opens streams to the shard that listens on `address`. `network` must outlive it.
std::unique_ptr<directory::ShardConnector> NewSimShardConnector(net::Network& network,
                                                                net::Address address);

// Accepts nodes' streams on `executor` until the listener is destroyed; accepted streams stay open.
// Errors are those of Network::Listen.
using AcceptShardStream = absl::AnyInvocable<void(std::unique_ptr<directory::ShardStream>)>;
absl::StatusOr<std::unique_ptr<net::Listener>> ListenForSimShardStreams(net::Network& network,
                                                                        Executor& executor,
                                                                        const net::Address& address,
                                                                        AcceptShardStream accept);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SEAMS_SIM_MESSAGE_STREAM_H_
