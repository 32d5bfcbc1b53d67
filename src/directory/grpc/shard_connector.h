// Streams to a shard over gRPC, for nodes.
//
// Owned by the node, lives on its control loop; its streams can outlive it.
#ifndef PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_
#define PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_

#include <memory>
#include <string>

#include "src/directory/session/message_stream.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::directory {

// `address`: "10.77.0.1:7400" or "host.name:7400". Each stream has a channel and a connection of
// its own. A stream connects at once and only once; the session decides when to retry. If the
// address cannot be reached, or if another program answers there, on_closed gets Unavailable.
std::unique_ptr<ShardConnector> NewGrpcShardConnector(net::Address address);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_SHARD_CONNECTOR_H_
