// The seam by which a client's session reaches what reduces: implemented above this folder, by
// collectives::Reducer.
//
// Thread rule: everything, callbacks too, on the control loop; callbacks never run inside a call.
#ifndef PHALANX_OBJECT_STORE_REDUCE_VERBS_H_
#define PHALANX_OBJECT_STORE_REDUCE_VERBS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/elements.h"
#include "src/common/instant.h"
#include "src/object_store/store.h"

namespace phalanx::object_store {

struct ReduceCall {
  ObjectId target;
  std::vector<ObjectId> sources;
  ElementTypes elements;
  ReduceOp op = ReduceOp::kSum;
  // The strict left fold of `sources`, instead of the order of arrival.
  bool fixed_order = false;
  // More sources may be added by Extend.
  bool open = false;
  // How many of the sources; 0: all.
  uint32_t num_objects = 0;
  // Bytes of each source; 0 bytes: all.
  uint64_t range_offset = 0;
  uint64_t range_bytes = 0;
  // The root is computed on this node; otherwise the shard chooses.
  bool root_here = true;
  // All nodes that have sources want the result.
  bool everybody = false;
  // The target is freed when nobody holds it; the caller does already.
  bool owned = false;
  // Of the reduction as well as of the call.
  Instant deadline = Instant::Infinite();
};

using ReduceDone = absl::AnyInvocable<void(absl::Status)>;

class ReduceVerbs {
 public:
  virtual ~ReduceVerbs() = default;

  // Ends when the reduction is committed. InvalidArgument naming what does not fit, AlreadyExists
  // (another reduction, or another object, has that id), DeadlineExceeded, NotFound (the target was
  // deleted meanwhile), ResourceExhausted, or the error of the sources that failed.
  virtual RequestId Reduce(ClientId client, ReduceCall call, ReduceDone done) = 0;
  // Adds sources to an open reduction; `close`: there will be no more. NotFound,
  // FailedPrecondition, InvalidArgument, DeadlineExceeded.
  virtual void Extend(ClientId client, const ObjectId& target, std::vector<ObjectId> sources,
                      bool close, Instant deadline, ReduceDone done) = 0;
  // Who was to put the object cannot: Gets of it end with `why`, reductions do without it.
  // AlreadyExists when it is there.
  virtual void Fail(ClientId client, const ObjectId& id, absl::Status why, Instant deadline,
                    ReduceDone done) = 0;
  // The call is not called back any more; the reduction goes on.
  virtual void Cancel(ClientId client, RequestId request) = 0;
  virtual void ClientClosed(ClientId client) = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_REDUCE_VERBS_H_
