// The one port of a shard: nodes' streams go to the shard, tools' HTTP/2 to gRPC.
//
//   listener ──► unclassified ──┬─ kStreamPreamble ─► NewByteShardStream ─► Shard::Accept
//                connection     └─ "PRI "          ─► GrpcDirectoryServer (tools, and streams
//                                                     over gRPC)
//
// A connection is unclassified until its first four bytes have arrived. It must send them within
// kClassificationTimeout. If there are more than kMaxUnclassifiedConnections, the oldest is closed.
// A connection with other first bytes is closed, and so is one for gRPC if gRPC already has
// kMaxGrpcConnections. The shard and gRPC check the secret of each connection that they get.
//
// Thread rule: created and destroyed while the executor does not run, or on it; otherwise used only
// on the loop. The executor is an EventLoop. Owned by the daemon.
#ifndef PHALANX_DIRECTORY_GRPC_PORT_MULTIPLEXER_H_
#define PHALANX_DIRECTORY_GRPC_PORT_MULTIPLEXER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/common/time/executor.h"
#include "src/common/time/instant.h"
#include "src/directory/grpc/directory_server.h"
#include "src/directory/session/shard.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::directory {

inline constexpr size_t kMaxUnclassifiedConnections = 1024;
inline constexpr absl::Duration kClassificationTimeout = absl::Seconds(10);
// One for each stream of a shard, and room for tools.
inline constexpr size_t kMaxGrpcConnections = kMaxStreams + 1024;

class PortMultiplexer {
 public:
  // Serves `shard`, which lives on `executor`, from the next turn on. Errors: FailedPrecondition
  // for an address beyond loopback without a secret, InvalidArgument for one that does not parse or
  // is not this host's, AlreadyExists for a port in use, ResourceExhausted if gRPC does not start.
  // Shard and network must outlive the multiplexer.
  static absl::StatusOr<std::unique_ptr<PortMultiplexer>> Listen(
      const net::Address& address, Executor& executor, net::TcpNetwork& network, Shard& shard,
      size_t max_grpc_connections = kMaxGrpcConnections);
  // The shard's streams stay; gRPC's connections end.
  ~PortMultiplexer();
  PortMultiplexer(const PortMultiplexer&) = delete;
  PortMultiplexer& operator=(const PortMultiplexer&) = delete;

  // The address with the port that the system chose.
  const net::Address& address() const { return address_; }
  // The number of connections whose first four bytes have not arrived.
  size_t unclassified_connections() const { return unclassified_.size(); }

 private:
  struct UnclassifiedConnection {
    std::unique_ptr<net::ByteStream> bytes;
    std::string read;
    TimerId timer = 0;
  };

  // A connection that was passed to gRPC. A cookie identifies a socket; a descriptor can be reused.
  struct GrpcConnection {
    int descriptor;
    uint64_t cookie;
  };

  PortMultiplexer(Executor& executor, Shard& shard, std::unique_ptr<GrpcDirectoryServer> tools,
                  size_t max_grpc_connections);
  void Receive(std::unique_ptr<net::ByteStream> bytes);
  void AwaitPreamble(uint64_t number);
  void ReadPreamble(uint64_t number);
  void Dispatch(UnclassifiedConnection connection);
  void PassToGrpc(UnclassifiedConnection connection);
  bool GrpcHasRoom();
  UnclassifiedConnection Remove(uint64_t number);

  // Set to null at the end, because the executor can still have the task of a new connection.
  const std::shared_ptr<PortMultiplexer*> self_ = std::make_shared<PortMultiplexer*>(this);
  Executor& executor_;
  Shard& shard_;
  const std::unique_ptr<GrpcDirectoryServer> tools_;
  const size_t max_grpc_connections_;
  net::Address address_;
  std::vector<GrpcConnection> grpc_connections_;  // ended ones are removed when there is no room
  Instant next_check_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, UnclassifiedConnection> unclassified_;  // in the order of their arrival
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_PORT_MULTIPLEXER_H_
