// What the shard reports to the tools: one object, a page of objects, and its counters. Reads the
// components and changes nothing; every answer is bounded and says what it left out.
#ifndef PHALANX_DIRECTORY_CORE_STATUS_REPORT_H_
#define PHALANX_DIRECTORY_CORE_STATUS_REPORT_H_

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/time/instant.h"
#include "src/directory/core/status_counters.h"
#include "src/directory/deletions/delete_waits.h"
#include "src/directory/jobs/job_manager.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/pull_scheduler.h"
#include "src/directory/reductions/reduction_manager.h"

namespace phalanx::directory {

class StatusReport {
 public:
  // What the report reads; all of it outlives it.
  struct Parts {
    const CoreContext& context;
    const NodeTable& nodes;
    const HoldSets& holds;
    const TombstoneTable& tombstones;
    const DeleteWaits& delete_waits;
    const InlineCache& inline_cache;
    const PlacementTable& placements;
    const ObjectTable& objects;
    const PullScheduler& pulls;
    const ReductionManager& reductions;
    const JobManager& jobs;
  };

  explicit StatusReport(const Parts& parts) : parts_(parts) {}

  // NotFound if nothing is known of the id.
  absl::Status Describe(const ObjectId& id, Instant now, v1::DescribeObjectResponse* out) const;
  // InvalidArgument if after_object_id is not an id.
  absl::Status List(const v1::ListObjectsRequest& request, Instant now,
                    v1::ListObjectsResponse* out) const;
  void FillStatus(Instant now, v1::GetStatusResponse* out) const;

 private:
  void Summarize(const Object& object, Instant now, v1::ObjectSummary* out) const;
  void Summarize(const Tombstone& tombstone, Instant now, v1::ObjectSummary* out) const;
  void DescribeCopy(const Object& object, const NodeKey& key, const Copy& copy, Instant now,
                    v1::CopyDescription* out) const;
  // The names of the objects in the description.
  void AddNames(const Reduction& reduction, v1::ReductionDescription* out) const;
  void FillCounters(StatusCounters counters) const;

  const Parts parts_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_STATUS_REPORT_H_
