// Which of this node's clients hold which open reductions open. An open reduction ends when no
// client is left, on any node, that can close it (docs/protocol.md): one that has requested it or
// added to it. Each such client holds the id OpenHoldOf(target) in the store, so the shard learns
// of the last one's end as it learns of any hold's.
//
//   Begin ──► a call is unanswered ──Ended, Cancelled──► holds ──► Over, ClientClosed
//                   └──── Ended: refused, or the reduction is over ──────► lets go
//
// Owned by the reducer. Thread rule: the control loop.
#ifndef PHALANX_COLLECTIVES_REDUCER_OPEN_REDUCTIONS_H_
#define PHALANX_COLLECTIVES_REDUCER_OPEN_REDUCTIONS_H_

#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

class OpenReductions {
 public:
  // `store` outlives this.
  OpenReductions(object_store::Store& store, int num_shards)
      : store_(store), num_shards_(num_shards) {}

  // The client is about to request the reduction, or to add to it. The client holds it open from
  // now on. Errors as Store::Hold.
  absl::Status Begin(object_store::ClientId client, const ObjectId& target);
  // A call that has begun has ended. `holds`: the reduction is open, and the client can close it.
  void Ended(object_store::ClientId client, const ObjectId& target, bool holds);
  // The reduction was closed, or is over. The clients let go, except those with unanswered calls,
  // which can be about a later reduction of the target.
  void Over(const ObjectId& target);
  // The store ends the holds themselves.
  void ClientClosed(object_store::ClientId client) { clients_.erase(client); }

 private:
  struct Interest {
    size_t calls = 0;    // unanswered
    bool holds = false;  // by a call that has ended
  };
  using Interests = std::map<ObjectId, Interest>;

  void LetGoIfDone(object_store::ClientId client, Interests& of_client, Interests::iterator it);

  object_store::Store& store_;
  const int num_shards_;
  std::map<object_store::ClientId, Interests> clients_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCER_OPEN_REDUCTIONS_H_
