// Streams to a shard over gRPC, as a node opens them.
//
// Owned by the node, lives on its control loop; what it makes may outlive it.
#ifndef PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_
#define PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_

#include <memory>
#include <string>

#include "src/directory/message_stream.h"
#include "src/net/byte_stream.h"

namespace phalanx::directory {

// `address`: "10.77.0.1:7400" or "host.name:7400". Each stream has a channel and a connection of
// its own, which is made at once and only once: when to try again is the session's affair. An
// address that cannot be reached, or where something else than a shard answers, shows as
// Unavailable in on_closed.
std::unique_ptr<ShardConnector> NewGrpcShardConnector(net::Address address);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_
