// Tries, when a shard asks, which peers this node reaches. Each peer gets a new connection, with
// its handshake, which is kept for later pulls.
//
//   shard ──Probe──► ConnectionProber ── pulls that only connect ──► DataPlane
//         ◄──ProbeReport──┘  the peers that failed, or were not connected in time
//
// The time is shorter than the one after which a pull is reported as not connected. The shard then
// knows the result before it has to find a way around the second unreachable peer.
//
// Thread rule: the control loop only. Owned by PullRunner.
#ifndef PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_
#define PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "phalanx/v1/reachability.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

class ConnectionProber {
 public:
  // `connect_patience` as in StoreOptions. All of them outlive this.
  ConnectionProber(NodeKey self, absl::Duration connect_patience, Executor& executor, Turns& turns,
                   ShardChannel& channel);
  // Cancels what runs.
  ~ConnectionProber();
  void SetDataPlane(net::DataPlane* data_plane) { data_plane_ = data_plane; }

  // Malformed peers are skipped, and those that are being tried for this shard.
  void OnProbe(int shard, const v1::Probe& probe);
  // Gives up the connections that are due, and reports them.
  void Expire(Instant now);
  Instant NextDeadline() const;

 private:
  struct Dial {
    Instant due;
    net::DataPlane::PullHandle handle;
  };

  void OnConnected(int shard, const NodeKey& peer, Instant due, const absl::Status& status);
  static void AddUnreached(const NodeKey& peer, absl::StatusCode code, v1::NodeMessage& to);

  const NodeKey self_;
  const absl::Duration patience_;
  Executor& executor_;
  Turns& turns_;
  ShardChannel& channel_;
  net::DataPlane* data_plane_ = nullptr;
  std::map<std::pair<int, NodeKey>, Dial> dialing_;  // by shard and peer
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_
