// Serves this node's copies to peers. A request for an object that this node is about to have waits
// until the object begins here, `serve_patience` at most: a shard names a node as a relay as soon
// as it has assigned the node a sender, so the next receiver can ask before the relay has memory.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_PULLS_PEER_SERVER_H_
#define PHALANX_OBJECT_STORE_PULLS_PEER_SERVER_H_

#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/pulls/push_manager.h"
#include "src/object_store/pulls/serve_waitlist.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

class PeerServer {
 public:
  // All of them outlive this.
  PeerServer(const StoreOptions& options, Executor& executor, Turns& turns, RequestTable& requests,
             ObjectTable& table, const PullManager& pulls);

  // What can be served now; errors as PushManager::Begin.
  absl::StatusOr<net::ServeGrant> Serve(const net::ServeRequest& request);
  // The same, now or later.
  void Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply);
  // A copy of the object has begun here: answers the receivers that wait for it.
  void OnBegun(const ObjectId& id) { Answer(id, /*expired=*/0); }

  int active() const { return pushes_.active(); }
  absl::Status CheckInvariants() const { return waiting_.CheckInvariants(); }

 private:
  void Answer(const ObjectId& id, uint64_t expired);

  const absl::Duration patience_;
  Executor& executor_;
  Turns& turns_;
  RequestTable& requests_;
  ObjectTable& table_;
  const PullManager& pulls_;
  PushManager pushes_;
  ServeWaitlist waiting_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PEER_SERVER_H_
