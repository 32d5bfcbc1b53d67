// The names from which a client has derived ids. Requests send them to the node, which keeps them
// with the objects, and errors show them.
//
// Keeps the last kMaxNames names. Owned by a connection. Any thread; the lock is a leaf: it can be
// taken with the connection's lock held.
#ifndef PHALANX_CLIENT_CONNECTION_NAME_TABLE_H_
#define PHALANX_CLIENT_CONNECTION_NAME_TABLE_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/object_name.h"
#include "src/common/threads/mutex.h"

namespace phalanx::internal {

class NameTable {
 public:
  // About 10 MB of names of usual length.
  static constexpr size_t kMaxNames = 1 << 16;

  // Returns the id of the name, and remembers the name unless it cannot be kept (ObjectName::Of).
  ObjectId Derive(absl::string_view name_space, absl::string_view name);
  // What the name is needed for has ended.
  void Forget(const ObjectId& id);
  // Returns no name if this client has not derived the id, or has forgotten it.
  ObjectName Find(const ObjectId& id) const;
  // Returns the error with "NAME" before each id whose name is known: "Get of 5f..e0 at" becomes
  // "Get of "job/7" (5f..e0) at". Does nothing to an id that has its name already.
  absl::Status WithNames(const absl::Status& status) const;
  size_t size() const;

 private:
  struct Entry {
    ObjectName name;
    std::list<ObjectId>::iterator place;  // in oldest_first_
  };

  // Nearly all ids of many clients are random: their calls take no lock.
  bool empty() const { return !any_.load(std::memory_order_acquire); }

  std::atomic<bool> any_{false};
  mutable Mutex mu_;
  absl::flat_hash_map<ObjectId, Entry> names_ ABSL_GUARDED_BY(mu_);
  std::list<ObjectId> oldest_first_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_NAME_TABLE_H_
