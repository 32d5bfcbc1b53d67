// Receivers that asked for an object before its bytes begin here: each waits until the bytes begin,
// or until the patience of its request is over. A shard can name this node as a sender as soon as
// the shard has ordered the pull or the fold, so a receiver can arrive before the memory does.
// Pure: the owner sets the timers and answers.
//
// Thread rule: no thread, lock, clock or I/O inside; the control loop only. Owned by the store (for
// copies) and by the reducer (for outputs of folds).
#ifndef PHALANX_OBJECT_STORE_PULLS_SERVE_WAITLIST_H_
#define PHALANX_OBJECT_STORE_PULLS_SERVE_WAITLIST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/net/plane/data_plane.h"

namespace phalanx::object_store {

class ServeWaitlist {
 public:
  struct Waiting {
    uint64_t serial = 0;
    net::ServeRequest request;
    net::DataPlane::ServeReply reply;
  };

  // At most `max_waiting` receivers wait at a time.
  explicit ServeWaitlist(size_t max_waiting) : max_waiting_(max_waiting) {}

  bool full() const { return size_ >= max_waiting_; }
  size_t size() const { return size_; }

  // REQUIRES: !full(), and `serial` is not 0 and was not used before.
  void Add(uint64_t serial, const net::ServeRequest& request, net::DataPlane::ServeReply reply);
  // Removes the receivers of `object` whose requests are `ready`, and the one whose patience is
  // over (`expired`; 0: none). Returns them in the order in which they came. The caller answers
  // each of them.
  std::vector<Waiting> Take(const ObjectId& object, uint64_t expired,
                            absl::FunctionRef<bool(const net::ServeRequest&)> ready);

  // OK, or Internal with what is wrong.
  absl::Status CheckInvariants() const;

 private:
  const size_t max_waiting_;
  std::map<ObjectId, std::vector<Waiting>> by_object_;  // no empty lists
  size_t size_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_PULLS_SERVE_WAITLIST_H_
