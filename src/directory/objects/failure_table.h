// The ids whose producers reported that they will never be put, with the error that Gets and
// reductions are given.
//
// Bounded by options.max_failed, the oldest forgotten first. Owned by DirectoryCore. Thread rule:
// the shard's control loop.
#ifndef PHALANX_DIRECTORY_OBJECTS_FAILURE_TABLE_H_
#define PHALANX_DIRECTORY_OBJECTS_FAILURE_TABLE_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/directory/core/core_context.h"

namespace phalanx::directory {

class FailureTable {
 public:
  explicit FailureTable(CoreContext& context) : context_(context) {}

  // Replaces the error of an earlier report.
  void Set(const ObjectId& id, absl::Status why) {
    Erase(id);
    Failure& failure = failed_[id];
    failure.why = std::move(why);
    failure.order = context_.NewOrder();
    by_age_[failure.order] = id;
    if (failed_.size() > context_.options.max_failed) Erase(ObjectId(by_age_.begin()->second));
  }
  void Erase(const ObjectId& id) {
    const auto found = failed_.find(id);
    if (found == failed_.end()) return;
    by_age_.erase(found->second.order);
    failed_.erase(found);
  }
  // Returns nullptr if no failure of the id is known.
  const absl::Status* Find(const ObjectId& id) const {
    if (failed_.empty()) return nullptr;
    const auto found = failed_.find(id);
    return found == failed_.end() ? nullptr : &found->second.why;
  }
  absl::Status CheckInvariants() const {
    return failed_.size() == by_age_.size() ? absl::OkStatus()
                                            : absl::InternalError("failed ids are miscounted");
  }

 private:
  struct Failure {
    absl::Status why;
    uint64_t order = 0;
  };

  CoreContext& context_;
  absl::btree_map<ObjectId, Failure> failed_;
  std::map<uint64_t, ObjectId> by_age_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_FAILURE_TABLE_H_
