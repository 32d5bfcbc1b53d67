#include "src/sim/seams/sim_message_stream.h"

#include <utility>

#include "src/directory/session/byte_message_stream.h"

namespace phalanx::sim {

std::unique_ptr<directory::ShardConnector> NewSimShardConnector(net::Network& network,
                                                                net::Address address) {
  return directory::NewByteShardConnector(network, std::move(address));
}

absl::StatusOr<std::unique_ptr<net::Listener>> ListenForSimShardStreams(net::Network& network,
                                                                        Executor& executor,
                                                                        const net::Address& address,
                                                                        AcceptShardStream accept) {
  return network.Listen(
      executor, address, [&executor]() -> Executor& { return executor; },
      [accept = std::move(accept)](Executor& owner,
                                   std::unique_ptr<net::ByteStream> bytes) mutable {
        accept(directory::NewByteShardStream(owner, std::move(bytes), /*already_read=*/""));
      });
}

}  // namespace phalanx::sim
