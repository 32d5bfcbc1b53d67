// One node's part in reductions: computes the folds that shards place here, serves their outputs to
// the nodes above, and requests reductions for its clients.
//
//   clients ──Reduce──►┌──────────────┐──NodeMessage──► ShardChannel
//                      │   Reducer    │◄─Fold FoldDrop FoldCommit ReduceReply ...
//   other nodes ──────►│  (target,    │──StartPull────► DataPlane     the folds below
//     pull an output   │   version)   │──StreamFold───► I/O loops     arithmetic, as bytes arrive
//                      └──────┬───────┘
//                             ▼ Store: sources, memory, and the target that a root writes
//
// A fold's output
//   one source, nothing to compute    the source's own bytes, pinned
//   several inputs                    memory of its own; an input that is pulled is pulled into it
//                                     and the others are folded onto it in place
//   the root                          the target: a generation like one that a client writes, all
//                                     but the last bytes published as they are computed
// All memory of a fold is reserved before the fold begins; a fold that waits for memory holds none.
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
// Owned by the node.
#ifndef PHALANX_COLLECTIVES_REDUCER_REDUCER_H_
#define PHALANX_COLLECTIVES_REDUCER_REDUCER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/reducer/reduce_requests.h"
#include "src/common/ids/ids.h"
#include "src/common/reduce_spec.h"
#include "src/common/time/executor.h"
#include "src/net/plane/data_plane.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives {

struct ReducerOptions {
  NodeKey self;
  std::string name;
  // How long a receiver is kept waiting for an output that is about to be placed here, and how many
  // are.
  absl::Duration serve_patience = absl::Milliseconds(200);
  size_t max_waiting_serves = 4096;
  // A fold that waits longer for its memory is reported and dropped.
  absl::Duration memory_patience = absl::Seconds(1);
  // A sender that has not been connected to for so long is reported, while the fold waits on.
  absl::Duration connect_patience = absl::Milliseconds(250);
};

class Reducer {
 public:
  // All of them outlive the reducer, which handles the shards' messages about reductions and
  // registers its folds at `channel`. `io` has at least one executor; folds run there.
  Reducer(ReducerOptions options, Executor& control, std::vector<Executor*> io,
          object_store::Store& store, object_store::ShardChannel& channel);
  ~Reducer();
  void SetDataPlane(net::DataPlane* data_plane);

  // ---- clients
  // Ends when the reduction is committed. InvalidArgument naming what does not fit, AlreadyExists
  // (another reduction, or another object, has that id), DeadlineExceeded, NotFound (the target was
  // deleted meanwhile), ResourceExhausted, or the error of the sources that failed. `deadline` is
  // the reduction's as well as the call's.
  object_store::RequestId Reduce(object_store::ClientId client, const ReduceTarget& target,
                                 const ReduceSpec& spec, Instant deadline, ReduceDone done);
  // Adds sources to an open reduction; `close`: there will be no more. NotFound,
  // FailedPrecondition, InvalidArgument, DeadlineExceeded.
  void Extend(object_store::ClientId client, const ObjectId& target,
              const std::vector<ObjectId>& sources, bool close, Instant deadline, ReduceDone done);
  // The object will not be put: Gets of it end with `why`, reductions do without it. AlreadyExists
  // if it exists.
  void Fail(object_store::ClientId client, const ObjectId& id, const absl::Status& why,
            Instant deadline, ReduceDone done);
  // `done` of the call is not called any more; the reduction continues.
  void Cancel(object_store::ClientId client, object_store::RequestId request);
  void ClientClosed(object_store::ClientId client);

  // ---- data plane
  // True: the request is for a fold's output, or may soon be, and `reply` was taken.
  bool Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply);

  struct Stats {
    uint64_t folds = 0;          // placed here now
    uint64_t folds_done = 0;     // computed to their end since the start
    uint64_t bytes_folded = 0;   // of operands since the start
    uint64_t scratch_bytes = 0;  // held by folds now
    uint64_t waiting = 0;        // calls of clients now
  };
  Stats stats() const;
  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCER_REDUCER_H_
