// Tries, when a shard asks, which peers this node reaches. Each peer gets a new connection, with
// its handshake, which is kept for later pulls.
//
//   shard ──Probe──► ConnectionProber ── pulls that only connect ──► DataPlane
//         ◄──ProbeReport──┘  the peers that failed, or were not connected in time
//
// The dial and the handshake have a time each, a little shorter than the one after which a pull is
// reported as not connected. The shard then knows the result before it has to find a way around the
// second unreachable peer. At most kMaxProbedPeers are tried at a time: others are not reported.
//
// Thread rule: the control loop only. Owned by PullRunner.
#ifndef PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_
#define PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_

#include <cstdint>
#include <map>
#include <memory>
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
    Instant due;  // when it is looked at
    uint64_t serial;
    net::DataPlane::PullHandle handle;
    std::shared_ptr<net::PullProgress> progress;
  };

  void OnConnected(int shard, const NodeKey& peer, uint64_t serial, const absl::Status& status);
  static void AddUnreached(const NodeKey& peer, absl::StatusCode code, v1::NodeMessage& to);

  const NodeKey self_;
  const absl::Duration patience_;
  Executor& executor_;
  Turns& turns_;
  ShardChannel& channel_;
  net::DataPlane* data_plane_ = nullptr;
  std::map<std::pair<int, NodeKey>, Dial> dialing_;  // by shard and peer
  uint64_t next_serial_ = 1;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_CONNECTION_PROBER_H_
