// What one node does for reductions: computes the folds that shards place here, serves their
// outputs to the nodes above, and asks for reductions on behalf of its clients.
//
//   clients ──Reduce──►┌──────────────┐──NodeMessage──► ShardChannel
//                      │   Reducer    │◄─Fold FoldDrop FoldCommit ReduceReply ...
//   other nodes ──────►│  (target,    │──StartPull────► DataPlane     the folds below
//     pull an output   │   version)   │──StreamFold───► I/O loops     arithmetic, as bytes arrive
//                      └──────┬───────┘
//                             ▼ Store: sources, memory, and the target that a root writes
//
// A fold's output
//   one source, nothing to compute    the source's own bytes (its range), pinned
//   several inputs                    memory of its own; the first input, when it is pulled, is
//                                     pulled into it and the others are folded onto it in place
//   the root                          the target: a generation like one that a client writes, all
//                                     but the last bytes published as they are computed
// All memory of a fold is reserved before it begins; nothing is held while memory is waited for.
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
// Owned by the node.
#ifndef PHALANX_COLLECTIVES_REDUCER_H_
#define PHALANX_COLLECTIVES_REDUCER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/data_plane.h"
#include "src/object_store/reduce_verbs.h"
#include "src/object_store/shard_channel.h"
#include "src/object_store/store.h"

namespace phalanx::collectives {

struct ReducerOptions {
  NodeKey self;
  std::string name;
  // A pull that failed is tried again after so long, and after twice as long each time up to the
  // second.
  absl::Duration retry_after = absl::Milliseconds(10);
  absl::Duration retry_at_most = absl::Milliseconds(500);
  // How long a receiver is kept waiting for an output that is about to be placed here, and how many
  // are.
  absl::Duration serve_patience = absl::Milliseconds(200);
  size_t max_waiting_serves = 4096;
  // How long a fold waits for its memory before it is reported and dropped.
  absl::Duration memory_patience = absl::Seconds(1);
  // How often folds that go on say how far they are, at least; large ones say so at each eighth.
  absl::Duration progress_interval = absl::Milliseconds(250);
  // Placed here at a time.
  size_t max_folds = 1 << 16;
  // Descriptors kept in mind for shards.
  size_t max_kept = 1 << 16;
};

class Reducer final : public object_store::ReduceVerbs {
 public:
  // All of them outlive the reducer, which handles the shards' messages about reductions and
  // registers its folds at `channel`. `io` has at least one executor; folds run there.
  Reducer(ReducerOptions options, Executor& control, std::vector<Executor*> io,
          object_store::Store& store, object_store::ShardChannel& channel);
  ~Reducer() override;
  void SetDataPlane(net::DataPlane* data_plane);

  // ---- clients (ReduceVerbs)
  object_store::RequestId Reduce(object_store::ClientId client, object_store::ReduceCall call,
                                 object_store::ReduceDone done) override;
  void Extend(object_store::ClientId client, const ObjectId& target, std::vector<ObjectId> sources,
              bool close, Instant deadline, object_store::ReduceDone done) override;
  void Fail(object_store::ClientId client, const ObjectId& id, absl::Status why, Instant deadline,
            object_store::ReduceDone done) override;
  void Cancel(object_store::ClientId client, object_store::RequestId request) override;
  void ClientClosed(object_store::ClientId client) override;

  // ---- data plane
  // True: the request is for a fold's output, or may soon be, and `reply` was taken.
  bool Serve(const net::ServeRequest& request, net::DataPlane::ServeReply& reply);

  struct Stats {
    uint64_t folds = 0;          // placed here now
    uint64_t folds_done = 0;     // computed to their end, ever
    uint64_t bytes_folded = 0;   // of operands, ever
    uint64_t scratch_bytes = 0;  // held by folds now
    uint64_t waiting = 0;        // clients' requests
  };
  Stats stats() const;
  absl::Status CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCER_H_
