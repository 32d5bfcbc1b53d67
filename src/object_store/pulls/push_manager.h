// Decides which requests of peers are served, and how many at a time. Pure.
//
// A refusal makes the peer try another sender. Nothing is queued, so pushes cannot wait for each
// other.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_PULLS_PUSH_MANAGER_H_
#define PHALANX_OBJECT_STORE_PULLS_PUSH_MANAGER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/net/pull/pull.h"
#include "src/object_store/objects/object_table.h"

namespace phalanx::object_store {

struct PushLimits {
  int max_pushes = 1024;
};

class PushManager {
 public:
  // `table` outlives this. `self` is named in refusals.
  PushManager(NodeKey self, PushLimits limits, ObjectTable& table)
      : self_(self), limits_(limits), table_(table) {}

  // The copy to send from, pinned until End(copy). Errors:
  //   NotFound           this node has no bytes of the generation
  //   Aborted            it has bytes of another generation of the object
  //   InvalidArgument    slices that the generation does not have, or the receiver is this node
  //   ResourceExhausted  so many pushes already run
  absl::StatusOr<Copy*> Begin(const net::ServeRequest& request);
  void End(Copy* copy);

  int active() const { return active_; }

 private:
  const NodeKey self_;
  const PushLimits limits_;
  ObjectTable& table_;
  int active_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_PUSH_MANAGER_H_
