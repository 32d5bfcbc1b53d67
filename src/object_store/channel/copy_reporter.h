// What the node reports to a shard about one of its copies, besides pulls: it begins, is complete,
// is withdrawn, is asked to be evicted, is registered.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_COPY_REPORTER_H_
#define PHALANX_OBJECT_STORE_CHANNEL_COPY_REPORTER_H_

#include <string>

#include "absl/status/status.h"
#include "phalanx/scope.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/time/executor.h"
#include "src/object_store/channel/hold_reporter.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/objects/object_table.h"

namespace phalanx::object_store {

class CopyReporter {
 public:
  // All outlive this.
  CopyReporter(const Executor& executor, ShardChannel& channel, HoldReporter& holds)
      : executor_(executor), channel_(channel), holds_(holds) {}

  // `bytes` of a complete copy travel inline if there are few enough of them. `version`: of what a
  // reduction's root computes.
  void AnnounceCreate(const Copy& copy, std::string bytes, const SlotVersion& version = {});
  void AnnounceSeal(const Copy& copy);
  void Withdraw(const ObjectId& id, const Generation& generation, const absl::Status& why);
  void RequestEviction(const Copy& copy);
  void ReportComplete(const Copy& copy, PlanId plan);
  void ConfirmScope(int shard, const Scope& scope);
  int ShardOf(const ObjectId& id) const { return channel_.ShardOf(id); }
  void ConfirmDelete(const ObjectId& id, const Generation& generation);
  // The generation was deleted, which the shard does not know.
  void ReportDeleted(const ObjectId& id, const Generation& generation);

  // Everything about the copy but a sticky mark and the sender of a pull, with the time to live
  // that is left now.
  v1::RegisterCopy Registration(const Copy& copy) const;

 private:
  const Executor& executor_;
  ShardChannel& channel_;
  HoldReporter& holds_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_COPY_REPORTER_H_
