// What surrounds the folds of one node, whatever their kind: where they have sources, memory and
// peers from, and whom they tell.
//
// Thread rule: everything on the control loop; called from within a fold's own calls.
#ifndef PHALANX_COLLECTIVES_FOLD_HOST_H_
#define PHALANX_COLLECTIVES_FOLD_HOST_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/fold_order.h"
#include "src/common/executor.h"
#include "src/common/ids.h"
#include "src/net/data_plane.h"
#include "src/object_store/store.h"

namespace phalanx::collectives {

// Of each fold of a node.
struct FoldOptions {
  NodeKey self;
  // A pull that failed is tried again after so long, and after twice as long each time.
  absl::Duration retry_after;
  absl::Duration retry_at_most;
  // How long memory is waited for.
  absl::Duration memory_patience;
};

// What a root, or a member of a ring of its slice, does not show before it is committed, if it has
// so much.
inline constexpr uint64_t kHeldBackBytes = 4096;

class FoldHost {
 public:
  virtual ~FoldHost() = default;
  virtual object_store::Store& store() = 0;
  // The store's client that holds what folds hold.
  virtual object_store::ClientId client() = 0;
  // Keeps a pin of that client's until the last reference goes, on the control loop.
  virtual std::shared_ptr<void> Hold(object_store::PinId pin) = 0;
  virtual net::DataPlane& data_plane() = 0;
  virtual Executor& NextIo() = 0;
  virtual void Report(const FoldOrder& order, v1::FoldReport report) = 0;
  // So many bytes of operands were folded; `done`: the fold is computed to its end.
  virtual void Folded(uint64_t bytes, bool done) = 0;
  // Of a root: the result is sealed on this node, and committed.
  virtual void Sealed(const FoldOrder& order) = 0;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_HOST_H_
