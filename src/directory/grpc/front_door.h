// The one port of a shard: nodes' streams go to the shard, tools' HTTP/2 to gRPC.
//
//   listener ──► visitor ──┬─ kStreamPreamble ─► NewByteShardStream ─► Shard::Accept
//                          └─ "PRI "          ─► GrpcDirectoryServer (tools, and streams over gRPC)
//
// A visitor is a connection of which fewer than four bytes have come. It has kVisitorPatience; of
// more than kMaxVisitors the oldest goes. What begins otherwise is closed, and so is who comes to
// gRPC when that has kMaxGrpcConnections. Whoever is let in shows the secret there, as behind any
// other door.
//
// Thread rule: made and destroyed while the executor does not run, or on it; in between loop only.
// The executor is an EventLoop. Owned by the daemon.
#ifndef PHALANX_DIRECTORY_GRPC_FRONT_DOOR_H_
#define PHALANX_DIRECTORY_GRPC_FRONT_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "src/common/executor.h"
#include "src/common/instant.h"
#include "src/directory/grpc/directory_server.h"
#include "src/directory/shard.h"
#include "src/net/byte_stream.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::directory {

inline constexpr size_t kMaxVisitors = 1024;
inline constexpr absl::Duration kVisitorPatience = absl::Seconds(10);
// As many nodes as a shard has streams, and tools.
inline constexpr size_t kMaxGrpcConnections = kMaxStreams + 1024;

class FrontDoor {
 public:
  // Serves `shard`, which lives on `executor`, from the next turn on. FailedPrecondition for an
  // address beyond loopback without a secret, InvalidArgument for one that does not parse or is not
  // this host's, AlreadyExists for a port that is in use, ResourceExhausted when gRPC does not
  // start. Shard and network outlive the door.
  static absl::StatusOr<std::unique_ptr<FrontDoor>> Listen(
      const net::Address& address, Executor& executor, net::TcpNetwork& network, Shard& shard,
      size_t max_grpc_connections = kMaxGrpcConnections);
  // Streams that were let in stay, gRPC's end.
  ~FrontDoor();
  FrontDoor(const FrontDoor&) = delete;
  FrontDoor& operator=(const FrontDoor&) = delete;

  // With the real port.
  const net::Address& address() const { return address_; }
  // Connections of which it is not known yet what they are.
  size_t visitors() const { return visitors_.size(); }

 private:
  struct Visitor {
    std::unique_ptr<net::ByteStream> bytes;
    std::string read;
    TimerId timer = 0;
  };

  // A connection that gRPC has been given. Sockets have cookies of their own, descriptors do not.
  struct Given {
    int descriptor;
    uint64_t cookie;
  };

  FrontDoor(Executor& executor, Shard& shard, std::unique_ptr<GrpcDirectoryServer> tools,
            size_t max_grpc_connections);
  void Receive(std::unique_ptr<net::ByteStream> bytes);
  void Await(uint64_t number);
  void Look(uint64_t number);
  void LetIn(Visitor visitor);
  void GiveToGrpc(Visitor visitor);
  bool GrpcHasRoom();
  Visitor Dismiss(uint64_t number);

  // Emptied at the end: a connection may still be on its way to the executor.
  const std::shared_ptr<FrontDoor*> self_ = std::make_shared<FrontDoor*>(this);
  Executor& executor_;
  Shard& shard_;
  const std::unique_ptr<GrpcDirectoryServer> tools_;
  const size_t max_grpc_connections_;
  net::Address address_;
  std::vector<Given> given_;  // those that ended since are struck when there is no room
  Instant look_again_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, Visitor> visitors_;  // by the order in which they came
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_FRONT_DOOR_H_
